"""Text of unknown origin as a terminal may show it: what could steer the terminal, or hide, is written as a number."""

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
    """A terminal that is written to line by line and gets only what is visible.

    Parameters
    ----------
    terminal : where to.
    """

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal

    def write(self, text: str) -> int:
        """Write `text`; returns how many characters were written."""
        return self._terminal.write(visible(text.replace("\r\n", "\n")))
