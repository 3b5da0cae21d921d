"""Policies: minted one version after the other, never changed; the newest of a gate is the one in force."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.journal import ActivePolicy
from streamer.policy import GateSettings, Policy, calibrated_for_another
from streamer.rules import INDICATOR
from streamer.store import control
from streamer.store.outbox import enqueue
from streamer.store.schema import gate_revisions, gates, policies, policy_events

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from streamer.journal import OutboxMessage
    from streamer.store.engine import Database
    from streamer.store.schema.types import Row

    PolicyMessage = Callable[[Policy], OutboxMessage]

SETTINGS = tuple(field.name for field in fields(GateSettings))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEvent:
    """Who did what to a policy, when and why: `created`, `activated`, `superseded` or `closed`."""

    gate: str
    version: int
    event: Literal["created", "activated", "superseded", "closed"]
    by: str
    reason: str
    at: datetime


class Policies:
    """The life of policies."""

    def __init__(
        self, database: Database, *, clock: Callable[[], datetime], policy_message: PolicyMessage
    ) -> None:
        self._database = database
        self._clock = clock
        self._message = policy_message

    def newest(self, gate: str) -> Policy:
        """The policy in force. Raises `UsageError` when there is no such gate."""
        with self._database.reading() as connection:
            found = newest_policies(connection, [gate])
        if gate not in found:
            raise no_gate(gate)
        return found[gate].policy

    def active(self, names: Sequence[str] | None = None) -> dict[str, ActivePolicy]:
        """The policy in force of each gate (of all when None), with the secret of its audit draw."""
        with self._database.reading() as connection:
            return newest_policies(connection, names)

    def list(self, gate: str) -> builtins.list[Policy]:
        """Every version, the oldest first. Raises `UsageError` when there is no such gate."""
        with self._database.reading() as connection:
            rows = connection.execute(
                _select().where(policies.c.gate == gate).order_by(policies.c.version)
            ).mappings()
            found = [_policy(row) for row in rows]
        if not found:
            raise no_gate(gate)
        return found

    def get(self, gate: str, version: int) -> Policy:
        """One version. Raises `UsageError` when it does not exist."""
        with self._database.reading() as connection:
            return _one(connection, gate, version)

    def events(self, gate: str) -> builtins.list[PolicyEvent]:
        """What was done to the gate's policies, the oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                sa.select(policy_events).where(policy_events.c.gate == gate).order_by(policy_events.c.id)
            ).mappings()
            return [PolicyEvent(**{name: row[name] for name in PolicyEvent.__slots__}) for row in rows]

    def close(self, gate: str, *, by: str, reason: str, now: datetime | None = None) -> Policy:
        """Ship nothing from now on, under a new version; what was calibrated can be rolled back to."""
        moment = now or self._clock()

        def work(connection: sa.Connection) -> Policy:
            present = lock_newest(connection, gate)
            return mint_policy(
                connection,
                replace(
                    present,
                    state="closed",
                    threshold=None,
                    rule=INDICATOR,
                    calibration_run=None,
                    guarantee="",
                ),
                by=by,
                reason=reason,
                now=moment,
                message=self._message,
            )

        return self._database.writing(work)

    def rollback(
        self, gate: str, version: int, *, by: str, reason: str, now: datetime | None = None
    ) -> Policy:
        """Put the threshold of an older version in force again, under a new version.

        Raises `UsageError` when that version was calibrated for other settings than the gate has now.
        """
        moment = now or self._clock()

        def work(connection: sa.Connection) -> Policy:
            present = lock_newest(connection, gate)
            older = _one(connection, gate, version)
            changed = calibrated_for_another(older.settings, present.settings)
            if changed:
                raise UsageError(
                    f"policy {version} of {gate} was calibrated for another {', '.join(changed)}; recalibrate instead"
                )
            return mint_policy(
                connection,
                replace(
                    present,
                    state=older.state,
                    threshold=older.threshold,
                    rule=older.rule,
                    calibrated=older.calibrated,
                    calibration_run=older.calibration_run,
                    guarantee=older.guarantee,
                ),
                by=by,
                reason=reason,
                now=moment,
                message=self._message,
            )

        return self._database.writing(work)


