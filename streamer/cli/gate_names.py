"""The names of gates, for the shell to complete."""

from contextlib import suppress


def gate_names(incomplete: str) -> list[str]:
    """List the gates whose names begin so; none when the database is unavailable, since completion must not fail."""
    with suppress(Exception):
        from streamer import wiring
        from streamer.settings.settings import load_settings

        with wiring.open_store(load_settings()) as store:
            return [revision.gate for revision in store.gates.list() if revision.gate.startswith(incomplete)]
    return []
