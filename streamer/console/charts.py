"""The console's pictures: the risk over time, and one interval against its budget."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape

from streamer.calibration.specification import Risk
from streamer.risk.states import RiskInterval
from streamer.web.plot import Plot, ceiling, percent_ticks
from streamer.wording.numbers import percent

_STEPS = [
    timedelta(**{unit: number})
    for unit, numbers in (
        ("seconds", (1, 5, 15, 30)), ("minutes", (1, 2, 5, 10, 15, 30)), ("hours", (1, 2, 3, 6, 12)),
        ("days", (1, 2, 5, 7, 14, 30, 61, 91, 182, 365, 730, 1826)),
    )
    for number in numbers
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Moment:
    """What the promised risk of the budget period had come to at some moment."""

    at: datetime
    risk: RiskInterval


def course_chart(course: Sequence[Moment], *, budget: float, risk: Risk, name: str) -> str:
    """Draw how the promised risk, so called, came to be known, between bounds, against its budget.

    `course` : at least one moment.
    """
    at = [one.at.timestamp() for one in course]
    if len(at) == 1:
        course, at = [*course, *course], [at[0] - 60, at[0]]
    newest = course[-1]
    estimate = "not known" if newest.risk.estimate is None else percent(newest.risk.estimate)
    # The first intervals are wide, and would leave no room for what is known by now.
    most = max(budget * 2, newest.risk.upper * 1.6)
    plot = Plot(
        f"{name[:1].upper()}{name[1:]} over time",
        f"At the end it is {estimate}, between {percent(newest.risk.lower)} and {percent(newest.risk.upper)}, against a "
        f"budget of {percent(budget)}.",
        _dates(at[0], at[-1]),
        0.0,
        max(ceiling(most), budget * 1.5) if most < 1 else 1.0,
        left=at[0],
        right=max(at[-1], at[0] + 60),
        height=300,
    )
    plot.frame(percent_ticks(plot.high), _moments(plot.left, plot.right))
    css = "selective" if risk == "selective" else "exposure"
    plot.band(at, [one.risk.lower for one in course], [one.risk.upper for one in course], css)
    known = [
        (x, one.risk.estimate) for x, one in zip(at, course, strict=True) if one.risk.estimate is not None
    ]
    if known:
        plot.curve([x for x, _ in known], [y for _, y in known], css)
        plot.dot(*known[-1], css)
    # At the end the words would stand upon a curve that runs just above the budget there.
    near = [y for x, y in known if plot.right - x < 0.25 * (plot.right - plot.left)]
    crossed = any(budget <= y < budget + 0.12 * plot.high for y in near)
    plot.level(budget, f"budget {percent(budget)}", at_left=crossed)
    return plot.svg()


def interval_bar(interval: RiskInterval, budget: float) -> str:
    """Draw an interval between its bounds on a track from 0 to past the budget and the upper bound, with the budget marked."""
    width, height, most = 400, 64, min(1.0, max(2 * budget, 1.15 * interval.upper))

    def x(value: float) -> float:
        return 4 + min(value / most, 1.0) * (width - 8)

    def text(at: float, y: int, words: str) -> str:
        half = 5 * len(words) + 1  # within the picture, whatever it marks
        return f'<text x="{min(max(at, half), width - half):.1f}" y="{y}" text-anchor="middle">{words}</text>'

    low, high = x(interval.lower), x(interval.upper)
    bounds = [(low, percent(interval.lower)), (high, percent(interval.upper))]
    if high - low < 80:
        bounds = [((low + high) / 2, f"{bounds[0][1].removesuffix(' %')} to {bounds[1][1]}")]
    known = f"between {percent(interval.lower)} and {percent(interval.upper)}, budget {percent(budget)}"
    words = escape(f"{'not known' if interval.estimate is None else percent(interval.estimate)}, {known}")
    parts = [
        f'<rect class="held" x="4" y="28" width="{width - 8}" height="12" rx="3"/>',
        f'<rect class="reach {_stands(interval, budget)}" x="{low:.1f}" y="28" height="12" '
        f'width="{max(high - low, 2):.1f}" rx="3"/>',
        f'<line class="cut" x1="{x(budget):.1f}" x2="{x(budget):.1f}" y1="22" y2="46"/>',
        text(x(budget), 16, f"budget {percent(budget)}"),
        *(text(at, 60, said) for at, said in bounds),
    ]
    if interval.estimate is not None:
        parts.append(f'<circle class="dot here" cx="{x(interval.estimate):.1f}" cy="34" r="5"/>')
    return (
        f'<svg class="interval" viewBox="0 0 {width} {height}" role="img" aria-label="{words}" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{words}</title>{"".join(parts)}</svg>'
    )


def _stands(interval: RiskInterval, budget: float) -> str:
    return "broken" if interval.lower > budget else "kept" if interval.upper < budget else "unsure"


def _moments(start: float, end: float) -> list[tuple[float, str]]:
    """Four or so round moments in UTC between two, with as much of the date as distinguishes them."""
    length = timedelta(seconds=end - start)
    step = next((one for one in _STEPS if length <= 5 * one), _STEPS[-1]).total_seconds()
    form = "%Y-%m-%d" if step >= 86_400 else "%m-%d %H:%M" if length.total_seconds() > 43_200 else "%H:%M"
    if step < 60:
        form = "%H:%M:%S"
    first = math.ceil(start / step) * step
    found: list[tuple[float, str]] = []
    while first <= end and len(found) < 8:
        found.append((first, datetime.fromtimestamp(first, UTC).strftime(form)))
        first += step
    return found


def _dates(start: float, end: float) -> str:
    """Say which days the hours along an axis are of."""
    first, last = (f"{datetime.fromtimestamp(one, UTC):%Y-%m-%d}" for one in (start, end))
    return f"{first} (UTC)" if first == last else f"{first} to {last} (UTC)"
