"""Everything configurable, in one place: where each value comes from, and how it is shown without its secrets.

A setting ``group.field`` (``insecure`` alone has no group) is looked up, in this order, as

1. the environment variable ``STREAMER_GROUP_FIELD``, or the content of the file that
   ``STREAMER_GROUP_FIELD_FILE`` names (for secrets that an orchestrator mounts);
2. the same two names in ``.env`` in the working directory;
3. ``field`` in the table ``[group]`` of ``streamer.toml`` (or of the file that ``STREAMER_CONFIG`` names);
4. the running ``streamer dev`` of this directory, for the addresses only, and only while no broker is configured;
5. its default.

The tables ``[upstreams.GATE]``, one for each gate, stand in ``streamer.toml``, or as one JSON object in
``STREAMER_UPSTREAMS``.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from streamer.errors import UsageError
from streamer.settings.models import (
    BertScoreSettings,
    EncoderSettings,
    Group,
    JudgeSettings,
    PositiveInt,
    RubricSettings,
    SamplingSettings,
    UpstreamSettings,
    setting,
)
from streamer.settings.sources import AS_WRITTEN, entry_type, property_name, setting_sources

_Port = Annotated[int, Field(ge=0, le=65535)]


class DatabaseSettings(Group):
    """Where the record is kept."""

    url: str = setting(
        "sqlite:///.streamer/audit.db",
        "SQLAlchemy URL: `sqlite:///FILE` or `postgresql+psycopg://USER:PASSWORD@HOST/NAME`. Of several hosts "
        "(`...@/NAME?host=A:5432&host=B:5432`) the one that takes writes.",
        repr=False,
    )


class KafkaSettings(Group):
    """How to reach the broker, and what the topics are called."""

    bootstrap_servers: str | None = setting(
        None,
        "`HOST:PORT[,HOST:PORT...]`; without it commands use the `streamer dev` that runs here.",
    )
    log_id: str | None = setting(
        None,
        "Identity of the log, part of every stored offset; by default the Kafka cluster's own id.",
    )
    group_id: str = setting("streamer", "Consumer group of the workers.", min_length=1)
    topic_prefix: str = setting(
        "streamer.", "Prefix of every topic's name.", max_length=200, pattern=r"^[A-Za-z0-9._-]*$"
    )
    partitions: int = setting(4, "Partitions of a topic that `topics create` makes.", ge=1, le=2**31 - 1)
    replication_factor: int = setting(
        -1,
        "Replicas of a topic that `topics create` makes; -1 leaves it to the broker.",
        ge=-1,
        le=2**15 - 1,
    )
    properties: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description=(
            "Kafka client properties by their own names (`security.protocol`, `sasl.mechanism`, "
            "`sasl.username`, `ssl.ca.location`, `client.id`, ...): one JSON object, or one variable each, "
            "like `STREAMER_KAFKA_PROPERTIES_SASL_PASSWORD_FILE`."
        ),
    )

    @field_validator("properties", mode="before")
    @classmethod
    def _as_text(cls, properties: Any) -> Any:
        """Names with dots and values as text, the way Kafka writes both; TOML and JSON have numbers and booleans."""
        if not isinstance(properties, dict):
            return properties
        return {
            property_name(str(name)): str(value).lower()
            if isinstance(value, bool)
            else str(value)
            if isinstance(value, int | float)
            else value
            for name, value in properties.items()
        }


class WorkerSettings(Group):
    """How much a worker takes on at once, and when it gives up."""

    commit_max_records: PositiveInt = setting(1000, "Most records in one database transaction.")
    commit_max_bytes: PositiveInt = setting(16_777_216, "Most bytes of input in one transaction.")
    buffer_max_records: PositiveInt = setting(
        4000, "Records waiting in a worker before it stops reading (back-pressure)."
    )
    buffer_max_bytes: int = setting(
        67_108_864, "Bytes waiting in a worker before it stops reading.", ge=1_048_576
    )
    dead_letter_max_run: PositiveInt = setting(
        1000, "The worker halts after more consecutive refused records than this."
    )
    dead_letter_max_ratio: float = setting(
        0.5, "The worker halts when refused records exceed this share of the last ones.", gt=0, le=1
    )
    dead_letter_window: PositiveInt = setting(
        10_000, "Number of last records over which `dead_letter_max_ratio` is computed."
    )
    candidate_wait_seconds: float = setting(
        0.25,
        "How long a group of decisions waits at most for the scores of candidate policies, in `streamer serve` too; "
        "what has none by then is recorded without.",
        ge=0,
        le=60,
    )


class EventSettings(Group):
    """What an event may hold; whatever is larger becomes a dead letter."""

    max_responses: int = setting(256, "Responses in one batch.", ge=2)
    max_text_bytes: PositiveInt = setting(65_536, "UTF-8 bytes of one response.")
    max_value_bytes: int = setting(1_048_576, "Bytes of a whole event.", ge=1024)


class HttpSettings(Group):
    """Where a service serves `/metrics`, `/healthz` and `/readyz`."""

    host: str = setting("127.0.0.1", "Address to listen on; `0.0.0.0` for all.", min_length=1)
    port: _Port = setting(9464, "Port to listen on; 0 takes any free one and prints it.")
    any_port: bool = setting(
        False,
        "Take any free port where `port` is in use, as `streamer dev` does unless you name one.",
    )


class EndpointSettings(Group):
    """What `streamer serve` takes on at once. How long a request may take: its option `--wait` (docs/endpoint.md)."""

    max_waiting: PositiveInt = setting(
        1000,
        "Requests that wait for their decisions before more are refused (429); chat requests are counted separately.",
    )
    max_waiting_bytes: int = setting(67_108_864, "Bytes of the requests that wait, likewise.", ge=1_048_576)
    max_connections: PositiveInt = setting(
        1000,
        "Connections at once; at most 256 fewer than the process may have files open. One more takes the place of "
        "that which has waited longest for its client.",
    )
    max_connections_per_address: PositiveInt | None = setting(
        None, "Likewise of one address. Unset: seven eighths of all."
    )
    cors_origins: tuple[Annotated[str, Field(pattern=r"^https?://[^/*\s]+$")], ...] = setting(
        (),
        "Origins of pages that may ask from a browser (CORS), as a JSON array of `https://HOST`; a key that a page has "
        "is no secret.",
    )


class OidcSettings(Group):
    """Sign-in at the console by OpenID Connect: the issuer, and how its claims are read."""

    issuer: str | None = setting(
        None,
        "The issuer's own address, like `https://login.example/realms/team`; or `streamer console --oidc`.",
    )
    client_id: str | None = setting(None, "What the issuer calls the console.")
    client_secret: str | None = setting(
        None, "The client's secret; without it the console is a public client.", repr=False
    )
    name_claim: str = setting(
        "email",
        "The claim that has a person's name in the record: one that people cannot choose for themselves. Of `email` only a "
        "verified one counts.",
        min_length=1,
    )
    roles_claim: str | None = setting(
        None,
        "The claim that has a person's roles, like `groups` or `realm_access.roles`; without it people have the roles of "
        "their accounts.",
    )
    roles: dict[str, str] = Field(
        default_factory=dict,
        json_schema_extra=AS_WRITTEN,
        description=(
            'What the values of `roles_claim` mean, one JSON object: `{"risk-team": "approver"}`. Without it they are the '
            "names of roles."
        ),
    )
    scopes: str = setting("openid email profile", "What the issuer is asked for.")
    clock_skew_seconds: float = setting(
        60.0, "By how much the issuer's clock and this machine's may differ.", ge=0, le=600
    )


class AlertSettings(Group):
    """Where the recalibrator sends alerts beside their topic: a webhook, and e-mail."""

    webhook_url: str | None = setting(
        None, "Where alerts are posted, signed as https://www.standardwebhooks.com says."
    )
    webhook_secret: str | None = setting(
        None,
        "What they are signed with: `whsec_` and base64, or a text; 24 bytes or more.",
        repr=False,
    )
    smtp_url: str | None = setting(
        None, "The mail server: `smtps://NAME@host:465`, or `smtp://NAME@host:587` with STARTTLS."
    )
    smtp_password: str | None = setting(None, "Its password, where it asks for one.", repr=False)
    mail_from: str | None = setting(None, "The sender's address.")
    mail_to: tuple[str, ...] = setting((), "Who gets them, as a JSON array of addresses.")
    console_url: str | None = setting(
        None, "The console's address, for links, like `https://streamer.example`."
    )
    timeout_seconds: float = setting(
        10.0, "How long one answer of webhook or mail server may take.", gt=0, le=120
    )


class LoggingSettings(Group):
    """What the services write to standard error."""

    format: Literal["auto", "json", "console"] = setting(
        "auto", "`json` lines, `console` for people; `auto` is console on a terminal."
    )
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = setting("INFO", "The lowest level that is logged.")

    @field_validator("level", mode="before")
    @classmethod
    def _upper(cls, level: Any) -> Any:
        return level.upper() if isinstance(level, str) else level


class AuditSettings(Group):
    """Checkpoints of the record, signed and kept where nobody with access to the database can change them."""

    private_key: str | None = setting(
        None,
        "Ed25519 private key in PEM that signs checkpoints (`streamer audit keygen`): where the recalibrator runs, or "
        "`streamer audit sign`, and nowhere else.",
        repr=False,
    )
    public_keys: str | None = setting(
        None,
        "Public keys in PEM, one block after the other, that checkpoints may be signed with; by default that of "
        "`private_key`.",
    )
    checkpoint_file: str | None = setting(
        None, "File outside the database that checkpoints are appended to, one JSON a line."
    )
    checkpoint_every_seconds: float = setting(
        300.0, "Seconds between two checkpoints that are published and appended to the file.", gt=0
    )
    sign_every_seconds: float = setting(
        1.0, "Seconds between two checkpoints while the record grows; witnesses cosign each.", gt=0
    )
    witnesses: tuple[str, ...] = setting(
        (),
        "Who cosigns checkpoints (https://c2sp.org/tlog-witness), as a JSON array of `NAME+HASH+KEY https://...`: the "
        "witness's verifier key and its address.",
    )


class PolicySettings(Group):
    """Signed policies: who may make them, and which of them workers obey."""

    private_key: str | None = setting(
        None,
        "Ed25519 private key in PEM that signs policies (`streamer audit keygen`): where people and the recalibrator "
        "make them, not where workers run.",
        repr=False,
    )
    public_keys: str | None = setting(
        None,
        "Public keys in PEM, one block after the other. With them only policies that one of them signed are obeyed "
        "and built on; by default that of `private_key`. Without either nothing is signed.",
    )
    give_up_signing: bool = setting(
        False, "Without a private key, make unsigned policies even where the present one is signed."
    )


class LabelSettings(Group):
    """Signed labels: whose labels are signed here, and whose signatures are valid for gates that demand them."""

    private_keys: str | None = setting(
        None,
        "Private keys of labellers, as `streamer label keygen` writes them, one block after the other: a line "
        "`labeller: NAME` and an Ed25519 key in PEM. Labels of these labellers are signed here.",
        repr=False,
    )
    public_keys: str | None = setting(
        None,
        "Public keys of labellers in the same form (`FILE.pub`). Of a gate that demands signed labels only those are "
        "read that one of its labeller's keys signed; by default the keys that belong to `private_keys`. Needed "
        "wherever labels are read: recalibrator, review page, commands.",
    )


class Settings(BaseSettings):
    """All settings, read when it is made; immutable. See the module's text for where values come
    from.

    `insecure` permits connections without encryption or whose other end is not verified. `origins`
    says in words for people, for each ``group.field`` (or ``kafka.properties.name``) that did not
    keep its default, where its value came from.
    """

    model_config = SettingsConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    insecure: bool = setting(
        False,
        "Permit connections to other machines without TLS, or without verifying the peer. "
        "For networks that nobody else can reach; `streamer --insecure` permits them for one command.",
    )
    database: DatabaseSettings = DatabaseSettings()
    kafka: KafkaSettings = KafkaSettings()
    worker: WorkerSettings = WorkerSettings()
    encoder: EncoderSettings = EncoderSettings()
    judge: JudgeSettings = JudgeSettings()
    sampling: SamplingSettings = SamplingSettings()
    bertscore: BertScoreSettings = BertScoreSettings()
    events: EventSettings = EventSettings()
    http: HttpSettings = HttpSettings()
    endpoint: EndpointSettings = EndpointSettings()
    audit: AuditSettings = AuditSettings()
    policies: PolicySettings = PolicySettings()
    labels: LabelSettings = LabelSettings()
    oidc: OidcSettings = OidcSettings()
    alerts: AlertSettings = AlertSettings()
    logging: LoggingSettings = LoggingSettings()
    upstreams: dict[str, UpstreamSettings] = Field(
        default_factory=dict,
        description="The models behind gates, one table `[upstreams.GATE]` for each.",
    )
    rubrics: dict[str, RubricSettings] = Field(
        default_factory=dict,
        description="What severities mean at gates, for people who label, one table `[rubrics.GATE]` for each.",
    )
    origins: dict[str, str] = Field(default_factory=dict, repr=False, exclude=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Put this package's own sources in place of the stock ones, which do not know where a value came from."""
        return (init_settings, *setting_sources(settings_cls))

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address. Raises `UsageError` where nobody configured one and no `streamer
        dev` runs in this directory."""
        if self.kafka.bootstrap_servers is None:
            raise UsageError(
                "no Kafka broker is configured and no `streamer dev` runs in this directory; "
                "start `streamer dev`, or set STREAMER_KAFKA_BOOTSTRAP_SERVERS"
            )
        return self.kafka.bootstrap_servers


def load_settings(**overrides: Any) -> Settings:
    """Read the settings of this process and directory; `overrides`, groups as dictionaries
    (``http={"port": 0}``), win over every other source. Raises `UsageError` where a value is not
    acceptable; the text names the setting and where it came from, never the value."""
    try:
        return Settings(**overrides)
    except ValidationError as error:
        # The failed instance knew which source gave what, and is lost: ask the sources again.
        origins: dict[str, str] = {}
        for source in reversed(setting_sources(Settings)):
            origins |= source().get("origins", {})
        lines = []
        for problem in error.errors(include_input=False, include_url=False, include_context=False):
            loc, fault = problem["loc"], problem["msg"]
            setting = ".".join(str(part) for part in loc)
            table = entry_type(Settings.model_fields[str(loc[0])]) if len(loc) == 3 else None
            if problem["type"] == "extra_forbidden" and table is not None:
                fault = f"there is no such setting; known are {', '.join(table.model_fields)}"
            place = origins.get(setting) or origins.get(str(loc[0]) if loc else "")
            lines.append(f"{setting}{f' ({place})' if place else ''}: {fault}")
        raise UsageError(
            "the settings are invalid: " + "; ".join(lines) + ". See `streamer config show --help`"
        ) from None
