"""What became of a gate: what it shipped, by the record, and how bad that was, by the true severities."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile

from tests.e2e.swap.lives import Life
from tests.recorded import DecisionSummary


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one gate; numbers count its decisions after the change.

    Attributes
    ----------
    open_before : whether it was open when the change came.
    exposure_before : severity that was shipped per decision, from the opening until the change.
    exposure_after : the same after the change, while the policy of the change was in force.
    closed : decisions until the gate was closed; None: it was not.
    drawn : decisions drawn between the change and the closing, or the end.
    labels : labels given in that time.
    bad : severity shipped until then.
    reopened : decisions from the closing until the gate was open again; None: it was not.
    exposure_reopened : severity shipped per decision from then on.
    curve : severity shipped by each `step` decisions, added up.
    said : the sentence of `streamer risk` by decision.
    """

    life: Life
    open_before: bool
    exposure_before: float
    exposure_after: float
    closed: int | None
    drawn: int
    labels: int
    bad: float
    reopened: int | None
    exposure_reopened: float | None
    step: int
    curve: tuple[float, ...]
    said: dict[int, str]

    @property
    def decisions(self) -> int:
        """How many there were after the change."""
        return self.step * (len(self.curve) - 1)

    @property
    def until(self) -> int:
        """The closing, or the end."""
        return self.decisions if self.closed is None else self.closed


def judged(
    life: Life,
    record: Sequence[DecisionSummary],
    severities: Mapping[str, tuple[float, ...]],
    *,
    closed: int,
    changed: int,
    step: int,
    labels: Mapping[int, int],
    said: Mapping[int, str],
) -> Outcome:
    """Join the decisions of a gate, in the order of its prompts, with the severities of its answers.

    Parameters
    ----------
    closed, changed : numbers of the first prompt after the opening, and of the first after the change.
    labels : labels given in all by decisions after the change.
    """
    decisions = sorted(record, key=lambda one: one.batch_id)
    assert [one.batch_id for one in decisions] == sorted(severities), "not one decision a batch"
    assert {one.mode for one in decisions} == {"enforce"}
    shipped = [
        0.0 if one.selected is None else severities[one.batch_id][int(one.selected.removeprefix("r"))]
        for one in decisions
    ]
    is_open = [one.policy_state != "closed" for one in decisions]
    before, after, opened = shipped[closed:changed], shipped[changed:], is_open[changed:]
    until = len(list(takewhile(bool, opened)))
    shut = until < len(opened)
    again = next((n for n in range(until, len(opened)) if opened[n]), None)
    in_force = decisions[changed].policy_version
    unmoved = [s for s, one in zip(after, decisions[changed:], strict=True) if one.policy_version == in_force]
    totals = [0.0, *accumulate(after)]
    return Outcome(
        life=life, open_before=is_open[changed - 1], exposure_before=_mean(before) or 0.0,
        exposure_after=_mean(unmoved) or 0.0, closed=until if shut else None,
        drawn=sum(one.sampled for one in decisions[changed : changed + until]),
        labels=labels[-(-until // step) * step] - labels[0], bad=totals[until],
        reopened=None if again is None else again - until,
        exposure_reopened=None if again is None else _mean(after[again:]), step=step,
        curve=tuple(totals[::step]), said=dict(said),
    )  # fmt: skip


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
