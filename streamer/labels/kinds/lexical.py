"""Lexical: does an answer say one of its references, in the same words? Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from streamer.labels.lexical import Match, matches
from streamer.labels.severity import LabelTask, not_blank, usable
from streamer.labels.severity_kind import RuleKind, option
from streamer.scoring.answer_head import answer_head


def lexical_severity(text: str, references: Sequence[str], *, match: Match = "exact") -> float:
    """0.0 when the answer says one of the references, 1.0 when it does not; see
    `streamer.labels.lexical.matches`.

    Pass `answer_head(text)` where an answer goes on after it has answered. Raises `ValueError` when
    there is no reference that is not blank.
    """
    return 0.0 if matches(text, usable(references, None), match) else 1.0


@dataclass(frozen=True, slots=True)
class Lexical(RuleKind):
    """Severity 0 where an answer says one of its references, else 1.

    `match` : see `streamer.labels.lexical.matches`. `whole` looks at the whole answer, not at its
    head.
    """

    name: ClassVar[str] = "lexical"
    place: ClassVar[int] = 1
    title: ClassVar[str] = "lexical"
    formula: ClassVar[str] = "0 if the answer says one of the references, else 1"
    values: ClassVar[str] = "0 or 1"
    needs: ClassVar[str] = "references"
    use_when: ClassVar[str] = "answers are names, numbers, dates"
    command: ClassVar[
        str
    ] = """Label what waits in the queues of gates of the kind `lexical`: 0 where it says a reference, else 1.

        A response without references cannot be compared: it is counted, and stays in the queue.
        """

    match: Literal["exact", "contained"] = option(
        "exact", "The answer is a reference, or has the words of one in it."
    )
    whole: bool = option(default=False, help="Look at whole answers, not at their heads.")

    @property
    def id(self) -> str:
        """The rule, for the record."""
        return f"lexical/{self.match}/{'whole' if self.whole else 'head'}"

    def of(self, task: "LabelTask") -> float:
        """Compare numbers, and JSON and calls field by field, as a gate compares them; texts by their words."""
        judged, references = task.judged, not_blank(task.references)
        if not judged.agrees:
            return self.severity(task.response, references)
        if judged.name.startswith("final"):
            return lexical_severity(task.head, references, match=self.match)
        same = (judged.agreement([task.head, judged.part(one)]).min() == 1 for one in references)
        return 0.0 if any(same) else 1.0

    def severity(self, answer: str, references: Sequence[str]) -> float:
        """Compare the answer or its head."""
        return lexical_severity(answer if self.whole else answer_head(answer), references, match=self.match)
