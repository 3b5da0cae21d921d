"""Sample until sure: after how many answers sampling stops. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """A rule that looks at the best score so far, and at nothing else.

    What was sampled by one rule is exchangeable with what was sampled by the same rule, so a threshold that is calibrated on
    such batches keeps its guarantee (docs/guarantees.md). Another rule gives other batches, and needs a calibration of its own.
    Raises `ValueError` when a number is out of its range, or there are steps and nothing to stop
    for, or the other way round.

    `sizes`: numbers of answers at which sampling may stop, rising, each >= 2, the only one >= 1; at
    the last it always does. `above`: stop where the best score is at least this, in (0, 1]; None:
    no score is high enough. `below`: stop where the best score is at most this, in [0, 1), and
    below `above`; None: no score is low enough.
    """

    sizes: tuple[int, ...]
    above: float | None = None
    below: float | None = None

    def __post_init__(self) -> None:
        if (
            not self.sizes
            or self.sizes[0] < 1 + (len(self.sizes) > 1)
            or list(self.sizes) != sorted(set(self.sizes))
        ):
            raise ValueError(
                "steps must be rising numbers of answers, each at least 2 and fewer than all, not "
                f"{', '.join(map(str, self.sizes)) or 'none'}"
            )
        if self.above is not None and not 0 < self.above <= 1:
            raise ValueError(f"stop_above must be above 0 and at most 1, not {self.above!r}")
        if self.below is not None and not 0 <= self.below < 1:
            raise ValueError(f"stop_below must be at least 0 and below 1, not {self.below!r}")
        if self.above is not None and self.below is not None and self.below >= self.above:
            raise ValueError(
                f"stop_below must be less than stop_above, not {self.below:g} and {self.above:g}"
            )
        if (len(self.sizes) > 1) != (self.above is not None or self.below is not None):
            raise ValueError("steps go with stop_above or stop_below, or with both, and these go with steps")

    def enough(self, answers: int, best: float) -> bool:
        """Whether sampling stops with so many answers, one of `sizes`, the best of which has this score."""
        return (
            answers >= self.sizes[-1]
            or (self.above is not None and best >= self.above)
            or (self.below is not None and best <= self.below)
        )
