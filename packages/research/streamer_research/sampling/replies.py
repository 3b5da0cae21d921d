"""What came back for the places of a batch, and what of it may go into a cloud. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from streamer.labels.llm.record import Choice, Exchange, TokenUsage
from streamer_research.sampling.plan import RecordPart, Request

MOST_BYTES = 65_536
"""Of one answer's text; what an event may hold unless the worker is configured otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One request that was answered, whatever the answers are worth.

    It has at least one choice, at most as many as `positions` of its batch. `model` and
    `fingerprint` are the endpoint's words; `usage` counts tokens of the request and of all its
    choices together, None where the endpoint did not.
    """

    batch: RecordPart
    positions: tuple[int, ...]
    choices: tuple[Choice, ...]
    arm: int
    sent: Mapping[str, Any]
    model: str | None
    fingerprint: str | None
    usage: TokenUsage | None
    seconds: float

    @classmethod
    def of(cls, request: Request, exchange: Exchange) -> Reply:
        """Take from an exchange what belongs to the places that were asked for."""
        choices = exchange.choices[: len(request.positions)]
        return cls(
            batch=request.batch,
            positions=request.positions[: len(choices)],
            choices=choices,
            arm=request.arm,
            sent=dict(exchange.parameters),
            model=exchange.model,
            fingerprint=exchange.fingerprint,
            usage=exchange.usage,
            seconds=round(exchange.seconds, 3),
        )

    def document(self) -> dict[str, Any]:
        """As plain JSON values."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Reply:
        """Read what `document` wrote. Raises `msgspec.ValidationError` for anything else."""
        return msgspec.convert(document, cls)


class Found(NamedTuple):
    """What came for one place: the reply and which of its choices."""

    reply: Reply
    place: int

    @property
    def choice(self) -> Choice:
        """The answer."""
        return self.reply.choices[self.place]

    @property
    def is_refused(self) -> bool:
        """The model or a filter would not answer."""
        return self.choice.refusal is not None

    @property
    def is_empty(self) -> bool:
        """There is no text."""
        return not self.is_refused and not publishable(self.choice.text)

    @property
    def is_cut_off(self) -> bool:
        """The answer was cut off at the token limit."""
        return self.choice.finish_reason == "length"

    @property
    def text(self) -> str | None:
        """The text that goes into a cloud; None where there is none."""
        return None if self.is_refused else publishable(self.choice.text) or None


@dataclass(slots=True)
class Ledger:
    """Everything that came, by batch and place; of two answers to one place the later one counts."""

    places: dict[RecordPart, dict[int, Found]] = field(default_factory=dict)

    def add(self, replies: Iterable[Reply]) -> None:
        """Take replies in, in their order."""
        for reply in replies:
            there = self.places.setdefault(reply.batch, {})
            for index in range(len(reply.choices)):
                there[reply.positions[index]] = Found(reply, index)

    def missing(
        self, wanted: Mapping[RecordPart, Sequence[int]], *, again: bool = False
    ) -> dict[RecordPart, tuple[int, ...]]:
        """The places of `wanted` for which nothing came; with `again` also those whose answer is no text."""
        left = {}
        for batch, positions in wanted.items():
            there = self.places.get(batch, {})
            places = tuple(
                position
                for position in positions
                if position not in there or (again and there[position].text is None)
            )
            if places:
                left[batch] = places
        return left

    def texts(self, batch: RecordPart) -> dict[int, str]:
        """The texts of a batch by place, without those that were refused or are empty."""
        found = ((position, one.text) for position, one in sorted(self.places.get(batch, {}).items()))
        return {position: text for position, text in found if text is not None}


def publishable(text: str) -> str:
    """`text` as an event may carry it: no NUL, no half surrogate pairs, at most `MOST_BYTES`, no space around it."""
    whole = text.replace("\0", "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.encode("utf-8")[:MOST_BYTES].decode("utf-8", "ignore").strip()
