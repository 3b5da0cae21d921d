"""What evaluation tools write: how each is told, where a file has its rows, and which columns are what. Pure.

To read another tool's files, declare one more `Format`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from streamer.clouds.tables.values import plain, value_at
from streamer.errors import UsageError

Row = Mapping[str, Any]
_ROWS_AHEAD = 50
_WRAPPERS = ("data", "results", "rows", "records", "examples", "items", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """What one tool writes; names are dotted, as `streamer.clouds.tables.values.value_at` reads them, with spaces between.

    Attributes
    ----------
    telling : columns of which some row has all, of any of these lists.
    columns : those of each role, of which the first that is there is read; empty: the role has none.
    within : where an object may hold the rows, as a list or as a list for each column.
    events : whether a row is an event of an answer, which `_joined` puts together.
    only : a column of which the rows with its first value are read, since the others say the same once more.
    verdicts : a column that lists others, of which the first that is true or false says whether an answer is correct.
    samples : a column that may have the graded answer among other samples; see `graded`.
    failed : where a row without an answer is not all: what it has, a column that is not empty or ``COLUMN=VALUE``.
    failure : the column that says why.
    placeholder : what stands in the place of an answer that failed.
    objects : whether an answer may be an object, which is read as JSON.
    ungraded : a column that is not empty where the grader failed, so that the verdict says nothing.
    """

    telling: tuple[str, ...]
    columns: Mapping[str, str]
    within: str = ""
    events: bool = False
    only: str = ""
    verdicts: str = ""
    samples: str = ""
    failed: str = ""
    failure: str = ""
    placeholder: str | None = None
    ungraded: str = ""
    objects: bool = False

    def tells(self, rows: Iterable[Row]) -> bool:
        """Whether these are its rows. A column counts where it is empty, too, as every one is in CSV."""
        return any(
            all(one in row or value_at(row, one) is not None for one in names.split())
            for row in rows
            for names in self.telling
        )

    def has_failed(self, row: Row, answer: Any) -> bool:
        """Whether a row has an error in place of an answer."""
        return answer is None or answer == self.placeholder or _has(row, self.failed)

    def is_ungraded(self, row: Row) -> bool:
        """Whether a row's verdict is none, since the grader failed."""
        return _has(row, self.ungraded)


def graded(answer: str, samples: Sequence[str]) -> int:
    """Return the place of the sample that was graded.

    `answer` : it, or what a filter took out of it: of the first sample that is it, else that has its
    words, else of the first.
    """
    words = re.compile(rf"(?<!\w){re.escape(answer.strip())}(?!\w)")
    return min(range(len(samples)), key=lambda i: (samples[i] != answer, not words.search(samples[i])))


def _has(row: Row, names: str) -> bool:
    for name, sign, wanted in (one.partition("=") for one in names.split()):
        value = value_at(row, name)
        if str(value) == wanted if sign else any(value) if isinstance(value, list) else value:
            return True
    return False


FORMATS: Mapping[str, Format] = {
    "lm-eval": Format(
        telling=("doc_id doc filtered_resps target",),
        columns={
            "prompt_id": "doc_id",
            "prompt": "doc.question doc.query doc.problem doc.input arguments.gen_args_0.arg_0",
            "answer": "filtered_resps.0",
            "references": "target",
            "correct": "exact_match acc em pass@1 f1",
        },
        verdicts="metrics",
        only="filter",
        samples="resps.0",
    ),
    "promptfoo": Format(
        telling=("prompt.raw response.output success", "prompt.raw failureReason success"),
        columns={"prompt": "prompt.raw", "answer": "response.output", "correct": "success", "score": ""},
        within="results.results results",
        failed="response.error failureReason=2",
        failure="error",
        objects=True,
        ungraded="gradingResult.metadata.graderError gradingResult.componentResults.metadata.graderError",
    ),
    "deepeval": Format(
        telling=tuple(f"input {one} success" for one in ("actual_output", "actualOutput", "metricsData")),
        columns={
            "prompt": "input",
            "answer": "actual_output actualOutput",
            "references": "expected_output expectedOutput",
            "correct": "success",
        },
        within="testCases testRunData.testCases test_results",
        ungraded="metricsData.error metrics_data.error",
    ),
    "uqlm": Format(
        telling=("response sampled_responses", "responses sampled_responses"),
        columns={
            "prompt": "prompt prompts",
            "answer": "response responses",
            "witnesses": "sampled_responses",
            "references": "answer ground_truth ideal",
            "correct": "response_correct correct is_correct",
        },
        within="data",
        placeholder="Unable to get response",
    ),
    "langfuse": Format(
        telling=tuple(f"input output {one}" for one in ("sessionId", "session_id", "traceId", "trace_id")),
        columns={
            "prompt": "input.messages.role=user.-1.content input.role=user.-1.content input.args.0 input.question input.query input",
            "answer": "output.choices.0.message.content output.-1.content output.content output.answer output",
            "answer_id": "id",
            "references": "expectedOutput expected_output",
            "severity": "severity.0 severity",
            "correct": "correct.0 correctness.0 correct correctness",
        },
        within="data",
        failed="level=ERROR",
        failure="statusMessage",
    ),
    "openai-evals": Format(
        telling=("spec.run_id", "run_id event_id sample_id type data", "sample_id sampling.sampled"),
        columns={
            "prompt_id": "sample_id",
            "prompt": "sampling.prompt.-1.content sampling.prompt",
            "answer": "sampling.sampled.0 sampling.sampled match.sampled",
            "references": "match.expected",
            "correct": "match.correct metrics.accuracy metrics.score",
        },
        events=True,
        failure="error.message",
    ),
    "openai-eval-runs": Format(
        telling=("datasource_item sample.output results",),
        columns={
            "prompt_id": "datasource_item_id",
            "prompt": "sample.input.role=user.-1.content",
            "answer": "sample.output.-1.content",
            "references": "",
            "correct": "status results.0.passed",
        },
        within="data",
        failed="sample.error",
        failure="sample.error.message",
        ungraded="status=error",
    ),
    "ragas": Format(
        telling=("user_input response",),
        columns={
            "prompt": "user_input",
            "answer": "response",
            "witnesses": "multi_responses",
            "references": "reference",
            "correct": "answer_correctness factual_correctness(mode=f1) factual_correctness nv_accuracy faithfulness",
        },
    ),
    "openai-batch": Format(
        telling=("custom_id response.body.choices", "custom_id response.status_code error"),
        columns={"prompt_id": "custom_id", "answer": "response.body.choices.message.content"},
        failed="error response.body.error",
        failure="error.message response.body.error.message",
    ),
    "squad": Format(
        telling=("id question answers.text", "id question answers.answer_start"),
        columns={"prompt_id": "id", "prompt": "question", "references": "answers.text"},
        within="data.paragraphs.qas",
    ),
}


