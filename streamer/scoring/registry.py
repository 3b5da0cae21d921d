"""Every scorer by name: those in `streamer.scoring.scorers`. Pure.

What a scorer needs beyond the answers is fixed where it is defined, before any file is looked at.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from streamer.calibration.specification import discovered
from streamer.scoring import scorers
from streamer.scoring.scorer import Scorer
from streamer.scoring.scorers.gram import Gram

if TYPE_CHECKING:
    from collections.abc import Mapping

EVERY: Mapping[str, Scorer] = MappingProxyType(
    {name: kind() for name, kind in discovered(scorers, Scorer).items()}  # type: ignore[type-abstract]
)
"""All of them, the one that gates use first."""

SCORERS: tuple[Scorer, ...] = tuple(one for one in EVERY.values() if not one.of_event)
"""Those that are computed from the answers: what `streamer evaluate` ranks."""

SCORER_NAMES = tuple(one.name for one in SCORERS)

GRAM = Gram.name
