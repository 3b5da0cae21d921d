"""The label queue in the JSON of labelling tools, and back: what a tool adds to a task becomes a label of that answer."""

import inspect
import io
import json
import typing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest

from streamer.cli import label
from streamer.errors import UsageError
from streamer.gates.batch_key import BatchKey
from streamer.labels.bridges.bridge import identity
from streamer.labels.bridges.registry import bridges
from streamer.labels.label_files import LabelReader, exported, write_queue
from streamer.labels.severity import LabelTask
from tests.unit.labelling.test_label_files import NOW

TASKS = [
    LabelTask(
        key=BatchKey("bot", "b-1 é", 2),
        response_id=name,
        kind="human",
        prompt='Is "1,5"\nmore than 1?',
        response="<b>=1+1</b>",
        references=("yes", "-"),
        urgent=name == "a",
        decided_at=datetime(2026, 3, 9, 20, 0, 0, 123_456, tzinfo=UTC),
    )
    for name in "abcd"
]


def written(tool: str, tasks: list[LabelTask] = TASKS) -> list[dict[str, Any]]:
    lines = io.StringIO()
    assert write_queue(tasks, lines, tool) == len(tasks)
    return json.loads(lines.getvalue())  # type: ignore[no-any-return]


def answers(tool: str, tasks: list[LabelTask]) -> dict[str, dict[str, object]]:
    bridge = bridges()[tool]
    if not bridge.by_task_id:
        return {}
    return {bridge.task_id(one.key, one.response_id, one.kind): identity(one) for one in tasks}


def labels(tool: str, document: object, **given: Any) -> tuple[list[tuple[Any, ...]], int]:
    lines = io.StringIO(document if isinstance(document, str) else json.dumps(document))
    bridge = bridges()[tool]
    reader = LabelReader(
        exported(bridge, lines, "export.json"), now=NOW, defaults={"labeller": lambda: "me"},
        answers=(lambda: answers(tool, TASKS)) if bridge.by_task_id else None, **given,
    )  # fmt: skip
    found = [
        (one.key, one.response_id, one.kind, one.severity, one.labeller, one.labelled_at) for one in reader
    ]
    return found, reader.unlabelled


def annotation(value: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """An annotation as Label Studio's JSON export has it."""
    return {
        "id": 1001,
        "completed_by": 10,
        "result": [
            {"id": "Dx_aB91ISN", "from_name": "severity", "to_name": "answer", "type": "choices", "value": value,
             "origin": "manual"},
        ],
        "was_cancelled": False,
        "ground_truth": False,
        "created_at": "2026-03-09T22:16:08.728353Z",
        "updated_at": "2026-03-09T22:17:00.000000Z",
        "lead_time": 4.288,
        "task": 1,
    } | changes  # fmt: skip


def test_label_studio_gives_back_what_people_chose() -> None:
    tasks = written("label-studio")
    assert set(tasks[0]["data"]) >= {"prompt", "answer", "references", "gate", "batch_id", "response_id"}
    exported = [{"id": i, "project": 83, **task, "predictions": []} for i, task in enumerate(tasks)]
    exported[0]["annotations"] = [
        annotation({"choices": ["half"]}),
        annotation({"choices": ["worst"]}, completed_by={"id": 7, "email": "ann@example.org"}),
        annotation({"choices": ["fine"]}, was_cancelled=True),
    ]
    exported[1]["annotations"] = [annotation({"number": 0.25}, updated_at=None)]
    exported[2]["annotations"] = [annotation({"choices": ["other"]})]
    exported[2]["annotations"][0]["result"][0]["from_name"] = "remark"
    exported[3]["annotations"] = []
    at = datetime(2026, 3, 9, 22, 17, tzinfo=UTC)
    found, unlabelled = labels("label-studio", exported)
    key = BatchKey("bot", "b-1 é", 2)
    assert found == [
        (key, "a", "human", 0.5, "label-studio:10", at),
        (key, "a", "human", 1.0, "label-studio:ann@example.org", at),
        (key, "b", "human", 0.25, "label-studio:10", datetime(2026, 3, 9, 22, 16, 8, 728353, tzinfo=UTC)),
    ]
    assert unlabelled == 2
    minimal = [
        task["data"] | {"id": i, "severity": choice, "annotator": 3, "annotation_id": 5, "lead_time": 1.0,
                        "created_at": "2026-03-09T22:17:00Z", "updated_at": "2026-03-09T22:17:00Z"}
        for i, (task, choice) in enumerate(zip(tasks, ("fine", "worst", "0.5", None), strict=True))
    ]  # fmt: skip
    found, unlabelled = labels("label-studio", minimal)
    assert [(one[1], one[3], one[4]) for one in found] == [
        (name, severity, "label-studio:3") for name, severity in (("a", 0.0), ("b", 1.0), ("c", 0.5))
    ]
    assert unlabelled == 1


def test_argilla_gives_back_every_response() -> None:
    records = written("argilla")
    assert len({record["id"] for record in records}) == len(records)
    assert {type(value) for record in records for value in record["metadata"].values()} <= {str, int}
    records[0]["responses"] = {
        "severity": [{"value": "worst", "user_id": "8b7e"}, {"value": "fine", "user_id": "11aa"}]
    }
    records[1]["responses"] = {"remark": [{"value": "hm", "user_id": "8b7e"}]}
    records[2]["responses"] = {"severity": [{"value": None, "user_id": "8b7e"}]}
    found, unlabelled = labels("argilla", [{**record, "_server_id": "x"} for record in records])
    wanted = [("a", 1.0, "argilla:8b7e", NOW), ("a", 0.0, "argilla:11aa", NOW)]
    assert [(one[1], one[3], one[4], one[5]) for one in found] == wanted
    assert unlabelled == 3


class Value(msgspec.Struct, forbid_unknown_fields=True):
    """Of one attribute; the API takes numbers and truth values too."""

    stringValue: str  # noqa: N815


class Attribute(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    value: Value


class Span(msgspec.Struct, forbid_unknown_fields=True):
    """What `POST /api/public/otel/v1/traces` takes of a span, as OTLP/HTTP has it in JSON: ids in hexadecimal, times as text."""

    traceId: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]  # noqa: N815
    spanId: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]  # noqa: N815
    name: str
    kind: int
    startTimeUnixNano: Annotated[str, msgspec.Meta(pattern="^[0-9]+$")]  # noqa: N815
    endTimeUnixNano: Annotated[str, msgspec.Meta(pattern="^[0-9]+$")]  # noqa: N815
    attributes: list[Attribute]
    status: dict[str, Any]


