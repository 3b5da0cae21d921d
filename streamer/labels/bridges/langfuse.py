"""Langfuse: answers as traces and items of an annotation queue, and its scores, by the JSON of its public API.

Nothing in Langfuse's scores names our answer but the trace's id, which `task_id` makes of the answer's identity.
"""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from streamer.clouds.tables.marks import WORDS
from streamer.gates.batch_key import BatchKey
from streamer.labels.bridges.bridge import CHOICES, QUESTION, Bridge, identity, name_of, text_of
from streamer.labels.severity import LabelTask

_CATEGORIES = ", ".join(f'{{"label": "{name}", "value": {WORDS[name]:g}}}' for name in CHOICES)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Langfuse(Bridge):
    """A task is the body of two requests: `trace` for OpenTelemetry's endpoint, `item` for an annotation queue."""

    __slots__ = ()

    name: ClassVar[str] = "langfuse"
    title: ClassVar[str] = "Langfuse"
    setup: ClassVar[str] = (
        f'an annotation queue with the score config {{"name": "{QUESTION}", "dataType": "CATEGORICAL", '
        f'"categories": [{_CATEGORIES}]}}; each `trace` goes to POST /api/public/otel/v1/traces, and each `item` to '
        "POST /api/public/annotation-queues/{queueId}/items"
    )
    back: ClassVar[str] = f"save GET /api/public/v3/scores?name={QUESTION}&fields=subject,annotation"
    by_task_id: ClassVar[bool] = True

    def task(self, task: LabelTask) -> dict[str, Any]:
        """Return the bodies of the two requests. The same answer has the same ids and times each time."""
        trace = self.task_id(task.key, task.response_id, task.kind)
        seen = {"references": text_of(task), "urgent": "yes" if task.urgent else "no"}
        attributes = {
            "langfuse.trace.name": name_of(
                task.key.gate, task.key.batch_id, task.key.attempt, task.response_id
            ),
            "langfuse.observation.type": "span",
            **{f"langfuse.{level}.input": task.prompt for level in ("trace", "observation")},
            **{f"langfuse.{level}.output": task.response for level in ("trace", "observation")},
            **{
                f"langfuse.trace.metadata.{name}": str(value)
                for name, value in (identity(task) | seen).items()
            },
        }
        decided = (task.decided_at or _EPOCH) - _EPOCH
        at = str((decided.days * 86_400 + decided.seconds) * 10**9 + decided.microseconds * 1000)
        span = {
            "traceId": trace,
            "spanId": trace[:16],
            "name": task.response_id,
            "kind": 1,
            "startTimeUnixNano": at,
            "endTimeUnixNano": at,
            "attributes": _attributes(attributes),
            "status": {},
        }
        return {
            "trace": {
                "resourceSpans": [
                    {
                        "resource": {"attributes": _attributes({"service.name": "streamer"})},
                        "scopeSpans": [{"scope": {"name": "streamer"}, "spans": [span]}],
                    }
                ]
            },
            "item": {"objectId": trace, "objectType": "TRACE"},
        }

    def task_id(self, key: BatchKey, response_id: str, kind: str) -> str:
        """Return the id of an answer's trace: 16 bytes in hexadecimal, of SHA-256 of what names the answer and the kind."""
        named = f"{name_of(key.gate, key.batch_id, key.attempt, response_id)} {kind}"
        return hashlib.sha256(named.encode()).hexdigest()[:32]

    def records(self, document: Any) -> list[Any] | None:
        """Return the scores of a page, of a list of pages, or of a list of scores."""
        pages: list[Any] = document if isinstance(document, list) else [document]
        if not any(isinstance(page, dict) and "data" in page for page in pages):
            return document if isinstance(document, list) else None
        found: list[Any] = []
        for page in pages:
            scores = page.get("data") if isinstance(page, dict) else None
            if not isinstance(scores, list):
                return None
            found += scores
        return found

    def labels(self, record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield a label for a score that a person gave to a trace, as v2 and v3 of the API have it."""
        if not isinstance(record.get("name"), str) or "dataType" not in record:
            raise ValueError("a score has a name and a dataType")
        if record["name"] != QUESTION or record.get("source") != "ANNOTATION":
            return
        if record["dataType"] not in ("NUMERIC", "CATEGORICAL"):
            raise ValueError(
                f"the score {QUESTION} must be NUMERIC or CATEGORICAL, not {str(record['dataType'])[:40]}"
            )
        subject = record.get("subject") if "subject" in record else {"id": record.get("traceId")}
        if not isinstance(subject, dict) or "authorUserId" not in record:
            raise ValueError("a score lacks subject or authorUserId; ask for fields=subject,annotation")
        trace = subject.get("traceId") or subject.get("id")
        yield {
            "task": trace,
            # v2 has a category's number beside its name, which is 0 where no config is linked.
            "severity": record.get("stringValue") or record.get("value"),
            "labeller": self.labeller(record["authorUserId"]),
            "labelled_at": record.get("updatedAt") or record.get("timestamp"),
        }


def _attributes(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]
