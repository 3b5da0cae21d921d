"""Which policy of each gate a worker may decide with: the newest in the record that is trusted."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

import structlog

from streamer.gates.policy import Policy
from streamer.gates.settings import NO_ENCODER, GateSettings
from streamer.journal import ActivePolicy
from streamer.signing.policies import REFUSAL_TEXTS, PolicyKeys, PolicyVersion, Refusal

log = structlog.get_logger(__name__)

_PAGE = 50
_REMEMBERED = 10_000
"""Refusals remembered so that each is reported once; beyond this many they may be reported again."""


class PolicySource(Protocol):
    """The record's policies, not yet trusted; calls may raise `Unavailable`."""

    def versions(self, names: Sequence[str] | None = None) -> Mapping[str, PolicyVersion]:
        """The newest of each gate, of all gates when None."""

    def before(self, gate: str, version: int, limit: int) -> Sequence[PolicyVersion]:
        """Those before a version, the newest first."""


class TrustedPolicies:
    """Reads policies and skips those that are refused. Thread-safe.

    Parameters
    ----------
    source : where policies are read.
    keys : decide which are trusted.
    on_refused : called with gate, version and reason of each refused policy, once.
    raise_alert : called with gate, version, reason and the version that is kept (or None); called again with the next
        look as long as it raises `Unavailable`.
    now : the present time, with zone; dates what stands in for policies when none can be read.
    """

    def __init__(
        self,
        source: PolicySource,
        keys: PolicyKeys,
        *,
        on_refused: Callable[[str, int, Refusal], None],
        raise_alert: Callable[[str, int, Refusal, int | None], None],
        now: Callable[[], datetime],
    ) -> None:
        self._source = source
        self._keys = keys
        self._on_refused = on_refused
        self._raise_alert = raise_alert
        self._now = now
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
                for gate, newest in sorted(self._source.versions(names).items())
            }

    def _trusted(self, newest: PolicyVersion) -> ActivePolicy:
        gate, kept = newest.gate, self._good.get(newest.gate)
        refusals: list[tuple[int, Refusal]] = []
        for found in self._from(newest, 0 if kept is None else kept.policy.version):
            refusal = self._keys.refusal(found)
            if refusal is None and found.active is not None:
                if kept is None or found.version > kept.policy.version:
                    kept = self._good[gate] = found.active
                break
            refusals.append((found.version, refusal or "unreadable"))
        for version, refusal in reversed(refusals):
            self._report(gate, version, refusal, None if kept is None else kept.policy.version)
        return _holding(newest, self._now()) if kept is None else kept

    def _from(self, newest: PolicyVersion, known: int) -> Iterator[PolicyVersion]:
        """The newest version and those before it, down to the one that was found to be trusted before."""
        yield newest
        last = newest.version
        while page := self._source.before(newest.gate, last, _PAGE):
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
            self._on_refused(gate, version, refusal)
            log.error(
                "deciding.policy_refused",
                gate=gate,
                version=version,
                reason=refusal,
                detail=REFUSAL_TEXTS[refusal],
                keeping=kept,
            )
        if not self._refused[key]:
            self._raise_alert(gate, version, refusal, kept)
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
