"""Keeps the last message of each gate on the compacted thresholds topic the one that workers decide with.

Workers read policies from the record, so that nobody can change a decision through the topic. Others read the topic,
and there the last message of a gate counts: a stranger may have written it, a tombstone may have taken its place, or
of two publishers the one with the older policy came last.
"""

import threading
from collections.abc import Callable
from typing import Protocol

import structlog

from streamer.deciding.policy_book import PolicyBook
from streamer.errors import BadMessage
from streamer.events.limits import Limits
from streamer.events.thresholds import ThresholdsV1, decode_threshold
from streamer.gates.policy import Policy
from streamer.journal import OutboxMessage

log = structlog.get_logger(__name__)


class PolicyMessages(Protocol):
    """The record's messages about its policies; calls may raise `Unavailable`."""

    def message(self, policy: Policy) -> OutboxMessage | None:
        """The message about a policy; None when it is not the record's own."""

    def announce(self, policy: Policy) -> bool:
        """Have the message published again; False when it is not the record's own."""


class Announcements:
    """Keeps the last message of each gate right. Thread-safe.

    Parameters
    ----------
    book : what this worker decides with; it hears every message first.
    messages : the record's.
    mine : whether this worker is the one of its group that looks after the topic.
    limits : bounds for what is read.
    clock : seconds that only grow.
    patience : seconds that the topic may be behind: the writer of a policy publishes it itself.
    pause : least seconds between two announcements of one gate, should somebody overwrite them all the time.
    """

    def __init__(
        self,
        book: PolicyBook,
        messages: PolicyMessages,
        *,
        mine: Callable[[], bool],
        limits: Limits,
        clock: Callable[[], float],
        patience: float = 4.0,
        pause: float = 30.0,
    ) -> None:
        self._book = book
        self._messages = messages
        self._mine = mine
        self._limits = limits
        self._clock = clock
        self._patience = patience
        self._pause = pause
        self._last: dict[str, bytes | None] = {}
        self._expected: dict[str, tuple[Policy, ThresholdsV1]] = {}
        self._behind_since: dict[str, float] = {}
        self._announced_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def hear(self, key: bytes | None, value: bytes | None) -> None:
        """Process one message of the topic, in order. Blocks; raises `Unavailable` (call again with the same message)."""
        self._book.hear(key, value)
        gate = "" if key is None else key.decode("utf-8", "replace")
        if self._book.get(gate) is not None:  # strangers may write any number of keys
            with self._lock:
                self._last[gate] = value

    def keep(self) -> None:
        """Check whether the topic is behind, and have the right message published again. Blocks; raises `Unavailable`."""
        if not self._mine():
            self._behind_since.clear()
            return
        with self._lock:
            last = dict(self._last)
        for gate, value in last.items():
            active = self._book.get(gate)
            if active is None or not active.trusted:
                continue
            expected = self._event_of(active.policy)
            if expected is None or self._says(value, expected):
                self._behind_since.pop(gate, None)
            elif self._is_due(gate) and self._messages.announce(active.policy):
                self._announced_at[gate] = self._clock()
                log.warning("deciding.policy_announced_again", gate=gate, version=active.policy.version)

    def _is_due(self, gate: str) -> bool:
        now = self._clock()
        since = self._behind_since.setdefault(gate, now)
        announced = self._announced_at.get(gate)
        return now - since >= self._patience and (announced is None or now - announced >= self._pause)

    def _event_of(self, policy: Policy) -> ThresholdsV1 | None:
        held = self._expected.get(policy.gate)
        if held is None or held[0] is not policy:
            message = self._messages.message(policy)
            if message is None:
                return None
            held = self._expected[policy.gate] = (policy, decode_threshold(message.value, self._limits))
        return held[1]

    def _says(self, value: bytes | None, expected: ThresholdsV1) -> bool:
        """Compare what is known of the event: another version of the program may write more, or less."""
        try:
            return decode_threshold(value, self._limits) == expected
        except BadMessage:
            return False
