"""Checking the record: checkpoints that are signed and kept elsewhere, and everything re-derived."""
