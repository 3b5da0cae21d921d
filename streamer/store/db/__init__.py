"""Connections, transactions, leases, locks, roles and migrations, on SQLite and PostgreSQL."""
