"""The exchanges of a judgement as one JSON document, to be kept, and back.

Messages that several requests share (a retry repeats all of them) stand in it once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from streamer.journal import AskedMark
from streamer.labels.judge.record import Judgement
from streamer.labels.llm.record import Exchange, Message, TokenUsage

_PLAIN = ("reply", "model", "fingerprint", "finish_reason", "problem", "detail", "seconds")


def exchanges_document(exchanges: Sequence[Exchange]) -> dict[str, Any]:
    """Write exchanges as plain JSON values; lone surrogates of a reply, which no JSON text can hold, as escapes."""
    messages = list(dict.fromkeys(message for exchange in exchanges for message in exchange.messages))
    numbers = {message: number for number, message in enumerate(messages)}
    return {
        "messages": [{"role": one.role, "content": _writable(one.content)} for one in messages],
        "exchanges": [
            {
                "messages": [numbers[message] for message in exchange.messages],
                "parameters": dict(exchange.parameters),
                "usage": None if exchange.usage is None else asdict(exchange.usage),
                **{name: _writable(getattr(exchange, name)) for name in _PLAIN},
            }
            for exchange in exchanges
        ],
    }


def exchanges_of(document: Mapping[str, Any]) -> tuple[Exchange, ...]:
    """Read what `exchanges_document` wrote."""
    messages = [Message(one["role"], one["content"]) for one in document["messages"]]
    return tuple(
        Exchange(
            messages=tuple(messages[number] for number in one["messages"]),
            parameters=MappingProxyType(one["parameters"]),
            usage=None if one["usage"] is None else TokenUsage(**one["usage"]),
            **{name: one[name] for name in _PLAIN},
        )
        for one in document["exchanges"]
    )


def _writable(value: Any) -> Any:
    return value.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(value, str) else value


def asked_mark(judgement: Judgement, *, remembered: bool = False) -> AskedMark:
    """What is kept of a judgement; nothing was spent on one that is `remembered`."""
    verdict, usage = judgement.verdict, judgement.usage
    return AskedMark(
        judge=judgement.judge,
        mark=None if verdict is None else verdict.mark,
        subscores=None if verdict is None else dict(verdict.subscores),
        failure=None if judgement.failure is None else judgement.failure.code,
        requests=max(1, len(judgement.exchanges)),
        input_tokens=0 if remembered else usage.prompt,
        output_tokens=0 if remembered else usage.completion,
        cost=0.0 if remembered else None if judgement.cost is None else float(judgement.cost),
        exchanges=exchanges_document(judgement.exchanges),
        remembered=remembered,
    )
