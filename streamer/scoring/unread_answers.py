"""Which answers an encoder does not read: what it would say of them has nothing to do with what they claim. Pure.

An encoder gives a text that it does not read a row of its own in place of a vector, so that no vector of it is ever compared.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamer.calibration.signal_order import Unread
from streamer.scoring.blank import is_seen

Rule = Unread
RULES: tuple[Rule, ...] = get_args(Rule)
"""`cut`: an answer has more tokens than the model takes. `unread`: at least a tenth of an answer's visible characters are in no token
that the model knows. `twin`: two answers have one vector and other characters."""

SAYS: Mapping[Rule, str] = {
    "cut": "too long for the encoder",
    "unread": "in characters that the encoder does not know",
    "twin": "to the encoder the same as another",
}
"""What an answer is, for people."""

HELPS = (
    "the method full (units best and batch), whose labels say what such answers are worth, an encoder that reads them "
    "(docs/encoders.md), or the scorer choice with a part of them judged (final, number, json or call)"
)
"""What ships such answers, where a method reads one score, and holds them whatever their labels."""

CUT, UNREAD = 0.0, np.nan
"""What the row of a text is filled with that is cut, and of one that is unread."""

_UNKNOWN = 0.1
_NOT_COMPARED = frozenset({"Mn", "Cf"})


def mostly_unknown(text: str, spans: Sequence[tuple[int, int]]) -> bool:
    """Report whether at least a tenth of a text's visible characters, combining marks too, lie in
    no known token; `spans`, in code points, are those of known ones.
    """
    changes = np.zeros(len(text) + 1, dtype=np.int64)
    for begin, end in spans:
        changes[begin] += 1
        changes[end] -= 1
    known = changes.cumsum()[:-1] > 0
    visible = np.array([is_seen(one) or unicodedata.category(one)[0] == "M" for one in text], dtype=np.bool_)
    return bool((visible & ~known).sum() >= _UNKNOWN * max(1, int(visible.sum())))


def not_read(texts: Sequence[str], blank: Sequence[bool], embeddings: ArrayLike) -> tuple[Rule | None, ...]:
    """Return for each answer why the encoder, by its embeddings of shape (n, d), did not read it,
    None for one that it did; nothing at all where it read all.
    """
    found: list[Rule | None] = [None] * len(texts)
    alike: dict[bytes, list[int]] = {}
    rows: NDArray[np.floating] = np.asarray(embeddings)
    for place, (empty, row) in enumerate(zip(blank, rows, strict=True)):
        if empty:
            continue
        if np.isnan(row[0]):
            found[place] = "unread"
        elif not row.any():
            found[place] = "cut"
        else:
            alike.setdefault(row.tobytes(), []).append(place)
    for places in alike.values():
        if (
            len({texts[place] for place in places}) > 1
            and len({_compared(texts[place]) for place in places}) > 1
        ):
            for place in places:
                found[place] = "twin"
    return tuple(found) if any(found) else ()


def _compared(text: str) -> str:
    """The characters of a text that two answers are told apart by."""
    if text.isascii():
        return "".join(text.casefold().split())
    folded = unicodedata.normalize("NFKD", text).casefold()
    return "".join(
        one for one in folded if unicodedata.category(one) not in _NOT_COMPARED and not one.isspace()
    )
