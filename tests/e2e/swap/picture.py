"""Bad answers that got out after the change, as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.e2e.swap.outcomes import Outcome

# Okabe and Ito's colours, which people with any colour vision can tell apart.
_COLOURS = ("#D55E00", "#0072B2", "#009E73")
_GREY = "#777777"


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
                        range(0, one.decisions + 1, one.step),
                        one.curve,
                        style,
                        color=colour,
                        lw=1.3,
                        alpha=0.8,
                    )
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
