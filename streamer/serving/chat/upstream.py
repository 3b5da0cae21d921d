"""The model behind a gate: where it is, how its answers are sampled, and what a caller gets where none ships."""

import hashlib
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from streamer.errors import UsageError
from streamer.labels.llm.endpoint import ChatEndpoint, TokenLimitName
from streamer.labels.llm.record import Price
from streamer.scoring.steps import Steps
from streamer.signing.canonical_json import canonical_json

InShadow = Literal["hold", "first"]
Tools = Literal["refuse", "judge", "pass-through"]


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """What hands requests on to an upstream: they are those whose best answer there scored in
    [`at_least`, `at_most`].

    `gate` was asked before, with the upstream of this id; `scorer` and `encoder` made its score.
    `at_least` is its upstream's `then_from`, `at_most` its label floor, each in [0, 1].
    """

    gate: str
    upstream: str
    scorer: str
    encoder: str
    at_least: float
    at_most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream(ChatEndpoint):
    """A `ChatEndpoint` with what decides the distribution of its answers. Raises `UsageError` where
    a value is out of its range.

    - `answers`, >= 1, are sampled for each request; never fewer, unless `steps`, `stop_above` and
      `stop_below` say so (see `rule`). `per_request`, >= 1, is the most in one request; None: all
      in one.
    - `temperature`, `top_p` and `max_tokens` are sent with each request; None: not sent. Newer
      models of OpenAI want the `token_limit_name` ``max_completion_tokens``.
    - `system_prompt` is put before the caller's messages; None: the caller's own system messages
      are taken. `price` None: costs are unknown.
    - `hold_message` is what the caller gets where no answer ships, with `hold_status`, in 400..599;
      None: a completion whose `finish_reason` is ``content_filter``. `in_shadow`: what a gate in
      shadow mode answers, the hold message or the first answer.
    - `parameters` says what becomes of a sampling parameter of the caller's that is not this
      upstream's; `schemas` what form requests may ask answers for: ``text``, ``json_object``, the
      first 16 hexadecimal digits of the SHA-256 of a JSON Schema's canonical JSON, or ``any`` for
      whatever is not text.
    - `tools`: requests with tools are refused, or a call is judged as an answer is, or passed
      through unjudged. At most `resample`, >= 0, answers are asked for in place of those of another
      form than was asked for.
    - `cached` says what becomes of answers by several requests of which a cache answered one; they
      are no independent samples.
    - `then` is the gate that gets what this one hands on (`streamer.serving.chat.rungs`), None:
      this one is the last; what scores less than `then_from`, in [0, 1], is held for good.
      `with_earlier`: decide about the answers of the gate before together with these. `after` is
      what handed a request on to this upstream, which decides the distribution of its prompts;
      None: nothing.
    """

    whose: ClassVar[str] = "the upstream's"

    answers: int = 10
    steps: tuple[int, ...] = ()
    stop_above: float | None = None
    stop_below: float | None = None
    per_request: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    token_limit_name: TokenLimitName = "max_tokens"  # noqa: S105
    system_prompt: str | None = None
    price: Price | None = None
    hold_message: str = "No answer can be given to this at the moment."
    hold_status: int | None = None
    parameters: Literal["ignore", "refuse"] = "ignore"
    schemas: tuple[str, ...] = ("text",)
    tools: Tools = "refuse"
    resample: int = 2
    cached: Literal["hold", "accept"] = "hold"
    in_shadow: InShadow = "hold"
    then: str | None = None
    then_from: float = 0.0
    with_earlier: bool = False
    after: After | None = None

    def __post_init__(self) -> None:
        ChatEndpoint.__post_init__(self)
        self._require(
            ("answers", self.answers, self.answers >= 1),
            ("per_request", self.per_request, self.per_request is None or self.per_request >= 1),
        )
        try:
            _ = self.rule
        except ValueError as error:
            raise UsageError(f"{self.whose} {error}") from None

    @property
    def rule(self) -> Steps:
        """After how many answers sampling stops; without steps after all."""
        return Steps(sizes=(*self.steps, self.answers), above=self.stop_above, below=self.stop_below)

    @property
    def sent(self) -> dict[str, object]:
        """What is sent with each request beside the messages, without `n`."""
        chosen = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            self.token_limit_name: self.max_tokens,
        }
        return {"model": self.model} | {name: value for name, value in chosen.items() if value is not None}

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that decides how answers are made, and to which prompts, for the record; the system prompt by its SHA-256."""
        prompt = self.system_prompt
        steps = {"steps": self.steps, "stop_above": self.stop_above, "stop_below": self.stop_below}
        before = None if self.after is None else asdict(self.after)
        rung = {"after": before, "with_earlier": self.with_earlier}
        return (
            (steps if self.steps else {})
            | ({} if before is None else rung)
            | ({} if self.cached == "hold" else {"cached": self.cached})
            | ({"schemas": sorted(self.schemas)} if self.schemas != ("text",) else {})
            | ({"tools": self.tools} if self.tools != "refuse" else {})
            | ({"resample": self.resample} if self.schemas != ("text",) or self.tools != "refuse" else {})
            | {
                "base_url": self.base_url,
                "model": self.model,
                "answers": self.answers,
                "per_request": self.per_request,
                "temperature": self.temperature,
                "top_p": self.top_p,
                "max_tokens": self.max_tokens,
                "system_prompt_sha256": None
                if prompt is None
                else hashlib.sha256(prompt.encode()).hexdigest(),
            }
        )

    @property
    def id(self) -> str:
        """The model's name and the first 8 hexadecimal digits of the SHA-256 of the canonical JSON of `settings`."""
        return f"{self.model}@{hashlib.sha256(canonical_json(self.settings)).hexdigest()[:8]}"
