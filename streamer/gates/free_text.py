"""Free text that goes on record: who did something, and why. Pure."""

from typing import Final

MOST_WHO: Final = 200
"""Characters of a name. No table's column for one is shorter."""

MOST_WHY: Final = 500
"""Characters of a reason or a note. No table's column for one is shorter."""


def fault(text: str, most: int) -> str | None:
    """Say why a text cannot go on record; None when it can.

    No database keeps NUL in a text, or half of a surrogate pair (what an argument that is not UTF-8 becomes).
    """
    if len(text) > most:
        return f"has {len(text)} characters, at most {most} are allowed"
    if "\0" in text:
        return "has a NUL character"
    if not _is_unicode(text):
        return "is not UTF-8"
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
