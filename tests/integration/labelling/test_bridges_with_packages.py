"""What `label queue` writes, read by the labelling tools' own packages, and what these make of it, read as labels.

The packages pin much, so that they are in an environment of their own, or these tests are skipped.
"""

import importlib.util
import json
import os
import sys

import pytest

from streamer.labels.bridges.label_studio import INTERFACE
from tests import programs
from tests.machine import ASKED
from tests.unit.labelling.test_bridges import TASKS, annotation, labels, score, written

PACKAGES = {
    "langfuse": "langfuse==5.0.4",
    "label_studio_sdk": "label-studio-sdk==2.1.2",
    "argilla": "argilla==2.8.0",
}
PYTHON = "STREAMER_TEST_LABELLING_PYTHON"
"""Names the Python of an environment that has them."""

LABELLERS = {
    "langfuse": "langfuse:u7",
    "label-studio": "label-studio:10",
    "argilla": "argilla:00000000-0000-0000-0000-000000000007",
}

READS = {
    "langfuse": """
from langfuse.api.annotation_queues.types import CreateAnnotationQueueItemRequest
from langfuse.api.core.pydantic_utilities import parse_obj_as
from langfuse.api.opentelemetry.types import OtelResourceSpan
from langfuse.api.scores.types import GetScoresV3Response
def known(read):
    # Their models keep what they do not know: there has to be nothing of it.
    assert not read.model_extra, read.model_extra
    for name in type(read).model_fields:
        value = getattr(read, name)
        for one in value if isinstance(value, list) else [value]:
            if hasattr(one, "model_fields"):
                known(one)
for task in given["tasks"]:
    for spans in task["trace"]["resourceSpans"]:
        read = parse_obj_as(OtelResourceSpan, spans)
        known(read)
        (span,) = read.scope_spans[0].spans
        assert {type(one.value.string_value) for one in span.attributes} == {str}
        assert span.trace_id == task["item"]["objectId"]
    item = parse_obj_as(CreateAnnotationQueueItemRequest, task["item"])
    known(item)
    assert (item.object_id, item.object_type) == (span.trace_id, "TRACE")
page = parse_obj_as(GetScoresV3Response, given["scores"])
known(page)
assert [(one.name, one.value) for one in page.data] == [("severity", "half")] * len(given["tasks"])
assert [one.subject.id for one in page.data] == [task["item"]["objectId"] for task in given["tasks"]]
answered = given["scores"]
""",
    "label_studio_sdk": """
from label_studio_sdk.label_interface import LabelInterface
from label_studio_sdk.types import Annotation
project = LabelInterface(given["config"])
project.validate()
assert all(project.validate_task(task) for task in given["tasks"])
assert project.validate_annotation(given["annotation"])
Annotation.model_validate(given["annotation"])
wrong = given["annotation"]["result"][0] | {"value": {"choices": ["terrible"]}}
assert not project.validate_annotation(given["annotation"] | {"result": [wrong]})
answered = [task | {"annotations": [given["annotation"]]} for task in given["tasks"]]
""",
    "argilla": """
from uuid import UUID
import argilla
answered = []
for task in given["tasks"]:
    record = argilla.Record.from_dict(task)
    assert record.to_dict() == task | {"status": "pending", "_server_id": None}
    record.api_model()
    record.responses.add(argilla.Response("severity", "half", user_id=UUID(int=7)))
    answered.append(record.to_dict())
""",
}


def python_with(package: str) -> str:
    """The Python that has a package; the test is skipped where there is none."""
    if named := ASKED.get(PYTHON):
        return named
    if importlib.util.find_spec(package) is None:
        pytest.skip(
            f"no {package}: python3 -m venv DIR && DIR/bin/pip install {' '.join(PACKAGES.values())}, then {PYTHON}=DIR/bin/python"
        )
    return sys.executable


@pytest.mark.parametrize(
    ("tool", "package"),
    [("langfuse", "langfuse"), ("label-studio", "label_studio_sdk"), ("argilla", "argilla")],
)
def test_its_own_package_takes_every_task_and_what_it_gives_back_is_read(tool: str, package: str):
    python = python_with(package)
    tasks = written(tool)
    assert len(tasks) == len(TASKS)
    given: dict[str, object] = {"tasks": tasks}
    if tool == "langfuse":
        scores = [score(task["item"]["objectId"]) for task in tasks]
        given["scores"] = {"data": scores, "meta": {"limit": 100}}
    if tool == "label-studio":
        given |= {"annotation": annotation({"choices": ["half"]}), "config": INTERFACE}
    program = f"import json, sys\ngiven = json.load(sys.stdin)\n{READS[package]}\nprint(json.dumps(answered))"
    done = programs.run(
        *(python, "-c", program),
        input=json.dumps(given),
        cwd="/",
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    found, unlabelled = labels(tool, done.stdout)
    assert [(one[1], one[3]) for one in found] == [(task.response_id, 0.5) for task in TASKS]
    assert {one[4] for one in found} == {LABELLERS[tool]}
    assert unlabelled == 0
