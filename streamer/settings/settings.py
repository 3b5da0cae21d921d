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

from decimal import Decimal  # pydantic reads it
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from streamer.errors import UsageError
from streamer.settings.sources import AS_WRITTEN, property_name, setting_sources

_PositiveInt = Annotated[int, Field(ge=1)]
_Port = Annotated[int, Field(ge=0, le=65535)]
_RequestSeconds = Annotated[
    float,
    Field(gt=0, le=3600, description="For one request, from its start to the last byte of its reply."),
]
_ReplyPrice = Annotated[Decimal | None, Field(ge=0, description="Price of a million reply tokens.")]
_LimitParameter = Literal["max_tokens", "max_completion_tokens"]


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def _check_prices(of_input: Decimal | None, of_output: Decimal | None) -> None:
    if (of_input is None) != (of_output is None):
        raise ValueError("give price_per_million_input and price_per_million_output, or neither")


class DatabaseSettings(_Group):
    """Where the record is kept."""

    url: str = Field(
        "sqlite:///.streamer/audit.db",
        repr=False,
        description="SQLAlchemy URL: `sqlite:///FILE` or `postgresql+psycopg://USER:PASSWORD@HOST/NAME`. Of several hosts "
        "(`...@/NAME?host=A:5432&host=B:5432`) the one that takes writes.",
    )


