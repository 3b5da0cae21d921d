"""The keys of policies, from settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamer.errors import UsageError

if TYPE_CHECKING:
    from streamer.settings.settings import Settings
    from streamer.signing.policies import PolicyKeys


def policy_keys(settings: Settings) -> PolicyKeys:
    """Return what signs policies here and which are trusted.

    Raises `UsageError` when a key cannot be read, or what is signed with the private one would be refused.
    """
    from streamer.audit import signing
    from streamer.signing.policies import NO_KEYS, PolicyKeys

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
