"""From which age on a draw counts: one cut for labelled and unlabelled draws alike, chosen before a severity is read. Pure.

A draw without its label counts as the worst, and the newest draws have none yet: to count them all costs much, and to leave
out those without a label breaks the budget as soon as bad answers are labelled later. So draws are in or out by their age
alone. Those younger than D are not used at all; of the older ones those without a label count 1.

D comes from how late the labels of *earlier* draws were, which are not in the sample; without such draws, from ages alone.
The groups that are left are then exchangeable whatever labels do: nothing is assumed of when bad answers get theirs. Whoever
tries several D and takes the one whose threshold ships most has read severities first, and breaks the budget.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from streamer.gates.audit_rate import label_lag
from streamer.gates.declared import Pending
from streamer.gates.settings import GateSettings
from streamer.recalibration.suffix_test import Recorded

MOST_DELAYS = 1000
"""The newest earlier draws whose delays are looked at."""

Because = Literal[
    "everything is labelled",
    "label deadline",
    "monitor deadline",
    "label delays",
    "age of the middle draw",
    "asked for",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeCut(Recorded):
    """From which age on the draws of a run counted, and what that was chosen from. Kept with the run.

    Attributes
    ----------
    pending : what the gate says of draws without a label.
    seconds : D. A draw that is not older is not used.
    because : what decided D.
    draws : of the sample, of any age.
    waiting : those of them without a label.
    unused, unused_labelled : draws that are too young, and those of them that have a label.
    middle_seconds : the age of the middle draw, which D never passes unless a label deadline says so.
    delays : earlier draws whose label delays were looked at.
    delay_seconds : the 95 % quantile of these delays; None where there are too few.
    deadline_seconds : the age at which a label that has not come counts as never coming.
    window : only the newest so many draws of the age were read; None: all.
    """

    pending: Pending
    seconds: float
    because: Because
    draws: int
    waiting: int
    unused: int
    unused_labelled: int
    middle_seconds: float
    delays: int
    delay_seconds: float | None
    deadline_seconds: float
    window: int | None = None

    @property
    def longest_seconds(self) -> float:
        """What D grows to while the draws stay the same and the middle one gets older; at least `seconds`."""
        if self.because != "age of the middle draw":
            return self.seconds
        return self.deadline_seconds if self.delay_seconds is None else self.delay_seconds

    def remedy(self, gate: str) -> str | None:
        """Say which labels would bring in what is cut; None where there is nothing to do, or each would bring in less than ten."""
        if (
            self.because in ("label deadline", "asked for")
            or not 0 < 10 * self.waiting <= self.unused_labelled
        ):
            return None
        waits = "1 prompt that waits" if self.waiting == 1 else f"{self.waiting} prompts that wait"
        return (
            f"labels for the {waits} (`streamer label queue --gate {gate}`) would bring in all "
            f"{min(self.draws, self.window or self.draws)} prompts"
        )

    def newer_labels(self) -> str | None:
        """Say how many labels are of draws that are too young, and until when these wait; None: there are none."""
        if not self.unused_labelled:
            return None
        few = (
            "1 label of a newer draw is"
            if self.unused_labelled == 1
            else f"{self.unused_labelled} labels of newer draws are"
        )
        until = (
            f"it is {span(self.seconds)} old"
            if self.because == "label deadline"
            else "the older ones are labelled"
        )
        return f"{few} not read until {until}"

    def said(self, missing: int, gate: str) -> str | None:
        """Say which labels are not used yet, how many older ones count as wrong, and what would help; None: nothing to say."""
        parts = []
        if self.unused:
            labels, waiting = self.unused_labelled, self.unused - self.unused_labelled
            few = f"{labels} {'label' if labels == 1 else 'labels'} of the newest {span(self.seconds)}"
            parts.append(
                f"{few} {'is' if labels == 1 else 'are'} not used yet"
                + (f" ({waiting} more wait there)" if waiting else "")
            )
        if missing:
            older = "older one" if missing == 1 else "older ones"
            counts = f"{missing} {older if self.unused else 'missing'} {'counts' if missing == 1 else 'count'} as wrong"
            parts.append(counts)
        if (remedy := self.remedy(gate)) is not None:
            parts.append(remedy)
        return "; ".join(parts) or None


def span(seconds: float) -> str:
    """Return a length of time in words: `90 seconds`, `6 hours`, `2.5 days`."""
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} seconds"


def choose(
    ages: Sequence[float],
    waits: Sequence[bool],
    *,
    pending: Pending,
    earlier: Sequence[float | None],
    label_deadline: float,
    deadline: float,
    window: int | None = None,
) -> AgeCut:
    """Choose D; no severity is among what it is chosen from.

    `ages`: of the sample's draws in seconds, the oldest first; at least one. `waits`: whether each
    waits for a label. `earlier`: how late the labels of draws decided before the sample began came,
    in seconds; None: never. `label_deadline`: the gate's own cut; 0: none. A positive one is obeyed
    as it stands. `deadline`: when a missing label counts as never coming, and the largest D without
    earlier draws.
    """
    middle = ages[(len(ages) - 1) // 2]
    earlier = earlier[-MOST_DELAYS:]
    delay = label_lag(earlier, deadline=deadline)
    seconds, because = _seconds(
        pending,
        waiting=sum(waits),
        middle=middle,
        delay=delay,
        label_deadline=label_deadline,
        deadline=deadline,
    )
    young = [age < seconds for age in ages]
    return AgeCut(
        pending=pending,
        seconds=seconds,
        because=because,
        draws=len(ages),
        waiting=sum(waits),
        unused=sum(young),
        unused_labelled=sum([is_young and not wait for is_young, wait in zip(young, waits, strict=True)]),
        middle_seconds=middle,
        delays=len(earlier),
        delay_seconds=delay,
        deadline_seconds=deadline,
        window=window,
    )


def _seconds(
    pending: Pending,
    *,
    waiting: int,
    middle: float,
    delay: float | None,
    label_deadline: float,
    deadline: float,
) -> tuple[float, Because]:
    if label_deadline > 0:
        return label_deadline, "label deadline"
    if pending != "age":
        return 0.0, "asked for"
    if waiting == 0:
        return 0.0, "everything is labelled"
    wanted, because = (deadline, "monitor deadline") if delay is None else (delay, "label delays")
    if wanted < middle:
        return wanted, because  # type: ignore[return-value]
    return middle, "age of the middle draw"


def of_past(
    draws: Sequence[tuple[datetime, bool]],
    now: datetime,
    settings: GateSettings,
    earlier: Callable[[datetime], Sequence[float | None]],
) -> AgeCut:
    """Choose which draws of the past are old enough: by age, whatever the gate's rule.

    `draws`: when each was decided, in order and at least one, and whether it waits for a label.
    `settings`: whose deadlines count. `earlier`: delays of the labels of draws before a moment;
    asked for only where something waits.
    """
    waits = [waiting for _, waiting in draws]
    return choose(
        [(now - decided_at).total_seconds() for decided_at, _ in draws],
        waits,
        pending="age",
        earlier=earlier(draws[0][0]) if any(waits) else (),
        label_deadline=settings.label_deadline_seconds,
        deadline=settings.monitor_deadline_seconds,
    )
