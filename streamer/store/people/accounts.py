"""People of the console on record: each change is a revision, sealed in the control log."""

import builtins
from collections.abc import Callable, Sequence

import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.gates import labeller_names
from streamer.gates.policy import SIGNED_IN
from streamer.security.accounts import ROLES, Account, Role, hidden, issued, new_name_fault
from streamer.store.audit import control
from streamer.store.db.engine import unless_there
from streamer.store.db.schema import accounts
from streamer.store.db.schema.types import of_row, row_of
from streamer.store.part import Part

_ADMINISTRATOR: Role = "administrator"
_MOST_CHARACTERS = 150
"""With what is put before it, it is still a name that a policy's record has room for."""


class Accounts(Part):
    """The accounts of everybody who may use the console."""

    def add(
        self, name: str, *, roles: Sequence[str], password: str, by: str, reason: str = "added"
    ) -> Account:
        """Make an account, or open a closed one again. Raises `UsageError` where there is an open one, or a value is bad."""
        return self._next(
            name, roles=_roles(roles), password=hidden(password), by=by, reason=reason, new=True
        )

    def add_issued(self, name: str, *, roles: Sequence[str], issuer: str, by: str) -> Account:
        """Make an account, or open a closed one again, of somebody who signs in at an issuer and has no password here.

        Whoever first signs in there under this name has it from then on. Raises `UsageError` as `add` does.
        """
        return self._next(name, roles=_roles(roles), password=issued(issuer), by=by, reason="added", new=True)

    def admit(self, name: str, *, issuer: str, subject: str, roles: Sequence[str] | None) -> Account:
        """Let in somebody whom an issuer has identified, and write down what is new about them.

        `name` is what the issuer says, and on record; `subject` the issuer's own identifier of the
        person, which it gives to nobody else; `roles` those that the issuer says, None: it says
        nothing of roles, and the account has them. Raises `UsageError` where there is no account of
        this name and no roles, it is closed, it has a password, or another person's.
        """
        name = _checked(name)
        given = None if roles is None else _roles(roles)
        kept = issued(issuer, subject)

        def work(connection: sa.Connection) -> Account:
            before = _newest(connection, name)
            if before is None and given is None:
                raise UsageError(f"{name} has no account here; an administrator can add it")
            if before is not None:
                if before.closed:
                    raise UsageError(f"the account of {before.name} is closed")
                known = before.issued
                if known is None:
                    raise UsageError(f"{before.name} signs in here, with a password")
                if known.issuer != issuer:
                    raise UsageError(f"{before.name} signs in at {known.issuer}")
                if known.subject not in ("", subject):
                    raise UsageError(
                        f"{before.name} was another person when that name first signed in; an administrator can close the account "
                        "and add it again"
                    )
                if before.password == kept and given in (None, before.roles):
                    return before
            return self._append(
                connection,
                before,
                name=name,
                roles=given if given is not None else before.roles if before is not None else (),
                password=kept,
                by=SIGNED_IN + name,
                reason="roles as the issuer says" if given is not None else "signed in for the first time",
            )

        return self._written(work, name)

    def set_roles(self, name: str, roles: Sequence[str], *, by: str, reason: str) -> Account:
        """Give other roles to a person. Raises `UsageError` where there is no open account, or for the last administrator."""
        return self._next(name, roles=_roles(roles), by=by, reason=reason)

    def set_password(self, name: str, password: str, *, by: str, reason: str = "another password") -> Account:
        """Give another password. Raises `UsageError` where there is no open account, or the password is bad."""
        return self._next(name, password=hidden(password), by=by, reason=reason)

    def close(self, name: str, *, by: str, reason: str) -> Account:
        """Let a person in no more. Raises `UsageError` where there is no open account, or for the last administrator."""
        return self._next(name, roles=(), by=by, reason=reason)

    def get(self, name: str) -> Account | None:
        """The account of this name as it stands; None where there never was one."""
        return self._database.read(_newest, name)

    def list(self) -> builtins.list[Account]:
        """Every account as it stands, by name, closed ones too."""
        return self._database.read(_all)

    def any(self) -> bool:
        """Whether there was ever an account: from then on people sign in."""
        return bool(self._database.rows(sa.select(accounts.c.name).limit(1)))

    def _next(
        self,
        name: str,
        *,
        by: str,
        reason: str,
        roles: tuple[Role, ...] | None = None,
        password: str | None = None,
        new: bool = False,
    ) -> Account:
        name = _checked(name)

        def work(connection: sa.Connection) -> Account:
            before = _newest(connection, name)
            if new and before is not None and not before.closed:
                raise UsageError(f"{name} has an account already")
            if not new and before is None:
                raise UsageError(
                    f"there is no account of {name!r}; `streamer console user list` shows those there are"
                )
            if not new and before is not None and before.closed:
                raise UsageError(f"the account of {name!r} is closed; adding it again opens it")
            changed = roles if roles is not None else () if before is None else before.roles
            kept = password if password is not None else None if before is None else before.password
            made = self._append(
                connection, before, name=name, roles=changed, password=kept, by=by, reason=reason
            )
            lost = before is not None and _ADMINISTRATOR in before.roles and _ADMINISTRATOR not in made.roles
            # Only now, as the chain waits for who changes another administrator at this moment.
            if lost and not any(_ADMINISTRATOR in one.roles for one in _all(connection)):
                raise UsageError(f"{name} is the last administrator: make another one first")
            return made

        return self._written(work, name)

    def _append(
        self,
        connection: sa.Connection,
        before: Account | None,
        *,
        name: str,
        roles: tuple[Role, ...],
        password: str | None,
        by: str,
        reason: str,
    ) -> Account:
        now = self._clock()
        account = Account(
            name=name,
            revision=1 if before is None else before.revision + 1,
            roles=roles,
            password=password if roles else None,
            created_at=now,
            created_by=by,
            reason=reason,
        )
        control.insert(connection, accounts, row_of(accounts, account), now=now)
        if before is None:
            # Only now, as the chain waits for who makes another account at this moment.
            others = sa.select(accounts.c.name).where(accounts.c.name != name).distinct()
            if (wrong := new_name_fault(name, connection.execute(others).scalars())) is not None:
                raise UsageError(f"the name {wrong}")
        return account

    def _written(self, work: Callable[[sa.Connection], Account], name: str) -> Account:
        changed = UsageError(f"the account of {name} was changed at this moment; try again")
        with unless_there("pk_accounts", changed):
            return self._database.writing(work)


