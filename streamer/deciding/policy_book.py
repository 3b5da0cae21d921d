"""The newest policy of each gate, as a worker knows it: SQL says what it is, the thresholds topic says when to look. Of what the record has, the newest that is trusted.

Keeps the last message of each gate on the compacted thresholds topic the one that workers decide with.

Workers read policies from the record, so that nobody can change a decision through the topic. Others read the topic,
and there the last message of a gate counts: a stranger may have written it, a tombstone may have taken its place, or
of two publishers the one with the older policy came last.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from typing import TypeVar

import structlog

from streamer.errors import BadMessage
from streamer.events.limits import Limits
from streamer.events.thresholds import ThresholdsV1, decode_threshold
from streamer.gates.audit_rate import AuditRate
from streamer.gates.policy import ActivePolicy, CandidatePolicy, Policy
from streamer.gates.settings import NO_ENCODER, GateSettings
from streamer.journal import OutboxMessage
from streamer.signing.policies import REFUSAL_TEXTS, PolicyKeys, PolicyVersion, Refusal

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class PolicyBook:
    """The newest policy of each gate. Thread-safe, and monotonic: a gate's trusted policy is only
    ever replaced by a trusted one of a higher version, and its audit rate and candidate by later
    ones.

    `load` reads the newest policies from SQL, of the named gates or (None) of all; it may raise
    `Unavailable`. One that is not trusted stands for a gate that has no trusted one. `limits` bound
    what is accepted from the thresholds topic. `on_change` is called with each policy that is taken
    up, a gate's in rising order of version, and must not call the book; `on_rejected` with the code
    of each message on the topic that was refused.
    """

    load: Callable[[Sequence[str] | None], dict[str, ActivePolicy]]
    _: KW_ONLY
    limits: Limits
    on_change: Callable[[ActivePolicy], None] = lambda _: None
    on_rejected: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
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
        found = self.load(names)
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
                self.on_change(active)
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
            event = decode_threshold(value, self.limits)
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
        self.on_rejected(code)


_Numbered = TypeVar("_Numbered", "AuditRate", "CandidatePolicy")


def _later(one: _Numbered | None, other: _Numbered | None) -> _Numbered | None:
    return max(one, other, key=lambda numbered: 0 if numbered is None else numbered.number)


def _replaces(new: ActivePolicy, held: ActivePolicy) -> bool:
    """Whether a policy takes the place of the one that is held."""
    if not (new.trusted and held.trusted):
        return new.trusted
    return new.policy.version > held.policy.version


_PAGE = 50
_REMEMBERED = 10_000
"""Refusals remembered so that each is reported once; beyond this many they may be reported again."""


@dataclass(eq=False)
class TrustedPolicies:
    """Reads policies and skips those that are refused by `keys`. Thread-safe.

    `versions` reads the newest of each gate (of all gates when None), `before` so many of a gate
    before a version, the newest first; none is trusted yet, and both may raise `Unavailable`.
    `on_refused` is called with gate, version and reason of each refused policy, once; `raise_alert`
    with these and the version that is kept (or None), and again with the next look as long as it
    raises `Unavailable`. `now`, with zone, dates what stands in for policies when none can be read.
    """

    versions: Callable[[Sequence[str] | None], Mapping[str, PolicyVersion]]
    before: Callable[[str, int, int], Sequence[PolicyVersion]]
    keys: PolicyKeys
    _: KW_ONLY
    on_refused: Callable[[str, int, Refusal], None]
    raise_alert: Callable[[str, int, Refusal, int | None], None]
    now: Callable[[], datetime]

    def __post_init__(self) -> None:
        self._good: dict[str, ActivePolicy] = {}
        self._refused: dict[tuple[str, int, Refusal], bool] = {}
        self._lock = threading.Lock()

    def __call__(self, names: Sequence[str] | None) -> dict[str, ActivePolicy]:
        """Return the newest trusted policy of each gate (of all when None).

        A gate none of whose policies is trusted gets one that is not: it holds everything. A gate whose newest policy is
        refused keeps the one that was found to be trusted before. Blocks; raises `Unavailable`.
        """
        with self._lock:
            return {
                gate: replace(
                    self._trusted(newest),
                    newest_seen=newest.version,
                    rate=None if newest.active is None else newest.active.rate,
                    candidate=None if newest.active is None else newest.active.candidate,
                )
                for gate, newest in sorted(self.versions(names).items())
            }

    def _trusted(self, newest: PolicyVersion) -> ActivePolicy:
        gate, kept = newest.gate, self._good.get(newest.gate)
        refusals: list[tuple[int, Refusal]] = []
        for found in self._from(newest, 0 if kept is None else kept.policy.version):
            refusal = self.keys.refusal(found)
            if refusal is None and found.active is not None:
                if kept is None or found.version > kept.policy.version:
                    kept = self._good[gate] = found.active
                break
            refusals.append((found.version, refusal or "unreadable"))
        for version, refusal in reversed(refusals):
            self._report(gate, version, refusal, None if kept is None else kept.policy.version)
        return _holding(newest, self.now()) if kept is None else kept

    def _from(self, newest: PolicyVersion, known: int) -> Iterator[PolicyVersion]:
        """The newest version and those before it, down to the one that was found to be trusted before."""
        yield newest
        last = newest.version
        while page := self.before(newest.gate, last, _PAGE):
            for found in page:
                if found.version <= known:
                    return
                yield found
            last = page[-1].version

    def _report(self, gate: str, version: int, refusal: Refusal, kept: int | None) -> None:
        key = (gate, version, refusal)
        if key not in self._refused:
            while len(self._refused) >= _REMEMBERED:
                self._refused.pop(next(iter(self._refused)))
            self._refused[key] = False
            self.on_refused(gate, version, refusal)
            log.error(
                "deciding.policy_refused",
                gate=gate,
                version=version,
                reason=refusal,
                detail=REFUSAL_TEXTS[refusal],
                keeping=kept,
            )
        if not self._refused[key]:
            self.raise_alert(gate, version, refusal, kept)
            self._refused[key] = True


def _holding(newest: PolicyVersion, now: datetime) -> ActivePolicy:
    """What a gate is decided with while none of its policies is trusted: everything is held, and consumers must obey."""
    if newest.active is None:
        settings = GateSettings(scorer="external", encoder=NO_ENCODER, unit="batch", mode="enforce")
        policy = Policy(
            gate=newest.gate, version=newest.version, gate_revision=1, settings=settings, state="closed", threshold=None,
            calibrated=False, calibration_run=None, seed=0, valid_from=now, guarantee="", created_by="", reason="",
        )  # fmt: skip
        return ActivePolicy(policy, bytes(32), trusted=False)
    policy = newest.active.policy
    return ActivePolicy(
        replace(
            policy.as_closed(),
            # A gate in shadow mode would let untrusted batches pass.
            settings=replace(policy.settings, mode="enforce"),
            calibrated=False,
        ),
        newest.active.audit_salt,
        trusted=False,
    )


@dataclass(eq=False)
class Announcements:
    """Keeps the last message of each gate right. Thread-safe. The book hears every message first.

    `message` gives the one about a policy, None when it is not the record's own; `announce` has it
    published again, False when it is not. Both may raise `Unavailable`.
    `mine` says whether this worker is the one of its group that looks after the topic. `clock`
    gives seconds that only grow: the topic may be behind for `patience` of them, for the writer of
    a policy publishes it itself, and between two announcements of one gate are at least `pause`,
    should somebody overwrite them all the time.
    """

    book: PolicyBook
    _: KW_ONLY
    message: Callable[[Policy], OutboxMessage | None]
    announce: Callable[[Policy], bool]
    mine: Callable[[], bool]
    limits: Limits
    clock: Callable[[], float]
    patience: float = 4.0
    pause: float = 30.0

    def __post_init__(self) -> None:
        self._last: dict[str, bytes | None] = {}
        self._expected: dict[str, tuple[Policy, ThresholdsV1]] = {}
        self._behind_since: dict[str, float] = {}
        self._announced_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def hear(self, key: bytes | None, value: bytes | None) -> None:
        """Process one message of the topic, in order. Blocks; raises `Unavailable` (call again with the same message)."""
        self.book.hear(key, value)
        gate = "" if key is None else key.decode("utf-8", "replace")
        if self.book.get(gate) is not None:  # strangers may write any number of keys
            with self._lock:
                self._last[gate] = value

    def keep(self) -> None:
        """Check whether the topic is behind, and have the right message published again. Blocks; raises `Unavailable`."""
        if not self.mine():
            self._behind_since.clear()
            return
        with self._lock:
            last = dict(self._last)
        for gate, value in last.items():
            active = self.book.get(gate)
            if active is None or not active.trusted:
                continue
            expected = self._event_of(active.policy)
            if expected is None or self._says(value, expected):
                self._behind_since.pop(gate, None)
            elif self._is_due(gate) and self.announce(active.policy):
                self._announced_at[gate] = self.clock()
                log.warning("deciding.policy_announced_again", gate=gate, version=active.policy.version)

    def _is_due(self, gate: str) -> bool:
        now = self.clock()
        since = self._behind_since.setdefault(gate, now)
        announced = self._announced_at.get(gate)
        return now - since >= self.patience and (announced is None or now - announced >= self.pause)

    def _event_of(self, policy: Policy) -> ThresholdsV1 | None:
        held = self._expected.get(policy.gate)
        if held is None or held[0] is not policy:
            message = self.message(policy)
            if message is None:
                return None
            held = self._expected[policy.gate] = (policy, decode_threshold(message.value, self.limits))
        return held[1]

    def _says(self, value: bytes | None, expected: ThresholdsV1) -> bool:
        """Compare what is known of the event: another version of the program may write more, or less."""
        try:
            return decode_threshold(value, self.limits) == expected
        except BadMessage:
            return False
