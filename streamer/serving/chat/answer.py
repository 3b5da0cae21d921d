"""What a caller gets of a recorded decision, before a protocol gives it a form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote

from streamer.events.actions import ActionsV1, decode_action
from streamer.events.claims import RecordedClaims
from streamer.events.receipts import HTTP_HEADER
from streamer.events.responses import UPSTREAM
from streamer.journal import RecordedBatch
from streamer.scoring.blank import is_blank
from streamer.scoring.claims.answer import LEFT_OUT, assembled, left_out, parts, places
from streamer.scoring.judged import WHOLE, call_text, form
from streamer.serving.chat.counter import Completed
from streamer.serving.chat.forms import CALLED, Call, calls_of
from streamer.serving.chat.request import MODEL_PREFIX, ChatProblem, ChatRequest
from streamer.serving.chat.upstream import Upstream
from streamer.serving.releases import disputed
from streamer.store.desk.rows import DeskState

HELD: Final = "content_filter"
_PARAMETERS: Final = ("temperature", "top_p", "max_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A decision as it is told, by the id of its action.

    `created` is when it was decided, in seconds since 1970; `model` the gate, as it is listed.
    `text` is shown, of a hold the upstream's hold message; but not where there are `calls` to be
    made, each with its id. `finish_reason` is `stop`, `length`, `CALLED` or, of a hold, `HELD`;
    `hold_status` HTTP's of a hold that is an error, else None. `usage` are tokens read and written
    by all calls, None where an upstream did not count them; `told` is the member `streamer`.
    """

    id: str
    created: int
    model: str
    text: str
    calls: list[tuple[str, Call]]
    finish_reason: str
    hold_status: int | None
    usage: tuple[int, int] | None
    told: dict[str, Any]
    headers: dict[str, str]

    @property
    def held(self) -> bool:
        """Whether nothing is shown but the hold message."""
        return self.finish_reason == HELD


def answer(
    done: Completed, upstream: Upstream, request: ChatRequest, *, desk: DeskState | None = None
) -> Answer:
    """Return what a caller is told of a recorded decision. `upstream`, of the gate that was
    asked, says what is shown where no answer ships; `desk` is what became of it there, None:
    nobody was asked about it. Raises `ChatProblem` when the texts of the batch were erased."""
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
    texts = _texts(batch)
    shown = _shown(action, upstream, texts)
    if desk and desk.outcome and released:
        shown = desk.outcome.selected
    said = "" if shown is None else released or _said(action, texts[shown] or "")
    passed = sampling.get("passed", "")
    if is_blank(said):  # in shadow mode the first answer is shown, whatever it is
        shown = None
    told = _told(action, batch, sampling, shown, len(texts)) | {
        "calls": sum(len(one["calls"]) for one in every),
        "cost": _total([one["cost"] for one in every]),
    }
    if action.answer:
        back = (desk and desk.outcome and desk.outcome.claims) or ()
        told |= _of_claims(action, said, texts[action.answer] or "", back)
    if done.earlier:
        told["handed_on_by"] = [_rung(one) for one in done.earlier]
    if fields := disputed(action, texts):
        told["disputed"] = fields
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
    # Starlette writes headers in Latin-1, and a batch id is any text.
    headers = {name: value.encode().decode("latin-1") for name, value in headers.items() if value}
    if batch.receipt is not None:
        headers[HTTP_HEADER] = batch.receipt
    if shown is not None:
        reason = sampling["finish_reasons"][list(texts).index(shown)]
        # What a person made of a call at the desk may be a text.
        called = call_text(said) if reason == CALLED else ""
        reason = CALLED if called else "length" if reason == "length" else "stop"
    else:
        called, reason = passed, CALLED if passed else HELD
    return Answer(
        id=action.action_id,
        created=int(action.decided_at.timestamp()),
        model=f"{MODEL_PREFIX}{request.gate}",
        text=upstream.hold_message if reason == HELD else said,
        calls=[(f"call_{action.action_id}_{number}", call) for number, call in enumerate(calls_of(called))],
        finish_reason=reason,
        hold_status=upstream.hold_status if reason == HELD else None,
        usage=_usage(every),
        told=told,
        headers=headers,
    )


