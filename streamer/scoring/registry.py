"""Every scorer by name: those in `streamer.scoring.scorers`. Pure.

What a scorer needs beyond the answers is fixed where it is defined, before any file is looked at.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from streamer.calibration.specification import discovered
from streamer.errors import UsageError
from streamer.scoring import plugins, scorers
from streamer.scoring.scorer import Scorer
from streamer.scoring.scorers.choice import Choice
from streamer.scoring.scorers.gram import Gram
from streamer.scoring.scorers.likelihood import Likelihood
from streamer.scoring.scorers.support import Support

EVERY: Mapping[str, Scorer] = MappingProxyType(
    {name: kind() for name, kind in discovered(scorers, Scorer).items()}
)
"""All of them, the one that gates use first."""

SCORERS: tuple[Scorer, ...] = tuple(one for one in EVERY.values() if one.in_place is None)
"""Those that are computed from the answers and their embeddings: what `streamer evaluate` ranks."""

SCORER_NAMES = tuple(one.name for one in SCORERS)

SUPPORT = Support.name
OF_CLAIMS = tuple(name for name, one in EVERY.items() if one.of_claims)
"""Those of claims; `SUPPORT` unless another is named."""

GRAM = Gram.name
CHOICE = Choice.name
LIKELIHOOD = Likelihood.name
CHOOSING = (CHOICE, LIKELIHOOD)
"""Those that choose the answer which a list of signals is about."""


def claim_scorer(name: str) -> Scorer:
    """Return a scorer of claims. Raises `UsageError` if there is none of this name."""
    if name not in OF_CLAIMS:
        raise UsageError(f"claims are scored by {' or '.join(OF_CLAIMS)}, not {name!r}")
    return EVERY[name]


def is_plugin(name: str) -> bool:
    """Whether a gate's scorer is of another package: its name is its entry point's, ``@`` and the specification's hash."""
    return plugins.NAME.fullmatch(name) is not None


@lru_cache(maxsize=64)
def scorer_named(name: str, model: str | None = None) -> Scorer:
    """Return the scorer of a gate; `model`: the specification of another package's scorer, as JSON.

    Raises `KeyError` if there is no scorer of this name; `ValueError` if the specification is none,
    or of another name.
    """
    if not is_plugin(name):
        return EVERY[name]
    spec = plugins.ScorerSpec.of_text(model or "")
    if spec.frozen_name != name:
        raise ValueError(f"the specification is that of {spec.frozen_name}, not {name}")
    return plugins.Installed(spec)
