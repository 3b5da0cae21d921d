"""How far the other answers support each claim of the first: `streamer.scoring.claims.support`."""

from dataclasses import dataclass
from typing import ClassVar

from streamer.scoring.scorer import Scorer


@dataclass(frozen=True, slots=True)
class Support(Scorer):
    """The score of claims, for gates of the unit `claim`; it has none of whole answers."""

    name: ClassVar[str] = "support"
    title: ClassVar[str] = "support of claims"
    says: ClassVar[str] = "the other answers have the claim's words, numbers and names"
    in_place: ClassVar[str | None] = "none"
