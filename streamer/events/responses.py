"""The topic `responses`, in: a prompt and the responses that were sampled for it, to be decided."""

import hashlib
import math
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Protocol

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from streamer.calibration.guarantee import counted
from streamer.errors import BadMessage
from streamer.events import codes, json_structure
from streamer.events.claims import CLAIMS, Claims, check_claims
from streamer.events.cloudevents import data_of
from streamer.events.codec import Event, Reader
from streamer.events.codec import encode as encode_event
from streamer.events.excerpts import excerpt
from streamer.events.identifiers import GateName, Identifier, about, check_identifier, check_name
from streamer.events.limits import DEFAULT_LIMITS, Limits
from streamer.events.topic import Topic, batch_text
from streamer.gates.batch_key import BatchKey
from streamer.scoring.judged import call_text
from streamer.scoring.signals import declared
from streamer.signing.canonical_json import canonical_json

SCHEMA: Final = "streamer.responses.v1"

MODELS: Final = "streamer.models"
"""The key of a batch's metadata, reserved, under which the record keeps which answer is of which model; see `recorded_metadata`."""

SIGNALS: Final = "streamer.signals"
"""The key of a batch's metadata, reserved, under which the record keeps the numbers that came with each answer."""

UPSTREAM: Final = "upstream"
"""The key of a batch's metadata that names the upstream its answers were sampled from, as ``MODEL@HASH``."""

SAMPLING: Final = "sampling"
"""The key of a batch's metadata that says how its answers were sampled, and for which request; see `sampled_for`."""

REQUEST_HEADER: Final = "streamer_request"
"""The header of a record by HTTP that has the digest of the chat request whose answers it brings, in hexadecimal."""

MAX_ATTEMPT = 2**31 - 1

Attempt = Annotated[
    int, about("1 for the first batch of a prompt, +1 for each regeneration.", ge=1, le=MAX_ATTEMPT)
]
_ATTEMPT_DIGITS = len(str(MAX_ATTEMPT))
_FLOAT32_BYTES = 4


def read_attempt(text: str) -> int | None:
    """Read an attempt that an address or a form names; None for what is none."""
    if not (text.isascii() and text.isdigit()) or len(text) > _ATTEMPT_DIGITS:
        return None
    return number if 1 <= (number := int(text)) <= MAX_ATTEMPT else None


