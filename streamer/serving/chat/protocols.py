"""The ways in which clients ask and are answered, and which address is of which."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from streamer.serving.chat import anthropic_messages, openai_chat, openai_responses
from streamer.serving.chat.answer import Answer
from streamer.serving.chat.request import ChatProblem, ChatRequest
from streamer.serving.problems import Problem


class Protocol(NamedTuple):
    """One of them. `as_chat` makes the body of a request one of OpenAI's chat completions, or
    raises `ChatProblem`; of an answer `whole` makes the body, and `events` each event's data,
    whose member `type` names it, if it has one, with `end` after them. `members` a body may have
    beside those of a chat completion's, and `names` says what the protocol calls these;
    `needed`: see `streamer.serving.chat.request.ChatRequest`."""

    as_chat: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    whole: Callable[[Answer, ChatRequest], dict[str, Any]]
    events: Callable[[Answer, ChatRequest], Iterable[dict[str, Any]]]
    members: frozenset[str] = frozenset()
    names: Mapping[str, str] = MappingProxyType({})
    needed: frozenset[str] = frozenset()
    end: bytes = b""


PROTOCOLS: Final = {
    "/v1/chat/completions": Protocol(
        openai_chat.as_chat, openai_chat.whole, openai_chat.events, end=b"data: [DONE]\n\n"
    ),
    "/v1/responses": Protocol(
        openai_responses.as_chat,
        openai_responses.whole,
        openai_responses.events,
        openai_responses.MEMBERS,
        {"response_format": "text.format", "verbosity": "text.verbosity"},
    ),
    "/v1/messages": Protocol(
        anthropic_messages.as_chat,
        anthropic_messages.whole,
        anthropic_messages.events,
        anthropic_messages.MEMBERS,
        {"response_format": "output_config.format"},
        needed=frozenset({"max_tokens"}),
    ),
}
"""By their addresses."""

_TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_ANTHROPIC_TYPES: Final = _TYPES | {404: "not_found_error", 413: "request_too_large"}
_NOT_COUNTED: Final = "tokens are not counted beforehand; `usage` of an answer has them"
_NOT_HERE: Final = {
    "/v1/completions": "completions without messages are not answered; use POST /v1/chat/completions",
    "/v1/messages/batches": "batches of requests are not taken; send each to POST /v1/messages",
    "/v1/messages/count_tokens": _NOT_COUNTED,
    "/v1/responses/input_tokens": _NOT_COUNTED,
    "/v1/responses/": "responses are not kept; GET /v1/gates/{gate}/decisions/{batch_id} has the decision",
}


_ELSEWHERE: Final = f"a gate answers {', '.join(PROTOCOLS)}; for all else ask the model's own endpoint"


def respond(asked: Request, answer: Answer, request: ChatRequest) -> Response:
    """Return an answer in the form of its address, whole or streamed as was asked; a hold may be an error."""
    protocol, headers = PROTOCOLS[asked.url.path], answer.headers
    if answer.hold_status is not None:
        # A client that asks again on its own would pay for other answers.
        headers = headers | {"x-should-retry": "false"}
        told, status = answer.told, answer.hold_status
        kind = None if anthropics(asked) else "held"
        return _error(
            anthropics(asked), status, told["reason"], answer.text, told, kind=kind, headers=headers
        )
    if not request.stream:
        body = msgspec.json.encode(protocol.whole(answer, request))
        return Response(body, headers=headers, media_type="application/json")
    events = b"".join(
        (f"event: {event['type']}\n".encode() if "type" in event else b"")
        + b"data: " + msgspec.json.encode(event) + b"\n\n"
        for event in protocol.events(answer, request)
    )  # fmt: skip
    headers = headers | {"cache-control": "no-store"}
    return Response(events + protocol.end, headers=headers, media_type="text/event-stream")


def anthropics(request: Request) -> bool:
    """Whether a request is of Anthropic's protocol, and not of OpenAI's."""
    return request.url.path.startswith("/v1/messages") or "anthropic-version" in request.headers


def refuse(request: Request, problem: Problem) -> Response:
    """Return a problem in the form of its address: of a protocol under /v1, but for the gates, else problem+json."""
    path = request.url.path
    if not path.startswith("/v1/") or path.startswith("/v1/gates"):
        return problem.response()
    headers = problem.headers()
    if problem.status == 409:
        headers["x-should-retry"] = "false"  # clients take it for a lock, and the first decision stands
    detail, param = problem.detail, problem.param if isinstance(problem, ChatProblem) else None
    if problem.code == "not_found":
        detail = next((text for start, text in _NOT_HERE.items() if path.startswith(start)), _ELSEWHERE)
    if path in PROTOCOLS and param and (own := PROTOCOLS[path].names.get(param)):
        detail, param = detail.replace(param, own), own
    return _error(
        anthropics(request),
        problem.status,
        problem.code,
        detail,
        {"action": "abstain"},
        param=param,
        headers=headers,
    )


def _error(
    anthropics: bool,
    status: int,
    code: str,
    message: str,
    told: dict[str, Any],
    *,
    kind: str | None = None,
    param: str | None = None,
    headers: dict[str, str],
) -> Response:
    if kind is None:
        server = "api_error" if anthropics else "server_error"
        kind = (_ANTHROPIC_TYPES if anthropics else _TYPES).get(
            status, server if status >= 500 else "invalid_request_error"
        )
    error = {"message": message, "type": kind, "param": param, "code": code, "streamer": told}
    body = {"type": "error", "error": error} if anthropics else {"error": error}
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")
