"""Which answers have nothing that a reader could see. Pure."""

import unicodedata

_UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Mc", "Me", "Mn", "Zl", "Zp", "Zs"})
_UNSEEN_OTHERS = frozenset(
    map(
        chr,
        (
            0x115F, 0x1160, 0x2065, 0x2800, 0x3164, 0xFFA0, *range(0xFFF0, 0xFFF9), 0xFFFC, 0xFFFD,
            0x13441, 0x13442, 0x1D159, *range(0xE0000, 0xE1000), *range(0xFDD0, 0xFDF0),
            *range(0xFFFE, 0x110000, 0x10000), *range(0xFFFF, 0x110000, 0x10000),
        ),
    )
)  # fmt: skip
"""Default-ignorable characters of other categories (Hangul fillers, unassigned ones), and glyphs that are empty: the
blank pattern of Braille, the replacement characters, blanks of hieroglyphs, the null notehead; and the code points
that are no characters and never will be."""


def is_blank(text: str) -> bool:
    """Report whether a text has nothing that a reader could see, and so goes out by no way: gate, desk or chat.

    White space, control and format characters (zero-width ones, bidirectional marks, tags), combining marks with
    nothing to stand on, characters for private use, replacement characters, and characters that Unicode has displayed as
    nothing are not seen. What this version of
    Unicode does not know counts as seen, so that the answer is the same under every version of Python.
    """
    if text and " " < text[0] < "\x7f":
        return False  # nearly every answer: what ASCII prints is seen
    return not any(map(is_seen, text))


def is_seen(character: str) -> bool:
    """Report whether a character by itself is something that a reader could see."""
    return unicodedata.category(character) not in _UNSEEN_CATEGORIES and character not in _UNSEEN_OTHERS
