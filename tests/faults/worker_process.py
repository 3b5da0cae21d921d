"""A real service in a process of its own, to be killed, stopped and started again."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.services.service_forks import FORKS, ForkedService, ServiceForks


class WorkerProcess:
    """`streamer worker`, or another service, with settings by environment; its log goes to a file.

    It is forked from a process that has imported it, the one of `forks`. `program` is what runs it instead, for a test that changes the process
    first or measures it; `arguments` follow the service's name.
    """

    def __init__(
        self,
        settings: dict[str, str],
        log: Path,
        *,
        program: Sequence[str] = (),
        service: str = "worker",
        arguments: Sequence[str] = (),
        forks: ServiceForks = FORKS,
    ) -> None:
        self._log = log
        environment = os.environ | {"STREAMER_HTTP_PORT": "0"} | settings
        words = [service, *arguments, "--json"]
        self.process: subprocess.Popen[bytes] | ForkedService
        with log.open("ab") as stderr:
            if program:
                self.process = subprocess.Popen(
                    [sys.executable, *program, *words], stdout=subprocess.PIPE, stderr=stderr,
                    cwd=log.parent, env=environment,
                )  # fmt: skip
            else:
                self.process = forks.start(
                    words, environment=environment, folder=log.parent, stderr=stderr.fileno()
                )
        first = self.process.stdout.readline()
        assert first, f"the {service} ended at once:\n{log.read_text()[-3000:]}"
        self.announced = json.loads(first)
        self.url = self.announced["http"]

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def wait_until_ready(self, seconds: float = 240) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the worker ended:\n{self.log_tail()}"
            with suppress(OSError):
                if not self.unready():
                    return
            time.sleep(0.05)
        raise AssertionError(f"the worker was not ready:\n{self.log_tail()}")

    def unready(self) -> str:
        """What `/readyz` says while the worker is not ready; empty when it is."""
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=240):
                return ""
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=240) as answer:
            lines = answer.read().decode().splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line[0] != "#"}

    def kill(self) -> None:
        """Kill -9: no handler runs."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(240)

    def terminate(self, seconds: float = 120) -> int:
        """SIGTERM, and wait for the drain; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def log_tail(self, characters: int = 3000) -> str:
        return self._log.read_text(errors="replace")[-characters:]

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for_log(self, words: str, seconds: float = 240) -> None:
        """Wait until it has logged this."""
        deadline = time.monotonic() + seconds
        while words not in self._log.read_text(errors="replace"):
            assert time.monotonic() < deadline, f"{words!r} was not logged:\n{self.log_tail()}"
            time.sleep(0.02)

    def wait_until_killed(self, seconds: float = 240) -> None:
        """Wait until it has killed itself, as its failpoint was told to."""
        assert self.process.wait(seconds) == -signal.SIGKILL, self.log_tail()

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def peak_bytes(self) -> int:
        """The most memory that it ever had in RAM."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("this system does not say how much memory a process had at most")

    def open_files(self) -> int:
        """File descriptors that it has open now."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()
