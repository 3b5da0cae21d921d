"""A bet that restarts at intervals, so that a change late in a quiet stream is seen about as fast as an early one.

Several bets j multiply their stakes by factors F_ij whose mean given the past is at most 1 while the hypothesis
holds. With restarts at s_1 = 1, s_2 = 1 + r, s_3 = 1 + 2 r, ... the evidence after t decisions is

    E_t = mean_j sum_k w_k prod_{i = s_k}^t F_ij,    w_k = 6/(pi^2 k^2), which sum to 1,

a nonnegative supermartingale that begins at 1 when the stakes of restarts to come are counted as kept aside. By
Ville's inequality it ever reaches 1/delta with probability delta at most.

All restarts of a bet meet the same factors, so their stakes are one number: B_j = sum_k w_k prod F_ij is multiplied by
F_ij at each decision and grows by w_k at a restart. The sum over however many restarts is exact and costs one
multiplication a bet; none has to be dropped.

Sources: Shiryaev (1963) and Roberts (1966), for summing over change points by recursion; Shin, Ramdas and Rinaldo,
E-detectors (2024); Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting (2024).
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.arguments import check_delta, whole_number

Floats = NDArray[np.float64]

LARGEST_PERIOD = 1000
"""Most decisions between restarts: a stake that is lost for longer could sink below the smallest float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartedBets:
    """The evidence against a hypothesis so far. Immutable; once raised it stays as it was then.

    `delta`: chance to be raised at any time while the hypothesis holds, in (0, 1). `restart_every`:
    decisions r from one restart to the next, in 1..1000. `stakes`: B_j, one for each bet, 0 or
    more, finite. `seen`: decisions read; up to and with the one that raised it. `raised_at`: number
    of the decision, from 1, at which the evidence reached 1/delta; None if it has not.
    """

    delta: float
    restart_every: int
    stakes: tuple[float, ...]
    seen: int = 0
    raised_at: int | None = None

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # a NumPy number would not go into JSON
        set_field(self, "delta", check_delta(self.delta))
        set_field(self, "restart_every", whole_number("restart_every", self.restart_every, least=1))
        if self.restart_every > LARGEST_PERIOD:
            raise ValueError(f"restart_every must be at most {LARGEST_PERIOD}, not {self.restart_every!r}")
        whole_number("seen", self.seen, least=0)
        if not self.stakes or not all(math.isfinite(stake) and stake >= 0 for stake in self.stakes):
            raise ValueError(f"stakes must be finite numbers of at least 0, not {self.stakes!r}")
        if self.raised_at is not None and self.raised_at != self.seen:
            raise ValueError(f"raised at {self.raised_at!r}, but {self.seen!r} decisions were seen")

    @classmethod
    def open(cls, bets: int, *, delta: float, restart_every: int) -> "RestartedBets":
        """Begin with nothing read and everything still to be staked."""
        return cls(delta=delta, restart_every=restart_every, stakes=(0.0,) * bets)

    @property
    def evidence(self) -> float:
        """E: the mean stake, without what is kept aside; 1/delta or more raises."""
        return math.fsum(self.stakes) / len(self.stakes)

    def after(self, factors: Floats) -> "RestartedBets":
        """Return the state after n more decisions, in order, by their positive factors, shape (n,
        number of bets): bit-identical however they are cut into pieces.
        """
        if self.raised_at is not None or not len(factors):
            return self
        stakes, seen = np.array(self.stakes), self.seen
        start = 0
        while start < len(factors):
            if seen % self.restart_every == 0:
                stakes = stakes + 6 / (math.pi * (seen // self.restart_every + 1)) ** 2
            stop = min(len(factors), start + self.restart_every - seen % self.restart_every)
            with np.errstate(over="ignore"):  # only after 1/delta was reached, and those rows are not kept
                path = np.cumprod(np.vstack([stakes, factors[start:stop]]), axis=0)[1:]
                reached = _mean(path) >= 1 / self.delta
            if reached.any():
                last = int(reached.argmax())
                seen += last + 1
                return self._at(path[last], seen, seen)
            seen += stop - start
            start, stakes = stop, path[-1]
        return self._at(stakes, seen, None)

    def _at(self, stakes: Floats, seen: int, raised_at: int | None) -> "RestartedBets":
        # A label of a decision with a tiny probability may multiply a stake past the largest float.
        kept = tuple(float(stake) for stake in np.minimum(stakes, np.finfo(np.float64).max / len(stakes)))
        return replace(self, stakes=kept, seen=seen, raised_at=raised_at)


def _mean(path: Floats) -> Floats:
    total = path[:, 0].copy()
    for bet in range(1, path.shape[1]):
        total += path[:, bet]
    total /= path.shape[1]
    return total
