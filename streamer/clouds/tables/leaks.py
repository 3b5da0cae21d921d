"""Whether a number that should be known before anybody has judged an answer is the mark itself."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from streamer.clouds.cloud import CloudResponse
from streamer.clouds.tables.one_prompt import Answer
from streamer.errors import UsageError


class LeakCheck:
    """Looks whether the score, or a signal, is the mark; see `ScoreCheck`. `columns` : of each, by name; None: it has none."""

    def __init__(self, file: str, columns: Mapping[str, str | None], *, trusted: bool) -> None:
        each = {
            name: ScoreCheck(file, column, trusted=trusted, name=name) for name, column in columns.items()
        }
        self._each = {name: one for name, one in each.items() if not one.trusted}
        self.trusted = not self._each

    def watch(self, answers: Iterable[Answer]) -> Iterator[Answer]:
        """Look at answers that pass."""
        for answer in answers:
            self.see(answer)
            yield answer

    def see(self, answer: Answer | CloudResponse) -> None:
        """Look at one answer."""
        for name, one in self._each.items():
            one.see(answer.score if name == "score" else answer.signals.get(name), answer.severity)

    def check(self) -> None:
        """Refuse what is the mark. Raises `UsageError` with the reason."""
        for one in self._each.values():
            one.check()


class ScoreCheck:
    """Looks whether a score says just what severities say, as only a mark does.

    `file` and `column`, None where there are no scores, are for the error, as is `name`, of the
    signal where it is none of scores. What is `trusted` is not looked at.
    """

    def __init__(self, file: str, column: str | None, *, trusted: bool, name: str = "score") -> None:
        self._file, self._column, self.trusted = file, column, trusted or column is None
        self._name = name
        self._bounds = {False: (math.inf, -math.inf), True: (math.inf, -math.inf)}
        self._counts = Counter[bool]()
        self._equal = {alike: Counter[bool]() for alike in (False, True)}

    def see(self, score: float | None, severity: float | None) -> None:
        """Look at one answer."""
        if self.trusted or score is None or severity is None or math.isnan(score):
            return
        bad = severity >= 0.5
        low, high = self._bounds[bad]
        self._bounds[bad] = min(low, score), max(high, score)
        self._counts[bad] += 1
        for alike in (False, True):
            self._equal[alike][bad] += math.isclose(score, severity if alike else 1 - severity, abs_tol=1e-6)

    def check(self) -> None:
        """Refuse a score that is the mark. Raises `UsageError` with the reason."""
        fine, bad = self._counts[False], self._counts[True]
        if self.trusted or not fine or not bad:
            return
        (fine_low, fine_high), (bad_low, bad_high) = self._bounds[False], self._bounds[True]
        reason = ""
        if min(fine, bad) >= _EACH_TO_SEPARATE and (fine_low > bad_high or fine_high < bad_low):
            reason = f"it separates {fine:,} fine from {bad:,} bad answers without one exception (AUC {int(fine_low > bad_high)})"
        elif fine + bad >= _MARKS and any(
            all(equal[one] >= _NEARLY_ALL * self._counts[one] for one in (False, True))
            for equal in self._equal.values()
        ):
            reason = f"it equals the severity, or one less it, in nearly all of {fine + bad:,} answers"
        if reason:
            raise UsageError(
                f"{self._file}, column {self._column}: {reason}, as the mark itself would; it must be known before "
                f"anybody has judged the answer. If it is the mark, leave it out: --column {self._name}=; if it is not: --trust-score"
            )


_EACH_TO_SEPARATE = 10
"""Answers of each class of which a score of chance separates all once in 184,756 times."""
_MARKS = 10
_NEARLY_ALL = 0.98
