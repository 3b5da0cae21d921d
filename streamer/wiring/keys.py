"""The keys of policies and of labellers, from settings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from streamer.errors import UsageError
from streamer.gates import labeller_names
from streamer.settings.settings import Settings
from streamer.signing.policies import NO_KEYS, PolicyKeys

if TYPE_CHECKING:
    from streamer.labels.signing import LabelKeys

_BLOCK = re.compile(
    r"^labeller:(?P<name>[^\n]*)\n+(?P<pem>-----BEGIN (?P<kind>[A-Z ]+)-----\n.*?\n-----END (?P=kind)-----)\s*",
    re.DOTALL | re.MULTILINE,
)


def policy_keys(settings: Settings) -> PolicyKeys:
    """Return what signs policies here and which are trusted.

    Raises `UsageError` when a key cannot be read, or what is signed with the private one would be refused.
    """
    from streamer.audit import signing

    configured = settings.policies
    if configured.private_key is None and configured.public_keys is None and not configured.give_up_signing:
        return NO_KEYS
    signer = None if configured.private_key is None else signing.Signer(configured.private_key)
    if configured.public_keys is not None:
        trusted = signing.read_public_keys(configured.public_keys, place="policies.public_keys")
    else:
        trusted = [] if signer is None else [signer.public_key]
    try:
        return PolicyKeys(
            trusted=trusted,
            verify=signing.verify,
            key_id=signing.key_id,
            signer=signer,
            give_up_signing=configured.give_up_signing,
        )
    except ValueError:
        raise UsageError(
            "policies.public_keys has not the key that policies.private_key belongs to: whatever is signed with it would "
            "be refused. Add its public key, a PEM block after the others"
        ) from None


def label_keys(settings: Settings) -> LabelKeys:
    """Return what signs labels here and which signatures are good. Raises `UsageError` when a key cannot be read."""
    from streamer.audit import signing
    from streamer.labels.signing import NO_LABEL_KEYS, LabelKeys, LabellerKey

    configured = settings.labels
    if configured.private_keys is None and configured.public_keys is None:
        return NO_LABEL_KEYS
    signers = {
        name: signing.Signer(pem) for name, pem in _blocks(configured.private_keys, "labels.private_keys")
    }
    own = [LabellerKey(name, signer.public_key) for name, signer in signers.items()]
    public = [
        LabellerKey(name, key)
        for name, pem in _blocks(configured.public_keys, "labels.public_keys")
        for key in signing.read_public_keys(pem, place="labels.public_keys")
    ]
    if configured.public_keys is not None and (
        unread := sorted({one.labeller for one in set(own) - set(public)})
    ):
        raise UsageError(
            f"labels.public_keys lacks the key that labels.private_keys has for {', '.join(unread)}: labels signed with"
            " it would not be read. Add its public key (FILE.pub)"
        )
    return LabelKeys(
        signers=signers,
        trusted=own if configured.public_keys is None else public,
        verify=signing.verify,
        key_id=signing.key_id,
    )


def key_block(labeller: str, pem: str) -> str:
    """Write one key with the name that it is for."""
    return f"labeller: {labeller}\n{pem}"


def _blocks(text: str | None, place: str) -> list[tuple[str, str]]:
    """Read names and keys. Raises `UsageError`, which quotes nothing."""
    if text is None:
        return []
    text = text.replace("\r\n", "\n")
    found = [(labeller_names.normalised(one["name"]), one["pem"]) for one in _BLOCK.finditer(text)]
    if not found or _BLOCK.sub("", text).strip():
        raise UsageError(
            f"{place}: each key is a line `labeller: NAME` and a PEM block after it, as `streamer label keygen` writes"
            " them, and nothing else"
        )
    for name, _ in found:
        if (wrong := labeller_names.fault(name)) is not None:
            raise UsageError(f"{place}: the name of a labeller {wrong}")
    if place.endswith("private_keys") and len({name for name, _ in found}) < len(found):
        raise UsageError(f"{place}: a labeller has two private keys; keep the newer one")
    return found
