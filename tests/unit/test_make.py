"""`make bench` and `make test`: what fails fails the target, and the rest runs all the same."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import programs
from tests.services.requirements import missing

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A Makefile in a folder where everything is installed, later than what it is installed from."""
    if shutil.which("make") is None:
        missing("no make", "apt-get install make")
    shutil.copy(ROOT / "Makefile", tmp_path)
    for folder in ("benchmarks", ".venv/bin", "packages/research"):
        (tmp_path / folder).mkdir(parents=True)
    for name in (
        "requirements.lock",
        "pyproject.toml",
        "packages/research/pyproject.toml",
        ".venv/.installed",
    ):
        (tmp_path / name).touch()
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    return tmp_path


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return programs.run("make", *arguments, status=None, cwd=folder, env=environment)


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (3, 2)])
def test_every_benchmark_runs_and_a_failure_counts(checkout: Path, status: int, expected: int):
    (checkout / "benchmarks" / "first.py").write_text(
        f"import sys; print('one', *sys.argv[1:]); sys.exit({status})\n"
    )
    (checkout / "benchmarks" / "second.py").write_text("print('two')\n")
    ran = make(checkout, "bench", "ARGS=--fast")
    assert ran.returncode == expected, ran.stderr
    assert "one --fast" in ran.stdout
    assert "two" in ran.stdout


@pytest.mark.parametrize(("failing", "expected"), [("neither", 0), ("direct", 2), ("pgbouncer", 2)])
def test_the_tests_through_pgbouncer_run_whatever_became_of_the_others(
    checkout: Path, failing: str, expected: int
):
    pytest_ = checkout / ".venv/bin/pytest"
    pytest_.write_text(
        f'#!/bin/sh\nby=${{STREAMER_TEST_POOLER:-direct}}\necho "ran $by"\n[ "$by" != {failing} ]\n'
    )
    pytest_.chmod(0o755)
    ran = make(checkout, "test")
    assert ran.returncode == expected, ran.stderr
    assert ran.stdout.splitlines()[-2:] == ["ran direct", "ran pgbouncer"]
