"""The evidence: the control chain, checkpoints, verification, and the erasure of texts."""
