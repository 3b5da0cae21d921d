"""Bad answers that got out after the change, as pictures."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from tests.e2e.swap.outcomes import Outcome

# Okabe and Ito's colours, which people with any colour vision can tell apart.
_COLOURS = ("#D55E00", "#0072B2", "#009E73")
_GREY = "#777777"
_SAID = {"kept": "#009E73", "not known yet": "#CCCCCC", "broken": "#D55E00"}
"""Colours of what `streamer risk` says."""


def draw(outcomes: Sequence[Outcome], earlier: Sequence[Outcome], alpha: float, path: Path) -> None:
    """Draw a line for each gate, dashed for one of `earlier`; a dot is the closing."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.lines import Line2D

    sizes = sorted({one.life.swapped for one in outcomes}, reverse=True)
    figure, panels = plt.subplots(
        2, 2, figsize=(10, 7), sharex=True, sharey="row", constrained_layout=True, squeeze=False
    )
    for row, old in zip(panels, (False, True), strict=True):
        for panel, gaps in zip(row, (False, True), strict=True):
            for some, style in ((earlier, "--"), (outcomes, "-")):
                for one in some:
                    if (one.life.old, bool(one.life.never)) != (old, gaps) or one.life.swapped not in sizes:
                        continue
                    colour = _COLOURS[sizes.index(one.life.swapped) % len(_COLOURS)]
                    panel.plot(
                        range(0, one.decisions + 1, one.step), one.curve, style, color=colour,
                        lw=1.3, alpha=0.8,
                    )  # fmt: skip
                    if one.closed is not None:
                        panel.plot(one.closed, one.bad, "o", color=colour, ms=5)
            end = max(one.decisions for one in outcomes)
            panel.plot((0, end), (0, alpha * end), ":", color=_GREY, lw=1.2)
            age = "long" if old else "shortly"
            labels = "some labels never come" if gaps else "all labels come"
            panel.set_title(f"open {age} before the change, {labels}", fontsize=10)
            panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[-1]:
        panel.set_xlabel("decisions after the change")
    for panel in panels[:, 0]:
        panel.set_ylabel("bad answers shipped")
    named = [
        Line2D([], [], color=colour, label=f"{size:.0%} of answers swapped" if size else "nothing changes")
        for size, colour in zip(sizes, _COLOURS, strict=False)
    ]
    named += [
        Line2D([], [], color=_GREY, ls=":", label=f"the budget, {alpha:g} a decision"),
        Line2D([], [], color="black", marker="o", ls="", label="the gate was closed"),
    ]
    if earlier:
        named.append(Line2D([], [], color="black", ls="--", label="before"))
    figure.legend(handles=named, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_story(now: Outcome, earlier: Outcome, path: Path) -> None:
    """Draw one gate as it was and as it is: bad answers shipped, and below what `streamer risk` said meanwhile."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.patches import Patch

    figure, (bad, said) = plt.subplots(
        2, 1, figsize=(9, 5), sharex=True, height_ratios=(4, 1), constrained_layout=True
    )
    end = max(now.decisions, earlier.decisions)
    for place, (one, name, style) in enumerate(((now, "now", "-"), (earlier, "before", "--"))):
        bad.plot(range(0, one.decisions + 1, one.step), one.curve, style, color=_COLOURS[1], lw=1.8)
        text = f"{name}: {one.curve[-1]:.0f}"
        if one.closed is None:
            text += ", and still open"
        else:
            bad.plot(one.closed, one.bad, "o", color=_COLOURS[1])
            text += f", closed after {one.closed} decisions"
        bad.annotate(
            text, (one.decisions, one.curve[-1]), xytext=(-4, 6), textcoords="offset points", ha="right"
        )
        looks = [*sorted(one.said), end]
        for begin, stop in pairwise(looks):
            said.barh(
                place, stop - begin, left=begin, height=0.7,
                color=_SAID[verdict_of(one.said[begin])], ec="white",
            )  # fmt: skip
    bad.set_ylabel("bad answers shipped")
    bad.set_ylim(0, 1.12 * max(now.curve[-1], earlier.curve[-1]))
    said.set_yticks((0, 1), ("now", "before"))
    said.set_xlabel("decisions after the change")
    said.set_xlim(0, end)
    for panel in (bad, said):
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(
        handles=[Patch(color=colour, label=f"risk says: {name}") for name, colour in _SAID.items()],
        loc="outside lower center", ncols=3, frameon=False,
    )  # fmt: skip
    figure.savefig(path, dpi=110)
    plt.close(figure)


def verdict_of(sentence: str) -> str:
    """Return which verdict a sentence of `streamer risk` says."""
    if "BROKEN" in sentence:
        return "broken"
    return "kept" if sentence.startswith("the budget was kept") else "not known yet"
