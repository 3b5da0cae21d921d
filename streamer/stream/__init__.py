"""The only package that imports Kafka clients: records in with lease and seek, outcomes committed, the outbox published."""
