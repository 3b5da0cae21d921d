"""The report's pictures as inline SVG: they follow the page's colours, light or dark, and carry their own words."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from streamer.calibration import LossCurve
from streamer.clouds.sentence import UNIT_WORDS, budget, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.calibration import LabelledGroup
    from streamer.clouds.measurement import Floats, Units
    from streamer.gates.settings import Unit

WIDTH, HEIGHT = 720, 340
LEFT, RIGHT, TOP, BOTTOM = 72, 16, 30, 50
BINS = 25


@dataclass(slots=True)
class Plot:
    """A picture over scores in [0, 1] along x; `low` and `high` bound y."""

    title: str
    description: str
    x_label: str
    low: float
    high: float
    parts: list[str] = field(default_factory=list)

    def x(self, value: float) -> float:
        """Return the horizontal place of a score; beyond [0, 1] at the edge."""
        return LEFT + min(max(value, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return the vertical place of a value; beyond the bounds at the edge."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def frame(self, ticks: Sequence[tuple[float, str]]) -> None:
        """Draw the axes, with `ticks` (value, text) along y and tenths along x."""
        for value, text in ticks:
            y = self.y(value)
            self.parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            )
            self.text(LEFT - 8, y + 4, text, anchor="end", css="tick")
        for tenth in range(0, 11, 2):
            self.text(
                self.x(tenth / 10), HEIGHT - BOTTOM + 18, f"{tenth / 10:g}", anchor="middle", css="tick"
            )
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, self.x_label, anchor="middle", css="axis")

    def text(self, x: float, y: float, words: str, *, anchor: str = "start", css: str = "note") -> None:
        """Write `words` at a place in the picture's own units."""
        self.parts.append(
            f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def steps(self, starts: Sequence[float], values: Sequence[float], css: str) -> None:
        """Draw a step function: `values[i]` from `starts[i]` up to the next start, the last one up to 1.

        A NaN breaks the line.
        """
        path, drawing = [], False
        ends = [*starts[1:], 1.0]
        for start, end, value in zip(starts, ends, values, strict=True):
            if math.isnan(value):
                drawing = False
                continue
            path.append(f"{'L' if drawing else 'M'}{self.x(start):.1f},{self.y(value):.1f}")
            path.append(f"H{self.x(end):.1f}")
            drawing = True
        self.parts.append(f'<path class="line {css}" d="{"".join(path)}"/>')

    def level(self, value: float, words: str, *, at_left: bool = False) -> None:
        """Draw a dashed line across at `value`, with words above it at one end."""
        y = self.y(value)
        self.parts.append(
            f'<line class="budget" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        if at_left:
            self.text(LEFT + 6, y - 6, words, css="note strong")
        else:
            self.text(WIDTH - RIGHT - 4, y - 6, words, anchor="end", css="note strong")

    def cut(self, threshold: float, words: str) -> None:
        """Draw a line up at `threshold`, with words at its top on the side where there is room."""
        x = self.x(threshold)
        self.parts.append(
            f'<line class="cut" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{HEIGHT - BOTTOM}"/>'
        )
        left = x > (LEFT + WIDTH) / 2
        self.text(
            x - 6 if left else x + 6, TOP + 4, words, anchor="end" if left else "start", css="note strong"
        )

    def dot(self, x: float, y: float, css: str) -> None:
        """Mark a point."""
        self.parts.append(f'<circle class="dot {css}" cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="5"/>')

    def bar(self, left: float, right: float, value: float, css: str) -> None:
        """Draw a bar from 0 to `value` over a range of scores."""
        top, bottom = sorted((self.y(value), self.y(0)))
        self.parts.append(
            f'<rect class="{css}" x="{self.x(left) + 0.75:.1f}" width="{self.x(right) - self.x(left) - 1.5:.1f}" '
            f'y="{top:.1f}" height="{bottom - top:.1f}"/>'
        )

    def svg(self) -> str:
        """Return the whole picture."""
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self.title)}. '
            f'{escape(self.description)}" xmlns="http://www.w3.org/2000/svg">'
            f"<title>{escape(self.title)}</title><desc>{escape(self.description)}</desc>{''.join(self.parts)}</svg>"
        )


def threshold_words(threshold: float) -> str:
    """Name a threshold for people: lambda, or the state when it is infinite."""
    if threshold == math.inf:
        return "closed: nothing ships"
    if threshold == -math.inf:
        return "open: everything ships"
    return f"λ = {threshold:.4f}"


def calibration_chart(groups: Sequence[LabelledGroup], *, alpha: float, threshold: float) -> str:
    """Draw the bound on exposure, (sum_g L_g(l) + 1) / (G + 1), over thresholds l, against the budget alpha.

    Groups count equally and so do the items of each (the scheme `mean`).
    """
    scores = np.concatenate([g.scores for g in groups]) if groups else np.empty(0)
    losses = np.concatenate([g.severities / len(g.severities) for g in groups]) if groups else np.empty(0)
    curve = LossCurve.of(scores, losses)
    bounds = (np.concatenate([[0.0], curve.totals]) + 1) / (len(groups) + 1)
    starts = [0.0, *(float(level) for level in curve.levels[::-1] if level > 0)]
    values = [float(bound) for bound in bounds[::-1]][-len(starts) :]
    plot = Plot(
        "How the threshold was found",
        f"The bound on exposure falls from {percent(values[0], 1)} when everything ships to {percent(values[-1], 1)} "
        f"when nothing does. The budget is {budget(alpha)}; {threshold_words(threshold)}.",
        "threshold: ship what scores above it",
        0.0,
        _ceiling(max(*values, alpha)),
    )
    plot.frame(_percent_ticks(plot.high))
    plot.steps(starts, values, "exposure")
    plot.level(alpha, f"budget {budget(alpha)}")
    plot.cut(threshold, threshold_words(threshold))
    reached = [value for start, value in zip(starts, values, strict=True) if start <= max(threshold, 0.0)]
    plot.dot(threshold, reached[-1], "exposure")
    return plot.svg()


