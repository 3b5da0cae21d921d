"""Tables of answers as people have them: every form gives the same clouds, and each mistake its own message."""

import csv
import gzip
import io
import json
import random
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from streamer.cli.publish import publications
from streamer.clouds.cloud import Cloud, cloud_to_event
from streamer.clouds.cloud_files import read_clouds
from streamer.clouds.tables.answers import Reading
from streamer.clouds.tables.columns import parse_mapping
from streamer.errors import UsageError
from streamer.events.labels import decode_label
from streamer.events.limits import Limits
from streamer.events.responses import decode_responses, encode_responses
from streamer.labels.label_files import open_labels
from tests.unit.labelling.test_label_files import NOW

ROWS = [
    {"question": f"Who wrote book {prompt}?", "output": text, "is_correct": text != "Nobody", "ms": 10 * prompt + place}
    for prompt in range(5)
    for place, text in enumerate((f"Author {prompt}", "Nobody", f"It is Author {prompt}, I think."))
]  # fmt: skip
EXPECTED = [
    (
        f"Who wrote book {prompt}?",
        (f"Author {prompt}", "Nobody", f"It is Author {prompt}, I think."),
        (0.0, 1.0, 0.0),
    )
    for prompt in range(5)
]


def long_frame() -> pd.DataFrame:
    return pd.DataFrame(ROWS)


def lists_frame() -> pd.DataFrame:
    grouped = long_frame().groupby("question", sort=False)[["output", "is_correct"]].agg(list)
    return grouped.reset_index().rename(columns={"output": "outputs", "is_correct": "correct"})


def wide_frame() -> pd.DataFrame:
    lists = lists_frame()
    columns = {
        f"{name} {letter}": [row[i] for row in lists[source]]
        for name, source in (("Answer", "outputs"), ("Correct", "correct"))
        for i, letter in enumerate("ABC")
    }
    return pd.DataFrame({"ID": [f"b{i}" for i in range(5)], "question": lists["question"], **columns})


def said(clouds: list[Cloud]) -> list[tuple[Any, ...]]:
    return [(cloud.question, cloud.texts, cloud.severities) for cloud in clouds]


WRITERS: dict[str, Any] = {
    "index.csv": lambda path: long_frame().to_csv(path),
    "excel.csv": lambda path: long_frame().to_csv(
        path, sep=";", index=False, encoding="utf-8-sig", lineterminator="\r\n"
    ),
    "tabs.tsv": lambda path: long_frame().to_csv(path, sep="\t", index=False),
    "sep.csv": lambda path: path.write_text("sep=;\n" + long_frame().to_csv(sep=";", index=False)),
    "packed.csv.gz": lambda path: long_frame().to_csv(path, index=False, compression="gzip"),
    "rows.jsonl": lambda path: long_frame().to_json(path, orient="records", lines=True),
    "rows.parquet": lambda path: long_frame().to_parquet(path),
    "lists.csv": lambda path: lists_frame().to_csv(path, index=False),
    "lists.jsonl": lambda path: lists_frame().to_json(path, orient="records", lines=True),
    "lists.parquet": lambda path: lists_frame().to_parquet(path),
    "wide.csv": lambda path: wide_frame().to_csv(path, index=False),
    "wide.parquet": lambda path: wide_frame().to_parquet(path),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("hold", [True, False])
def test_every_form_of_the_same_answers_reads_alike(name: str, hold: bool, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    told: list[str] = []
    assert said(list(read_clouds(path, report=told.append, hold=hold))) == EXPECTED
    (line,) = told
    assert line.startswith(f"{path}: ")
    assert "prompt from question" in line


def test_rows_of_a_prompt_may_be_anywhere_in_a_file_but_not_in_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shuffled.csv"
    long_frame().sample(frac=1, random_state=2).to_csv(path, index=False)
    for hold in (True, False):
        found = sorted((cloud.question, sorted(cloud.texts)) for cloud in read_clouds(path, hold=hold))
        assert found == [(question, sorted(texts)) for question, texts, _ in EXPECTED]
    stdin = SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(path.read_bytes())))
    monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(
        UsageError, match=r"began before .*sort the rows by it|rows of a prompt come together"
    ):
        list(read_clouds("-", hold=False))


