"""What a bridge to a labelling tool is, and what all of them share. Pure."""

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Protocol

from streamer.calibration.specification import Specification
from streamer.gates.batch_key import BatchKey
from streamer.labels.severity import LabelTask

QUESTION = "severity"
"""What the question is called that people answer in the tool."""

CHOICES = ("fine", "half", "worst")
"""The answers that the tool offers, which `streamer.clouds.tables.marks` reads; numbers in [0, 1] are taken as they are."""

IDENTITY = ("gate", "batch_id", "attempt", "response_id", "kind")
"""What names the answer, and comes back with its label."""


class Named(Protocol):
    """An answer and the kind of the severity that is asked for."""

    @property
    def key(self) -> BatchKey:
        """Its batch."""

    @property
    def response_id(self) -> str:
        """Its id there."""

    @property
    def kind(self) -> str:
        """The kind of the severity."""


class Bridge(Specification):
    """A labelling tool: its tasks out, its annotations in."""

    __slots__ = ()

    title: ClassVar[str]
    """How the tool is called."""
    setup: ClassVar[str]
    """What has to be there in the tool before tasks are imported, for people."""
    back: ClassVar[str] = "export as JSON"
    """How what people answered comes out of the tool, for people."""
    by_task_id: ClassVar[bool] = False
    """Whether what comes out names an answer by `task_id` alone: its labels have `task` in place of `IDENTITY`."""

    @abstractmethod
    def task(self, task: LabelTask) -> dict[str, Any]:
        """Return one answer that waits for a severity, as the tool imports it."""

    def task_id(self, key: BatchKey, response_id: str, kind: str) -> str:
        """Return the name of an answer in the tool, where `by_task_id`."""
        raise NotImplementedError

    def records(self, document: Any) -> list[Any] | None:
        """Return the records of an export; None where it is none."""
        return document if isinstance(document, list) else None

    def labeller(self, who: object) -> str | None:
        """Return the name of who answered in the tool; None where that is not said."""
        return None if who is None else f"{self.name}:{who}"

    @abstractmethod
    def labels(self, record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the labels of one exported record by the fields of label files; none where nobody has answered.

        Raises `ValueError` where it is no such record.
        """


def identity(task: Named) -> dict[str, Any]:
    """Return what names an answer; see `IDENTITY`."""
    return {
        "gate": task.key.gate,
        "batch_id": task.key.batch_id,
        "attempt": task.key.attempt,
        "response_id": task.response_id,
        "kind": task.kind,
    }


def identity_of(found: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Take out what names an answer. Raises `ValueError` where it is not all there."""
    missing = [name for name in IDENTITY if found.get(name) in (None, "")]
    if missing:
        raise ValueError(
            f"{where} lacks {', '.join(missing)}; import the tasks that `streamer label queue` wrote"
        )
    return {name: found[name] for name in IDENTITY}


def text_of(task: LabelTask) -> str:
    """Return known good answers as one text for people."""
    return "\n".join(task.references or ())


def name_of(gate: str, batch_id: str, attempt: int, response_id: str) -> str:
    """Return a name of an answer that no other has."""
    return json.dumps([gate, batch_id, attempt, response_id], ensure_ascii=False)
