"""Severities: numbers in [0, 1], 0 = fine, 1 = worst; and what waits for one. Pure.

Severities are made offline, for calibration and monitoring; the gate never sees one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from streamer.gates.batch_key import BatchKey
from streamer.scoring.judged import WHOLE, Form

DECIMALS = 6
"""Severities are rounded once, here: floating-point noise of a model is no difference between answers."""


@dataclass(frozen=True, slots=True)
class Severity:
    """A severity as it is used: `raw`, as it was computed, clipped to [0, 1] and rounded to 1e-6. A
    rescaled BERTScore below 0 makes `raw` larger than 1.
    """

    value: float
    raw: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelTask:
    """One response that waits for a severity, with what a person needs to judge it.

    `response` : as it would go out. `judged` : what of it is judged. `urgent` : label it before others. `decided_at` : when its batch
    was decided, with zone. `unit_id`, `unit` : the claim that is judged; empty: all.
    """

    key: BatchKey
    response_id: str
    kind: str
    prompt: str
    response: str
    references: tuple[str, ...] | None = None
    urgent: bool = False
    decided_at: datetime | None = None
    judged: Form = WHOLE
    unit_id: str = ""
    unit: str = ""

    @property
    def shown(self) -> str:
        """What stands in a file for people: the response, and behind it the claim to judge."""
        return f"{self.response}\n\nThe claim to judge: {self.unit}" if self.unit else self.response

    @property
    def head(self) -> str:
        """What a program that labels reads of the response."""
        return self.judged.head(self.response)


def judge_severity(mark: float) -> float:
    """JS = 1 - J/100, in [0, 1], for a judge's mark J in [0, 100] (higher is better). Raises
    `ValueError` for any other mark.
    """
    if not 0.0 <= mark <= 100.0:
        raise ValueError(f"a judge's mark is a number from 0 to 100, not {mark}")
    return round(1.0 - mark / 100.0, DECIMALS)


def not_blank(references: Iterable[str] | None) -> tuple[str, ...]:
    """Return the references that are not blank."""
    return tuple(reference for reference in references or () if reference.strip())


def usable(references: Sequence[str], index: int | None) -> list[str]:
    """Return the references that are not blank, stripped. Raises `ValueError` when there is none."""
    found = list(map(str.strip, not_blank(references)))
    if not found:
        which = "the answer" if index is None else f"answer {index}"
        raise ValueError(f"{which} has no reference to be compared with; leave it out, or have it judged")
    return found


def of_raw(raw: float) -> Severity:
    """Return a severity from what was computed."""
    return Severity(round(min(max(raw, 0.0), 1.0), DECIMALS), raw)
