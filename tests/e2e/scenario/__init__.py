"""The story of a gate, from its first label to an alarm and back, told on real services."""
