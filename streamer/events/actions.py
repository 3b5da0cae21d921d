"""The topic `actions`, out: what was decided about one batch. One event per batch, the key is the input's key."""

import hashlib
import math
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec import Meta

from streamer.calibration.threshold import ThresholdState
from streamer.events.codec import Event, Reader
from streamer.events.identifiers import GateName, Identifier, about
from streamer.events.outgoing import event_id, event_message
from streamer.events.responses import Attempt, ResponsesV1, content_hash
from streamer.events.topic import Topic, batch_text, bound_text
from streamer.gates.batch_key import BatchKey
from streamer.gates.declared import Unit
from streamer.gates.settings import HELD_WORDS
from streamer.journal import EmbeddingSource, Headers, OutboxMessage
from streamer.scoring.claims.answer import assembled
from streamer.scoring.judged import WHOLE, call_text
from streamer.scoring.unread_answers import Rule

SCHEMA: Final = "streamer.actions.v1"

ACTION_NAMESPACE: Final = uuid.UUID("81e78adc-fc1e-4630-a18c-d59094748d62")
"""The namespace of action ids; it must never change."""

Action = Literal["ship", "abstain", "regenerate", "escalate"]
BatchAction = Literal["ship", "mixed", "abstain", "regenerate", "escalate"]
Reason = Literal[
    "scored",
    "no_threshold",
    "closed",
    "early_warning",
    "bad_burst",
    "too_few_responses",
    "no_claims",
    "too_many_units",
    "no_witness",
    "empty_text",
    "not_read",
    "too_few_alike",
    "encoder_mismatch",
    "scorer_failed",
    "no_logprob",
    "no_mark",
    "signal_out_of_range",
    "upstream_mismatch",
    "attempts_exhausted",
    "deadline_passed",
]
REASONS: tuple[Reason, ...] = get_args(Reason)
"""`scored`: the scores and the threshold decided. Every other reason holds the whole batch."""

Score = Annotated[float, about("Rounded to 1e-6; higher is safer.", ge=0, le=1)]


