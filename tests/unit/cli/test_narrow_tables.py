"""Tables on narrow terminals: nothing is lost, and no word is broken."""

from collections.abc import Sequence

import pytest

from streamer.cli import console

COLUMNS = ("gate", "threshold", "unit", "severity shipped", "reduction", "since")
ROWS = (
    ("support", "closed, not calibrated", "response", 0.167, None, "2026-11-26 17:29:52Z"),
    ("日本語", "Q > 0.710373", "best", 1.0, 0.742, "2026-11-26 17:33:23Z"),
)


def printed(
    columns: Sequence[str], rows: Sequence[Sequence[object]], capsys: pytest.CaptureFixture[str]
) -> str:
    console.print_table(columns, rows)
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [40, 60, 72, 80, 100, 200])
def test_a_table_is_broken_between_words_alone(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    said = printed(COLUMNS, ROWS, capsys)
    words = {word for row in (COLUMNS, *ROWS) for cell in row for word in console.shown(cell).split()}
    assert set(said.split()) == words
    # The longest words of all columns, with a gap of one, need 60 cells.
    assert all(len(line) <= max(width, 60) for line in said.splitlines())


def test_the_gap_between_columns_gives_way_before_a_line_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns, rows = ("a b", "c d", "e f"), (("g h", "i j", "k l"),)
    monkeypatch.setenv("COLUMNS", "12")
    found = [line.rstrip() for line in printed(columns, rows, capsys).splitlines()]
    assert found == ["a b c d e f", "g h i j k l"]
    monkeypatch.setenv("COLUMNS", "15")
    assert printed(columns, rows, capsys).splitlines()[0].rstrip() == "a b  c d  e f"
