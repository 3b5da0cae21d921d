"""Apache Kafka for tests: one KRaft node started from its own jars, on loopback, with faults on demand."""

import atexit
import fcntl
import os
import re
import shutil
import signal
import socket
import string
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from tests.run_folder import made_once
from tests.services.certificates import Authority, Certificate
from tests.services.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / ".services" / "kafka"
_PROPERTIES = ROOT / "deploy" / "kafka" / "server.properties"

# The broker lives for seconds to minutes on a shared machine: a small heap, one collector thread and the
# quick compiler start it sooner than the defaults, which are meant for servers.
_JVM = (
    "-Xms128m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


def what_kafka_needs() -> tuple[str, str] | None:
    """What is missing to start Kafka here and how to get it; None when all is there."""
    if shutil.which("java") is None:
        return "no java", "apt-get install default-jre-headless, or any Java 17+"
    if not any(JARS.glob("kafka_*.jar")):
        if shutil.which("mvn") is None:
            return "no Apache Kafka jars and no mvn", "apt-get install maven, then make services"
        return "no Apache Kafka jars", "make services"
    return None


def _cluster_id() -> str:
    """A random UUID in Kafka's notation; a leading dash would read as an option."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")


@dataclass(frozen=True)
class BrokerSecurity:
    """What turns a node into one that asks who is there and what they may do.

    Three listeners join the plain one: SASL_SSL with SCRAM-SHA-256 and -512, SSL that demands a client's
    certificate and takes its common name for the principal, and SASL_SSL with OAUTHBEARER, which believes unsigned
    tokens. On these only what an ACL allows is allowed; the plain one, which the node itself and a test's admin use,
    may do everything.

    Attributes
    ----------
    authority : whose certificates the node shows and trusts.
    certificate : the node's own.
    users : passwords by name, for SCRAM.
    scram_port, mtls_port, oauth_port : of the three listeners.
    """

    authority: Authority
    certificate: Certificate
    users: Mapping[str, str]
    scram_port: int = field(default_factory=free_port)
    mtls_port: int = field(default_factory=free_port)
    oauth_port: int = field(default_factory=free_port)

    def properties(self, port: int, controller_port: int) -> str:
        """The node's properties that differ."""
        more = (
            f"SCRAM://127.0.0.1:{self.scram_port},MTLS://127.0.0.1:{self.mtls_port},"
            f"OAUTH://127.0.0.1:{self.oauth_port}"
        )
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return "\n".join(
            (
                "",
                f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port},{more}",
                f"advertised.listeners=PLAINTEXT://127.0.0.1:{port},{more}",
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SCRAM:SASL_SSL,MTLS:SSL,"
                "OAUTH:SASL_SSL",
                "listener.name.oauth.sasl.enabled.mechanisms=OAUTHBEARER",
                "listener.name.oauth.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer."
                'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
                "listener.name.scram.sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512",
                f"listener.name.scram.scram-sha-256.sasl.jaas.config={module}",
                f"listener.name.scram.scram-sha-512.sasl.jaas.config={module}",
                "listener.name.mtls.ssl.client.auth=required",
                "listener.name.mtls.ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/",
                "ssl.keystore.type=PEM",
                f"ssl.keystore.location={self.certificate.both}",
                "ssl.truststore.type=PEM",
                f"ssl.truststore.location={self.authority.certificate}",
                "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users=User:ANONYMOUS",
                "",
            )
        )

    def scram_records(self) -> list[str]:
        """Arguments that write the users into storage when it is formatted."""
        return [
            argument
            for name, password in self.users.items()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
        ]


def _class_archive() -> tuple[str, ...]:
    """Options that load Kafka's classes from an archive, which halves the processor time of a start (JEP 350).

    It lies beside the jars. Whoever finds none makes it, once, while the others go without.
    """
    archive = JARS / "classes.jsa"
    if not archive.exists():
        with (JARS / ".classes.lock").open("w") as lock, suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            made = JARS / "classes.jsa.new"
            teacher = KafkaBroker(options=(f"-XX:ArchiveClassesAtExit={made}",))
            try:
                teacher.start()
                teacher.create_topic("any")
                teacher.stop(within=120.0)  # it writes the archive as it ends
            finally:
                teacher.remove()
            with suppress(FileNotFoundError):
                made.rename(archive)
    return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable") if archive.exists() else ()


def _copy_formatted(folder: Path, cluster_id: str) -> None:
    """Copy storage that was formatted once in this run, which takes a JVM, as that of another cluster."""

    def make(formatted: Path) -> None:
        broker = KafkaBroker(options=_class_archive())
        shutil.copytree(broker.folder / "data", formatted)
        broker.remove()

    shutil.copytree(made_once("kafka", make), folder)
    properties = folder / "meta.properties"
    text, found = re.subn(r"(?m)^cluster\.id=.*$", f"cluster.id={cluster_id}", properties.read_text())
    assert found == 1
    properties.write_text(text)