def test_columns_that_are_named_win_and_an_empty_name_means_none(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "conversation,group,text,alt,score,bad\n1,x,a,A,0.5,0\n1,x,b,B,0.25,yes\n2,x,c,C,1,fine\n2,x,d,D,0,\n"
    )
    mapping = parse_mapping(["prompt_id=conversation", "answer=alt", "severity=bad", "score="])
    clouds = list(read_clouds(path, Reading(columns=mapping)))
    wanted = [("1", ("A", "B"), (0.0, 1.0), None), ("2", ("C", "D"), (0.0, None), None)]
    assert [(c.question_id, c.texts, c.severities, c.own_scores) for c in clouds] == wanted
    scored = list(
        read_clouds(path, Reading(columns=parse_mapping(["prompt_id=conversation", "severity=bad"])))
    )
    assert [c.own_scores for c in scored] == [(0.5, 0.25), (1.0, 0.0)]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("anwser=text", "did you mean answer"),
        ("answer", "must be ROLE=NAME"),
        ("nothing=x", "the roles are prompt_id, prompt, answer"),
    ],
)
def test_a_mapping_that_is_none(given: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_mapping([given])


LONG = "prompt,answer,severity\n"
MISTAKES: list[tuple[str, bytes, str]] = [
    ("empty.csv", b"", r"empty\.csv is empty"),
    ("blank.csv", b"\n \n", r"blank\.csv is empty"),
    ("header.csv", LONG.encode(), "names columns, and no rows"),
    ("cut.jsonl", b'{"prompt": "a", "answer": "b", "sev', "line 1: not JSON: cut off in the middle"),
    ("cut-later.jsonl", b'{"prompt": "a", "answer": "b"}\n{"prompt": "a", "ans', "line 2: not JSON: cut off"),
    ("csv.jsonl", LONG.encode() + b"a,b,1\n", r"looks like CSV \('prompt,answer,severity'\): name it .csv"),
    ("words.jsonl", b"hello\n", "line 1 is not JSON"),
    ("random.jsonl", b"2\xfe|\x1a\x02,;\x00\xff", "holds no text: is it compressed"),
    ("json.csv", b'{"prompt": "a"}\n', "named like CSV, but its first line is JSON"),
    ("array.json", b'[{"prompt": "a"}, 2]', "entry 2: not a JSON object"),
    ("pretty.json", b'{\n "prompt": "a"\n}\n{\n}\n', "write one JSON array of objects, or one object a line: jq -c"),
    ("keys.jsonl", b'{"q": "a", "a": "b"}\n', "has the columns q, a; none is recognised as the answers"),
    ("noprompt.csv", b"answer,severity\na,1\n", "none is recognised as the prompt"),
    ("latin.csv", LONG.encode() + "a,é,1\n".encode("latin-1"), "line 2: not UTF-8 .*'é' in Windows-1252"),
    ("utf16.csv", LONG.encode("utf-16"), "UTF-16; save it as UTF-8"),
    ("nul.csv", LONG.encode() + b"a,b\0,1\n", "line 2: it holds a NUL"),
    ("book.csv", b"PK\x03\x04xxxx", "Excel workbook"),
    ("page.csv", b"<!doctype html>", "HTML or XML"),
    ("bad.parquet", b"PAR1 and then nothing", "damaged Parquet file"),
    ("not.parquet", b"prompt,answer\n", "no Parquet file"),
    ("cells.csv", LONG.encode() + b"a,b,1\na,b, c,1\n", "line 3: the row has 4 cells but the first line names 3"),
    ("mac.csv", b"prompt,answer\ra,b\ra,c\r", "carriage returns alone"),
    ("after.csv", b"sep=,\nprompt,answer,severity\na,b,1\na,b, c,1\n", "line 4: the row has 4 cells"),
    ("quote.csv", LONG.encode() + b'a,"b,1\n', "line 2: not CSV .*quotes"),
    ("twice.csv", b"prompt,answer,answer\na,b,c\n", "two columns 'answer'"),
    ("both.csv", b"prompt,answer,severity,correct\na,b,1,1\n", "choose one: --column correct="),
    ("stars.csv", LONG.encode() + b"a,b,4\na,c,5\n", r"severity: '4' is not a number from 0 to 1 .*the worst mark first: --scale 1:5"),
    ("words.csv", b"prompt,answer,correct\na,b,richtig\na,c,falsch\n", "'richtig' is not a number .*, nor a word like yes, no, correct"),
    ("comma.csv", LONG.encode() + b'a,b,"0,5"\na,c,1\n', "write it with a point"),
    ("truth.csv", b"prompt,answer,label\na,b,True\na,c,False\n", "'True' may mean right or wrong"),
    ("bits.csv", b"prompt,answer_1,answer_2,label_1,label_2\na,b,c,0.5,1\n", "--column correct=label_1 --column correct=label_2 if 1 means r"),
    ("nested.jsonl", b'{"prompt": "a", "responses": [{"text": "b", "label": 1}, {"text": "c"}]}\n', "'1' may mean right or wrong"),
    ("single.csv", LONG.encode() + b"a,b,1\nc,d,0\n", r"one answer only to each prompt \(2 in all\)"),
    ("noname.csv", LONG.encode() + b",b,1\n", "line 2, column prompt: empty"),
    (
        "talk.csv",
        b"prompt_id,prompt,answer\n1,a,b\n1,c,d\n",
        "line 3, column prompt: another prompt than at line 2 .*--column prompt_id=",
    ),
    (
        "ids.csv",
        b"prompt,answer_id,answer\na,1,b\na,1,c\n",
        "line 3, column answer: another text than at line 2 under the same prompt and the same answer_id '1'",
    ),
    ("partly.csv", b"prompt,answer,score\na,b,0.5\na,c,\n", "line 3, column score: missing"),
    ("score.csv", b"prompt,answer,score\na,b,50\na,c,60\n", "column score: '50' is not a number from 0 to 1"),
    ("text.jsonl", b'{"prompt": "a", "answer": "b", "embedding": "c"}\n' * 2, "a text .* where the numbers of an embedding"),
    (
        "dimensions.jsonl",
        b'{"prompt": "a", "answer": "b", "embedding": [1, 2]}\n{"prompt": "a", "answer": "c", "embedding": [1]}\n',
        "different dimensions",
    ),
    ("lists.jsonl", b'{"prompt": "a", "answers": ["b", "c"], "severities": [1]}\n', "lists have different lengths"),
    ("wide.csv", b"prompt,answer_1,answer_2,severity_1\na,b,c,1\n", "each answer needs a column of its own"),
    ("events.jsonl", b'{"schema": "streamer.responses.v1"}\n', "holds events"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "says"), MISTAKES, ids=[name for name, _, _ in MISTAKES])
def test_each_mistake_has_its_own_message(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError, match=says):
        list(read_clouds(path))


def test_no_two_mistakes_share_a_message(tmp_path: Path) -> None:
    messages = []
    for name, content, _ in MISTAKES:
        path = tmp_path / "file" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        with pytest.raises(UsageError) as caught:
            list(read_clouds(path))
        messages.append(str(caught.value).replace(name, "").split(": ", 1)[-1])
    assert (
        len(set(messages)) == len(MISTAKES) - 3
    )  # both empty files, both that are cut off, both rows of four cells


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    long_frame().to_parquet(path)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'conformal-streamer\[parquet\]'"):
        list(read_clouds(path))


def test_a_plural_beside_numbered_columns_is_none_of_them(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    path.write_text("Question,Answer1,answer.2,answers,labels\nWho?,a,b,2,none\n")
    (cloud,) = read_clouds(path)
    assert (cloud.texts, cloud.severities) == (("a", "b"), (None, None))


def test_decimal_commas_where_commas_do_not_separate(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("prompt;answer;severity\na;b;0,5\na;c;1\n")
    (cloud,) = read_clouds(path)
    assert cloud.severities == (0.5, 1.0)


def test_the_models_of_answers_are_read_where_somebody_names_their_column(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("prompt,answer,model\na,b,small\na,c,\n")
    (cloud,) = read_clouds(path)
    assert cloud.models == ()
    (cloud,) = read_clouds(path, Reading(columns={"model": ("model",)}))
    assert cloud.models == ("small", "")
    published = decode_responses(encode_responses(cloud_to_event(cloud, "g")))
    assert [one.model for one in published.responses] == ["small", None]
    (tmp_path / "w.jsonl").write_text('{"prompt": "a", "answers": ["b", "c"], "by": ["small", 7]}\n')
    (cloud,) = read_clouds(tmp_path / "w.jsonl", Reading(columns={"model": ("by",)}))
    assert cloud.models == ("small", "7")


def test_a_table_is_published_with_labels_scores_and_embeddings(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    rows = [
        {"request_id": 7, "prompt": "Who?", "response_id": name, "response": name.upper(), "severity": severity,
         "kind": "human", "score": 0.5, "embedding": [1.0, 2.0]}
        for name, severity in (("a", 0), ("b", None))
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options: dict[str, Any] = {"gate": "g", "labels": True, "labeller": None, "limits": Limits()}
    (one,) = publications(str(path), **options)
    event = decode_responses(one.value)
    assert (event.batch_id, event.prompt, event.embedding_encoder) == ("7", "Who?", None)
    wanted = [("a", "A", 0.5, None), ("b", "B", 0.5, None)]
    assert [(r.id, r.text, r.score, r.embedding) for r in event.responses] == wanted
    (label,) = map(decode_label, one.labels)
    assert (label.batch_id, label.response_id, label.severity, label.kind) == ("7", "a", 0.0, "human")
    (one,) = publications(str(path), **options, embeddings_of="external:mine")
    event = decode_responses(one.value)
    assert event.embedding_encoder == "external:mine"
    assert event.responses[0].embedding == (1.0, 2.0)
    (tmp_path / "s.csv").write_text("prompt,score\na,0.5\na,0.25\n")
    with pytest.raises(UsageError, match="none is recognised as the answers' texts"):
        list(publications(str(tmp_path / "s.csv"), **options))


def test_memory_does_not_grow_with_a_table_that_is_published(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    filler = "x" * 1000
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("prompt_id", "prompt", "answer"))
        for prompt in range(2_000):
            for answer in range(5):
                writer.writerow((prompt, f"Question {prompt}", f"{answer} {filler}"))
    options: dict[str, Any] = {"gate": "g", "labels": False, "labeller": None, "limits": Limits()}
    tracemalloc.start()
    try:
        count = sum(1 for _ in publications(str(path), **options))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 2_000
    assert peak < path.stat().st_size / 4


@pytest.mark.parametrize("name", ["labels.parquet", "labels.csv", "labels.jsonl"])
def test_labels_come_from_tables_with_columns_of_other_names(name: str, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"request": [7, 8, 9], "answer": ["a", "b", "c"], "verdict": [0.5, None, 1.0], "severity": ["no", "no", "no"]}
    )  # fmt: skip
    path = tmp_path / name
    if name.endswith("csv"):
        frame.to_csv(path, index=False)
    elif name.endswith("jsonl"):
        frame.assign(request=frame.request.astype(str)).to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    columns = {"batch_id": "request", "response_id": "answer", "severity": "verdict"}
    with open_labels(path, now=NOW, gate="g", kind="human", labeller="ann", columns=columns) as reader:
        found = [(label.key.batch_id, label.response_id, label.severity) for label in reader]
    assert found == [("7", "a", 0.5), ("9", "c", 1.0)]
    assert reader.unlabelled == 1


@pytest.mark.parametrize("seed", range(3))
def test_any_bytes_give_clouds_or_a_message(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    path = tmp_path / "f.csv"
    WRITERS["excel.csv"](path)
    whole = path.read_bytes()
    for _ in range(100):
        broken = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        path.write_bytes(gzip.compress(bytes(broken)) if rng.random() < 0.2 else bytes(broken))
        try:
            list(read_clouds(path))
        except UsageError as error:
            assert str(path) in str(error)  # noqa: PT017 - most are read


def test_an_answer_without_a_number_is_the_first(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("prompt,answer,answer2,answer3\n2 + 2?,4,5,6\n")
    (cloud,) = read_clouds(path)
    assert cloud.texts == ("4", "5", "6")
    path.write_text("prompt,answer,text_1,text_2\n" + 2 * "2 + 2?,4,5,6\n")
    assert [one.texts for one in read_clouds(path)] == [("4", "4")], "a row is an answer"
