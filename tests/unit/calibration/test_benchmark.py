"""The benchmark reports what it measured and fails when calibration is too slow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "calibrate.py"


@pytest.mark.parametrize(("limit", "status"), [("1e6", 0), ("0", 1)])
def test_the_exit_status_follows_the_limit(limit, status):
    command = [
        sys.executable,
        str(SCRIPT),
        "--items",
        "20000",
        "--groups",
        "2000",
        "--rounds",
        "1",
        "--limit",
        limit,
    ]
    run = subprocess.run([*command, "--json"], check=False, capture_output=True, text=True, timeout=120)
    assert run.returncode == status, run.stderr
    report = json.loads(run.stdout)
    assert report["within_limit"] == (status == 0)
    assert report["ratio"] == report["median_seconds"]["mean"] / report["median_seconds"]["argsort"]
    assert set(report["median_seconds"]) == {"argsort", "mean", "crc", "bb", "rbwa"}
    assert report["numpy"]
    assert report["cpu"]
