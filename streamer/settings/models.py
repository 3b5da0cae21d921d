"""Settings of language models: encoders, judges, samplers, the models behind gates; and what every group of settings is."""

from decimal import Decimal  # pydantic reads it
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

PositiveInt = Annotated[int, Field(ge=1)]
_RequestSeconds = Annotated[
    float,
    Field(gt=0, le=3600, description="For one request, from its start to the last byte of its reply."),
]
_ReplyPrice = Annotated[Decimal | None, Field(ge=0, description="Price of a million reply tokens.")]
_LimitParameter = Literal["max_tokens", "max_completion_tokens"]


class Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def setting(default: Any, text: str, **bounds: Any) -> Any:
    """Declare a setting by its default, what it is, and the bounds of its value."""
    return Field(default, description=text, **bounds)


def _check_prices(said: Any) -> Any:
    if (said.price_per_million_input is None) != (said.price_per_million_output is None):
        raise ValueError("give price_per_million_input and price_per_million_output, or neither")
    return said


class EncoderSettings(Group):
    """The model that turns answers into vectors."""

    name: str = setting(
        "all-MiniLM-L6-v2",
        "Encoder of new gates and of this worker: a packaged name, a folder, or `organisation/model@revision`, and "
        "`+ctranslate2` or `+sentence-transformers` for its engine; `openai:MODEL` or `openai:MODEL@DIMENSION` for one at "
        "an endpoint. `none`: a worker for events that bring embeddings or scores.",
        min_length=1,
    )
    candidate: str | None = setting(
        None,
        "Another encoder, named alike, that this worker runs too: for candidate policies, and for gates calibrated with it.",
        min_length=1,
    )
    device: str = setting(
        "cpu",
        "`cpu`; with the engine sentence-transformers also `cuda`, `cuda:1`, `mps`.",
        min_length=1,
    )
    cache_texts: int = setting(100_000, "Number of latest texts whose vectors are cached in memory.", ge=0)
    threads: int | None = setting(
        None, "CPU threads of the encoder; by default as many as it may use, at most 32.", ge=1
    )
    base_url: str | None = setting(
        None,
        "Base URL of the endpoint of `openai:MODEL`, including the version, like `https://api.openai.com/v1`. It gets "
        "the answers' texts.",
    )
    api_key: str | None = setting(
        None, "The endpoint's key, if it asks for one; better in a file.", repr=False
    )
    timeout_seconds: _RequestSeconds = 10.0
    tries: PositiveInt = setting(
        4,
        "Attempts at one request while the endpoint is busy, failing or unavailable; a worker repeats the whole "
        "group instead.",
    )
    wait_seconds: float = setting(
        300.0,
        "How long a worker waits for an endpoint that does not answer; then it holds batches "
        "(`scorer_failed`) until it does.",
        ge=0,
    )
    concurrency: int = setting(8, "Most requests in flight, of up to 128 texts.", ge=1, le=1000)
    price_per_million: Decimal | None = setting(
        None, "Price of a million tokens; with it, costs are reported.", ge=0
    )


class _Asked(Group):
    base_url: str | None = setting(
        None,
        "Base URL including the version, like `https://api.openai.com/v1`; without it no model is asked.",
    )
    model: str | None = setting(None, "The model's name at the endpoint.")


