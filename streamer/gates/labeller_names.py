"""Names of labellers: one spelling for each, without invisible characters. Pure."""

import re
import unicodedata

MOST_CHARACTERS = 200
"""The longest name, after normalisation."""

_SPACES = re.compile(" +")
# Drawn as nothing, although Unicode counts them as letters, marks or symbols.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def normalised(name: str) -> str:
    """Return a name as it is recorded: NFKC, no spaces around it, single spaces inside."""
    return _SPACES.sub(" ", unicodedata.normalize("NFKC", name)).strip(" ")


def fault(name: str) -> str | None:
    """Say what is wrong with a normalised name; None when nothing is."""
    if not name:
        return "is empty"
    if len(name) > MOST_CHARACTERS:
        return f"has {len(name)} characters, at most {MOST_CHARACTERS} are allowed"
    if not name.isprintable() or _BLANK.search(name):
        return "has an invisible character (control, bidirectional, zero-width or line break)"
    return None
