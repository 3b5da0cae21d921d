"""Decisions over time as a picture: one stacked bar a day or month."""

from collections.abc import Mapping
from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 190, 52, 26, 22

COLOURS = {"ship": "#1f6fb2", "mixed": "#8a4fa8"}
HELD = "#d1a070"
"""Outcomes that ship something have a colour each, and all that hold another: readable on white and on a dark page."""


def bars(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Return an SVG picture that needs no style sheet but for the colour of its text, which is the page's."""
    names = sorted(
        {name for one in counts.values() for name in one}, key=lambda name: (name not in COLOURS, name)
    )
    most = max((sum(one.values()) for one in counts.values()), default=0)
    if not most:
        return ""
    step = (WIDTH - LEFT) / len(counts)
    parts = [_text(LEFT - 6, TOP + 5, f"{most:,}", "end"), _text(LEFT - 6, HEIGHT - BOTTOM, "0", "end")]
    every = -(-len(counts) // 8)
    for at, (day, one) in enumerate(counts.items()):
        x, y = LEFT + at * step, float(HEIGHT - BOTTOM)
        for name in names:
            height = (HEIGHT - BOTTOM - TOP) * one.get(name, 0) / most
            y -= height
            if height:
                parts.append(
                    f'<rect x="{x + 0.06 * step:.1f}" y="{y:.1f}" width="{0.88 * min(step, 90):.1f}" height="{height:.1f}"'
                    f' fill="{COLOURS.get(name, HELD)}"><title>{escape(day)}: {one[name]:,} {escape(name)}</title></rect>'
                )
        if at % every == 0:
            parts.append(_text(x, HEIGHT - 8, day, "start"))
    x = float(LEFT)
    for name in names:
        parts.append(f'<rect x="{x:.0f}" y="2" width="10" height="10" fill="{COLOURS.get(name, HELD)}"/>')
        parts.append(_text(x + 14, 11, name, "start"))
        x += 34 + 8 * len(name)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="Decisions over time, stacked by outcome">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12">{escape(words)}</text>'
