"""A plan as people read it, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from streamer.cli.console import SERVED, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.calibration.prediction import Interval, Prediction
    from streamer.planning.plan import Plan


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
    from streamer.cli.console import print_fields, say

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


def _basis(made: Plan) -> str:
    from streamer.cli.console import counted

    figures = (
        f"mean severity {made.response_severity:.2f}, AUC {_or_dash(made.auc)}, "
        f"correlation within a prompt {_or_dash(made.correlation)}"
    )
    runs = f"{made.repetitions} simulated calibrations, seed {made.seed}"
    if made.source == "guess":
        return (
            f"A guess: {figures}; severities 0 or 1.\n"
            f"{made.prompts} made-up prompts, scored by agreement; {runs}.\n"
            "What your answers are like decides: label a few and plan again with --data."
        )
    left = f" ({made.left_out} more could not be used)" if made.left_out else ""
    return (
        f"Past data: {counted(made.prompts, 'prompt', 'prompts')}{left}, {figures};\n{runs}. "
        "Ranges hold what so few prompts leave open; future prompts are assumed to be like these."
    )


def _needs(made: Plan) -> dict[str, object]:
    from streamer.cli.console import counted
    from streamer.planning.plan import ENOUGH

    what, served = SERVED[made.unit], made.best.ship_rate
    steady = f"{percent((1 + made.level) / 2, 0)} of calibrations serve {percent(ENOUGH, 0)} or more of what unlimited labels would"
    if made.labels_enough:
        why = f"{'enough' if made.labels_named else 'the fewest below'} that {steady}"
    else:
        why = (
            f"{'too few' if made.labels_named else 'the most below, too few'} for steady calibrations: more than "
            f"{percent((1 - made.level) / 2, 0)} serve less than {percent(ENOUGH, 0)} of what unlimited labels would"
        )
    fields: dict[str, object] = {
        "needed": f"{counted(made.least_groups, 'labelled prompt', 'labelled prompts')} or more: "
        "G of them meet no budget below 1/(G + 1)",
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
    from streamer.cli.console import print_table

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
    from streamer.cli.console import print_table

    def remark(one: Prediction) -> str:
        if one is made.best or one.split == made.best.split:
            return "best"
        least = smallest_alpha(one.split.groups, made.attempts)
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
    from streamer.cli.console import print_table, say

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

    from streamer.cli.console import print_table

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