class Scope(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class ScopeSpans(msgspec.Struct, forbid_unknown_fields=True):
    scope: Scope
    spans: list[Span]


class Resource(msgspec.Struct, forbid_unknown_fields=True):
    attributes: list[Attribute]


class ResourceSpans(msgspec.Struct, forbid_unknown_fields=True):
    resource: Resource
    scopeSpans: list[ScopeSpans]  # noqa: N815


class Trace(msgspec.Struct, forbid_unknown_fields=True):
    resourceSpans: list[ResourceSpans]  # noqa: N815


class Item(msgspec.Struct, forbid_unknown_fields=True):
    """What `POST /api/public/annotation-queues/{queueId}/items` takes."""

    objectId: str  # noqa: N815
    objectType: Literal["TRACE", "OBSERVATION", "SESSION"]  # noqa: N815
    status: Literal["PENDING", "COMPLETED"] = "PENDING"


class Task(msgspec.Struct, forbid_unknown_fields=True):
    trace: Trace
    item: Item


def score(trace: str, value: Any = "half", data_type: str = "CATEGORICAL", **changes: Any) -> dict[str, Any]:
    """A score as `GET /api/public/v3/scores?fields=subject,annotation` has it."""
    return {
        "id": f"s-{trace}", "projectId": "p", "name": "severity", "value": value,
        "dataType": data_type, "source": "ANNOTATION", "timestamp": "2026-03-09T22:00:00.000Z",
        "environment": "default", "createdAt": "2026-03-09T22:00:00.000Z",
        "updatedAt": "2026-03-09T22:17:00.000Z", "authorUserId": "u7", "queueId": "q",
        "subject": {"kind": "trace", "id": trace},
    } | changes  # fmt: skip


def score_v2(
    trace: str, value: float, text: str | None, data_type: str = "CATEGORICAL", **changes: Any
) -> dict[str, Any]:
    """The same as `GET /api/public/v2/scores` has it: the subject's ids side by side, a category's number and its name."""
    found = score(trace, value, data_type) | {"traceId": trace, "observationId": None, "sessionId": None}
    del found["subject"]
    return found | ({} if text is None else {"stringValue": text}) | changes


def test_langfuse_takes_an_answer_as_a_trace_and_an_item_of_a_queue() -> None:
    tasks = msgspec.convert(written("langfuse"), list[Task], strict=True)
    assert written("langfuse") == written("langfuse"), "the same ids and times each time"
    traces = [one.item.objectId for one in tasks]
    assert len(set(traces)) == len(TASKS)
    for task, mine in zip(tasks, TASKS, strict=True):
        ((span,),) = [
            [span for part in one.scopeSpans for span in part.spans] for one in task.trace.resourceSpans
        ]
        assert (span.traceId, task.item.objectType) == (task.item.objectId, "TRACE")
        assert span.startTimeUnixNano == span.endTimeUnixNano == "1773086400123456000"
        said = {one.key: one.value.stringValue for one in span.attributes}
        assert said["langfuse.trace.input"] == said["langfuse.observation.input"] == mine.prompt
        assert said["langfuse.trace.output"] == said["langfuse.observation.output"] == mine.response
        assert said["langfuse.trace.metadata.batch_id"] == "b-1 é"
        assert said["langfuse.trace.metadata.references"] == "yes\n-"
    other = replace(TASKS[0], kind="doctor")
    assert bridges()["langfuse"].task_id(other.key, "a", "doctor") not in traces


def test_langfuse_gives_back_what_people_scored() -> None:
    a, b, c, d = (one["item"]["objectId"] for one in written("langfuse"))
    key, at = BatchKey("bot", "b-1 é", 2), datetime(2026, 3, 9, 22, 17, tzinfo=UTC)
    scores = [
        score(a, "worst"), score(a, "fine", authorUserId=None, source="API"),
        score(a, "fine", source="EVAL"), score(b, 0.25, "NUMERIC", authorUserId=None),
        score(c, "fine", subject={"kind": "observation", "id": c[:16], "traceId": c}),
        score(d, "fine", name="tone"), score("f" * 32, "fine"),
        score(d, "fine", subject={"kind": "session", "id": "somebody's"}),
    ]  # fmt: skip
    wanted = [
        (key, "a", "human", 1.0, "langfuse:u7", at),
        (key, "b", "human", 0.25, "me", at),
        (key, "c", "human", 0.0, "langfuse:u7", at),
    ]
    page = {"data": scores, "meta": {"limit": 100}}
    for document in (page, scores, [page, {"data": [], "meta": {"limit": 100}}]):
        assert labels("langfuse", document) == (wanted, 3)
    older = [
        score_v2(a, 1, "worst"),
        score_v2(b, 0.25, None, "NUMERIC", authorUserId=None),
        score_v2(c, 0, "fine", observationId=c[:16]),
    ]
    assert labels("langfuse", {"data": older, "meta": {"page": 1, "totalPages": 1}})[0] == wanted
    # The number beside a category is 0 where the score has no config: its name counts.
    assert [one[3] for one in labels("langfuse", [score_v2(a, 0, "worst")])[0]] == [1.0]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"dataType": "BOOLEAN", "value": True}, "must be NUMERIC or CATEGORICAL, not BOOLEAN"),
        ({"subject": None}, "ask for fields=subject,annotation"),
        ({"value": "terrible"}, "'terrible' is not a number from 0"),
        ({"dataType": "NUMERIC", "value": 5}, "not a number from 0|outside|0 to 1|≤ 1|<= 1"),
        ({"name": 3}, "a score has a name"),
    ],
)
def test_a_score_that_is_no_severity_is_refused(changes: dict[str, Any], says: str) -> None:
    (record, *_) = written("langfuse")
    with pytest.raises(UsageError, match=says):
        labels("langfuse", [score(record["item"]["objectId"]) | changes])
    lacks = score(record["item"]["objectId"])
    del lacks["authorUserId"]
    with pytest.raises(UsageError, match="ask for fields=subject,annotation"):
        labels("langfuse", [lacks])


