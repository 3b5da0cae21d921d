"""Streams of decisions for tests."""

import itertools

import numpy as np

from streamer.risk.states import AuditedDecisions, Draw


def audited(
    losses: np.ndarray,
    probability: float | np.ndarray,
    rng: np.random.Generator,
    *,
    missing: float = 0.0,
    predicted: np.ndarray | float = 0.0,
    shipped: np.ndarray | float = 1.0,
) -> AuditedDecisions:
    """Draw the audit sample; each label is overdue with probability `missing`."""
    sampled = rng.random(losses.size) < probability
    labelled = sampled & (rng.random(losses.size) >= missing)
    return AuditedDecisions.of(
        probability=probability, sampled=sampled, labelled=labelled,
        loss=np.where(labelled, losses, 0.0), shipped=shipped, predicted=predicted,
    )  # fmt: skip


def draws_of(decisions: AuditedDecisions, limit: float, first: int = 0) -> list[Draw]:
    """The draws among these decisions, as an alarm bets on them; an overdue one counts 0."""
    return [
        Draw(first + int(place), limit, loss=float(decisions.loss[place]))
        for place in np.flatnonzero(decisions.sampled)
    ]


def severities(mean: float, size: int | tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw from Beta(2 mean, 2 (1 - mean)): mostly near 0, at times near 1."""
    return rng.beta(2 * mean, 2 * (1 - mean), size)


def pieces(decisions: AuditedDecisions, cuts: list[int]) -> list[AuditedDecisions]:
    """Cut decisions at these places, in order."""
    places = [0, *sorted(cuts), len(decisions)]
    return [
        AuditedDecisions(
            **{name: getattr(decisions, name)[start:stop] for name in AuditedDecisions.__dataclass_fields__}
        )
        for start, stop in itertools.pairwise(places)
    ]
