"""Comparisons on public response clouds, each a command: ``python -m streamer_research.studies.NAME FILES``."""
