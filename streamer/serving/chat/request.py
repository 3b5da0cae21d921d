"""A chat completion request as it is read: what the gate can answer for, and a clear refusal of everything else."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

import msgspec

from streamer.errors import BadMessage
from streamer.events.codec import malformed
from streamer.events.json_structure import check_structure, too_deep
from streamer.events.responses import SAMPLING, UPSTREAM
from streamer.labels.llm.record import Choice, Message, Role
from streamer.serving.chat.forms import BadSchemaError, reader, same
from streamer.serving.chat.upstream import Upstream
from streamer.serving.problems import Problem
from streamer.signing.canonical_json import canonical_json

MODEL_PREFIX: Final = "gate/"

_OF_A_MESSAGE: Final = ("role", "content", "name", "refusal")
_OF_ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "assistant": (*_OF_A_MESSAGE, "tool_calls"),
    "tool": (*_OF_A_MESSAGE, "tool_call_id"),
}
OWN_METADATA: Final = (UPSTREAM, SAMPLING)
"""Keys of a batch's metadata that say how its answers were made; reserved."""

_ROLES: Final[tuple[str, ...]] = get_args(Role)
FORM: Final = frozenset({"response_format", "tools", "tool_choice", "parallel_tool_calls"})
"""What the upstream gets of a request besides its messages."""
_TAKEN: Final = FORM | {"model", "messages", "stream", "stream_options", "metadata"}
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
    [
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
        "speed",
        "stop",
        "stop_sequences",
        "thinking",
        "top_k",
        "verbosity",
    ]
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
    "function_call": ("none",),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "service_tier": ("auto", "default"),
}
"""Values that ask for nothing."""
MEMBERS: Final[Mapping[str, dict[str, Any]]] = {
    one: {"type": ["number", "null"]} if one in _OF_THE_UPSTREAM else {}
    for one in sorted(_TAKEN | _NOT_SENT | _OF_NOBODY | _NEUTRAL.keys() | _OF_THE_UPSTREAM.keys())
}
"""What a body may have, and its JSON Schema; the members of other protocols become these."""
_PARTS: Final[Mapping[str, str]] = {"text": "text"}
_TOOLS: Final = "functions were replaced by tools: use these"
_ADVICE: Final[Mapping[str, str]] = {
    "n": "one answer is returned; how many are sampled is `answers` of the gate's upstream",
    "logprobs": "the answer that is returned was chosen among several, and log probabilities do not say how",
    "top_logprobs": "the answer that is returned was chosen among several, and log probabilities do not say how",
    "functions": _TOOLS,
    "function_call": _TOOLS,
    "audio": "only text is gated",
    "modalities": "only text is gated",
}


