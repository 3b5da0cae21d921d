"""The embedded step: a broker inside this process, a worker as its child, and a file that tells where they are.

For trying and developing. The broker keeps its log in memory and forgets it at exit; the database stays.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from streamer.dev_session import DevSession, remove_dev_session, write_dev_session
from streamer.errors import StreamerError, Unavailable
from streamer.events.topics import Topics
from streamer.settings_sources import PREFIX, variable_name
from streamer.stream.embedded_broker import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from streamer.settings import Settings

_START_SECONDS = 120.0
_STOP_SECONDS = 20.0
_LOG_TAIL_BYTES = 4000


class WorkerDied(StreamerError):
    """The worker process ended although nobody asked it to."""


class EmbeddedStep:
    """Broker, worker and addresses, from `start` to `stop`; also a context manager.

    Parameters
    ----------
    settings : as for any command. The worker gets those of the encoder, the events, HTTP, the log and its own, and nothing
        else from the environment or from files: a broker that is configured there is not the one that runs here.
    database_url : of a migrated database; a SQLite path must be absolute.
    directory : where the worker's log goes.
    shared : leave the addresses where other commands of the working directory find them.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        database_url: str,
        directory: Path,
        shared: bool = False,
    ) -> None:
        self._settings = settings
        self.database_url = database_url
        self._directory = directory
        self._shared = shared
        self._log: IO[bytes] | None = None
        self._worker: subprocess.Popen[str] | None = None
        self.broker = EmbeddedBroker()
        self.worker_facts: dict[str, Any] = {}

    @property
    def log_path(self) -> Path:
        """Where the worker's log lines go."""
        return self._directory / "worker.log"

    @property
    def metrics_url(self) -> str:
        """Root of the worker's `/metrics`, `/healthz` and `/readyz`."""
        return str(self.worker_facts["http"])

    def start(self, *, waiting: Callable[[], None] = lambda: None) -> None:
        """Start broker and worker and wait until the worker is ready. `waiting` is called while it is not.

        Raises
        ------
        WorkerDied : the worker ended at start; the message has the end of its log.
        Unavailable : it was not ready in time.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        topics = Topics(self._settings.kafka.topic_prefix)
        self.broker.start(topics=(topics.responses, topics.actions, topics.labels, topics.thresholds))
        try:
            self._start_worker()
            self._wait_until_ready(waiting)
        except BaseException:
            self.stop()
            raise
        if self._shared:
            write_dev_session(self.session())

    def _start_worker(self) -> None:
        self._log = self.log_path.open("ab")
        self._worker = subprocess.Popen(
            [sys.executable, "-m", "streamer", "worker", "--json", "--until-stdin-closes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=self._directory,
            env=self._environment(),
        )
        stdout = self._worker.stdout
        if stdout is None:
            raise RuntimeError("the worker has no standard output")
        line = stdout.readline()
        if not line:
            raise self._death()
        self.worker_facts = json.loads(line)

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        passed = {
            variable_name(group, field): str(value)
            for group in ("encoder", "events", "worker")
            for field, value in getattr(self._settings, group).model_dump().items()
            if value is not None
        }
        audit = self._settings.audit
        if self._shared:  # what runs for itself alone would leave its checkpoints where another record's are
            passed |= {
                variable_name("audit", field): str(value)
                for field, value in (
                    ("private_key", audit.private_key),
                    ("checkpoint_file", audit.checkpoint_file and os.path.abspath(audit.checkpoint_file)),  # noqa: PTH100
                    ("checkpoint_every_seconds", audit.checkpoint_every_seconds),
                )
                if value is not None
            }
        return (
            inherited
            | passed
            | {
                "STREAMER_KAFKA_BOOTSTRAP_SERVERS": self.broker.bootstrap,
                "STREAMER_KAFKA_LOG_ID": self.broker.log_id,
                "STREAMER_KAFKA_TOPIC_PREFIX": self._settings.kafka.topic_prefix,
                "STREAMER_DATABASE_URL": self.database_url,
                "STREAMER_HTTP_HOST": self._settings.http.host,
                "STREAMER_HTTP_PORT": str(self._settings.http.port),
                "STREAMER_LOGGING_FORMAT": "json",
                "STREAMER_LOGGING_LEVEL": self._settings.logging.level,
            }
        )

    def _wait_until_ready(self, waiting: Callable[[], None]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            self.check_worker()
            with (
                suppress(urllib.error.URLError, OSError),
                urllib.request.urlopen(f"{self.metrics_url}/readyz", timeout=2) as answer,  # noqa: S310
            ):
                if answer.status == 200:
                    return
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"the worker was not ready within {_START_SECONDS:.0f} s; its log is {self.log_path}"
                )
            waiting()
            time.sleep(0.1)

    def check_worker(self) -> None:
        """Raise `WorkerDied` if the worker is not running any more."""
        if self._worker is None or self._worker.poll() is not None:
            raise self._death()

    def _death(self) -> WorkerDied:
        status = None if self._worker is None else self._worker.wait()
        tail = b""
        with suppress(OSError):
            tail = self.log_path.read_bytes()[-_LOG_TAIL_BYTES:]
        return WorkerDied(
            f"the worker ended with status {status}; the end of its log ({self.log_path}):\n"
            + tail.decode("utf-8", "replace")
        )

    def session(self) -> DevSession:
        """The addresses, for other processes of this machine."""
        return DevSession(
            bootstrap_servers=self.broker.bootstrap,
            log_id=self.broker.log_id,
            database_url=self.database_url,
            metrics_url=self.metrics_url,
            pid=os.getpid(),
        )

    def wait(self) -> int:
        """Wait until the worker ends by itself and return its exit status."""
        if self._worker is None:
            raise RuntimeError("the worker was not started")
        return self._worker.wait()

    def stop(self) -> None:
        """Let the worker drain and end, then stop the broker. May be called twice."""
        if self._shared:
            remove_dev_session(os.getpid())
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.terminate()
            try:
                worker.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            for stream in (worker.stdin, worker.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()
        if self._log is not None:
            self._log.close()
            self._log = None
        self.broker.stop()

    def __enter__(self) -> EmbeddedStep:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
