"""Early warning without labels: do the numbers of today come from where those of calibration came from?

Each number is ranked among all before it, those of calibration first. With N_t numbers so far, itself among them,

    p_t = (#{below} + U_t #{equal, itself too}) / N_t,    U_t uniform on [0, 1), independent, one a number,

and p_1, p_2, ... are independent and uniform as long as all numbers, calibration's and the stream's, are
exchangeable: exactly so, for any distribution, with or without ties (Vovk, Gammerman and Shafer, Algorithmic
learning in a random world, 2005). Bets 1 + a P_1(p) and 1 + b P_2(p) on Legendre polynomials of [0, 1] win when
numbers fall or rise (P_1 = 2 p - 1) or spread or close in (P_2 = 6 p^2 - 6 p + 1); they restart every so many
decisions (`restarted_bets`). Source for betting on them: Vovk, Petej, Nouretdinov, Ahlberg, Carlsson and Gammerman,
Retrain or not retrain: conformal test martingales for change-point detection (2021).

Numbers are sorted into bins so that the state does not grow; ranks among bins are ranks among numbers with ties. The
bins must not come from the numbers that are ranked, or these would be more even than those of the stream. Every
second number of calibration makes the bins and is then put aside.

Ranking against calibration alone, the obvious way, is wrong: all p-values then share one sample's error, and
over time the bet finds that sample out, whether anything moved or not.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamer.calibration.arguments import unit_interval, whole_number
from streamer.risk.states.json_form import Evidence
from streamer.risk.states.restarted_bets import RestartedBets

Floats = NDArray[np.float64]

FEWEST_REFERENCES = 20
"""Numbers that calibration must bring."""

_SLOPES: Floats = np.array([-0.9, -0.5, -0.25, 0.25, 0.5, 0.9])
_BENDS: Floats = np.array([-0.9, -0.45, 0.45, 0.9])
_BETS = _SLOPES.size + _BENDS.size
_PAGE = 4096
_BLOCK = 64
"""Numbers that are compared with one another at once; their counts fit a byte."""
_EARLIER = np.triu(np.ones((_BLOCK, _BLOCK), dtype=np.bool_))


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftAlarm(Evidence):
    """The state of one drift alarm. Immutable; `observe` returns the next state.

    It may watch any one number a batch: the score that decides, or what a batch's embeddings amount to (`cloud`).
    It is blind where that number does not move, and it cannot distinguish a harmless change from a harmful one. After a
    change it takes the changed numbers in as well, so that evidence grows fastest at first.

    `edges`: upper ends of the bins but the last, rising, finite. `counts`: numbers in each bin so
    far, calibration's ranked half and the stream's; one more than `edges`. `bets`: the evidence.
    """

    json_kind: ClassVar[str] = "streamer.monitoring.drift-alarm.v1"

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    bets: RestartedBets

    def __post_init__(self) -> None:
        edges = np.array(self.edges)
        if not edges.size or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
            raise ValueError("edges must be finite and rise")
        if len(self.counts) != edges.size + 1 or min(self.counts) < 0:
            raise ValueError("counts must be 0 or more, and one more than edges")
        if len(self.bets.stakes) != _BETS:
            raise ValueError(f"the alarm holds {_BETS} bets, not {len(self.bets.stakes)}")

    @classmethod
    def open(
        cls, reference: ArrayLike, *, delta: float, bins: int = 64, restart_every: int = 500
    ) -> "DriftAlarm":
        """Arm an alarm on the numbers of calibration.

        `reference`: at least 20 finite numbers, one a calibration batch, in an order that their
        values had no say in (that of decisions). They must have been drawn as the stream's are: the
        audit sample, not a choice. `delta`: chance of an alarm at any time although nothing moved,
        in (0, 1). `bins`: most bins, >= 2. `restart_every`: decisions from one restart to the next,
        in 1..1000. Raises `ValueError` if an argument is not valid.
        """
        numbers = _finite("reference", reference)
        if numbers.size < FEWEST_REFERENCES:
            raise ValueError(f"reference must hold at least {FEWEST_REFERENCES} numbers, not {numbers.size}")
        whole_number("bins", bins, least=2)
        aside, ranked = np.sort(numbers[::2]), numbers[1::2]
        places = np.arange(1, bins) * aside.size // bins
        edges = np.unique(aside[places])
        counts = np.bincount(np.searchsorted(edges, ranked, side="left"), minlength=edges.size + 1)
        return cls(
            edges=tuple(edges.tolist()),
            counts=tuple(counts.tolist()),
            bets=RestartedBets.open(_BETS, delta=delta, restart_every=restart_every),
        )

    def observe(self, values: ArrayLike, uniforms: ArrayLike) -> "DriftAlarm":
        """Return the state after these numbers: the same however they are cut into pieces.

        `values`: shape (n,), finite, one a batch in the order of decisions; there may be none.
        `uniforms`: shape (n,), in [0, 1]: uniform, independent of all else, the same when a batch
        is read again (a keyed hash of its identity will do). Raises `ValueError` if a number is not
        finite, a uniform is outside [0, 1], or the lengths differ.
        """
        numbers = _finite("values", values)
        draws = unit_interval("uniforms", uniforms) if np.size(uniforms) else np.empty(0)
        if draws.size != numbers.size:
            raise ValueError(f"uniforms must have {numbers.size} rows like values, not {draws.size}")
        state = self
        for start in range(0, numbers.size, _PAGE):
            if state.raised_at is not None:
                break
            state = state._after(numbers[start : start + _PAGE], draws[start : start + _PAGE])
        return state

    def _after(self, numbers: Floats, draws: Floats) -> "DriftAlarm":
        bins = np.searchsorted(self.edges, numbers, side="left")
        counts = np.array(self.counts)
        bets = self.bets.after(_factors(_p_values(counts, bins, draws)))
        read = bins[: bets.seen - self.bets.seen]  # what comes after an alarm is not
        counts += np.bincount(read, minlength=counts.size)
        return replace(self, counts=tuple(counts.tolist()), bets=bets)


def _p_values(counts: NDArray[np.int64], bins: NDArray[np.int64], draws: Floats) -> Floats:
    """Rank numbers among those in `counts` and those before them, themselves too."""
    order, blocks = np.arange(bins.size), -(-bins.size // _BLOCK)
    block = order // _BLOCK
    # Those before each block are counted by bin; within a block all are compared with all.
    each = np.bincount(block * counts.size + bins, minlength=blocks * counts.size).reshape(blocks, -1)
    before = counts + np.cumsum(each, axis=0) - each
    narrow = np.zeros(blocks * _BLOCK, dtype=np.min_scalar_type(counts.size))
    narrow[: bins.size] = bins
    narrow = narrow.reshape(blocks, _BLOCK)
    below, equal = (
        np.add.reduce(
            compare(narrow[:, :, None], narrow[:, None, :]) & _EARLIER, axis=1, dtype=np.uint8
        ).ravel()[: bins.size]
        for compare in (np.less, np.equal)
    )
    equal = before[block, bins] + equal
    below = (np.cumsum(before, axis=1) - before)[block, bins] + below
    ranks: Floats = (below + draws * equal) / (counts.sum() + order + 1)
    return ranks


def _factors(p_values: Floats) -> Floats:
    slope = 2 * p_values - 1
    bend = (6 * p_values - 6) * p_values + 1
    return 1 + np.hstack([np.multiply.outer(slope, _SLOPES), np.multiply.outer(bend, _BENDS)])


def _finite(name: str, values: ArrayLike) -> Floats:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise ValueError(f"{name} must be a column of numbers")
    numbers: Floats = array.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} must be finite; see position {int((~np.isfinite(numbers)).argmax())}")
    return numbers
