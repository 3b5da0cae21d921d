"""The newest policy of each gate, as a worker knows it: SQL says what it is, the thresholds topic says when to look."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import structlog

from streamer.errors import BadMessage
from streamer.events.limits import Limits
from streamer.events.thresholds import decode_threshold
from streamer.gates.audit_rate import AuditRate
from streamer.gates.candidate import CandidatePolicy
from streamer.journal import ActivePolicy

log = structlog.get_logger(__name__)


class PolicyBook:
    """Thread-safe, and monotonic: a gate's trusted policy is only ever replaced by a trusted one of a higher version, and its
    audit rate and candidate by later ones.

    Parameters
    ----------
    load : reads the newest policies from SQL, of the named gates or (None) of all; may raise `Unavailable`. One that is
        not trusted stands for a gate that has no trusted one.
    limits : bounds for what is accepted from the thresholds topic.
    on_change : called with each policy that is taken up, a gate's in rising order of version; must not call the book.
    on_rejected : called with the code of each message on the thresholds topic that was refused.
    """

    def __init__(
        self,
        load: Callable[[Sequence[str] | None], dict[str, ActivePolicy]],
        *,
        limits: Limits,
        on_change: Callable[[ActivePolicy], None] = lambda _: None,
        on_rejected: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._load = load
        self._limits = limits
        self._on_change = on_change
        self._on_rejected = on_rejected
        self._active: dict[str, ActivePolicy] = {}
        self._encoders: frozenset[str] | None = None
        self._lock = threading.Lock()

    def get(self, gate: str) -> ActivePolicy | None:
        """Return the gate's newest policy, or None for a gate that is not known here."""
        with self._lock:
            return self._active.get(gate)

    def encoders(self) -> frozenset[str]:
        """Return what the gates compare answers by."""
        with self._lock:
            if self._encoders is None:
                settings = [active.policy.settings for active in self._active.values()]
                self._encoders = frozenset(one.encoder for one in settings if one.embeds)
            return self._encoders

    def refresh(self, gates: Iterable[str] | None = None) -> None:
        """Read policies from SQL. Blocks; raises `Unavailable` when the database is unavailable."""
        names = None if gates is None else sorted(set(gates))
        if names == []:
            return
        found = self._load(names)
        for gate, active in sorted(found.items()):
            with self._lock:
                held = self._active.get(gate)
                rate = active.rate if held is None else _later(active.rate, held.rate)
                candidate = active.candidate if held is None else _later(active.candidate, held.candidate)
                if held is not None and not _replaces(active, held):
                    # Above what is held only where the newest is refused.
                    newest_seen = max(active.newest_seen, held.newest_seen)
                    if (newest_seen, rate, candidate) != (held.newest_seen, held.rate, held.candidate):
                        self._active[gate] = replace(
                            held, newest_seen=newest_seen, rate=rate, candidate=candidate
                        )
                    continue
                active = self._active[gate] = replace(active, rate=rate, candidate=candidate)
                self._encoders = None
                # Within the lock: two threads that take up two versions must be reported in order.
                self._on_change(active)
            log.info(
                "deciding.policy_taken_up",
                gate=gate,
                version=active.policy.version,
                state=active.policy.state,
                threshold=active.policy.threshold,
                trusted=active.trusted,
            )

    def hear(self, key: bytes | None, value: bytes | None) -> None:
        """Process one message of the thresholds topic, only as a hint to read SQL.

        A tombstone, garbage, or a policy that is not newer changes nothing; a newer version makes this gate be
        read from SQL. Blocks; raises `Unavailable` when the database is unavailable (call again with the same message).
        """
        try:
            if value is None:
                raise BadMessage("tombstone", "a policy cannot be deleted through the topic")
            event = decode_threshold(value, self._limits)
            if key is not None and key != event.gate.encode():
                raise BadMessage("invalid_field", "the message key is not the gate's name")
        except BadMessage as bad:
            self._reject(bad.code, detail=bad.detail)
            return
        if self._version(event.gate) >= event.version:
            return
        self.refresh([event.gate])
        if self._version(event.gate) < event.version:
            self._reject("not_in_store", gate=event.gate, version=event.version)

    def _version(self, gate: str) -> int:
        held = self.get(gate)
        return 0 if held is None else held.policy.version

    def _reject(self, code: str, **facts: object) -> None:
        log.warning("deciding.threshold_message_rejected", code=code, **facts)
        self._on_rejected(code)


_Numbered = TypeVar("_Numbered", "AuditRate", "CandidatePolicy")


def _later(one: _Numbered | None, other: _Numbered | None) -> _Numbered | None:
    return max(one, other, key=lambda numbered: 0 if numbered is None else numbered.number)


def _replaces(new: ActivePolicy, held: ActivePolicy) -> bool:
    """Whether a policy takes the place of the one that is held."""
    if not (new.trusted and held.trusted):
        return new.trusted
    return new.policy.version > held.policy.version
