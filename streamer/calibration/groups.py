"""Groups, the units of exchangeability: one prompt each, with those of its responses that were labelled."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.arguments import unit_interval

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class LabelledGroup:
    """One group with the items of it that have a severity.

    `item_ids` are unique within the group, at least one; `scores` are label-free; both have shape
    (I,), in [0, 1], as `severities` do: 1 for an item that was drawn for labelling and never got a
    label. `summed`: the group loses the sum of the severities of what ships, at most 1, and not
    their mean over all items: its items are the steps of its loss. Raises `ValueError` if lengths
    differ, an item id repeats, or a number is outside [0, 1].
    """

    id: str
    item_ids: tuple[str, ...]
    scores: Floats
    severities: Floats
    summed: bool = False

    def __post_init__(self) -> None:
        if not self.item_ids:
            raise ValueError(f"group {self.id!r} has no items")
        if len(set(self.item_ids)) != len(self.item_ids):
            raise ValueError(f"group {self.id!r} names an item twice")
        for name in ("scores", "severities"):
            try:
                values = unit_interval(name, getattr(self, name))
            except ValueError as error:
                raise ValueError(f"group {self.id!r}: {error}") from None
            if len(values) != len(self.item_ids):
                raise ValueError(f"group {self.id!r} has {len(self.item_ids)} items and {len(values)} {name}")
            object.__setattr__(self, name, values)


def labelled_groups(
    ids: Sequence[str], item_ids: Sequence[tuple[str, ...]], scores: Floats, severities: Floats
) -> tuple[LabelledGroup, ...]:
    """Make many groups at once: what `LabelledGroup` checks one by one is checked for all together,
    with the same errors.

    `scores` and `severities`, shape (N,), are of all items, group after group.
    """
    sizes = [len(names) for names in item_ids]
    if not sizes:
        return ()
    scores, severities = unit_interval("scores", scores), unit_interval("severities", severities)
    if not len(scores) == len(severities) == sum(sizes):
        raise ValueError(f"{sum(sizes)} items have {len(scores)} scores and {len(severities)} severities")
    made = []
    end, put = 0, object.__setattr__
    for name, names, size in zip(ids, item_ids, sizes, strict=True):
        start, end = end, end + size
        if not size:
            raise ValueError(f"group {name!r} has no items")
        if size > 1 and len(set(names)) != size:
            raise ValueError(f"group {name!r} names an item twice")
        group = LabelledGroup.__new__(LabelledGroup)
        put(group, "id", name)
        put(group, "item_ids", names)
        put(group, "scores", scores[start:end])
        put(group, "severities", severities[start:end])
        put(group, "summed", False)
        made.append(group)
    return tuple(made)


def laid_out(groups: Sequence[LabelledGroup]) -> tuple[Floats, Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Return the scores and severities of all items, group after group, each group's number of items, and its divisor."""
    sizes = np.array([len(group.item_ids) for group in groups], dtype=np.int64)
    divisors = np.where([group.summed for group in groups], 1, sizes)
    scores = np.concatenate([np.empty(0), *[group.scores for group in groups]])
    return scores, np.concatenate([np.empty(0), *[group.severities for group in groups]]), sizes, divisors


def check_unique(groups: Sequence[LabelledGroup]) -> None:
    """Raise ValueError if two groups share an id: the same prompt must not count twice."""
    if len({group.id for group in groups}) == len(groups):
        return
    seen: set[str] = set()
    for group in groups:
        if group.id in seen:
            raise ValueError(f"group {group.id!r} occurs twice")
        seen.add(group.id)


def index_groups(groups: Sequence[Any] | NDArray[Any], length: int) -> tuple[Indices, NDArray[np.int64]]:
    """Number the groups of `length` items: return each item's group, shape (N,), in 0..G-1, and
    each group's size, shape (G,).

    `groups` holds the id of each item: an array, or any sequence of hashables; arrays of integers
    are numbered without hashing. Raises `ValueError` if the length differs, an id is unhashable, or
    an id is NaN (a missing id, equal to nothing).
    """
    if isinstance(groups, str | bytes):
        raise ValueError("groups must be a sequence with one id for each item, not a single text")
    if not isinstance(groups, list | tuple) and hasattr(groups, "__array__"):
        groups = np.asarray(groups)
        if groups.ndim != 1:
            raise ValueError(f"groups must be one-dimensional, not of shape {groups.shape}")
    if not hasattr(groups, "__len__"):
        raise ValueError(f"groups must be a sequence with one id for each item, not {type(groups).__name__}")
    if len(groups) != length:
        raise ValueError(
            f"scores has {length} items and groups {len(groups)}: one group id for each item is needed"
        )
    if isinstance(groups, np.ndarray):
        if groups.dtype.kind in "bui":
            return _index_integers(groups)
        if groups.dtype.kind == "f" and np.isnan(groups).any():
            raise ValueError("a group id is NaN: every item needs its group's id")
        groups = groups.tolist()
    numbers: dict[Any, int] = {}
    try:
        index = np.fromiter((numbers.setdefault(group, len(numbers)) for group in groups), np.intp, length)
    except TypeError:
        raise ValueError("group ids must be hashable") from None
    if any(group != group for group in numbers):
        raise ValueError("a group id is NaN: every item needs its group's id")
    return index, np.bincount(index, minlength=len(numbers))


def _index_integers(groups: NDArray[Any]) -> tuple[Indices, NDArray[np.int64]]:
    least, most = int(groups.min()), int(groups.max())
    if most - least > 8 * len(groups) + 1024:
        _, index, counts = np.unique(groups, return_inverse=True, return_counts=True)
        return index, counts
    if groups.dtype != np.uint64:
        groups = groups.astype(np.int64, copy=False)  # a narrower type could not hold the difference
    index = (
        (groups - groups.dtype.type(least)).astype(np.intp, copy=False)
        if least
        else groups.astype(np.intp, copy=False)
    )
    counts = np.bincount(index)
    if counts.all():
        return index, counts
    present = counts > 0
    return (np.cumsum(present) - 1)[index], counts[present]


def canonical_order(
    scores: Floats, severities: Floats, index: Indices, sizes: NDArray[np.int64]
) -> tuple[Indices, NDArray[np.int64]]:
    """Order items group by group in a way that depends on what the groups hold, not on how they
    came: return item positions and group sizes.

    Random weights are dealt out in this order, so that shuffling the items or renaming the groups
    changes nothing. Validity is untouched although labels take part in the order: the weights of a
    group are exchangeable and drawn independently of it, so that dealing them out in any order that
    the contents determine leaves their distribution, given the contents, the same.
    """
    fingerprints = np.zeros(len(sizes), dtype=np.uint64)
    np.add.at(fingerprints, index, _mixed(severities + 0.0, _mixed(scores + 0.0, np.uint64(1))))
    ranked = np.lexsort((fingerprints, sizes))
    rank = np.empty(len(sizes), dtype=np.intp)
    rank[ranked] = np.arange(len(sizes))
    return np.lexsort((severities, scores, rank[index])), sizes[ranked]


def _mixed(values: Floats, salt: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    """Hash each number's bits together with `salt` (the finaliser of the SplitMix64 generator)."""
    bits = values.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + salt
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = bits ^ (bits >> np.uint64(31))
    return mixed