@pytest.mark.parametrize("tool", bridges())
def test_a_labeller_that_the_command_names_stands_for_all(tool: str) -> None:
    (record, *_) = written(tool)
    if tool == "argilla":
        record["responses"] = {"severity": [{"value": "half", "user_id": "u"}]}
    elif tool == "langfuse":
        record = score(record["item"]["objectId"])
    else:
        record["annotations"] = [annotation({"choices": ["half"]})]
    found, _ = labels(tool, [record], labeller="ann")
    assert [one[4] for one in found] == ["ann"]


@pytest.mark.parametrize("tool", bridges())
@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("{", "is not JSON .*; in "),
        ("{}", "no list of records"),
        ("[1]", "no list of records"),
        ([{"text": "mine", "severity": "fine", "data": {}, "metadata": {}, "responses": {}}],
         "record 1: .*lacks gate, batch_id|no list of records"),
        ([{"data": 3, "metadata": 3}], "record 1: |no list of records"),
    ],
)  # fmt: skip
def test_an_export_that_is_none_says_so(tool: str, document: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        labels(tool, document)


def test_a_choice_that_is_no_severity_is_refused() -> None:
    (record, *_) = written("label-studio")
    record["annotations"] = [annotation({"choices": ["terrible"]})]
    with pytest.raises(UsageError, match="'terrible' is not a number from 0"):
        labels("label-studio", [record])
    record["annotations"] = [annotation({"rating": 4})]
    with pytest.raises(UsageError, match="an object where one value should be"):
        labels("label-studio", [record])


def test_the_command_offers_every_bridge() -> None:
    hint = typing.get_type_hints(label.queue)["format_"]
    assert set(bridges()) <= {name for one in typing.get_args(hint) for name in typing.get_args(one)}
    option = inspect.signature(label.import_).parameters["format_"].default
    assert set(bridges()) <= set(option.metavar.split("|"))
