"""Starts services of ours by fork from a process that has imported them: importing is half of what a start costs.

The fork becomes `python -m streamer ...` (or another module's program) with an environment, a folder and files of its own;
from there on all is as after a plain start. Run as a program this module is the process that is forked, with a socket that
listens as its standard input. The processes of one run share it; it ends with the last of them.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import inspect
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NoReturn

TEST = "PYTEST_CURRENT_TEST"
"""The variable in which pytest keeps the name of the test that runs, and its phase."""

PRELOADED = (
    "alembic.config",
    "ctranslate2",
    "faust",
    "faust.assignor.leader_assignor",
    "faust.tables.manager",
    "faust.tables.objects",
    "faust.tables.sets",
    "faust.worker",
    "tokenizers",
    "streamer.audit.signing",
    "streamer.audit.verification",
    "streamer.cli.app",
    "streamer.cli.audit",
    "streamer.cli.dead_letters",
    "streamer.cli.doctor",
    "streamer.cli.gate",
    "streamer.cli.recalibrate",
    "streamer.cli.services",
    "streamer.cli.services",
    "streamer.cli.threshold",
    "streamer.deciding.policy_book",
    "streamer.deciding.decider",
    "streamer.recalibration.service",
    "streamer.risk.rounds.watch",
    "streamer.scoring.encoders.ctranslate2_encoder",
    "streamer.scoring.encoders.endpoint_encoder",
    "streamer.serving.app",
    "streamer.serving.chat.routes",
    "streamer.serving.chat.rungs",
    "streamer.serving.chat.sampler",
    "streamer.serving.service",
    "streamer.settings.settings",
    "streamer.store.store",
    "streamer.store.calibration.calibration_runs",
    "streamer.store.desk.release_desk",
    "streamer.stream.faust_driver",
    "streamer.stream.relay",
    "streamer.stream.worker",
    "streamer.stream.worker",
    "streamer.telemetry.http",
    "streamer.telemetry.recalibrator_metrics",
    "streamer.telemetry.recalibrator_metrics",
    "streamer.wiring.encoders",
    "streamer.wiring.recalibrator",
    "streamer.wiring.serving",
    "streamer.wiring.worker",
    "streamer.web.server",
    "uvicorn.protocols.http.h11_impl",
)

_MOST_BYTES = 1 << 20

RUNNING: weakref.WeakSet[ForkedService] = weakref.WeakSet()
"""What this process has had forked and has not yet seen end."""

SERVERS: set[int] = set()
"""Processes that are forked, those that this process has started."""

_ended_seconds = 0.0


def ended_seconds() -> float:
    """Processor time of the forks that this process has seen end, and of their children."""
    return _ended_seconds


class ForkedService:
    """A process that was forked, as far as `subprocess.Popen` has what tests ask of it."""

    def __init__(self, forks: ServiceForks, pid: int, stdout: int) -> None:
        self.pid = pid
        self.stdout = os.fdopen(stdout, "rb")
        self.returncode: int | None = None
        self._forks = forks
        self._ends = os.pidfd_open(pid)
        RUNNING.add(self)

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while it runs."""
        global _ended_seconds
        if self.returncode is None:
            answer = self._forks.ask({"poll": self.pid})
            if answer["status"] is not None:
                self.returncode = os.waitstatus_to_exitcode(answer["status"])
                os.close(self._ends)
                RUNNING.discard(self)
                _ended_seconds += answer["seconds"]
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended. Raises `subprocess.TimeoutExpired`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (ended := self.poll()) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            wait([self._ends], left)  # also past 1,024 descriptors
        return ended

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._ends, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class ServiceForks:
    """The process that is forked, from its first use to the end of this one.

    With an interpreter and modules of its own it is nobody else's, and its forks may run the files of programs.
    """

    def __init__(
        self,
        python: str = sys.executable,
        preloaded: Iterable[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._python, self._preloaded = python, list(preloaded)
        self._environment = environment or {}
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        stderr: int,
        module: str = "streamer",
    ) -> ForkedService:
        """Start `streamer` with these arguments and nothing but this environment and the test's name; its standard output is a pipe."""
        reading, writing = os.pipe()
        request = {
            "module": module,
            "arguments": list(arguments),
            "environment": {TEST: os.environ.get(TEST, ""), **environment},
            "folder": str(folder),
        }
        try:
            answer = self.ask(request, (writing, stderr))
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return ForkedService(self, answer["pid"], reading)

    def run(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        seconds: float,
        module: str = "streamer",
    ) -> subprocess.CompletedProcess[str]:
        """Run `streamer` with these arguments to its end, which is a kill after so many seconds."""
        with tempfile.TemporaryFile() as errors:
            started = self.start(
                arguments, environment=environment, folder=folder, stderr=errors.fileno(), module=module
            )
            too_long = threading.Timer(seconds, started.kill)
            too_long.start()
            try:
                with started.stdout:
                    out = started.stdout.read()
                status = started.wait()
            finally:
                too_long.cancel()
                started.kill()
            errors.seek(0)
            return subprocess.CompletedProcess(
                [module, *arguments], status, out.decode(), errors.read().decode()
            )

    def ask(self, request: Mapping[str, Any], files: tuple[int, ...] = ()) -> Any:
        """Send a request, with open files, and return the answer."""
        with self._lock:
            if self._socket is None:
                self._socket = self._started()
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            answer = self._socket.recv(_MOST_BYTES)
        if not answer:
            raise RuntimeError("the process that services are forked from has ended")
        return json.loads(answer)

    def close(self) -> None:
        """End the process that is forked; what it has started goes on."""
        with self._lock:
            if self._socket is not None and self._process is not None:
                self._socket.close()
                self._process.wait()
                SERVERS.discard(self._process.pid)
            self._socket = self._process = None

    def _started(self) -> socket.socket:
        run = os.environ.get("TESTS_RUN_FOLDER")
        if run is None or self._preloaded:
            with tempfile.TemporaryDirectory() as folder:
                return self._new(f"{folder}/forks")
        # Each checkout its own: what a test runs in a copy of this one runs the copy's code.
        place = Path(run, f"forks-{zlib.crc32(__file__.encode()):08x}")
        with place.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                return _connected(str(place))
            except (FileNotFoundError, ConnectionRefusedError):
                place.unlink(missing_ok=True)
                return self._new(str(place))

    def _new(self, place: str) -> socket.socket:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(place)
            listening.listen(64)
            self._process = subprocess.Popen(
                [self._python, "-m", "tests.services.service_forks", *self._preloaded],
                stdin=listening,
                stdout=subprocess.DEVNULL,
                env={
                    **os.environ,
                    **self._environment,
                    "OMP_NUM_THREADS": "1",
                },  # NumPy starts threads when it is imported
            )
            SERVERS.add(self._process.pid)
            return _connected(place)


def _connected(place: str) -> socket.socket:
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        ours.connect(place)
    except BaseException:
        ours.close()
        raise
    return ours


FORKS = ServiceForks()
"""Those of this run; started when a service is."""


def _serve(listening: socket.socket) -> dict[str, Any]:
    """Answer requests until this is a fork; then return the request, which it becomes."""
    place = Path(listening.getsockname())
    callers = [listening.accept()[0]]
    while callers:
        for one in wait([listening, *callers]):
            if one is listening:
                callers.append(listening.accept()[0])
                continue
            try:
                message, files, _, _ = socket.recv_fds(one, _MOST_BYTES, 2)
                request = json.loads(message) if message else None
                if request is None:
                    one.close()
                    callers.remove(one)
                elif "poll" in request:
                    pid, status, used = os.wait4(request["poll"], os.WNOHANG)
                    seconds = used.ru_utime + used.ru_stime
                    one.send(json.dumps({"status": status if pid else None, "seconds": seconds}).encode())
                elif (pid := os.fork()) == 0:
                    for held in (listening, *callers):
                        held.close()
                    for file, number in zip(files, (1, 2), strict=True):
                        os.dup2(file, number)
                        os.close(file)
                    return request
                else:
                    for file in files:
                        os.close(file)
                    one.send(json.dumps({"pid": pid}).encode())
            except ConnectionError:  # whoever asked was killed
                one.close()
                callers.remove(one)
    for left in (place, place.with_suffix(".lock")):
        left.unlink(missing_ok=True)
    os._exit(0)  # whoever asked is gone; nothing here is to be finished


def _become(request: Mapping[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[0] = request["folder"]
    own = request["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [path for path in own if path and path not in sys.path]
    sys.argv = [request["module"], *request["arguments"]]
    if "streamer.store.policies.gates" in sys.modules:
        from tests.pinned_draws import pin_draws

        pin_draws()
    if request["module"].endswith(".py"):
        runpy.run_path(request["module"], run_name="__main__")
    else:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


def _end(program: Callable[[Any], None], request: Any) -> NoReturn:
    """Run a program and end as an interpreter does, but for freeing each object, which copies all that was preloaded."""
    status = 1
    try:
        program(request)
        status = 0
    except SystemExit as error:
        status = _status(error.code)
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


def _status(code: object) -> int:
    """The exit status that `sys.exit` means by this."""
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1


if __name__ == "__main__":
    asked = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name in sys.argv[1:] or PRELOADED:
        importlib.import_module(name)
    # Faust asks which module its agent is of: `inspect` looks at the path of every module, which it remembers.
    inspect.getmodule(sys._getframe())
    # A fork has one thread: what others do here would be half done there.
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise RuntimeError(f"importing the services has started {threads - 1} threads: they cannot be forked")
    gc.freeze()
    _end(_become, _serve(asked))
