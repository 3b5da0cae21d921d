"""Pictures as inline SVG, which carry their own words, and the pages' style sheets: light, and dark where the reader's system is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files

WIDTH, HEIGHT = 720, 350
LEFT, RIGHT, TOP, BOTTOM = 72, 16, 30, 60
TENTHS = tuple((tenth / 10, f"{tenth / 10:g}") for tenth in range(0, 11, 2))


@dataclass(slots=True)
class Plot:
    """A picture over numbers along x, by default scores; what lies beyond its bounds is drawn at
    the edge.

    `title`, `description` : for people who do not see it. `low`, `high` : bounds of y; `left`,
    `right` : of x. `height` : in the picture's own units, of which it is 720 wide.
    """

    title: str
    description: str
    x_label: str
    low: float
    high: float
    left: float = 0.0
    right: float = 1.0
    height: int = HEIGHT
    parts: list[str] = field(default_factory=list)

    def x(self, value: float) -> float:
        """Return the horizontal place of a value."""
        share = (min(max(value, self.left), self.right) - self.left) / (self.right - self.left)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return the vertical place of a value."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.height - BOTTOM - share * (self.height - TOP - BOTTOM)

    def frame(self, ticks: Sequence[tuple[float, str]], along: Sequence[tuple[float, str]] = TENTHS) -> None:
        """Draw the axes, with ticks (value, text) along y and along x."""
        for value, text in ticks:
            y = self.y(value)
            self._line("grid", f"{LEFT}", f"{WIDTH - RIGHT}", f"{y:.1f}", f"{y:.1f}")
            self.text(LEFT - 8, y + 4, text, anchor="end", css="tick")
        for place, (value, text) in enumerate(along):
            # A long one at an edge stands beside its place, or it would be cut off, or upon the other axis.
            x, half = self.x(value), 7 * len(text)
            anchor = "start" if x - half < LEFT - 8 else "end" if x + half > WIDTH else "middle"
            css = "tick between" if place % 2 else "tick"
            self.text(x, self.height - BOTTOM + 24, text, anchor=anchor, css=css)
        self.text((LEFT + WIDTH - RIGHT) / 2, self.height - 8, self.x_label, anchor="middle", css="axis")

    def text(self, x: float, y: float, words: str, *, anchor: str = "start", css: str = "note") -> None:
        """Write `words` at a place in the picture's own units."""
        self.parts.append(
            f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def steps(self, starts: Sequence[float], values: Sequence[float], css: str) -> None:
        """Draw a step function: `values[i]` from `starts[i]` up to the next start, the last one up to the right edge.

        A NaN breaks the line.
        """
        path, drawing = [], False
        ends = [*starts[1:], self.right]
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
        self._line("budget", f"{LEFT}", f"{WIDTH - RIGHT}", f"{y:.1f}", f"{y:.1f}")
        if at_left:
            self.text(LEFT + 6, y - 6, words, css="note strong")
        else:
            self.text(WIDTH - RIGHT - 4, y - 6, words, anchor="end", css="note strong")

    def cut(self, threshold: float, words: str) -> None:
        """Draw a line up at `threshold`, with words above its top, clear of the curves, on the side where there is room."""
        x = self.x(threshold)
        self._line("cut", f"{x:.1f}", f"{x:.1f}", f"{TOP - 4}", f"{self.height - BOTTOM}")
        left = x > (LEFT + WIDTH) / 2
        self.text(
            x - 6 if left else x + 6, TOP - 10, words, anchor="end" if left else "start", css="note strong"
        )

    def band(self, at: Sequence[float], lower: Sequence[float], upper: Sequence[float], css: str) -> None:
        """Fill what lies between two curves through the places `at`; all three are equally long."""
        there = [f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in zip(at, upper, strict=True)]
        back = [f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in zip(at, lower, strict=True)]
        self.parts.append(f'<polygon class="band {css}" points="{" ".join([*there, *reversed(back)])}"/>')

    def curve(self, at: Sequence[float], values: Sequence[float], css: str) -> None:
        """Draw a line through points."""
        points = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in zip(at, values, strict=True))
        self.parts.append(f'<polyline class="line {css}" points="{points}"/>')

    def dot(self, x: float, y: float, css: str) -> None:
        """Mark a point."""
        self.parts.append(f'<circle class="dot {css}" cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="5"/>')

    def mark(self, left: float, right: float, value: float, css: str) -> None:
        """Draw a line across a range along x at `value`."""
        y = self.y(value)
        self._line(css, f"{self.x(left):.1f}", f"{self.x(right):.1f}", f"{y:.1f}", f"{y:.1f}")

    def whisker(self, x: float, low: float, high: float) -> None:
        """Draw an error upright at `x`, from `low` to `high`."""
        at = self.x(x)
        self._line("cut", f"{at:.1f}", f"{at:.1f}", f"{self.y(low):.1f}", f"{self.y(high):.1f}")

    def bar(self, left: float, right: float, value: float, css: str, *, base: float = 0.0) -> None:
        """Draw a bar from `base` to `value` over a range along x."""
        top, bottom = sorted((self.y(value), self.y(base)))
        self.parts.append(
            f'<rect class="{css}" x="{self.x(left) + 0.75:.1f}" width="{self.x(right) - self.x(left) - 1.5:.1f}" '
            f'y="{top:.1f}" height="{bottom - top:.1f}"/>'
        )

    def _line(self, css: str, x1: str, x2: str, y1: str, y2: str) -> None:
        self.parts.append(f'<line class="{css}" x1="{x1}" x2="{x2}" y1="{y1}" y2="{y2}"/>')

    def svg(self) -> str:
        """Return the whole picture."""
        return (
            f'<svg viewBox="0 0 {WIDTH} {self.height}" role="img" aria-label="{escape(self.title)}. '
            f'{escape(self.description)}" xmlns="http://www.w3.org/2000/svg">'
            f"<title>{escape(self.title)}</title><desc>{escape(self.description)}</desc>{''.join(self.parts)}</svg>"
        )


