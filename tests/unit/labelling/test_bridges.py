"""The label queue in the JSON of labelling tools, and back: what a tool adds to a task becomes a label of that answer."""

from __future__ import annotations

import io
import json
import typing
from datetime import UTC, datetime
from typing import Any

import pytest

from streamer.cli import label
from streamer.errors import UsageError
from streamer.gates.batch_key import BatchKey
from streamer.labels.bridges.registry import bridges
from streamer.labels.label_files import LabelReader, LabelTask, write_queue
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
    )
    for name in "abcd"
]


def written(tool: str, tasks: list[LabelTask] = TASKS) -> list[dict[str, Any]]:
    lines = io.StringIO()
    assert write_queue(tasks, lines, tool) == len(tasks)
    return json.loads(lines.getvalue())  # type: ignore[no-any-return]


def labels(tool: str, document: object, **given: Any) -> tuple[list[tuple[Any, ...]], int]:
    lines = io.StringIO(document if isinstance(document, str) else json.dumps(document))
    reader = LabelReader(lines, tool, name="export.json", now=NOW, default_labeller=lambda: "me", **given)
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
    assert [(one[1], one[3], one[4], one[5]) for one in found] == [
        ("a", 1.0, "argilla:8b7e", NOW),
        ("a", 0.0, "argilla:11aa", NOW),
    ]
    assert unlabelled == 3


@pytest.mark.parametrize("tool", bridges())
def test_a_labeller_that_the_command_names_stands_for_all(tool: str) -> None:
    (record, *_) = written(tool)
    if tool == "argilla":
        record["responses"] = {"severity": [{"value": "half", "user_id": "u"}]}
    else:
        record["annotations"] = [annotation({"choices": ["half"]})]
    found, _ = labels(tool, [record], labeller="ann")
    assert [one[4] for one in found] == ["ann"]


@pytest.mark.parametrize("tool", bridges())
@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("{", "is not JSON .*export from .* as JSON"),
        ("{}", "no list of records"),
        ("[1]", "no list of records"),
        ([{"text": "mine", "severity": "fine", "data": {}, "metadata": {}, "responses": {}}], "record 1: .*lacks gate, batch_id"),
        ([{"data": 3, "metadata": 3}], "record 1: "),
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
    with pytest.raises(UsageError, match="is not a number from 0"):
        labels("label-studio", [record])


def test_the_command_offers_every_bridge() -> None:
    for command in (label.queue, label.import_):
        hint = typing.get_type_hints(command)["format_"]
        offered = {name for one in typing.get_args(hint) for name in typing.get_args(one)}
        assert set(bridges()) <= offered
