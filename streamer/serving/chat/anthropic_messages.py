"""Anthropic's Messages: `POST /v1/messages`."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from streamer.serving.chat.answer import Answer
from streamer.serving.chat.request import ChatRequest, invalid, unsupported

_NOT_SENT: Final = frozenset({"cache_control", "context_management", "diagnostics", "metadata"})
"""What says nothing about the answers; `metadata` has who asks."""
MEMBERS: Final = _NOT_SENT | {"output_config", "output_format", "system"}
"""What a body may have beside the members of a chat completion's."""
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}
_STOP_REASONS: Final = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


def as_chat(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the body of the chat completion that asks for the same. Raises `ChatProblem`."""
    chat = {name: one for name, one in body.items() if one is not None and name not in _NOT_SENT}
    system = chat.pop("system", None)
    messages = chat.pop("messages", None)
    if not isinstance(messages, list):
        raise invalid("messages", "a list of at least one message")
    before = [] if system is None else [("system", {"role": "system", "content": _texts(system, "system")})]
    places = ((f"messages[{place}]", said) for place, said in enumerate(messages))
    chat["messages"] = [*before, *((where, one) for where, said in places for one in _messages(said, where))]
    if isinstance(tools := chat.get("tools"), list):
        chat["tools"] = [_tool(one) for one in tools]
    match choice := chat.get("tool_choice"):
        case {"type": "tool", "name": name}:
            chat["tool_choice"] = {"type": "function", "function": {"name": name}}
        case {"type": str(kind)}:
            chat["tool_choice"] = _CHOICES.get(kind, kind)
    if isinstance(choice, dict) and choice.get("disable_parallel_tool_use"):
        chat["parallel_tool_calls"] = False
    config, form = chat.pop("output_config", None), chat.pop("output_format", None)
    match asked := (isinstance(config, dict) and config.get("format")) or form:
        case {"type": "json_schema", "schema": schema}:
            asked = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    chat["response_format"] = asked
    return chat


def whole(answer: Answer, _request: ChatRequest) -> dict[str, Any]:
    """Return the message."""
    read, written = answer.usage or (0, 0)
    content: list[dict[str, Any]] = [
        {"type": "tool_use", "id": id_, "name": call.name, "input": call.arguments}
        for id_, call in answer.calls
    ]
    if not (content or answer.held):
        content = [{"type": "text", "text": answer.text}]
    refusal = {"type": "refusal", "category": None, "explanation": answer.text}
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": _STOP_REASONS.get(answer.finish_reason, "end_turn"),
        "stop_details": refusal if answer.held else None,
        "stop_sequence": None,
        "usage": {"input_tokens": read, "output_tokens": written},
        "streamer": answer.told,
    }


def events(answer: Answer, request: ChatRequest) -> Iterator[dict[str, Any]]:
    """Yield the events that make the same message."""
    message = whole(answer, request)
    usage = message["usage"]
    empty = {"content": [], "stop_reason": None, "stop_details": None, "usage": usage | {"output_tokens": 0}}
    yield {"type": "message_start", "message": message | empty}
    for index, block in enumerate(message["content"]):
        start: dict[str, Any]
        if block["type"] == "text":
            start, delta = {"text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            text = bytes(block["input"]).decode()
            start, delta = {"input": {}}, {"type": "input_json_delta", "partial_json": text}
        yield {"type": "content_block_start", "index": index, "content_block": block | start}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended = {name: message[name] for name in ("stop_reason", "stop_details", "stop_sequence")}
    yield {"type": "message_delta", "delta": ended, "usage": usage}
    yield {"type": "message_stop"}


def _messages(message: object, where: str) -> Iterator[dict[str, Any]]:
    """A turn as the messages of a chat completion: the results of tools, each by itself, before what is said."""
    match message:
        case {"role": role, "content": str(text)}:
            yield {"role": role, "content": text}
            return
        case {"role": role, "content": [*blocks]}:
            pass
        case _:
            raise invalid(where, "an object with role and content")
    calls, said = [], []
    for place, block in enumerate(blocks):
        match block:
            case {"type": "thinking" | "redacted_thinking"}:
                pass
            case {"type": "tool_use", "id": str(id_), "name": str(name), "input": dict(given)}:
                function = {"name": name, "arguments": json.dumps(given, ensure_ascii=False)}
                calls.append({"id": id_, "type": "function", "function": function})
            case {"type": "tool_result", "tool_use_id": str(id_)} if id_:
                text = _texts(block.get("content") or "", f"{where}.content[{place}].content")
                yield {"role": "tool", "tool_call_id": id_, "content": text}
            case _:
                said.append(_text(block, f"{where}.content[{place}]"))
    if calls or said:
        yield {"role": role, "content": "\n".join(said) or None} | ({"tool_calls": calls} if calls else {})


def _texts(content: object, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(where, "a text, or a list of blocks of type text")
    return "\n".join(_text(block, f"{where}[{place}]") for place, block in enumerate(content))


def _text(block: object, where: str) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
    kind = block.get("type") if isinstance(block, dict) else None
    raise unsupported(where, f"only text is gated, and this is a block of type {kind}")


def _tool(tool: Any) -> Any:
    match tool:
        case {"name": name, "input_schema": schema} if tool.get("type", "custom") == "custom":
            about = {one: tool[one] for one in ("description", "strict") if tool.get(one)}
            return {"type": "function", "function": {"name": name, **about, "parameters": schema}}
    return tool
