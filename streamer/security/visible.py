"""Text as people may see it: what could steer a terminal, or hide, is written as a number, and secrets are hidden."""

import re
from typing import TextIO

_STEERS_OR_HIDES = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but for tab and line feed; ESC and CSI begin sequences
    "\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # bidirectional and zero-width
    "\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e007f"  # halves of characters, tags
    # code points that are no characters
    "\ufdd0-\ufdef" + "".join(chr(end - 1) + chr(end) for end in range(0xFFFF, 0x110000, 0x10000)) + "]"
)


def visible(text: str) -> str:
    r"""Return `text` with control, bidirectional, zero-width and non-characters as ``\u001b``; inside JSON it stays JSON.

    Tabs, line feeds, and the joiners that emoji and some scripts need stay as they are.
    """
    return _STEERS_OR_HIDES.sub(_number, text)


def _number(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


class VisibleLines:
    """A terminal that is written to line by line and gets only what is visible."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal

    def write(self, text: str) -> int:
        """Write `text`; returns how many characters were written."""
        return self._terminal.write(visible(text.replace("\r\n", "\n")))


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
