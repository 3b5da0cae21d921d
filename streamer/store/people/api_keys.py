"""API keys on record: made, listed and revoked, each act sealed in the control log."""

import builtins
from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.gates.free_text import MOST_WHO, MOST_WHY, fault
from streamer.security.api_keys import MAY, ApiKey, Rate, digest_of, new_token
from streamer.store.audit import control
from streamer.store.db.engine import unless_there
from streamer.store.db.schema import api_key_revocations, api_keys, gates
from streamer.store.db.schema.types import Row, of_row, row_of
from streamer.store.part import Part
from streamer.store.policies.policy_rows import no_gate

_MOST_CHARACTERS = {"note": MOST_WHY, "reason": MOST_WHY, "name": MOST_WHO}


class ApiKeys(Part):
    """The keys with which programs call `streamer serve`."""

    def create(
        self,
        *,
        gates: Sequence[str] | None,
        may: Sequence[str],
        by: str,
        rate: Rate | None = None,
        note: str = "",
        expires_at: datetime | None = None,
        now: datetime | None = None,
    ) -> tuple[ApiKey, str]:
        """Make a key; returns it with its token, which is nowhere else from now on.

        `gates` are names of existing gates, None: every gate, later ones too; `may` is one of `MAY`
        at least. Raises `UsageError` where a gate does not exist, nothing is allowed, a text is too
        long, or it would have expired already.
        """
        moment = now or self._clock()
        if not may or not set(may) <= set(MAY):
            raise UsageError(f"a key may do at least one of {', '.join(MAY)}")
        if gates is not None and not gates:
            raise UsageError("a key is for one gate at least, or for all")
        if expires_at is not None and expires_at <= moment:
            raise UsageError("a key must expire in the future")
        _check_lengths(note=note, name=by)
        identity, token = new_token()
        key = ApiKey(
            id=identity,
            digest=digest_of(token),
            gates=None if gates is None else tuple(sorted(set(gates))),
            may=tuple(one for one in MAY if one in may),
            rate=rate,
            note=note,
            created_at=moment,
            created_by=by,
            expires_at=expires_at,
        )

        def work(connection: sa.Connection) -> None:
            for gate in key.gates or ():
                _require_gate(connection, gate)
            control.insert(connection, api_keys, _row(key), now=moment)

        self._database.writing(work)
        return key, token

    def list(self) -> builtins.list[ApiKey]:
        """Every key there ever was, the oldest first; what a `KeyRing` loads."""
        revoked = api_key_revocations.c
        query = (
            sa.select(api_keys, revoked.revoked_at, revoked.revoked_by, revoked.revoked_reason)
            .outerjoin(api_key_revocations, revoked.id == api_keys.c.id)
            .order_by(api_keys.c.created_at, api_keys.c.id)
        )
        return [_key(row) for row in self._database.mappings(query)]

    def revoke(self, identity: str, *, by: str, reason: str, now: datetime | None = None) -> ApiKey:
        """Revoke a key for good. Services take it for at most `MOST_SECONDS_OLD` more.

        Raises `UsageError` when there is none of this id, or it is revoked already.
        """
        moment = now or self._clock()
        _check_lengths(reason=reason, name=by)
        if not reason:
            raise UsageError("say why the key is revoked")

        def work(connection: sa.Connection) -> None:
            if connection.execute(sa.select(api_keys.c.id).where(api_keys.c.id == identity)).first() is None:
                raise UsageError(f"there is no API key {identity!r}; `streamer key list` shows them")
            there = sa.select(api_key_revocations.c.id).where(api_key_revocations.c.id == identity)
            if connection.execute(there).first() is not None:
                raise _revoked(identity)
            row = {"id": identity, "revoked_at": moment, "revoked_by": by, "revoked_reason": reason}
            control.insert(connection, api_key_revocations, row, now=moment)

        with unless_there("pk_api_key_revocations", _revoked(identity)):
            self._database.writing(work)
        return next(key for key in self.list() if key.id == identity)


def _revoked(identity: str) -> UsageError:
    return UsageError(f"the API key {identity} is revoked already")


def _require_gate(connection: sa.Connection, gate: str) -> None:
    if connection.execute(sa.select(gates.c.name).where(gates.c.name == gate)).first() is None:
        raise no_gate(gate)


def _check_lengths(**texts: str) -> None:
    for name, text in texts.items():
        if (wrong := fault(text, _MOST_CHARACTERS[name])) is not None:
            raise UsageError(f"the {name} {wrong}")


def _row(key: ApiKey) -> Row:
    requests, seconds = (None, None) if key.rate is None else (key.rate.requests, key.rate.seconds)
    return row_of(api_keys, key, rate_requests=requests, rate_seconds=seconds)


def _key(row: Row) -> ApiKey:
    rate = None if row["rate_requests"] is None else Rate(row["rate_requests"], row["rate_seconds"])
    return of_row(ApiKey, row, digest=bytes(row["digest"]), rate=rate)
