"""Policies: written one version after the other, never changed; the newest of a gate is the one in force."""

import builtins
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.gates.audit_rate import AuditRate
from streamer.gates.policy import ActivePolicy, CandidatePolicy, Policy
from streamer.journal import OutboxMessage
from streamer.signing.policies import PolicyVersion
from streamer.store.audit import control
from streamer.store.db.schema import policy_events
from streamer.store.db.schema.types import of_row
from streamer.store.log.outbox import enqueue, is_waiting
from streamer.store.part import Part
from streamer.store.policies.candidates import newest_candidates
from streamer.store.policies.policy_rows import keys_below, newest_keys, no_gate, read_versions
from streamer.store.policies.policy_writer import one_version
from streamer.store.risk.audit_rates import newest_rates


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEvent:
    """Who did what to a policy, when and why: `created`, `activated`, `superseded` or `closed`."""

    gate: str
    version: int
    event: Literal["created", "activated", "superseded", "closed"]
    by: str
    reason: str
    at: datetime


class Policies(Part):
    """The life of policies."""

    def newest(self, gate: str) -> Policy:
        """The newest policy, whether it is trusted or not. Raises `UsageError` when there is no such gate."""
        found = self._newest([gate])
        if not found:
            raise no_gate(gate)
        return found[gate]

    def newest_of_all(self) -> dict[str, Policy]:
        """The newest policy of each gate, by name, whether it is trusted or not."""
        return self._newest(None)

    def _newest(self, names: Sequence[str] | None) -> dict[str, Policy]:
        with self._database.reading() as connection:
            return {
                one.gate: _readable(one) for one in read_versions(connection, newest_keys(connection, names))
            }

    def active(self, names: Sequence[str] | None = None) -> dict[str, ActivePolicy]:
        """The newest readable policy of each gate (of all when None), trusted or not, with its audit draw's secret."""
        return {gate: one.active for gate, one in self.versions(names).items() if one.active is not None}

    def versions(self, names: Sequence[str] | None = None) -> dict[str, PolicyVersion]:
        """The newest policy of each gate (of all when None), not yet trusted, with its newest audit rate and candidate."""
        with self._database.reading() as connection:
            rates = newest_rates(connection, names, chained=True)
            candidates = newest_candidates(connection, names)
            return {
                one.gate: _at(one, rates.get(one.gate), candidates.get(one.gate))
                for one in read_versions(connection, newest_keys(connection, names))
            }

    def before(self, gate: str, version: int, limit: int) -> builtins.list[PolicyVersion]:
        """The policies before a version, the newest first, not yet trusted."""
        with self._database.reading() as connection:
            return read_versions(connection, keys_below(connection, gate, version, limit))

    def every_version(self, gate: str) -> builtins.list[PolicyVersion]:
        """Every version, the oldest first, not yet trusted. Raises `UsageError` when there is no such gate."""
        with self._database.reading() as connection:
            found = read_versions(connection, keys_below(connection, gate, None, None)[::-1])
        if not found:
            raise no_gate(gate)
        return found

    def list(self, gate: str) -> builtins.list[Policy]:
        """Every version that is trusted, the oldest first. Raises `UsageError` when there is no such gate."""
        return [
            one.active.policy
            for one in self.every_version(gate)
            if one.active is not None and self._writer.trusts(one)
        ]

    def get(self, gate: str, version: int) -> Policy:
        """One version. Raises `UsageError` when it does not exist."""
        return _readable(self.version(gate, version))

    def version(self, gate: str, version: int) -> PolicyVersion:
        """One version, not yet trusted. Raises `UsageError` when it does not exist."""
        return self._database.read(one_version, gate, version)

    def events(self, gate: str) -> builtins.list[PolicyEvent]:
        """What was done to the gate's policies, the oldest first."""
        query = sa.select(policy_events).where(policy_events.c.gate == gate).order_by(policy_events.c.id)
        return [of_row(PolicyEvent, row) for row in self._database.mappings(query)]

    def recent_events(self, limit: int) -> builtins.list[PolicyEvent]:
        """What put policies of any gate in force, the newest first: `activated` and `closed`."""
        query = (
            sa.select(policy_events)
            .where(policy_events.c.event.in_(("activated", "closed")))
            .order_by(policy_events.c.id.desc())
            .limit(limit)
        )
        return [of_row(PolicyEvent, row) for row in self._database.mappings(query)]

    def close(self, gate: str, *, by: str, reason: str, now: datetime | None = None) -> Policy:
        """Ship nothing from now on, under a new version; what was calibrated can be rolled back to.

        A newest policy that is not trusted is passed over: settings are those of the newest that is.
        """
        moment = now or self._clock()

        def work(connection: sa.Connection) -> Policy:
            present = self._writer.lock_to_close(connection, gate)
            return self._writer.next(connection, present.as_closed(), by=by, reason=reason, now=moment)

        closed = self._database.writing(work)
        self.chain_closings()
        return closed

    def chain_closings(self) -> None:
        """Bring closings into the control log that came while others held its head; cheap when there are none."""
        control.chain_closings(self._database)

    def rollback(
        self, gate: str, version: int, *, by: str, reason: str, now: datetime | None = None
    ) -> Policy:
        """Put the threshold of an older version in force again, under a new version.

        Raises `UsageError` when that version, or the newest, is not trusted, or was calibrated for other settings than
        the gate has now.
        """
        moment = now or self._clock()

        def work(connection: sa.Connection) -> Policy:
            present = self._writer.lock_newest(connection, gate)
            restored = self._writer.restored(connection, present, version)
            return self._writer.next(
                connection,
                restored,
                by=by,
                reason=reason,
                now=moment,
            )

        return self._database.writing(work)

    def sign(self, gate: str, version: int, *, by: str, reason: str) -> Policy:
        """Put a version in force again as it is, settings included, under a new version that is signed here.

        It need not be signed, or by a key that is trusted: who calls this vouches for it. Raises `UsageError` when it
        does not fit the signature that it has.
        """
        now = self._clock()

        def work(connection: sa.Connection) -> Policy:
            newest = self._writer.lock_any(connection, gate)
            vouched = self._writer.to_sign(connection, gate, version)
            return self._writer.next(
                connection, replace(vouched, version=newest), by=by, reason=reason, now=now
            )

        return self._database.writing(work)

    def message(self, policy: Policy) -> OutboxMessage | None:
        """The message about a policy; None when the record does not have this policy, or it is not trusted."""
        return self._database.read(self._own_message, policy)

    def announce(self, policy: Policy) -> bool:
        """Have the message about a policy published again, because others overwrote it on its topic.

        False, and nothing is enqueued, when the record does not have this policy, or it is not trusted. A message of the
        gate that waits already is enough.
        """
        now = self._clock()

        def work(connection: sa.Connection) -> bool:
            message = self._own_message(connection, policy)
            if message is not None and not is_waiting(connection, message, now):
                enqueue(connection, message, now)
            return message is not None

        return self._database.writing(work)

    def _own_message(self, connection: sa.Connection, policy: Policy) -> OutboxMessage | None:
        (found,) = read_versions(connection, [(policy.gate, policy.version)])
        if found.active is None or found.active.policy != policy:
            return None
        return self._writer.message_of(found)


def _at(found: PolicyVersion, rate: AuditRate | None, candidate: CandidatePolicy | None) -> PolicyVersion:
    if found.active is None or (rate is None and candidate is None):
        return found
    return replace(found, active=replace(found.active, rate=rate, candidate=candidate))


def _readable(found: PolicyVersion) -> Policy:
    if found.active is None:
        raise UsageError(
            f"policy {found.version} of gate {found.gate} cannot be read by this version; "
            "`streamer audit verify` shows whether it was changed"
        )
    return found.active.policy
