"""What each gate lives through, counted in its own decisions."""

import itertools
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Life:
    """One gate's life.

    Attributes
    ----------
    swapped : share of prompts that get another prompt's answers after the change; 0: nothing changes.
    old : whether the gate has served for long when the change comes.
    never : share of drawn answers that nobody labels.
    mended : decisions after the gate's closing from which on answers are what they were; None: never.
    """

    seed: int
    swapped: float
    old: bool
    never: float
    mended: int | None = None

    @property
    def gate(self) -> str:
        age = "old" if self.old else "young"
        labels = "gaps" if self.never else "full"
        mended = "" if self.mended is None else "-mended"
        return f"swap{self.swapped * 100:.0f}-{age}-{labels}{mended}-{self.seed}"

    @property
    def cell(self) -> tuple[float, bool, float, bool]:
        """What it has in common with the gates of other seeds."""
        return (self.swapped, self.old, self.never, self.mended is not None)


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """How long each part of a life is, in decisions of one gate.

    Attributes
    ----------
    closed : all drawn and labelled, before the gate opens.
    young, old : decisions of an open gate before the change.
    after : decisions after the change.
    mended_after : the same where the source is mended: enough for a new sample, and a wait of one label lag.
    stride : decisions between two pauses for the recalibrator, while old gates grow old.
    step : the same, shortly before the change and after it: what is told is as fine as this.
    look : decisions between two looks at `streamer risk`.
    lag : decisions until the label of a drawn answer is there, exponentially distributed with this mean.
    audit : share of decisions drawn once the gate is open.
    method : of the gates; `full` reads all signals, any other cuts the Gram energy.
    early : what warns of a change before people's labels do, as the gate's setting.
    judge : chances that a judge marks a wrong answer as wrong, and a right one as right; it reads all that ships.
    """

    closed: int = 325
    young: int = 100
    old: int = 1000
    after: int = 600
    mended_after: int = 3000
    stride: int = 100
    step: int = 25
    look: int = 100
    lag: float = 50.0
    audit: float = 0.2
    method: str = "mean"
    early: str = "none"
    judge: tuple[float, float] = (0.9, 0.95)


NEVER = 0.02


def full_lives(seeds: int) -> list[Life]:
    """Two sizes of change, early and late, with all labels and with gaps, beside controls; each once a seed."""
    return [
        Life(seed=seed, swapped=swapped, old=old, never=never)
        for seed in range(1, seeds + 1)
        for swapped, old, never in itertools.product((0.5, 0.2, 0.0), (False, True), (0.0, NEVER))
        if swapped or old  # a young control is an old one that began later
    ]


def mended_lives(seeds: int) -> list[Life]:
    """Gates that may open again, each once a seed: what the answers' source became is mended while they are closed."""
    return [Life(seed=seed, swapped=0.5, old=True, never=0.0, mended=200) for seed in range(1, seeds + 1)]


SHORT_LIVES = (
    Life(seed=2, swapped=1.0, old=False, never=NEVER),
    Life(seed=1, swapped=0.0, old=False, never=NEVER),
)

SHORT = Lengths(closed=100, young=50, after=200, step=50, look=50, lag=5.0, audit=0.5)
