"""What a test needs of a judge: gates that it scores, and labels that it gives."""

from collections.abc import Iterable
from typing import Any

from streamer.gates.batch_key import BatchKey
from streamer.labels.filling import Attempted
from streamer.labels.judge import JudgeClient
from streamer.labels.judge.marks import AnsweredQuestion, severity_case
from streamer.labels.severity import LabelTask, Severity
from tests.integration.judge.test_judge_scores import SCORED_BY

BY_A_JUDGE: dict[str, Any] = {
    "scorer": "judge",
    "encoder": SCORED_BY,
    "embeddings": "refuse",
    "dimension": None,
}
"""Settings of a gate whose scores the judge of the tests makes."""


def attempts_of(judge: JudgeClient, gate: str, numbers: Iterable[int]) -> list[Attempted]:
    """What a judge makes of the second answers of these batches, to be kept with its labels."""
    tasks = [
        LabelTask(
            key=BatchKey(gate, f"batch-{n}", 1), response_id="r1", kind="judge", prompt="?", response="surely"
        )
        for n in numbers
    ]
    found = judge.grade([severity_case(AnsweredQuestion(one.prompt, one.response, ())) for one in tasks])
    return [
        Attempted(task=task, severity=Severity(one.severity or 0.0, one.severity), judgement=one)
        for task, one in zip(tasks, found, strict=True)
    ]
