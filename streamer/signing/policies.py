"""What the signature of a policy covers, and which signed policies may be obeyed. Pure; the algorithm is given.

A signature (Ed25519) covers the whole policy as canonical JSON: which record it is of, its gate and version, every
setting of the gate, state, lambda, rule, run, commitments to seed and audit salt, and who made it, when and why. The
text is never stored: it is made again from the very values that are about to be used, so that nothing can be verified
and something else obeyed.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Literal, Protocol, get_args

from streamer.gates.policy import ActivePolicy, Policy
from streamer.gates.rule import rule_from_json, rule_to_json
from streamer.gates.settings import SETTINGS, GateSettings
from streamer.signing.canonical_json import salt_commitment, seed_commitment, signed_text, stored_number

Refusal = Literal["unsigned", "unknown_key", "bad_signature", "unreadable"]

REFUSALS: tuple[Refusal, ...] = get_args(Refusal)
"""Why a policy is not obeyed: it has no signature; one by a key that is not trusted; one that is not good for these
values of this version in this record; or its values are of no form that this program knows."""

REFUSAL_TEXTS: dict[Refusal, str] = {
    "unsigned": "it is not signed",
    "unknown_key": "it is signed with a key that is not trusted here",
    "bad_signature": (
        "its signature is not good for it: it was changed, or copied from another version or another database"
    ),
    "unreadable": "this version cannot read its values",
}

FIRST_SETTINGS = (
    "unit", "scorer", "encoder", "severity_kind", "alpha", "method", "eta", "draws", "delta", "rho",
    "shape", "width", "segment_by", "segment_fallback", "label_floor", "hold_action", "max_attempts", "mode",
    "audit_probability", "audit_draws", "label_deadline_seconds", "decision_deadline_seconds", "keep_texts",
    "recalibrate", "recalibrate_every_seconds", "recalibrate_after_groups", "max_lambda_step", "max_ship_rate_step",
    "least_groups", "on_alarm", "monitor_delta", "alarm_delta", "alarm_tolerance", "monitor_deadline_seconds",
    "budget_period_days", "drift_delta", "judge_kind",
)  # fmt: skip
"""The settings that every signature covers. Never change this: old signatures would not verify any more."""

YOUNGER_SETTINGS: dict[str, object] = {
    name: one.before for name, one in SETTINGS.items() if name not in FIRST_SETTINGS
}
"""Settings that came later, each with the value that gates had before it came. A policy that still has this value is signed
without the setting, as it was then; any other value is signed, and refused by a program that does not know the setting."""

NUMBERS = frozenset(name for name, one in SETTINGS.items() if one.kind is float)
"""The settings that are signed as floats, whole or not."""


class PolicySigner(Protocol):
    """What signs; `streamer.audit.signing.Signer` does."""

    key_id: str
    public_key: bytes

    def sign(self, message: bytes) -> str:
        """Return the signature in base64."""


@dataclass(frozen=True, slots=True)
class PolicySignature:
    """A signature of a policy of a record: `value` is the base64 of its 64 bytes.

    In hexadecimal, `key_id` is the SHA-256 of the public key's 32 bytes, and `audit_salt` the commitment to the gate's.
    """

    value: str
    key_id: str
    record: str
    audit_salt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
    """One version of a gate's policy as the record `record_id` has it now, not yet trusted.

    `active` is None when its values are of no form that this program knows. Signature and key's id are as they are stored.
    """

    gate: str
    version: int
    active: ActivePolicy | None
    signature: str | None
    key_id: str | None
    record_id: bytes

    def stored_signature(self) -> PolicySignature | None:
        """The signature that is stored, good or not; None when there is none, or nothing that it could be of."""
        if self.active is None or self.signature is None or self.key_id is None:
            return None
        commitment = salt_commitment(self.gate, self.active.audit_salt)
        return PolicySignature(self.signature, self.key_id, self.record_id.hex(), commitment)


_AS_THEY_ARE = (
    "gate", "version", "gate_revision", "state", "calibrated", "calibration_run", "guarantee", "reason"
)  # fmt: skip


def statement(policy: Policy, *, record_id: bytes, audit_salt: bytes) -> bytes:
    """Write what a signature of this policy covers.

    `record_id` is drawn once for each database: a policy of another one says something else. Of the gate's salt only a
    commitment is in the text.
    """
    return signed_text(
        "policy",
        {
            **{name: getattr(policy, name) for name in _AS_THEY_ARE},
            "format": 1,
            "record": record_id.hex(),
            "settings": _settings(policy.settings),
            "lambda": None if policy.threshold is None else stored_number(policy.threshold),
            # Through its JSON: there whole numbers of a rule become floats, as when it is read back.
            "rule": rule_to_json(rule_from_json(rule_to_json(policy.rule))),
            "seed": seed_commitment(policy.gate, policy.seed),
            "audit_salt": salt_commitment(policy.gate, audit_salt),
            "valid_from": policy.valid_from.astimezone(UTC).isoformat(timespec="microseconds"),
            "by": policy.created_by,
        },
    )


class PolicyKeys:
    """The keys that this process signs policies with and trusts, 32 bytes each; with none every readable policy is trusted.

    `verify` checks whether a signature (64 bytes) by a key is good for a message; see `streamer.audit.signing`. `signer` signs
    policies that are written here; None: nothing is signed. With `give_up_signing` an unsigned policy may follow a signed one.
    Raises `ValueError` when the signer's own key is not trusted: whatever it signs would be refused.
    """

    def __init__(
        self,
        *,
        trusted: Sequence[bytes] = (),
        verify: Callable[[bytes, bytes, bytes], bool],
        key_id: Callable[[bytes], str],
        signer: PolicySigner | None = None,
        give_up_signing: bool = False,
    ) -> None:
        if signer is not None and trusted and signer.public_key not in trusted:
            raise ValueError("the key that signs policies is not among those that are trusted")
        self._trusted = {key_id(key): key for key in trusted}
        self._verify = verify
        self.signer = signer
        self.give_up_signing = give_up_signing

    @property
    def trusted(self) -> Sequence[bytes]:
        """The public keys that may sign policies."""
        return tuple(self._trusted.values())

    @property
    def demanded(self) -> bool:
        """Whether only signed policies are trusted."""
        return bool(self._trusted)

    def sign(self, policy: Policy, *, record_id: bytes, audit_salt: bytes) -> PolicySignature | None:
        """Sign a policy; None when nothing is signed here."""
        if self.signer is None:
            return None
        text = statement(policy, record_id=record_id, audit_salt=audit_salt)
        commitment = salt_commitment(policy.gate, audit_salt)
        return PolicySignature(self.signer.sign(text), self.signer.key_id, record_id.hex(), commitment)

    def refusal(self, found: PolicyVersion) -> Refusal | None:
        """Say why a policy may not be obeyed; None when it may."""
        active = found.active
        if active is None:
            return "unreadable"
        if not self._trusted:
            return None
        if found.signature is None or found.key_id is None:
            return "unsigned"
        key = self._trusted.get(found.key_id)
        if key is None:
            return "unknown_key"
        try:
            signature = base64.b64decode(found.signature, validate=True)
            text = statement(active.policy, record_id=found.record_id, audit_salt=active.audit_salt)
        except (ValueError, TypeError, binascii.Error):
            return "bad_signature"
        return None if self._verify(key, text, signature) else "bad_signature"


def _no_signature_is_good(_key: bytes, _message: bytes, _signature: bytes) -> bool:
    return False


NO_KEYS = PolicyKeys(verify=_no_signature_is_good, key_id=bytes.hex)
"""Nothing is signed, and every readable policy is trusted."""


def _settings(settings: GateSettings) -> dict[str, Any]:
    return {
        name: stored_number(value) if name in NUMBERS and value is not None else value
        for name, value in settings.flat().items()
        if name not in YOUNGER_SETTINGS or value != YOUNGER_SETTINGS[name]
    }
