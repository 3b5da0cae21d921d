"""Every scorer by name: those in `streamer.scoring.scorers`. Pure.

What a scorer needs beyond the answers is fixed where it is defined, before any file is looked at.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from streamer.calibration.specification import discovered
from streamer.scoring import scorers
from streamer.scoring.learned import PREFIX, learned_scorer
from streamer.scoring.scorer import Scorer
from streamer.scoring.scorers.gram import Gram

if TYPE_CHECKING:
    from collections.abc import Mapping

EVERY: Mapping[str, Scorer] = MappingProxyType(
    {name: kind() for name, kind in discovered(scorers, Scorer).items()}  # type: ignore[type-abstract]
)
"""All of them, the one that gates use first."""

SCORERS: tuple[Scorer, ...] = tuple(one for one in EVERY.values() if one.in_place is None)
"""Those that are computed from the answers and their embeddings: what `streamer evaluate` ranks."""

SCORER_NAMES = tuple(one.name for one in SCORERS)

GRAM = Gram.name

LEARNED = "learned"
"""What `streamer evaluate` calls the score that it fits itself. A gate's has a model, and the model's name."""


def is_learned(name: str) -> bool:
    """Whether a gate's scorer is a model: its name is ``learned@`` and the model's hash."""
    return name.startswith(PREFIX)


def scorer_named(name: str, model: str | None = None) -> Scorer:
    """Return the scorer of a gate.

    Parameters
    ----------
    name : as in its settings.
    model : of a learned score, as JSON.

    Raises
    ------
    KeyError
        If there is no scorer of this name.
    ValueError
        If the model is none, or of another name.
    """
    return _learned(name, model or "") if is_learned(name) else EVERY[name]


@lru_cache(maxsize=64)
def _learned(name: str, model: str) -> Scorer:
    made = learned_scorer(model)
    if made.model.name != name:
        raise ValueError(f"the model is {made.model.name}, not {name}")
    return made
