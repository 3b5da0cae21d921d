"""Human: what people say, on the review page, in files or by topic."""

from typing import ClassVar

from streamer.labels.severity_kind import SeverityKind


class Human(SeverityKind):
    """What a person says."""

    name: ClassVar[str] = "human"
    place: ClassVar[int] = 0
    title: ClassVar[str] = "human"
    formula: ClassVar[str] = "what a person says"
    values: ClassVar[str] = "[0, 1]"
    needs: ClassVar[str] = "people"
    use_when: ClassVar[str] = "it matters; the others approximate it"
