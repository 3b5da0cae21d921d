"""Argilla: records as `dataset.records.from_json` reads them and `to_json` writes them."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from streamer.labels.bridges.bridge import CHOICES, QUESTION, Bridge, identity, identity_of, name_of, text_of
from streamer.labels.severity import LabelTask


class Argilla(Bridge):
    """A record has its texts in `fields`, the answer's identity in `metadata`, and an id that names it too."""

    __slots__ = ()

    name: ClassVar[str] = "argilla"
    title: ClassVar[str] = "Argilla"
    setup: ClassVar[str] = (
        "a dataset with the text fields prompt, answer and references (not required), the label question "
        f"{QUESTION} with the labels {', '.join(CHOICES)}, and allow_extra_metadata; then dataset.records.from_json"
    )

    def task(self, task: LabelTask) -> dict[str, Any]:
        """Return a record without responses."""
        key = task.key
        return {
            "id": name_of(key.gate, key.batch_id, key.attempt, task.response_id),
            "fields": {"prompt": task.prompt, "answer": task.shown, "references": text_of(task)},
            "metadata": {**identity(task), "urgent": "yes" if task.urgent else "no"},
            "suggestions": {},
            "responses": {},
            "vectors": {},
        }

    def labels(self, record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield a label for each response to the question."""
        responses = record.get("responses")
        if not isinstance(record.get("metadata"), dict) or not isinstance(responses, dict):
            raise ValueError("a record of Argilla has the objects metadata and responses")
        answer = identity_of(record["metadata"], "metadata of a record")
        for response in responses.get(QUESTION) or ():
            if not isinstance(response, dict):
                raise ValueError("a response is no object")
            if response.get("value") in (None, "") or response.get("status") in ("draft", "discarded"):
                continue
            yield {
                **answer,
                "severity": response["value"],
                "labeller": self.labeller(response.get("user_id")),
                "labelled_at": None,
            }
