"""Response clouds: one prompt, its sampled responses, and the severities that are known of them.

A file of clouds has one JSON object a line, plain or gzip: ``question_id``, ``question`` (null: not known), optional ``references``,
and ``responses``, each with ``text``, an optional ``label`` (severity in [0, 1]; null: unlabelled), an optional
``meta`` object, whose ``label_kind`` says how the severity arose, an optional ``embedding``, which `streamer evaluate`
and `streamer gpso` take in the place of an encoder's, an optional ``logprob``, the mean log-probability of its
tokens (or those of all, ``token_logprobs``), an optional ``model``, which gave it, optional ``signals``,
numbers of the user's own by name (null: not known), and optional ``claims``, what the answer is cut
into: each with ``text``, an optional ``label``, ``id``, ``span``, the first character and the one
behind the last, and ``rests_on``, ids of claims without which it does not stand. Other fields are
passed over. Tables are read as clouds too: `streamer.clouds.cloud_files`.
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from typing import Annotated, Any, TypeVar

import msgspec

from streamer.clouds.line_files import is_publishable
from streamer.errors import BadMessage, UsageError
from streamer.events.codec import malformed
from streamer.events.excerpts import excerpt
from streamer.events.labels import SCHEMA as LABELS_SCHEMA
from streamer.events.labels import LabelsV1
from streamer.events.limits import Limits
from streamer.events.responses import SCHEMA as RESPONSES_SCHEMA
from streamer.events.responses import ResponsesV1, ResponseV1, SignalName, decode_responses, encode_responses
from streamer.scoring.blank import is_blank
from streamer.scoring.judged import Form
from streamer.scoring.signals.declared import FIELDS, LEAST_LOGPROB, MOST_DECLARED, tokens_of

MAX_ID_LENGTH = 200
UNSTATED_KIND = "unstated"
"""The kind of a severity whose file does not say how it arose."""
Item = TypeVar("Item")
NOT_KEPT = "(not kept)"
"""Stands for a text that is not known: the record does not hold it, or a table has scores alone."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim of a response; without an id of its own it is ``c00``, ``c01``, ... by position.

    `severity` is in [0, 1], 0 = fine, as the claim reads in the whole answer; None when nobody has
    said. `span` is where it stands in the response's text. `rests_on` has ids of claims of the same
    response without which it does not stand.
    """

    id: str
    text: str
    severity: float | None = None
    span: tuple[int, int] | None = None
    rests_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CloudResponse:
    """One response of a cloud, ``r00``, ``r01``, ... by position; None is what is not known.

    `severity` is in [0, 1], 0 = fine, and `kind` how severities of this response arise, in the form
    that gates name it (``lexical``, ``human``). `embedding` and `score`, of the publisher's own, in
    [0, 1], higher is safer: all responses of a cloud have one, embeddings of one dimension, or none
    has. `logprob` is the mean log-probability of its tokens, in [-10000, 0]. `signals` are numbers
    of the user's own.
    """

    id: str
    text: str
    severity: float | None = None
    kind: str = UNSTATED_KIND
    meta: Mapping[str, Any] = field(default_factory=dict)
    embedding: tuple[float, ...] | None = None
    score: float | None = None
    logprob: float | None = None
    model: str | None = None
    signals: Mapping[str, float] = field(default_factory=dict)
    claims: tuple[Claim, ...] | None = None


@dataclass(frozen=True, slots=True)
class Cloud:
    """One prompt with its n responses; `question_id` is the prompt's name in the file it came from.

    n >= 1. `witnesses` are other samples, which are measured with the responses and never ship.
    """

    question_id: str
    question: str
    references: tuple[str, ...]
    responses: tuple[CloudResponse, ...]
    witnesses: tuple[CloudResponse, ...] = ()

    @property
    def batch_id(self) -> str:
        """`question_id` as an identifier that events accept: itself wherever possible."""
        return identifier(self.question_id)

    @property
    def samples(self) -> "Cloud":
        """The cloud with the witnesses behind the responses, as all are measured."""
        return replace(self, responses=self.responses + self.witnesses, witnesses=())

    def has_too_few(self, *, likely: bool) -> bool:
        """Whether a gate holds it, as nothing says how safe its one answer is: no other sample, no score.

        `likely` : a log-probability would.
        """
        first, *others = (*self.responses, *self.witnesses)
        return not others and first.score is None and not (likely and first.logprob is not None)

    @property
    def texts(self) -> tuple[str, ...]:
        """The responses' texts, in order."""
        return tuple(response.text for response in self.responses)

    @property
    def models(self) -> tuple[str, ...]:
        """The model of each response, empty for one that names none; nothing at all where none does."""
        named = tuple(response.model or "" for response in self.responses)
        return named if any(named) else ()

    @property
    def severities(self) -> tuple[float | None, ...]:
        """The responses' severities, in order."""
        return tuple(response.severity for response in self.responses)

    @property
    def embedded(self) -> bool:
        """Whether the responses bring embeddings; all do or none."""
        return self.responses[0].embedding is not None

    @property
    def own_scores(self) -> tuple[float, ...] | None:
        """The scores that the responses bring, in order; None where they bring none."""
        found = tuple(response.score for response in self.responses if response.score is not None)
        return found if len(found) == len(self.responses) else None


