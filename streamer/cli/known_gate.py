"""What is wrong with publishing to a gate, as far as the record can be asked from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamer.settings import Settings


def warn_of_unknown(settings: Settings, gate: str, *, kind: str | None = None) -> None:
    """Say that nobody has created this gate, or that labels of `kind` do not control it.

    Whoever publishes need not be able to read the record: then nothing is said.
    """
    from streamer import wiring
    from streamer.cli.console import warn
    from streamer.errors import StreamerError

    try:
        with wiring.open_store(settings) as store:
            found = store.gates.get(gate) if store.policies.versions([gate]) else None
    except StreamerError:
        return
    if found is None:
        also = "" if kind is None else f" --severity-kind {kind}"
        warn(
            f"there is no gate {gate!r} in the database that is configured here: workers refuse its batches (unknown_gate) "
            f"until there is; streamer gate create {gate}{also}"
        )
    elif kind is not None and found.settings.severity_kind != kind:
        warn(
            f"gate {gate!r} is controlled by severities of the kind {found.settings.severity_kind!r}: those of the kind "
            f"{kind!r} are recorded and do not count; streamer gate create NAME --severity-kind {kind} makes one "
            "where they do"
        )
