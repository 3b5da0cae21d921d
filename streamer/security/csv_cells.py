"""CSV that is safe to open in a spreadsheet: every CSV file that this program writes goes through `CsvTable`.

A spreadsheet runs a cell that begins like a formula. Which text begins a cell depends on the separator that the
spreadsheet takes, which need not be the comma that separates here, and quotes that hold a cell together for one
separator do not for another. So an apostrophe goes before each sign that begins a formula, at the beginning of a text
and after everything that some spreadsheet takes for a separator. `plain_cell` removes exactly what was added.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from streamer.scoring.blank import is_blank

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_SIGNS = frozenset("=+-@＝＋－＠﹦﹢﹣﹫")  # full-width and small forms begin a formula too
_SEPARATORS = frozenset(";,|\t\n\r\v\f\x85\u2028\u2029")
_STRIPPED_FIRST = ("\t", "\r")
"""At the beginning of a cell some spreadsheets drop these, whatever follows."""


class CsvTable:
    """Writes rows whose texts no spreadsheet runs, to what was opened with ``newline=""``;
    numbers stay numbers, None is an empty cell."""

    def __init__(self, lines: SupportsWrite[str], *, line_end: str = "\n") -> None:
        self._writer = csv.writer(lines, lineterminator=line_end)

    def write(self, row: Iterable[object]) -> None:
        """Write one row."""
        self._writer.writerow([safe_cell(cell) if isinstance(cell, str) else cell for cell in row])


def safe_cell(text: str) -> str:
    """Return `text` as a cell that no spreadsheet runs; `plain_cell` gives it back."""
    pieces, end = [], 0
    for place, _ in _formulas(text):
        pieces += [text[end:place], "'"]
        end = place
    text = "".join([*pieces, text[end:]])
    return "'" + text if text.lstrip("'").startswith(_STRIPPED_FIRST) else text


def plain_cell(cell: str) -> str:
    """Return the text of which `safe_cell` made `cell`."""
    if cell.startswith("'") and cell.lstrip("'").startswith(_STRIPPED_FIRST):
        cell = cell[1:]
    pieces, end = [], 0
    for place, guarded in _formulas(cell):
        if guarded:
            pieces.append(cell[end:place])
            end = place + 1
    return "".join([*pieces, cell[end:]])


def _formulas(text: str) -> Iterator[tuple[int, bool]]:
    """Where something begins that could be run, and whether an apostrophe is there that prevents it."""
    begins, apostrophes = True, None
    for place, character in enumerate(text):
        if character in _SEPARATORS:
            begins, apostrophes = True, None
        elif not begins:
            continue
        elif character == "'":
            apostrophes = place if apostrophes is None else apostrophes
        elif character in _SIGNS:
            yield (place, False) if apostrophes is None else (apostrophes, True)
            begins = False
        elif apostrophes is not None or not (character == '"' or is_blank(character)):
            begins = False
