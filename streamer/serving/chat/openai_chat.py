"""OpenAI's chat completions: `POST /v1/chat/completions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    for delta, reason in (
        ({"role": "assistant", "content": ""}, None),
        (_said(answer), None),
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


def _said(answer: Answer) -> dict[str, str]:
    return {"refusal" if answer.held else "content": answer.text}


def _usage(answer: Answer) -> dict[str, int] | None:
    if answer.usage is None:
        return None
    read, written = answer.usage
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
