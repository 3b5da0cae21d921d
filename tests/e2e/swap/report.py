"""What became of the gates, as Markdown."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter

from tests.e2e.swap.lives import Life
from tests.e2e.swap.outcomes import Outcome


def table(outcomes: Sequence[Outcome]) -> str:
    """One line for the gates that differ in their seed only; where they differ, a figure for each."""
    lines = [
        "| answers swapped | open before | labels never given | harm per decision before, after | closed"
        " | decisions until then | drawn until then | labels until then | bad answers until then | `risk` said kept, open after the change"
        " | open again after | harm per decision then |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in _cells(outcomes):
        life = cell[0].life
        looks = [look for one in cell for look in _looks_while_open(one)]
        cells = [
            _change(life), "long" if life.old else "shortly",
            f"{life.never:.0%}" if life.never else "none",
            _each((f"{one.exposure_before:.2f}, {one.exposure_after:.2f}" for one in cell), "; "),
            f"{sum(one.closed is not None for one in cell)} of {len(cell)}",
            _each(_closed(one) for one in cell), _each(str(one.drawn) for one in cell),
            _each(str(one.labels) for one in cell), _each(f"{one.bad:.0f}" for one in cell),
            f"{sum(map(says_kept, looks))} of {len(looks)}",
            _each("never" if one.reopened is None else str(one.reopened) for one in cell),
            _each("" if one.exposure_reopened is None else f"{one.exposure_reopened:.2f}" for one in cell),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def sentences(outcomes: Sequence[Outcome]) -> str:
    """What `streamer risk` said of the first gate of each line of the table."""
    lines = []
    for one in (cell[0] for cell in _cells(outcomes)):
        closed = "not closed" if one.closed is None else f"closed after {one.closed}"
        lines += [f"- `{one.life.gate}`, {closed}", *(f"    - {n}: {text}" for n, text in one.said.items())]
    return "\n".join(lines)


def says_kept(sentence: str) -> bool:
    """Whether a sentence of `streamer risk` says that the budget was kept, without more ado."""
    return "the budget was kept" in sentence and "not known" not in sentence


def _change(life: Life) -> str:
    if not life.swapped:
        return "none"
    mended = "" if life.mended is None else f", mended {life.mended} after the closing"
    return f"{life.swapped:.0%}{mended}"


def _closed(one: Outcome) -> str:
    if not one.open_before:
        return "before the change"
    return f"> {one.decisions}" if one.closed is None else str(one.closed)


def _looks_while_open(one: Outcome) -> Iterable[str]:
    return (text for n, text in one.said.items() if 0 < n <= one.until)


def _cells(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    ordered = sorted(
        outcomes, key=lambda one: (-one.life.swapped, one.life.old, one.life.never, one.life.seed)
    )
    return [list(cell) for _, cell in groupby(ordered, key=attrgetter("life.cell"))]


def _each(values: Iterable[str], between: str = " / ") -> str:
    return between.join(value for value in values if value)
