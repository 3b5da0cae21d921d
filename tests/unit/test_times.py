"""The record of the tests' processor time says whose time it is, and reads back what it wrote."""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import times
from tests.processes import name_of_process
from tests.times import KINDS, Recorder, main, read


def busy() -> None:
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass


def test_phases_are_written_and_summed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "times.tsv"
    recorder = Recorder(file)
    item = SimpleNamespace(nodeid="tests/integration/store/test_x.py::test_one[a]")
    recorder.pytest_collection_finish()
    for phase, work in (("setup", time.sleep), ("call", lambda _: busy()), ("teardown", time.sleep)):
        hook = getattr(recorder, f"pytest_runtest_{phase}")(item)
        next(hook)
        work(0)
        for _ in hook:
            pass
    recorder.pytest_sessionfinish()
    rows = {(test, phase): seconds for _, test, phase, seconds in read([file])}
    assert rows[item.nodeid, "call"]["own"] >= 0.2
    assert rows[item.nodeid, "call"]["clock"] >= 0.2
    assert rows[item.nodeid, "setup"]["sum"] < 0.2
    main([str(file)])
    tables = capsys.readouterr().out
    assert all(kind in tables for kind in KINDS)
    assert f"  {name_of_process()}\n" in tables
    assert "  tests/integration/store\n" in tables
    assert "  tests/integration/store/test_x.py::test_one\n" in tables


def test_tests_that_take_long_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "times.tsv"
    monkeypatch.setattr(times, "SLOW_TESTS", tmp_path / "slow_tests.txt")
    rest = "\t".join(["0.000"] * (len(KINDS) - 2))
    rows = [
        ("a.py::test_long[1]", "call", 0.3, 0.0),
        ("a.py::test_long[2]", "call", 0.1, 0.2),
        ("a.py::test_long_to_prepare", "setup", 3.0, 0.0),
        ("a.py::test_long_to_prepare", "call", 0.1, 0.0),
    ]
    file.write_text(
        "".join(
            f"p0\t{test}\t{phase}\t9.000\t{own}\t{processes}\t{rest}\n"
            for test, phase, own, processes in rows
        )
    )
    main([str(file), "--slow"])
    assert (tmp_path / "slow_tests.txt").read_text() == "a.py::test_long\n"
    assert "1 of 2 tests took more than 0.4 s" in capsys.readouterr().out
