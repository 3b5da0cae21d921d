"""Where the judge is and how it is asked: an OpenAI-compatible endpoint, its model, its bounds, its prices."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from streamer.errors import UsageError
from streamer.judge.rubric import SEED
from streamer.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamer.judge.record import Price


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeEndpoint:
    """How the judge is reached and asked. The decoding parameters are the paper's.

    Attributes
    ----------
    model : the model's name at the endpoint.
    base_url : up to and with the version, for example ``https://api.together.xyz/v1``.
    api_key : the endpoint's key; empty for one that asks for none. Never shown.
    temperature : in [0, 2].
    top_p : in (0, 1].
    max_tokens : most tokens of a reply, >= 1.
    seed : sent with each request (None: not sent), and the order of the anchors. Endpoints promise no more than to
        try to answer alike under one seed.
    token_limit_name : newer models of OpenAI want ``max_completion_tokens``.
    json_mode : ask the endpoint to constrain replies to JSON; not every endpoint knows how.
    concurrency : most requests in flight, >= 1.
    tries : most times that one question is put to an endpoint that is busy, failing or away, >= 1.
    timeout : seconds for one request, from its start to the last byte of its reply.
    first_delay, longest_delay : seconds to wait after a failure; doubled after each further one, up to the longest.
        An endpoint that says how long to wait is obeyed up to the longest delay.
    prices : by model name; without the model's, costs are unknown.
    allow_plaintext : permit ``http`` to a host that is not this machine.

    Raises
    ------
    UsageError : a value is out of its range.
    """

    model: str = "gpt-4o-mini"
    base_url: str = field(default="https://api.openai.com/v1", repr=False)
    api_key: str = field(default="", repr=False)
    temperature: float = 0.2
    top_p: float = 1.0
    max_tokens: int = 200
    seed: int | None = SEED
    token_limit_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"  # noqa: S105
    json_mode: bool = False
    concurrency: int = 8
    tries: int = 6
    timeout: float = 60.0
    first_delay: float = 0.5
    longest_delay: float = 60.0
    prices: Mapping[str, Price] = field(default_factory=lambda: MappingProxyType({}))
    allow_plaintext: bool = False

    def __post_init__(self) -> None:
        for name, value, in_range in (
            ("model", self.model, bool(self.model.strip())),
            ("temperature", self.temperature, 0.0 <= self.temperature <= 2.0),
            ("top_p", self.top_p, 0.0 < self.top_p <= 1.0),
            ("max_tokens", self.max_tokens, self.max_tokens >= 1),
            ("concurrency", self.concurrency, self.concurrency >= 1),
            ("tries", self.tries, self.tries >= 1),
            ("timeout", self.timeout, 0.0 < self.timeout < math.inf),
            ("first_delay", self.first_delay, 0.0 <= self.first_delay <= self.longest_delay),
            ("longest_delay", self.longest_delay, self.longest_delay < math.inf),
        ):
            if not in_range:
                raise UsageError(f"the judge's {name} cannot be {value!r}")
        _check_url(self.base_url, allow_plaintext=self.allow_plaintext)

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


def _check_url(url: str, *, allow_plaintext: bool) -> None:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        parts, host = None, None
    if parts is None or parts.scheme not in ("http", "https") or not host:
        raise UsageError("the judge's base_url must look like https://HOST/v1")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise UsageError(
            "the judge's base_url must be without user, password, query and fragment: use api_key"
        )
    if parts.scheme == "http" and not (allow_plaintext or is_loopback(host)):
        raise UsageError(
            f"prompts, answers and the key would travel unencrypted to {host}: use https, or permit it with "
            "allow_plaintext (`streamer --insecure`)"
        )
