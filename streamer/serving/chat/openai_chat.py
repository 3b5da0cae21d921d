"""OpenAI's chat completions: `POST /v1/chat/completions`."""

from collections.abc import Iterator, Mapping
from typing import Any

from streamer.serving.chat.answer import Answer
from streamer.serving.chat.request import ChatRequest


def as_chat(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the body: it is one."""
    return body


def whole(answer: Answer, _request: ChatRequest) -> dict[str, Any]:
    """Return the completion."""
    message = {"role": "assistant", "content": None, "refusal": None} | _said(answer)
    choice = {"index": 0, "finish_reason": answer.finish_reason, "logprobs": None, "message": message}
    usage = _usage(answer)
    return (
        _common(answer)
        | {"object": "chat.completion", "choices": [choice]}
        | ({} if usage is None else {"usage": usage})
    )


def events(answer: Answer, request: ChatRequest) -> Iterator[dict[str, Any]]:
    """Yield the chunks of the same completion."""
    common = _common(answer) | {"object": "chat.completion.chunk"}
    usage = _usage(answer) if request.usage_chunk else None
    if usage is not None:
        common["usage"] = None
    said = _said(answer)
    for number, call in enumerate(said.get("tool_calls", ())):
        call["index"] = number
    for delta, reason in (
        ({"role": "assistant", "content": None if answer.calls else ""}, None),
        (said, None),
        ({}, answer.finish_reason),
    ):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        yield common | {"choices": [choice]}
    if usage is not None:
        yield common | {"choices": [], "usage": usage}


def _common(answer: Answer) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{answer.id}",
        "created": answer.created,
        "model": answer.model,
        "streamer": answer.told,
    }


def _said(answer: Answer) -> dict[str, Any]:
    if not answer.calls:
        return {"refusal" if answer.held else "content": answer.text}
    return {
        "tool_calls": [
            {"id": id_, "type": "function", "function": {"name": one.name, "arguments": one.text}}
            for id_, one in answer.calls
        ]
    }


def _usage(answer: Answer) -> dict[str, int] | None:
    if answer.usage is None:
        return None
    read, written = answer.usage
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
