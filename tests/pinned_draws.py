"""Gates that a test makes without a seed draw the same numbers in every run.

A gate's seed decides its ties and what ships by chance, and its salt which decisions are drawn for labels: drawn anew they would let
a test fail in one run of many. Here both follow from the test's name and the gate's.
"""

from __future__ import annotations

import random
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest

from streamer.store.policies import gates

if TYPE_CHECKING:
    from collections.abc import Iterator


class PinnedDraws:
    """Plugin of pytest: the seeds and salts of gates that this process, or one forked from it, makes."""

    def __init__(self) -> None:
        self._test = ""
        self._numbers: ContextVar[random.Random] = ContextVar("numbers")
        create = gates.Gates.create

        def pinned(book: gates.Gates, name: str, *args: Any, **options: Any) -> Any:
            self._numbers.set(random.Random(f"{self._test} {name}"))
            return create(book, name, *args, **options)

        gates.Gates.create = pinned  # type: ignore[method-assign]
        gates.secrets = self  # type: ignore[assignment]

    def randbits(self, bits: int) -> int:
        return self._numbers.get().getrandbits(bits)

    def token_bytes(self, count: int) -> bytes:
        return self._numbers.get().randbytes(count)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test = item.nodeid
        return (yield)
