"""Reading labels from CSV and JSON Lines, and writing the queue that people fill in."""

import csv
import gzip
import io
import json
import tracemalloc
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.errors import UsageError
from streamer.events.labels import SCHEMA, decode_label, label_revision
from streamer.gates.batch_key import BatchKey
from streamer.journal import LabelRevision
from streamer.labels.label_files import LabelFileError, LabelReader, format_of, open_labels, write_queue
from streamer.labels.severity import LabelTask

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HEADER = "gate,batch_id,response_id,severity,kind,labeller"


def read(text: str, file_format: Any = "csv", **given: Any) -> list[LabelRevision]:
    return read_whole(text, file_format, **given)[0]


def read_whole(text: str, file_format: Any = "csv", **given: Any) -> tuple[list[LabelRevision], LabelReader]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"labels.{file_format}"
        path.write_bytes(text.encode())
        with open_labels(path, now=NOW, **given) as reader:
            return list(reader), reader


def refused(text: str, file_format: Any = "csv", **given: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read(text, file_format, **given)
    return caught.value


def revision(**changes: Any) -> LabelRevision:
    fields: dict[str, Any] = {
        "key": BatchKey("bot", "b1", 1),
        "response_id": "a",
        "severity": 0.5,
        "raw_severity": None,
        "kind": "human",
        "labeller": "ann",
        "labelled_at": NOW,
    }
    return LabelRevision(**{**fields, **changes})


@pytest.mark.parametrize(
    ("text", "given_arguments"),
    [
        (f"{HEADER}\nbot,b1,a,0.5,human,ann\n", {}),
        (f"{HEADER}\r\nbot,b1,a,.5,human,ann\r\n\r\n", {}),
        ("\n".join([HEADER.replace(",", ";"), "bot;b1;a;5e-1;human;ann"]), {}),
        ("\n".join([HEADER.replace(",", "\t"), "bot\tb1\ta\t0.5\thuman\tann"]), {}),
        (
            "Severity , response_id,batch_id,extra\n 0.5 ,a,b1,\n",
            {"gate": "bot", "kind": "human", "labeller": "ann"},
        ),
        (f"{HEADER},attempt,labelled_at\nbot,b1,a,0.5,human,ann,1,2026-11-20T13:00:00+01:00\n", {}),
        (f"{HEADER}\nbot,b1,a,0.5,human,ann\n", {"gate": "bot", "labeller": "ann"}),
        (f"{HEADER},schema\nbot,b1,a,0.5,,ann,streamer.labels.v1\n", {"kind": "human"}),
    ],
)
def test_a_csv_file_is_read(text: str, given_arguments: dict[str, str]) -> None:
    assert read(text, **given_arguments) == [revision()]


def test_a_jsonl_file_is_read() -> None:
    rows = [
        dict(zip(HEADER.split(","), ("bot", "b1", "a", 0.5, "human", "ann"), strict=True)),
        {
            "batch_id": "b1",
            "response_id": "b",
            "severity": 1,
            "attempt": 2,
            "x": [1],
            "labelled_at": "2026-01-01T00:00:00Z",
            "schema": "streamer.labels.v1",
        },
        {"batch_id": "b1", "response_id": "c", "severity": None},
    ]
    text = "\n\n".join(json.dumps(row) for row in rows)
    found, reader = read_whole(text, "jsonl", gate="bot", kind="human", labeller="ann")
    assert found == [
        revision(),
        revision(
            key=BatchKey("bot", "b1", 2),
            response_id="b",
            severity=1.0,
            labelled_at=datetime(2026, 1, 1, tzinfo=UTC),
        ),
    ]
    assert (reader.labels, reader.unlabelled) == (2, 1)


@pytest.mark.parametrize(("given", "severity"), [("", 1.0), ("0.25", 0.25)])
def test_fields_have_severities_and_the_answer_the_largest_unless_it_says_another(
    given: str, severity: float
) -> None:
    fields = (("/to", 0.5), ("/total", 1.0))
    rows = ["severities," + HEADER, '"{""/total"": 1, ""/to"": 0.5}",' + f"bot,b1,a,{given},human,ann"]
    ours = {"gate": "bot", "batch_id": "b1", "response_id": "a", "kind": "human", "labeller": "ann"}
    line = json.dumps({**ours, "severities": dict(fields), "severity": float(given) if given else None})
    if not given:
        alone = [rows[0].replace("severity,", ""), rows[1].replace("a,,", "a,")]
        assert read("\n".join(alone)) == read("\n".join(rows))
    assert read("\n".join(rows)) == read(line, "jsonl") == [revision(severity=severity, severities=fields)]
    event = decode_label(
        json.dumps({**json.loads(line), "schema": SCHEMA, "labelled_at": NOW.isoformat()}).encode()
    )
    assert label_revision(event).severities == fields
    for wrong in ('{"total": 1}', '{"/total": 2}', "[1]", '{"/total": null}', "{"):
        with pytest.raises(LabelFileError, match=r'column severities: .*a JSON object like {"/total": 1}'):
            read("\n".join((rows[0], f'"{wrong.replace(chr(34), chr(34) * 2)}",bot,b1,a,1,human,ann')))


@pytest.mark.parametrize(
    ("row", "column", "hint"),
    [
        ("bot,b1,a,1.5,human,ann", "severity", "0 fine, 1 worst"),
        ("bot,b1,a,-0.5,human,ann", "severity", "from 0"),
        ("bot,b1,a,1e999,human,ann", "severity", "from 0"),
        ("bot,b1,a,hm,human,ann", "severity", "'hm' is not a number .*--map WORD=SEVERITY"),
        ('bot,b1,a,"0,5",human,ann', "severity", "with a point"),
        ("Bot!,b1,a,1,human,ann", "gate", "a-z"),
        ("bot,,a,1,human,ann", "batch_id", "missing; add it to the file$"),
        ("bot,b1,,1,human,ann", "response_id", "missing"),
        ("bot,b1,a,1,,ann", "kind", "or give --kind"),
        ("bot,b1,a,1,human,", "labeller", "or give --labeller"),
        (f"bot,{'b' * 201},a,1,human,ann", "batch_id", "201 characters"),
        ('bot,"b\n1",a,1,human,ann', "batch_id", "control character"),
        ("bot,b1,a,1,human", None, "5 cells .* 6 columns"),
        ("bot,b1,a,1,human,ann,more", None, "7 cells"),
        ('bot,b1,"a"x,1,human,ann', None, "quotes"),
        ('bot,b1,"a,1,human,ann', None, "quotes"),
    ],
)
def test_a_bad_row_is_named_by_line_and_column(row: str, column: str | None, hint: str) -> None:
    error = refused(f'{HEADER}\nbot,b1,"two\tcells",0,human,ann\n'.replace("\t", " ") + f"\n{row}\n")
    assert (error.line, error.column) == (4, column)
    with pytest.raises(UsageError, match=f"labels.csv, line 4.*{hint}"):
        raise error


@pytest.mark.parametrize(
    ("extra", "cell", "column", "hint"),
    [
        ("attempt", "0", "attempt", "whole number from 1"),
        ("attempt", "1.0", "attempt", "whole number from 1"),
        ("attempt", "1_0", "attempt", "whole number from 1"),
        ("attempt", "+1", "attempt", "whole number from 1"),
        ("attempt", "9999999999", "attempt", "whole number from 1"),
        ("labelled_at", "2026-11-20", "labelled_at", "time with zone"),
        ("labelled_at", "2026-11-20T12:00:00", "labelled_at", "2026-11-20T12:00:00Z"),
        ("schema", "streamer.labels.v2", "schema", "streamer.labels.v1"),
    ],
)
def test_a_bad_optional_cell(extra: str, cell: str, column: str, hint: str) -> None:
    error = refused(f"{HEADER},{extra}\nbot,b1,a,1,human,ann,{cell}\n")
    assert (error.line, error.column) == (2, column)
    assert hint in str(error)


def test_a_row_that_contradicts_the_command() -> None:
    error = refused(f"{HEADER}\nbot,b1,a,1,human,ann\n", gate="other")
    assert error.column == "gate"
    assert "leave out --gate" in str(error)


@pytest.mark.parametrize(
    ("text", "column", "hint"),
    [("gate,batch_id\n", "response_id", "missing"), (f"{HEADER},gate\n", "gate", "twice")],
)
def test_a_bad_first_line(text: str, column: str | None, hint: str) -> None:
    error = refused(text)
    assert (error.line, error.column) == (1, column)
    assert hint in str(error)


@pytest.mark.parametrize(
    ("row", "column", "hint"),
    [
        ("{", None, "not JSON"),
        ('{"severity": "hm"}', "severity", "not a number from 0"),
        ('{"severity": [1]}', "severity", "a list where one mark should be"),
        ('{"severity": 2}', "severity", "not a number from 0"),
        ('{"severity": NaN}', None, "JSON has no such number"),
        ('{"severity": 1, "severity": 0}', None, "more than once"),
        ('{"severity": 1, "x": ' + "[" * 5000 + "]" * 5000 + "}", None, "not JSON|deep"),
        ('{"severity": 1, "response_id": [7]}', "response_id", "a list where a text should be"),
        ('{"severity": 1, "response_id": "\\u0000"}', "response_id", "control character"),
        ('{"severity": 1, "attempt": "x"}', "attempt", "whole number"),
        ('{"severity": 1, "labelled_at": 5}', "labelled_at", "time with zone"),
        ('{"severity": 1, "gate": "x"}', "gate", "leave out --gate"),
    ],
)
def test_a_bad_jsonl_row(row: str, column: str | None, hint: str) -> None:
    complete = '{"batch_id": "b1", "response_id": "a", ' + row[1:] if row.startswith('{"') else row
    complete = complete.replace(
        '"response_id": "a", "severity": 1, "response_id"', '"severity": 1, "response_id"'
    )
    error = refused("\n" + complete, "jsonl", gate="bot", kind="human", labeller="ann")
    assert (error.line, error.column) == (2, column)
    with pytest.raises(UsageError, match=hint):
        raise error


@pytest.mark.parametrize("name", ["l.csv", "l.CSV", "l.tsv", "l.csv.gz"])
def test_files_are_opened_by_their_name(tmp_path: Path, name: str) -> None:
    content = b"\xef\xbb\xbf" + f"{HEADER}\r\nbot,b1,a,0.5,human,ann\r\n".encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with open_labels(path, now=NOW) as reader:
        assert list(reader) == [revision()]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rename"):
        format_of(tmp_path / "labels.xlsx")
    with pytest.raises(UsageError, match="cannot read"), open_labels(tmp_path / "none.csv", now=NOW):
        pass
    latin = tmp_path / "latin.csv"
    latin.write_bytes(f"{HEADER}\nbot,b1,\xe9,0.5,human,ann\n".encode("latin-1"))
    with pytest.raises(UsageError, match="save it as UTF-8"), open_labels(latin, now=NOW) as reader:
        list(reader)
    for name, content in [
        ("cut.jsonl.gz", gzip.compress(b"{}\n" * 9999)[:-20]),
        ("not.jsonl.gz", b"\x1f\x8b{}"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError), open_labels(tmp_path / name, now=NOW) as reader:
            list(reader)


def test_an_endless_line_is_refused_before_it_fills_the_memory() -> None:
    for file_format, text in [("csv", f"{HEADER}\n" + "x" * 2**23), ("jsonl", '{"a":"' + "x" * 2**26)]:
        assert "longer than" in str(refused(text, file_format))


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    path.write_text(f"{HEADER}\n" + "".join(f"bot,b{i},a,0.5,human,ann\n" for i in range(20_000)))
    tracemalloc.start()
    try:
        with open_labels(path, now=NOW) as reader:
            count = sum(1 for _ in reader)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 20_000
    assert peak < 2**20


TASK = LabelTask(
    key=BatchKey("bot", "b1", 1),
    response_id="a",
    kind="human",
    prompt='Is "1,5"\nmore than 1?',
    response="=1+1",
    references=("yes", "-"),
)


@pytest.mark.parametrize("file_format", ["csv", "jsonl"])
def test_the_queue_can_be_filled_in_and_read(file_format: Any) -> None:
    lines = io.StringIO(newline="")
    assert (
        write_queue(
            [TASK, LabelTask(key=TASK.key, response_id="b", kind="human", prompt="", response="")],
            lines,
            file_format,
        )
        == 2
    )
    found, empty = read_whole(lines.getvalue(), file_format, labeller="ann")
    assert found == []
    assert empty.unlabelled == 2
    written = lines.getvalue()
    filled = (
        written.replace("bot,b1,1,a,,human,,", "bot,b1,1,a,0.5,human,,", 1)
        if file_format == "csv"
        else written.replace('"severity": null', '"severity": 0.5', 1)
    )
    found, reader = read_whole(filled, file_format, labeller="ann")
    assert found == [revision()]
    assert reader.unlabelled == 1


def test_no_cell_of_the_queue_is_a_formula() -> None:
    lines = io.StringIO(newline="")
    evil = LabelTask(
        key=BatchKey("bot", "=b", 1),
        response_id="@a",
        kind="human",
        prompt="+1",
        response="\t=1",
        references=("x",),
    )
    write_queue([evil], lines, "csv")
    row = list(csv.reader(io.StringIO(lines.getvalue(), newline="")))[1]
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in row)


@given(
    batch_id=st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=20),
    response_id=st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=20),
    prompt=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40),
    response=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40),
    file_format=st.sampled_from(["csv", "jsonl"]),
)
def test_identifiers_come_back_as_they_were(
    batch_id: str, response_id: str, prompt: str, response: str, file_format: Any
) -> None:
    lines = io.StringIO(newline="")
    key = BatchKey("bot", batch_id, 3)
    write_queue(
        [LabelTask(key=key, response_id=response_id, kind="human", prompt=prompt, response=response)],
        lines,
        file_format,
    )
    text = lines.getvalue()
    if file_format == "csv":
        rows = list(csv.reader(io.StringIO(text, newline="")))
        rows[1][4] = "1"
        out = io.StringIO(newline="")
        csv.writer(out).writerows(rows)
        text = out.getvalue()
    else:
        text = json.dumps({**json.loads(text), "severity": 1}, ensure_ascii=False)
    [label] = read(text, file_format, labeller="ann")
    assert (label.key, label.response_id, label.severity) == (key, response_id, 1.0)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_decimal_comma_where_commas_do_not_separate(separator: str) -> None:
    text = f"{HEADER}\nbot,b1,a,0@5,human,ann\n".replace(",", separator).replace("@", ",")
    (label,) = read(text)
    assert label.severity == 0.5


def test_decimal_numbers_of_parquet_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "labels.parquet"
    columns = {
        "gate": ["bot"], "batch_id": [Decimal(10**30)], "response_id": ["a"], "severity": [Decimal("0.5")],
        "kind": ["human"], "labeller": ["ann"], "attempt": [Decimal(2)],
    }  # fmt: skip
    pq.write_table(pa.table(columns), path)
    with open_labels(path, now=NOW) as reader:
        (label,) = reader
    assert label.severity == 0.5
    assert label.key == BatchKey("bot", str(10**30), 2)
