"""`make bench`: a benchmark that fails fails the target, and the others run all the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.requirements import missing

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (3, 2)])
def test_every_benchmark_runs_and_a_failure_counts(tmp_path: Path, status: int, expected: int) -> None:
    if shutil.which("make") is None:
        missing("no make", "apt-get install make")
    shutil.copy(ROOT / "Makefile", tmp_path)
    for folder in ("benchmarks", ".venv/bin", "packages/research"):
        (tmp_path / folder).mkdir(parents=True)
    # As if it were installed, later than what it is installed from.
    for name in (
        "requirements.lock",
        "pyproject.toml",
        "packages/research/pyproject.toml",
        ".venv/.installed",
    ):
        (tmp_path / name).touch()
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    (tmp_path / "benchmarks" / "first.py").write_text(
        f"import sys; print('one', *sys.argv[1:]); sys.exit({status})\n"
    )
    (tmp_path / "benchmarks" / "second.py").write_text("print('two')\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    ran = subprocess.run(
        ["make", "bench", "ARGS=--fast"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == expected, ran.stderr
    assert "one --fast" in ran.stdout
    assert "two" in ran.stdout
    assert ("failed: benchmarks/first.py" in ran.stderr) == (status != 0)
