"""OpenAI's Responses: `POST /v1/responses`. Nothing is kept for a later request but the decision."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from streamer.serving.chat.answer import Answer
from streamer.serving.chat.request import ChatRequest, invalid, text_of, unsupported

_STATELESS: Final = "the service keeps no conversations; send the earlier items in input"
_ADVICE: Final = {
    "previous_response_id": _STATELESS,
    "conversation": _STATELESS,
    "prompt": "the service keeps no prompts; send its text in instructions",
}
_LOGPROBS: Final = "message.output_text.logprobs"
_ASKS_FOR_NOTHING: Final = frozenset({"client_metadata", "max_tool_calls", "truncation"})
MEMBERS: Final = _ASKS_FOR_NOTHING | {"background", "include", "text"}
"""What a body may have beside the members of a chat completion's."""
_PARTS: Final = dict.fromkeys(("input_text", "output_text", "text"), "text") | {"refusal": "refusal"}

_Placed = tuple[str, dict[str, Any]]


def as_chat(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the body of the chat completion that asks for the same. Raises `ChatProblem`."""
    chat = {
        name: value for name, value in body.items() if value is not None and name not in _ASKS_FOR_NOTHING
    }
    for name, advice in _ADVICE.items():
        if name in chat:
            raise unsupported(name, advice)
    if chat.pop("background", False) is not False:
        raise unsupported("background", "wait for the answer; Prefer: wait= says how long")
    if _LOGPROBS in (include if isinstance(include := chat.pop("include", None), list) else ()):
        raise unsupported("include", "log probabilities do not say how an answer was chosen among several")
    turns = _one_turn(_messages(chat.pop("input", None)))
    if (system := chat.pop("instructions", None)) is None:
        chat["messages"] = [*turns]
    elif not isinstance(system, str):
        raise invalid("instructions", "a text")
    else:
        chat["messages"] = [("instructions", {"role": "system", "content": system}), *turns]
    text = chat.pop("text", {})
    if not isinstance(text, dict):
        raise invalid("text", "an object")
    chat["verbosity"] = text.get("verbosity")
    chat["response_format"] = _nested(text.get("format"), "json_schema")
    if isinstance(tools := chat.get("tools"), list):
        chat["tools"] = [_nested(tool, "function") for tool in tools]
    chat["tool_choice"] = _nested(chat.get("tool_choice"), "function")
    return chat


def whole(answer: Answer, request: ChatRequest) -> dict[str, Any]:
    """Return the response."""
    asked = request.asked
    cut_off = answer.finish_reason == "length"
    status = "incomplete" if cut_off else "completed"
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if cut_off else None,
        "error": None,
        "model": answer.model,
        "instructions": asked.get("instructions"),
        "metadata": dict(request.metadata),
        "output": _calls(answer) or [_message(answer, status)],
        "parallel_tool_calls": asked.get("parallel_tool_calls") is not False,
        "previous_response_id": None,
        "store": False,
        "temperature": answer.told["parameters"].get("temperature"),
        "top_p": answer.told["parameters"].get("top_p"),
        "max_output_tokens": answer.told["parameters"].get("max_tokens"),
        "text": {"format": (asked.get("text") or {}).get("format") or {"type": "text"}},
        "tool_choice": asked.get("tool_choice") or "auto",
        "tools": asked.get("tools") or [],
        "truncation": "disabled",
        "usage": _usage(answer),
        "streamer": answer.told,
    }


def events(answer: Answer, request: ChatRequest) -> Iterator[dict[str, Any]]:
    """Yield the events that make the same response."""
    for number, event in enumerate(_events(whole(answer, request))):
        yield event | {"sequence_number": number}


def _events(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    began = response | {"status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    yield {"type": "response.created", "response": began}
    yield {"type": "response.in_progress", "response": began}
    for place, item in enumerate(response["output"]):
        at = {"output_index": place, "item_id": item["id"]}
        text = "arguments" if "arguments" in item else "content"
        empty = item | {"status": "in_progress", text: item[text][:0]}
        yield {"type": "response.output_item.added", "output_index": place, "item": empty}
        if text == "arguments":
            call = "response.function_call_arguments"
            yield {"type": f"{call}.delta", "delta": item[text], **at}
            yield {"type": f"{call}.done", "arguments": item[text], "name": item["name"], **at}
        else:
            yield from _part_events(item["content"][0], at | {"content_index": 0})
        yield {"type": "response.output_item.done", "output_index": place, "item": item}
    yield {"type": f"response.{response['status']}", "response": response}


def _part_events(part: dict[str, Any], at: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kind = part["type"]
    name = "text" if kind == "output_text" else "refusal"
    logprobs: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
    yield {"type": "response.content_part.added", "part": part | {name: ""}, **at}
    yield {"type": f"response.{kind}.delta", "delta": part[name], **logprobs, **at}
    yield {"type": f"response.{kind}.done", name: part[name], **logprobs, **at}
    yield {"type": "response.content_part.done", "part": part, **at}


def _calls(answer: Answer) -> list[dict[str, Any]]:
    return [
        {
            "id": f"fc_{id_}",
            "type": "function_call",
            "status": "completed",
            "call_id": id_,
            "name": call.name,
            "arguments": call.text,
        }
        for id_, call in answer.calls
    ]


def _message(answer: Answer, status: str) -> dict[str, Any]:
    part: dict[str, Any] = (
        {"type": "refusal", "refusal": answer.text}
        if answer.held
        else {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
    )
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [part],
    }


def _usage(answer: Answer) -> dict[str, Any] | None:
    if answer.usage is None:
        return None
    read, written = answer.usage
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }


def _nested(given: object, name: str) -> object:
    """What stands beside `type` in Responses, in an object of its own, as chat completions have it."""
    if not isinstance(given, dict) or given.get("type") != name:
        return given
    return {"type": name, name: {one: value for one, value in given.items() if one != "type"}}


def _messages(items: object) -> Iterator[_Placed]:
    if isinstance(items, str):
        yield "input", {"role": "user", "content": items}
        return
    if not isinstance(items, list) or not items:
        raise invalid("input", "a text, or a list of at least one item")
    for place, item in enumerate(items):
        where = f"input[{place}]"
        match item:
            case {"type": "reasoning"}:  # an earlier answer's, and no part of it
                continue
            case {"type": "function_call", "call_id": str(id_), "name": str(name), "arguments": str(given)}:
                call = {"id": id_, "type": "function", "function": {"name": name, "arguments": given}}
                yield where, {"role": "assistant", "content": None, "tool_calls": [call]}
            case {"type": "function_call"}:
                raise invalid(where, "a call with call_id, name and arguments as texts")
            case {"type": "function_call_output", "call_id": str(id_), "output": output} if id_:
                text = text_of(output, f"{where}.output", _PARTS)
                yield where, {"role": "tool", "tool_call_id": id_, "content": text}
            case {"type": "function_call_output"}:
                raise invalid(where, "an output with the call_id of its call")
            case {"role": role, "content": content} if item.get("type", "message") == "message":
                yield where, {"role": role, "content": text_of(content, f"{where}.content", _PARTS)}
            case _:
                kind = item.get("type") if isinstance(item, dict) else None
                raise unsupported(
                    where,
                    f"an item must be a message, a function_call with its function_call_output, or reasoning, not {kind}",
                )


def _one_turn(messages: Iterable[_Placed]) -> Iterator[_Placed]:
    """Put calls that follow each other into one message, which stands where the first does."""
    for called, several in groupby(messages, key=lambda one: "tool_calls" in one[1]):
        if called:
            (where, first), *others = several
            calls = [call for _, one in others for call in one["tool_calls"]]
            yield where, first | {"tool_calls": first["tool_calls"] + calls}
        else:
            yield from several