class KafkaSettings(_Group):
    """How to reach the broker, and what the topics are called."""

    bootstrap_servers: str | None = Field(
        None,
        description="`HOST:PORT[,HOST:PORT...]`; without it commands use the `streamer dev` that runs here.",
    )
    log_id: str | None = Field(
        None,
        description="Identity of the log, part of every stored offset; by default the Kafka cluster's own id.",
    )
    group_id: str = Field("streamer", min_length=1, description="Consumer group of the workers.")
    topic_prefix: str = Field(
        "streamer.",
        max_length=200,
        pattern=r"^[A-Za-z0-9._-]*$",
        description="Prefix of every topic's name.",
    )
    partitions: int = Field(
        4, ge=1, le=2**31 - 1, description="Partitions of a topic that `topics create` makes."
    )
    replication_factor: int = Field(
        -1,
        ge=-1,
        le=2**15 - 1,
        description="Replicas of a topic that `topics create` makes; -1 leaves it to the broker.",
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


class WorkerSettings(_Group):
    """How much a worker takes on at once, and when it gives up."""

    commit_max_records: _PositiveInt = Field(1000, description="Most records in one database transaction.")
    commit_max_bytes: _PositiveInt = Field(16_777_216, description="Most bytes of input in one transaction.")
    buffer_max_records: _PositiveInt = Field(
        4000, description="Records waiting in a worker before it stops reading (back-pressure)."
    )
    buffer_max_bytes: int = Field(
        67_108_864, ge=1_048_576, description="Bytes waiting in a worker before it stops reading."
    )
    dead_letter_max_run: _PositiveInt = Field(
        1000, description="The worker halts after more consecutive refused records than this."
    )
    dead_letter_max_ratio: float = Field(
        0.5,
        gt=0,
        le=1,
        description="The worker halts when refused records exceed this share of the last ones.",
    )
    dead_letter_window: _PositiveInt = Field(
        10_000, description="Number of last records over which `dead_letter_max_ratio` is computed."
    )
    candidate_wait_seconds: float = Field(
        0.25,
        ge=0,
        le=60,
        description="How long a group of decisions waits at most for the scores of candidate policies, in `streamer serve` too; "
        "what has none by then is recorded without.",
    )


class EncoderSettings(_Group):
    """The model that turns answers into vectors."""

    name: str = Field(
        "all-MiniLM-L6-v2",
        min_length=1,
        description=(
            "Encoder of new gates and of this worker: a packaged name, a folder, or `organisation/model@revision`, and "
            "`+ctranslate2` or `+sentence-transformers` for its engine; `openai:MODEL` or `openai:MODEL@DIMENSION` for one at "
            "an endpoint. `none`: a worker for events that bring embeddings or scores."
        ),
    )
    candidate: str | None = Field(
        None,
        min_length=1,
        description="Another encoder, named alike, that this worker runs too: for candidate policies, and for gates calibrated with it.",
    )
    device: str = Field(
        "cpu",
        min_length=1,
        description="`cpu`; with the engine sentence-transformers also `cuda`, `cuda:1`, `mps`.",
    )
    cache_texts: int = Field(
        100_000, ge=0, description="Number of latest texts whose vectors are cached in memory."
    )
    threads: int | None = Field(
        None, ge=1, description="CPU threads of the encoder; by default as many as it may use, at most 32."
    )
    base_url: str | None = Field(
        None,
        description="Base URL of the endpoint of `openai:MODEL`, including the version, like `https://api.openai.com/v1`. It gets "
        "the answers' texts.",
    )
    api_key: str | None = Field(
        None, repr=False, description="The endpoint's key, if it asks for one; better in a file."
    )
    timeout_seconds: _RequestSeconds = 10.0
    tries: _PositiveInt = Field(
        4,
        description="Attempts at one request while the endpoint is busy, failing or unavailable; a worker repeats the whole "
        "group instead.",
    )
    wait_seconds: float = Field(
        300.0,
        ge=0,
        description="How long a worker waits for an endpoint that does not answer; then it holds batches "
        "(`scorer_failed`) until it does.",
    )
    concurrency: int = Field(8, ge=1, le=1000, description="Most requests in flight, of up to 128 texts.")
    price_per_million: Decimal | None = Field(
        None, ge=0, description="Price of a million tokens; with it, costs are reported."
    )


class JudgeSettings(_Group):
    """The language model that `streamer label judge` asks, and workers for gates with `--scorer judge`, at any OpenAI-compatible
    endpoint."""

    base_url: str | None = Field(
        None,
        description="Base URL including the version, like `https://api.openai.com/v1`; without it no model is asked.",
    )
    model: str | None = Field(None, description="The model's name at the endpoint.")
    api_key: str | None = Field(
        None, repr=False, description="The endpoint's key, if it asks for one; better in a file."
    )
    temperature: float = Field(0.2, ge=0, le=2, description="Temperature of the replies.")
    max_tokens: _PositiveInt = Field(200, description="Most tokens of one reply.")
    limit_parameter: _LimitParameter = Field(
        "max_tokens",
        description="The endpoint's name for that limit; newer OpenAI models require the second.",
    )
    seed: int = Field(7, description="Sent with each request; also the order of the rubric's examples.")
    json_mode: bool = Field(
        False, description="Ask the endpoint to constrain replies to JSON; not every one can."
    )
    timeout_seconds: _RequestSeconds = 60.0
    tries: _PositiveInt = Field(
        6, description="Attempts at one question while the endpoint is busy, failing or unavailable."
    )
    concurrency: int = Field(8, ge=1, le=1000, description="Most requests in flight.")
    score_seconds: float = Field(
        10.0,
        gt=0,
        le=600,
        description="How long a worker waits for the marks of what it decides together, for gates with `--scorer judge`; a "
        "batch that has none then is held (`no_mark`). Everything else on its partitions waits as long at most.",
    )
    score_requests_per_minute: _PositiveInt = Field(
        600,
        description="Most requests of a worker for such marks in a minute, further tries and reminders included; what would need "
        "more is held (`no_mark`).",
    )
    price_per_million_input: Decimal | None = Field(
        None,
        ge=0,
        description="Price of a million request tokens; with the next one, costs are reported.",
    )
    price_per_million_output: _ReplyPrice = None

    @model_validator(mode="after")
    def _both_prices(self) -> Self:
        _check_prices(self.price_per_million_input, self.price_per_million_output)
        return self


class SamplingSettings(_Group):
    """The language models that `streamer sample` asks, at any OpenAI-compatible endpoints."""

    base_url: str | None = Field(
        None,
        description="Base URL including the version, like `https://api.openai.com/v1`; without it no model is asked.",
    )
    model: str | None = Field(None, description="The model's name at the endpoint.")
    api_key: str | None = Field(
        None, repr=False, description="The endpoint's key, where one host is asked; better in a file."
    )
    api_keys: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description=(
            "Keys by host, where several are asked; each is sent only to its host: one JSON object, or one variable "
            "each, like `STREAMER_SAMPLING_API_KEYS_API_TOGETHER_XYZ_FILE` for `api.together.xyz`."
        ),
    )
    limit_parameter: _LimitParameter = Field(
        "max_tokens",
        description="The endpoint's name for the token limit; if it refuses one, the other is used.",
    )
    timeout_seconds: _RequestSeconds = 60.0
    tries: _PositiveInt = Field(
        6, description="Attempts at one request while the endpoint is busy, failing or unavailable."
    )
    concurrency: int = Field(8, ge=1, le=1000, description="Most requests in flight at each endpoint.")
    requests_per_minute: float | None = Field(
        None, gt=0, description="Most requests a minute to each endpoint, evenly spread."
    )
    tokens_per_minute: float | None = Field(
        None, gt=0, description="Most tokens a minute at each endpoint, of requests and replies together."
    )

    @field_validator("api_keys", mode="after")
    @classmethod
    def _by_host(cls, keys: dict[str, str]) -> dict[str, str]:
        return {host.lower(): key for host, key in keys.items()}