class KafkaBroker:
    """One Kafka node with its own folder (below `parent`), ports and cluster id, which all survive a restart.

    Attributes
    ----------
    bootstrap : ``127.0.0.1:port``, the same for the whole life; plain text.
    security : what it asks on its other listeners, if it has any.
    cluster_id : the id that the storage was formatted with.
    log : the file that the broker's warnings and errors go to.
    """

    def __init__(
        self,
        *,
        ready_within: float = 180.0,
        security: BrokerSecurity | None = None,
        options: Sequence[str] | None = None,
        parent: Path | None = None,
    ) -> None:
        self.security = security
        self._options = _class_archive() if options is None else tuple(options)
        self.folder = Path(tempfile.mkdtemp(prefix="streamer-kafka-", dir=parent))
        self.log = self.folder / "broker.log"
        self.cluster_id = _cluster_id()
        self._port = free_port()
        self.bootstrap = f"127.0.0.1:{self._port}"
        self._ready_within = ready_within
        self._process: subprocess.Popen[bytes] | None = None
        self._properties = self.folder / "server.properties"
        controller_port = free_port()
        self._properties.write_text(
            string.Template(_PROPERTIES.read_text()).substitute(
                folder=self.folder / "data", port=self._port, controller_port=controller_port
            )
            + ("" if security is None else security.properties(self._port, controller_port))
            # Lets a worker ask to be missed sooner than after six seconds, so that tests of killed ones wait less.
            + "\ngroup.min.session.timeout.ms=1000\n"
            # Nobody follows the metadata log here: without a record twice a second an idle node costs half as much.
            + "metadata.max.idle.interval.ms=0\n"
        )
        atexit.register(self.remove)
        if security is None and options is None:
            _copy_formatted(self.folder / "data", self.cluster_id)
        else:
            self._format(*([] if security is None else security.scram_records()))

    @property
    def running(self) -> bool:
        """Whether the broker's process is alive (a paused one is)."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The broker's process id; raises when it does not run."""
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError("the broker does not run")
        return self._process.pid

    def start(self) -> None:
        """Start on the present data and return once the broker answers clients.

        Raises
        ------
        RuntimeError
            When the process ended or was not ready in time; the message carries the end of its log.
        """
        if self.running:
            return
        self._process = self._java("kafka.Kafka", str(self._properties), options=self._options)
        deadline = time.monotonic() + self._ready_within
        while not self._answers():
            if not self.running or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Kafka did not become ready; the end of its log:\n{self.log_tail()}")
            time.sleep(0.05)

    def stop(self, *, within: float = 30.0) -> None:
        """Shut down in order (SIGTERM): the broker writes everything out first."""
        self._end(signal.SIGTERM, within=within)

    def kill(self) -> None:
        """Kill at once (SIGKILL), as a lost machine would; what the operating system holds survives."""
        self._end(signal.SIGKILL, within=10.0)

    def restart(self) -> None:
        """Stop if need be, then start on the same data and the same port."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): connections stay open and nothing answers, until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen process go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def remove(self) -> None:
        """Stop for good and delete the folder. Safe to repeat."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.remove)

    def add_log_folder(self) -> Path:
        """A second folder for partitions, from the next start on, which takes those that are made first then.

        Remove it, and its partitions lose their leader as soon as the broker wants to write a file there.
        """
        first, second = self.folder / "data", self.folder / "data-2"
        with self._properties.open("a") as properties:
            properties.write(f"\nlog.dirs={first},{second}\nmetadata.log.dir={first}\n")
        self._format("--ignore-formatted")
        return second

    def create_topic(self, name: str, partitions: int = 1, **config: object) -> str:
        """Make a topic, wait until each of its partitions has a leader, and return its name.

        Configuration keys may be written with underscores: ``cleanup_policy="compact"``.
        """
        configs = {key.replace("_", "."): str(value) for key, value in config.items()}
        admin = self.admin()
        try:
            admin.create_topics(
                {name: {"num_partitions": partitions, "replication_factor": 1, "configs": configs}},
                timeout_ms=20_000,
                wait_for_metadata=True,
            )
        finally:
            admin.close()
        return name

    def delete_topics(self, names: Sequence[str]) -> None:
        admin = self.admin()
        try:
            admin.delete_topics(list(names), timeout_ms=20_000)
        finally:
            admin.close()

    def admin(self) -> KafkaAdminClient:
        """A new admin client; close it."""
        return KafkaAdminClient(bootstrap_servers=self.bootstrap)

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of the broker's log."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _format(self, *more: str) -> None:
        arguments = ("format", "-t", self.cluster_id, "-c", str(self._properties), *more)
        archived = () if "-XX:ArchiveClassesAtExit" in " ".join(self._options) else self._options
        if self._java("kafka.tools.StorageTool", *arguments, options=archived).wait(180) != 0:
            raise RuntimeError(f"Kafka's storage could not be formatted:\n{self.log_tail()}")

    def _java(self, main: str, *arguments: str, options: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C in the test run must not reach the broker before the fixtures do.
            return subprocess.Popen(
                ["java", *_JVM, *options, "-cp", f"{JARS}/*", main, *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1.0):
                pass
        except OSError:
            return False
        try:
            admin = self.admin()
        except KafkaError:
            return False
        try:
            return len(admin.describe_cluster()["brokers"]) == 1
        except KafkaError:
            return False
        finally:
            admin.close()

    def _end(self, how: signal.Signals, *, within: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            os.kill(process.pid, signal.SIGCONT)  # a frozen process takes no other signal than SIGKILL
            os.kill(process.pid, how)
        try:
            process.wait(within)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10.0)
