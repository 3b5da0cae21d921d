"""Where the processor time of the tests goes: each test's own, its processes' and its services'.

With ``STREAMER_TEST_TIMES=FILE`` pytest adds a line to the file for each phase of each test (`tests/conftest.py`), from every
process of the run. Run as a program this module reads the file:

    STREAMER_TEST_TIMES=times.tsv make test
    .venv/bin/python -m tests.times times.tsv                # by process, folder, file and test
    .venv/bin/python -m tests.times times.tsv --slow         # write tests/slow_tests.txt

Processor time is what a busy machine leaves alone, but for a third more where two processes share a core's cache.
A test that is the first of its process to import a module or to take a fixture of the session is charged with it.
"""

import argparse
import csv
import os
import resource
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.processes import name_of_process
from tests.services import service_forks
from tests.services.postgres import PostgresServer

SLOW_TESTS = Path(__file__).with_name("slow_tests.txt")
"""Tests that were measured to take long, one a line; `make slow-tests` writes it."""

SLOW_SECONDS = 0.4
"""Processor time, its own and its processes', that all the cases of a test may take together in `make check`."""

KINDS = ("own", "processes", "kafka", "postgres", "browser", "others")
"""Whose time it is: pytest's process, processes that tests start, and services."""

_KIND_OF = {
    "java": "kafka",
    "postgres": "postgres",
    "pgbouncer": "postgres",
    "chromedriver": "browser",
    "prometheus": "others",
    "node": "others",
}

_TICK = 1 / os.sysconf("SC_CLK_TCK")


class Meter:
    """Sums the processor time of this process and of all that was started from it, by `KINDS`.

    A service that has ended keeps its kind, though the system adds its time to that of our children then.

    Parameters
    ----------
    alone : whether to sum this process's own alone.
    """

    def __init__(self, *, alone: bool = False) -> None:
        self._alone = alone
        self._running: dict[int, tuple[str, bool, float]] = {}
        self._ended: Counter[str] = Counter()

    def read(self) -> Counter[str]:
        """Return the seconds until now, by kind."""
        seconds: Counter[str] = Counter()
        seconds["own"] = time.process_time()
        if self._alone:
            return seconds
        waited_for = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds["processes"] = waited_for.ru_utime + waited_for.ru_stime + service_forks.ended_seconds()
        running = dict(self._look()) if self._may_run() else {}
        for pid, (kind, ours, last) in self._running.items():
            if pid not in running and kind != "processes":
                self._ended[kind] += last
                if ours:
                    self._ended["processes"] -= last
        self._running = running
        for kind, _, now in running.values():
            seconds[kind] += now
        seconds.update(self._ended)
        return seconds

    def _may_run(self) -> bool:
        if service_forks.RUNNING or PostgresServer.STARTED:
            return True
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def _look(self) -> Iterator[tuple[int, tuple[str, bool, float]]]:
        """Yield each process below this one with its kind, whether its end adds to our children's time, and its seconds."""
        found = dict(_processes())
        below: defaultdict[int, list[int]] = defaultdict(list)
        for pid, (parent, *_) in found.items():
            below[parent].append(pid)

        def whole(pid: int) -> float:
            return sum(found[pid][2:]) + sum(whole(child) for child in below[pid])

        servers = {server.pid for server in PostgresServer.STARTED if server.running}
        for pid in servers & found.keys():
            yield pid, ("postgres", False, whole(pid))
        for pid in {fork.pid for fork in service_forks.RUNNING} & found.keys():
            yield pid, ("processes", False, whole(pid))
        waiting = below[os.getpid()][:]
        while waiting:
            pid = waiting.pop()
            _, name, own, childrens = found[pid]
            if pid in service_forks.SERVERS:
                yield pid, ("processes", True, own)
            elif name in _KIND_OF:
                yield pid, (_KIND_OF[name], True, whole(pid))
            else:
                yield pid, ("processes", True, own + childrens)
                waiting += below[pid]


