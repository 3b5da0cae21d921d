"""Decisions and outcomes: progress, the group commit, the Merkle logs of partitions, the outbox and dead letters."""
