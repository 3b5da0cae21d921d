"""`streamer plan`: what a budget needs, and what it would give, before anyone labels."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from streamer.calibration.registry import every, promises, weighting_scheme, weighting_schemes
from streamer.cli.console import SERVED, percent
from streamer.cli.options import ColumnOption, JsonOption, UnlabelledOption, promised_method, share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamer.calibration.prediction import Interval, Prediction
    from streamer.clouds.cloud import Cloud
    from streamer.gates.settings import Unit
    from streamer.planning.plan import Plan
    from streamer.planning.prompts import Prompts, SampledBatches
    from streamer.planning.until_sure import UntilSure
    from streamer.scoring.encoders.encoder import CachedEncoder

_GUESS, _GATE, _SIMULATION = "Your guess about the answers", "The gate", "The simulation"


def plan(
    alpha: Annotated[
        float,
        typer.Option(metavar="A", parser=share, help="Budget, between 0 and 1: on what --promise says."),
    ],
    labels: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Labels that you can afford; default: the fewest that keep calibrations stable.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Past answers with severities in place of a guess: response clouds (.jsonl), or a table in CSV, JSON Lines or "
            "Parquet.",
        ),
    ] = None,
    column: ColumnOption = None,
    unlabelled: UnlabelledOption = "worst",
    severity: Annotated[
        float | None,
        typer.Option(
            metavar="MEAN",
            rich_help_panel=_GUESS,
            help="Mean severity of a response; where severities are 0 or 1, the share of bad ones. Default: 0.3.",
        ),
    ] = None,
    auc: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            rich_help_panel=_GUESS,
            help="Chance that a fine answer scores above a bad one, of any prompts: 0.5 is useless, 1 is perfect. "
            "Default: 0.8.",
        ),
    ] = None,
    correlation: Annotated[
        float | None,
        typer.Option(
            metavar="R",
            rich_help_panel=_GUESS,
            help="How alike the answers to one prompt are in severity: 0 not at all, near 1 all fine or all bad. "
            "Default: 0.5.",
        ),
    ] = None,
    responses: Annotated[
        int | None,
        typer.Option(
            metavar="n",
            help="Responses sampled for each prompt, at which the score is as good as you say. "
            "Default: 10; with --data: what most clouds have.",
        ),
    ] = None,
    unit: Annotated[
        Literal["best", "response", "batch"],
        typer.Option(
            rich_help_panel=_GATE,
            help="What ships: the best response of a batch, each response separately, or the whole batch.",
        ),
    ] = "best",
    promise: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(promises()),
            rich_help_panel=_GATE,
            help="What the budget bounds: the harm per prompt, or the error rate among shipped answers, with high "
            "probability or on average. The plan then says which labels that needs.",
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="|".join(weighting_schemes()),
            rich_help_panel=_GATE,
            help="Calibrator: a weighting scheme.",
        ),
    ] = "mean",
    attempts: Annotated[
        int,
        typer.Option(
            metavar="R",
            min=1,
            max=1000,
            rich_help_panel=_GATE,
            help="Attempts per prompt when held batches are regenerated; each is calibrated at alpha / R.",
        ),
    ] = 1,
    steps: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            rich_help_panel=_GATE,
            help="Numbers of answers at which sampling may stop, like 3,6,12,20: find what to stop for. With --data.",
        ),
    ] = None,
    audit_probability: Annotated[
        float,
        typer.Option(
            metavar="P",
            min=0,
            max=1,
            rich_help_panel=_GATE,
            help="Chance that a batch is drawn for labelling; shows the labels needed per served answer.",
        ),
    ] = 0.05,
    repetitions: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=100,
            max=100_000,
            rich_help_panel=_SIMULATION,
            help="Simulated calibrations behind each figure.",
        ),
    ] = 1000,
    seed: Annotated[
        int,
        typer.Option(
            metavar="S",
            min=0,
            max=2**63 - 1,
            rich_help_panel=_SIMULATION,
            help="Seed; the same seed gives the same plan.",
        ),
    ] = 0,
    json: JsonOption = False,
) -> None:
    """Plan a budget before anyone labels: how many labels it needs, how to spend them, how many responses to sample.

    Calibrations are simulated on a guess of your answers, or on past ones. A plan promises nothing: only a threshold
    calibrated on labels does.
    """
    from streamer.cli.console import print_json, progress
    from streamer.errors import UsageError
    from streamer.planning.plan import Budget, Simulation, make_plan

    past = None if data is None else _Past(data, column or [], unlabelled)
    if steps is not None:
        given = {
            "--labels": labels, "--promise": promise, "--responses": responses, "--severity": severity, "--auc": auc,
            "--correlation": correlation, "--attempts": attempts if attempts > 1 else None,
        }  # fmt: skip
        _plan_until_sure(
            past,
            steps,
            [name for name, value in given.items() if value is not None],
            unit,
            alpha,
            seed,
            json=json,
        )
        return
    among = _among_shipped(promise, method, attempts)
    guessed = {"severity": severity, "auc": auc, "correlation": correlation}
    if among is not None:
        prompts = (
            _guessed(guessed, responses, seed) if past is None else _past(past, guessed, responses, seed)
        )
        _plan_among_shipped(prompts, unit, among, alpha, labels, repetitions, seed, json=json)
        return
    budget = Budget(alpha, labels, attempts)
    if method not in weighting_schemes():
        raise UsageError(f"--method must be one of {', '.join(weighting_schemes())}, not {method!r}")
    prompts = _guessed(guessed, responses, seed) if past is None else _past(past, guessed, responses, seed)
    rounds = repetitions * (2 + (unit != "batch") + len(prompts.by_size))
    with progress("Simulating calibrations", rounds) as advance:
        made = make_plan(
            prompts,
            budget,
            unit=unit,
            scheme=weighting_scheme(method),
            audit_probability=audit_probability,
            simulation=Simulation(repetitions=repetitions, seed=seed),
            progress=lambda done, _of: advance(done),
        )
    if json:
        print_json(plan_json(made))
    else:
        _print_plan(made)


def _among_shipped(promise: str | None, method: str, attempts: int) -> str | None:
    """Return the method of a promise on the error rate among shipped answers; None for a promise per prompt."""
    from streamer.errors import UsageError

    if promise is None:
        return None
    chosen = promised_method(promise, None if method == "mean" else method)
    if every()[chosen].risk != "selective":
        return None
    if attempts > 1:
        raise UsageError(f"--attempts must be 1 with --promise {promise}: attempts change what ships")
    return chosen


def _plan_among_shipped(
    prompts: "Prompts",
    unit: "Unit",
    method: str,
    alpha: float,
    labels: int | None,
    repetitions: int,
    seed: int,
    *,
    json: bool,
) -> None:
    from streamer.cli.console import print_fields, print_json, print_table, say
    from streamer.planning.among_shipped import LABELS, POWER, plan_among_shipped

    population = prompts.by_size[prompts.responses].population(unit)
    wanted = LABELS if labels is None else tuple(sorted({*LABELS, labels}))
    made = plan_among_shipped(
        population, alpha=alpha, method=method, labels=wanted, repetitions=repetitions, seed=seed
    )
    if json:
        print_json(asdict(made) | {"unit": unit, "source": prompts.source, "responses": prompts.responses})
        return
    sure = (
        f" with probability {1 - made.delta:g}"
        if method == "selective"
        else " on average (docs/guarantees.md says of what)"
    )
    what = SERVED[unit]
    source = "a guess" if prompts.source == "guess" else "past answers"
    say(
        f"Plan for at most {percent(alpha, 1)} wrong among what ships{sure}: unit {unit}, method {method}, on {source}: "
        f"{made.prompts} prompts, {percent(made.mean_severity, 1)} wrong if everything ships."
    )
    needed = f"{made.needed} labelled prompts" if made.needed else f"more than {wanted[-1]} labelled prompts"
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


def _plan_until_sure(
    data: "_Past | None",
    steps: str,
    others: "Sequence[str]",
    unit: "Unit",
    alpha: float,
    seed: int,
    *,
    json: bool,
) -> None:
    from streamer.cli.console import print_json, progress
    from streamer.errors import UsageError
    from streamer.planning.until_sure import HALVINGS, ORDERS, plan_until_sure

    if data is None:
        raise UsageError("--steps are found on past answers: name their file with --data")
    if unit != "best":
        raise UsageError(f"--steps go with the unit best, not {unit}: they look at the best score")
    if others:
        raise UsageError(f"--steps do not go with {', '.join(others)}")
    try:
        sizes = tuple(int(one) for one in steps.split(","))
    except ValueError:
        raise UsageError(f"--steps are numbers of answers like 3,6,12,20, not {steps!r}") from None
    if len(sizes) < 2 or sizes[0] < 2 or list(sizes) != sorted(set(sizes)):
        raise UsageError(f"--steps are two rising numbers of answers or more, from 2 on, not {steps!r}")
    orders = _past_orders(data, sizes, ORDERS, seed)
    with progress("Trying rules", HALVINGS) as advance:
        made = plan_until_sure(orders, sizes, alpha=alpha, seed=seed, progress=advance)
    if json:
        print_json(asdict(made))
    else:
        _print_until_sure(made)


def _print_until_sure(made: "UntilSure") -> None:
    from streamer.cli.console import print_table, say

    *steps, most = made.sizes
    say(
        f"Sampling until sure, for a budget of {made.alpha:g} on exposure risk: unit best, {made.prompts} past prompts.\n"
        f"With {most} answers each, {percent(made.all_served.mean, 1)} are served ({_range(made.all_served)})."
    )
    say("")
    print_table(
        ["keep", "stop_above", "stop_below", "answers a prompt", "served", "same number for all"],
        [
            [
                percent(one.kept, 0),
                *("-" if level is None else f"{level:g}" for level in (one.rule.above, one.rule.below)),
                f"{one.answers.mean:.1f} ({one.answers.low:.1f} to {one.answers.high:.1f})",
                f"{percent(one.served.mean, 1)} ({_range(one.served)})",
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
        f"To use a rule, set its levels in [upstreams.GATE] with answers = {most} and steps = {steps}, then calibrate on "
        "batches that it sampled."
    )


def _guessed(guessed: dict[str, float | None], responses: int | None, seed: int) -> "Prompts":
    from streamer.planning.guess import Guess
    from streamer.planning.prompts import guessed_prompts

    stated: dict[str, Any] = {name: value for name, value in guessed.items() if value is not None}
    if responses is not None:
        stated["responses"] = responses
    return guessed_prompts(Guess(**stated), seed=seed)


def _past(data: "_Past", guessed: dict[str, float | None], responses: int | None, seed: int) -> "Prompts":
    from streamer.cli.console import progress
    from streamer.errors import UsageError
    from streamer.planning.prompts import past_prompts

    for name, value in guessed.items():
        if value is not None:
            raise UsageError(f"--{name} is a guess, and --data measures it: leave one of them out")
    if responses is not None and responses < 2:
        raise UsageError(f"--responses must be at least 2, not {responses}: agreement needs others")
    clouds, encoder = _labelled(data)
    with progress("Scoring responses", len(clouds)) as advance:
        return past_prompts(clouds, responses=responses, encoder=encoder, seed=seed, progress=advance)


def _past_orders(
    data: "_Past", sizes: "Sequence[int]", orders: int, seed: int
) -> "list[Mapping[int, SampledBatches]]":
    from streamer.cli.console import progress
    from streamer.planning.prompts import past_prompts

    clouds, encoder = _labelled(data)
    found: list[Mapping[int, SampledBatches]] = []
    with progress("Scoring responses", orders) as advance:
        for order in range(orders):
            prompts = past_prompts(
                clouds,
                responses=sizes[-1],
                sizes=range(2, sizes[-1] + 1),
                encoder=encoder,
                seed=seed + order,
            )
            found.append(prompts.by_size)
            advance(order + 1)
    return found


class _Past(NamedTuple):
    """Past answers, and how they are to be read."""

    file: Path
    column: list[str]
    unlabelled: str


def _labelled(data: _Past) -> "tuple[list[Cloud], CachedEncoder | None]":
    from streamer import wiring
    from streamer.cli.console import note, warn
    from streamer.clouds.cloud import severity_kind
    from streamer.clouds.cloud_files import read_clouds
    from streamer.clouds.tables.columns import parse_mapping
    from streamer.clouds.unlabelled import check_unlabelled, counts, filled, unlabelled_note
    from streamer.errors import UsageError
    from streamer.settings.settings import load_settings

    clouds = list(read_clouds(data.file, parse_mapping(data.column), report=note))
    severity_kind(clouds)
    choice = check_unlabelled(data.unlabelled)
    if missing := unlabelled_note(*counts(clouds), choice):
        warn(missing)
    if choice == "worst":
        clouds = [filled(cloud) for cloud in clouds]
    if all(c.own_scores is not None for c in clouds) or all(c.responses[0].embedding for c in clouds):
        return clouds, None
    encoder = wiring.encoder(load_settings())
    if encoder is None:
        raise UsageError("past responses are scored by their embeddings, and encoder.name is none: set one")
    return clouds, encoder


def plan_json(made: "Plan") -> dict[str, Any]:
    """Return a plan as JSON values; null where a figure is not defined."""

    def prediction(one: "Prediction") -> dict[str, Any]:
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


def _print_plan(made: "Plan") -> None:
    from streamer.cli.console import print_fields, say

    each = f" / {made.attempts} attempts" if made.attempts > 1 else ""
    say(
        f"Plan for a budget of {made.alpha:g}{each} on exposure risk: unit {made.unit}, method {made.method}, "
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


def _basis(made: "Plan") -> str:
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


def _needs(made: "Plan") -> dict[str, object]:
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
        "served": f"{percent(served.mean, 1)} of {what}; {_range(served)} in {percent(made.level, 0)} of calibrations; "
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


def _print_predictions(title: str, made: "Plan", rows: "Sequence[Prediction]", marked: int) -> None:
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


def _print_splits(made: "Plan") -> None:
    from streamer.calibration.plan import smallest_alpha
    from streamer.cli.console import print_table

    def remark(one: "Prediction") -> str:
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


def _print_floors(made: "Plan") -> None:
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


def _print_sizes(made: "Plan") -> None:
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


def _figure_heads(made: "Plan") -> list[str]:
    return [
        "served",
        f"{percent(made.level, 0)} range",
        "exposure",
        f"{percent(made.level, 0)} range",
        "among served",
    ]


def _figures(one: "Prediction", *, marked: bool) -> list[object]:
    from rich.text import Text

    style = "bold green" if marked else ""
    selective = f"{percent(one.selective_risk, 1):>7}" if one.selective_risk is not None else "      -"
    cells = [
        f"{percent(one.ship_rate.mean, 1):>7}",
        _range(one.ship_rate),
        f"{percent(one.exposure_risk.mean, 1):>7}",
        _range(one.exposure_risk),
        selective,
    ]
    return [Text(cell, style=style) for cell in cells]


def _least_held(made: "Plan") -> str:
    exposure, alpha = percent(made.mean_severity, 1), percent(made.alpha_per_attempt, 1)
    if made.least_held == 0:
        return (
            f"nothing need be held: if everything were served, exposure would be {exposure}, within {alpha}"
        )
    return (
        f"{percent(made.least_held, 1)} or more by any gate, however good its score: exposure of {exposure} must come down to "
        f"{alpha}; {percent(made.least_held_selective, 1)} or more for as small a severity among the served"
    )


def _range(interval: "Interval") -> str:
    digits = 0 if interval.high >= 0.2 else 1
    return f"{100 * interval.low:.{digits}f} to {percent(interval.high, digits)}"


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
