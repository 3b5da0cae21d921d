"""Safety of what is shown, written and connected: redaction, terminal text, CSV cells, loopback addresses."""
