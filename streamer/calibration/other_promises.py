"""Calibrators that are no weighting schemes, for the arrays that `streamer.calibrate` takes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamer.calibration.arguments import unit_interval, whole_number
from streamer.calibration.groups import LabelledGroup, index_groups
from streamer.calibration.registry import calibrator, for_arrays
from streamer.calibration.specification import Sample
from streamer.calibration.threshold import Threshold


def calibrate_arrays(
    scores: ArrayLike,
    severities: ArrayLike,
    groups: Sequence[Any] | NDArray[Any],
    *,
    alpha: float,
    method: str,
    delta: float,
    seed: int | np.random.Generator,
) -> Threshold:
    """Calibrate by one that is no weighting scheme; see `streamer.calibrate` for arguments and errors."""
    if method not in for_arrays():
        raise ValueError(f"method must be one of {', '.join(for_arrays())}, not {method!r}")
    if isinstance(seed, np.random.Generator):
        seed = int(seed.integers(2**63))
    sample = Sample(
        groups=named_groups(scores, severities, groups),
        alpha=alpha,
        seed=whole_number("seed", seed, least=0),
    )
    return calibrator(method, {"delta": delta}).calibrate(sample).threshold


def named_groups(
    scores: ArrayLike, severities: ArrayLike, groups: Sequence[Any] | NDArray[Any]
) -> list[LabelledGroup]:
    """Gather items by group; a group is named by how Python writes its id.

    Raises
    ------
    ValueError
        If an argument is not as `streamer.calibrate` requires, or two ids are written alike.
    """
    score_array, severity_array = unit_interval("scores", scores), unit_interval("severities", severities)
    if len(score_array) != len(severity_array):
        raise ValueError(
            f"scores has {len(score_array)} items and severities {len(severity_array)}: one each is needed"
        )
    index, sizes = index_groups(groups, len(score_array))
    order = np.argsort(index, kind="stable")
    ends = np.cumsum(sizes)
    made = []
    for size, end in zip(sizes.tolist(), ends.tolist(), strict=True):
        items = order[end - size : end]
        made.append(
            LabelledGroup(
                repr(_plain(groups[int(items[0])])),
                tuple(f"{position}" for position in range(size)),
                score_array[items],
                severity_array[items],
            )
        )
    return made


def _plain(identity: Any) -> Any:
    """Return a NumPy scalar as Python's own, which is written the same whatever the array's type."""
    return identity.item() if isinstance(identity, np.generic) else identity
