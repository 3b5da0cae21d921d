"""Measure recalibration under change and with labels that come late: what is shipped, and what of it is bad.

    python benchmarks/recalibration.py [--streams N] [--short] [--json]

The score of an answer is uniform on [0, 1], and it is bad with chance .4 (1 - score); the budget is .1. The age cut and the
suffix test are the shipped ones.

1. A jump: after 2,000 decisions bad answers become so common, at every score alike, that the exposure under the threshold in
   force is .5. Draws have probability .2, labels come 60 decisions late, a run comes every 100 labels. How many bad answers
   ship in the next 1,000 and 3,000 decisions, for pooled history, with the suffix test, looked at every 10 new labels, and
   with the risk alarm as well, which closes the gate and begins its sample anew.
2. A stable stream: what false cuts cost of the share served.
3. Labels that have not come: 300 draws of 2,200 decisions, labels exponentially late with mean 200 decisions; and with bad answers labelled
   later than good ones. Share served and exposure for every way to treat draws without a label.

Exit status 1 where the suffix test lets more than 428 bad answers through, or in the first 1,000 decisions more than 260, and with
the alarm 138; where it costs more than a hundredth of the share served; or where the age cut serves less than 96 % of what
knowing every label would, or exposes more than the budget.
"""

import json
import sys

import numpy as np
from numpy.typing import NDArray
from shared import parser_of

from streamer.recalibration.age_cut import choose
from streamer.recalibration.suffix_test import suffix_test
from streamer.risk.rounds.alarm_terms import chance_of
from streamer.risk.states import RiskAlarm

Floats = NDArray[np.float64]

ALPHA = 0.1
CHANCE = 0.2
LAG = 60
BEFORE, AFTER, EARLY = 2000, 3000, 1000


def threshold(scores: Floats, losses: Floats, alpha: float = ALPHA) -> float:
    """The conformal threshold by `mean` for groups of one answer: the least l with sum(losses above l) + 1 within budget."""
    limit = alpha * (len(scores) + 1) - 1
    if limit < 0:
        return np.inf
    order = np.argsort(-scores, kind="stable")
    lost = np.cumsum(losses[order])
    over = np.flatnonzero(lost > limit + 1e-9)
    return -np.inf if not len(over) else float(scores[order][over[0]])


def answers(rng: np.random.Generator, count: int, bad: float) -> tuple[Floats, Floats]:
    """Scores, and severities of answers that are bad with chance `bad` on average, less often at high scores."""
    scores = rng.random(count)
    return scores, (rng.random(count) < np.clip(2 * bad * (1 - scores), 0, 1)).astype(float)


class Stream:
    """One gate: decisions that come, labels that come later, thresholds that change."""

    def __init__(self, rng: np.random.Generator, *, suffix: bool) -> None:
        self.rng, self.suffix = rng, suffix
        self.scores: list[float] = []
        self.losses: list[float] = []
        self.drawn = rng.integers(0, 2**63, BEFORE + AFTER + 10_000, dtype=np.uint64)
        self.level = np.inf
        self.cuts = 0

    def recalibrate(self) -> None:
        """A scheduled run: all groups, and the newest beside older ones."""
        scores, losses = np.array(self.scores), np.array(self.losses)
        found = threshold(scores, losses)
        self.level = max(found, self._newest(scores, losses, min(found, self.level)))

    def look(self) -> None:
        """Between two runs: tighten where the newest groups are worse."""
        scores, losses = np.array(self.scores), np.array(self.losses)
        self.level = max(self.level, self._newest(scores, losses, self.level))

    def _newest(self, scores: Floats, losses: Floats, level: float) -> float:
        if not self.suffix:
            return -np.inf
        found = suffix_test(np.where(scores > level, losses, 0.0), self.drawn[: len(scores)], version=1)
        if found is None or not found.cuts:
            return -np.inf
        self.cuts += 1
        return threshold(scores[-found.groups :], losses[-found.groups :])


def served(
    rng: np.random.Generator, *, suffix: bool, jump: bool, alarm: bool = False
) -> tuple[float, float, float, int]:
    """Bad answers shipped after the change, those of them that shipped early, the share served after it, and cuts."""
    before = answers(rng, BEFORE, 0.2)
    if jump:
        # As likely to be bad at every score: exposure .5 where everything above the threshold in force ships.
        scores, _ = answers(rng, AFTER, 0.2)
        after = scores, np.zeros(AFTER)
    else:
        after = answers(rng, AFTER, 0.2)
    scores, losses = (np.concatenate(pair) for pair in zip(before, after, strict=True))
    drawn = rng.random(len(scores)) < CHANCE
    shipped = np.zeros(len(scores), dtype=bool)
    stream = Stream(rng, suffix=suffix)
    watch = RiskAlarm.open(alpha=ALPHA, delta=chance_of(0.05, 1), false_every=100_000) if alarm else None
    labels = begun = 0
    bad = early = share = 0.0
    for i in range(len(scores)):
        if i == BEFORE and jump:
            ships = min(1.0, 0.5 / max(1e-9, 1 - min(max(stream.level, 0.0), 1.0)))
            losses[BEFORE:] = rng.random(AFTER) < ships
        j = i - LAG
        if watch is not None and j >= 0 and drawn[j] and shipped[j]:  # what is held loses nothing
            watch = watch.observe(known={j: float(losses[j])})
            if watch.raised_at is not None:
                watch, begun = None, i
                stream.scores, stream.losses, stream.level, labels = [], [], np.inf, 0
        if j >= begun and drawn[j]:
            stream.scores.append(scores[j])
            stream.losses.append(losses[j])
            labels += 1
            # A gate that has never served may open by hand; one that an alarm closed has its least groups to wait for.
            first = begun == 0 and stream.level == np.inf and labels >= 9 and labels % 10 == 0
            if labels % 100 == 0 or first:
                stream.recalibrate()
            elif labels % 10 == 0:
                stream.look()
        shipped[i] = scores[i] > stream.level
        if watch is not None and drawn[i] and stream.level < np.inf:
            watch = watch.observe([watch.draw(i, None if shipped[i] else 0.0)])
        if i >= BEFORE and shipped[i]:
            bad += losses[i]
            early += losses[i] if i < BEFORE + EARLY else 0
            share += 1
    return bad, early, share / AFTER, stream.cuts


