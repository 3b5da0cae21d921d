"""A plan as people read it, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import floor, log10
from typing import TYPE_CHECKING, Any

from streamer.cli.console import SERVED, counted, percent, print_fields, print_table, say

if TYPE_CHECKING:
    from streamer.calibration.prediction import Interval, Prediction
    from streamer.gates.declared import Unit
    from streamer.planning.among_shipped import AmongShippedPlan
    from streamer.planning.past import PastPlan, Tried
    from streamer.planning.plan import Plan
    from streamer.planning.rungs import PlannedRungs, Rungs
    from streamer.planning.until_sure import UntilSure


def plan_json(made: Plan) -> dict[str, Any]:
    """Return a plan as JSON values; null where a figure is not defined."""

    def prediction(one: Prediction) -> dict[str, Any]:
        figures = asdict(one)
        split = figures.pop("split")
        return {"labels": one.split.labels, **split, **figures}

    floors = [{**asdict(one), "prediction": prediction(one.prediction)} for one in made.floors]
    return {
        **asdict(made),
        "floors": floors,
        "fewest": None if made.fewest is None else floors[made.floors.index(made.fewest)],
        "ladder": [prediction(one) for one in made.ladder],
        "splits": [prediction(one) for one in made.splits],
        "best": prediction(made.best),
        "sizes": [{**asdict(one), "prediction": prediction(one.prediction)} for one in made.sizes],
    }


def print_plan(made: Plan) -> None:
    each = f" / {made.attempts} attempts" if made.attempts > 1 else ""
    say(
        f"Plan for a budget of {percent(made.alpha)}{each} on exposure risk: unit {made.unit}, method {made.method}, "
        f"{made.responses} responses a prompt"
    )
    say(_basis(made))
    say("")
    print_fields(_needs(made))
    say("")
    _print_predictions("What labels buy, one a prompt", made, made.ladder, made.labels)
    say("")
    if made.unit == "best":
        say("Unit best: one label a prompt, for its best answer. Labels cannot be spent in another way.")
    else:
        _print_splits(made)
    say("")
    if made.floors:
        _print_floors(made)
        say("")
    _print_sizes(made)


def print_past(made: PastPlan) -> None:
    from streamer.frames.results import spread_text

    each = f" / {made.attempts} attempts" if made.attempts > 1 else ""
    half, high = made.prompts // 2, percent(1.5 * made.alpha / made.attempts)
    of = (
        f"{counted(made.prompts, 'past prompt', 'past prompts')}, seed {made.seed}"
        if half
        else "no past answers"
    )
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
        return ["-" if spread is None else spread_text(spread) for spread in spreads]

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
        say(
            "one score: what a cut of (Gram energy + chrF) / 2 serves on the same labels.\n"
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
    say(
        f"Measured as `streamer try` does, on the {made.prompts - half} prompts of each of its second halves; so many labels of the "
        f"first calibrate. -: more labels than the {half} of a first half."
    )


def print_among_shipped(made: AmongShippedPlan, unit: Unit) -> None:
    from streamer.calibration.registry import every
    from streamer.planning.among_shipped import POWER

    sure = (
        f" with probability {1 - made.delta:g}"
        if every()[made.method].family == "with high probability"
        else " on average (docs/guarantees.md says of what)"
    )
    what = SERVED[unit]
    say(
        f"Plan for at most {percent(made.alpha, 1)} wrong among what ships{sure}: unit {unit}, method {made.method}, on a guess: "
        f"{made.prompts} prompts, {percent(made.mean_severity, 1)} wrong if everything ships."
    )
    needed = (
        f"{made.needed} labelled prompts"
        if made.needed
        else f"more than {made.ladder[-1].labels} labelled prompts"
    )
    print_fields(
        {
            "needed": f"{needed}, so that {percent(POWER, 0)} of calibrations ship anything",
            "least": f"{made.least} labelled answers that ship, none of them wrong; nothing ships with fewer",
            "at best": f"{percent(made.oracle, 1)} of {what} served by a cut that knows every severity; any gate holds "
            f"{percent(made.least_held, 1)} or more",
            "fewer labels": "`gate set --label-above SHARE` labels only the highest scores, and nothing below ships",
        }
    )
    say("")
    print_table(
        ["cut ships", "wrong there", "labelled answers above", "labelled prompts"],
        [
            [
                percent(one.share, 0),
                percent(one.risk, 1),
                "-" if one.shipped is None else str(one.shipped),
                "never" if one.labels is None else str(one.labels),
            ]
            for one in made.cuts
        ],
        title=f"What shows each cut to be within the budget, with probability {percent(POWER, 0)}",
    )
    say("")
    print_table(
        ["labels", "calibrations that ship", "served", "90 % range", "calibrations over the budget"],
        [
            [
                str(one.labels),
                percent(one.opens, 0),
                percent(one.served, 1),
                f"{percent(one.low, 0)} to {percent(one.high, 0)}",
                percent(one.exceeds, 0),
            ]
            for one in made.ladder
        ],
        title="What labels buy, one a prompt",
    )


def print_until_sure(made: UntilSure) -> None:
    *steps, most = made.sizes
    say(
        f"Sampling until sure, for a budget of {percent(made.alpha)} on exposure risk: unit best, {made.prompts} past prompts.\n"
        f"With {most} answers each, {percent(made.all_served.mean, 1)} are served ({in_words(made.all_served)})."
    )
    say("")
    print_table(
        ["keep", "stop_above", "stop_below", "answers a prompt", "served", "same number for all"],
        [
            [
                percent(one.kept, 0),
                *("-" if level is None else f"{level:g}" for level in (one.rule.above, one.rule.below)),
                f"{one.answers.mean:.1f} ({one.answers.low:.1f} to {one.answers.high:.1f})",
                f"{percent(one.served.mean, 1)} ({in_words(one.served)})",
                f"{percent(one.fixed_served.mean, 1)} with {one.fixed}",
            ]
            for one in made.rules
        ],
        title=f"What to stop for after {', '.join(map(str, steps))} answers, of {most} at most",
    )
    say("")
    say(
        f"keep: how much of what {most} answers serve the rule is to keep.\n"
        "stop_above, stop_below: the rule, chosen on all prompts; with - twice it never stops early.\n"
        f"answers a prompt, served: what choosing a rule in this way gives on other prompts. In each of {made.halvings} random "
        "halvings one half chose a rule of its own, and the other calibrated and was measured; the mean, and the range of "
        f"{percent(made.level, 0)} of them.\n"
        "same number for all: what is served if every prompt gets the mean number of answers. Where that is as much, set it as "
        "answers, and no steps.\n"
        f"To use a rule, set its levels in [upstreams.GATE] with answers = {most} and steps = {steps}. Then `streamer gate set "
        "GATE --upstream GATE`\nfreezes it in the gate's settings and closes the gate, until it is calibrated on batches that the "
        "rule sampled."
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


def _basis(made: Plan) -> str:
    figures = (
        f"mean severity {made.response_severity:.2f}, AUC {_or_dash(made.auc)}, "
        f"correlation within a prompt {_or_dash(made.correlation)}"
    )
    runs = f"{made.repetitions} simulated calibrations, seed {made.seed}"
    return (
        f"A guess: {figures}; severities 0 or 1.\n"
        f"{made.prompts} made-up prompts, scored by agreement; {runs}.\n"
        "What your answers are like decides: label a few and plan again with --data."
    )


def _needs(made: Plan) -> dict[str, object]:
    from streamer.planning.plan import ENOUGH

    what, served = SERVED[made.unit], made.best.ship_rate
    steady = f"{percent((1 + made.level) / 2, 0)} of calibrations serve {percent(ENOUGH, 0)} or more of what unlimited labels would"
    if not made.oracle_ship_rate:
        why = "and more do not help: with unlimited labels nothing ships; find a better score, or raise the budget"
    elif made.labels_enough:
        why = f"{'enough' if made.labels_named else 'the fewest below'} that {steady}"
    else:
        why = (
            f"{'too few' if made.labels_named else 'the most below, too few'} for steady calibrations: more than "
            f"{percent((1 - made.level) / 2, 0)} serve less than {percent(ENOUGH, 0)} of what unlimited labels would"
        )
    fields: dict[str, object] = {
        "needed": f"{counted(made.least_groups, 'labelled prompt', 'labelled prompts')} or more: with fewer nothing can ship",
        "labels": f"{made.labels}, {why}",
        "smallest budget": f"{made.smallest_alpha:.3g} with {counted(made.labels, 'label', 'labels')}, one a prompt",
        "served": f"{percent(served.mean, 1)} of {what}; {in_words(served)} in {percent(made.level, 0)} of calibrations; "
        f"{percent(made.oracle_ship_rate, 1)} with unlimited labels",
        "held": _least_held(made),
    }
    if made.labels_per_served is not None and made.prompts_to_collect is not None:
        fields["labels an answer"] = (
            f"{made.labels_per_served:.2g} for each served one at audit probability {made.audit_probability:g}; "
            f"these labels come from {made.prompts_to_collect} prompts of traffic"
        )
    fields["labels that wait"] = (
        "labels of the newest answers are not used until these are older than 95 % of labels take: have so many more drawn"
    )
    return fields


def _print_predictions(title: str, made: Plan, rows: Sequence[Prediction], marked: int) -> None:
    print_table(
        ["labels", *_figure_heads(made), ""],
        [
            [
                one.split.labels,
                *_figures(one, marked=one.split.labels == marked),
                "planned" if one.split.labels == marked else "",
            ]
            for one in rows
        ],
        title=title,
    )


def _print_splits(made: Plan) -> None:
    from streamer.calibration.plan import smallest_alpha
    from streamer.calibration.registry import calibrator

    def remark(one: Prediction) -> str:
        if one is made.best or one.split == made.best.split:
            return "best"
        least = smallest_alpha(one.split.groups, made.attempts, calibrator(made.method))
        return f"closed: budgets from {least:.3g}" if least > made.alpha else ""

    print_table(
        ["prompts", "labels each", *_figure_heads(made), ""],
        [
            [
                one.split.groups,
                one.split.per_group,
                *_figures(one, marked=one.split == made.best.split),
                remark(one),
            ]
            for one in made.splits
        ],
        title=f"How to spend {made.labels} labels",
    )


def _print_floors(made: Plan) -> None:
    print_table(
        ["highest", "labels", *_figure_heads(made)[:-1], ""],
        [
            [
                percent(one.above, 0),
                one.labels,
                *_figures(one.prediction, marked=one is made.fewest)[:-1],
                "fewest" if one is made.fewest else "",
            ]
            for one in made.floors
        ],
        title=f"Labelling only the highest scores of {made.labels} drawn prompts",
    )
    say(
        "Nothing below them ships, so leave room above what is served. `gate set NAME\n"
        "--label-above SHARE` sets it."
    )


def _print_sizes(made: Plan) -> None:
    from rich.text import Text

    title = f"How many responses to sample, with {made.labels} labels, one a prompt"
    print_table(
        [
            "responses",
            "AUC",
            "all shipped",
            "served",
            f"{percent(made.level, 0)} range",
            "among served",
            "unlimited",
            "",
        ],
        [
            [
                one.responses,
                _or_dash(one.auc),
                Text(f"{percent(one.mean_severity, 1):>7}"),
                *(_figures(one.prediction, marked=one.responses == made.responses)[i] for i in (0, 1, 4)),
                Text(f"{percent(one.oracle_ship_rate, 1):>7}"),
                "planned" if one.responses == made.responses else "",
            ]
            for one in made.sizes
        ],
        title=title,
    )


def _figure_heads(made: Plan) -> list[str]:
    return [
        "served",
        f"{percent(made.level, 0)} range",
        "exposure",
        f"{percent(made.level, 0)} range",
        "among served",
    ]


def _figures(one: Prediction, *, marked: bool) -> list[object]:
    from rich.text import Text

    style = "bold green" if marked else ""
    selective = f"{percent(one.selective_risk, 1):>7}" if one.selective_risk is not None else "      -"
    cells = [
        f"{percent(one.ship_rate.mean, 1):>7}",
        in_words(one.ship_rate),
        f"{percent(one.exposure_risk.mean, 1):>7}",
        in_words(one.exposure_risk),
        selective,
    ]
    return [Text(cell, style=style) for cell in cells]


def _least_held(made: Plan) -> str:
    exposure, alpha = percent(made.mean_severity, 1), percent(made.alpha_per_attempt, 1)
    if made.least_held == 0:
        return (
            f"nothing need be held: if everything were served, exposure would be {exposure}, within {alpha}"
        )
    return (
        f"{percent(made.least_held, 1)} or more by any gate, however good its score: exposure of {exposure} must come down to "
        f"{alpha}; {percent(made.least_held_selective, 1)} or more for as small an error rate among shipped"
    )


def in_words(interval: Interval) -> str:
    """The two ends as one range of percentages, such as ``41 to 47 %``."""
    digits = 0 if interval.high >= 0.2 else 1
    return f"{100 * interval.low:.{digits}f} to {percent(interval.high, digits)}"


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
