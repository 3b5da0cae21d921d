"""Writes `slow_tests.txt`: a plugin that `make slow-tests` runs the unit tests with, in one process."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from tests.conftest import SLOW_TESTS, function_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 0.4
"""Processor time, its own and its processes', that all the cases of a test may take together in `make check`."""

_taken: dict[str, float] = defaultdict(float)


def _processor_time() -> float:
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    began = _processor_time()
    try:
        return (yield)
    finally:
        _taken[function_of(item.nodeid)] += _processor_time() - began


def pytest_sessionfinish(exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.OK:
        slow = sorted(name for name, seconds in _taken.items() if seconds > SECONDS)
        SLOW_TESTS.write_text("\n".join(slow) + "\n")
        print(f"\n{len(slow)} of {len(_taken)} tests took more than {SECONDS} s, "
              f"together {sum(_taken[name] for name in slow):.0f} of {sum(_taken.values()):.0f} s")  # fmt: skip