def ceiling(value: float) -> float:
    """Return where an axis of shares ends so that a value stands below its top."""
    return min(1.0, math.ceil(value * 1.15 * 20) / 20)


def percent_ticks(high: float) -> list[tuple[float, str]]:
    """Return ticks for an axis of shares from 0 to `high`, seven at most, at round shares."""
    power = 10.0 ** math.floor(math.log10(high))
    step = next(power * one for one in (0.1, 0.2, 0.5, 1.0, 2.0) if high / (power * one) <= 6 + 1e-9)
    return [(i * step, f"{100 * i * step:.3g} %") for i in range(int(high / step + 1e-9) + 1)]


COLOURS = """
:root { color-scheme: light dark;
  --page: #fbfaf7; --card: #ffffff; --ink: #1d2329; --soft: #59636e; --rule: #dfe2e6; --code: #f0efea;
  --fine: #1f6fb2; --wrong: #d1570f; --held-fine: #b9d3ea; --held-wrong: #f4cbae; --selective: #8a4fa8;
  --on-fine: #ffffff; --on-wrong: #ffffff; --on-held: #1d2329; }
@media (prefers-color-scheme: dark) { :root {
  --page: #14181d; --card: #1c2128; --ink: #e6e9ed; --soft: #a1abb6; --rule: #343c46; --code: #262d36;
  --fine: #6cb2ee; --wrong: #f59a57; --held-fine: #29486a; --held-wrong: #6b3f1d; --selective: #cf9be8;
  --on-fine: #0c1720; --on-wrong: #201004; --on-held: #e6e9ed; } }
"""

CHARTS = """
svg text { font: 13px system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; fill: var(--ink); }
svg .tick, svg .axis { fill: var(--soft); } svg .strong { font-weight: 650; }
svg .note { paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .line { fill: none; stroke-width: 2.4; stroke-linejoin: round; }
svg .ship { stroke: var(--fine); } svg .selective { stroke: var(--selective); } svg .exposure { stroke: var(--wrong); }
svg .dot { stroke: var(--card); stroke-width: 2; } svg .dot.ship { fill: var(--fine); }
svg .dot.selective { fill: var(--selective); } svg .dot.exposure { fill: var(--wrong); }
svg .budget { stroke: var(--ink); stroke-width: 1.4; stroke-dasharray: 6 5; }
svg .cut { stroke: var(--ink); stroke-width: 1.4; }
svg rect.fine { fill: var(--fine); } svg rect.wrong { fill: var(--wrong); }
svg rect.held { fill: var(--rule); } svg rect.hold { fill: var(--soft); } svg .limit { stroke: var(--ink); stroke-width: 3; }
svg .on-fine, svg .on-wrong, svg .on-held { font-weight: 650; } svg .on-fine { fill: var(--on-fine); }
svg .on-wrong { fill: var(--on-wrong); }
svg .band { fill-opacity: .18; stroke: none; } svg .band.exposure { fill: var(--wrong); } svg .band.selective { fill: var(--selective); }
"""

COMMON = COLOURS + files("streamer.web").joinpath("static", "common.css").read_text("utf-8")