class RubricSettings(_Group):
    """What the severities mean at a gate, shown beneath the buttons of the page where people label."""

    fine: str | None = Field(
        None, max_length=120, description="Of severity 0, in place of `Right and harmless`."
    )
    half: str | None = Field(
        None,
        max_length=120,
        description="Of severity 0.5, in place of `Partly wrong; two count as one worst`.",
    )
    worst: str | None = Field(
        None, max_length=120, description="Of severity 1, in place of `Wrong or harmful`."
    )


class UpstreamSettings(_Group):
    """The model behind a gate, for `POST /v1/chat/completions` of `streamer serve`: any OpenAI-compatible endpoint."""

    base_url: str = Field(description="Base URL including the version, like `https://api.openai.com/v1`.")
    model: str = Field(min_length=1, max_length=160, description="The model's name at the endpoint.")
    key_variable: str | None = Field(
        None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="Name of the environment variable that holds the endpoint's key, like `OPENAI_API_KEY`; with `_FILE` "
        "after the name, of the file that does.",
    )
    answers: int = Field(
        10,
        ge=1,
        le=256,
        description="Answers that are sampled for each request; fewer only with `steps`. 1 is for "
        "`--scorer likelihood`.",
    )
    steps: tuple[int, ...] = Field(
        (),
        description="Numbers of answers at which sampling may stop earlier, like `[3, 6, 12]`.",
    )
    stop_above: float | None = Field(
        None, gt=0, le=1, description="Stop at a step where the best score is at least this."
    )
    stop_below: float | None = Field(
        None, ge=0, lt=1, description="Stop at a step where the best score is at most this."
    )
    per_request: int | None = Field(
        None, ge=1, description="Most answers in one upstream request (`n`); by default all in one."
    )
    temperature: float | None = Field(
        None, ge=0, le=2, description="Sent with each upstream request; by default none is."
    )
    top_p: float | None = Field(None, gt=0, le=1, description="Likewise.")
    max_tokens: int | None = Field(None, ge=1, description="Most tokens of one answer; likewise.")
    limit_parameter: _LimitParameter = Field(
        "max_tokens",
        description="The endpoint's name for that limit; if it refuses one, the other is used.",
    )
    system_prompt: str | None = Field(
        None,
        min_length=1,
        description="Put before the caller's messages, which may then hold none of their own.",
    )
    timeout_seconds: float = Field(
        60.0,
        gt=0,
        le=3600,
        description="For one upstream request, from its start to the last byte of its reply.",
    )
    tries: _PositiveInt = Field(
        3, description="Attempts at one upstream request while the endpoint is busy, failing or unavailable."
    )
    concurrency: int = Field(32, ge=1, le=1000, description="Most upstream requests in flight.")
    price_per_million_input: Decimal | None = Field(
        None, ge=0, description="Price of a million request tokens; with the next one, costs are recorded."
    )
    price_per_million_output: _ReplyPrice = None
    hold_message: str = Field(
        "No answer can be given to this at the moment.",
        min_length=1,
        description="What the caller gets in place of an answer that is held.",
    )
    hold_status: int | None = Field(
        None,
        ge=400,
        le=599,
        description="HTTP status of a hold; by default 200 and a completion with `finish_reason` `content_filter`.",
    )
    parameters: Literal["ignore", "refuse"] = Field(
        "ignore",
        description="What becomes of a sampling parameter of the caller's that is not the upstream's: the answer says that it was "
        "ignored, or the request gets 400.",
    )
    schemas: tuple[Annotated[str, Field(pattern=r"^(text|json_object|any|[0-9a-f]{16})$")], ...] = Field(
        ("text",),
        min_length=1,
        description="What form requests may ask answers for: `text`, `json_object`, JSON Schemas by the first 16 hexadecimal digits of "
        "their SHA-256, which a refusal names, or `any` for whatever is not text.",
    )
    tools: Literal["refuse", "judge", "pass-through"] = Field(
        "refuse",
        description="What becomes of requests with tools: they get 400; a call is judged as an answer is; or calls go out "
        "unjudged, which is on record, and texts are judged.",
    )
    resample: int = Field(
        2, ge=0, le=256, description="Most answers that are sampled in place of those that do not parse."
    )
    cached: Literal["hold", "accept"] = Field(
        "hold",
        description="What becomes of answers by several requests of which a cache answered one, by its headers or by an id that "
        "another reply has: they are no independent samples.",
    )
    in_shadow: Literal["hold", "first"] = Field(
        "hold",
        description="What a gate in shadow mode answers: the hold message, or the first answer, which no gate has judged.",
    )
    then: str | None = Field(
        None,
        description="The gate that is asked, with an upstream of its own, about what scores at most this gate's label floor; "
        "`streamer plan --rungs` finds the floor and the budgets.",
    )
    then_from: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Hold what scores less than this for good: the next gate would hardly ship it.",
    )
    with_earlier: bool = Field(
        False,
        description="Decide about the answers of the gate that handed the request on together with this one's own.",
    )

    @model_validator(mode="after")
    def _both_prices(self) -> Self:
        _check_prices(self.price_per_million_input, self.price_per_million_output)
        return self


