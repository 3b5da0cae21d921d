"""Numbers of the user's own in tables and files of response clouds: found, kept within their range, and sent."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import streamer
from streamer.cli.publish import publications
from streamer.clouds.cloud_files import read_clouds, read_rows
from streamer.clouds.tables.answers import Reading
from streamer.clouds.tables.columns import parse_mapping
from streamer.errors import UsageError
from streamer.events.limits import DEFAULT_LIMITS
from streamer.events.responses import decode_responses, numbers_given
from tests.made import an_event

RANGES = {"retrieval": (0.0, 1.0), "cost": (-5.0, 5.0)}
WANTED = [{"retrieval": 0.5, "cost": -2.0}, {"cost": 0.0}]

LONG = "prompt,answer,Retrieval,cost\n?,yes,0.5,-2\n?,no,,0\n"
NUMBERED = "prompt,answer_1,answer_2,retrieval_1,retrieval_2,cost 1,cost 2\n?,yes,no,.5,n/a,-2,0\n"
LISTS: dict[str, Any] = {"prompt": "?", "answers": ["yes", "no"], "retrieval": [0.5, None], "costs": [-2, 0]}
NESTED: list[dict[str, Any]] = [
    {"prompt": "?", "answer": "yes", "features": {"fit": 0.5}, "cost": -2},
    {"prompt": "?", "answer": "no", "features": {"fit": None}, "cost": 0},
]
CLOUD: dict[str, Any] = {
    "question_id": "q",
    "question": "?",
    "responses": [
        {"text": "yes", "signals": {"retrieval": 0.5, "cost": -2}},
        {"text": "no", "signals": {"retrieval": None, "cost": 0}},
    ],
}


def lines(*rows: Mapping[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


FORMS = {
    "one answer a row": ("a.csv", LONG, ()),
    "numbered columns": ("a.csv", NUMBERED, ()),
    "lists": ("a.jsonl", lines(LISTS), ()),
    "nested": ("a.jsonl", lines(*NESTED), ("retrieval=features.fit",)),
    "response clouds": ("a.jsonl", lines(CLOUD), ()),
}


def written(folder: Path, form: str) -> tuple[Path, Reading]:
    name, text, columns = FORMS[form]
    path = folder / name
    path.write_text(text, "utf-8")
    return path, Reading(columns=parse_mapping(columns, RANGES), signals=RANGES)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_them(tmp_path: Path, form: str) -> None:
    path, reading = written(tmp_path, form)
    (cloud,) = read_clouds(path, reading)
    assert [one.signals for one in cloud.responses] == WANTED
    (again,) = read_clouds(path, reading, hold=False)
    assert again == cloud
    ((_, _, row),) = read_rows(path, reading)
    labelled = tmp_path / "labelled.jsonl"
    labelled.write_text(lines(row), "utf-8")
    assert numbers_given(next(read_clouds(labelled, Reading(signals=RANGES))).responses) == numbers_given(
        cloud.responses
    )
    (sent,) = publications(
        str(path), gate="bot", labels=False, labeller=None, limits=DEFAULT_LIMITS, reading=reading
    )
    assert [one.signals for one in decode_responses(sent.value).responses] == WANTED


def test_what_is_not_declared_is_no_signal(tmp_path: Path) -> None:
    path, _ = written(tmp_path, "one answer a row")
    (cloud,) = read_clouds(path)
    assert [one.signals for one in cloud.responses] == [{}, {}]


def test_a_declared_column_is_no_role_besides(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("prompt,answer,confidence\n?,yes,7\n?,no,8\n", "utf-8")
    (cloud,) = read_clouds(path, Reading(signals={"confidence": (0.0, 10.0)}))
    wanted = [(None, {"confidence": 7.0}), (None, {"confidence": 8.0})]
    assert [(one.score, one.signals) for one in cloud.responses] == wanted


def test_a_signal_that_no_answer_has_may_be_said_to_have_no_column(tmp_path: Path) -> None:
    path, _ = written(tmp_path, "one answer a row")
    with pytest.raises(UsageError, match=r"no column for the signal fit .*--column fit=NAME"):
        list(read_clouds(path, Reading(signals={"fit": (0, 1)})))
    none = Reading(columns=parse_mapping(["fit="], ["fit"]), signals={"fit": (0, 1)})
    assert [one.signals for cloud in read_clouds(path, none) for one in cloud.responses] == [{}, {}]


@pytest.mark.parametrize("form", FORMS)
def test_what_lies_outside_its_range_is_refused_where_it_stands(tmp_path: Path, form: str) -> None:
    path, reading = written(tmp_path, form)
    narrow = Reading(columns=reading.columns, signals={**RANGES, "cost": (-1.0, 1.0)})
    with pytest.raises(UsageError, match=r"(line 1|line 2).*-2.*from -1 to 1"):
        list(read_clouds(path, narrow))


@pytest.mark.parametrize("cell", ["high", "true", "1e999", "0,5"])
def test_what_is_no_number_is_refused(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f'prompt,answer,retrieval,cost\n?,yes,"{cell}",0\n?,no,0,0\n', "utf-8")
    with pytest.raises(UsageError, match=r"line 2, column retrieval: .* is not a number from 0 to 1"):
        list(read_clouds(path, Reading(signals=RANGES)))


def test_rows_of_one_answer_have_one_number(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "prompt,answer_id,answer,retrieval,severity\n?,a,yes,0.5,0\n?,a,yes,0.6,1\n?,b,no,0,0\n", "utf-8"
    )
    with pytest.raises(UsageError, match=r"another retrieval than at line 2 .*--column retrieval="):
        list(read_clouds(path, Reading(signals={"retrieval": (0, 1)})))


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
@pytest.mark.parametrize("hold", [True, False])
def test_a_signal_that_is_the_mark_is_refused_unless_it_is_trusted(
    tmp_path: Path, name: str, hold: bool
) -> None:
    marks = [float(i % 3 == 0) for i in range(60)]
    path = tmp_path / name
    if name == "a.csv":
        rows = [f"q{i // 2},{i},{1 - mark:g},{i % 7},{mark:g}\n" for i, mark in enumerate(marks)]
        path.write_text("prompt,answer,checked,retrieval,severity\n" + "".join(rows), "utf-8")
    else:
        answers = [
            {"text": str(i), "label": mark, "signals": {"checked": 1 - mark, "retrieval": i % 7}}
            for i, mark in enumerate(marks)
        ]
        path.write_text(
            lines(
                *(
                    {"question_id": i, "question": "?", "responses": answers[i : i + 2]}
                    for i in range(0, 60, 2)
                )
            ),
            "utf-8",
        )
    ranges = {"retrieval": (0.0, 6.0), "checked": (0.0, 1.0)}
    with pytest.raises(
        UsageError, match=r"checked: it separates .*--column checked=; if it is not: --trust-score"
    ):
        list(read_clouds(path, Reading(signals=ranges), hold=hold))
    assert len(list(read_clouds(path, Reading(signals=ranges, trust_score=True), hold=hold))) == 30
    assert len(list(read_clouds(path, Reading(signals={"retrieval": (0.0, 6.0)}), hold=hold))) == 30


def test_names_of_roles_are_taken() -> None:
    with pytest.raises(UsageError, match="cannot be called severity"):
        Reading(signals={"severity": (0.0, 1.0)})


def test_events_name_their_own(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(json.dumps(an_event("bot", "b")) + "\n", "utf-8")
    asked: Any = {"gate": None, "labels": False, "labeller": None, "limits": DEFAULT_LIMITS}
    with pytest.raises(UsageError, match="--signal is for"):
        next(publications(str(path), reading=Reading(signals=RANGES), **asked))


def test_a_gate_reads_them_in_tables_of_python() -> None:
    table = {
        "prompt_id": ["a", "a", "b", "b"], "score": [0.9, 0.8, 0.2, 0.1], "severity": [0, 0, 1, 1], "fit": [0.5, 1, 0, 2],
    }  # fmt: skip
    gate = streamer.Gate(alpha=0.5, signals={"retrieval": (0, 2)}, columns={"retrieval": "fit"})
    assert "retrieval from fit" in gate.fit(table).recognised_
    assert streamer.Gate(**gate.get_params()).signals == {"retrieval": (0, 2)}
    for signals, said in (
        ({"fit": (0, 1)}, "row 3, column fit: '2' is not"),
        ({"fit": 1}, "range of"),
        (["fit"], "a dict"),
    ):
        with pytest.raises(UsageError, match=said):
            streamer.Gate(alpha=0.5, signals=signals).fit(table)  # type: ignore[arg-type]
