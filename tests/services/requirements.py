"""What becomes of a test whose service is missing: skipped on a laptop, failed in continuous integration."""

import os
from typing import NoReturn

import pytest


def in_ci() -> bool:
    """True where `CI` is set to true: there nothing may be skipped silently."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def missing(what: str, remedy: str) -> NoReturn:
    """Skip the test, or fail it in CI, in one line that tells what is missing and how to get it."""
    line = f"{what}: {remedy}"
    if in_ci():
        pytest.fail(f"{line} (CI=true: nothing is skipped)", pytrace=False)
    pytest.skip(line)
