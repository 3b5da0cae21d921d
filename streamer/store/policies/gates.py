"""Gates: named, with a secret and a seed drawn once, and settings in append-only revisions."""

import builtins
import secrets
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.gates.policy import GateRevision, Policy
from streamer.gates.setting import GATE_NAME, GATE_NAME_RULE
from streamer.gates.setting_changes import calibrated_for_another
from streamer.gates.settings import PARAMETERS, GateSettings
from streamer.store.audit import control
from streamer.store.db.engine import unless_there
from streamer.store.db.schema import gate_revisions, gates, policies
from streamer.store.db.schema.joins import REVISION_OF_POLICY, newest, same
from streamer.store.db.schema.types import HASH_BYTES, Row, of_row, row_of
from streamer.store.part import Part
from streamer.store.policies.policy_rows import SETTINGS, no_gate, settings_of

_SEED_BITS = 63


class Gates(Part):
    """The decision points that risk owners have set up."""

    def create(
        self,
        name: str,
        settings: GateSettings,
        *,
        by: str,
        reason: str,
        seed: int | None = None,
        now: datetime | None = None,
    ) -> GateRevision:
        """Create a gate with policy version 1: closed, until a calibration opens it.

        The name is ``[a-z0-9][a-z0-9._-]{0,63}``. The seed, in [0, 2^63), is drawn when none is given; it is
        fixed here, before any label is read. Raises `UsageError` when the name is not valid or
        taken, or the seed is out of range.
        """
        if not GATE_NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name for a gate: {GATE_NAME_RULE}")
        if seed is not None and not 0 <= seed < 2**_SEED_BITS:
            raise UsageError(f"the seed must be in 0..2^{_SEED_BITS}-1")
        moment = now or self._clock()
        revision = GateRevision(
            gate=name,
            revision=1,
            settings=settings,
            seed=secrets.randbits(_SEED_BITS) if seed is None else seed,
            audit_salt=secrets.token_bytes(HASH_BYTES),
            created_at=moment,
            created_by=by,
            reason=reason,
        )

        def work(connection: sa.Connection) -> GateRevision:
            if connection.execute(sa.select(gates.c.name).where(gates.c.name == name)).first():
                raise _taken(name)
            control.insert(connection, gates, row_of(gates, revision, name=name), now=moment)
            _write_revision(connection, revision)
            policy = Policy(
                gate=name,
                version=1,
                gate_revision=1,
                settings=settings,
                state="closed",
                threshold=None,
                calibrated=False,
                calibration_run=None,
                seed=revision.seed,
                valid_from=moment,
                guarantee="",
                created_by=by,
                reason=reason,
            )
            self._writer.write(connection, policy)
            return revision

        with unless_there("pk_gates", _taken(name)):
            return self._database.writing(work)

    def revise(
        self, name: str, changes: Mapping[str, object], *, by: str, reason: str, now: datetime | None = None
    ) -> GateRevision:
        """Change settings under a new revision and write the policy that carries them.

        A change of what the threshold was calibrated for closes the gate until it is recalibrated;
        another keeps state, threshold, run and guarantee. Raises `UsageError` when there is no such
        gate, a setting is unknown or out of range, or nothing would change.
        """
        known = dict.fromkeys((*SETTINGS, *PARAMETERS))
        unknown = sorted(set(changes) - set(known))
        if unknown:
            raise UsageError(f"a gate has no setting {', '.join(unknown)}; there are {', '.join(known)}")
        moment = now or self._clock()

        def work(connection: sa.Connection) -> GateRevision:
            present = self._writer.lock_newest(connection, name)
            carried = _in_force(connection, name)
            # From the policy, which is trusted: a revision without one may be anybody's.
            before = present.settings
            try:
                wanted = replace(before, **changes)  # type: ignore[arg-type]
            except ValueError as error:
                raise UsageError(str(error)) from None
            except TypeError as error:
                raise UsageError(f"a setting has the wrong type: {error}") from None
            if wanted.flat() == before.flat():
                raise UsageError(f"gate {name} has these settings already")
            revision = replace(
                carried,
                revision=_last_revision(connection, name) + 1,
                settings=wanted,
                created_at=moment,
                created_by=by,
                reason=reason,
            )
            _write_revision(connection, revision)
            policy = replace(present, gate_revision=revision.revision, settings=wanted)
            if calibrated_for_another(before, wanted):
                policy = replace(policy.as_closed(), calibrated=False)
            self._writer.next(connection, policy, by=by, reason=reason, now=moment)
            return revision

        return self._database.writing(work)

    def get(self, name: str) -> GateRevision:
        """The revision that the newest policy carries. Raises `UsageError` when there is no such gate."""
        return self._database.read(_in_force, name)

    def list(self) -> builtins.list[GateRevision]:
        """The revision that the newest policy of every gate carries, by name."""
        query = _of_newest_policies().order_by(gates.c.name)
        return [_revision(row) for row in self._database.mappings(query)]

    def history(self, name: str) -> builtins.list[GateRevision]:
        """Every revision, the oldest first. Raises `UsageError` when there is no such gate."""
        query = _select().where(gates.c.name == name).order_by(gate_revisions.c.revision)
        found = [_revision(row) for row in self._database.mappings(query)]
        if not found:
            raise no_gate(name)
        return found


def _taken(name: str) -> UsageError:
    return UsageError(f"there is a gate {name!r} already; `streamer gate set` changes it")


def _write_revision(connection: sa.Connection, revision: GateRevision) -> None:
    row = row_of(gate_revisions, revision, **revision.settings.flat())
    control.insert(connection, gate_revisions, row, now=revision.created_at)


def _select() -> sa.Select[Any]:
    return sa.select(gate_revisions, gates.c.seed, gates.c.audit_salt).join(
        gates, gates.c.name == gate_revisions.c.gate
    )


def _of_newest_policies() -> sa.Select[Any]:
    """Revisions that a policy made: one that somebody wrote past the program is in force nowhere."""
    last = newest(policies.c.version).subquery()
    return _select().join(policies, REVISION_OF_POLICY).join(last, same(last, policies, "gate", "version"))


def _in_force(connection: sa.Connection, name: str) -> GateRevision:
    row = connection.execute(_of_newest_policies().where(gates.c.name == name)).mappings().one_or_none()
    if row is None:
        raise no_gate(name)
    return _revision(row)


def _last_revision(connection: sa.Connection, name: str) -> int:
    query = sa.select(sa.func.max(gate_revisions.c.revision)).where(gate_revisions.c.gate == name)
    return int(connection.execute(query).scalar_one())


def _revision(row: Row) -> GateRevision:
    return of_row(GateRevision, row, settings=settings_of(row))
