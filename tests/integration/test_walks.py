"""The counting of docs/architecture.md goes on working."""

import re

import pytest

from tests import walks


def test_each_walk_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert walks.main() == 0
    rows = re.findall(r"^(a .+?) +(\d+) +(\d+) +(\d+)$", capsys.readouterr().out, re.MULTILINE)
    wanted = ["a response", "a label", "a recalibration of 60 prompts", "a threshold"]
    assert [name.split(" to ")[0] for name, *_ in rows] == wanted
    for _, calls, files, moves in rows:
        assert int(calls) > int(moves) > 0
        assert int(calls) > int(files) > 1
    assert int(rows[2][1]) <= 3_000, "a recalibration reads its groups a few times, not once a figure"
