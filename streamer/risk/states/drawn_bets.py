"""Bets on audit draws: soon after a change, however long the quiet before it, and before every label has come.

Draws i = 1, 2, ... bring a loss x_i in [0, 1]; the hypothesis is E[x_i | past] <= s_i w_i, with a limit s_i and a share w_i
in (0, 1] that are fixed before the draw. Five bets j, one for each strength u_j, multiply their stakes by

    F_ij = 1 + u_j (x_i/s_i - w_i),    u_j in {.8, .45, .22, .1, .045},

which is positive, since u_j w_i < 1, and whose mean given the past is at most 1. Every r = 10 draws, before the draw, each
bet gets a fifth of w_k + rho, where k = 1, 2, ... counts these restarts:

    B_j <- (B_j + [i = 1 mod r] (w_k + rho)/5) F_ij,    k = 1 + (i - 1)/r,    E_i = sum_j B_j,
    w_k = 1/(c (k + 1) ln^2(k + 1)), which sum to less than 1,    rho = r/(H delta).

The alarm is raised when E_i reaches 1/delta.

**False alarms.** Take N draws, and let K(i) be the restarts up to draw i. What has not been put in yet and the stakes,

    M_i = E_i + (1 - sum_{k <= K(i)} w_k) + rho (K(N) - K(i)),    i <= N,

are a nonnegative supermartingale: a restart moves money from one term to the other, and a bet does not win on average. It
begins at 1 + rho K(N), and E_i <= M_i. By Ville's inequality the alarm is falsely raised within its first N draws with a
chance of at most delta (1 + rho ceil(N/r)), which is about delta + N/H. Without rho (H never) that is delta for all time.

**Labels that have not come, and corrections.** x_i is the most that the labels of a draw ever come to. F_ij rises with x_i.
With 0 for every loss that is not known, and the most that was said so far for the others, each E_i is therefore at most what
it will be in the end; so is the largest of them. Looking at every prefix in every round and raising as soon as one reaches the
level costs nothing, provided that a loss, once it was read, is never lowered. It is raised where a label is corrected upwards,
or comes after its deadline, while the draw is among the newest `KEPT`.

**Probabilities.** A draw counts once, whatever its probability was. That is right if the probability depends on the past
alone, as a gate's own does, and one that rises with the evidence so far. Were it to depend on the answers at hand, the
answers that are drawn more often would weigh more, and nothing here would hold.

Sources: Shin, Ramdas and Rinaldo, E-detectors (2024); Waudby-Smith and Ramdas, Estimating means of bounded random
variables by betting (2024); Ville (1939).
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple, Self

from streamer.calibration.arguments import check_delta, whole_number
from streamer.risk.states import json_form

STRENGTHS = (0.8, 0.45, 0.22, 0.1, 0.045)
"""u_j: the share of a stake that a draw without loss takes."""

RESTART_EVERY = 10
"""Draws r from one restart to the next."""

KEPT = 200
"""The newest draws, whose losses may still rise; more would make a state large that is written round by round."""

MOST_WAITING = 5_000
"""Draws that are kept at most from the first unknown one on; of more the oldest count 0, which raises no alarm."""

_SUM_OF_WEIGHTS = 2.10975
"""No less than the sum of 1/(m ln^2 m) over m = 2, 3, ..., which is 2.109742..."""

Stakes = tuple[float, ...]


class Draw(NamedTuple):
    """One decision that the audit sample took.

    Attributes
    ----------
    number : its place in the order of decisions; it only rises from one draw to the next.
    limit : s in (0, 1): what the expected loss is bet against, for each share that ships.
    share : w in (0, 1]; 1 where the loss is of the whole decision.
    loss : x in [0, 1]; None while it is not known.
    moment : when it was decided, in seconds.
    missing : what it counts once it is overdue, 0 or more.
    lag : seconds from then on in which it is not overdue.
    """

    number: int
    limit: float
    share: float = 1.0
    loss: float | None = None
    moment: float = 0.0
    missing: float = 0.0
    lag: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """How seldom an alarm is false that restarts.

    `delta`: chance of a false alarm, beside what `false_every` adds; in (0, 1). `false_every`: H,
    draws for which one false alarm more is accepted; None: none.
    """

    delta: float
    false_every: int | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", check_delta(self.delta))
        if self.false_every is not None:
            whole_number("false_every", self.false_every, least=1)

    @property
    def inflow(self) -> float:
        """Rho."""
        return 0.0 if self.false_every is None else RESTART_EVERY / (self.false_every * self.delta)

    def chance(self, draws: int) -> float:
        """The most that a false alarm may have as a chance within so many draws, at most 1."""
        return min(1.0, self.delta * (1 + self.inflow * -(-draws // RESTART_EVERY)))


def restart_weight(restart: int) -> float:
    """Return w_k of the k-th restart."""
    return 1 / (_SUM_OF_WEIGHTS * (restart + 1) * math.log(restart + 1) ** 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnBets(Promise):
    """The evidence so far. Immutable; once raised it stays as it was then.

    The state is five stakes B_j after so many `draws`, up to and with the one that raised it, and
    the `tail` of draws that may still change: the newest `KEPT`, and all from the first unknown one
    on, at most `MOST_WAITING`: those that were made within one label deadline, since an overdue one
    counts 0 and is known. `raised_at`: the draw, from 1, at which the evidence reached 1/delta;
    `raised_by`: its number, None also where it is not known.
    """

    stakes: Stakes = (0.0,) * len(STRENGTHS)
    draws: int = 0
    tail: tuple[Draw, ...] = ()
    raised_at: int | None = None
    raised_by: int | None = None

    def __post_init__(self) -> None:
        Promise.__post_init__(self)
        whole_number("draws", self.draws, least=0)
        if len(self.stakes) != len(STRENGTHS) or not all(math.isfinite(b) and b >= 0 for b in self.stakes):
            raise ValueError(
                f"stakes must be {len(STRENGTHS)} finite numbers of at least 0, not {self.stakes!r}"
            )
        if self.raised_at is not None and (self.raised_at != self.draws or self.tail):
            raise ValueError(f"raised at {self.raised_at!r}, but {self.seen!r} draws were read")

    @property
    def seen(self) -> int:
        """Draws read, known or not."""
        return self.draws + len(self.tail)

    @property
    def pending(self) -> tuple[Draw, ...]:
        """The draws whose loss is not known."""
        return tuple(draw for draw in self.tail if draw.loss is None)

    @property
    def evidence(self) -> float:
        """The most that any prefix with all known draws before the first unknown one comes to, others at 0; 1/delta raises."""
        known = next((place for place, draw in enumerate(self.tail) if draw.loss is None), len(self.tail))
        return max(math.fsum(stakes) for stakes in islice((self.stakes, *self._path()), known, None))

    @property
    def known_evidence(self) -> float:
        """The present evidence of what is known: draws whose loss is not known are left out."""
        newest = deque(self._path(leave_out=True), maxlen=1)
        return math.fsum(newest[0] if newest else self.stakes)

    def after(
        self,
        draws: Iterable[Draw] = (),
        *,
        known: Mapping[int, float] | None = None,
        overdue: float = -math.inf,
    ) -> "DrawnBets":
        """Return the state with more draws, and more losses known.

        Where every loss is known when its draw is read, it is bit-identical however draws are cut into pieces.
        Raises `ValueError` if a draw is not one, or not in order.

        `draws`: the next ones, in order. `known`: losses by the numbers of draws. What is known
        already is never lowered. `overdue`: draws whose lag was over at this moment or before are
        known from now on: a loss that is not known is `missing`.
        """
        if self.raised_at is not None:
            return self
        losses = known or {}
        new = list(draws)
        _check(new, after=self.tail[-1].number if self.tail else -1)
        tail = [_known(draw, losses, overdue) for draw in (*self.tail, *new)]
        for place in range(len(tail) - MOST_WAITING):
            if tail[place].loss is None:
                tail[place] = tail[place]._replace(loss=0.0)
        ahead = replace(self, tail=tuple(tail))
        base, stakes = 0, self.stakes
        done = next((place for place, draw in enumerate(tail) if draw.loss is None), len(tail))
        done = max(min(done, len(tail) - KEPT), len(tail) - MOST_WAITING)
        for place, found in enumerate(ahead._path(), start=1):
            if math.fsum(found) >= 1 / self.delta:
                reached = self.draws + place
                return replace(
                    self, stakes=found, draws=reached, tail=(),
                    raised_at=reached, raised_by=tail[place - 1].number,
                )  # fmt: skip
            if place <= done:
                base, stakes = place, found
        return replace(ahead, stakes=stakes, draws=self.draws + base, tail=tuple(tail[base:]))

    def _path(self, *, leave_out: bool = False) -> Iterator[Stakes]:
        """The stakes after each draw of the tail, unknown losses at 0; or left out, which is a factor of 1."""
        stakes, count, inflow = self.stakes, self.draws, self.inflow
        for draw in self.tail:
            if count % RESTART_EVERY == 0:
                weight = restart_weight(count // RESTART_EVERY + 1)
                put = (weight + inflow) / len(STRENGTHS)
                stakes = tuple([stake + put for stake in stakes])
            count += 1
            if draw.loss is not None or not leave_out:
                gain = (draw.loss or 0.0) / draw.limit - draw.share
                pairs = zip(stakes, STRENGTHS, strict=True)
                stakes = tuple([stake * (1 + strength * gain) for stake, strength in pairs])
            yield stakes

    @classmethod
    def from_fields(cls, fields: Any) -> "DrawnBets":
        """Read the state from the fields of a JSON object, or raise ValueError."""
        found = json_form.made(cls, fields)
        if any(len(row) != len(Draw._fields) for row in fields["tail"]):
            raise ValueError(f"a draw has {len(Draw._fields)} values")
        _check(found.tail, after=-1)
        return found


def _known(draw: Draw, known: Mapping[int, float], overdue: float) -> Draw:
    loss = known.get(draw.number)
    if loss is None and draw.loss is None and draw.moment + draw.lag <= overdue:
        loss = draw.missing
    if loss is not None and not 0 <= loss <= max(1.0, draw.missing):
        raise ValueError(f"a loss must be in [0, 1], not {loss!r}")
    return (
        draw
        if loss is None or loss <= (-1.0 if draw.loss is None else draw.loss)
        else draw._replace(loss=loss)
    )


def _check(draws: Iterable[Draw], *, after: int) -> None:
    for draw in draws:
        if draw.number <= after:
            raise ValueError(f"draws must come in order, and {draw.number!r} comes after {after!r}")
        after = draw.number
        if not (0 < draw.limit < 1 and 0 < draw.share <= 1 and math.isfinite(draw.moment + draw.lag)):
            raise ValueError(f"a draw needs a limit in (0, 1), a share in (0, 1] and a moment, not {draw!r}")
        if draw.loss is not None and not 0 <= draw.loss <= max(1.0, draw.missing):
            raise ValueError(f"a loss must be in [0, 1], not {draw.loss!r}")


class StateOfBets(json_form.Evidence):
    """A state with `bets` that are `DrawnBets`."""

    __slots__ = ()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote. Raises `ValueError` for anything else."""
        fields = json_form.read(text, cls.json_kind)
        return json_form.made(cls, fields | {"bets": DrawnBets.from_fields(fields.get("bets"))})
