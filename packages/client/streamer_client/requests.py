"""The events that a client sends, and the addresses that it sends them to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Required, TypeAlias, TypedDict
from urllib.parse import quote

import msgspec

from streamer_client.decisions import Trouble

Answers: TypeAlias = Sequence[str] | Mapping[str, str]
"""Texts in order, whose ids are then ``0``, ``1``, ...; or ids and texts."""


class Batch(TypedDict, total=False):
    """What may go with prompt and answers; docs/events/README.md says what each means.

    `embeddings` : one for each answer, numbers or bytes (little-endian float32).
    `scores` : one for each answer, in [0, 1].
    `logprobs` : the mean log-probability of each answer's tokens, at most 0; None for a blank one.
    `token_logprobs` : in their place those of each answer's tokens.
    `calls` : the tools that each answer calls, ``{"name": ..., "arguments": {...}}``, in the place
        of its text, which is then empty; None where it calls none. Which ship says `Decision.index`.
    `models` : the model that gave each answer; None where that is not said.
    `signals` : numbers of your own for each answer, by name: ``{"retrieval": 0.82}``; None where one is not known.
    `claims` : of each answer, ``{"id": ..., "text": ..., "span": [...]}``; None: its sentences are.
    `created_at` : with a zone. The gate's decision deadline counts from it.
    """

    batch_id: str
    attempt: int
    embeddings: Sequence[Sequence[float] | bytes]
    embedding_encoder: str
    scores: Sequence[float]
    logprobs: Sequence[float | None]
    token_logprobs: Sequence[Sequence[float] | None]
    calls: Sequence[Sequence[Mapping[str, Any]] | None]
    models: Sequence[str | None]
    signals: Sequence[Mapping[str, float | None] | None]
    claims: Sequence[Sequence[Mapping[str, Any]] | None]
    references: Sequence[str]
    metadata: Mapping[str, Any]
    created_at: datetime


class Label(TypedDict, total=False):
    """What goes with a severity; docs/events/README.md says what each means. `labeller` must be there.

    `kind` : ``human`` unless it is said otherwise.
    `labelled_at` : with a zone; the present when it is left out.
    `severities` : of fields of an answer in JSON, by JSON Pointer.
    """

    labeller: Required[str]
    kind: str
    attempt: int
    labelled_at: datetime
    signature: str
    key_id: str
    severities: Mapping[str, float]


_OF_EACH = {
    "embeddings": "embedding", "scores": "score", "logprobs": "logprob",
    "token_logprobs": "token_logprobs", "calls": "calls", "models": "model", "signals": "signals",
    "claims": "claims",
}  # fmt: skip
"""What there is one of for each answer, by the member of the event."""


def pairs(answers: Answers) -> list[tuple[str, str]]:
    """Give each answer its id. Raises `Trouble` (``invalid_request``) for one text in place of several."""
    if isinstance(answers, str):
        raise Trouble("invalid_request", "answers must be several texts, not one")
    if isinstance(answers, Mapping):
        return list(answers.items())
    return [(str(place), text) for place, text in enumerate(answers)]


def responses_event(
    gate: str, batch_id: str, prompt: str, answers: Sequence[tuple[str, str]], batch: Batch
) -> bytes:
    """Write the responses event. Raises `Trouble` (``invalid_request``) for what no event can hold."""
    fields: dict[str, Any] = {**batch}
    responses: list[dict[str, Any]] = [{"id": name, "text": text} for name, text in answers]
    for given, name in _OF_EACH.items():
        values = fields.pop(given, None)
        if values is None:
            continue
        if isinstance(values, str | Mapping):
            what = "one text" if isinstance(values, str) else "one mapping"
            raise Trouble("invalid_request", f"of {name} there must be one for each answer, not {what}")
        if len(values) != len(responses):
            raise Trouble(
                "invalid_request", f"there are {len(responses)} answers and {len(values)} of {name}"
            )
        for response, value in zip(responses, values, strict=True):
            if value is None:
                continue
            response[name] = value if isinstance(value, bytes) else _plain(value)
            if name == "calls" and not response["text"]:
                del response["text"]
    fields |= {
        "schema": "streamer.responses.v1",
        "gate": gate,
        "batch_id": batch_id,
        "prompt": prompt,
        "responses": responses,
    }
    return _encoded(fields)


def labels_event(
    gate: str, batch_id: str, response_id: str, severity: float | None, label: Label, *, now: datetime
) -> bytes:
    """Write the labels event. Raises `Trouble` (``invalid_request``) for what no event can hold."""
    return _encoded(
        {
            "kind": "human",
            "labelled_at": now,
            **label,
            "schema": "streamer.labels.v1",
            "gate": gate,
            "batch_id": batch_id,
            "response_id": response_id,
            "severity": severity,
        }
    )


def _encoded(event: Mapping[str, Any]) -> bytes:
    try:
        given = {name: value for name, value in event.items() if value is not None}
        return msgspec.json.encode(given, enc_hook=_plain_text)
    except (TypeError, ValueError, RecursionError) as error:
        raise Trouble("invalid_request", f"the arguments make no event: {type(error).__name__}") from error


def _plain_text(value: object) -> str:
    """A text that is of a subclass of str, as the texts of LangChain's messages are."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def gate_path(gate: str, *parts: str) -> str:
    """The address of a gate, or of what lies under it."""
    return "/".join(["v1/gates", *(quote(part, safe="") for part in (gate, *parts))])


def _plain(value: Any) -> Any:
    """Plain numbers of what may be an array of numpy, which is not imported for that; of a mapping what is known."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items() if one is not None}
    return value.tolist() if hasattr(value, "tolist") else value
