"""The laws of the weights within a group, by name."""

LAWS: tuple[str, ...] = ("mean", "crc", "bb", "rbwa")
"""What the calibrators whose budget holds on average choose among."""