class ResponseActionV1(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What was decided about one response; `score` is null when the batch was not scored."""

    id: Identifier
    score: Score | None
    action: Annotated[
        Action,
        about(
            "Under unit `best` only the selected response ships; under `batch` all "
            "share one action; under `claim` each claim has its own."
        ),
    ]
    budget_needed: (
        Annotated[
            float,
            about(
                "At the response that could ship (the first one under unit `batch`): the smallest budget with "
                "which it would have shipped, from the calibration prompts of the policy; 1 and more: none is enough. It is no "
                "probability that the response is wrong, and a budget chosen after seeing it has no promise. Absent where the "
                "policy does not say.",
                gt=0,
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    span: (
        Annotated[
            tuple[Annotated[int, Meta(ge=0)], Annotated[int, Meta(ge=0)]],
            about(
                "Which code points of the response's text go out, from and up to: what "
                "stands before is reasoning. Absent where nothing goes out, or all. Of a claim: "
                "where it stands in `answer`, whether it ships or not."
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    not_read: (
        Annotated[
            Rule,
            about(
                "Why the encoder did not read it: it is too long (`cut`), has characters that the encoder does not know "
                "(`unread`), or looks to it like another (`twin`). Absent where it did, or was not asked."
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET


class ActionPolicyV1(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename={"threshold": "lambda"}):
    """The policy that decided, with the cut that served this batch: its own where each batch has one, that of its
    segment where the policy has segments. In Python the JSON name `lambda` is `threshold`.
    """

    version: Annotated[int, Meta(ge=1)]
    state: ThresholdState
    threshold: Annotated[
        float | None,
        about(
            "A response ships iff its score is above it (under shapes other than `indicator`: its randomised "
            "score, or its rank); null unless the state is `cut`."
        ),
    ]
    alpha: Annotated[float, about("The budget on exposure risk.", gt=0, lt=1)]
    method: str
    segment: Annotated[
        str | None,
        about("The batch's segment, empty if it named none; null for a gate without segments."),
    ] = None


class ActionScorerV1(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What made the scores."""

    name: str
    encoder: Annotated[
        str,
        about(
            "The gate's: name@hash, or `external:` and a name for one that no worker runs. `none` where "
            "nothing was embedded: for an external scorer, and in a hold before scoring; `judge:` and its name for a judge's marks. Who "
            "ran it is in "
            "`embedding_source`."
        ),
    ]
    judged: Annotated[
        str,
        about(
            "What of the responses is judged, with its version; after a space the fields that are compared as free text. Absent: "
            "`whole@1`, all but the reasoning."
        ),
    ] = WHOLE.text
    embedding_source: (
        Annotated[
            EmbeddingSource,
            about(
                "`encoder`: a worker ran the encoder on the texts. `event`: the embeddings came with the batch, "
                "and the encoder is what the publisher says. `none`: there are none."
            ),
        ]
        | None
    ) = None


class ActionAuditV1(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Whether the batch was drawn for labelling, with which probability, and the ids that ask for a label."""

    sampled: bool
    probability: Annotated[float, Meta(ge=0, le=1)]
    label: tuple[Identifier, ...] = ()


class ActionSourceV1(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The record that was decided."""

    topic: str
    partition: Annotated[int, Meta(ge=0)]
    offset: Annotated[int, Meta(ge=0)]


class ActionsV1(Event, frozen=True, gc=False, kw_only=True):
    """A decision. Consumers deduplicate on `action_id`, enforce only when `enforced` is true, and hold
    everything that is not a clear `ship`.

    Raises `ValueError` on construction, when a number is not finite, `decided_at` has no zone, or
    `selected` is set though the unit is not `best` or the action is not `ship`.
    """

    schema: Literal["streamer.actions.v1"]
    action_id: Annotated[str, about("Stable: a republication has the same.")]
    gate: GateName
    batch_id: Identifier
    attempt: Attempt
    unit: Unit
    action: Annotated[BatchAction, about("`mixed` under the units `response` and `claim` alone: some ship.")]
    enforced: Annotated[bool, about("False in shadow mode: record it, do not act on it.")]
    selected: Annotated[str | None, about("The response that may be shown; only unit `best` sets it.")]
    reason: Reason
    responses: Annotated[
        tuple[ResponseActionV1, ...],
        about("Under unit `claim`, in a scored batch, the claims of `answer`."),
    ]
    policy: ActionPolicyV1
    scorer: ActionScorerV1
    audit: ActionAuditV1
    source: ActionSourceV1
    decided_at: Annotated[datetime, Meta(tz=True)]
    execute: (
        Annotated[
            str,
            about(
                "Of a call that ships: the SHA-256 of the batch's content hash (32 bytes) and the call's canonical form, in "
                "hexadecimal. Whoever has the batch executes what has it, and nothing else. Absent where no call ships.",
                extra_json_schema={"pattern": "^[0-9a-f]{64}$"},
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    answer: (
        Annotated[Identifier, about("Under unit `claim` the response whose claims were decided, if any.")]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    parts: (
        Annotated[
            tuple[tuple[int, int] | str, ...],
            about(
                "What may be shown of `answer` and nothing besides, in pieces: code "
                "points of it, from and up to, or a text. Absent where nothing ships."
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    text_seal: (
        Annotated[
            str,
            about(
                "The SHA-256 of the batch's content hash and that text, in hexadecimal.",
                extra_json_schema={"pattern": "^[0-9a-f]{64}$"},
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    desk_until: (
        Annotated[
            datetime,
            about(
                "It waits for a person until then: what becomes of it is on the topic `desk`. Absent where nobody "
                "is waited for.",
                tz=True,
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        threshold = self.policy.threshold
        if (self.policy.state == "cut") != (threshold is not None):
            raise ValueError(f"a {self.policy.state} policy has lambda {threshold!r}")
        # The writer would silently write null for these.
        numbers = [threshold, *[response.score for response in self.responses]]
        if not all(map(math.isfinite, [one for one in numbers if one is not None])):
            raise ValueError("scores and lambda must be finite")
        if not (math.isfinite(self.policy.alpha) and math.isfinite(self.audit.probability)):
            raise ValueError("alpha and the audit probability must be finite")
        if self.selected is not None and not (self.unit == "best" and self.action == "ship"):
            raise ValueError("only a shipped batch of a gate with unit best selects a response")


def action_id(key: BatchKey) -> str:
    """Derive the id of a batch's action.

    It is the UUID of version 5, in `ACTION_NAMESPACE`, of the canonical JSON of the array
    [gate, batch_id, attempt].
    """
    return event_id(ACTION_NAMESPACE, key.gate, key.batch_id, key.attempt)


def call_seal(content: bytes, call: str) -> str:
    """Return what `execute` says of a call in canonical form, and `text_seal` of a text.

    `content` : the content hash of its batch. It covers prompt and answers with them, so that nobody
    tests guesses of them alone against it once texts are erased.
    """
    return hashlib.sha256(content + call.encode()).hexdigest()


def call_to_execute(batch: ResponsesV1, action: ActionsV1) -> str:
    """Return the canonical form of the call, or of the calls, that an action lets whoever has the batch execute, as JSON.

    Raises `ValueError` where it lets nobody execute anything: it holds, is not enforced, is about
    another batch, or the call is not what was scored.
    """
    if action_id(batch.key) != action.action_id:
        raise ValueError("the action is about another batch")
    if not (action.enforced and action.action == "ship" and action.execute):
        raise ValueError("the action lets no call be executed")
    call = next((call_text(one.text) for one in batch.responses if one.id == action.selected), "")
    if call_seal(content_hash(batch), call) != action.execute:
        raise ValueError("the call is not the one that was scored")
    return call


def text_to_show(batch: ResponsesV1, action: ActionsV1) -> str | None:
    """Return the text that a gate of claims lets whoever has the batch show; None: nothing ships.

    Raises `ValueError` where the action is about another batch, or the text is not the one that was
    decided.
    """
    if action_id(batch.key) != action.action_id:
        raise ValueError("the action is about another batch")
    if not action.parts:
        return None
    whole = next((one.text for one in batch.responses if one.id == action.answer), "")
    text = assembled(whole, action.parts)
    if call_seal(content_hash(batch), text) != action.text_seal:
        raise ValueError("the text is not the one that was decided")
    return text


decode_action = Reader(ActionsV1, SCHEMA).read_whole
"""Read an action, as a consumer would. Raises `BadMessage`."""


def action_message(event: ActionsV1, *, topic: str, key: bytes | None, trace: Headers = ()) -> OutboxMessage:
    """Make the message that publishes a decision.

    `key` is that of the input record, so that order per key is kept; `trace`, its headers, whose
    trace context is carried on.
    """
    time, subject = event.decided_at, event.batch_id
    return event_message(
        event,
        topic=topic,
        key=key,
        source=f"gate:{event.gate}",
        id=event.action_id,
        subject=subject,
        time=time,
        trace=trace,
    )


def _line(event: Mapping[str, Any], _: object) -> list[str]:
    scores = [one["score"] for one in event["responses"] if one.get("score") is not None]
    needed = [one["budget_needed"] for one in event["responses"] if one.get("budget_needed") is not None]
    unread = [f"{one['not_read']} {one['id']}" for one in event["responses"] if one.get("not_read")]
    policy = event["policy"]
    chosen = f" {event['selected']}" if event.get("selected") else ""
    marks = [
        *([] if event["enforced"] else ["shadow"]),
        *(["to label"] if event["audit"]["sampled"] else []),
    ]
    return [
        event["gate"],
        batch_text(event),
        HELD_WORDS.get(event["action"], event["action"]) + chosen,
        event["reason"] + (f" ({', '.join(unread)})" if unread else ""),
        f"best {max(scores):.3f}" if scores else "no score",
        *(
            [f"needs a budget of {100 * max(needed):.3g} %, has {100 * policy['alpha']:.3g} %"]
            if needed
            else []
        ),
        f"({bound_text(policy)})",
        f"v{policy['version']}",
        ", ".join(marks),
    ]


SPECIFICATION = Topic(
    name="actions",
    place=20,
    says="One decision per batch, at least once",
    key="the input's key",
    event=ActionsV1,
    decode=decode_action,
    has_receipts=True,
    line=_line,
)
