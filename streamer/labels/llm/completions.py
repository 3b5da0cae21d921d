"""What an endpoint's replies say: chat completions as the many dialects write them, and refusals. Pure."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Raw

from streamer.events.excerpts import one_line
from streamer.labels.llm.record import Choice, FailureCode, TokenUsage
from streamer.scoring.signals.declared import TokenLogprobs, token_figures
from streamer_client.door import Reply, ReplyFailed, read_json

T = TypeVar("T")

_MOST_CHOICES: Final = 1024
"""Of one reply; nobody asks for so many."""

_MOST_TOKENS: Final = 2**31 - 1
"""Of one request; an endpoint that counts more has not counted."""

_TEXT: Final = frozenset({"text", "output_text"})
_ASIDE: Final = frozenset({"thinking", "redacted_thinking", "reasoning", "reference"})
"""Parts of a content that are no part of the answer. One of any other kind makes it an answer that is not text."""

_REASONING: Final = ("reasoning_content", "reasoning", "reasoning_details")
_HIT: Final = re.compile(r"(?<![a-z])hit(?![a-z])|^true$", re.IGNORECASE)
_HALF_PAIR: Final = re.compile(
    rb"(\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
NOTHING: Final = Raw(b"null")
_EMPTY: Final = (NOTHING, Raw(b'""'), Raw(b"[]"))


class _Message(msgspec.Struct, gc=False):
    content: Raw = NOTHING
    refusal: Raw = NOTHING
    tool_calls: Raw = NOTHING
    reasoning_content: Raw = NOTHING
    reasoning: Raw = NOTHING
    reasoning_details: Raw = NOTHING


class _Choice(msgspec.Struct, gc=False):
    message: _Message
    finish_reason: Raw = NOTHING
    logprobs: Raw = NOTHING


class _Completion(msgspec.Struct, gc=False):
    choices: list[_Choice]
    id: Raw = NOTHING
    model: Raw = NOTHING
    system_fingerprint: Raw = NOTHING
    usage: Raw = NOTHING


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int
    completion_tokens: int


class _Part(msgspec.Struct, gc=False):
    type: str
    text: str = ""
    refusal: str = ""


class Refusal(NamedTuple):
    """What an error says of itself: in its own words, and machine-readable where it is OpenAI's form."""

    text: str
    code: object = None
    param: object = None


def completion_of(reply: Reply, most_text: int) -> dict[str, Any]:
    """Return what a completion fills of an exchange; what few endpoints send may be of any type.

    Raises `ReplyFailed` for a reply that is no completion with a choice.
    """
    # A text has no quote that is not escaped. So many choices would be seven times as large in memory.
    if reply.content.count(b'"message"') > _MOST_CHOICES:
        raise ReplyFailed("unreadable", f"it has more than {_MOST_CHOICES} choices")
    # Half of a pair is what no text can hold, and the reader takes none: it becomes NUL, which is refused further on.
    content = _HALF_PAIR.sub(lambda found: found[1] or rb"\u0000", reply.content)
    found: _Completion = read_json(content, _Completion)
    if not 0 < len(found.choices) <= _MOST_CHOICES:
        raise ReplyFailed("unreadable", f"it has {len(found.choices)} choices")
    (first, problem), *others = [_choice(one) for one in found.choices]
    texts = [text for one in (first, *(one for one, _ in others)) for text in (one.text, one.calls)]
    if any(len(one) > most_text or len(one.encode("utf-8", "replace")) > most_text for one in texts):
        first, others = replace(first, text="", calls=""), []
        problem = "malformed_reply", f"an answer has more than {most_text:,} bytes"
    answered: dict[str, Any] = {
        "reply": first.text,
        "id": text_of(member(found.id, str)) or None,
        "cached": from_a_cache(reply.headers),
        "model": text_of(member(found.model, str)),
        "fingerprint": text_of(member(found.system_fingerprint, str)),
        "finish_reason": first.finish_reason,
        "logprob": first.logprob,
        "token_figures": first.token_figures,
        "calls": first.calls,
        "usage": _usage(member(found.usage, _Usage)),
        "further": tuple(one for one, _ in others),
    }
    if first.refusal is not None:
        problem = "refused", first.refusal
    problem = problem or next((one for _, one in others if one is not None), None)
    return answered if problem is None else answered | {"problem": problem[0], "detail": problem[1]}