class _Marked(msgspec.Struct):
    text: str
    label: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    severity: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None

    def __post_init__(self) -> None:
        self.label = self.severity if self.label is None else self.label


class _ClaimLine(_Marked):
    id: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    span: tuple[int, int] | None = None
    rests_on: tuple[str, ...] = ()


class _ResponseLine(_Marked):
    meta: dict[str, Any] | None = None
    embedding: Annotated[tuple[float, ...], msgspec.Meta(min_length=2)] | None = None
    logprob: Annotated[float, msgspec.Meta(ge=LEAST_LOGPROB, le=0)] | None = None
    token_logprobs: Any = None
    model: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    signals: Annotated[dict[SignalName, float | None], msgspec.Meta(max_length=MOST_DECLARED)] = {}
    claims: list[_ClaimLine] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.token_logprobs is not None:
            figures = tokens_of(self.token_logprobs)
            self.logprob = figures.pop("logprob", self.logprob)
            self.signals = {**figures, **self.signals}


class _CloudLine(msgspec.Struct):
    question_id: str | int
    question: str | None
    responses: Annotated[list[_ResponseLine], msgspec.Meta(min_length=1)]
    references: list[str] | None = None
    witnesses: list[str] = []


_decoder = msgspec.json.Decoder(_CloudLine)


def identifier(name: str) -> str:
    """Return `name` if it is a valid identifier (1..200 characters, none a control character), else one made of it.

    What cannot stay is replaced by ``_`` and what is too long is cut; a hash of the whole name then follows, so
    that different names keep different identifiers.
    """
    cleaned = "".join("_" if unicodedata.category(c) in {"Cc", "Cs"} else c for c in name)
    if cleaned == name and 0 < len(name) <= MAX_ID_LENGTH:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{cleaned[: MAX_ID_LENGTH - 17]}-{digest}"


def kind_of_label(meta: Mapping[str, Any]) -> str:
    """Return the kind of severity that `meta` states: the head of its ``label_kind``, as a short slug.

    ``"lexical (alias contained in answer)"`` becomes ``lexical``, ``"LLM judge: 1-(mean-1)/9"`` ``llm-judge``.
    """
    stated = meta.get("label_kind")
    head = re.split(r"[(:;,]", stated, maxsplit=1)[0] if isinstance(stated, str) else ""
    slug = re.sub(r"[^a-z0-9]+", "-", head.lower()).strip("-")
    return slug[:64].rstrip("-") or UNSTATED_KIND


