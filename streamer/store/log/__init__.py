"""Decisions and outcomes: progress, the group commit, the hash chains of partitions, the outbox and dead letters."""
