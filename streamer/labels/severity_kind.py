"""What a kind of severity says of itself: one file in `streamer.labels.kinds`, and everything else follows from it.

The commands `streamer label NAME` and `label clouds --by NAME` with their options, the table in docs/severities.md, and which
queues the review page leaves out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

from streamer.calibration.specification import Specification
from streamer.labels.filling import Attempted, Labeller, in_groups
from streamer.labels.severity import LabelTask, Severity, not_blank

if TYPE_CHECKING:
    from streamer.settings.settings import Settings

ANSWERS_AT_ONCE = 64
"""Answers in one transaction: enough for full passes of a model, few enough to be lost without regret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOption:
    """An option of the commands that label by a kind; `least` is the least value of a number."""

    help: str
    metavar: str | None
    least: int | None
    type: Any = None
    default: Any = None


def option(
    default: Any,
    help: str,  # noqa: A002  # the word of every command-line library
    *,
    metavar: str | None = None,
    least: int | None = None,
) -> Any:
    """Declare an option as a field of a kind; see `KindOption`."""
    return field(default=default, metadata={"option": {"help": help, "metavar": metavar, "least": least}})


class SeverityKind(Specification):
    """A kind of severity, for the table in docs/severities.md."""

    __slots__ = ()

    title: ClassVar[str]
    """What the severity is called."""
    formula: ClassVar[str]
    """Its formula."""
    values: ClassVar[str]
    """What values it has."""
    needs: ClassVar[str]
    """What must be there."""
    use_when: ClassVar[str]
    """When it is the right choice; goes on after "use it when"."""


class ProgramKind(SeverityKind, ABC):
    """A kind that a program gives. A subclass is a frozen dataclass with slots, whose fields are options made by `option`."""

    __slots__ = ()

    command: ClassVar[str]
    """What `streamer label NAME` does: the text of its help."""
    needs_references: ClassVar[bool] = True
    """Whether a response without references cannot be labelled."""
    labels_claims: ClassVar[bool] = False
    """Whether it can be asked about a claim of an answer."""
    group: ClassVar[str | None] = None
    """The group of settings that its options override; None: there are no settings."""

    @classmethod
    def options(cls) -> dict[str, KindOption]:
        """Return its options by name."""
        types = get_type_hints(cls)
        return {
            one.name: KindOption(**one.metadata["option"], type=types[one.name], default=one.default)
            for one in fields(cls)  # type: ignore[arg-type]
        }

    def overrides(self) -> dict[str, dict[str, Any]]:
        """Return what its options make of the settings, by group."""
        if self.group is None:
            return {}
        given = {name: getattr(self, name) for name in self.options()}
        return {self.group: {name: value for name, value in given.items() if value is not None}}

    @abstractmethod
    def labeller(self, settings: Settings) -> AbstractContextManager[Labeller]:
        """Return who labels. What takes time waits until the context is entered.

        Raises `UsageError` when the settings do not say what is needed.
        """

    def priced(self, settings: Settings) -> bool:
        """Return whether it is known what labels cost."""
        return False


class RuleKind(ProgramKind):
    """A kind whose severity follows from an answer and its references alone: a labeller by itself."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        """The kind of its labels."""
        return self.name

    @property
    @abstractmethod
    def id(self) -> str:
        """The rule down to its version, for the record."""

    @abstractmethod
    def severity(self, answer: str, references: Sequence[str]) -> float:
        """Return a number in [0, 1], 0 = fine. There is a reference that is not blank."""

    def labeller(self, settings: Settings) -> AbstractContextManager[Labeller]:
        """Return itself."""
        return nullcontext(self)

    def label(self, tasks: Iterable[LabelTask]) -> Generator[Sequence[Attempted]]:
        """Label tasks in groups."""
        for group in in_groups(tasks, ANSWERS_AT_ONCE):
            severities = [self.of(task) for task in group]
            yield [
                Attempted(task=task, severity=Severity(value, value))
                for task, value in zip(group, severities, strict=True)
            ]

    def of(self, task: LabelTask) -> float:
        """Return the severity of a task: of an answer, or of the part that is judged, beside that of its references."""
        references, part = not_blank(task.references), task.judged.part
        if not task.judged.agrees:
            return self.severity(task.response, references)
        return self.severity(task.head, [part(one) or one for one in references])
