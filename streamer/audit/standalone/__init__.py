"""What an auditor needs without this package: one file of the standard library alone."""
