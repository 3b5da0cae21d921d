"""How to reach the broker: one value, in Kafka's own property names, for every client library, and tokens for SASL OAUTHBEARER,
read anew for each connection.
"""

import asyncio
import contextlib
import inspect
import re
import shlex
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from streamer.errors import UsageError
from streamer.stream.log_limits import drop_farewells
from streamer_client.loopback import is_loopback

SECONDS: Final = 10.0
"""How long the command may take."""

_REUSED_SECONDS: Final = 5.0
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_MOST_CHARACTERS: Final = 1_000_000


class NoToken(OSError):
    """There is no token now. Clients take it for a lost connection and try again."""


class Tokens(Protocol):
    """Where tokens come from."""

    def token(self) -> str:
        """The token for a new connection. Blocks; raises `NoToken`."""


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file that always holds a token which is good for a while."""

    path: Path

    def token(self) -> str:
        """Read the file."""
        try:
            with self.path.open(encoding="ascii", errors="replace") as file:
                text = file.read(_MOST_CHARACTERS)
        except OSError as error:
            raise NoToken(f"cannot read the token in {self.path}: {error.strerror}") from None
        return _checked(text, f"the file {self.path}")


class TokenCommand:
    """A command, words as a shell would part them, that prints a token; it is run without a
    shell. Connections that are opened together share one run. Raises `ValueError` where it has
    no words, or a quote without its end."""

    def __init__(self, command: str) -> None:
        self._words = shlex.split(command)
        if not self._words:
            raise ValueError("it is empty")
        self._turn = threading.Lock()
        self._newest: tuple[float, str] | None = None

    def token(self) -> str:
        """Run the command, or return what it printed within the last few seconds."""
        with self._turn:
            if self._newest is None or time.monotonic() - self._newest[0] > _REUSED_SECONDS:
                found = self._run()
                self._newest = time.monotonic(), found
            return self._newest[1]

    def _run(self) -> str:
        name = f"the command {self._words[0]} for a token"
        try:
            done = subprocess.run(  # noqa: S603 - the operator's own setting, and without a shell
                self._words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NoToken(f"{name} took longer than {SECONDS:g} s") from None
        except OSError as error:
            raise NoToken(f"{name} cannot be run: {error.strerror}") from None
        if done.returncode:
            # Its last line alone: nobody knows what a command prints before.
            said = done.stderr.strip().splitlines()[-1:]
            raise NoToken(
                f"{name} ended with status {done.returncode}" + "".join(f": {line[:200]}" for line in said)
            )
        return _checked(done.stdout, f"the output of {self._words[0]}")


def _checked(text: str, where: str) -> str:
    token = text.strip()
    if _TOKEN.fullmatch(token) is None:
        raise NoToken(f"{where} is no token: it must have the characters of RFC 6750 alone, on one line")
    return token


def aiokafka_provider(tokens: Tokens) -> Any:
    """Return tokens as aiokafka asks for them: on its event loop, which must not wait."""
    from aiokafka.abc import AbstractTokenProvider

    class AiokafkaProvider(AbstractTokenProvider):
        async def token(self) -> str:
            return await asyncio.get_running_loop().run_in_executor(None, tokens.token)

    return AiokafkaProvider()


def kafka_python_provider(tokens: Tokens) -> Any:
    """Return tokens as kafka-python asks for them: in its own thread."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class KafkaPythonProvider(AbstractTokenProvider):
        def token(self) -> str:
            return tokens.token()

    return KafkaPythonProvider()  # type: ignore[no-untyped-call]