def score_chart(units: Units, unit: Unit, *, threshold: float) -> str:
    """Draw how the scores of fine units (upwards) and of wrong ones (downwards, severity .5 or more) are spread."""
    known = ~np.isnan(units.scores)
    wrong = units.severities >= 0.5
    edges = np.linspace(0, 1, BINS + 1)
    fine_counts, _ = np.histogram(units.scores[known & ~wrong], edges)
    wrong_counts, _ = np.histogram(units.scores[known & wrong], edges)
    many = UNIT_WORDS[unit][1]
    plot = Plot(
        "Scores of right and wrong answers",
        f"Of the {int(known.sum())} scored {many} of the second half {int((known & ~wrong).sum())} are right, with "
        f"a median score of {_median(units.scores[known & ~wrong])}, and {int((known & wrong).sum())} wrong, with a "
        f"median of {_median(units.scores[known & wrong])}.",
        "score: agreement with the other answers",
        -float(max(1, wrong_counts.max(initial=0))) * 1.12,
        float(max(1, fine_counts.max(initial=0))) * 1.25,
    )
    step = _round_step((plot.high - plot.low) / 6)
    counts = range(-int(-plot.low // step) * step, int(plot.high) + 1, step)
    plot.frame([(float(count), str(abs(count))) for count in counts])
    for left, right, fine, bad in zip(edges[:-1], edges[1:], fine_counts, wrong_counts, strict=True):
        if fine:
            plot.bar(float(left), float(right), float(fine), "fine")
        if bad:
            plot.bar(float(left), float(right), -float(bad), "wrong")
    plot.cut(threshold, threshold_words(threshold))
    return plot.svg()


def tradeoff_chart(units: Units, unit: Unit, *, alpha: float, threshold: float) -> str:
    """Draw ship rate, selective risk and exposure risk on the second half over every threshold, the chosen one marked."""
    starts, ship, exposure, selective = tradeoff(units)
    many = UNIT_WORDS[unit][1]
    at = int(np.searchsorted(starts, max(threshold, 0.0), side="right")) - 1 if threshold < math.inf else -1
    chosen = [float(curve[at]) for curve in (ship, selective, exposure)]
    plot = Plot(
        "What another threshold would have done",
        f"At the chosen threshold {percent(chosen[0])} of the {many} ship, "
        f"{percent(None if math.isnan(chosen[1]) else chosen[1])} of what ships is wrong, and exposure is "
        f"{percent(chosen[2], 1)} against a budget of {budget(alpha)}.",
        "threshold: ship what scores above it",
        0.0,
        1.0,
    )
    plot.frame([(share / 4, f"{25 * share} %") for share in range(5)])
    for curve, css in ((ship, "ship"), (selective, "selective"), (exposure, "exposure")):
        plot.steps(starts.tolist(), curve.tolist(), css)
    plot.level(alpha, f"budget {budget(alpha)}", at_left=True)
    plot.cut(threshold, threshold_words(threshold))
    for value, css in zip(chosen, ("ship", "selective", "exposure"), strict=True):
        if not math.isnan(value):
            plot.dot(threshold, value, css)
    return plot.svg()


def tradeoff(units: Units) -> tuple[Floats, Floats, Floats, Floats]:
    """Return, from each threshold on at which something changes: ship rate, exposure risk and selective risk.

    Returns
    -------
    starts, ship, exposure, selective : shape (k,), k >= 1, `starts` rising from 0; selective risk is NaN where
        nothing ships. A threshold of 0 ships whatever may ship and scores above 0.
    """
    may = units.shippable
    starts = np.unique(np.concatenate([[0.0], units.scores[may]]))
    order = np.argsort(units.scores[may])
    scores, severities = units.scores[may][order], units.severities[may][order]
    below = np.searchsorted(scores, starts, side="right")
    lost = np.concatenate([[0.0], np.cumsum(severities)])
    shipped = (len(scores) - below).astype(np.float64)
    wrong = np.maximum(lost[-1] - lost[below], 0.0)
    total = max(len(units), 1)
    selective = np.full(len(starts), np.nan)
    np.divide(wrong, shipped, out=selective, where=shipped > 0)
    return starts, shipped / total, wrong / total, selective


def _median(scores: Floats) -> str:
    return f"{np.median(scores):.2f}" if len(scores) else "none"


def _ceiling(value: float) -> float:
    return min(1.0, math.ceil(value * 1.15 * 20) / 20)


def _percent_ticks(high: float) -> list[tuple[float, str]]:
    step = 0.05 if high <= 0.3 else 0.1 if high <= 0.6 else 0.2
    return [(i * step, f"{100 * i * step:.0f} %") for i in range(int(high / step + 1e-9) + 1)]


def _round_step(value: float) -> int:
    power = 10 ** max(0, math.floor(math.log10(max(value, 1))))
    return int(next(f * power for f in (1, 2, 5, 10) if f * power >= value))
