"""Runs the tests in several processes that are forked once the tests are collected: `pytest -p tests.processes --processes=6`.

Collecting takes seconds and so do the libraries' imports; processes that start afresh, as those of pytest-xdist do, would each do
both. Here the first process does them once, hands out the files in their order, and reports what the others tell it. A process
that ends amidst a test fails that test, and another takes its place.

Each process has a name (``p0``, `name_of_process`), output files and a folder for `tmp_path` of its own, and keeps the fixtures of
the session until the end.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import pickle
import shutil
import signal
import tempfile
import time
import traceback
import warnings
import weakref
from collections import deque
from collections.abc import Sequence
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.run_folder import RUN_FOLDER

PRELOADED = (
    "faust",
    "matplotlib.pyplot",
    "selenium.webdriver",
    "sentence_transformers",
    "sklearn.linear_model",
    "torch",
    "uvicorn",
)
"""What several processes import in the middle of tests, too: imported before there are several, where there are many files."""

_MANY_FILES = 250

FEW = {"kafka": (0, 1), "browser": (2,)}
"""Marks of services that cost each process that has one, at rest too, and the processes that take the files with them.

The others take such files once nothing else is left.
"""

_MAY_RUN = {"jemalloc_bg_thd"}
"""Threads that a fork starts anew by itself."""

# NumPy starts threads when it is imported, and what has threads cannot be forked. Several processes keep the cores busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")

RECORDER = "times"
"""The plugin that records times, if it is there (`tests/times.py`)."""

_name = "main"


def name_of_process() -> str:
    return _name


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("processes")
    group.addoption("--processes", type=int, default=0, help="processes to run the tests in; 0: this one")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.processes and not config.option.collectonly:
        config.pluginmanager.register(_Leader(config.option.processes), "processes")


class _Leader:
    """Hands the files out and reports."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._workers: dict[Connection, _Worker] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            return None  # the loop of pytest says so
        files = deque(list(items) for _, items in groupby(session.items, lambda item: item.path))
        if len(files) > _MANY_FILES:
            for name in PRELOADED:
                importlib.import_module(name)
            gc.freeze()
        os.environ[RUN_FOLDER] = tempfile.mkdtemp(prefix="streamer-tests-")
        if reporter := session.config.pluginmanager.get_plugin("terminalreporter"):
            reporter.showfspath = False
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        try:
            for number in range(min(self._count, len(files))):
                self._start(session, number)
            self._lead(session, files)
            if files:
                raise RuntimeError(f"no process is left for {len(files)} files of tests")
        finally:
            self._end()
            shutil.rmtree(os.environ.pop(RUN_FOLDER), ignore_errors=True)
        return True

    def _start(self, session: pytest.Session, number: int) -> None:
        names = [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]
        if others := [name for name in names if name not in _MAY_RUN][1:]:
            raise RuntimeError(
                f"collecting the tests has started threads, {', '.join(others)}: it cannot be forked"
            )
        ours, theirs = Pipe()
        if (pid := os.fork()) == 0:
            for other in (ours, *self._workers):
                other.close()
            _work(session, theirs, f"p{number}")
        theirs.close()
        self._workers[ours] = _Worker(pid, number)

    def _lead(self, session: pytest.Session, files: deque[list[pytest.Item]]) -> None:
        places = {item: place for place, item in enumerate(session.items)}
        while self._workers:
            for connection in wait(list(self._workers)):
                assert isinstance(connection, Connection)
                worker = self._workers[connection]
                try:
                    kind, *what = pickle.loads(connection.recv_bytes())
                except (EOFError, ConnectionResetError):
                    del self._workers[connection]
                    connection.close()
                    status = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
                    if worker.running is not None:
                        self._report_end(session, session.items[worker.running], status)
                        if worker.left:
                            files.appendleft([session.items[place] for place in worker.left])
                        if files:
                            self._start(session, worker.number)
                    elif status or worker.left:
                        raise RuntimeError(
                            f"process p{worker.number} of the tests ended with {status}"
                        ) from None
                    continue
                if kind == "next":
                    worker.left = [places[item] for item in _next(files, worker.number)] if files else []
                    connection.send(worker.left)
                else:
                    self._take(session, worker, kind, *what)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)

    def _take(self, session: pytest.Session, worker: _Worker, kind: str, what: Any) -> None:
        hook = session.config.hook
        if kind == "begin":
            worker.running = what
            worker.left = worker.left[1:]
        elif kind == "end":
            worker.running = None
            item = session.items[what]
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        elif kind == "report":
            report = hook.pytest_report_from_serializable(config=session.config, data=what)
            hook.pytest_runtest_logreport(report=report)
        elif kind == "warning":
            hook.pytest_warning_recorded.call_historic(kwargs=what)
        else:
            raise RuntimeError(f"process p{worker.number} of the tests failed:\n{what}")

    def _report_end(self, session: pytest.Session, item: pytest.Item, status: int) -> None:
        report = pytest.TestReport(
            item.nodeid, item.location, {}, "failed", f"its process ended with {status}", "call"
        )
        session.config.hook.pytest_runtest_logreport(report=report)

    def _end(self) -> None:
        """Let processes that are still there, as after an interrupt, tear down what they have set up."""
        for worker in self._workers.values():
            os.kill(worker.pid, signal.SIGTERM)
        for connection, worker in self._workers.items():
            deadline = time.monotonic() + 120
            while not os.waitpid(worker.pid, os.WNOHANG)[0]:
                while connection.poll(0.05):
                    try:
                        connection.recv_bytes()
                    except (EOFError, ConnectionResetError):
                        time.sleep(0.05)
                        break
                if time.monotonic() > deadline:
                    os.kill(worker.pid, signal.SIGKILL)
        self._workers.clear()