class ChatProblem(Problem):
    """A problem with a request; `param` is the parameter that it is about."""

    def __init__(self, status: int, code: str, detail: str, *, param: str | None = None) -> None:
        super().__init__(status, code, detail)
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What is asked of a gate: a conversation of at least one message.

    `metadata` are the caller's, kept with the batch, where a gate with segments reads them;
    `sampling` the sampling parameters that the caller names, and `needed` those that its protocol
    demands, which are never refused; `form` what the upstream gets besides: the response format,
    the tools, and how they may be called; `as_answer` makes an answer of a choice, None where it has
    another form. `stream`: the answer is to come as server-sent events,
    `usage_chunk`: the last of these tells the usage. `asked` is the whole body, in the words of its
    protocol, of `size` bytes; `system` where in it its first message of the system or a developer
    stands, empty without one.
    """

    gate: str
    messages: tuple[Message, ...]
    metadata: Mapping[str, str]
    sampling: Mapping[str, object]
    form: Mapping[str, Any]
    as_answer: Callable[[Choice], Choice | None]
    stream: bool
    usage_chunk: bool
    needed: frozenset[str] = frozenset()
    system: str = ""
    asked: Mapping[str, Any]
    size: int

    @property
    def prompt(self) -> str:
        """The batch's prompt: the text of a lone user message, or all messages, each after a line with its role."""
        if len(self.messages) == 1 and self.messages[0].role == "user":
            return self.messages[0].content
        return "\n\n".join(f"[{one.role}]\n{one.content}{one.calls}" for one in self.messages)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical JSON of the messages, as pairs of role and text, and of the form: what makes a repeat the same."""
        said = [
            [one.role, one.content, *((one.calls, one.answers) if one.calls or one.answers else ())]
            for one in self.messages
        ]
        return hashlib.sha256(canonical_json([said, self.form] if self.form else said)).digest()

    @property
    def schema(self) -> str:
        """What form the answers are to have, as an upstream's `schemas` name it."""
        asked = self.form.get("response_format")
        if asked is None:
            return "text"
        if asked["type"] == "json_object":
            return "json_object"
        return hashlib.sha256(canonical_json(asked["json_schema"]["schema"])).hexdigest()[:16]

    @property
    def tools(self) -> frozenset[str]:
        """The names of the tools that may be called."""
        return _named(self.form)

    def ignored(self, upstream: Upstream) -> dict[str, object]:
        """Return the caller's sampling parameters that are not this upstream's."""
        return {name: value for name, value in self.sampling.items() if value != _own(upstream, name)}

    def check(self, upstream: Upstream) -> None:
        """Refuse what would make the answers those of other settings than the upstream's. Raises `ChatProblem`."""
        if upstream.parameters == "refuse":
            for name in (one for one in self.ignored(upstream) if one not in self.needed):
                own = _own(upstream, name)
                stands = "sends none" if own is None else f"samples with {own}"
                raise unsupported(
                    name,
                    f"the gate is calibrated on answers of its upstream, which {stands}; leave {name} out",
                )
        schema, schemas = self.schema, upstream.schemas
        if schema not in schemas and (schema == "text" or "any" not in schemas):
            raise unsupported(
                "response_format",
                f"the gate is calibrated on answers of the forms {', '.join(schemas)}, and this asks for {schema}; ask for one of "
                f"them, or add {schema!r} to `schemas` of the gate's upstream",
            )
        if self.tools and upstream.tools == "refuse":
            raise unsupported(
                "tools",
                'the gate is calibrated on answers without tools; `tools = "judge"` in the settings of its upstream has calls '
                'judged as answers are, "pass-through" lets them out unjudged',
            )
        if upstream.system_prompt is not None and self.system:
            raise unsupported(self.system, "the system prompt is the gate's own; leave it out")


def read(
    raw: bytes,
    as_chat: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    needed: frozenset[str] = frozenset(),
    *,
    max_depth: int,
) -> ChatRequest:
    """Read a request's body, which `as_chat` makes one of `POST /v1/chat/completions`; `needed` : see `ChatRequest`.

    `as_chat` may pair a message with where it stands in the caller's body, which problems name.
    Raises `ChatProblem` for what is none, or asks for what a gate cannot answer for.
    """
    body = _decoded(raw, max_depth)
    if not isinstance(body, dict):
        raise ChatProblem(400, "bad_request", "the body is not a JSON object")
    given = {
        name: value
        for name, value in as_chat(body).items()
        if value is not None and not any(same(value, neutral) for neutral in _NEUTRAL.get(name, ()))
    }
    for name in given.keys() - _TAKEN - _NOT_SENT - _OF_THE_UPSTREAM.keys() - _OF_NOBODY:
        raise unsupported(name, _ADVICE.get(name, f"the gate cannot take {name} into account; leave it out"))
    for name in _OF_THE_UPSTREAM:
        if name in given and (isinstance(given[name], bool) or not isinstance(given[name], int | float)):
            raise invalid(name, "a number")
    form = _form(given)
    try:
        as_answer = reader(form)
    except BadSchemaError as bad:
        raise invalid(bad.param, f"a JSON Schema by which answers can be checked: {bad}") from None
    messages = _messages(given.get("messages"))
    system = (where for where, one in messages if one.role in ("system", "developer"))
    return ChatRequest(
        form=form,
        as_answer=as_answer,
        gate=gate_of(given.get("model")),
        messages=tuple(one for _, one in messages),
        metadata=_metadata(given.get("metadata", {})),
        sampling={name: given[name] for name in (*_OF_THE_UPSTREAM, *sorted(_OF_NOBODY)) if name in given},
        stream=_flag(given.get("stream", False), "stream"),
        usage_chunk=_usage_chunk(given.get("stream_options", {})),
        needed=needed,
        system=next(system, ""),
        asked=body,
        size=len(raw),
    )


def _decoded(raw: bytes, max_depth: int) -> Any:
    try:
        body = msgspec.json.decode(raw)
        check_structure(raw, max_depth)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        bad = malformed(raw, str(error))
    except RecursionError:
        bad = too_deep(max_depth)
    except BadMessage as error:
        bad = error
    else:
        return body
    raise ChatProblem(400, bad.code, f"the body: {bad.detail}")


def _own(upstream: Upstream, name: str) -> object:
    """What an upstream samples with, in place of this parameter of a caller; None: nothing is sent."""
    return getattr(upstream, _OF_THE_UPSTREAM[name]) if name in _OF_THE_UPSTREAM else None


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