def _processes() -> Iterator[tuple[int, tuple[int, str, float, float]]]:
    """Yield each process of this machine: its parent, its name, its seconds and those of its children that ended."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/stat") as file:  # noqa: PTH123 - a hundred of them, thrice a test
                    before, _, after = file.read().rpartition(")")
            except (FileNotFoundError, ProcessLookupError):
                continue
            words = after.split()
            user, system, childrens, childrens_system = (int(word) * _TICK for word in words[11:15])
            yield (
                int(entry.name),
                (int(words[1]), before.partition("(")[2], user + system, childrens + childrens_system),
            )


class Recorder:
    """The plugin of pytest that adds lines to the file: process, test, phase, seconds by the clock, seconds by `KINDS`.

    Parameters
    ----------
    file : to append to.
    leads : whether this process only hands tests out to others, which are its children and have recorders of their own.
    """

    def __init__(self, file: Path, *, leads: bool = False) -> None:
        self._file = file.absolute()
        self._meter = Meter(alone=leads)
        self._before: Counter[str] = Counter()
        self._began = time.monotonic()
        self._pid = os.getpid()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        """Charge all until here to the start: imports and the collection."""
        self._add("(start and collection)", "start")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Measure the fixtures that come first."""
        self._add("(between tests)", "between")
        try:
            return (yield)
        finally:
            self._add(item.nodeid, "setup")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        try:
            return (yield)
        finally:
            self._add(item.nodeid, "call")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """Measure what tidies up."""
        try:
            return (yield)
        finally:
            self._add(item.nodeid, "teardown")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Charge what is left."""
        self._add("(end)", "end")

    def _add(self, test: str, phase: str) -> None:
        if os.getpid() != self._pid:  # this process was forked, and has used no time yet
            self._pid, self._meter, self._before = os.getpid(), Meter(), Counter()
        now = self._meter.read()
        row = [name_of_process(), test, phase, f"{time.monotonic() - self._began:.3f}"]
        row += [f"{now[kind] - self._before[kind]:.3f}" for kind in KINDS]
        with self._file.open("a") as file:  # one short write: lines of several processes do not mix
            file.write("\t".join(row) + "\n")
        self._before = now
        self._before["own"] = time.process_time()  # what measuring takes is nobody's
        self._began = time.monotonic()


def read(files: Iterable[Path]) -> Iterator[tuple[str, str, str, Counter[str]]]:
    """Yield process, test, phase, and seconds by kind, their ``sum``, and by the ``clock``, of each line."""
    for path in files:
        with path.open(newline="") as file:
            for process, test, phase, *numbers in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                clock, *seconds = map(float, numbers)
                yield (
                    process,
                    test,
                    phase,
                    Counter(dict(zip(KINDS, seconds, strict=True)), sum=sum(seconds), clock=clock),
                )


def function_of(node_id: str) -> str:
    """The test without its parameters."""
    return node_id.partition("[")[0]


def file_of(node_id: str) -> str:
    return node_id.partition("::")[0]


def folder_of(node_id: str) -> str:
    """The folder of a test, at most two deep: ``tests/integration/store``."""
    parts = file_of(node_id).split("/")
    if len(parts) < 3:
        return node_id
    return "/".join(parts[: 3 if len(parts) > 3 else 2])


def _table(title: str, rows: Mapping[str, Counter[str]], most: int) -> None:
    columns = ("sum", *KINDS, "clock")
    print("\n" + " ".join(f"{column:>9}" for column in columns), f" {title}")
    for name in sorted(rows, key=lambda name: -rows[name]["sum"])[:most]:
        print(" ".join(f"{rows[name][column]:9.1f}" for column in columns), f" {name}")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description="Say where the processor time of the tests went, in seconds."
    )
    parser.add_argument("files", nargs="+", type=Path, help="what STREAMER_TEST_TIMES named")
    parser.add_argument("--most", type=int, default=40, help="rows of each table")
    parser.add_argument("--slow", action="store_true", help=f"write {SLOW_TESTS.name}, without tables")
    chosen = parser.parse_args(arguments)
    if chosen.slow:
        _write_slow_tests(chosen.files)
        return
    tables: dict[str, defaultdict[str, Counter[str]]] = {
        title: defaultdict(Counter) for title in ("all", "by process", "by folder", "by file", "by test")
    }
    for process, test, _, seconds in read(chosen.files):
        names = ("all", process, folder_of(test), file_of(test), function_of(test))
        for table, name in zip(tables.values(), names, strict=True):
            table[name].update(seconds)
    for title, table in tables.items():
        _table(title, table, chosen.most)


def _write_slow_tests(files: Iterable[Path]) -> None:
    taken: Counter[str] = Counter()
    for _, test, phase, seconds in read(files):
        if phase == "call":
            taken[function_of(test)] += seconds["own"] + seconds["processes"]
    slow = sorted(name for name, seconds in taken.items() if seconds > SLOW_SECONDS)
    SLOW_TESTS.write_text("\n".join(slow) + "\n")
    print(f"{len(slow)} of {len(taken)} tests took more than {SLOW_SECONDS} s, "
          f"together {sum(taken[name] for name in slow):.0f} of {sum(taken.values()):.0f} s")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
