"""Hides secrets: those named by their setting, and passwords inside URLs."""

import re

HIDDEN = "********"

_SECRET_WORDS = (
    "password", "passwd", "secret", "token", "passphrase", "jaas", "credential", "private", "api_key", "apikey",
)  # fmt: skip
_COUNTS = ("max_tokens",)
"""Names that hold a secret word and mean a number."""
# Greedy up to the last "@": a password may hold "@" or "/" unescaped, and hiding too much does no harm.
_USER_AND_PASSWORD = re.compile(r"(?<=://)([^:/?#@\s]*):[^\s]*@")
_QUERY_PASSWORD = re.compile(rf"(?i)([?&][\w.-]*(?:{'|'.join(_SECRET_WORDS)})[\w.-]*=)[^&#\s]*")


def is_secret(name: str) -> bool:
    """Report by a setting's or client property's name whether its value must never be shown."""
    lower = name.lower()
    return not lower.endswith(_COUNTS) and any(word in lower for word in _SECRET_WORDS)


def redact_text(text: str) -> str:
    """Replace the password of every URL in `text`, before the host or among the query's parameters."""
    return _QUERY_PASSWORD.sub(rf"\g<1>{HIDDEN}", _USER_AND_PASSWORD.sub(rf"\g<1>:{HIDDEN}@", text))


def redact(name: str, value: object) -> object:
    """Return `value` as it may be shown for the setting or client property `name`."""
    if value is not None and is_secret(name):
        return HIDDEN
    return redact_text(value) if isinstance(value, str) else value
