"""What a caller gets, in OpenAI's forms: a completion, the same as server-sent events, or an error."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from streamer.events.actions import decode_action
from streamer.events.receipts import HTTP_HEADER
from streamer.events.responses import UPSTREAM
from streamer.scoring.blank import is_blank
from streamer.scoring.judged import form
from streamer.serving.chat.request import MODEL_PREFIX, ChatProblem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamer.events.actions import ActionsV1
    from streamer.journal import RecordedBatch
    from streamer.serving.chat.counter import Completed
    from streamer.serving.chat.request import ChatRequest
    from streamer.serving.chat.upstream import Upstream
    from streamer.serving.problems import Problem
    from streamer.serving.releases import State

_TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_FINISHED: Final = ("stop", "length")
_HELD: Final = "content_filter"
_PARAMETERS: Final = ("temperature", "top_p", "max_tokens")


def answer(
    done: Completed, upstream: Upstream, request: ChatRequest, *, desk: State | None = None
) -> Response:
    """Return a recorded decision as the caller asked for it.

    Parameters
    ----------
    upstream : of the gate that was asked; it says what is shown where no answer ships.
    desk : what became of it at the desk; None: nobody was asked about it.

    Raises
    ------
    ChatProblem
        When the texts of the batch were erased.
    """
    batch = done.batch
    if batch.metadata is None:
        raise ChatProblem(
            410,
            "erased",
            "this was answered before, and its texts were erased since; use another Idempotency-Key",
        )
    action = decode_action(batch.action)
    sampling: Any = batch.metadata["sampling"]
    every: list[Any] = [*((one.metadata or {})["sampling"] for one in done.earlier), sampling]
    released = None if desk is None or desk.outcome is None else desk.outcome.text
    shown = desk.outcome.selected if desk and desk.outcome and released else _shown(action, upstream)
    said = "" if shown is None else released or form(action.scorer.judged).ships(batch.texts[shown] or "")
    if is_blank(said):  # in shadow mode the first answer is shown, whatever it is
        shown = None
    told = _told(action, batch, sampling, shown) | {
        "calls": sum(len(one["calls"]) for one in every),
        "cost": _total([one["cost"] for one in every]),
    }
    if done.earlier:
        told["handed_on_by"] = [_rung(one) for one in done.earlier]
    if desk is not None:
        told["desk"] = _desk(action, desk)
    headers = {
        "x-request-id": action.batch_id,
        "x-streamer-batch-id": action.batch_id,
        "x-streamer-action": action.action,
        "x-streamer-enforced": "true" if action.enforced else "false",
        "x-streamer-policy-version": str(action.policy.version),
        "x-streamer-parameters": ", ".join(f"{name}={value}" for name, value in told["parameters"].items()),
        "x-streamer-ignored": ", ".join(told["ignored"]),
        "idempotent-replayed": "true" if done.again else "",
    }
    headers = {name: value for name, value in headers.items() if value}
    if batch.receipt is not None:
        headers[HTTP_HEADER] = batch.receipt
    if shown is None and upstream.hold_status is not None:
        # A client that asks again on its own would pay for other answers.
        return _error(
            upstream.hold_status, "held", action.reason, upstream.hold_message, told,
            headers=headers | {"x-should-retry": "false"},
        )  # fmt: skip
    text, finish_reason = upstream.hold_message, _HELD
    if shown is not None:
        place = [one.id for one in action.responses].index(shown)
        text = said
        reason = sampling["finish_reasons"][place]
        finish_reason = reason if reason in _FINISHED else _FINISHED[0]
    whole = {
        "id": f"chatcmpl-{action.action_id}",
        "created": int(action.decided_at.timestamp()),
        "model": f"{MODEL_PREFIX}{request.gate}",
        "streamer": told,
    }
    usage = _usage(every)
    if request.stream:
        events = _events(whole, text, finish_reason, usage if request.usage_chunk else None)
        return Response(
            events, headers=headers | {"cache-control": "no-store"}, media_type="text/event-stream"
        )
    choice = {
        "index": 0,
        "finish_reason": finish_reason,
        "logprobs": None,
        "message": {"role": "assistant", "content": text, "refusal": None},
    }
    body = (
        whole
        | {"object": "chat.completion", "choices": [choice]}
        | ({} if usage is None else {"usage": usage})
    )
    return Response(msgspec.json.encode(body), headers=headers, media_type="application/json")


def error(problem: Problem) -> Response:
    """Return a problem in OpenAI's form."""
    kind = _TYPES.get(problem.status, "server_error" if problem.status >= 500 else "invalid_request_error")
    headers = {} if problem.retry is None else {"retry-after": str(math.ceil(problem.retry))}
    if problem.status == 401:
        headers["www-authenticate"] = "Bearer"
    if problem.status == 409:
        headers["x-should-retry"] = "false"  # clients take it for a lock, and the first decision stands
    return _error(
        problem.status,
        kind,
        problem.code,
        problem.detail,
        {"action": "abstain"},
        param=problem.param if isinstance(problem, ChatProblem) else None,
        headers=headers,
    )