def pending(
    rng: np.random.Generator, streams: int, *, late_bad: bool, draws: int = 300
) -> dict[str, tuple[float, float]]:
    """Share served and exposure, by how draws without a label are treated."""
    found: dict[str, list[tuple[float, float]]] = {}
    span = 2200
    for _ in range(streams):
        scores, losses = answers(rng, draws, 0.2)
        ages = np.sort(rng.random(draws))[::-1] * span
        mean = np.where(losses > 0, 800.0, 100.0) if late_bad else np.full(draws, 200.0)
        late = rng.exponential(mean)
        waits = late > ages
        # Earlier draws, of before the sample, have the same law.
        old_losses = answers(rng, 200, 0.2)[1]
        old = rng.exponential(np.where(old_losses > 0, 800.0, 100.0) if late_bad else 200.0, 200)
        cut = choose(
            ages.tolist(),
            waits.tolist(),
            pending="age",
            earlier=old.tolist(),
            label_deadline=0,
            deadline=5000,
        )
        counted = np.where(waits, 1.0, losses)

        def older(
            seconds: float, ages: Floats = ages, scores: Floats = scores, counted: Floats = counted
        ) -> float:
            keep = ages >= seconds
            return threshold(scores[keep], counted[keep])

        several = [older(float(np.quantile(ages, q))) for q in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)]
        for name, level in (
            ("everything known", threshold(scores, losses)),
            ("worst (as before)", threshold(scores, counted)),
            ("age cut", older(cut.seconds)),
            ("labelled only", threshold(scores[~waits], losses[~waits])),
            ("best of several cuts", min(several)),
        ):
            level = min(max(level, 0.0), 1.0)
            # Bad with chance .4 (1 - score): the exposure at l is .2 (1 - l)^2, exactly.
            found.setdefault(name, []).append((1 - level, 0.2 * (1 - level) ** 2))
    return {name: tuple(np.mean(rows, axis=0)) for name, rows in found.items()}


def main() -> int:
    """Measure, print, and judge."""
    parser = parser_of(__doc__)
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    streams = 60 if options.short else options.streams
    results: dict[str, dict[str, float]] = {}
    for name, suffix, alarm in (
        ("pooled", False, False),
        ("suffix", True, False),
        ("suffix and alarm", True, True),
    ):
        jumps, calm = (
            [
                served(np.random.default_rng([seed, n]), suffix=suffix, jump=jump, alarm=alarm)
                for n in range(streams)
            ]
            for seed, jump in ((1, True), (2, False))
        )
        results[name] = {
            "bad after the jump": float(np.mean([one[0] for one in jumps])),
            f"in the first {EARLY}": float(np.mean([one[1] for one in jumps])),
            "share served, stable": float(np.mean([one[2] for one in calm])),
            "streams with a false cut": float(np.mean([one[3] > 0 for one in calm])),
        }
    for name, late in (("labels 200 late", False), ("bad answers labelled later", True)):
        for how, (share, exposure) in pending(
            np.random.default_rng([3, late]), 10 * streams, late_bad=late
        ).items():
            results[f"{name}: {how}"] = {"share served": share, "exposure": exposure}
    if options.json:
        print(json.dumps(results))
    else:
        for name, figures in results.items():
            print(f"{name:<52}", ", ".join(f"{what} {value:.4g}" for what, value in figures.items()))
    tight, pooled = results["suffix"], results["pooled"]
    cost = pooled["share served, stable"] - tight["share served, stable"]
    plain = results["labels 200 late: age cut"]
    later = results["bad answers labelled later: age cut"]
    held = (
        tight["bad after the jump"] <= 428
        and tight[f"in the first {EARLY}"] <= 260
        and results["suffix and alarm"][f"in the first {EARLY}"] <= 138
        and cost <= 0.01
        and plain["share served"] >= 0.96 * results["labels 200 late: everything known"]["share served"]
        and max(plain["exposure"], later["exposure"]) <= ALPHA
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
