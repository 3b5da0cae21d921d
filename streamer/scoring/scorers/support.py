"""How far the other answers support each claim of the first: `streamer.scoring.claims.support`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from streamer.scoring.claims.support import features, finished
from streamer.scoring.scorer import Floats, Scorer


@dataclass(frozen=True, slots=True)
class Support(Scorer):
    """The score of claims that has learned nothing."""

    name: ClassVar[str] = "support"
    title: ClassVar[str] = "support of claims"
    says: ClassVar[str] = "the other answers have the claim's words, numbers and names"
    in_place: ClassVar[str | None] = "none"
    of_claims: ClassVar[bool] = True

    def support(self, claims: Sequence[str], witnesses: Sequence[str]) -> Floats:
        """Return what `streamer.scoring.claims.support` defines."""
        contain, _, keys, weakest, rare, answer = features(claims, witnesses).T
        return finished((contain + keys + weakest + rare + 2 * answer) / 6, claims)