def parse_cloud(line: bytes, where: str) -> Cloud:
    """Read one line of a file of clouds. Raises `UsageError`, which begins with `where`."""
    try:
        row = _decoder.decode(line)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{where}: {error}; a cloud needs question_id, question and responses, each with a text and a "
            "label in [0, 1] or null"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"{where}: {malformed(line, str(error)).detail}; write one object a line, in UTF-8"
        ) from error
    texts = [row.question or "", *(row.references or ()), *(one.text for one in row.responses)]
    texts += row.witnesses
    texts += [claim.text for response in row.responses for claim in response.claims or ()]
    for text in texts:
        if not is_publishable(text):
            raise UsageError(
                f"{where}: a text holds a NUL or half a surrogate pair, which no event may carry; remove it"
            )
    if taken := FIELDS & {name for response in row.responses for name in response.signals}:
        raise UsageError(
            f"{where}: the signals have {min(taken)}, which is read from elsewhere; call it otherwise"
        )
    check_embeddings([(response.embedding, response.text) for response in row.responses], where)
    return Cloud(
        question_id=str(row.question_id),
        question=row.question or "",
        references=tuple(row.references or ()),
        responses=tuple(
            CloudResponse(
                id=response_id(i),
                text=response.text,
                severity=response.label,
                kind=kind_of_label(response.meta or {}),
                meta=response.meta or {},
                embedding=response.embedding,
                logprob=response.logprob,
                model=None if response.model is None else identifier(response.model),
                signals={name: number for name, number in response.signals.items() if number is not None},
                claims=_claims(response, f"{where}, response {i}"),
            )
            for i, response in enumerate(row.responses)
        ),
        witnesses=witnesses_of(row.witnesses),
    )


def witnesses_of(texts: Sequence[str]) -> tuple[CloudResponse, ...]:
    """Make witnesses of their texts."""
    return tuple(CloudResponse(f"witness-{response_id(i)}", text) for i, text in enumerate(texts))


def _claims(response: _ResponseLine, where: str) -> tuple[Claim, ...] | None:
    if response.claims is None:
        return None
    made = tuple(
        Claim(one.id or f"c{place:02d}", one.text, one.label, one.span, one.rests_on)
        for place, one in enumerate(response.claims)
    )
    ids = {one.id for one in made}
    if len(ids) < len(made):
        raise UsageError(f"{where}: two claims have the same id; give each its own, or none any")
    if unknown := {name for one in made for name in one.rests_on} - ids:
        raise UsageError(f"{where}: a claim rests on {min(unknown)!r}, which is none's id")
    places = [place for one in made if one.span for place in one.span]
    apart = all(start < end for start, end in zip(places[::2], places[1::2], strict=True))
    if (
        not apart
        or places != sorted(places)
        or (places and not 0 <= places[0] <= places[-1] <= len(response.text))
    ):
        raise UsageError(
            f"{where}: the spans of claims must lie in the text, in order, and none may overlap "
            "another; they count characters from 0, and the second is the one behind the last"
        )
    for one in made:
        if one.span and one.text.split() != (there := response.text[slice(*one.span)]).split():
            raise UsageError(
                f"{where}: the claim {one.id} is {excerpt(one.text)}, and at its span stands {excerpt(there)}"
            )
    return made


def check_embeddings(responses: Sequence[tuple[tuple[float, ...] | None, str]], where: str) -> None:
    """Check the embeddings of one prompt's responses, each with its text.

    Raises `UsageError`, which begins with `where`, when some have none, dimensions differ, or one
    is zero.
    """
    sizes = sorted({0 if vector is None else len(vector) for vector, _ in responses})
    if len(sizes) > 1:
        told = ", ".join(f"{size} numbers" if size else "none" for size in sizes)
        raise UsageError(
            f"{where}: the embeddings of one question are of different dimensions ({told}); give every response one of "
            "the same dimension, or none any"
        )
    for i, (vector, text) in enumerate(responses):
        if vector is not None and not any(vector) and not is_blank(text):
            raise UsageError(
                f"{where}: the embedding of response {i} is zero, so it has no direction to compare"
            )


