"""The story as lines and as a picture: what Prometheus saw, and what was done."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.services.prometheus import Prometheus

# Okabe and Ito's colours, which people with any colour vision can tell apart.
_TOP = 0.62
_BLUE, _ORANGE, _GREEN, _VERMILION, _GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#777777"


@dataclass(frozen=True)
class Moment:
    """Something that happened; `mark` is short enough for a picture."""

    at: float
    text: str
    mark: str


@dataclass
class Timeline:
    """Moments in Unix seconds, from `began` on."""

    began: float = field(default_factory=time.time)
    moments: list[Moment] = field(default_factory=list)

    def tell(self, text: str, *, mark: str = "", at: float | None = None) -> None:
        """Keep a moment and print it."""
        moment = Moment(time.time() if at is None else at, text, mark)
        self.moments.append(moment)
        print(f"{moment.at - self.began:6.1f} s  {text}", flush=True)


def draw(timeline: Timeline, prometheus: Prometheus, gate: str, alpha: float, path: Path) -> None:
    """Draw the interval against the budget, the threshold, and what was served, as Prometheus has them."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    end = time.time()

    def series(expression: str) -> tuple[Sequence[float], Sequence[float]]:
        found = prometheus.query_range(expression, start=timeline.began, end=end, step=0.5)
        values = found[0]["values"] if found else []
        return [at - timeline.began for at, _ in values], [float(text) for _, text in values]

    figure, (risk, cut, served) = plt.subplots(
        3, 1, figsize=(10, 8.2), sharex=True, height_ratios=(3, 1.4, 1.4), constrained_layout=True
    )
    name = f'{{gate="{gate}"}}'
    at, lower = series(f"max(streamer_exposure_risk_lower_ratio{name})")
    _, upper = series(f"max(streamer_exposure_risk_upper_ratio{name})")
    shortest = min(len(lower), len(upper))
    risk.fill_between(
        at[:shortest],
        lower[:shortest],
        upper[:shortest],
        color=_BLUE,
        alpha=0.25,
        lw=0,
        label="90 % interval, at all times",
    )
    risk.plot(
        *series(f"max(streamer_exposure_risk_ratio{name})"), color=_BLUE, label="exposure risk (all prompts)"
    )
    risk.plot(
        *series(f"max(streamer_selective_risk_ratio{name})"),
        color=_ORANGE,
        ls="--",
        label="selective risk (served prompts)",
    )
    risk.axhline(alpha, color=_VERMILION, lw=1.5, label=f"budget {alpha:g}")
    risk.set_ylim(0, _TOP)
    risk.set_ylabel("mean severity")
    risk.legend(loc="upper left", ncols=2, frameon=False)
    cut.plot(*series(f"max(streamer_policy_lambda_ratio{name})"), ".", ms=3, color=_GREEN)
    cut.set_ylim(0, 1.05)
    cut.set_ylabel("threshold λ\n(absent: closed)")
    total = f"sum(increase(streamer_batches_total{name}[10s]))"
    shipped = f'sum(increase(streamer_batches_total{{gate="{gate}",action="ship"}}[10s]))'
    served.plot(*series(f"{shipped} / ({total} > 0)"), color=_GREY)
    served.set_ylim(-0.03, 1.03)
    served.set_ylabel("share served\n(10 s)")
    served.set_xlabel("seconds")
    risk.set_xlim(min(at, default=0) - 1, end - timeline.began)
    marked = [moment for moment in timeline.moments if moment.mark]
    for number, moment in enumerate(marked):
        for panel in (risk, cut, served):
            panel.axvline(moment.at - timeline.began, color="black", lw=0.7, ls=":")
        risk.annotate(
            moment.mark,
            (moment.at - timeline.began, _TOP),
            xytext=(2, 4 + 11 * (number % 3)),
            textcoords="offset points",
            fontsize=8,
            annotation_clip=False,
        )
    for panel in (risk, cut, served):
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