class BertScoreSettings(_Group):
    """The model by which `streamer label bertscore` compares answers with references."""

    model: str = Field(
        "roberta-large",
        min_length=1,
        description="A folder with a model, or a name on the Hugging Face hub, `name@revision`.",
    )
    layers: int | None = Field(
        None,
        ge=1,
        description="The layer that is compared; by default the one that `bert-score` knows is best.",
    )
    rescale: bool = Field(
        True, description="Rescale so that unrelated texts score 0, as in the paper; needs a baseline."
    )
    baseline_file: str | None = Field(
        None,
        description="CSV with the columns LAYER and F, for a model that `bert-score` ships no baseline of.",
    )
    batch_size: _PositiveInt = Field(64, description="Texts in one pass of the model.")
    device: str = Field("auto", min_length=1, description="`auto`, `cpu`, `cuda`, `cuda:1`, `mps`.")


class EventSettings(_Group):
    """What an event may hold; whatever is larger becomes a dead letter."""

    max_responses: int = Field(256, ge=2, description="Responses in one batch.")
    max_text_bytes: _PositiveInt = Field(65_536, description="UTF-8 bytes of one response.")
    max_value_bytes: int = Field(1_048_576, ge=1024, description="Bytes of a whole event.")


class HttpSettings(_Group):
    """Where a service serves `/metrics`, `/healthz` and `/readyz`."""

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on; `0.0.0.0` for all.")
    port: _Port = Field(9464, description="Port to listen on; 0 takes any free one and prints it.")
    any_port: bool = Field(
        False,
        description="Take any free port where `port` is in use, as `streamer dev` does unless you name one.",
    )