def one_call(clouds: Sequence[Cloud]) -> bool:
    """Whether each prompt has one sample, and log-probabilities say how safe it is, if anything does."""
    alone = all(one.has_too_few(likely=False) for one in clouds)
    return alone and not all(one.has_too_few(likely=True) for one in clouds)


def held_note(clouds: Sequence[Cloud], *, likely: bool) -> str:
    """Say in a line how many prompts are held as they have one answer alone; empty for none."""
    if not (held := sum(one.has_too_few(likely=likely) for one in clouds)):
        return ""
    return (
        f"{held:,} of {len(clouds):,} prompts have one answer only and nothing that says how safe it is: they are held "
        "(too_few_responses), as in service."
    )


def comparable(
    found: Iterable[Item], cloud_of: Callable[[Item], Cloud], where: str, hint: str = ""
) -> Iterator[Item]:
    """Pass prompts on, from when there is one that is not held for its one answer. Raises `UsageError` where all are."""
    waiting: list[Item] = []
    rest = iter(found)
    for one in rest:
        waiting.append(one)
        if not cloud_of(one).has_too_few(likely=True):
            break
    else:
        if waiting:
            raise UsageError(
                f"{where} has one answer only to each prompt ({len(waiting):,} in all), and agreement is measured among "
                "several: sample more, or give other samples (a column of them: --witnesses COLUMN), log-probabilities of the "
                f"answers' tokens (logprobs) or a score of your own{hint}"
            )
    yield from waiting
    yield from rest


def cloud_row(cloud: Cloud) -> dict[str, Any]:
    """Return a cloud as a line of a file of clouds, in JSON values; `parse_cloud` reads it back but for names of responses."""

    def one(response: CloudResponse) -> dict[str, Any]:
        kind = {} if response.kind == UNSTATED_KIND else {"label_kind": response.kind}
        row: dict[str, Any] = {
            "text": response.text,
            "label": response.severity,
            "meta": {**response.meta, **kind},
        }
        own = {name: getattr(response, name) for name in ("embedding", "logprob", "model", "signals")}
        row |= {name: value for name, value in own.items() if value not in (None, {})}
        if response.claims is not None:
            row["claims"] = claim_rows(response.claims)
        return row

    return {
        "question_id": cloud.question_id,
        "question": cloud.question,
        "references": list(cloud.references),
        "responses": [one(response) for response in cloud.responses],
    } | ({"witnesses": [one.text for one in cloud.witnesses]} if cloud.witnesses else {})


