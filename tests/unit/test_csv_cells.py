"""Cells that no spreadsheet runs, whatever separates there, and texts that come back as they were."""

import csv
import io
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import streamer
from streamer.security.csv_cells import CsvTable, plain_cell, safe_cell
from tests.growth import grows_in_proportion

DELIMITERS = ",;\t|"
SIGNS = "=+-@＝＋－＠﹦﹢﹣﹫"
NO_INK = '"\t\r\n\v\f \u00a0\u3000\u200b\u2060\ufeff\u00ad\u202e\u3164\u2028\u2029\x85\x00\x1b'
texts = st.text(st.sampled_from(SIGNS + NO_INK + DELIMITERS + "'ab1é") | st.characters())


def written(*cells: object) -> str:
    lines = io.StringIO(newline="")
    CsvTable(lines).write(cells)
    return lines.getvalue()


def runs(cell: str) -> bool:
    """Whether a spreadsheet that drops what it does not show before a cell's text could run it."""
    shown = cell.lstrip(NO_INK)
    return shown[:1] != "" and shown[0] in SIGNS


def cells_of(file: str) -> list[str]:
    """Every cell that some spreadsheet may find: each separator, quotes read or not, rows cut or not."""
    found = re.split(r"[,;\t|\r\n\v\f\x85\u2028\u2029]", file)
    for delimiter in DELIMITERS:
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE):
            for lines in (io.StringIO(file, newline=""), io.StringIO(file.replace("\0", ""), newline=None)):
                found += [
                    cell for row in csv.reader(lines, delimiter=delimiter, quoting=quoting) for cell in row
                ]
    return found


@pytest.mark.parametrize(
    "text",
    [
        "=1+1", "+1", "-1", "@sum(a1)", "\tx", "\rx", "see;=cmd|' /C calc'!A0", "＝1+1", "－2", "a,=b", "a\n-b", "a\t@b",
        " =1", "\u200b=1", "\ufeff＝1", '"=1', 'x;"=1', "x; \u2060-1", "'=1", "''=1", "x;'=1", "a|=b", "\t=1", "a;;=1",
    ],
)  # fmt: skip
def test_known_tricks(text: str) -> None:
    cell = safe_cell(text)
    assert cell != text
    assert not any(runs(found) for found in cells_of(written("first", text, "last")))
    assert not cell.startswith(("\t", "\r"))
    assert plain_cell(cell) == text


@given(st.lists(texts, min_size=1, max_size=4))
@example(['"', ";=1"])
@example([";", "=1"])
def test_no_cell_begins_like_a_formula_for_any_separator(row: list[str]) -> None:
    assert not any(runs(found) for found in cells_of(written(*row)))


@given(texts)
def test_a_text_comes_back_as_it_was(text: str) -> None:
    assert plain_cell(safe_cell(text)) == text
    assert plain_cell(safe_cell(safe_cell(text))) == safe_cell(text)


def test_numbers_stay_numbers_and_plain_texts_as_they_are() -> None:
    found = written(-0.5, -3, 1e-9, None, True, "a - b", "x=1", "2024-01-02", "don't")
    assert found == "-0.5,-3,1e-09,,True,a - b,x=1,2024-01-02,don't\n"


@pytest.mark.parametrize("piece", [";=", "\n", "'", " ", '"', ";'", "'="])
def test_long_texts_take_time_in_proportion_to_their_length(piece: str) -> None:
    assert grows_in_proportion(lambda pieces: plain_cell(safe_cell(piece * pieces)), 64_000)


def test_nothing_else_writes_csv() -> None:
    root = Path(streamer.__file__).parent
    writers = [
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if re.search(r"csv\.(writer|DictWriter)|to_csv|write_csv", path.read_text())
    ]
    assert writers == ["security/csv_cells.py"]
