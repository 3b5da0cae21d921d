"""Have the newest groups become worse? A test of the newest W against older ones, for tightening alone. Pure.

A calibration on all groups dilutes a change. Of the newest W labelled groups each is paired at random with one older, and
the losses at one threshold are compared. Of d pairs that differ the newer one is worse in k. While newest and older are
exchangeable k is binomial (d, 1/2), and for any q

    (2 q)^k (2 (1 - q))^(d - k)

has the mean 1: a bet that the newer is worse with chance q. The evidence is the mean over q = .525, .575, ..., .975; at 20
and more the newest W are calibrated on alone, and the stricter of the two thresholds holds. It is looked at again and again,
for several W: a cut that was false makes a gate stricter than it need be, and breaks no promise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamer.gates.uniforms import keyed_bits

WINDOWS = (50, 100, 200, 400, 800)
LEAST_EVIDENCE = 20.0
_CHANCES = np.arange(0.525, 1.0, 0.05)


class Recorded:
    """A dataclass that is kept with its run as JSON."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return its values."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_json` gave. Raises `ValueError` for anything else."""
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"not a record of {cls.__name__}: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suffix(Recorded):
    """What a suffix test found, kept with its run: of `pairs` of the newest W groups with older
    ones whose losses differ, those in which the newer is worse, and the e-value.

    `calibrated_on`: the newest labelled groups that the stricter threshold comes from; 0 where
    nothing was cut. `version`: the policy in force, at whose threshold, or at that of the run if it
    is looser, losses were compared.
    """

    groups: int
    pairs: int
    worse: int
    evidence: float
    calibrated_on: int
    version: int

    @property
    def cuts(self) -> bool:
        """Whether the newest groups are calibrated on alone."""
        return self.evidence >= LEAST_EVIDENCE

    @property
    def said(self) -> str:
        """What was found, in words."""
        return (
            f"of {self.pairs} pairs of the newest {self.groups} labelled groups with older ones that differ, the newer one "
            f"is worse in {self.worse} (e-value {self.evidence:.3g})"
        )


def evidence(worse: int, pairs: int) -> float:
    """Return the e-value of `worse` among `pairs` that differ."""
    return float(np.exp(worse * np.log(2 * _CHANCES) + (pairs - worse) * np.log(2 * (1 - _CHANCES))).mean())


def order(seed: int, ids: Sequence[str]) -> NDArray[np.uint64]:
    """Return what pairs are drawn by: a number for each group that depends on the gate's seed and its id alone."""
    salt = b"suffix test" + seed.to_bytes(16, "big")
    return np.array([keyed_bits(salt, one) for one in ids], np.uint64)


def suffix_test(losses: NDArray[np.float64], drawn: NDArray[np.uint64], *, version: int) -> Suffix | None:
    """Compare the newest W groups with older ones, for each W that there are 2 W groups for.

    `losses`: of the labelled groups at one threshold, in order of decision, the oldest first.
    `drawn`: of the same groups, see `order`. `version`: kept with the result. Returns the first W
    that cuts, else the one with the most evidence; None for too few groups.
    """
    best: Suffix | None = None
    for size in WINDOWS:
        if 2 * size > len(losses):
            break
        newer, older = losses[-size:], losses[:-size]
        chosen = np.argsort(drawn[:-size], kind="stable")[:size]
        paired = newer[np.argsort(drawn[-size:], kind="stable")] - older[chosen]
        worse, pairs = int((paired > 0).sum()), int((paired != 0).sum())
        found = Suffix(
            groups=size,
            pairs=pairs,
            worse=worse,
            evidence=evidence(worse, pairs),
            calibrated_on=0,
            version=version,
        )
        if found.cuts:
            return found
        if best is None or found.evidence > best.evidence:
            best = found
    return best
