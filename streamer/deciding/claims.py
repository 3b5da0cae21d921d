"""The claims of a batch: those of its first response, as they came or as `sentences` cuts it."""

from typing import Any, NamedTuple

from streamer.events.actions import call_seal
from streamer.events.claims import CLAIMS, ClaimV1, RecordedClaims
from streamer.events.responses import ResponsesV1
from streamer.scoring.claims.answer import LeftOut, Part, assembled, cut, parts, why_held
from streamer.scoring.claims.support import places
from streamer.scoring.judged import WHOLE


class Claims(NamedTuple):
    """What is decided one by one. `held` : why nothing of it is; else empty."""

    claims: tuple[ClaimV1, ...]
    held: str


def claims_of(event: ResponsesV1) -> Claims:
    """Return the claims of the first response, which is chosen by neither labels nor threshold."""
    first = event.responses[0]
    made = first.claims
    if made is None:
        spans = cut(first.text)
        made = tuple(
            ClaimV1(id=f"c{place:02d}", text=first.text[slice(*span)], span=span)
            for place, span in enumerate(spans)
        )
    begin, end = WHOLE.span(first.text) or (0, len(first.text))
    outside = any(one.span[0] < begin or one.span[1] > end for one in made)  # reasoning never ships
    others = [WHOLE.part(one.text) for one in event.responses[1:]]
    return Claims(made, why_held(first.text, 0 if outside else len(made), others))


def recorded(event: ResponsesV1, claims: tuple[ClaimV1, ...]) -> RecordedClaims:
    """Return the claims as the record has them, and as they are scored."""
    return RecordedClaims(
        {one.id: one.text for one in event.responses},
        [one.span for one in claims],
        places((one.id, one.rests_on) for one in claims),
    )


class Shipped(NamedTuple):
    """What the action says of a response whose claims were decided.

    `parts`, `seal` : of the text; none where nothing ships.
    """

    answer: str
    claims: tuple[ClaimV1, ...]
    parts: tuple[Part, ...]
    seal: str | None

    def recorded(self, event: ResponsesV1) -> dict[str, Any]:
        """Return what the record keeps of the responses in the metadata: its rows are of claims."""
        texts, spans, rests_on = recorded(event, self.claims)
        kept = {"responses": list(map(list, texts.items())), "spans": list(map(list, spans))}
        return {CLAIMS: kept | ({"rests_on": rests_on} if any(rests_on) else {})}


def shipped_of(
    event: ResponsesV1,
    claims: tuple[ClaimV1, ...],
    ships: tuple[bool, ...],
    left_out: LeftOut,
    content: bytes,
) -> Shipped:
    """Put together what ships; `content` : the batch's content hash."""
    first, spans = event.responses[0], tuple(one.span for one in claims)
    made = parts(first.text, spans, ships, left_out)
    seal = call_seal(content, assembled(first.text, made)) if made else None
    return Shipped(first.id, claims, made, seal)