def claim_rows(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """Return claims as they stand in a line of a file of clouds."""
    return [
        {"id": one.id, "text": one.text, "label": one.severity}
        | ({"span": one.span} if one.span else {})
        | ({"rests_on": one.rests_on} if one.rests_on else {})
        for one in claims
    ]


def judged_cloud(cloud: Cloud, form: Form) -> Cloud:
    """Return the cloud with an empty text for each answer that has nothing to be judged: a blank one, wherever it is looked at."""
    if NOT_KEPT in cloud.texts:
        return cloud
    responses, witnesses = (
        tuple(
            replace(one, text="") if empty and one.text else one
            for empty, one in zip(form.blank([one.text for one in some]), some, strict=True)
        )
        for some in (cloud.responses, cloud.witnesses)
    )
    return replace(cloud, responses=responses, witnesses=witnesses)


def response_id(position: int) -> str:
    """Return the id of the response at `position` (from 0): ``r00``, ``r01``, ..., ``r99``, ``r100``."""
    return f"r{position:02d}"


def severity_kind(clouds: Sequence[Cloud]) -> str:
    """Return the one kind of severity that the labelled responses of `clouds` have.

    Raises `UsageError` when nothing is labelled or kinds are mixed: a gate is controlled by one kind.
    """
    kinds = {r.kind for cloud in clouds for r in cloud.responses if r.severity is not None}
    if not kinds:
        raise UsageError(
            "no response has a label, so nothing can be calibrated; give each a severity in [0, 1] in the "
            "field label, name a table's column that has them (--column severity=NAME, or correct=NAME where 1 means right), or "
            "let `streamer label clouds` label them"
        )
    if len(kinds) > 1:
        raise UsageError(
            f"the labels are of several kinds ({', '.join(sorted(kinds))}), and a gate is controlled by one; "
            "keep one kind (meta.label_kind) per file"
        )
    return kinds.pop()


def split_clouds(
    clouds: Sequence[Cloud], seed: int, share: Fraction = Fraction(1, 2)
) -> tuple[list[Cloud], list[Cloud]]:
    """Shuffle `clouds` by `seed` and halve them: the first half is for calibration, the second for evaluation.

    The order is that of SHA-256 of the UTF-8 text ``{seed}:{batch_id}`` (compared as bytes); with N clouds the
    first floor(N `share`) calibrate, the others evaluate. It does not depend on the file's order,
    nor on the version of any library, and anyone can redo it with a hash function alone.
    """

    def place(cloud: Cloud) -> bytes:
        return hashlib.sha256(f"{seed}:{cloud.batch_id}".encode()).digest()

    order = sorted(clouds, key=place)
    half = int(len(order) * share)
    return order[:half], order[half:]


def cloud_to_event(cloud: Cloud, gate: str, *, embeddings_of: str | None = None) -> ResponsesV1:
    """Return the event that asks `gate` to decide about `cloud`.

    `embeddings_of` : what made the embeddings that the cloud brings, which then go along; None: they do not.

    Raises `UsageError` for witnesses: of what is in an event any may ship.
    """
    if cloud.witnesses:
        raise UsageError(
            f"question {cloud.question_id!r} has witnesses, and of all samples in an event any may ship: if they may, name "
            "their column as that of answers, --column answer=COLUMN; try, evaluate, plan and streamer.Gate take witnesses"
        )
    return ResponsesV1(
        schema=RESPONSES_SCHEMA,
        gate=gate,
        batch_id=cloud.batch_id,
        prompt=cloud.question,
        responses=tuple(
            ResponseV1(
                id=r.id,
                text=r.text,
                score=r.score,
                logprob=r.logprob,
                model=r.model,
                signals=dict(r.signals),
                embedding=r.embedding if embeddings_of else None,
            )
            for r in cloud.responses
        ),
        references=cloud.references or None,
        embedding_encoder=embeddings_of,
    )


def cloud_message(cloud: Cloud, gate: str, limits: Limits, *, embeddings_of: str | None = None) -> bytes:
    """Return the value to publish so that `gate` decides about `cloud`; see `cloud_to_event`.

    Raises `UsageError` when a worker with these `limits` would refuse it: it would become a dead letter.
    """
    value = encode_responses(cloud_to_event(cloud, gate, embeddings_of=embeddings_of))
    try:
        decode_responses(value, limits)
    except BadMessage as error:
        raise UsageError(f"question {cloud.question_id!r} would be refused: {error.detail}") from None
    return value


def cloud_labels(
    cloud: Cloud, gate: str, labeller: str, at: datetime, *, kind: str | None = None
) -> list[LabelsV1]:
    """Return a label event for each response of known severity, given `at` a moment with zone.

    `kind` is that of severities whose file states none.
    """
    return [
        LabelsV1(
            schema=LABELS_SCHEMA,
            gate=gate,
            batch_id=cloud.batch_id,
            response_id=r.id,
            severity=r.severity,
            kind=kind if kind and r.kind == UNSTATED_KIND else r.kind,
            labeller=labeller,
            labelled_at=at,
        )
        for r in cloud.responses
        if r.severity is not None
    ]
