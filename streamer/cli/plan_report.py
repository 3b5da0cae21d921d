"""A plan as people read it, and as JSON."""

from __future__ import annotations

from dataclasses import replace
from math import floor, log10

from streamer.calibration.plan import Interval
from streamer.cli.console import counted, percent, print_fields, print_table, say
from streamer.frames.results import spread_text
from streamer.planning.past import PastPlan, Tried
from streamer.planning.rungs import PlannedRungs, Rungs


def print_past(made: PastPlan) -> None:
    each = f" / {made.attempts} attempts" if made.attempts > 1 else ""
    half, high = made.prompts // 2, percent(1.5 * made.alpha / made.attempts)
    of = "no past answers"
    if half:
        what = "prompts made from a guess" if made.guessed else "past prompts"
        of = f"{made.prompts} {what}, seed {made.seed}"
    say(f"Plan for a budget of {percent(made.alpha)}{each}: unit {made.unit}, method {made.method}, {of}")
    fields = {
        "needed": f"{counted(made.least, 'labelled prompt', 'labelled prompts')} or more: with fewer nothing can ship"
    }
    if made.mean_severity is not None and made.least_held is not None:
        fields["labels"] = (
            "none of these serves steadily: label more, find a better score, or raise the budget"
            if made.enough is None
            else f"{made.enough}: the fewest below that steadily serve 80 % of what the most do"
        )
        fields["held"] = (
            f"{percent(made.least_held, 1)} or more by any gate: {percent(made.mean_severity, 1)} would be wrong if everything were served"
        )
    print_fields(fields)

    def figures(one: Tried) -> list[object]:
        spreads = (one.served, one.exposure, one.selective)
        # How much one calibration differs from another, not how well their mean is known.
        return ["-" if one is None else spread_text(replace(one, error=one.sd)) for one in spreads]

    heads = ["served", "exposure", "error rate among shipped"]
    signals = made.ladder[0].allowed is not None
    say("")
    print_table(
        ["labels", *heads, *(["one score", f"above {high}", "allowed"] if signals else [])],
        [
            [
                one.labels,
                *figures(one),
                *(
                    [
                        "-" if one.by_one_score is None else percent(one.by_one_score),
                        percent(one.above or 0.0, 1),
                        max(one.allowed - 1, 0) if one.allowed else "closed",
                    ]
                    if one.allowed is not None
                    else []
                ),
            ]
            for one in made.ladder
        ],
        title="What labels buy, one a prompt",
    )
    if signals:
        score = "the log-probability" if made.ladder[0].answers == 1 else "(Gram energy + chrF) / 2"
        say(
            f"one score: what a cut of {score} serves on the same labels.\n"
            f"above {high}: share of calibrations that expose so much, though their mean is within the budget.\n"
            "allowed: wrong labelled prompts that may look at least as good as what ships."
        )
    if not half:
        say(
            "-: measured on past answers with severities alone: label 60 prompts or more, and name their file with --data."
        )
        return
    if made.sizes:
        print_table(
            ["answers", *heads],
            [[one.answers, *figures(one)] for one in made.sizes],
            title=f"How many answers to sample, with {half} labels",
        )
        if made.sizes[0].answers == 1:
            say("1 answer: one call of the model, whose log-probability decides, without an encoder.")
    say("±: one standard deviation between calibrations.")
    if made.guessed:
        say("What your answers are like decides: label a few and plan again with --data.")
        return
    say(
        f"Measured as `streamer try` does, on the {made.prompts - half} prompts of each of its second halves; so many labels of the "
        f"first calibrate. -: more labels than the {half} of a first half."
    )


def print_rungs(made: PlannedRungs) -> None:
    left = f" ({made.left_out} more could not be used)" if made.left_out else ""
    say(
        f"A cheap gate and an expensive one behind it, for a budget of {percent(made.alpha)} on exposure risk: unit best, {made.prompts} "
        f"past prompts{left},\n{made.answers[0]} and {made.answers[1]} answers.\n"
        f"The expensive gate alone, asked about every prompt, serves {percent(made.dear_served.mean, 1)} "
        f"({in_words(made.dear_served)}); the cheap one alone {percent(made.cheap_served.mean, 1)} "
        f"({in_words(made.cheap_served)})."
    )
    say("")
    print_table(
        ["keep", "then_from", "label floor", "budgets", "handed on", "served", "exposure"],
        [
            [
                percent(one.kept, 0),
                *_levels(one),
                "-" if one.first is None or one.later is None else f"{one.first:.4g} / {one.later:.3g}",
                f"{percent(one.handed_on.mean, 1)} ({in_words(one.handed_on)})",
                f"{percent(one.served.mean, 1)} ({in_words(one.served)})",
                percent(one.exposure.mean, 1),
            ]
            for one in made.rungs
        ],
        title="What to hand on to the expensive gate, and how to split the budget",
    )
    say("")
    say(
        "keep: how much of what the expensive gate alone serves the split is to keep; with - none does, and every prompt is an expensive "
        "call.\n"
        "then_from, label floor: what scores between them at the cheap gate, both included, is handed on. budgets: the cheap gate's / the expensive one's, for "
        "a prompt that reaches it.\n"
        "handed on: prompts that cost an expensive call. The cheap gate pays where its call costs less than what the others save.\n"
        f"handed on, served, exposure: on prompts that chose nothing. In each of {made.rounds} rounds a random third chose a "
        "split of its own, a\nthird calibrated, and a third was measured; the mean, and the range of "
        f"{percent(made.level, 0)} of them. The split and its budgets:\nchosen on half of the prompts, the share handed on "
        "counted on the others."
    )
    chosen = next((one for one in made.rungs if one.split is not None), None)
    if chosen is None or chosen.split is None or chosen.first is None or chosen.later is None:
        return
    say(
        f'To use the split that keeps {percent(chosen.kept, 0)}, set then = "NAME-expensive" and then_from = '
        f"{chosen.split.start:g} in [upstreams.NAME], and\n"
        f"  streamer gate create NAME --upstream NAME --alpha {chosen.first:.4g} --label-floor {chosen.split.floor:g}\n"
        f"  streamer gate create NAME-expensive --alpha {_floored(chosen.later)} --segment-by upstream"
    )


def _levels(one: Rungs) -> tuple[str, str]:
    """Between which scores a split hands on."""
    return ("-", "-") if one.split is None else (f"{one.split.start:g}", f"{one.split.floor:g}")


def _floored(budget: float) -> str:
    """A budget with three digits, and no more than it is."""
    digits = 2 - floor(log10(budget))
    return f"{floor(budget * 10**digits) / 10**digits:g}"


def in_words(interval: Interval) -> str:
    """The two ends as one range of percentages, such as ``41 to 47 %``."""
    digits = 0 if interval.high >= 0.2 else 1
    return f"{100 * interval.low:.{digits}f} to {percent(interval.high, digits)}"
