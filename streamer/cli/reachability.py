"""Whether the broker accepts us: known in seconds, with the reason, where client libraries keep trying."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamer import wiring

if TYPE_CHECKING:
    from streamer.settings.settings import Settings

_SECONDS = 2.0


def require_broker(settings: Settings) -> None:
    """Return when one of the bootstrap servers accepts us.

    Raises
    ------
    Unavailable : none answers.
    UsageError : none is configured, or it refuses the way in which it is talked to.
    """
    from streamer.stream.handshake import shake_hands

    shake_hands(wiring.connection(settings), seconds=_SECONDS)