def refusal_of(content: bytes) -> Refusal:
    """Read the body of an error, whatever it is."""
    try:
        found: Any = read_json(content, Any)
    except ReplyFailed:
        return Refusal(" ".join(content.decode("utf-8", "replace").split()))
    text = msgspec.json.encode(found).decode().replace('\\"', '"')
    first = found[0] if isinstance(found, list) and found else found
    error = first.get("error", first) if isinstance(first, dict) else None
    if not isinstance(error, dict):
        return Refusal(text)
    return Refusal(text, error.get("code"), error.get("param"))


def from_a_cache(headers: Mapping[str, str]) -> bool:
    """Whether a reply's headers say that a cache had it, as proxies and gateways write it.

    What a model's own cache of prompts had is no answer, and says nothing.
    """
    age = headers.get("age", "")
    return (age.isascii() and age.isdigit() and int(age[:9]) > 0) or any(
        "cache" in name.lower() and "prompt" not in name.lower() and _HIT.search(value) is not None
        for name, value in headers.items()
    )


def text_of(value: object) -> str | None:
    """Return a text in one line, None for what is none."""
    return one_line(value) if isinstance(value, str) else None


def member(raw: Raw, kind: type[T] | Any) -> T | None:
    """Return a member of this type; None where it is of another one."""
    try:
        found: T = read_json(raw, kind)
    except ReplyFailed:
        return None
    return found


def _choice(choice: _Choice) -> tuple[Choice, tuple[FailureCode, str] | None]:
    """An answer, and what is wrong with it."""
    message = choice.message
    text, refusal, reasoning, problem = _content(message.content)
    refusal = member(message.refusal, str) or refusal
    finish_reason = text_of(member(choice.finish_reason, str))
    why = None
    if refusal or finish_reason == "content_filter":
        said = one_line(refusal) if refusal else "stopped by the content filter"
        why = f"the model would not answer this: {said}"
    reasoning = reasoning or any(getattr(message, name) not in _EMPTY for name in _REASONING)
    calls = "" if message.tool_calls in _EMPTY else bytes(message.tool_calls).decode()
    if reasoning and not (text or why or problem or calls):
        problem = "only_reasoning", "the reply has reasoning and no answer: raise max_tokens, or reason less"
    tokens = member(choice.logprobs, TokenLogprobs)
    figures = token_figures([] if tokens is None else tokens.content)
    return Choice(text, finish_reason, why, figures.pop("logprob", None), figures, calls), problem


def _content(content: Raw) -> tuple[str, str, bool, tuple[FailureCode, str] | None]:
    """The text of a content, its refusal, whether it has reasoning, and what is wrong with it."""
    parts = member(content, list[_Part])
    if parts is None:
        return member(content, str) or "", "", False, None
    other = next((one.type for one in parts if one.type not in _TEXT | _ASIDE | {"refusal"}), None)
    return (
        "".join(one.text for one in parts if one.type in _TEXT),
        " ".join(one.refusal for one in parts if one.refusal),
        any(one.type in _ASIDE for one in parts),
        None
        if other is None
        else (
            "malformed_reply",
            f"the answer has a part of type {one_line(other)}, and only text can be taken",
        ),
    )


def _usage(usage: _Usage | None) -> TokenUsage | None:
    if usage is None:
        return None
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    if min(prompt, completion) >= 0 and max(prompt, completion) <= _MOST_TOKENS:
        return TokenUsage(prompt, completion)
    return None