NO_TOOL = Format(telling=(), columns={})


def format_named(name: str) -> Format:
    """Return what a tool writes. Raises `UsageError` for one that is not known."""
    if name not in FORMATS:
        raise UsageError(f"the formats of tools are {', '.join(FORMATS)}, not {name!r}")
    return FORMATS[name]


def rows_of(
    objects: Iterator[tuple[int, Row]], named: str | None = None, *, at_once: bool = True
) -> tuple[str, Iterator[tuple[int, Row]], bool]:
    """Return which tool wrote the objects of a file, in words, their rows with places, and whether
    these count rows; else they are those of the objects.

    `at_once` : the file is all there. A lone object may have the rows in a member, or by column.
    """
    ahead = list(islice(objects, 1 + at_once))
    if not ahead:
        return "", objects, False
    first, objects = ahead[0], chain(ahead, objects)
    for name, one in FORMATS.items() if named is None else [(named, format_named(named))]:
        for path in (*one.within.split(), ""):
            inside = list(islice(_within(first[1], path), _ROWS_AHEAD))
            if not inside or (not one.tells(inside) and (named is None or not path)):
                continue
            counted = bool(path or one.events)
            rows: Iterator[tuple[int, Row]] = objects
            if counted:
                found = (row for _, whole in objects for row in _within(whole, path))
                rows = enumerate(_joined(found) if one.events else found, start=1)
            if one.only and (value := inside[0].get(one.only)) is not None:
                only = one.only
                return (
                    f" of {name} ({only} {value})",
                    (row for row in rows if row[1].get(only) == value),
                    counted,
                )
            return f" of {name}", rows, counted
    if at_once and len(ahead) == 1:
        lone = {**first[1], "": first[1]}
        those = next(filter(None, (list(_within(lone, path)) for path in _WRAPPERS)))
        if those != [first[1]]:
            return "", enumerate(those, start=1), True
    return "", objects, False


def _within(whole: Row, path: str) -> Iterator[Row]:
    """The rows that an object holds at a path; itself where that is empty."""
    value = plain(value_at(whole, path)) if path in whole or path else whole
    if value is not whole and isinstance(value, Mapping):
        lists = {name: one for name, one in value.items() if isinstance(one, list)} or {
            name: [*one.values()]
            for name, one in value.items()
            if isinstance(one, Mapping) and one and all(map(str.isdecimal, one))
        }  # the latter is what pandas writes
        if lists and len(lists) == len(value) and len(set(map(len, lists.values()))) == 1:
            value = [dict(zip(lists, cells, strict=True)) for cells in zip(*lists.values(), strict=True)]
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            yield value
        elif isinstance(value, list):
            waiting.extend(reversed(value))


def _joined(rows: Iterable[Row]) -> Iterator[Row]:
    """Make a row of the events of one run about one sample: of each kind what the first one says."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        if "type" in row and "data" in row:
            shared = {one: row.get(one) for one in ("run_id", "sample_id")}
            found.setdefault(tuple(shared.values()), shared).setdefault(str(row["type"]), row["data"])
    yield from found.values()