class JudgeSettings(_Asked):
    """The language model that `streamer label judge` asks, and workers for gates with `--scorer judge`, at any OpenAI-compatible
    endpoint."""

    api_key: str | None = setting(
        None, "The endpoint's key, if it asks for one; better in a file.", repr=False
    )
    temperature: float = setting(0.2, "Temperature of the replies.", ge=0, le=2)
    max_tokens: PositiveInt = setting(200, "Most tokens of one reply.")
    limit_parameter: _LimitParameter = setting(
        "max_tokens", "The endpoint's name for that limit; newer OpenAI models require the second."
    )
    seed: int = setting(7, "Sent with each request; also the order of the rubric's examples.")
    json_mode: bool = setting(False, "Ask the endpoint to constrain replies to JSON; not every one can.")
    timeout_seconds: _RequestSeconds = 60.0
    tries: PositiveInt = setting(
        6, "Attempts at one question while the endpoint is busy, failing or unavailable."
    )
    concurrency: int = setting(8, "Most requests in flight.", ge=1, le=1000)
    score_seconds: float = setting(
        10.0,
        "How long a worker waits for the marks of what it decides together, for gates with `--scorer judge`; a "
        "batch that has none then is held (`no_mark`). Everything else on its partitions waits as long at most.",
        gt=0,
        le=600,
    )
    score_requests_per_minute: PositiveInt = setting(
        600,
        "Most requests of a worker for such marks in a minute, further tries and reminders included; what would need "
        "more is held (`no_mark`).",
    )
    price_per_million_input: Decimal | None = setting(
        None, "Price of a million request tokens; with the next one, costs are reported.", ge=0
    )
    price_per_million_output: _ReplyPrice = None

    _both_prices = model_validator(mode="after")(_check_prices)


class SamplingSettings(_Asked):
    """The language models that `streamer sample` asks, at any OpenAI-compatible endpoints."""

    api_key: str | None = setting(
        None, "The endpoint's key, where one host is asked; better in a file.", repr=False
    )
    api_keys: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description=(
            "Keys by host, where several are asked; each is sent only to its host: one JSON object, or one variable "
            "each, like `STREAMER_SAMPLING_API_KEYS_API_TOGETHER_XYZ_FILE` for `api.together.xyz`."
        ),
    )
    limit_parameter: _LimitParameter = setting(
        "max_tokens",
        "The endpoint's name for the token limit; if it refuses one, the other is used.",
    )
    timeout_seconds: _RequestSeconds = 60.0
    tries: PositiveInt = setting(
        6, "Attempts at one request while the endpoint is busy, failing or unavailable."
    )
    concurrency: int = setting(8, "Most requests in flight at each endpoint.", ge=1, le=1000)
    requests_per_minute: float | None = setting(
        None, "Most requests a minute to each endpoint, evenly spread.", gt=0
    )
    tokens_per_minute: float | None = setting(
        None, "Most tokens a minute at each endpoint, of requests and replies together.", gt=0
    )

    @field_validator("api_keys", mode="after")
    @classmethod
    def _by_host(cls, keys: dict[str, str]) -> dict[str, str]:
        return {host.lower(): key for host, key in keys.items()}


class RubricSettings(Group):
    """What the severities mean at a gate, shown beneath the buttons of the page where people label."""

    fine: str | None = setting(None, "Of severity 0, in place of `Right and harmless`.", max_length=120)
    half: str | None = setting(
        None, "Of severity 0.5, in place of `Partly wrong; two count as one worst`.", max_length=120
    )
    worst: str | None = setting(None, "Of severity 1, in place of `Wrong or harmful`.", max_length=120)


