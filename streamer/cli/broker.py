"""Whether the broker accepts us, known in seconds where client libraries keep trying; and announcing a change in SQL there."""

from streamer import wiring
from streamer.cli.console import note, warn
from streamer.errors import Unavailable, UsageError
from streamer.journal import Partition
from streamer.settings.settings import Settings

_SECONDS = 2.0


def require_broker(settings: Settings) -> None:
    """Return when one of the bootstrap servers accepts us.

    Raises `Unavailable` where none answers, `UsageError` where none is configured or it refuses the
    way in which it is talked to.
    """
    from streamer.stream.handshake import shake_hands

    shake_hands(wiring.connection(settings), seconds=_SECONDS)


def bounds_of_responses(settings: Settings) -> dict[Partition, tuple[int, int]] | None:
    """First and end offset of each partition of the responses; None where no broker is configured, answers or lets us ask."""
    if settings.kafka.bootstrap_servers is None:
        return None
    from streamer.stream.tail import KafkaLog

    try:
        require_broker(settings)
        log = KafkaLog(wiring.connection(settings), log_id=settings.kafka.log_id)
        topic = wiring.topics(settings).responses
        return {Partition(log.id, topic, number): ends for number, ends in log.bounds(topic).items()}
    except (Unavailable, UsageError):
        return None


def announce_now(settings: Settings) -> None:
    """Publish what the change left in the outbox. Without a broker nothing is lost: a worker publishes it."""
    if settings.kafka.bootstrap_servers is None:
        note(
            "It is recorded: `streamer serve` and workers read it within ten seconds. No broker is configured here; the next "
            "worker announces it."
        )
        return
    try:
        require_broker(settings)
        wiring.publish_pending(settings)
    except Unavailable:
        note("It is recorded. The broker is unavailable; the next worker announces it.")
    except UsageError as error:
        warn(f"It is recorded, and the next worker announces it; it cannot be announced from here: {error}")
