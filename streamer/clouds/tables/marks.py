"""What people write for how good an answer is, as severities: one function for every reader of files. Pure."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from streamer.clouds.tables.values import is_missing, plain
from streamer.errors import UsageError
from streamer.events.excerpts import excerpt

Annotators = Literal["mean", "worst"]
ANNOTATORS: tuple[Annotators, ...] = get_args(Annotators)

WORDS: Mapping[str, float] = {
    **dict.fromkeys(("correct", "right", "good", "fine", "ok", "pass", "passed", "acceptable"), 0.0),
    "half": 0.5,
    **dict.fromkeys(
        ("incorrect", "wrong", "bad", "worst", "fail", "failed", "unacceptable", "hallucination", "hallucinated"),
        1.0,
    ),
}  # fmt: skip
"""Words that mean the same in every column."""
TRUTH: Mapping[str, bool] = {
    **dict.fromkeys(("true", "yes", "y", "t"), True),
    **dict.fromkeys(("false", "no", "n", "f"), False),
}
"""Words that answer what the column asks: whether the answer is bad (`severity`), or whether it is right (`correct`)."""

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Marks:
    """How marks become severities.

    `scale` has the worst and the best mark, as 1 and 5 of stars; None: marks are numbers from 0 to
    1. `words` are severities of words of your own, in small letters; they come before `WORDS`.
    """

    scale: tuple[float, float] | None = None
    words: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise `UsageError` for a scale or a severity of a word that is none."""
        scale = self.scale
        if scale is not None and not (
            len(scale) == 2 and all(map(_is_finite, scale)) and scale[0] != scale[1]
        ):
            raise UsageError(f"a scale is its worst and its best mark, like 1 and 5, not {scale!r}")
        for word, severity in self.words.items():
            if not (_is_finite(severity) and 0 <= severity <= 1):
                raise UsageError(
                    f"the severity of {word!r} must be a number from 0 (fine) to 1 (worst), not {severity!r}"
                )
        object.__setattr__(
            self, "words", {str(word).strip().lower(): float(one) for word, one in self.words.items()}
        )

    def severity(self, mark: Any, *, correct: bool = False, decimal_comma: bool = False) -> float | None:
        """Return the severity of a mark, in [0, 1]; None for an empty cell.

        `correct` : the column says how right an answer is (1 or true is fine), and not how bad.
        Raises `ValueError`, which says what it should be, when it is no mark.
        """
        mark = plain(mark)
        if isinstance(mark, list):
            raise ValueError(
                "a list where one mark should be; name an entry of it, which is NAME.0 of a column NAME"
            )
        word = str(mark).strip().lower()
        if word in self.words:
            return self.words[word]
        if is_missing(mark):
            return None
        if word in WORDS:
            return WORDS[word]
        if isinstance(mark, bool) or word in TRUTH:
            return float(TRUTH[word] != correct)
        number = number_in(mark, decimal_comma=decimal_comma)
        worst, best = self.scale or ((0.0, 1.0) if correct else (1.0, 0.0))
        if not min(worst, best) <= number <= max(worst, best):
            raise ValueError(f"{excerpt(str(mark))} {self._wanted(mark, number, correct=correct)}")
        return abs(number - best) / abs(worst - best)

    def _wanted(self, mark: Any, number: float, *, correct: bool) -> str:
        word_hint = ", nor a word like yes, no, correct or wrong; say what it means: --map WORD=SEVERITY"
        if self.scale is not None:
            hint = "" if math.isfinite(number) else word_hint
            return f"is not a number on the scale from {self.scale[0]:g} (worst) to {self.scale[1]:g} (best){hint}"
        wanted = f"is not a number from 0 to 1 ({'0 wrong, 1 right' if correct else '0 fine, 1 worst'})"
        if math.isfinite(number):
            return f"{wanted}; say what scale it is on, the worst mark first: --scale 1:5"
        return wanted + word_hint + ("; write it with a point" if "," in str(mark) else "")


def severity_of(marks: Sequence[float], annotators: Annotators) -> float:
    """Return the one severity of several that annotators gave an answer."""
    return max(marks) if annotators == "worst" else math.fsum(marks) / len(marks)


def several_note(answers: int, of: int, marks: int, annotators: Annotators) -> str:
    """Say in a line of how many answers there were several severities, and what became of them; empty for none."""
    if not answers:
        return ""
    made = (
        "the worst counts"
        if annotators == "worst"
        else "they are averaged (--annotators worst takes the worst)"
    )
    return f"{answers:,} of {of:,} answers have several severities, {marks:,} in all: {made}"


def number_in(value: Any, *, decimal_comma: bool = False) -> float:
    """Return the number that a cell holds, as a number or as text; NaN for what is none."""
    value = plain(value)
    if isinstance(value, str):
        text = value.replace(",", ".", 1) if decimal_comma else value
        return float(text) if _NUMBER.fullmatch(text) else math.nan
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return float(value) if is_number else math.nan
    except OverflowError:  # a whole number that no float holds
        return math.nan


def parse_scale(text: str) -> tuple[float, float]:
    """Read ``WORST:BEST``. Raises `UsageError`."""
    worst, _, best = (number_in(part.strip()) for part in text.partition(":"))
    if not (math.isfinite(worst) and math.isfinite(best)) or worst == best:
        raise UsageError(f"--scale must be WORST:BEST, like 1:5 for stars of which 5 are best, not {text!r}")
    return worst, best


def parse_words(given: Iterable[str]) -> dict[str, float]:
    """Read ``WORD=SEVERITY``. Raises `UsageError`."""
    found: dict[str, float] = {}
    for text in given:
        word, _, severity = text.rpartition("=")
        number = number_in(severity.strip())
        if not word.strip() or not 0 <= number <= 1:
            raise UsageError(
                f"--map must be WORD=SEVERITY, from 0 (fine) to 1 (worst), like partly=0.5, not {text!r}"
            )
        found[word] = number
    return found


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