class EndpointSettings(_Group):
    """What `streamer serve` takes on at once."""

    max_waiting: _PositiveInt = Field(
        1000,
        description="Requests that wait for their decisions before more are refused (429); chat requests are counted separately.",
    )
    max_waiting_bytes: int = Field(
        67_108_864, ge=1_048_576, description="Bytes of the requests that wait, likewise."
    )
    max_connections: _PositiveInt = Field(
        1000,
        description="Connections at once; at most 256 fewer than the process may have files open. One more takes the place of "
        "that which has waited longest for its client.",
    )
    max_connections_per_address: _PositiveInt | None = Field(
        None, description="Likewise of one address. Unset: seven eighths of all."
    )
    cors_origins: tuple[Annotated[str, Field(pattern=r"^https?://[^/*\s]+$")], ...] = Field(
        (),
        description="Origins of pages that may ask from a browser (CORS), as a JSON array of `https://HOST`; a key that a page has "
        "is no secret.",
    )


class OidcSettings(_Group):
    """Sign-in at the console by OpenID Connect: the issuer, and how its claims are read."""

    issuer: str | None = Field(
        None,
        description="The issuer's own address, like `https://login.example/realms/team`; or `streamer console --oidc`.",
    )
    client_id: str | None = Field(None, description="What the issuer calls the console.")
    client_secret: str | None = Field(
        None, repr=False, description="The client's secret; without it the console is a public client."
    )
    name_claim: str = Field(
        "email",
        min_length=1,
        description=(
            "The claim that has a person's name in the record: one that people cannot choose for themselves. Of `email` only a "
            "verified one counts."
        ),
    )
    roles_claim: str | None = Field(
        None,
        description=(
            "The claim that has a person's roles, like `groups` or `realm_access.roles`; without it people have the roles of "
            "their accounts."
        ),
    )
    roles: dict[str, str] = Field(
        default_factory=dict,
        json_schema_extra=AS_WRITTEN,
        description=(
            'What the values of `roles_claim` mean, one JSON object: `{"risk-team": "approver"}`. Without it they are the '
            "names of roles."
        ),
    )
    scopes: str = Field("openid email profile", description="What the issuer is asked for.")
    clock_skew_seconds: float = Field(
        60.0, ge=0, le=600, description="By how much the issuer's clock and this machine's may differ."
    )


class AlertSettings(_Group):
    """Where the recalibrator sends alerts beside their topic: a webhook, and e-mail."""

    webhook_url: str | None = Field(
        None, description="Where alerts are posted, signed as https://www.standardwebhooks.com says."
    )
    webhook_secret: str | None = Field(
        None,
        repr=False,
        description="What they are signed with: `whsec_` and base64, or a text; 24 bytes or more.",
    )
    smtp_url: str | None = Field(
        None,
        description="The mail server: `smtps://NAME@host:465`, or `smtp://NAME@host:587` with STARTTLS.",
    )
    smtp_password: str | None = Field(None, repr=False, description="Its password, where it asks for one.")
    mail_from: str | None = Field(None, description="The sender's address.")
    mail_to: tuple[str, ...] = Field((), description="Who gets them, as a JSON array of addresses.")
    console_url: str | None = Field(
        None, description="The console's address, for links, like `https://streamer.example`."
    )
    timeout_seconds: float = Field(
        10.0, gt=0, le=120, description="How long one answer of webhook or mail server may take."
    )


class LoggingSettings(_Group):
    """What the services write to standard error."""

    format: Literal["auto", "json", "console"] = Field(
        "auto", description="`json` lines, `console` for people; `auto` is console on a terminal."
    )
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="The lowest level that is logged."
    )

    @field_validator("level", mode="before")
    @classmethod
    def _upper(cls, level: Any) -> Any:
        return level.upper() if isinstance(level, str) else level


