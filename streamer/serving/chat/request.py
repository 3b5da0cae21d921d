"""A chat completion request as it is read: what the gate can answer for, and a clear refusal of everything else."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec

from streamer.events import codes
from streamer.events.responses import UPSTREAM
from streamer.labels.llm.record import Message, Role
from streamer.serving.problems import Problem
from streamer.signing.canonical_json import canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamer.serving.chat.upstream import Upstream

MODEL_PREFIX: Final = "gate/"

OWN_METADATA: Final = (UPSTREAM, "sampling")
"""Keys of a batch's metadata that say how its answers were made; reserved."""

_ROLES: Final[tuple[str, ...]] = get_args(Role)
_TAKEN: Final = frozenset({"model", "messages", "stream", "stream_options", "metadata"})
_NOT_SENT: Final = frozenset(
    {"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "store"}
)
"""What says nothing about the answers is taken and not passed on."""
_OF_THE_UPSTREAM: Final[Mapping[str, str]] = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
}
"""Sampling parameters, and the upstream's setting of each."""
_OF_NOBODY: Final = frozenset(
    {
        "frequency_penalty",
        "logit_bias",
        "min_p",
        "prediction",
        "presence_penalty",
        "reasoning",
        "reasoning_effort",
        "repetition_penalty",
        "seed",
        "service_tier",
        "stop",
        "top_k",
        "verbosity",
    }
)
"""Sampling parameters for which no upstream has a setting."""
_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "n": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "stop": ([],),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none",),
    "function_call": ("none",),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "service_tier": ("auto", "default"),
}
"""Values that ask for nothing."""
_TOOLS: Final = (
    "tool calls are not gated; let the model call tools at its own endpoint, and ask the gate with what they returned in the "
    "text of a message"
)
_ADVICE: Final[Mapping[str, str]] = {
    "n": "one answer is returned; how many are sampled is `answers` of the gate's upstream",
    "logprobs": "the answer that is returned was chosen among several, and log probabilities do not say how",
    "top_logprobs": "the answer that is returned was chosen among several, and log probabilities do not say how",
    "tools": _TOOLS,
    "functions": _TOOLS,
    "tool_choice": _TOOLS,
    "function_call": _TOOLS,
    "audio": "only text is gated",
    "modalities": "only text is gated",
    "response_format": "ask for the format in the upstream's system prompt",
}


class ChatProblem(Problem):
    """A problem with a request; `param` is the parameter that it is about."""

    def __init__(self, status: int, code: str, detail: str, *, param: str | None = None) -> None:
        super().__init__(status, code, detail)
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What is asked of a gate.

    Attributes
    ----------
    gate : that decides.
    messages : the conversation, at least one message.
    metadata : of the caller, kept with the batch, where a gate with segments reads it.
    sampling : the sampling parameters that the caller names.
    stream : whether the answer is to come as server-sent events.
    usage_chunk : whether the last of these tells the usage.
    asked : the whole body, in the words of its protocol.
    size : bytes of the request's body.
    """

    gate: str
    messages: tuple[Message, ...]
    metadata: Mapping[str, str]
    sampling: Mapping[str, object]
    stream: bool
    usage_chunk: bool
    asked: Mapping[str, Any]
    size: int

    @property
    def prompt(self) -> str:
        """The batch's prompt: the text of a lone user message, or all messages, each after a line with its role."""
        if len(self.messages) == 1 and self.messages[0].role == "user":
            return self.messages[0].content
        return "\n\n".join(f"[{message.role}]\n{message.content}" for message in self.messages)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical JSON of the messages, as pairs of role and text: what makes a repeat the same."""
        return hashlib.sha256(
            canonical_json([[message.role, message.content] for message in self.messages])
        ).digest()

    def ignored(self, upstream: Upstream) -> dict[str, object]:
        """Return the caller's sampling parameters that are not this upstream's."""
        return {name: value for name, value in self.sampling.items() if value != _own(upstream, name)}

    def check(self, upstream: Upstream) -> None:
        """Refuse what would make the answers those of other settings than the upstream's. Raises `ChatProblem`."""
        if upstream.parameters == "refuse":
            for name in self.ignored(upstream):
                own = _own(upstream, name)
                stands = "sends none" if own is None else f"samples with {own}"
                raise unsupported(
                    name,
                    f"the gate is calibrated on answers of its upstream, which {stands}; leave {name} out",
                )
        if upstream.system_prompt is not None and any(
            message.role in ("system", "developer") for message in self.messages
        ):
            raise unsupported(
                "messages", "the system prompt is the gate's own: leave system and developer messages out"
            )


