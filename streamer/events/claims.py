"""The claims that a response may bring."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta

from streamer.calibration.claims import MOST_CLAIMS
from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.excerpts import excerpt
from streamer.events.identifiers import Identifier, about, check_identifier
from streamer.scoring.claims.support import least
from streamer.scoring.judged import WHOLE
from streamer.scoring.scorer import Floats, Scorer

CLAIMS: Final = "streamer.claims"
"""The key of a batch's metadata, reserved, under which the record of a gate of claims has the
responses, the first of them the one with the claims, and where each claim stands in it."""


class RecordedClaims(NamedTuple):
    """What claims on record are of.

    `responses`: the texts of the batch's responses by id; the first has the claims. `spans`: where
    each claim stands in it, from and up to, in code points. `rests_on`: the places of those that
    each rests on; nothing where none rests on any.
    """

    responses: Mapping[str, str]
    spans: Sequence[tuple[int, int]]
    rests_on: Sequence[Sequence[int]] = ()

    def scores_by(self, scorer: Scorer) -> Floats:
        """Return the score of each claim and what it rests on by a scorer of claims, shape (K,)."""
        _, *others = self.responses.values()
        said = [self.answer[slice(*span)] for span in self.spans]
        return least(scorer.support(said, list(map(WHOLE.part, others))), self.rests_on)

    @property
    def answer(self) -> str:
        """The response with the claims."""
        return next(iter(self.responses.values()))

    @classmethod
    def of(cls, metadata: Mapping[str, Any] | None) -> "RecordedClaims | None":
        """Read them in a batch's metadata; None: its rows are of responses."""
        kept = (metadata or {}).get(CLAIMS)
        if kept is None:
            return None
        return cls(dict(kept["responses"]), kept["spans"], kept.get("rests_on", ()))


class ClaimV1(
    msgspec.Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """A claim of a response."""

    id: Annotated[Identifier, about("Unique within the response; labels name it.")]
    text: Annotated[
        str,
        about(
            "What stands there, white space aside: what is scored is what ships.",
            min_length=1,
            extra_json_schema={"pattern": r"^[^\u0000]*$"},
        ),
    ]
    span: Annotated[
        tuple[Annotated[int, Meta(ge=0)], Annotated[int, Meta(ge=1)]],
        about("Where it stands in the response's text, from and up to, in code points."),
    ]
    rests_on: Annotated[
        tuple[Identifier, ...],
        about(
            "Ids of claims of the same response without which it does not stand: it "
            "ships with all of them or not at all, and has the least of their scores and its own.",
            max_length=MOST_CLAIMS,
        ),
    ] = ()


Claims = Annotated[
    tuple[ClaimV1, ...],
    about(
        "For gates of the unit `claim`, of the first response: disjoint, in the order of "
        "the text, what may be left out one by one. Absent: its sentences are."
    ),
]


def check_claims(response: str, text: str, claims: Sequence[ClaimV1] | None, longest: int) -> int:
    """Check names and spans of a response's claims, and return how many keys and texts they have.

    Raises `BadMessage`.
    """
    if claims is None:
        return 0
    of = f"response {excerpt(response)}"
    ids, place = set[str](), 0
    for one in claims:
        check_identifier(f"the id of a claim of {of}", one.id, longest)
        name = excerpt(one.id)
        if one.id in ids:
            raise BadMessage(codes.DUPLICATE_RESPONSE_IDS, f"two claims of {of} have the id {name}")
        ids.add(one.id)
        if not place <= one.span[0] < one.span[1] <= len(text):
            raise BadMessage(
                codes.INVALID_FIELD,
                f"the claim {name} of {of} has the span {list(one.span)}; spans are disjoint, in "
                f"the order of the text, and within its {len(text)} code points",
            )
        place = one.span[1]
        if one.text.split() != (there := text[slice(*one.span)]).split():
            raise BadMessage(
                codes.INVALID_FIELD,
                f"the claim {name} of {of} is not what stands at its span, {excerpt(there)}; a claim "
                "has the words of the answer, since they are what is scored and what ships",
            )
    for one in claims:
        if unknown := set(one.rests_on) - ids:
            raise BadMessage(
                codes.INVALID_FIELD,
                f"the claim {excerpt(one.id)} of {of} rests on {excerpt(min(unknown))}, which is the "
                "id of none of its claims",
            )
    return 1 + sum(5 + bool(one.rests_on) + len(one.rests_on) for one in claims)