_ADDRESS = re.compile(r"(?P<host>\[[\w:.%]+\]|[\w.-]+)(:(?P<port>[0-9]{1,5}))?")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_TOKEN_FILE, _TOKEN_COMMAND = "sasl.oauthbearer.token.location", "sasl.oauthbearer.token.command"
_SECURITY = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.username",
        "sasl.password",
        _TOKEN_FILE,
        _TOKEN_COMMAND,
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
    }
)


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """Where the broker is, ``host:port[,host:port...]``, and how to talk to it.

    `properties` are Kafka's. Security is written as librdkafka does (``security.protocol``,
    ``sasl.mechanism``, ``sasl.username``, ``sasl.password``, ``ssl.ca.location``,
    ``ssl.certificate.location``, ``ssl.key.location``, ``ssl.key.password``,
    ``ssl.endpoint.identification.algorithm``), with ``sasl.oauthbearer.token.location`` (a file) or
    ``sasl.oauthbearer.token.command`` for tokens of OAUTHBEARER; any other one (``client.id``,
    ``request.timeout.ms``, ``metadata.max.age.ms``, ...) goes to each client library that knows it.
    `api_version` is the protocol level that kafka-python assumes; None asks the broker, and the
    embedded one needs it stated. `insecure` permits connections without TLS to hosts off the
    loopback.

    Raises `UsageError` for a property that no client knows, a protocol or mechanism that does not
    exist, credentials without SASL, or a plain connection off the loopback that was not allowed;
    and, when arguments for a client are asked for, for a certificate or key that cannot be read.
    """

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_version: tuple[int, ...] | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        if not self.servers:
            raise UsageError("the Kafka bootstrap address is empty; give host:port")
        for server in self.servers:
            if not _is_address(server):
                raise UsageError(f"{server!r} is no Kafka bootstrap address: give host:port")
        if self.protocol not in _PROTOCOLS:
            raise UsageError(
                f"security.protocol must be one of {', '.join(_PROTOCOLS)}, not {self.protocol!r}"
            )
        if self._uses_sasl:
            if self._mechanism not in _MECHANISMS:
                raise UsageError(
                    f"sasl.mechanism must be one of {', '.join(_MECHANISMS)}, not {self._mechanism!r}"
                )
            if self._mechanism == "OAUTHBEARER":
                self._tokens()
            elif not (self.properties.get("sasl.username") and self.properties.get("sasl.password")):
                raise UsageError(f"{self.protocol} needs sasl.username and sasl.password")
        elif any(name.startswith("sasl.") for name in self.properties):
            raise UsageError(f"sasl properties are given, but security.protocol is {self.protocol}")
        if not self._uses_tls and not self.insecure:
            exposed = [server for server in self.servers if not _is_loopback(server)]
            if exposed:
                raise UsageError(
                    f"refusing to talk to {', '.join(exposed)} without TLS: set security.protocol to SSL or "
                    "SASL_SSL, or, if that network is trusted, say `streamer --insecure ...` (STREAMER_INSECURE=true)"
                )
        if self._passed_through:
            known = _known_properties()
            unknown = sorted(
                name
                for name in self.properties
                if name not in _SECURITY and name.replace(".", "_") not in known
            )
            if unknown:
                raise UsageError(f"no Kafka client of ours takes the property {', '.join(unknown)}")

    @property
    def servers(self) -> list[str]:
        """The bootstrap addresses, one by one."""
        return [server.strip() for server in self.bootstrap.split(",") if server.strip()]

    @property
    def protocol(self) -> str:
        """Kafka's security protocol, upper case."""
        return self.properties.get("security.protocol", "PLAINTEXT").upper()

    @property
    def _uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def _uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def _mechanism(self) -> str:
        return self.properties.get("sasl.mechanism", "PLAIN").upper()

    @property
    def _passed_through(self) -> dict[str, str]:
        return {
            name.replace(".", "_"): value for name, value in self.properties.items() if name not in _SECURITY
        }

    def for_aiokafka(self, client: Callable[..., Any]) -> dict[str, Any]:
        """Arguments for an aiokafka client class; what is passed through is what its signature knows."""
        known = inspect.signature(client).parameters
        return self._shared(aiokafka_provider) | self._coerced(
            {name: parameter.default for name, parameter in known.items()},
        )

    def for_kafka_python(self, client: Any) -> dict[str, Any]:
        """Arguments for a kafka-python client class (what its ``DEFAULT_CONFIG`` knows)."""
        drop_farewells()
        arguments = self._shared(kafka_python_provider) | self._coerced(client.DEFAULT_CONFIG)
        if self.api_version is not None:
            arguments["api_version"] = self.api_version
        return arguments

    def _tokens(self) -> Tokens:
        """Return where tokens come from. Raises `UsageError` unless that is said in one way."""
        file, command = self.properties.get(_TOKEN_FILE), self.properties.get(_TOKEN_COMMAND)
        if (file is None) == (command is None):
            raise UsageError(f"OAUTHBEARER needs {_TOKEN_FILE} or {_TOKEN_COMMAND}, one of them")
        if file is not None:
            return TokenFile(Path(file))
        try:
            return TokenCommand(command or "")
        except ValueError as error:
            raise UsageError(f"{_TOKEN_COMMAND} is no command: {error}") from None

    def _shared(self, provider: Callable[[Tokens], Any]) -> dict[str, Any]:
        arguments: dict[str, Any] = {"bootstrap_servers": self.servers, "security_protocol": self.protocol}
        if self._uses_tls:
            authority = self.properties.get("ssl.ca.location")
            certificate = self.properties.get("ssl.certificate.location")
            key = self.properties.get("ssl.key.location")
            with _readable("ssl.ca.location", authority):
                context = ssl.create_default_context(cafile=authority)
            if certificate is not None:
                # A key without its password would make OpenSSL ask for it on the terminal.
                password = self.properties.get("ssl.key.password", "")
                with _readable("ssl.certificate.location and ssl.key.location", f"{certificate} and {key}"):
                    context.load_cert_chain(certificate, key, password)
            elif key is not None:
                raise UsageError("ssl.key.location is given without ssl.certificate.location")
            if self.properties.get("ssl.endpoint.identification.algorithm", "https").lower() in ("", "none"):
                context.check_hostname = False
            arguments["ssl_context"] = context
        if self._uses_sasl and self._mechanism == "OAUTHBEARER":
            arguments |= {
                "sasl_mechanism": self._mechanism,
                "sasl_oauth_token_provider": provider(self._tokens()),
            }
        elif self._uses_sasl:
            arguments |= {
                "sasl_mechanism": self._mechanism,
                "sasl_plain_username": self.properties["sasl.username"],
                "sasl_plain_password": self.properties["sasl.password"],
            }
        return arguments

    def _coerced(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for name, text in self._passed_through.items():
            if name in defaults:
                arguments[name] = _like(defaults[name], name, text)
        return arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The topics, of responses and labels alike, that the members of a consumer group read for
    the decider. Whoever reads partition 0 of the first also publishes what commands left in the
    outbox. `log_id` identifies the log in the stored progress; by default the cluster's id."""

    connection: KafkaConnection
    topics: Sequence[str]
    group_id: str
    log_id: str | None = None


@contextlib.contextmanager
def _readable(properties: str, files: str | None) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError as error:
        raise UsageError(
            f"{properties}: {files} hold nothing that TLS can use ({error.reason or error})"
        ) from None
    except OSError as error:
        raise UsageError(f"{properties}: cannot read {files}: {error.strerror}") from None


def _is_address(server: str) -> bool:
    parts = _ADDRESS.fullmatch(server)
    return parts is not None and (parts["port"] is None or 1 <= int(parts["port"]) <= 65_535)


def _is_loopback(server: str) -> bool:
    parts = _ADDRESS.fullmatch(server)
    return parts is not None and is_loopback(parts["host"])


def _like(default: object, name: str, text: str) -> object:
    """`text` in the type of `default`, which is the client library's own default for `name`."""
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.strip().lower()]
        if isinstance(default, int) or name.endswith(("_ms", "_bytes")):
            return int(text)
        if isinstance(default, float):
            return float(text)
    except (KeyError, ValueError):
        raise UsageError(f"{text!r} is no value for the Kafka property {name.replace('_', '.')}") from None
    return text


def _known_properties() -> frozenset[str]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    # The product sets these itself: letting them through would break what it promises.
    ours = {
        "bootstrap_servers", "acks", "enable_idempotence", "group_id", "isolation_level", "auto_offset_reset",
        "enable_auto_commit", "transactional_id", "api_version", "partition_assignment_strategy",
        "max_request_size",
    }  # fmt: skip
    # And these are objects, not text.
    objects = {
        "key_serializer", "value_serializer", "key_deserializer", "value_deserializer", "loop", "partitioner",
        "selector", "socket_options", "metric_reporters", "kafka_client", "consumer_timeout_ms",
    }  # fmt: skip
    signatures: Iterable[Any] = (AIOKafkaConsumer, AIOKafkaProducer)
    names = {name for client in signatures for name in inspect.signature(client).parameters}
    for client in (KafkaAdminClient, KafkaConsumer, KafkaProducer):
        names |= set(client.DEFAULT_CONFIG)
    # Security has one spelling, which reaches every client; a library's own spelling would reach only one.
    return frozenset(name for name in names - ours - objects if not name.startswith(("ssl_", "sasl_")))
