"""Where the judge is and how it is asked: an OpenAI-compatible endpoint, its model, its bounds, its prices."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

from streamer.labels.judge.rubric import SEED
from streamer.labels.llm.endpoint import ChatEndpoint, TokenLimitName
from streamer.labels.llm.record import Price


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeEndpoint(ChatEndpoint):
    """How the judge is reached and asked: a `ChatEndpoint` with the paper's decoding parameters.

    A parameter that the model says it does not take is left out from then on; every exchange holds
    what was sent. `temperature` is in [0, 2], `top_p` in (0, 1], `max_tokens` of a reply >= 1;
    newer models of OpenAI want `token_limit_name` ``max_completion_tokens``. `seed` is sent with
    each request (None: not sent), and orders the anchors; endpoints promise no more than to try to
    answer alike under one seed. `json_mode` asks for replies in JSON; not every endpoint knows how.
    Without the model's price in `prices`, costs are unknown.

    Raises `UsageError` when a value is out of its range.
    """

    whose: ClassVar[str] = "the judge's"

    temperature: float = 0.2
    top_p: float = 1.0
    max_tokens: int = 200
    seed: int | None = SEED
    token_limit_name: TokenLimitName = "max_tokens"  # noqa: S105
    json_mode: bool = False
    prices: Mapping[str, Price] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        ChatEndpoint.__post_init__(self)
        self._require(
            ("temperature", self.temperature, 0.0 <= self.temperature <= 2.0),
            ("top_p", self.top_p, 0.0 < self.top_p <= 1.0),
            ("max_tokens", self.max_tokens, self.max_tokens >= 1),
        )

    @property
    def parameters(self) -> Mapping[str, object]:
        """What is sent with each request beside the messages."""
        parameters: dict[str, object] = {
            "model": self.model,
            "temperature": self.temperature,
            "top_p": self.top_p,
            self.token_limit_name: self.max_tokens,
        }
        if self.seed is not None:
            parameters["seed"] = self.seed
        if self.json_mode:
            parameters["response_format"] = {"type": "json_object"}
        return MappingProxyType(parameters)
