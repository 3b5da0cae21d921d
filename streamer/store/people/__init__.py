"""People and programs that may come in: accounts, sessions, API keys."""
