"""Label Studio: tasks as its import takes them, annotations as its exports JSON and JSON_MIN have them."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from streamer.labels.bridges.bridge import CHOICES, QUESTION, Bridge, identity, identity_of, text_of
from streamer.labels.severity import LabelTask

INTERFACE = (
    '<View><Header value="$prompt"/><Text name="answer" value="$answer"/><Text name="references" value="$references"/>'
    f'<Choices name="{QUESTION}" toName="answer" choice="single" required="true">'
    + "".join(f'<Choice value="{choice}"/>' for choice in CHOICES)
    + "</Choices></View>"
)


class LabelStudio(Bridge):
    """A task has its texts and the answer's identity in `data`, which every export gives back."""

    __slots__ = ()

    name: ClassVar[str] = "label-studio"
    title: ClassVar[str] = "Label Studio"
    setup: ClassVar[str] = f"a project with this labelling interface: {INTERFACE}"

    def task(self, task: LabelTask) -> dict[str, Any]:
        """Return a task of the import format."""
        texts = {"prompt": task.prompt, "answer": task.shown, "references": text_of(task)}
        return {"data": {**texts, **identity(task), "urgent": task.urgent}}

    def labels(self, record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield a label for each annotation that was not cancelled."""
        if "data" not in record:
            # One annotation of JSON_MIN: data and answers side by side.
            if record.get(QUESTION) not in (None, ""):
                yield {
                    **identity_of(record, "a record"),
                    "severity": record[QUESTION],
                    "labeller": self._person({"completed_by": record.get("annotator")}),
                    **_moment(record),
                }
            return
        answer = identity_of(_object(record["data"], "data"), "data of a task")
        for annotation in _list(record.get("annotations") or record.get("completions") or [], "annotations"):
            if annotation.get("was_cancelled"):
                continue
            for result in _list(annotation.get("result") or [], "result"):
                if result.get("from_name") != QUESTION:
                    continue
                yield {
                    **answer,
                    "severity": _value(_object(result.get("value"), "value")),
                    "labeller": self._person(annotation),
                    **_moment(annotation),
                }

    def _person(self, annotation: Mapping[str, Any]) -> str | None:
        who = annotation.get("completed_by")
        if isinstance(who, dict):
            who = who.get("email") or who.get("id")
        return self.labeller(annotation.get("created_username") if who is None else who)


def _moment(said: Mapping[str, Any]) -> dict[str, Any]:
    return {"labelled_at": said.get("updated_at") or said.get("created_at")}


def _value(value: Mapping[str, Any]) -> Any:
    """What was answered: a choice, or a number where the project asks for one."""
    choices = value.get("choices")
    if isinstance(choices, list) and len(choices) == 1:
        return choices[0]
    return value.get("number", value)


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no object")
    return value


def _list(value: Any, what: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError(f"{what} is no list of objects")
    return value