def _messages(messages: object) -> list[tuple[str, Message]]:
    """The messages, each with where it stands."""
    if not isinstance(messages, list) or not messages:
        raise invalid("messages", "a list of at least one message")
    placed = (one if isinstance(one, tuple) else (f"messages[{i}]", one) for i, one in enumerate(messages))
    return [(where, _message(one, where)) for where, one in placed]


def _message(message: object, where: str) -> Message:
    if not isinstance(message, dict):
        raise invalid(where, "an object with role and content")
    role = message.get("role")
    if role == "function":
        raise unsupported(f"{where}.role", _TOOLS)
    if role not in _ROLES:
        raise invalid(f"{where}.role", f"one of {', '.join(_ROLES)}")
    if not isinstance(message.get("name", ""), str | None):
        raise invalid(f"{where}.name", "a text")
    refusal = message.get("refusal")  # of a turn that was held
    for name, value in message.items():
        # Whoever sends an earlier answer back sends its empty members, too.
        if name not in _OF_ROLES.get(role, _OF_A_MESSAGE) and value not in (None, "", [], {}):
            raise unsupported(f"{where}.{name}", _ADVICE.get(name, f"leave {name} out"))
    calls = _calls(message.get("tool_calls") or [], f"{where}.tool_calls")
    answers = message.get("tool_call_id", "")
    if not isinstance(answers, str) or (role == "tool" and not answers):
        raise invalid(f"{where}.tool_call_id", "the id of the call that it answers")
    content = message.get("content")
    if content is None:
        content = "" if calls else refusal
    return Message(role, text_of(content, f"{where}.content"), calls, answers)


def _calls(calls: object, where: str) -> str:
    """The calls of a turn, in JSON as the upstream gets them."""
    match calls:
        case []:
            return ""
        case [*every] if all(_is_call(one) for one in every):
            return canonical_json(every).decode()
    raise invalid(
        where,
        "a list of calls with id, type function, and a function with name and arguments as texts",
    )


def _is_call(call: object) -> bool:
    match call:
        case {"id": str(), "type": "function", "function": {"name": str(), "arguments": str()}}:
            return True
    return False


def _form(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked of the answers besides their texts, as the upstream gets it."""
    form: dict[str, Any] = {}
    match given.get("response_format"):
        case None:
            pass
        case {"type": "json_object"} | {
            "type": "json_schema",
            "json_schema": {"name": str(), "schema": {}},
        }:
            form["response_format"] = given["response_format"]
        case _:
            raise invalid(
                "response_format",
                "of type text, json_object, or json_schema with a name and a schema",
            )
    choice = given.get("tool_choice")
    if choice == "none":
        return form  # nothing is called: the model need not know them
    match given.get("tools", []):
        case []:
            if choice not in (None, "auto"):
                raise invalid("tool_choice", "none or auto, for there are no tools")
            return form
        case [*every] if all(_is_tool(one) for one in every):
            form["tools"] = every
        case _:
            raise invalid(
                "tools",
                "a list of tools of type function, each with a name; a model's own tools are not gated",
            )
    match choice:
        case None:
            pass
        case "auto" | "required":
            form["tool_choice"] = choice
        case {"type": "function", "function": {"name": str(name)}} if name in _named(form):
            form["tool_choice"] = choice
        case _:
            raise invalid("tool_choice", "none, auto, required, or a function that tools has")
    if "parallel_tool_calls" in given:
        form["parallel_tool_calls"] = _flag(given["parallel_tool_calls"], "parallel_tool_calls")
    return form


def _named(form: Mapping[str, Any]) -> frozenset[str]:
    """The names of its tools."""
    return frozenset(one["function"]["name"] for one in form.get("tools", ()))


def _is_tool(tool: object) -> bool:
    match tool:
        case {"type": "function", "function": {"name": str()}}:
            return True
    return False


def text_of(content: object, where: str, kinds: Mapping[str, str] = _PARTS) -> str:
    """A text, or a list of parts with a text each: of these types, which have it in these members. Raises `ChatProblem`."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise invalid(where, "a text, or a list of parts of type text")
    texts = []
    for place, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str) or kind not in kinds:
            raise unsupported(f"{where}[{place}]", f"only text is gated, and this is a part of type {kind}")
        member = kinds[kind]
        if not isinstance(part.get(member), str):
            raise invalid(f"{where}[{place}].{member}", "a text")
        texts.append(part[member])
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