def read(raw: bytes, as_chat: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> ChatRequest:
    """Read a request's body, which `as_chat` makes one of `POST /v1/chat/completions`.

    Raises `ChatProblem` for what is none, or asks for what a gate cannot answer for.
    """
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ChatProblem(400, codes.NOT_JSON, f"the body is not JSON: {error}") from None
    except RecursionError:
        raise ChatProblem(
            400, codes.TOO_DEEPLY_NESTED, "the body's arrays and objects are nested too deeply"
        ) from None
    if not isinstance(body, dict):
        raise ChatProblem(400, "bad_request", "the body is not a JSON object")
    given = {
        name: value
        for name, value in as_chat(body).items()
        if value is not None and not any(_same(value, neutral) for neutral in _NEUTRAL.get(name, ()))
    }
    for name in given.keys() - _TAKEN - _NOT_SENT - _OF_THE_UPSTREAM.keys() - _OF_NOBODY:
        raise unsupported(name, _ADVICE.get(name, f"the gate cannot take {name} into account; leave it out"))
    for name in _OF_THE_UPSTREAM:
        if name in given and (isinstance(given[name], bool) or not isinstance(given[name], int | float)):
            raise invalid(name, "a number")
    return ChatRequest(
        gate=gate_of(given.get("model")),
        messages=_messages(given.get("messages")),
        metadata=_metadata(given.get("metadata", {})),
        sampling={name: given[name] for name in (*_OF_THE_UPSTREAM, *sorted(_OF_NOBODY)) if name in given},
        stream=_flag(given.get("stream", False), "stream"),
        usage_chunk=_usage_chunk(given.get("stream_options", {})),
        asked=body,
        size=len(raw),
    )


def _own(upstream: Upstream, name: str) -> object:
    """What an upstream samples with, in place of this parameter of a caller; None: nothing is sent."""
    return getattr(upstream, _OF_THE_UPSTREAM[name]) if name in _OF_THE_UPSTREAM else None


def _same(value: object, neutral: object) -> bool:
    """Whether two values of JSON are equal; in Python true is 1 besides."""
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def gate_of(model: object) -> str:
    """The gate that a model's name means: `gate/NAME`, or NAME alone. Raises `ChatProblem`."""
    if not isinstance(model, str):
        raise invalid("model", "the name of a gate, like gate/support-bot; GET /v1/models lists them")
    return model.removeprefix(MODEL_PREFIX)


def no_model(gate: str) -> ChatProblem:
    """There is no such gate for chat requests."""
    return ChatProblem(
        404,
        "model_not_found",
        f"gate {gate!r} has no upstream here; GET /v1/models lists those that have, and [upstreams.{gate}] of the settings "
        "gives it one",
        param="model",
    )


def _messages(messages: object) -> tuple[Message, ...]:
    if not isinstance(messages, list) or not messages:
        raise invalid("messages", "a list of at least one message")
    return tuple(_message(message, f"messages[{place}]") for place, message in enumerate(messages))


def _message(message: object, where: str) -> Message:
    if not isinstance(message, dict):
        raise invalid(where, "an object with role and content")
    role = message.get("role")
    if role in ("tool", "function"):
        raise unsupported(f"{where}.role", _TOOLS)
    if role not in _ROLES:
        raise invalid(f"{where}.role", f"one of {', '.join(_ROLES)}")
    if not isinstance(message.get("name", ""), str | None):
        raise invalid(f"{where}.name", "a text")
    refusal = message.get("refusal")  # of a turn that was held
    for name, value in message.items():
        # Whoever sends an earlier answer back sends its empty members, too.
        if name not in ("role", "content", "refusal", "name") and value not in (None, "", [], {}):
            advice = _TOOLS if name in ("tool_calls", "function_call") else f"leave {name} out"
            raise unsupported(f"{where}.{name}", advice)
    content = message.get("content")
    return Message(role, _content(refusal if content is None and refusal else content, f"{where}.content"))


def _content(content: object, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise invalid(where, "a text, or a list of parts of type text")
    texts = []
    for place, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text":
            raise unsupported(f"{where}[{place}]", f"only text is gated, and this is a part of type {kind}")
        if not isinstance(part.get("text"), str):
            raise invalid(f"{where}[{place}].text", "a text")
        texts.append(part["text"])
    return "".join(texts)


def _metadata(metadata: object) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise invalid("metadata", "an object of texts")
    for name in OWN_METADATA:
        if name in metadata:
            raise unsupported(f"metadata.{name}", "it says how the answers were made; use another key")
    return metadata


def _usage_chunk(options: object) -> bool:
    if not isinstance(options, dict):
        raise invalid("stream_options", "an object")
    return _flag(options.get("include_usage") or False, "stream_options.include_usage")


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise invalid(name, "true or false")
    return value


def invalid(param: str, wanted: str) -> ChatProblem:
    """A value that is none; `wanted` : what it must be."""
    return ChatProblem(400, "invalid_value", f"{param} must be {wanted}", param=param)


def unsupported(param: str, advice: str) -> ChatProblem:
    """What a gate cannot answer for, and what to do."""
    return ChatProblem(400, "unsupported_parameter", f"{param}: {advice}", param=param)
