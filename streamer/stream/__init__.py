"""The only room that knows Kafka: records in with lease and seek, outcomes committed, the outbox published."""
