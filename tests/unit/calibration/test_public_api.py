"""`import streamer` offers the Python API and costs little."""

import doctest
import subprocess
import sys

import streamer
from streamer.calibration import crc


def test_the_names_that_users_hold_on_to_are_there():
    for name in ("gram_energy", "calibrate", "decide", "Threshold"):
        assert name in streamer.__all__
        assert callable(getattr(streamer, name))


def test_importing_the_package_loads_no_heavy_part():
    heavy = (
        "torch",
        "faust",
        "aiokafka",
        "sqlalchemy",
        "scipy",
        "sentence_transformers",
        "matplotlib",
        "pydantic",
    )
    program = f"import sys, streamer; print([name for name in {heavy!r} if name in sys.modules])"
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=240
    )
    assert loaded.stdout.strip() == "[]"


def test_the_examples_in_the_docstrings_run():
    results = doctest.testmod(crc, raise_on_error=True)
    assert results.attempted >= 4
    assert results.failed == 0