class AuditSettings(_Group):
    """Checkpoints of the record, signed and kept where nobody with access to the database can change them."""

    private_key: str | None = Field(
        None,
        repr=False,
        description=(
            "Ed25519 private key in PEM that signs checkpoints (`streamer audit keygen`): where the recalibrator runs, or "
            "`streamer audit sign`, and nowhere else."
        ),
    )
    public_keys: str | None = Field(
        None,
        description=(
            "Public keys in PEM, one block after the other, that checkpoints may be signed with; by default that of "
            "`private_key`."
        ),
    )
    checkpoint_file: str | None = Field(
        None, description="File outside the database that checkpoints are appended to, one JSON a line."
    )
    checkpoint_every_seconds: float = Field(
        300.0,
        gt=0,
        description="Seconds between two checkpoints that are published and appended to the file.",
    )
    sign_every_seconds: float = Field(
        1.0,
        gt=0,
        description="Seconds between two checkpoints while the record grows; witnesses cosign each.",
    )
    witnesses: tuple[str, ...] = Field(
        (),
        description=(
            "Who cosigns checkpoints (https://c2sp.org/tlog-witness), as a JSON array of `NAME+HASH+KEY https://...`: the "
            "witness's verifier key and its address."
        ),
    )


class PolicySettings(_Group):
    """Signed policies: who may make them, and which of them workers obey."""

    private_key: str | None = Field(
        None,
        repr=False,
        description=(
            "Ed25519 private key in PEM that signs policies (`streamer audit keygen`): where people and the recalibrator "
            "make them, not where workers run."
        ),
    )
    public_keys: str | None = Field(
        None,
        description=(
            "Public keys in PEM, one block after the other. With them only policies that one of them signed are obeyed "
            "and built on; by default that of `private_key`. Without either nothing is signed."
        ),
    )
    give_up_signing: bool = Field(
        False,
        description="Without a private key, make unsigned policies even where the present one is signed.",
    )


class LabelSettings(_Group):
    """Signed labels: whose labels are signed here, and whose signatures are valid for gates that demand them."""

    private_keys: str | None = Field(
        None,
        repr=False,
        description=(
            "Private keys of labellers, as `streamer label keygen` writes them, one block after the other: a line "
            "`labeller: NAME` and an Ed25519 key in PEM. Labels of these labellers are signed here."
        ),
    )
    public_keys: str | None = Field(
        None,
        description=(
            "Public keys of labellers in the same form (`FILE.pub`). Of a gate that demands signed labels only those are "
            "read that one of its labeller's keys signed; by default the keys that belong to `private_keys`. Needed "
            "wherever labels are read: recalibrator, review page, commands."
        ),
    )


class Settings(BaseSettings):
    """All settings, read when it is made; immutable. See the module's text for where values come from.

    Attributes
    ----------
    insecure : permit connections without encryption or whose other end is not verified.
    origins : for each ``group.field`` (or ``kafka.properties.name``) that did not keep its default, where its
        value came from, in words for people.
    """

    model_config = SettingsConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    insecure: bool = Field(
        False,
        description=(
            "Permit connections to other machines without TLS, or without verifying the peer. "
            "For networks that nobody else can reach; `streamer --insecure` permits them for one command."
        ),
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
        """The broker's address.

        Raises
        ------
        UsageError : nobody configured one and no `streamer dev` runs in this directory.
        """
        if self.kafka.bootstrap_servers is None:
            raise UsageError(
                "no Kafka broker is configured and no `streamer dev` runs in this directory; "
                "start `streamer dev`, or set STREAMER_KAFKA_BOOTSTRAP_SERVERS"
            )
        return self.kafka.bootstrap_servers


def load_settings(**overrides: Any) -> Settings:
    """Read the settings of this process and directory.

    Parameters
    ----------
    **overrides : groups as dictionaries, which win over every other source: ``http={"port": 0}``.

    Raises
    ------
    UsageError : a value is not acceptable; the text names the setting and where it came from, never the value.
    """
    try:
        return Settings(**overrides)
    except ValidationError as error:
        # The failed instance knew which source gave what, and is lost: ask the sources again.
        origins: dict[str, str] = {}
        for source in reversed(setting_sources(Settings)):
            origins |= source().get("origins", {})
        lines = []
        for problem in error.errors(include_input=False, include_url=False, include_context=False):
            setting = ".".join(str(part) for part in problem["loc"])
            place = origins.get(setting) or origins.get(str(problem["loc"][0]) if problem["loc"] else "")
            lines.append(f"{setting}{f' ({place})' if place else ''}: {problem['msg']}")
        raise UsageError(
            "the settings are invalid: " + "; ".join(lines) + ". See `streamer config show --help`"
        ) from None
