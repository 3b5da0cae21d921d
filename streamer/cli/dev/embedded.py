"""The embedded step: a broker inside this process, services as its children, and a file with their addresses.

For trying and developing. The broker keeps its log in memory and forgets it at exit; the database stays. A service ends when this
process does, however that happens: its standard input is a pipe that nobody else holds.
"""

import getpass
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from streamer.errors import StreamerError, Unavailable
from streamer.events.topics import Topics
from streamer.settings.settings import Settings
from streamer.settings.sources import PREFIX, DevSession, remove_dev_session, variable_name, write_dev_session
from streamer.stream.embedded_broker import EmbeddedBroker

_START_SECONDS = 120.0
_STOP_SECONDS = 20.0
_LOG_TAIL_BYTES = 4000


class WorkerDied(StreamerError):
    """A service that was started here ended although nobody asked it to."""


class ServiceProcess:
    """One service, from `start` to `stop`: its addresses, whether it is ready, and the end of its log when it dies.

    `command` : of `streamer`, with its options; the name alone when it is left out. `directory` : where it runs, and where its log
    goes; must exist. `environment` : all that it gets.
    """

    def __init__(
        self, name: str, *, command: Sequence[str] = (), directory: Path, environment: Mapping[str, str]
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


_LOOK_SECONDS = 0.25


def _login_name() -> str:
    """Under which name whoever opens the console's link acts."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "developer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What runs beside the worker, on the loopback: each by its port, 0 for any free one; None: it does not run.

    Of the recalibrator it is the port of its metrics. `moving` : whose metrics, of ``worker`` and ``recalibrator``, take any free
    port where theirs is in use.
    """

    endpoint: int | None = None
    recalibrator: int | None = None
    console: int | None = None
    moving: Collection[str] = ()


class EmbeddedStep:
    """Broker, worker, what is to run beside it, and addresses, from `start` to `stop`; also a context manager.

    Of `settings` the services get those of the encoder, the endpoint, the events, HTTP, the log and the worker, the rubrics and
    upstreams, and nothing else from the environment or from files: a broker that is configured there is not the one that runs here.
    The database at `database_url` is migrated; a SQLite path must be absolute. The services' logs go to `directory`. `shared` :
    leave the addresses where other commands of the working directory find them.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        database_url: str,
        directory: Path,
        shared: bool = False,
        beside: Beside = Beside(),
    ) -> None:
        self._settings = settings
        self.database_url = database_url
        self._directory = directory
        self._shared = shared
        self._beside = beside
        self._services: dict[str, ServiceProcess] = {}
        self.broker = EmbeddedBroker()

    @property
    def log_path(self) -> Path:
        """Where the worker's log lines go."""
        return self._directory / "worker.log"

    @property
    def metrics_url(self) -> str:
        """Root of the worker's `/metrics`, `/healthz` and `/readyz`."""
        return self._running_worker().url

    @property
    def recalibrator_url(self) -> str | None:
        """The same of the recalibrator; None when there is none."""
        return self._services["recalibrator"].url if "recalibrator" in self._services else None

    @property
    def endpoint(self) -> Mapping[str, Any]:
        """What the endpoint says of itself, its address as ``endpoint``; empty when it is not served."""
        return self._facts("endpoint")

    @property
    def console(self) -> str | None:
        """Where the console is opened: its link until there are accounts; None when it is not served."""
        facts = self._facts("console")
        return facts.get("link") or facts.get("url")

    def _facts(self, service: str) -> dict[str, Any]:
        return self._services[service].facts if service in self._services else {}

    def start(self, *, waiting: Callable[[], None] = lambda: None) -> None:
        """Start the broker and the services and wait until they are ready. `waiting` is called while they are not.

        Raises `WorkerDied` where a service ended at start; the message has the end of its log.
        Raises `Unavailable` where it was not ready in time.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        topics = Topics(self._settings.kafka.topic_prefix)
        self.broker.start(topics=(topics.responses, topics.actions, topics.labels, topics.thresholds))
        try:
            environment = self._environment()
            self._begin("worker", environment=environment | self._moves("worker"))
            beside = environment | {"STREAMER_HTTP_PORT": "0"}  # the configured port is the worker's
            for name, port, *command in (
                ("endpoint", self._beside.endpoint, "serve"),
                ("recalibrator", self._beside.recalibrator, "recalibrator"),
                ("console", self._beside.console, "console", "--as", _login_name()),
            ):
                if port is not None:
                    more = self._moves(name) if name == "recalibrator" else {}
                    self._begin(name, *map(str, command), "--port", str(port), environment=beside | more)
            for name, service in self._services.items():
                if name != "console":  # it listens before it says where
                    service.wait_until_ready(waiting)
        except BaseException:
            self.stop()
            raise
        if self._shared:
            write_dev_session(self.session())

    def _begin(self, name: str, *command: str, environment: Mapping[str, str]) -> None:
        service = ServiceProcess(name, command=command, directory=self._directory, environment=environment)
        self._services[name] = service
        service.start()

    def _moves(self, service: str) -> dict[str, str]:
        return {"STREAMER_HTTP_ANY_PORT": str(service in self._beside.moving)}

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        passed = {
            variable_name(group, field): (
                json.dumps(value) if isinstance(value, list | tuple | dict) else str(value)
            )
            for group in ("encoder", "endpoint", "events", "worker")
            for field, value in getattr(self._settings, group).model_dump().items()
            if value is not None
        }
        for group in ("rubrics", "upstreams"):
            if tables := getattr(self._settings, group):
                passed[variable_name("", group)] = json.dumps(
                    {gate: one.model_dump(mode="json", exclude_none=True) for gate, one in tables.items()}
                )
        for one in self._settings.upstreams.values():
            file = f"{one.key_variable}_FILE"
            if file in inherited:
                inherited[file] = os.path.abspath(inherited[file])  # noqa: PTH100
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
            # Policies that are signed here must stay signed; the worker of a place of its own has no private key.
            passed |= {
                variable_name("policies", field): str(value)
                for field, value in self._settings.policies.model_dump().items()
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

    def check_worker(self) -> None:
        """Raise `WorkerDied` if a service is not running any more."""
        self._running_worker()
        for service in self._services.values():
            service.check()

    def _running_worker(self) -> ServiceProcess:
        if "worker" not in self._services:
            raise RuntimeError("the worker was not started")
        return self._services["worker"]

    def session(self) -> DevSession:
        """The addresses, for other processes of this machine."""
        return DevSession(
            bootstrap_servers=self.broker.bootstrap,
            log_id=self.broker.log_id,
            database_url=self.database_url,
            metrics_url=self.metrics_url,
            pid=os.getpid(),
            recalibrator_url=self.recalibrator_url,
        )

    def wait(self, waiting: Callable[[], None] = lambda: None) -> int:
        """Wait until the worker ends by itself and return its exit status; `waiting` is called again and again.

        Raises `WorkerDied` when another service ends.
        """
        worker = self._running_worker()
        while (status := worker.poll()) is None:
            for service in self._services.values():
                if service is not worker:
                    service.check()
            waiting()
            time.sleep(_LOOK_SECONDS)
        return status

    def stop(self) -> None:
        """Let the services drain and end, then stop the broker. May be called twice."""
        if self._shared:
            remove_dev_session(os.getpid())
        services = list(reversed(self._services.values()))  # the worker last
        self._services = {}
        for service in services:
            service.ask_to_stop()
        for service in services:
            service.stop()
        self.broker.stop()

    def __enter__(self) -> "EmbeddedStep":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
