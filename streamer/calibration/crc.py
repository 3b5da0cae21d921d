"""Conformal risk control by groups: from labelled items to the smallest threshold inside the budget.

With L_g(l) = sum_i w_gi m_gi 1{Q_gi > l} the loss of group g and B = alpha (G + 1) - 1 the budget of G groups,
lambda = min{ l : sum_g L_g(l) <= B } over -inf, the scores and +inf. For exchangeable groups the loss of a random item
of a fresh group is at most alpha on average, with ties and unequal group sizes, for every weighting scheme with mean 1/I.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamer.calibration.arguments import check_alpha, unit_interval, whole_number
from streamer.calibration.groups import Indices, LabelledGroup, canonical_order, index_groups
from streamer.calibration.registry import calibrator, for_arrays, weighting_scheme, weighting_schemes
from streamer.calibration.specification import Sample
from streamer.calibration.threshold import Threshold
from streamer.calibration.weighting import WeightingScheme, _threshold, calibrate_by_scheme

Floats = NDArray[np.float64]


def calibrate(
    scores: ArrayLike,
    severities: ArrayLike,
    groups: Sequence[Any] | NDArray[Any],
    *,
    alpha: float,
    method: str = "mean",
    eta: float = 1.0,
    draws: int = 20,
    delta: float = 0.1,
    seed: int | np.random.Generator = 0,
) -> Threshold:
    """Find the smallest threshold that keeps exposure risk inside the budget, on average or with high probability.

    The result does not depend on the order of the items or, but for `betting`, on the names of the groups, to the
    last bit.

    Parameters
    ----------
    scores : shape (N,), label-free scores in [0, 1], higher = safer.
    severities : shape (N,), in [0, 1], 0 = fine, 1 = worst.
    groups : length N, the group (prompt) of each item: hashable ids of any kind; arrays of integers are fastest.
        For the unit `best` pass one item for each group: its best response.
    alpha : budget on exposure risk, in (0, 1); at least 1/(G + 1), or else nothing ships. For a gate that
        regenerates up to R times, pass alpha / R.
    method : how the items of a group share its weight: `mean` (equally), `crc` (one item drawn at random), `bb`
        (`draws` draws with replacement) or `rbwa` (Dirichlet weights of concentration `eta`). The last three add
        randomness to the threshold and are there for comparison. Or another promise on equal weights: `hb` and
        `betting` (the budget holds with probability 1 - `delta`), `clt` (an asymptotic band: nothing is promised).
    eta : Dirichlet concentration of `rbwa`, > 0.
    draws : bootstrap draws per group of `bb`, >= 1.
    delta : chance, in (0, 1), that a bound by `hb`, `betting` or `clt` may fail; for `clt` at most .5.
    seed : for the random methods and `betting`, a whole number >= 0 or a generator, fixed before labels are read; the
        others ignore it.

    Returns
    -------
    Threshold
        Its `guarantee` says what is promised and under which assumptions.

    Raises
    ------
    ValueError
        If an argument is not as described; the message says which and why.

    Examples
    --------
    >>> from streamer import calibrate, decide
    >>> threshold = calibrate([0.9, 0.8, 0.4, 0.3], [0, 0, 1, 0], ["a", "b", "c", "d"], alpha=0.25)
    >>> threshold.state, threshold.value
    ('cut', 0.4)
    >>> decide([0.4, 0.41], threshold).tolist()
    [False, True]
    """
    if method not in weighting_schemes():
        return calibrate_arrays(
            scores, severities, groups, alpha=check_alpha(alpha), method=method, delta=delta, seed=seed
        )
    return calibrate_items(
        scores,
        severities,
        groups,
        alpha=alpha,
        scheme=weighting_scheme(method, {"eta": eta, "draws": draws}),
        seed=seed,
    )


def calibrate_items(
    scores: ArrayLike,
    severities: ArrayLike,
    groups: Sequence[Any] | NDArray[Any],
    *,
    alpha: float,
    scheme: WeightingScheme,
    seed: int | np.random.Generator = 0,
) -> Threshold:
    """Calibrate by a weighting scheme; see `calibrate`."""
    alpha = check_alpha(alpha)
    rng: np.random.Generator | None = None
    if isinstance(seed, np.random.Generator):
        rng = seed
    elif scheme.random:
        rng = np.random.default_rng(whole_number("seed", seed, least=0))
    score_array, severity_array, index, sizes = _items(scores, severities, groups)
    if rng is None or not scheme.random:
        losses = sizes.astype(np.float64)[index]
        np.divide(severity_array, losses, out=losses)
    else:
        order, sizes = canonical_order(score_array, severity_array, index, sizes)
        score_array = score_array[order]
        losses = severity_array[order] * scheme.drawn(sizes, rng)
    return _threshold(score_array, losses, groups=len(sizes), alpha=alpha, scheme=scheme)


def calibrate_groups(
    groups: Sequence[LabelledGroup],
    *,
    alpha: float,
    method: str = "mean",
    eta: float = 1.0,
    draws: int = 20,
    seed: int,
) -> Threshold:
    """Calibrate on named groups, with every random weight derived from the seed and the ids.

    The order of groups and items never matters and a rerun is bit-identical.

    `groups`: unique by id. None at all gives a closed threshold. `alpha`, `method`, `eta`, `draws`:
    see `calibrate`. `seed`: any whole number, fixed before labels are read. Raises `ValueError` if
    a group id repeats or an argument is not valid.
    """
    scheme = weighting_scheme(method, {"eta": eta, "draws": draws})
    return calibrate_by_scheme(groups, alpha=check_alpha(alpha), scheme=scheme, seed=seed)


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


def _items(
    scores: ArrayLike, severities: ArrayLike, groups: Sequence[Any] | NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64], Indices, NDArray[np.int64]]:
    score_array, severity_array = unit_interval("scores", scores), unit_interval("severities", severities)
    if len(score_array) != len(severity_array):
        raise ValueError(
            f"scores has {len(score_array)} items and severities {len(severity_array)}: one each is needed"
        )
    index, sizes = index_groups(groups, len(score_array))
    return score_array, severity_array, index, sizes


def named_groups(
    scores: ArrayLike, severities: ArrayLike, groups: Sequence[Any] | NDArray[Any]
) -> list[LabelledGroup]:
    """Gather items by group; a group is named by how Python writes its id.

    Raises `ValueError` if an argument is not as `streamer.calibrate` requires, or two ids are
    written alike.
    """
    score_array, severity_array, index, sizes = _items(scores, severities, groups)
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
