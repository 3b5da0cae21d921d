"""People of the console: their accounts, what each role may do, and passwords as they are kept. Pure but for drawing salts.

A password has few random bits, so it is kept as scrypt's (RFC 7914) result, which takes 32 MiB and a noticeable moment to guess.
"""

import base64
import hashlib
import hmac
import secrets
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple, get_args

from streamer.errors import UsageError

Role = Literal["viewer", "labeller", "releaser", "approver", "administrator"]
ROLES: tuple[Role, ...] = get_args(Role)

Deed = Literal["look", "read", "label", "release", "approve", "administer"]
"""`look`: gates, thresholds, alerts, proposals. `read`: decisions with their texts. `label`: give severities. `release`: release
or reject what waits at the desk. `approve`: put
proposals in force or reject them, close gates, acknowledge alerts. `administer`: people and their roles."""

DEEDS: dict[Role, frozenset[Deed]] = {
    "viewer": frozenset({"look", "read"}),
    # Not the decisions: people label blind to what the gate made of an answer.
    "labeller": frozenset({"look", "label"}),
    # Who answers customers need not be who may change thresholds.
    "releaser": frozenset({"look", "read", "release"}),
    "approver": frozenset({"look", "read", "approve"}),
    "administrator": frozenset(get_args(Deed)),
}
"""What each role may do. A person with several roles may do what any of them may."""

_ISSUED = "oidc"
_LETTERS = ("Lu", "Ll", "Lt", "Lo")
_EAST_ASIAN = frozenset({"CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"})
"""Written together in one name."""


class Issued(NamedTuple):
    """Where somebody without a password signs in, and as whom; an empty `subject` is whoever comes first under the name."""

    issuer: str
    subject: str


LEAST_CHARACTERS = 10
MOST_CHARACTERS = 1_000
_COST, _BLOCK, _PARALLEL = 2**15, 8, 1
_SALT_BYTES = 16
_LONGEST_ISSUER = 300
_LONGEST_SUBJECT = 255  # OpenID Connect Core 1.0, section 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A person's account as it stands. Revisions count from 1; every change is another one, and
    ends the sessions that began before it. While the account is closed, `roles` are empty and
    `password`, else as `hidden` or `issued` returns it, is None. When, by whom and why is of
    this revision."""

    name: str
    revision: int
    roles: tuple[Role, ...]
    password: str | None = field(repr=False)
    created_at: datetime
    created_by: str
    reason: str

    @property
    def closed(self) -> bool:
        """Whether nobody can use it."""
        return not self.roles or self.password is None

    @property
    def issued(self) -> Issued | None:
        """Where the person signs in by OpenID Connect; None: with a password, or the account is closed."""
        kind, *parts = (self.password or "").split("$")
        if kind != _ISSUED or len(parts) != 2:
            return None
        issuer, subject = (base64.b64decode(part).decode() for part in parts)
        return Issued(issuer, subject)


def may(roles: Sequence[Role], deed: Deed) -> bool:
    """Whether somebody with these roles may do something."""
    return any(deed in DEEDS[role] for role in roles)


def new_name_fault(name: str, known: Iterable[str]) -> str | None:
    """Say why a new account may not have this name, as `labeller_names.normalised` returns it:
    people could take it for another of those `known`, of closed accounts too. None when it may."""
    # A letter's Unicode name begins with its script.
    scripts = {
        unicodedata.name(one, "UNNAMED").split()[0] for one in name if unicodedata.category(one) in _LETTERS
    }
    if len(scripts) > 1 and not scripts <= _EAST_ASIAN:
        named = ", ".join(sorted(script.capitalize() for script in scripts))
        return f"has letters of several scripts ({named}), which can look alike; use those of one"
    for other in known:
        if _folded(other) == _folded(name):
            return f"differs from that of the account {other!r} only in upper and lower case"
    return None


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name.casefold())


def hidden(password: str) -> str:
    """Return what is kept of a password: ``scrypt$N$r$p$salt$hash``, with base64. Raises `UsageError` for a bad one."""
    plain = unicodedata.normalize("NFC", password)
    if not LEAST_CHARACTERS <= len(plain) <= MOST_CHARACTERS:
        raise UsageError(f"a password has {LEAST_CHARACTERS} to {MOST_CHARACTERS} characters")
    salt = secrets.token_bytes(_SALT_BYTES)
    return "$".join(
        (
            "scrypt", str(_COST), str(_BLOCK), str(_PARALLEL), base64.b64encode(salt).decode(),
            base64.b64encode(_scrypt(plain, salt, _COST, _BLOCK, _PARALLEL)).decode(),
        )
    )  # fmt: skip


def issued(issuer: str, subject: str = "") -> str:
    """Return what is kept in a password's place of somebody who signs in at an issuer. Raises `UsageError` for too long ones."""
    if len(issuer) > _LONGEST_ISSUER or len(subject) > _LONGEST_SUBJECT:
        raise UsageError(
            f"an issuer has at most {_LONGEST_ISSUER} characters, and its name for a person at most {_LONGEST_SUBJECT}"
        )
    return "$".join((_ISSUED, *(base64.b64encode(part.encode()).decode() for part in (issuer, subject))))


def fits(password: str, kept: str | None) -> bool:
    """Whether a password is the one that was kept. Takes as long where there is none (`kept` is None)."""
    plain = unicodedata.normalize("NFC", password)[:MOST_CHARACTERS]
    if kept is None:
        _scrypt(plain, b"\x00" * _SALT_BYTES, _COST, _BLOCK, _PARALLEL)
        return False
    try:
        _, cost, block, parallel, salt, result = kept.split("$")
        found = _scrypt(plain, base64.b64decode(salt), int(cost), int(block), int(parallel))
        return hmac.compare_digest(found, base64.b64decode(result))
    except ValueError:
        return False


def _scrypt(plain: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(
        plain.encode("utf-8", "surrogatepass"),
        salt=salt,
        n=cost,
        r=block,
        p=parallel,
        maxmem=256 * cost * block,
        dklen=32,
    )
