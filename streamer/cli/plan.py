"""`streamer plan`: what a budget needs, and what it would give, before anyone labels."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from streamer.calibration.registry import every, promises, weighting_scheme, weighting_schemes
from streamer.cli.console import SERVED, percent
from streamer.cli.options import (
    ColumnOption,
    JsonOption,
    UnlabelledOption,
    promised_method,
    share,
    share_from,
)
from streamer.cli.plan_report import in_words as _range
from streamer.cli.plan_report import plan_json, print_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamer.clouds.cloud import Cloud
    from streamer.gates.settings import Unit
    from streamer.planning.prompts import Prompts, SampledBatches
    from streamer.planning.rungs import PlannedRungs, Rungs
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
            help="Labels that you can afford. Default: the fewest that keep calibrations stable.",
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
            parser=share_from(0),
            rich_help_panel=_GUESS,
            help="Mean severity of a response; where severities are 0 or 1, the share of bad ones. Default: 0.3.",
        ),
    ] = None,
    auc: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            parser=share_from(0),
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
    rungs: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|N",
            rich_help_panel=_GATE,
            help="Past answers of a dearer gate to the same prompts, or how many of the answers in --data a cheap one would "
            "decide about: find what to hand on, and how to split the budget. With --data.",
        ),
    ] = None,
    audit_probability: Annotated[
        float,
        typer.Option(
            metavar="P",
            parser=share_from(0),
            rich_help_panel=_GATE,
            help="Chance from 0 to 1 that a batch is drawn for labelling; shows the labels needed per served answer.",
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
    given = {
        "--labels": labels, "--promise": promise, "--responses": responses, "--severity": severity, "--auc": auc,
        "--correlation": correlation, "--attempts": attempts if attempts > 1 else None,
    }  # fmt: skip
    others = [name for name, value in given.items() if value is not None]
    if rungs is not None:
        _plan_rungs(past, rungs, [*others, *(["--steps"] if steps else [])], unit, alpha, seed, json=json)
        return
    if steps is not None:
        _plan_until_sure(past, steps, others, unit, alpha, seed, json=json)
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
        print_plan(made)


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


def _of_best_answers(option: str, data: "_Past | None", others: "Sequence[str]", unit: "Unit") -> "_Past":
    """Return the past answers, which a plan of this option needs, for the unit `best` and without these other options."""
    from streamer.errors import UsageError

    if data is None:
        whose = "the cheap gate's" if option == "--rungs" else "their"
        raise UsageError(f"{option} are planned on past answers: name {whose} file with --data")
    if unit != "best":
        raise UsageError(f"{option} go with the unit best, not {unit}: they look at the best score")
    if others:
        raise UsageError(f"{option} do not go with {', '.join(others)}")
    return data


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

    data = _of_best_answers("--steps", data, others, unit)
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
        f"To use a rule, set its levels in [upstreams.GATE] with answers = {most} and steps = {steps}. Then `streamer gate set "
        "GATE --upstream GATE`\nfreezes it in the gate's settings and closes the gate, until it is calibrated on batches that the "
        "rule sampled."
    )


def _plan_rungs(
    data: "_Past | None",
    rungs: str,
    others: "Sequence[str]",
    unit: "Unit",
    alpha: float,
    seed: int,
    *,
    json: bool,
) -> None:
    from streamer.cli.console import print_json, progress
    from streamer.errors import UsageError
    from streamer.planning.rungs import ROUNDS, first_answers, paired, plan_rungs

    data = _of_best_answers("--rungs", data, others, unit)
    clouds, encoder = _labelled(data)
    if rungs.isascii() and rungs.isdigit():
        cheap, dear, encoders = first_answers(clouds, int(rungs)), clouds, (encoder, encoder)
        if encoder is None and all(one.own_scores is not None for one in clouds):
            raise UsageError("scores of your own say nothing of fewer answers: name the dear gate's file")
    else:
        dear, dear_encoder = _labelled(data._replace(file=Path(rungs)))
        cheap, encoders = clouds, (encoder, dear_encoder or encoder)
    with progress("Scoring responses", 2) as advance:
        first, later, left_out = paired(cheap, dear, encoders=encoders, seed=seed, progress=advance)
    with progress("Trying splits", ROUNDS) as advance:
        made = plan_rungs(first, later, alpha=alpha, left_out=left_out, seed=seed, progress=advance)
    if json:
        print_json(asdict(made))
    else:
        _print_rungs(made)


def _print_rungs(made: "PlannedRungs") -> None:
    from streamer.cli.console import print_table, say

    left = f" ({made.left_out} more could not be used)" if made.left_out else ""
    say(
        f"A cheap gate and a dear one behind it, for a budget of {made.alpha:g} on exposure risk: unit best, {made.prompts} "
        f"past prompts{left},\n{made.answers[0]} and {made.answers[1]} answers.\n"
        f"The dear gate alone, asked about every prompt, serves {percent(made.dear_served.mean, 1)} "
        f"({_range(made.dear_served)}); the cheap one alone {percent(made.cheap_served.mean, 1)} "
        f"({_range(made.cheap_served)})."
    )
    say("")
    print_table(
        ["keep", "then_from", "label floor", "budgets", "handed on", "served", "exposure"],
        [
            [
                percent(one.kept, 0),
                *_levels(one),
                "-" if one.first is None or one.later is None else f"{one.first:.4g} / {one.later:.3g}",
                f"{percent(one.handed_on.mean, 1)} ({_range(one.handed_on)})",
                f"{percent(one.served.mean, 1)} ({_range(one.served)})",
                percent(one.exposure.mean, 1),
            ]
            for one in made.rungs
        ],
        title="What to hand on to the dear gate, and how to split the budget",
    )
    say("")
    say(
        "keep: how much of what the dear gate alone serves the split is to keep; with - none does, and every prompt is a dear "
        "call.\n"
        "then_from, label floor: what scores between them at the cheap gate, both included, is handed on. budgets: the cheap gate's / the dear one's, for "
        "a prompt that reaches it.\n"
        "handed on: prompts that cost a dear call. The cheap gate pays where its call costs less than what the others save.\n"
        f"handed on, served, exposure: on prompts that chose nothing. In each of {made.rounds} rounds a random third chose a "
        "split of its own, a\nthird calibrated, and a third was measured; the mean, and the range of "
        f"{percent(made.level, 0)} of them. The split and its budgets:\nchosen on half of the prompts, the share handed on "
        "counted on the others."
    )
    chosen = next((one for one in made.rungs if one.split is not None), None)
    if chosen is None or chosen.split is None or chosen.first is None or chosen.later is None:
        return
    say(
        f'To use the split that keeps {percent(chosen.kept, 0)}, set then = "NAME-dear" and then_from = '
        f"{chosen.split.start:g} in [upstreams.NAME], and\n"
        f"  streamer gate create NAME --upstream NAME --alpha {chosen.first:.4g} --label-floor {chosen.split.floor:g}\n"
        f"  streamer gate create NAME-dear --alpha {_floored(chosen.later)} --segment-by upstream"
    )


def _levels(one: "Rungs") -> tuple[str, str]:
    """Between which scores a split hands on."""
    return ("-", "-") if one.split is None else (f"{one.split.start:g}", f"{one.split.floor:g}")


def _floored(budget: float) -> str:
    """A budget with three digits, and no more than it is."""
    from math import floor, log10

    digits = 2 - floor(log10(budget))
    return f"{floor(budget * 10**digits) / 10**digits:g}"


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
