"""What the signature of a label covers, and which keys may sign for which labeller. Pure; the algorithm is given.

A signature (Ed25519) covers everything that the label says, as canonical JSON, and the record that it is for: a copy of
it in another database, gate, batch, attempt, response, kind, name, moment or severity is not signed. The text is never
stored: it is made again from the row that is about to be read.
"""

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC
from typing import NamedTuple, Protocol

from streamer.errors import UsageError
from streamer.journal import LabelRevision
from streamer.signing.canonical_json import signed_text, stored_number


class LabelSigner(Protocol):
    """What signs; `streamer.audit.signing.Signer` does."""

    key_id: str
    public_key: bytes

    def sign(self, message: bytes) -> str:
        """Return the signature in base64."""


class LabellerKey(NamedTuple):
    """A public key, 32 bytes, and the only name that it may sign for."""

    labeller: str
    key: bytes


def statement(label: LabelRevision, *, record_id: bytes) -> bytes:
    """Write what a signature of this label covers, in the record `record_id` (drawn once for each database)."""
    fields = {name: stored_number(one) for name, one in label.severities}
    return signed_text(
        "label",
        ({"severities": fields} if fields else {})
        | {
            "format": 1,
            "record": record_id.hex(),
            "gate": label.key.gate,
            "batch_id": label.key.batch_id,
            "attempt": label.key.attempt,
            "response_id": label.response_id,
            "kind": label.kind,
            "labeller": label.labeller,
            "severity": stored_number(label.severity),
            "raw_severity": None if label.raw_severity is None else stored_number(label.raw_severity),
            "labelled_at": label.labelled_at.astimezone(UTC).isoformat(timespec="microseconds"),
        },
    )


class LabelKeys:
    """The keys that this process signs labels with, by labeller, and that it reads signed ones by.

    Of `trusted` public keys a labeller may have several; a key has one labeller. `verify` checks
    whether a signature (64 bytes) by a key is good for a message; see `streamer.audit.signing`.
    `key_id` names a public key. Raises `UsageError` when one key is to sign for two names.
    """

    def __init__(
        self,
        *,
        signers: Mapping[str, LabelSigner],
        trusted: Iterable[LabellerKey],
        verify: Callable[[bytes, bytes, bytes], bool],
        key_id: Callable[[bytes], str],
    ) -> None:
        self._signers = dict(signers)
        self._trusted: dict[str, LabellerKey] = {}
        for one in trusted:
            known = self._trusted.setdefault(key_id(one.key), one)
            if known.labeller != one.labeller:
                raise UsageError(
                    f"one key cannot sign for two labellers, {known.labeller!r} and {one.labeller!r}: make one for each"
                    " (`streamer label keygen`)"
                )
        self._verify = verify

    @property
    def signs_for(self) -> frozenset[str]:
        """The labellers whose private keys are here."""
        return frozenset(self._signers)

    @property
    def signs_well_for(self) -> frozenset[str]:
        """Those of them whose signatures are good here."""
        return frozenset(
            name
            for name, signer in self._signers.items()
            if (known := self._trusted.get(signer.key_id)) is not None and known.labeller == name
        )

    @property
    def trusted(self) -> Mapping[str, LabellerKey]:
        """Whose labels which public key signs, by its id."""
        return self._trusted

    @property
    def trusted_labellers(self) -> frozenset[str]:
        """The labellers whose signatures can be good here."""
        return frozenset(one.labeller for one in self._trusted.values())

    def sign(self, label: LabelRevision, *, record_id: bytes) -> LabelRevision:
        """Return the label with a signature if its labeller's private key is here; else as it is."""
        signer = self._signers.get(label.labeller)
        if signer is None or label.signature is not None:
            return label
        value = signer.sign(statement(label, record_id=record_id))
        return replace(label, signature=value, key_id=signer.key_id)

    def verifies(self, label: LabelRevision, *, record_id: bytes) -> bool:
        """Whether a key that may sign for the label's labeller has signed exactly this."""
        if label.signature is None or label.key_id is None:
            return False
        known = self._trusted.get(label.key_id)
        if known is None or known.labeller != label.labeller:
            return False
        try:
            signature = base64.b64decode(label.signature, validate=True)
            text = statement(label, record_id=record_id)
        except (ValueError, TypeError, binascii.Error):
            return False
        return self._verify(known.key, text, signature)


def _no_signature_is_good(_key: bytes, _message: bytes, _signature: bytes) -> bool:
    return False


NO_LABEL_KEYS = LabelKeys(signers={}, trusted=(), verify=_no_signature_is_good, key_id=bytes.hex)
"""Nothing is signed here, and no signature is good."""
