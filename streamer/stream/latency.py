"""From a record's timestamp to the moment when the broker has its action."""

from collections import OrderedDict

from streamer.journal import OutboxMessage

_ID_HEADER = "ce_id"


class LatencyLedger:
    """Remembers when the records of unpublished actions were made, by the action's ``ce_id`` header.

    Bounded: of more than `capacity` unpublished actions the oldest are forgotten, and so are all at exit;
    a latency is then not measured, never measured wrongly.
    """

    def __init__(self, capacity: int = 100_000) -> None:
        self._capacity = capacity
        self._made_at: OrderedDict[bytes, int] = OrderedDict()

    def remember(self, action: OutboxMessage, timestamp_ms: int) -> None:
        """The action's record carries this timestamp (milliseconds since 1970; below 0: none)."""
        identity = _identity(action)
        if identity is not None and timestamp_ms >= 0:
            self._made_at[identity] = timestamp_ms
            if len(self._made_at) > self._capacity:
                self._made_at.popitem(last=False)

    def acknowledged(self, action: OutboxMessage, now_ms: float) -> float | None:
        """Seconds that passed (0 or more), once for each action; None when it is not known."""
        identity = _identity(action)
        made_at = None if identity is None else self._made_at.pop(identity, None)
        return None if made_at is None else max(0.0, (now_ms - made_at) / 1000)


def _identity(action: OutboxMessage) -> bytes | None:
    return next((value for name, value in action.headers if name == _ID_HEADER), None)