def _next(files: deque[list[pytest.Item]], number: int) -> list[pytest.Item]:
    """Take the next file for this process."""
    for place, items in enumerate(files):
        not_mine = [mark for mark, takers in FEW.items() if number not in takers]
        if not any(item.get_closest_marker(mark) for item in items for mark in not_mine):
            del files[place]
            return items
    return files.popleft()


class _Worker:
    def __init__(self, pid: int, number: int) -> None:
        self.pid, self.number = pid, number
        self.running: int | None = None
        self.left: list[int] = []


class _Teller:
    """Tells the first process what its reporters are to know."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config, self._connection = config, connection

    def tell(self, kind: str, what: object = None) -> None:
        self._connection.send_bytes(pickle.dumps((kind, what)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tell(
            "report", self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        )

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: object
    ) -> None:
        warning_message.message, warning_message.source = str(warning_message.message), None
        self.tell(
            "warning",
            {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location},
        )


class _OfAnotherFile:
    """Stands for the next test, which is not known yet: whatever is not the session's is torn down."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session

    def listchain(self) -> Sequence[object]:
        return [self._session]


def _work(session: pytest.Session, connection: Connection, name: str) -> NoReturn:
    status = 1
    try:
        teller = _Teller(session.config, connection)
        try:
            _become(session, teller, name)
            try:
                _run(session, connection, teller)
            finally:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                session._setupstate.teardown_exact(None)
                if recorder := session.config.pluginmanager.get_plugin(RECORDER):
                    recorder.pytest_sessionfinish()
            status = 0
        except (EOFError, BrokenPipeError, KeyboardInterrupt):
            pass  # the first process has ended, or ends this one
        except BaseException:
            teller.tell("error", traceback.format_exc())
        atexit._run_exitfuncs()
    finally:
        os._exit(status)


def _become(session: pytest.Session, teller: _Teller, name: str) -> None:
    global _name
    _name = name
    # Ctrl-C reaches all, and the first process passes it on as this signal, once. What is ignored here, those would ignore,
    # too, that tests start.
    signal.signal(signal.SIGTERM, _interrupt)
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False
    config = session.config
    capture = config.pluginmanager.get_plugin("capturemanager")
    capture.stop_global_capturing()  # its files are the first process's
    capture.start_global_capturing()
    if reporter := config.pluginmanager.get_plugin("terminalreporter"):
        reporter._tw._file = Path(os.devnull).open("w")  # noqa: SIM115 - until this process ends
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.getbasetemp() / name
    factory._basetemp.mkdir(exist_ok=True)
    config.pluginmanager.register(teller)


def _interrupt(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _run(session: pytest.Session, connection: Connection, teller: _Teller) -> None:
    while True:
        teller.tell("next")
        places = connection.recv()
        if not places:
            return
        items = [session.items[place] for place in places]
        for place, item, after in zip(places, items, [*items[1:], _OfAnotherFile(session)], strict=True):
            teller.tell("begin", place)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            teller.tell("end", place)
            if session.shouldfail or session.shouldstop:
                return