def _texts(batch: RecordedBatch) -> Mapping[str, str | None]:
    """The responses by id; the rows of a gate of claims are of these."""
    claims = RecordedClaims.of(batch.metadata)
    return batch.texts if claims is None else claims.responses


def _shown(action: ActionsV1, upstream: Upstream, texts: Mapping[str, str | None]) -> str | None:
    """The id of the response that the caller gets, whole or in part; None: it gets none."""
    if not action.enforced:
        return next(iter(texts), None) if upstream.in_shadow == "first" else None
    if action.unit == "claim":
        return action.answer or None if action.parts else None
    return action.selected if action.action == "ship" else None


def _said(action: ActionsV1, text: str) -> str:
    """What of the response the caller gets."""
    if action.enforced and action.parts:
        return assembled(text, action.parts)
    return form(action.scorer.judged).ships(text)


def _of_claims(action: ActionsV1, said: str, text: str, back: Sequence[str]) -> dict[str, Any]:
    """The claims in what the caller gets, to be labelled; and where others are missing or marked.

    Nothing of a text that a person wrote. `text` : of the answer; `back` : what was put back.
    """
    ids = [one.id for one in action.responses]
    ships = [one.action == "ship" or one.id in back for one in action.responses]
    spans = [one.span or (0, 0) for one in action.responses]
    ways = [parts(text, spans, ships, how) for how in LEFT_OUT]
    if not action.enforced:  # the answer as it came
        ships, ways = [True] * len(ids), [(WHOLE.span(text) or (0, len(text)),)]
    made = next((one for one in ways if assembled(text, one) == said), ())
    told: dict[str, Any] = {"label": {"batch_id": action.batch_id, "claims": []}}
    if not made:
        return told
    told["label"]["claims"] = [
        {"id": one, "span": span}
        for one, span, out in zip(ids, places(made, spans), ships, strict=True)
        if out
    ]
    if action.enforced:
        missing = [one for one, out in zip(ids, ships, strict=True) if not out]
        where = zip(missing, left_out(made, spans, ships), strict=True)
        told["left_out"] = [{"id": one, "span": span} for one, span in where]
    return told


def _told(
    action: ActionsV1, batch: RecordedBatch, sampling: Any, shown: str | None, answers: int
) -> dict[str, Any]:
    """The decision, in the member `streamer` of whatever the caller gets."""
    return {
        "gate": action.gate,
        "batch_id": action.batch_id,
        "action": action.action,
        "reason": action.reason,
        "enforced": action.enforced,
        "selected": action.selected,
        "shown": shown,
        "label": {"batch_id": action.batch_id, "response_id": shown or _best(action)},
        "policy_version": action.policy.version,
        "upstream": (batch.metadata or {})[UPSTREAM],
        "parameters": {
            name: value for name in _PARAMETERS if (value := sampling["settings"][name]) is not None
        },
        "ignored": list(sampling.get("ignored", ())),
        "problem": sampling["problem"],
        "passed_through": "passed" in sampling,
        "answers": answers,
    }


def _best(action: ActionsV1) -> str | None:
    """The id of the answer with the highest score, the first of several; None where none was scored."""
    scored = {one.id: one.score for one in action.responses if one.score is not None}
    return action.selected or max(scored, key=scored.__getitem__, default=None)


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


def _desk(action: ActionsV1, desk: DeskState) -> dict[str, Any]:
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


def _usage(every: Sequence[Mapping[str, Any]]) -> tuple[int, int] | None:
    """The tokens of all calls; None where an upstream did not count them."""
    read, written = ([one[name] for one in every] for name in ("input_tokens", "output_tokens"))
    if None in read or None in written:
        return None
    return sum(read), sum(written)


def _total(costs: list[float | None]) -> float | None:
    """The sum of what calls cost; None where one is not known."""
    known = [one for one in costs if one is not None]
    return float(sum(map(Decimal, map(str, known)))) if len(known) == len(costs) else None