def _checked(name: str) -> str:
    name = labeller_names.normalised(name)
    if (wrong := labeller_names.fault(name)) is not None:
        raise UsageError(f"the name {wrong}")
    if len(name) > _MOST_CHARACTERS:
        raise UsageError(f"the name has {len(name)} characters, at most {_MOST_CHARACTERS} are allowed")
    return name


def _roles(names: Sequence[str]) -> tuple[Role, ...]:
    unknown = sorted(set(names) - set(ROLES))
    if unknown or not names:
        raise UsageError(
            f"a role is one of {', '.join(ROLES)}" + (f", not {unknown[0]!r}" if unknown else "")
        )
    return tuple(role for role in ROLES if role in names)


def _all(connection: sa.Connection) -> list[Account]:
    newest = sa.select(accounts.c.name, sa.func.max(accounts.c.revision)).group_by(accounts.c.name)
    query = sa.select(accounts).where(sa.tuple_(accounts.c.name, accounts.c.revision).in_(newest))
    return [of_row(Account, row) for row in connection.execute(query.order_by(accounts.c.name)).mappings()]


def _newest(connection: sa.Connection, name: str) -> Account | None:
    query = sa.select(accounts).where(accounts.c.name == name).order_by(accounts.c.revision.desc()).limit(1)
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else of_row(Account, row)
