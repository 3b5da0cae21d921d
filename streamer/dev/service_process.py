"""A service of ours as a child process: its addresses, whether it is ready, and the end of its log when it dies.

It ends when its parent does, however that happens: its standard input is a pipe that nobody else holds.
"""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from streamer.errors import StreamerError, Unavailable

_START_SECONDS = 120.0
_STOP_SECONDS = 20.0
_LOG_TAIL_BYTES = 4000


class WorkerDied(StreamerError):
    """A service that was started here ended although nobody asked it to."""


class ServiceProcess:
    """One service, from `start` to `stop`.

    Parameters
    ----------
    name : in messages, and of the log file, like ``worker``.
    command : of `streamer`, with its options; the name alone when it is left out.
    directory : where it runs, and where its log goes; must exist.
    environment : all that it gets.
    """

    def __init__(
        self,
        name: str,
        *,
        command: Sequence[str] = (),
        directory: Path,
        environment: Mapping[str, str],
    ) -> None:
        self.name = name
        self.log_path = directory / f"{name}.log"
        self.facts: dict[str, Any] = {}
        self._command = tuple(command) or (name,)
        self._directory = directory
        self._environment = dict(environment)
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """Root of its `/metrics`, `/healthz` and `/readyz`."""
        return str(self.facts["http"])

    def start(self) -> None:
        """Start it and read its addresses. Raises `WorkerDied` when it ends instead."""
        self._log = self.log_path.open("ab")
        self._process = subprocess.Popen(  # noqa: S603 - our own program, by a name of ours
            [sys.executable, "-m", "streamer", *self._command, "--json", "--until-stdin-closes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=self._directory,
            env=self._environment,
        )
        stdout = self._process.stdout
        if stdout is None:
            raise RuntimeError(f"the {self.name} has no standard output")
        line = stdout.readline()
        if not line:
            raise self._death()
        self.facts = json.loads(line)

    def wait_until_ready(self, waiting: Callable[[], None] = lambda: None) -> None:
        """Wait until it is ready; `waiting` is called while it is not. Raises `WorkerDied`, `Unavailable`."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            self.check()
            with (
                suppress(urllib.error.URLError, OSError),
                urllib.request.urlopen(f"{self.url}/readyz", timeout=2) as answer,  # noqa: S310
            ):
                if answer.status == 200:
                    return
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"the {self.name} was not ready within {_START_SECONDS:.0f} s; its log is {self.log_path}"
                )
            waiting()
            time.sleep(0.1)

    def check(self) -> None:
        """Raise `WorkerDied` if it is not running any more."""
        if self.poll() is not None or self._process is None:
            raise self._death()

    def poll(self) -> int | None:
        """Return its exit status; None while it runs."""
        return None if self._process is None else self._process.poll()

    def ask_to_stop(self) -> None:
        """Let it begin to stop."""
        if self._process is not None:
            self._process.terminate()

    def stop(self) -> None:
        """Let it drain and end. May be called twice."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _death(self) -> WorkerDied:
        status = None if self._process is None else self._process.wait()
        tail = b""
        with suppress(OSError):
            tail = self.log_path.read_bytes()[-_LOG_TAIL_BYTES:]
        return WorkerDied(
            f"the {self.name} ended with status {status}; the end of its log ({self.log_path}):\n"
            + tail.decode("utf-8", "replace")
        )
