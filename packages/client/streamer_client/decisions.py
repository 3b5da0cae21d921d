"""What came of asking a gate, and how an action event is read: anything that is not a clear ship holds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from streamer_client import door

TroubleReason = Literal[
    "timed_out",
    "connection_failed",
    "overloaded",
    "unavailable",
    "refused",
    "unreadable",
    "mismatched",
    "too_large",
    "invalid_request",
    "failed",
]


class Trouble(Exception):
    """There is no decision to be had.

    Parameters
    ----------
    reason : stable, of a closed list; fit for a metric's label.
    detail : one sentence for the log; what the service says of an error is quoted, at most 400 characters of it.
    status : of the HTTP answer; None where there was none.
    passing : the same request may succeed in a moment.
    wait : seconds that the service asked to wait before; None where it did not.
    """

    def __init__(
        self,
        reason: TroubleReason,
        detail: str,
        *,
        status: int | None = None,
        passing: bool = False,
        wait: float | None = None,
    ) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason: TroubleReason = reason
        self.detail = detail
        self.status = status
        self.passing = passing
        self.wait = wait


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate decided about one batch, or why nothing is known: then the action is ``hold``.

    Attributes
    ----------
    gate, batch_id, attempt : the identity of the decision on record.
    action : ``ship``, ``mixed``, ``abstain``, ``regenerate`` or ``escalate``, of the event; ``hold`` where there is none.
    reason : of the event, or of a `Trouble`.
    enforced : False in shadow mode alone: do what you would do without a gate.
    text : the one text that may be shown: of the answer that ships, of a gate of claims what ships of
        the first (``mixed`` too), or what a person released (`desk`). None where nothing may be, where
        the gate's unit selects none, and where the answers were not at hand (`Client.decision`).
    response_id, index : of the selected answer, in shadow mode too: its id, and its place from 0. None
        under the unit ``claim``: no answer may be shown as it came.
    score : of that answer, in a hold and of claims the highest; in [0, 1]. None: nothing was scored.
    threshold : what scores were compared with; None where the policy is closed or open.
    policy_version : 1 or more.
    detail : one sentence about a trouble.
    event : the whole event as JSON values.
    desk_until : a person decides about the held batch until then: ask `Client.desk`. None where nobody is waited for.
    desk : what a person made of the held batch, where the call waited for it; None otherwise.
    receipt : where the decision is on record, a JSON array. Keep it, one a line: `streamer audit verify --receipts FILE` holds
        the record to it.
    """

    gate: str
    batch_id: str
    attempt: int
    action: str
    reason: str
    enforced: bool = True
    text: str | None = None
    response_id: str | None = None
    index: int | None = None
    score: float | None = None
    threshold: float | None = None
    policy_version: int | None = None
    detail: str = ""
    event: dict[str, Any] | None = None
    receipt: str | None = None
    desk_until: datetime | None = None
    desk: DeskOutcome | None = None

    @property
    def ships(self) -> bool:
        """Whether the gate lets everything be shown that its unit is about; never in shadow mode.

        Under the unit ``claim`` it is False where a claim is left out: there is a `text` all the same.
        """
        return self.action == "ship" and self.enforced


class DeskOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a held batch at the desk, or why nothing is known: then the action is ``hold``.

    Attributes
    ----------
    gate, batch_id, attempt : the identity of the batch.
    action : ``released``, ``rejected``, or ``waiting`` while nobody has decided; ``hold`` where nothing is known.
    reason : ``person`` or ``deadline_passed``; of a `Trouble`; empty while it waits.
    text : what may be shown; None unless it was released, and once it was erased.
    response_id : of the answer that was released.
    edited : whether a person changed its text.
    by, remark : who decided, and what they said.
    until : the deadline at the desk.
    detail : one sentence about a trouble.
    event : the whole event as JSON values; None while it waits, and where nothing is known.
    """

    gate: str
    batch_id: str
    attempt: int
    action: Literal["released", "rejected", "waiting", "hold"]
    reason: str = ""
    text: str | None = None
    response_id: str | None = None
    edited: bool = False
    by: str | None = None
    remark: str = ""
    until: datetime | None = None
    detail: str = ""
    event: dict[str, Any] | None = None

    @property
    def released(self) -> bool:
        """Whether `text` may be shown; everything else holds."""
        return self.action == "released" and self.text is not None

    @property
    def waits(self) -> bool:
        """Whether it is worth while to ask again."""
        return self.action == "waiting"


class _DeskOutcome(msgspec.Struct):
    """The fields that are relied on; see `streamer.events.desk`."""

    schema: Literal["streamer.desk.v1"]
    gate: str
    batch_id: str
    attempt: int
    action: Literal["released", "rejected", "waiting"]
    until: datetime
    reason: str = ""
    selected: str | None = None
    text: str | None = None
    edited: bool = False
    by: str | None = None
    remark: str = ""


class _Response(msgspec.Struct):
    id: str
    score: float | None
    action: str


class _Policy(msgspec.Struct, rename={"threshold": "lambda"}):
    version: int
    threshold: float | None


class _Action(msgspec.Struct):
    """The fields of the action event that are relied on; see `streamer.events.actions`."""

    schema: Literal["streamer.actions.v1"]
    gate: str
    batch_id: str
    attempt: int
    unit: Literal["best", "response", "batch", "claim"]
    action: Literal["ship", "mixed", "abstain", "regenerate", "escalate"]
    enforced: bool
    selected: str | None
    reason: str
    responses: tuple[_Response, ...]
    policy: _Policy
    desk_until: datetime | None = None
    answer: str | None = None
    text: str | None = None


def held(trouble: Trouble, gate: str, batch_id: str, attempt: int) -> Decision:
    """The hold that stands for a trouble."""
    return Decision(
        gate=gate,
        batch_id=batch_id,
        attempt=attempt,
        action="hold",
        reason=trouble.reason,
        detail=trouble.detail,
    )


def read_decision(
    body: bytes,
    receipt: str | None = None,
    *,
    gate: str,
    batch_id: str,
    attempt: int,
    answers: Sequence[tuple[str, str]] | None,
) -> Decision:
    """Read the service's answer about one batch.

    Parameters
    ----------
    body : an action event as JSON.
    receipt : that came with it.
    gate, batch_id, attempt : what was asked about.
    answers : ids and texts that were sent, in order; None where they are not at hand.

    Raises
    ------
    Trouble : ``unreadable`` or ``mismatched``.
    """
    event = read_object(body)
    try:
        action = msgspec.convert(event, _Action)
    except msgspec.ValidationError as error:
        raise Trouble("unreadable", f"the answer is no action event: {error}") from None
    ids = [response.id for response in action.responses]
    whole = action.answer  # whose claims stand in the place of responses
    event.pop("text", None)  # no part of the action on record
    if (action.gate, action.batch_id, action.attempt) != (gate, batch_id, attempt):
        raise Trouble("mismatched", "the answer is about another gate, batch or attempt")
    names = None if answers is None else sorted(name for name, _ in answers)
    if names is not None and (sorted(ids) != names if whole is None else whole not in names):
        raise Trouble("mismatched", "the answer is about other answers")
    if not _consistent(action):
        raise Trouble("unreadable", "the answer contradicts itself")
    at_desk = event.pop("desk", None)  # no part of the action on record
    waited_for = None
    if action.desk_until is not None and at_desk is not None:
        waited_for = _outcome(at_desk, gate=gate, batch_id=batch_id, attempt=attempt)
    texts = dict(answers or ())
    order = list(texts) or ids
    scores = {response.id: response.score for response in action.responses}
    selected = action.selected
    text = texts.get(selected or "") if whole is None else action.text
    decision = Decision(
        gate=gate,
        batch_id=batch_id,
        attempt=attempt,
        action=action.action,
        reason=action.reason,
        enforced=action.enforced,
        text=text if action.action in ("ship", "mixed") and action.enforced else None,
        response_id=selected,
        index=order.index(selected) if selected in order else None,
        score=max((one for one in scores.values() if one is not None), default=None)
        if selected is None
        else scores[selected],
        threshold=action.policy.threshold,
        policy_version=action.policy.version,
        event=event,
        receipt=receipt,
        desk_until=action.desk_until,
    )
    return decision if waited_for is None else with_desk(decision, waited_for)


def with_desk(decision: Decision, outcome: DeskOutcome) -> Decision:
    """Add what a person made of a held batch: what was released may be shown."""
    return msgspec.structs.replace(
        decision, desk=outcome, text=outcome.text if outcome.released else decision.text
    )


def read_outcome(body: bytes, *, gate: str, batch_id: str, attempt: int) -> DeskOutcome:
    """Read the service's answer about a batch at the desk. Raises `Trouble`: ``unreadable`` or ``mismatched``."""
    return _outcome(read_object(body), gate=gate, batch_id=batch_id, attempt=attempt)


def _outcome(event: Any, *, gate: str, batch_id: str, attempt: int) -> DeskOutcome:
    try:
        found = msgspec.convert(event, _DeskOutcome)
    except msgspec.ValidationError as error:
        raise Trouble("unreadable", f"the answer is no event of the desk: {error}") from None
    if (found.gate, found.batch_id, found.attempt) != (gate, batch_id, attempt):
        raise Trouble("mismatched", "the answer is about another gate, batch or attempt")
    if (found.action == "released") != (found.selected is not None) or (found.text and not found.selected):
        raise Trouble("unreadable", "the answer contradicts itself")
    return DeskOutcome(
        gate=gate,
        batch_id=batch_id,
        attempt=attempt,
        action=found.action,
        reason=found.reason,
        text=found.text,
        response_id=found.selected,
        edited=found.edited,
        by=found.by,
        remark=found.remark,
        until=found.until,
        event=None if found.action == "waiting" else event,
    )


def read_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object. Raises `Trouble` (``unreadable``)."""
    try:
        return door.read_object(body)
    except door.ReplyFailed as failed:
        raise Trouble("unreadable", f"the answer is no JSON object: {failed}") from None


def _consistent(action: _Action) -> bool:
    """Whether a batch that ships was scored, and ships what its unit says; and no other selects an answer."""
    shipped = [response.id for response in action.responses if response.action == "ship"]
    if action.action != "ship":
        return action.selected is None
    if action.reason != "scored":
        return False
    if action.unit == "best":
        return shipped == [action.selected]
    return action.selected is None and len(shipped) == len(action.responses) > 0