def no_gate(gate: str) -> UsageError:
    """The error for a gate that nobody created."""
    return UsageError(f"there is no gate {gate!r}; `streamer gate list` shows those there are")


def newest_policies(connection: sa.Connection, names: Sequence[str] | None) -> dict[str, ActivePolicy]:
    """The newest policy of each gate, with the gate's salt."""
    newest = (
        sa.select(policies.c.gate, sa.func.max(policies.c.version).label("version"))
        .group_by(policies.c.gate)
        .subquery()
    )
    query = _select().join(
        newest, (newest.c.gate == policies.c.gate) & (newest.c.version == policies.c.version)
    )
    if names is not None:
        query = query.where(policies.c.gate.in_(list(names)))
    return {
        row["gate"]: ActivePolicy(_policy(row), row["audit_salt"])
        for row in connection.execute(query).mappings()
    }


def lock_newest(connection: sa.Connection, gate: str) -> Policy:
    """Keep others from changing this gate until the transaction ends, and read its newest policy."""
    # NO KEY UPDATE: workers that write decisions, whose foreign keys look at the gate, need not wait.
    connection.execute(
        sa.select(gates.c.name).where(gates.c.name == gate).with_for_update(key_share=True)
    ).one_or_none()
    found = newest_policies(connection, [gate])
    if gate not in found:
        raise no_gate(gate)
    return found[gate].policy


def mint_policy(
    connection: sa.Connection,
    changed: Policy,
    *,
    by: str,
    reason: str,
    now: datetime,
    message: PolicyMessage,
) -> Policy:
    """Write a new version of a policy, its events, and the message about it.

    `changed` is the newest policy of its gate, which is locked, with what is to be different from now on.
    """
    policy = replace(changed, version=changed.version + 1, valid_from=now, created_by=by, reason=reason)
    write_policy(connection, policy, message)
    write_event(connection, changed.gate, changed.version, "superseded", by=by, reason=reason, now=now)
    return policy


def write_policy(connection: sa.Connection, policy: Policy, message: PolicyMessage) -> None:
    """Insert a policy, say what happened to it, and enqueue the message that tells the workers."""
    connection.execute(
        sa.insert(policies).values({column.name: getattr(policy, column.name) for column in policies.columns})
    )
    control.append(connection, policies, [(policy.gate, policy.version)], now=policy.valid_from)
    for event in ("created", "closed" if policy.state == "closed" else "activated"):
        write_event(
            connection,
            policy.gate,
            policy.version,
            event,
            by=policy.created_by,
            reason=policy.reason,
            now=policy.valid_from,
        )
    enqueue(connection, message(policy), policy.valid_from)


def write_event(
    connection: sa.Connection, gate: str, version: int, event: str, *, by: str, reason: str, now: datetime
) -> None:
    """Add one line to the story of a policy."""
    identity = connection.execute(
        sa.insert(policy_events)
        .values(gate=gate, version=version, event=event, by=by, reason=reason, at=now)
        .returning(policy_events.c.id)
    ).scalar_one()
    control.append(connection, policy_events, [(identity,)], now=now)


def settings_of(row: Row) -> GateSettings:
    """The settings in a row of `gate_revisions`."""
    return GateSettings(**{name: row[name] for name in SETTINGS})


def _select() -> sa.Select[Any]:
    return (
        sa.select(
            policies,
            *(gate_revisions.c[name] for name in SETTINGS),
            gates.c.seed,
            gates.c.audit_salt,
        )
        .join(
            gate_revisions,
            (gate_revisions.c.gate == policies.c.gate)
            & (gate_revisions.c.revision == policies.c.gate_revision),
        )
        .join(gates, gates.c.name == policies.c.gate)
    )


def _one(connection: sa.Connection, gate: str, version: int) -> Policy:
    row = (
        connection.execute(_select().where(policies.c.gate == gate, policies.c.version == version))
        .mappings()
        .one_or_none()
    )
    if row is None:
        raise UsageError(f"gate {gate!r} has no policy {version}")
    return _policy(row)


def _policy(row: Row) -> Policy:
    return Policy(
        settings=settings_of(row),
        seed=row["seed"],
        **{column.name: row[column.name] for column in policies.columns},
    )
