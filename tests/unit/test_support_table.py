"""The table of what works with what in docs/guarantees.md says what gates accept."""

import re
from pathlib import Path
from typing import Any

import pytest

from streamer.calibration.high_probability import bounds
from streamer.calibration.registry import weighting_schemes
from streamer.calibration.threshold import names
from streamer.gates.settings import METHODS, SHAPES, GateSettings
from streamer.research.evaluation.words import UNITS
from streamer.scoring.signals.signal_list import SignalList

PAGE = Path(__file__).parents[2] / "docs" / "guarantees.md"


def table() -> dict[str, list[str]]:
    text = PAGE.read_text(encoding="utf-8").split("### What works with what")[1]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"
    ]
    assert rows[0][0] == "method"
    return {row[0]: row[1:] for row in rows[2:]}


def accepted(**settings: Any) -> bool:
    try:
        GateSettings(encoder="e@1", **settings)
    except ValueError as error:
        assert re.search(r"(shape|segment_by|label_floor|method)", str(error))  # noqa: PT017
        return False
    return True


def columns(**settings: Any) -> list[list[bool]]:
    """Whether each column's cells are accepted: the units under a plain cut, then the shapes under every unit."""
    plain = [[accepted(unit=unit, **settings)] for unit in ("best", "response", "batch")]
    shapes = [
        [accepted(shape=shape, unit=unit, **settings) for shape in some for unit in units]
        for some, units in ((("smooth", "ramp"), UNITS), (("quantile",), UNITS), (("rank",), ("response",)))
    ]
    return plain + shapes


BY_SIGNALS = {"scorer": "choice", "signals": SignalList().text}
ROWS: dict[str, list[dict[str, Any]]] = {
    "`mean`, `crc`, `bb`, `rbwa`": [{"method": scheme} for scheme in weighting_schemes()],
    "`transductive`": [{"method": "transductive"}],
    "`hb`, `betting`, `bernstein`": [{"method": bound} for bound in bounds()],
    "`selective`, `selective-mean`": [{"method": method} for method in ("selective", "selective-mean")],
    "`age`": [{"method": "age"}],
    "segments of `mean`, `crc`, `bb`, `rbwa`": [
        {"method": scheme, "segment_by": "k"} for scheme in weighting_schemes()
    ],
    "label floor, with any other method": [
        {"method": method, "label_floor": 0.2} for method in METHODS if method != "full"
    ],
    "`full`": [{"method": "full", **BY_SIGNALS}],
    "segments of `full`": [{"method": "full", "segment_by": "k", **BY_SIGNALS}],
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_what_gates_accept(row: str):
    offered = [cell in ("gate", "same") for cell in table()[row]]
    for settings in ROWS[row]:
        for cells, wanted in zip(columns(**settings), offered, strict=True):
            assert set(cells) == {wanted}, settings


def test_every_row_is_told_and_the_rest_is_for_no_gate():
    assert set(table()) == {*ROWS, "`pooled`", "`clt`"}
    told = {name for row in table() for name in re.findall(r"`([\w-]+)`", row)}
    assert told == set(names())
    for method in ("pooled", "clt"):
        with pytest.raises(ValueError, match="method must be one of"):
            GateSettings(encoder="e@1", method=method)
    assert set(SHAPES) == {"indicator", "smooth", "ramp", "quantile", "rank"}
