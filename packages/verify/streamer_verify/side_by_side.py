"""Several processes that verify one record: each takes ranges of lines; their order is checked here."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import cycle
from typing import Any, NamedTuple, Protocol

from streamer_verify.alarms import Alarms
from streamer_verify.runs import Runs
from streamer_verify.verifier import Read, Verifier

AT_ONCE = 1_000
"""Lines of a range."""

_AHEAD = 2
"""Ranges that each process has been given and nobody has taken yet."""

_KEPT = ("source", "index", "recorded_at", "leaf", "root", "given_out", "batch")
"""What is needed of a line where the logs come together."""


class Reader(Protocol):
    """What a process reads ranges of the logs with; it makes one of its own."""

    @property
    def at(self) -> str:
        """What is being read."""
        ...

    def outcomes(
        self, piece: Any, verifier: Verifier, known: Any, *, again: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Yield the lines of a range, and verify of them what no verifier does by itself.

        `known` : what was read before them. `again` : their forms were compared before.
        """
        ...


class Part(NamedTuple):
    """What was found in a range; with each line stands how many faults there were by its end."""

    lines: list[tuple[int, Read]]
    found: tuple[list[dict[str, str]], dict[str, str], Counter[str], Counter[str]]
    decided: Any
    drawn: Any
    error: Exception | None
    at: str


class Processes:
    """New interpreters, at least 1, which end when this one does, however it ends.

    `make` is sent to them and makes each its reader; `at` is what was being read when one failed.
    """

    def __init__(self, count: int, make: Callable[[], Reader]) -> None:
        context = multiprocessing.get_context("spawn")
        self.at = ""
        # Pools of one: all can be told something, and each reads its ranges in their order.
        self._pools = [ProcessPoolExecutor(1, mp_context=context) for _ in range(count)]
        self._begun = [one.submit(_begin, make) for one in self._pools]

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._pools:
            one.shutdown(cancel_futures=True)

    def ready(self) -> None:
        """Wait until every process has its reader; raises what making one raised."""
        for waiting in self._begun:
            waiting.result()

    def each(self, work: Callable[..., None], *given: Any) -> None:
        """Have every process do something; raises what one raises."""
        self.ready()
        for waiting in [one.submit(work, *given) for one in self._pools]:
            waiting.result()

    def call(self, method: str, *given: Any) -> None:
        """Call a method of every reader."""
        self.each(_call, method, *given)

    def outcomes(
        self,
        pieces: Iterable[Any],
        verifier: Verifier,
        runs: Runs,
        alarms: Alarms,
        known: Any = None,
        progress: Callable[[int], None] = lambda _done: None,
    ) -> None:
        """Do what ``verifier.outcomes`` does with what `runs` and `alarms` pass on, piece by piece."""

        def reads() -> Iterator[Read]:
            done = 0
            for part in self._parts(_outcomes, pieces):
                yield from self._taken(part, verifier)
                runs.add(part.decided)
                alarms.add(part.drawn)
                progress(done := done + len(part.lines))

        self._tell(verifier, runs, (copy.copy(alarms), known))
        verifier.in_order(reads())

    def check_budgets(self, pieces: Iterable[Any], verifier: Verifier, runs: Runs) -> None:
        """Do what ``runs.check_budgets`` does."""
        self._tell(verifier, runs, (Alarms(), None))
        for part in self._parts(_budgets, pieces):
            list(self._taken(part, verifier))

    def _tell(self, verifier: Verifier, runs: Runs, others: tuple[Alarms, Any]) -> None:
        """Give every process what was read before the logs, without what has been collected."""
        told, bare = copy.copy(verifier), copy.copy(runs)
        told.forget_order()
        bare.verifier = told
        bare.part()
        self.each(_take, pickle.dumps((told, bare, *others)))

    def _parts(self, work: Callable[[Any], Part], pieces: Iterable[Any]) -> Iterator[Part]:
        given: deque[Future[Part]] = deque()
        for pool, piece in zip(cycle(self._pools), pieces):  # as many as there are pieces
            given.append(pool.submit(work, piece))
            if len(given) == _AHEAD * len(self._pools):
                yield given.popleft().result()
        while given:
            yield given.popleft().result()

    def _taken(self, part: Part, verifier: Verifier) -> Iterator[Read]:
        """The lines of a part, while what was found in them is taken over."""
        told, (faults, notes, counts, early) = 0, part.found
        for many, read in (*part.lines, (len(faults), None)):
            verifier.repeat(faults[told:many])
            told = many
            if read is not None:
                yield read
        verifier.add(notes, counts, early)
        if part.error is not None:
            self.at = part.at
            raise part.error


_reader: Any = None
_told: tuple[Verifier, Runs, Alarms, Any] | None = None


def _begin(make: Callable[[], Reader]) -> None:
    global _reader  # a process has one
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    # A worker of a pool whose owner was killed waits forever: it holds the end of its queue itself.
    threading.Thread(target=_await_parent, daemon=True).start()
    gc.set_threshold(100_000)  # line after line makes many objects, and no cycles
    _reader = make()


def _await_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(method: str, *given: Any) -> None:
    getattr(_reader, method)(*given)


def _take(pickled: bytes) -> None:
    global _told  # a process has one
    _told = pickle.loads(pickled)  # noqa: S301  # of the process that started this one


def _outcomes(piece: Any) -> Part:
    def read(verifier: Verifier, runs: Runs, alarms: Alarms, known: Any) -> Iterator[Read]:
        lines = _reader.outcomes(piece, verifier, known)
        return verifier.by_itself(alarms.outcomes(runs.outcomes(lines)))

    return _part(read)


def _budgets(piece: Any) -> Part:
    def read(verifier: Verifier, runs: Runs, _alarms: Alarms, known: Any) -> Iterator[Read]:
        runs.check_budgets(_reader.outcomes(piece, verifier, known, again=True))
        return iter(())

    return _part(read)


def _part(read: Callable[..., Iterator[Read]]) -> Part:
    """What is found while lines are read."""
    assert _told is not None  # every process is told before it is given a range
    verifier, runs, alarms, _ = _told
    lines: list[tuple[int, Read]] = []
    failed: Exception | None = None
    try:
        for one in read(*_told):
            kept = {name: one.line[name] for name in _KEPT if name in one.line}
            lines.append((len(verifier.faults), one._replace(line=kept)))
    except Exception as error:  # raised where the ranges before it have been taken
        failed = error
    return Part(lines, verifier.part(), runs.part(), alarms.part(), failed, _reader.at)
