"""After a change in SQL: announce it to the workers at once if a broker is available, and say so if not."""

from typing import TYPE_CHECKING

from streamer import wiring
from streamer.cli.console import note, warn
from streamer.cli.reachability import require_broker
from streamer.errors import Unavailable, UsageError

if TYPE_CHECKING:
    from streamer.settings.settings import Settings


def announce_now(settings: "Settings") -> None:
    """Publish what the change left in the outbox. Without a broker nothing is lost: a worker publishes it."""
    if settings.kafka.bootstrap_servers is None:
        note("It is recorded. No broker is configured here; the next worker announces it.")
        return
    try:
        require_broker(settings)
        wiring.publish_pending(settings)
    except Unavailable:
        note("It is recorded. The broker is unavailable; the next worker announces it.")
    except UsageError as error:
        warn(f"It is recorded, and the next worker announces it; it cannot be announced from here: {error}")