class UpstreamSettings(Group):
    """The model behind a gate, for `POST /v1/chat/completions` of `streamer serve`: any OpenAI-compatible endpoint."""

    base_url: str = Field(description="Base URL including the version, like `https://api.openai.com/v1`.")
    model: str = Field(min_length=1, max_length=160, description="The model's name at the endpoint.")
    key_variable: str | None = setting(
        None,
        "Name of the environment variable that holds the endpoint's key, like `OPENAI_API_KEY`; with `_FILE` "
        "after the name, of the file that does.",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
    )
    answers: int = setting(
        10,
        "Answers that are sampled for each request; fewer only with `steps`. 1 is for `--scorer likelihood`.",
        ge=1,
        le=256,
    )
    steps: tuple[int, ...] = setting(
        (), "Numbers of answers at which sampling may stop earlier, like `[3, 6, 12]`."
    )
    stop_above: float | None = setting(
        None, "Stop at a step where the best score is at least this.", gt=0, le=1
    )
    stop_below: float | None = setting(
        None, "Stop at a step where the best score is at most this.", ge=0, lt=1
    )
    per_request: int | None = setting(
        None, "Most answers in one upstream request (`n`); by default all in one.", ge=1
    )
    temperature: float | None = setting(
        None, "Sent with each upstream request; by default none is.", ge=0, le=2
    )
    top_p: float | None = setting(None, "Likewise.", gt=0, le=1)
    max_tokens: int | None = setting(None, "Most tokens of one answer; likewise.", ge=1)
    limit_parameter: _LimitParameter = setting(
        "max_tokens", "The endpoint's name for that limit; if it refuses one, the other is used."
    )
    system_prompt: str | None = setting(
        None,
        "Put before the caller's messages, which may then hold none of their own.",
        min_length=1,
    )
    timeout_seconds: float = setting(
        60.0,
        "For one upstream request, from its start to the last byte of its reply.",
        gt=0,
        le=3600,
    )
    tries: PositiveInt = setting(
        3, "Attempts at one upstream request while the endpoint is busy, failing or unavailable."
    )
    concurrency: int = setting(32, "Most upstream requests in flight.", ge=1, le=1000)
    price_per_million_input: Decimal | None = setting(
        None, "Price of a million request tokens; with the next one, costs are recorded.", ge=0
    )
    price_per_million_output: _ReplyPrice = None
    hold_message: str = setting(
        "No answer can be given to this at the moment.",
        "What the caller gets in place of an answer that is held.",
        min_length=1,
    )
    hold_status: int | None = setting(
        None,
        "HTTP status of a hold; by default 200 and a completion with `finish_reason` `content_filter`.",
        ge=400,
        le=599,
    )
    parameters: Literal["ignore", "refuse"] = setting(
        "ignore",
        "What becomes of a sampling parameter of the caller's that is not the upstream's: the answer says that it was "
        "ignored, or the request gets 400.",
    )
    schemas: tuple[Annotated[str, Field(pattern=r"^(text|json_object|any|[0-9a-f]{16})$")], ...] = setting(
        ("text",),
        "What form requests may ask answers for: `text`, `json_object`, JSON Schemas by the first 16 hexadecimal digits of "
        "their SHA-256, which a refusal names, or `any` for whatever is not text.",
        min_length=1,
    )
    tools: Literal["refuse", "judge", "pass-through"] = setting(
        "refuse",
        "What becomes of requests with tools: they get 400; a call is judged as an answer is; or calls go out "
        "unjudged, in shadow mode too, which is on record, and texts are judged.",
    )
    resample: int = setting(
        2,
        "Most answers that are sampled in place of those of another form than was asked for.",
        ge=0,
        le=256,
    )
    cached: Literal["hold", "accept"] = setting(
        "hold",
        "What becomes of answers by several requests of which a cache answered one, by its headers or by an id that "
        "another reply has: they are no independent samples.",
    )
    in_shadow: Literal["hold", "first"] = setting(
        "hold",
        "What a gate in shadow mode answers where no call passes through: the hold message, or the first answer, which no "
        "gate has judged.",
    )
    then: str | None = setting(
        None,
        "The gate that is asked, with an upstream of its own, about what scores at most this gate's label floor; "
        "`streamer plan --rungs` finds the floor and the budgets.",
    )
    then_from: float = setting(
        0.0,
        "Hold what scores less than this for good: the next gate would hardly ship it.",
        ge=0,
        le=1,
    )
    with_earlier: bool = setting(
        False,
        "Decide about the answers of the gate that handed the request on together with this one's own.",
    )

    _both_prices = model_validator(mode="after")(_check_prices)


class BertScoreSettings(Group):
    """The model by which `streamer label bertscore` compares answers with references."""

    model: str = setting(
        "roberta-large",
        "A folder with a model, or a name on the Hugging Face hub, `name@revision`.",
        min_length=1,
    )
    layers: int | None = setting(
        None,
        "The layer that is compared; by default the one that `bert-score` knows is best.",
        ge=1,
    )
    rescale: bool = setting(
        True, "Rescale so that unrelated texts score 0, as in the paper; needs a baseline."
    )
    baseline_file: str | None = setting(
        None,
        "CSV with the columns LAYER and F, for a model that `bert-score` ships no baseline of.",
    )
    batch_size: PositiveInt = setting(64, "Texts in one pass of the model.")
    device: str = setting("auto", "`auto`, `cpu`, `cuda`, `cuda:1`, `mps`.", min_length=1)
