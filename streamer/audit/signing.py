"""Ed25519 keys: made, read, used. Keys are PEM texts, as OpenSSL writes them."""

import base64
import hashlib
import re
from collections.abc import Sequence

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from streamer.errors import UsageError
from streamer.signing.notes import ED25519, VerifierKey


class Signer:
    """Signs with one private key: an unencrypted PKCS #8 one in PEM.

    `public_key` has the 32 bytes that belong to it, `key_id` their SHA-256, in hexadecimal. Raises `UsageError` when the text is
    no Ed25519 private key; the text is never shown.
    """

    def __init__(self, private_pem: str) -> None:
        try:
            key = serialization.load_pem_private_key(private_pem.encode(), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise UsageError(
                "the signing key is not an unencrypted private key in PEM; `streamer audit keygen` makes one"
            ) from None
        if not isinstance(key, Ed25519PrivateKey):
            raise UsageError("the signing key is not an Ed25519 key; `streamer audit keygen` makes one")
        self._key = key
        self.public_key = _raw(key.public_key())
        self.key_id = key_id(self.public_key)

    def checkpoint(self, origin: str, size: int, root: bytes) -> bytes:
        """Return the checkpoint of a log as a signed note."""
        text = f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n".encode()
        return text + b"\n" + self.verifier_key(origin).line(self._key.sign(text))

    def verifier_key(self, origin: str) -> VerifierKey:
        """The key as it verifies checkpoints of an origin."""
        return VerifierKey(origin, ED25519, self.public_key)

    def sign(self, message: bytes) -> str:
        """Return the signature, 64 bytes, in base64."""
        return base64.b64encode(self._key.sign(message)).decode("ascii")


def generate_keys() -> tuple[str, str]:
    """Draw a new key; returns the private and the public one, in PEM."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private.decode("ascii"), public_pem([_raw(key.public_key())])


def public_pem(keys: Sequence[bytes]) -> str:
    """Write public keys, 32 bytes each, in PEM, one block after the other."""
    return "".join(
        Ed25519PublicKey.from_public_bytes(key)
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode("ascii")
        for key in keys
    )


def read_public_keys(pem: str, *, place: str) -> list[bytes]:
    """Read every public key, 32 bytes each, from PEM. Raises `UsageError`, naming `place`."""
    keys = []
    for block in re.findall("-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", pem, re.DOTALL):
        try:
            key = serialization.load_pem_public_key(block.encode())
        except (ValueError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PublicKey):
            raise UsageError(f"{place}: a public key is not an Ed25519 key")
        keys.append(_raw(key))
    if not keys:
        raise UsageError(f"{place}: there is no public key in PEM form")
    return keys


def verify(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Report whether a signature (64 bytes) by a key (32 bytes) is good for a message."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def key_id(public_key: bytes) -> str:
    """Name a public key: the SHA-256 of its 32 bytes, in hexadecimal."""
    return hashlib.sha256(public_key).hexdigest()


def _raw(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
