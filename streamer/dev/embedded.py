"""The embedded step: a broker inside this process, services as its children, and a file with their addresses.

For trying and developing. The broker keeps its log in memory and forgets it at exit; the database stays.
"""

import getpass
import json
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from streamer.dev.service_process import ServiceProcess
from streamer.events.topics import Topics
from streamer.settings.dev_session import DevSession, remove_dev_session, write_dev_session
from streamer.settings.settings import Settings
from streamer.settings.sources import PREFIX, variable_name
from streamer.stream.embedded_broker import EmbeddedBroker

_LOOK_SECONDS = 0.25


def _login_name() -> str:
    """Under which name whoever opens the console's link acts."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "developer"


def _text(value: object) -> str:
    """A setting as the variable of another process has it."""
    return json.dumps(value) if isinstance(value, list | tuple | dict) else str(value)


class EmbeddedStep:
    """Broker, worker, what is to run beside it, and addresses, from `start` to `stop`; also a context manager.

    Parameters
    ----------
    settings : as for any command. The services get those of the encoder, the endpoint, the events, HTTP, the log and the
        worker, the rubrics and upstreams, and nothing else from the environment or from files: a broker that is configured there is not the
        one that runs here.
    database_url : of a migrated database; a SQLite path must be absolute.
    directory : where the services' logs go.
    shared : leave the addresses where other commands of the working directory find them.
    recalibrator_port : of the metrics of a recalibrator beside the worker; 0: any free one. None: none is run.
    any_port : whose metrics, of ``worker`` and ``recalibrator``, take any free port where theirs is in use.
    endpoint_port : serve the endpoint on the loopback, on this port; 0: any free one. None: it is not served.
    console_port : serve the console likewise.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        database_url: str,
        directory: Path,
        shared: bool = False,
        recalibrator_port: int | None = None,
        endpoint_port: int | None = None,
        console_port: int | None = None,
        any_port: Collection[str] = (),
    ) -> None:
        self._settings = settings
        self.database_url = database_url
        self._directory = directory
        self._shared = shared
        self._recalibrator_port = recalibrator_port
        self._endpoint_port = endpoint_port
        self._console_port = console_port
        self._any_port = any_port
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

        Raises
        ------
        WorkerDied : a service ended at start; the message has the end of its log.
        Unavailable : it was not ready in time.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        topics = Topics(self._settings.kafka.topic_prefix)
        self.broker.start(topics=(topics.responses, topics.actions, topics.labels, topics.thresholds))
        try:
            environment = self._environment()
            self._begin("worker", environment=environment | self._moves("worker"))
            beside = environment | {"STREAMER_HTTP_PORT": "0"}  # the configured port is the worker's
            if self._endpoint_port is not None:
                self._begin("endpoint", "serve", "--port", str(self._endpoint_port), environment=beside)
            if self._recalibrator_port is not None:
                at = ("--port", str(self._recalibrator_port))
                moving = beside | self._moves("recalibrator")
                self._begin("recalibrator", "recalibrator", *at, environment=moving)
            if self._console_port is not None:
                at = ("--port", str(self._console_port))
                self._begin("console", "console", *at, "--as", _login_name(), environment=beside)
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
        return {"STREAMER_HTTP_ANY_PORT": str(service in self._any_port)}

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        passed = {
            variable_name(group, field): _text(value)
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
