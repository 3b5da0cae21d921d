"""Gates that a test makes without a seed draw the same numbers in every run.

A gate's seed decides its ties and what ships by chance, and its salt which decisions are drawn for labels: drawn anew they would let
a test fail in one run of many. Here both follow from the test's name, the gate's, and how many of this name it made before.
Commands that a test forks pin them, too (`tests/services/service_forks.py`); those that it starts afresh draw their own.
"""

import os
import random
from collections import Counter
from contextvars import ContextVar
from typing import Any

from streamer.store.policies import gates
from tests.services.service_forks import TEST


class _Pinned:
    """Stands for the module `secrets` where a gate is made."""

    def __init__(self) -> None:
        self._made: Counter[str] = Counter()
        self._numbers: ContextVar[random.Random] = ContextVar("numbers")

    def begin(self, gate: str) -> None:
        """The next numbers are this gate's."""
        name = f"{os.environ.get(TEST, '').rpartition(' ')[0]} {gate}"
        self._numbers.set(random.Random(f"{name} {self._made[name]}"))
        self._made[name] += 1

    def randbits(self, bits: int) -> int:
        return self._numbers.get().getrandbits(bits)

    def token_bytes(self, count: int) -> bytes:
        return self._numbers.get().randbytes(count)


def pin_draws() -> None:
    """Pin the seeds and salts of gates that this process makes, and those that are forked from it."""
    pinned, create = _Pinned(), gates.Gates.create

    def created(book: gates.Gates, name: str, *args: Any, **options: Any) -> Any:
        pinned.begin(name)
        return create(book, name, *args, **options)

    gates.Gates.create = created  # type: ignore[method-assign]
    gates.secrets = pinned  # type: ignore[assignment]