def _shown(action: ActionsV1, upstream: Upstream) -> str | None:
    """The id of the response that the caller gets; None: it gets none."""
    if action.enforced:
        return action.selected if action.action == "ship" else None
    return action.responses[0].id if upstream.in_shadow == "first" and action.responses else None


def _told(action: ActionsV1, batch: RecordedBatch, sampling: Any, shown: str | None) -> dict[str, Any]:
    """The decision, in the member `streamer` of whatever the caller gets."""
    return {
        "gate": action.gate,
        "batch_id": action.batch_id,
        "action": action.action,
        "reason": action.reason,
        "enforced": action.enforced,
        "selected": action.selected,
        "shown": shown,
        "policy_version": action.policy.version,
        "upstream": (batch.metadata or {})[UPSTREAM],
        "parameters": {
            name: value for name in _PARAMETERS if (value := sampling["settings"][name]) is not None
        },
        "ignored": list(sampling.get("ignored", ())),
        "problem": sampling["problem"],
        "answers": len(action.responses),
    }


def _rung(batch: RecordedBatch) -> dict[str, Any]:
    """What a gate said that handed the request on."""
    action, metadata = decode_action(batch.action), batch.metadata or {}
    sampling: Any = metadata["sampling"]
    return {
        "gate": action.gate,
        "policy_version": action.policy.version,
        "upstream": metadata[UPSTREAM],
        "answers": len(action.responses),
        "calls": len(sampling["calls"]),
        "cost": sampling["cost"],
    }


def _desk(action: ActionsV1, desk: State) -> dict[str, Any]:
    """What became of it at the desk, in the member `desk` of the decision."""
    where = f"/v1/gates/{action.gate}/desk/{quote(action.batch_id, safe='')}"
    outcome = desk.outcome
    if outcome is None:
        return {"action": "waiting", "until": desk.until, "url": where}
    return {
        "action": outcome.action,
        "reason": outcome.reason,
        "edited": outcome.edited,
        "until": desk.until,
        "decided_at": outcome.decided_at,
        "desk_id": outcome.desk_id,
        "url": where,
    }


def _usage(every: Sequence[Mapping[str, Any]]) -> dict[str, int] | None:
    """The tokens of all calls; None where an upstream did not count them."""
    read, written = ([one[name] for one in every] for name in ("input_tokens", "output_tokens"))
    if None in read or None in written:
        return None
    return {
        "prompt_tokens": sum(read),
        "completion_tokens": sum(written),
        "total_tokens": sum(read) + sum(written),
    }


def _total(costs: list[float | None]) -> float | None:
    """The sum of what calls cost; None where one is not known."""
    known = [one for one in costs if one is not None]
    return float(sum(map(Decimal, map(str, known)))) if len(known) == len(costs) else None


def _events(whole: dict[str, Any], text: str, finish_reason: str, usage: dict[str, int] | None) -> bytes:
    deltas: list[tuple[dict[str, str], str | None]] = [
        ({"role": "assistant", "content": ""}, None),
        ({"content": text}, None),
        ({}, finish_reason),
    ]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}
        for delta, reason in deltas
    ]
    if usage is not None:
        chunks = [chunk | {"usage": None} for chunk in chunks] + [{"choices": [], "usage": usage}]
    events = [msgspec.json.encode(whole | {"object": "chat.completion.chunk"} | chunk) for chunk in chunks]
    return b"".join(b"data: " + event + b"\n\n" for event in (*events, b"[DONE]"))


def _error(
    status: int,
    kind: str,
    code: str,
    message: str,
    told: dict[str, Any],
    *,
    param: str | None = None,
    headers: dict[str, str],
) -> Response:
    body = {"error": {"message": message, "type": kind, "param": param, "code": code, "streamer": told}}
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")