def _base64_length(dimension: int) -> int:
    return -(-dimension * _FLOAT32_BYTES // 3) * 4


Embedding = (
    Annotated[
        tuple[float, ...],
        about(
            "A vector of the text; all responses of the batch have one, of one dimension, or none has. "
            "Not all zero. Only for gates that accept embeddings; `embedding_encoder` names what made it.",
            extra_json_schema={
                "minItems": DEFAULT_LIMITS.min_dimension,
                "maxItems": DEFAULT_LIMITS.max_dimension,
            },
        ),
    ]
    | Annotated[
        bytes,
        about(
            "The same in half the bytes: its numbers as consecutive little-endian IEEE 754 float32, in base64 "
            "(standard alphabet, padded).",
            extra_json_schema={
                "minLength": _base64_length(DEFAULT_LIMITS.min_dimension),
                "maxLength": _base64_length(DEFAULT_LIMITS.max_dimension),
                "pattern": "^[A-Za-z0-9+/]*={0,2}$",
            },
        ),
    ]
)
_NO_NUL = r"^[^\u0000]*$"

_SEND_FLOAT32 = "base64 must hold finite little-endian float32, not all zero"
_SEND_NUMBERS = "send a list of numbers, or padded base64 (standard alphabet) of little-endian float32"
_MIN_NORM, _MAX_NORM = 1e-18, 1e18  # between these a norm and its square are normal numbers in float32 too


SignalName = Annotated[str, Meta(pattern=rf"^{declared.SIGNAL_NAME}$(?!\n)")]


_TEXT_OR_CALLS: Final = {"anyOf": [{"required": ["text"]}, {"required": ["calls"]}]}


class CallV1(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A call of a tool."""

    name: Annotated[str, about("The tool's.", min_length=1)]
    arguments: Annotated[
        msgspec.Raw,
        about(
            "An object, or its JSON in a string as in OpenAI's protocol.",
            extra_json_schema={"type": ["object", "string"]},
        ),
    ]


class ResponseV1(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One of the responses."""

    id: Annotated[Identifier, about("Unique within the batch.")]
    text: Annotated[
        str,
        about(
            "The response; at most 64 KiB as UTF-8. A blank one, in which nothing can be seen (white space, "
            "zero-width characters), is allowed and never ships.",
            extra_json_schema={"maxLength": DEFAULT_LIMITS.max_text_bytes, "pattern": _NO_NUL},
        ),
    ] = msgspec.field(default_factory=str)  # without a default that is left out when it is written
    calls: (
        Annotated[
            tuple[CallV1, ...],
            about(
                "In place of a text, the tools that the response calls. Its text is then their canonical form, which the judged "
                "part `call` reads.",
                min_length=1,
            ),
        ]
        | None
    ) = None
    embedding: Embedding | None = None
    score: (
        Annotated[float, about("For gates whose scorer is `external`; higher is safer.", ge=0, le=1)] | None
    ) = None
    logprob: (
        Annotated[
            float,
            about(
                "The mean of the natural logarithms of the probabilities that the model gave to this response's tokens.",
                ge=declared.LEAST_LOGPROB,
                le=0,
            ),
        ]
        | None
    ) = None
    token_logprobs: (
        Annotated[
            tuple[Annotated[float, Meta(ge=declared.LEAST_LOGPROB, le=declared.MOST_LOGPROB)], ...],
            about(
                "In the place of `logprob`: that of each token, in order. The record has "
                "`logprob`, and among the signals `low_logprob` and `least_logprob`."
            ),
        ]
        | None
    ) = None
    model: (
        Annotated[Identifier, about("The model that gave this response, by any name that stays the same.")]
        | None
    ) = None
    claims: Claims | None = None
    signals: Annotated[
        dict[SignalName, float],
        about(
            "Numbers of your own that say something of this response, by names of 1 to 40 of a-z, 0-9 and `_`, the first "
            f"a letter, other than {', '.join(sorted(declared.FIELDS))}. A gate reads those that it declares; leave out what is not known.",
            max_length=declared.MOST_DECLARED,
        ),
    ] = {}


class ResponsesV1(Event, frozen=True, gc=False, kw_only=True):
    """A response batch: the responses to one prompt, one event.

    The identity of the batch is (gate, batch_id, attempt).
    """

    schema: Literal["streamer.responses.v1"]
    gate: Annotated[GateName, about("The gate that decides.")]
    batch_id: Annotated[Identifier, about("Names the prompt's batch within the gate.")]
    prompt: Annotated[str, about("What was asked.", extra_json_schema={"pattern": _NO_NUL})]
    responses: Annotated[
        tuple[Annotated[ResponseV1, Meta(extra_json_schema=_TEXT_OR_CALLS)], ...],
        about(
            "2 to 256 responses; 1 is enough for a gate that does not compare them. "
            "A batch of fewer is read, and held (`too_few_responses`).",
            extra_json_schema={"minItems": 1, "maxItems": DEFAULT_LIMITS.max_responses},
        ),
    ]
    attempt: Attempt = 1
    references: (
        Annotated[
            tuple[Annotated[str, Meta(extra_json_schema={"pattern": _NO_NUL})], ...],
            about("Known good answers, for severities."),
        ]
        | None
    ) = None
    metadata: Annotated[
        dict[str, Any],
        about(
            "What the publisher wants to keep with the batch; integers fit 64 bits. "
            "`streamer.models`, `streamer.signals` and `streamer.claims` are keys of the record."
        ),
    ] = {}  # noqa: RUF012 - msgspec copies an empty literal default for each instance
    created_at: (
        Annotated[
            datetime,
            about(
                "RFC 3339 with a zone: when the batch was made; within the years 1 to 9999 in UTC. The gate's "
                "decision deadline counts from it, and without it from the timestamp of the Kafka record.",
                tz=True,
            ),
        ]
        | None
    ) = None
    embedding_encoder: (
        Annotated[
            Identifier,
            about(
                "What made the embeddings; it must be the gate's encoder, or the batch is held "
                "(`encoder_mismatch`). `external:` before the name of an external encoder may be left out."
            ),
        ]
        | None
    ) = None

    @property
    def key(self) -> BatchKey:
        """The identity of the decision that this event asks for."""
        return BatchKey(self.gate, self.batch_id, self.attempt)


_reader = Reader(ResponsesV1, SCHEMA)


def decode_responses(value: bytes | None, limits: Limits = DEFAULT_LIMITS) -> ResponsesV1:
    """Read a response batch; `value` None is a tombstone.

    A batch of 0 or 1 responses and blank texts are read: the decider holds these. Raises
    `BadMessage` with a code of `streamer.events.codes`; nothing else is raised, whatever the bytes
    are.
    """
    value = data_of(value, limits)
    try:
        event = _reader.read(value, limits)
    except BadMessage as bad:
        if bad.code == codes.INVALID_FIELD and "].embedding" in bad.detail:
            raise BadMessage(bad.code, f"{bad.detail}; {_SEND_NUMBERS}") from None
        raise
    check_name("gate", event.gate)
    check_identifier("batch_id", event.batch_id, limits.max_identifier)
    if event.embedding_encoder is not None:
        check_identifier("embedding_encoder", event.embedding_encoder, limits.max_identifier)
    for key, field in (
        (MODELS, "name a response's model in its field `model`"),
        (SIGNALS, "give numbers in a response's `signals`"),
        (CLAIMS, "give claims in a response's `claims`"),
    ):
        if key in event.metadata:
            raise BadMessage(codes.INVALID_FIELD, f"metadata has the key {key}, which is reserved: {field}")
    if any(response.calls or not response.text for response in event.responses):
        event = msgspec.structs.replace(event, responses=tuple(_with_texts(event.responses, value or b"")))
    strings = _check_responses(event.responses, limits)
    assert value is not None  # the reader has refused it
    _check_keys(event, value, strings, limits)
    if all(response.token_logprobs is None for response in event.responses):
        return event
    return msgspec.structs.replace(event, responses=tuple(map(_with_figures, event.responses)))


def _with_figures(response: ResponseV1) -> ResponseV1:
    """The response with what the log-probabilities of its tokens come to in their place."""
    if response.token_logprobs is None:
        return response
    signals = declared.tokens_of(response.token_logprobs) | response.signals
    mean = signals.pop("logprob", None)
    if response.logprob is not None:
        raise BadMessage(
            codes.INVALID_FIELD,
            f"response {excerpt(response.id)} has logprob and token_logprobs; send one of them",
        )
    return msgspec.structs.replace(response, token_logprobs=None, logprob=mean, signals=signals)


def encode_responses(event: ResponsesV1) -> bytes:
    """Write a response batch as a publisher would."""
    return encode_event(event)


def content_hash(event: ResponsesV1, rows: NDArray[np.float64] | None = None) -> bytes:
    """SHA-256 (32 bytes) of what the decision depends on: prompt, references and responses.

    It is taken over the canonical JSON (`streamer.events.codec`) of an object with the keys `prompt`, `references` (null or an array)
    and `responses`, an array of objects with `id` and `text`, with `score` or `logprob` (floats), `model`, `claims` (objects of `id`,
    `text`, `span`, and `rests_on` where it is not empty) or `signals` (an object of floats) where it has one, and `embedding`: the
    SHA-256, in lower-case hexadecimal, of its components as consecutive little-endian IEEE 754 doubles. Those of an embedding in
    base64 are float32, which doubles hold exactly: the same numbers have one hash, however they were sent. `rows` are the
    `embedding_rows` of the event, where somebody has made them already.
    """

    def hashed(place: int, one: ResponseV1) -> ResponseV1:
        numbers = _doubles(one.embedding or ()) if rows is None else rows[place].data
        return msgspec.structs.replace(one, embedding=hashlib.sha256(numbers).hexdigest())

    places = enumerate(event.responses)
    responses = [one if one.embedding is None else hashed(place, one) for place, one in places]
    sealed = {
        "prompt": event.prompt,
        "references": event.references,
        "responses": msgspec.to_builtins(responses),  # without what a response has not
    }
    return hashlib.sha256(canonical_json(sealed)).digest()


def models_named(event: ResponsesV1) -> tuple[str, ...]:
    """Return the model of each response, empty for one that names none; nothing at all where none of them names one."""
    named = tuple(response.model or "" for response in event.responses)
    return named if any(named) else ()


class HasNumbers(Protocol):
    """What numbers come with: a response of an event or of a cloud."""

    @property
    def score(self) -> float | None:
        """The publisher's own, in [0, 1]."""

    @property
    def logprob(self) -> float | None:
        """The mean log-probability of its tokens."""

    @property
    def signals(self) -> Mapping[str, float]:
        """Those that a gate declares."""


def numbers_given(
    responses: Sequence[HasNumbers], without: Collection[str] = ()
) -> dict[str, list[float | None]]:
    """Return the numbers that came with n responses: by name n values, None where one has none.

    `score` and `logprob` have the names of their fields. Names in `without` are left out.
    """
    found: dict[str, list[float | None]] = {}
    for name in ("score", "logprob"):
        column = [getattr(one, name) for one in responses]
        if name not in without and column.count(None) < len(column):
            found[name] = column
    for place, one in enumerate(responses):
        for name, number in one.signals.items():
            if name not in without:
                found.setdefault(name, [None] * len(responses))[place] = number
    return found


def recorded_metadata(event: ResponsesV1, kept: Collection[str] = ()) -> dict[str, Any]:
    """Return the metadata that the record keeps: the publisher's, and by ids of responses under `MODELS` the model of each that
    names one, under `SIGNALS` the numbers that came with it. `kept` : names of those that the record has elsewhere.
    """
    models = {one.id: one.model for one in event.responses if one.model is not None}
    signals: dict[str, dict[str, float]] = {}
    for name, column in numbers_given(event.responses, kept).items():
        for one, number in zip(event.responses, column, strict=True):
            if number is not None:
                signals.setdefault(one.id, {})[name] = number
    return {
        **event.metadata,
        **({MODELS: models} if models else {}),
        **({SIGNALS: signals} if signals else {}),
    }


def recorded_numbers(metadata: Mapping[str, Any] | None, ids: Sequence[str]) -> dict[str, list[float | None]]:
    """Read back what `recorded_metadata` kept of `numbers_given`, by the ids of the responses; None: it is erased."""
    kept = (metadata or {}).get(SIGNALS)
    found: Mapping[str, Mapping[str, float]] = kept if isinstance(kept, dict) else {}
    names = dict.fromkeys(name for one in found.values() for name in one)
    return {name: [found.get(one, {}).get(name) for one in ids] for name in names}


def recorded_models(metadata: Mapping[str, Any] | None, ids: Iterable[str]) -> tuple[str, ...]:
    """Read back what `models_named` found, from a record's metadata and its responses' ids; None: they are erased."""
    if not isinstance(found := (metadata or {}).get(MODELS), dict):
        return ()
    named = tuple(str(found.get(one) or "") for one in ids)
    return named if any(named) else ()


def sampled_for(metadata: Mapping[str, Any] | None) -> str | None:
    """Return the digest of the chat request that a batch's answers were sampled for, in hexadecimal; None: of none."""
    found = (metadata or {}).get(SAMPLING)
    return found.get("request") if isinstance(found, dict) else None


def dimension_of(embedding: tuple[float, ...] | bytes) -> int:
    """Return how many numbers an embedding has, in either form."""
    return len(embedding) // _FLOAT32_BYTES if isinstance(embedding, bytes) else len(embedding)


def embedding_rows(embeddings: Sequence[tuple[float, ...] | bytes]) -> NDArray[np.float64]:
    """Return embeddings of one dimension, in either form, as little-endian doubles of shape (n, d)."""
    packed = [one for one in embeddings if isinstance(one, bytes)]
    if len(packed) == len(embeddings):
        rows = np.frombuffer(b"".join(packed), "<f4").astype("<f8")
    else:
        rows = np.frombuffer(b"".join(map(_doubles, embeddings)), "<f8")
    return rows.reshape(len(embeddings), -1)


def _doubles(embedding: tuple[float, ...] | bytes) -> bytes:
    """Return the numbers of an embedding as little-endian doubles; exact for both forms."""
    if isinstance(embedding, bytes):
        return np.frombuffer(embedding, "<f4").astype("<f8").tobytes()
    return struct.pack(f"<{len(embedding)}d", *embedding)


def _with_texts(responses: Sequence[ResponseV1], value: bytes) -> Iterator[ResponseV1]:
    """Give responses that came as calls their texts. Raises `BadMessage` for those that came as neither, or as both."""
    some_without = value.count(b'"text"') < sum(one.calls is None for one in responses)
    for place, one in enumerate(responses):
        if one.calls is None:
            if some_without and not one.text:
                raise BadMessage(codes.INVALID_FIELD, f"$.responses[{place}] has neither `text` nor `calls`")
            yield one
            continue
        if one.text or any(bytes(call.arguments)[:1] not in (b"{", b'"') for call in one.calls):
            wrong = (
                "`text` and `calls`" if one.text else "`calls` whose arguments are neither object nor string"
            )
            raise BadMessage(codes.INVALID_FIELD, f"$.responses[{place}] has {wrong}")
        text = msgspec.json.encode(one.calls).decode()
        yield msgspec.structs.replace(one, text=call_text(text) or text, calls=None)


def _check_responses(responses: tuple[ResponseV1, ...], limits: Limits) -> int:
    """Check every response, and return how many keys and string values they have."""
    if len(responses) > limits.max_responses:
        raise BadMessage(
            codes.TOO_MANY_RESPONSES,
            f"the batch has {len(responses)} responses, at most {limits.max_responses} are allowed",
        )
    strings = 4 * len(responses)
    surely_small = limits.max_text_bytes // 4
    longest = limits.max_identifier
    ids = [response.id for response in responses]
    for position, name in enumerate(ids):
        # Printable text of the right length follows the rule; only the rest needs the careful look.
        if not (0 < len(name) <= longest and name.isprintable()):
            check_identifier(f"$.responses[{position}].id", name, longest)
    if len(set(ids)) < len(ids):
        repeated = next(name for name in ids if ids.count(name) > 1)
        raise BadMessage(codes.DUPLICATE_RESPONSE_IDS, f"two responses have the id {excerpt(repeated)}")
    embedded = 0
    for response in responses:
        if len(response.text) > surely_small:
            _check_text(response, limits)
        embedded += response.embedding is not None
        if response.model is not None:
            strings += 2
            if not (0 < len(response.model) <= longest and response.model.isprintable()):
                check_identifier(f"the model of response {excerpt(response.id)}", response.model, longest)
        if response.signals:
            strings += 1 + len(response.signals)
            if taken := declared.FIELDS & response.signals.keys():
                raise BadMessage(
                    codes.INVALID_FIELD,
                    f"the signals of response {excerpt(response.id)} have {min(taken)}, which is read from elsewhere; call it otherwise",
                )
        if response.claims is not None:
            strings += check_claims(response.id, response.text, response.claims, longest)
        strings += 3 - (response.score, response.logprob, response.token_logprobs).count(None)
    if embedded:
        strings += embedded + _check_embeddings(responses, embedded, limits)
    return strings


def _check_text(response: ResponseV1, limits: Limits) -> None:
    size = len(response.text) if response.text.isascii() else len(response.text.encode())
    if size > limits.max_text_bytes:
        raise BadMessage(
            codes.TEXT_TOO_LARGE,
            f"the text of response {excerpt(response.id)} has {size} bytes, at most {limits.max_text_bytes} are allowed",
        )


def _check_embeddings(responses: tuple[ResponseV1, ...], embedded: int, limits: Limits) -> int:
    """Check every embedding, and return how many came as strings."""
    if embedded != len(responses):
        raise BadMessage(
            codes.MIXED_EMBEDDING_DIMENSIONS,
            f"{embedded} of {len(responses)} responses have an embedding; all or none must have one",
        )
    packed = [(r.id, r.embedding) for r in responses if isinstance(r.embedding, bytes)]
    for name, embedding in packed:
        if len(embedding) % _FLOAT32_BYTES:
            raise BadMessage(
                codes.BAD_EMBEDDING,
                f"the embedding of response {excerpt(name)} has {len(embedding)} bytes, not a multiple of "
                f"{_FLOAT32_BYTES}; {_SEND_FLOAT32}",
            )
    dimensions = sorted({dimension_of(response.embedding or ()) for response in responses})
    if len(dimensions) > 1:
        raise BadMessage(
            codes.MIXED_EMBEDDING_DIMENSIONS,
            f"embeddings have {len(dimensions)} different dimensions, for example {dimensions[0]} and {dimensions[-1]}",
        )
    if not limits.min_dimension <= dimensions[0] <= limits.max_dimension:
        raise BadMessage(
            codes.BAD_EMBEDDING,
            f"the embeddings have dimension {dimensions[0]}, allowed is {limits.min_dimension} to {limits.max_dimension}",
        )
    for response in responses:
        if not isinstance(response.embedding, bytes):
            _check_norm(response.id, math.hypot(*(response.embedding or ())))
    if packed:
        _check_packed(packed)
    return len(packed)


def _check_packed(packed: list[tuple[str, bytes]]) -> None:
    """Check the numbers of embeddings in base64, of one dimension, by the names of their responses."""
    # Finite first: some NaN make a warning when they become doubles.
    single = np.frombuffer(b"".join(embedding for _, embedding in packed), "<f4").reshape(len(packed), -1)
    finite = np.isfinite(single).all(axis=1)
    if not finite.all():
        name = packed[int(finite.argmin())][0]
        raise BadMessage(
            codes.NOT_FINITE,
            f"the embedding of response {excerpt(name)} holds NaN or infinity; {_SEND_FLOAT32}",
        )
    rows = single.astype(np.float64)
    norms: list[float] = np.sqrt(np.einsum("ij,ij->i", rows, rows)).tolist()
    for (name, _), norm in zip(packed, norms, strict=True):
        _check_norm(name, norm, f"; {_SEND_FLOAT32}")


def _check_norm(name: str, norm: float, advice: str = "") -> None:
    if not _MIN_NORM <= norm <= _MAX_NORM:
        raise BadMessage(
            codes.BAD_EMBEDDING,
            f"the embedding of response {excerpt(name)} has norm {norm:g}, it must lie in "
            f"[{_MIN_NORM:g}, {_MAX_NORM:g}]{advice}",
        )


def _check_keys(event: ResponsesV1, value: bytes, strings: int, limits: Limits) -> None:
    """Refuse repeated keys and deep nesting, the cheap way when that is enough."""
    strings += 9  # schema, gate, batch_id and prompt with their values, and responses
    optional: list[bytes] = []
    if event.attempt == 1:
        optional.append(b'"attempt":')
    else:
        strings += 1
    if event.references is None:
        optional.append(b'"references":')
    else:
        strings += 1 + len(event.references)
    if event.created_at is None:
        optional.append(b'"created_at":')
    else:
        strings += 2
    if event.embedding_encoder is None:
        optional.append(b'"embedding_encoder":')
    else:
        strings += 2
    if event.metadata:
        strings += 1 + json_structure.survey(event.metadata, limits.max_depth - 1, "$.metadata")
    else:
        optional.append(b'"metadata":')
    if not json_structure.proves_plain(value, strings, optional):
        json_structure.check_structure(value, limits.max_depth)


SPECIFICATION = Topic(
    name="responses",
    place=0,
    says="Batches of responses to be decided",
    key="anything or none; order is kept per key",
    event=ResponsesV1,
    decode=decode_responses,
    written_by="publishers",
    read_by=("workers",),
    line=lambda event, _: [*(event["gate"], batch_text(event), counted(len(event["responses"]), "response"))],
)
