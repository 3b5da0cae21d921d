"""The evidence: the control log, checkpoints, verification, and the erasure of texts."""
