"""How a policy is written: on top of one that is trusted, signed, with its story and the message about it.

A policy is written in one transaction: the policy, its signature, its events, their links in the control log (of a
closing: their seals, which wait for it) and the outbox row are there together or not at all.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.gates.policy import Policy
from streamer.gates.setting_changes import calibrated_for_another
from streamer.journal import OutboxMessage
from streamer.signing.policies import (
    NO_KEYS,
    REFUSAL_TEXTS,
    PolicyKeys,
    PolicySignature,
    PolicyVersion,
    Refusal,
)
from streamer.store.audit import control
from streamer.store.db.schema import gates, policies, policy_events
from streamer.store.db.schema.types import row_of
from streamer.store.log.outbox import enqueue
from streamer.store.policies import fence
from streamer.store.policies.policy_rows import from_newest, newest_keys, no_gate, read_versions

PolicyMessage = Callable[[Policy, PolicySignature | None], OutboxMessage]


class PolicyWriter:
    """Makes policies, within transactions of others. `message` makes the event of a policy, with
    its signature if it has one; `keys` sign new policies, and decide which policies may be built
    on."""

    def __init__(self, message: PolicyMessage, keys: PolicyKeys = NO_KEYS) -> None:
        self._message = message
        self._keys = keys

    def lock_newest(self, connection: sa.Connection, gate: str) -> Policy:
        """Keep others from changing this gate until the transaction ends, and read its newest policy.

        Raises `UsageError` when there is no such gate, or its newest policy is not trusted: what is
        built on it would be signed with it.
        """
        return self._good(_newest(connection, gate))

    def lock_to_close(self, connection: sa.Connection, gate: str) -> Policy:
        """The same for a closing, which waits for nobody's work: its seals come into the control log later.

        A newest policy that is not trusted is passed over, but for its number. Settings come from the newest policy that is trusted. Raises `UsageError` when none is.
        """
        control.chain_later(connection)
        newest = _newest(connection, gate)
        for found in from_newest(connection, newest):
            if found.active is not None and self.trusts(found):
                return replace(found.active.policy, version=newest.version)
        raise UsageError(
            f"no policy of gate {gate} is trusted, so that nothing can be built on one. Workers with the same public keys"
            " hold everything already; `streamer threshold list` shows what there is, docs/security.md what to do"
        )

    def lock_any(self, connection: sa.Connection, gate: str) -> int:
        """Lock a gate and return the number of its newest policy, trusted or not."""
        return _newest(connection, gate).version

    def trusts(self, found: PolicyVersion) -> bool:
        """Whether a version may be obeyed and built on."""
        return self._keys.refusal(found) is None

    def trusted(self, connection: sa.Connection, gate: str, version: int) -> Policy:
        """Read one version. Raises `UsageError` when it does not exist or is not trusted."""
        return self._good(one_version(connection, gate, version))

    def restored(self, connection: sa.Connection, present: Policy, version: int) -> Policy:
        """The newest policy of a gate with the threshold of an older version.

        Raises `UsageError` when that does not exist, is not trusted, or was calibrated for other settings.
        """
        gate, older = present.gate, self.trusted(connection, present.gate, version)
        changed = calibrated_for_another(older.settings, present.settings)
        if changed:
            raise UsageError(
                f"policy {version} of {gate} was calibrated for different settings ({', '.join(changed)}); recalibrate instead"
            )
        if older.bursts is not None and older.bursts.secret is None:
            raise UsageError(
                f"the key of the bursts of policy {version} of {gate} was erased, so that it would know none; recalibrate instead"
            )
        return replace(
            present,
            state=older.state,
            threshold=older.threshold,
            rule=older.rule,
            calibrated=older.calibrated,
            calibration_run=older.calibration_run,
            guarantee=older.guarantee,
        )

    def to_sign(self, connection: sa.Connection, gate: str, version: int) -> Policy:
        """Read one version that somebody has looked at and vouches for, whoever signed it, if anybody did.

        Raises `UsageError` when it does not exist, or does not fit the signature that it has.
        """
        found = one_version(connection, gate, version)
        refusal = self._keys.refusal(found)
        if found.active is None or refusal in ("bad_signature", "unreadable"):
            raise self._refused(found, refusal or "unreadable")
        return found.active.policy

    def next(
        self, connection: sa.Connection, changed: Policy, *, by: str, reason: str, now: datetime
    ) -> Policy:
        """Write a new version of a policy, its events, and the message about it.

        Once the transaction has committed, no decision by an older version is: see `streamer.store.policies.fence`.

        `changed` has the number of its gate's newest policy, which is locked, and what is to be in force from now on.
        """
        version = changed.version + 1
        policy = replace(changed, version=version, valid_from=now, created_by=by, reason=reason, closing=None)
        self.write(connection, policy)
        superseded = sa.exists().where(
            policy_events.c.gate == changed.gate,
            policy_events.c.version == changed.version,
            policy_events.c.event == "superseded",
        )
        # Someone may have written to the database directly.
        if not connection.execute(sa.select(superseded)).scalar_one():
            _write_event(connection, policy, changed.version, "superseded")
        return policy

    def write(self, connection: sa.Connection, policy: Policy) -> None:
        """Insert a policy, signed if there is a key, say what happened to it, and enqueue the message about it.

        Raises `UsageError` when it cannot be signed here, and workers would refuse it.
        """
        before = connection.execute(
            sa.select(policies.c.signature)
            .where(policies.c.gate == policy.gate)
            .order_by(policies.c.version.desc())
            .limit(1)
        ).scalar_one_or_none()
        missing = self.missing_key(policy.gate, signed=before is not None)
        if missing is not None:
            raise UsageError(missing)
        salt = connection.execute(
            sa.select(gates.c.audit_salt).where(gates.c.name == policy.gate)
        ).scalar_one()
        signature = self._keys.sign(
            policy, record_id=control.head(connection).record_id, audit_salt=bytes(salt)
        )
        value, key_id = (None, None) if signature is None else (signature.value, signature.key_id)
        row = row_of(policies, policy, signature=value, key_id=key_id)
        control.insert(connection, policies, row, now=policy.valid_from)
        if signature is not None:
            written = one_version(connection, policy.gate, policy.version)
            if not self.trusts(written):
                raise RuntimeError(f"policy {policy.version} of {policy.gate} is not stored as it was signed")
        for event in ("created", "closed" if policy.state == "closed" else "activated"):
            _write_event(connection, policy, policy.version, event)
        enqueue(connection, self._message(policy, signature), policy.valid_from)
        fence.close_to_older(connection, policy.gate)  # last: commits wait from here on

    def message_of(self, found: PolicyVersion) -> OutboxMessage | None:
        """The message about a policy that is trusted, as it was when it was written; None for one that is not."""
        if found.active is None or not self.trusts(found):
            return None
        return self._message(found.active.policy, found.stored_signature())

    def missing_key(self, gate: str, *, signed: bool) -> str | None:
        """Say why no policy of a gate can be made here for lack of a key; None when one can.

        `signed` : whether its newest policy is.
        """
        if self._keys.signer is not None:
            return None
        if self._keys.demanded:
            return (
                "only signed policies are trusted here, and no key to sign with is configured: workers would refuse this"
                " one. Do it where STREAMER_POLICIES_PRIVATE_KEY_FILE is set"
            )
        if signed and not self._keys.give_up_signing:
            return (
                f"the policy of gate {gate} is signed, and no key to sign with is configured here: workers would"
                " refuse an unsigned one, and go on with the old. Do it where STREAMER_POLICIES_PRIVATE_KEY_FILE is set"
                " (STREAMER_POLICIES_GIVE_UP_SIGNING=true, if no worker asks for signatures any more)"
            )
        return None

    def _good(self, found: PolicyVersion) -> Policy:
        refusal = self._keys.refusal(found)
        if found.active is None or refusal is not None:
            raise self._refused(found, refusal or "unreadable")
        return found.active.policy

    @staticmethod
    def _refused(found: PolicyVersion, refusal: Refusal) -> UsageError:
        advice = (
            f"Look at it (`streamer threshold show {found.gate} --version {found.version}`); if it is what you want,"
            f" `streamer threshold sign {found.gate} --version {found.version}` vouches for it"
            if refusal in ("unsigned", "unknown_key")
            else f"`streamer audit verify` finds what was changed; `streamer threshold close {found.gate} --reason ...` closes the gate"
            " by the last policy that is good"
        )
        return UsageError(
            f"policy {found.version} of gate {found.gate} is not trusted: {REFUSAL_TEXTS[refusal]}. Nothing is built on it."
            f" {advice}"
        )


def one_version(connection: sa.Connection, gate: str, version: int) -> PolicyVersion:
    """Read one version. Raises `UsageError` when it does not exist."""
    there = sa.exists().where(policies.c.gate == gate, policies.c.version == version)
    if not connection.execute(sa.select(there)).scalar_one():
        raise UsageError(f"gate {gate!r} has no policy {version}")
    return read_versions(connection, [(gate, version)])[0]


def _newest(connection: sa.Connection, gate: str) -> PolicyVersion:
    control.hold_head(connection)
    # NO KEY UPDATE: workers that write decisions, whose foreign keys look at the gate, need not wait.
    connection.execute(
        sa.select(gates.c.name).where(gates.c.name == gate).with_for_update(key_share=True)
    ).one_or_none()
    keys = newest_keys(connection, [gate])
    if not keys:
        raise no_gate(gate)
    return read_versions(connection, keys)[0]


def _write_event(connection: sa.Connection, cause: Policy, version: int, event: str) -> None:
    """Add one line to the story of a version: what `cause`, that one or the next, made of it."""
    row = {
        "gate": cause.gate,
        "version": version,
        "event": event,
        "by": cause.created_by,
        "reason": cause.reason,
        "at": cause.valid_from,
    }
    control.insert(connection, policy_events, row, now=cause.valid_from)
