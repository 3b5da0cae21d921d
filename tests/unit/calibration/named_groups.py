"""Groups for tests: drawn from a generator, or by hypothesis."""

import numpy as np
from hypothesis import strategies as st

from streamer import LabelledGroup


def some_groups(
    rng: np.random.Generator, count: int, *, most: int = 4, levels: int = 8
) -> list[LabelledGroup]:
    """Draw groups of 1 to `most` items with tied scores and severities of which every other one is 0."""
    groups = []
    for g in range(count):
        size = int(rng.integers(1, most + 1))
        scores = rng.integers(0, levels + 1, size) / levels
        severities = rng.integers(0, 5, size) / 4 * (rng.random(size) < 0.5)
        groups.append(LabelledGroup(f"g{g}", tuple(f"r{i}" for i in range(size)), scores, severities))
    return groups


def shuffled(groups: list[LabelledGroup], rng: np.random.Generator) -> list[LabelledGroup]:
    """Return the same groups and items in another order."""
    again = []
    for g in rng.permutation(len(groups)):
        group = groups[g]
        order = rng.permutation(len(group.item_ids))
        names = tuple(group.item_ids[i] for i in order)
        again.append(LabelledGroup(group.id, names, group.scores[order], group.severities[order]))
    return again


@st.composite
def groups(draw: st.DrawFn, *, most: int = 60) -> list[LabelledGroup]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return some_groups(rng, draw(st.integers(1, most)), levels=draw(st.sampled_from([2, 8, 1000])))


def group_loss(group: LabelledGroup, level: float) -> float:
    """L_g(level) by the mean scheme, word for word."""
    return float(sum(m for q, m in zip(group.scores, group.severities, strict=True) if q > level)) / len(
        group.item_ids
    )


def every_level(groups: list[LabelledGroup]) -> list[float]:
    """All scores and -inf, falling: from strict to permissive."""
    return [*sorted({float(q) for group in groups for q in group.scores}, reverse=True), -np.inf]
