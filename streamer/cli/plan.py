"""`streamer plan`: what a budget needs, and what it would give, before anyone labels."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamer import wiring
from streamer.calibration.registry import offered, promises
from streamer.calibration.specification import Calibrator
from streamer.cli.console import note, print_json, progress, say, warn
from streamer.cli.options import (
    JsonOption,
    TableOptions,
    UnlabelledOption,
    in_groups,
    promised_method,
    share,
    share_from,
)
from streamer.cli.plan_report import (
    plan_json,
    print_all_signals,
    print_among_shipped,
    print_plan,
    print_rungs,
    print_until_sure,
)
from streamer.clouds.cloud import Cloud
from streamer.clouds.tables.answers import Reading
from streamer.clouds.unlabelled import check_unlabelled, counts, filled, unlabelled_note
from streamer.errors import UsageError
from streamer.gates.declared import Unit

if TYPE_CHECKING:
    from streamer.planning.all_signals import SignalsPlan
    from streamer.planning.plan import Budget, Simulation
    from streamer.planning.prompts import Prompts, SampledBatches
    from streamer.scoring.encoders.encoder import CachedEncoder


@dataclass(frozen=True, slots=True)
class GuessOptions:
    """Your guess about the answers."""

    severity: Annotated[
        float | None,
        typer.Option(
            metavar="MEAN",
            parser=share_from(0),
            help="Mean severity of a response; where severities are 0 or 1, the share of bad ones. Default: 0.3.",
        ),
    ] = None
    auc: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            parser=share_from(0),
            help="Chance that a fine answer scores above a bad one, of any prompts: 0.5 is useless, 1 is perfect. "
            "Default: 0.8.",
        ),
    ] = None
    correlation: Annotated[
        float | None,
        typer.Option(
            metavar="R",
            help="How alike the answers to one prompt are in severity: 0 not at all, near 1 all fine or all bad. "
            "Default: 0.5.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class GateOptions:
    """The gate."""

    unit: Annotated[
        Literal["best", "response", "batch"],
        typer.Option(
            help="What ships: the best response of a batch, each response separately, or the whole batch.",
        ),
    ] = "best"
    promise: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(promises()),
            help="What the budget bounds: the harm per prompt, or the error rate among shipped answers, with high "
            "probability or on average. The plan then says which labels that needs.",
        ),
    ] = None
    method: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(offered()),
            help="Calibrator; what each promises is in docs/guarantees.md. Default: mean, and beside it full, a new gate's, where --data "
            "has texts and no scores of its own, and the unit is best or batch.",
        ),
    ] = None
    attempts: Annotated[
        int,
        typer.Option(
            metavar="R",
            min=1,
            max=1000,
            help="Attempts per prompt when held batches are regenerated; each is calibrated at alpha / R.",
        ),
    ] = 1
    steps: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="Numbers of answers at which sampling may stop, like 3,6,12,20: find what to stop for. With --data.",
        ),
    ] = None
    rungs: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|N",
            help="Past answers of a more expensive gate to the same prompts, or how many of the answers in --data a cheap one would "
            "decide about: find what to hand on, and how to split the budget. With --data.",
        ),
    ] = None
    audit_probability: Annotated[
        float,
        typer.Option(
            metavar="P",
            parser=share_from(0),
            help="Chance from 0 to 1 that a batch is drawn for labelling; shows the labels needed per served answer.",
        ),
    ] = 0.05


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """The simulation."""

    repetitions: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=100,
            max=100_000,
            help="Simulated calibrations behind each figure.",
        ),
    ] = 1000
    seed: Annotated[
        int,
        typer.Option(
            metavar="S",
            min=0,
            max=2**63 - 1,
            help="Seed; the same seed gives the same plan.",
        ),
    ] = 0


@in_groups
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
    unlabelled: UnlabelledOption = "worst",
    *,
    tables: TableOptions,
    guess: GuessOptions,
    responses: Annotated[
        int | None,
        typer.Option(
            metavar="n",
            help="Responses sampled for each prompt, at which the score is as good as you say. "
            "Default: 10; with --data: what most clouds have.",
        ),
    ] = None,
    gate: GateOptions,
    simulation: SimulationOptions,
    json: JsonOption = False,
) -> None:
    """Plan a budget before anyone labels: how many labels it needs, how to spend them, how many responses to sample.

    Calibrations are simulated on a guess of your answers, or on past ones. A plan promises nothing: only a threshold
    calibrated on labels does.
    """
    from streamer.calibration.registry import calibrator
    from streamer.planning.plan import Budget, Simulation

    past = None if data is None else _Past(data, tables.reading(), unlabelled)
    unit, steps, seed, guessed = gate.unit, gate.steps, simulation.seed, asdict(guess)
    given = {
        "--labels": labels, "--promise": gate.promise, "--responses": responses,
        **{f"--{name}": value for name, value in guessed.items()},
        "--attempts": gate.attempts if gate.attempts > 1 else None,
        "--method": gate.method,
    }  # fmt: skip
    others = [name for name, value in given.items() if value is not None]
    if gate.rungs is not None:
        best = _of_best_answers("--rungs", past, [*others, *(["--steps"] if steps else [])], unit)
        _plan_rungs(best, gate.rungs, alpha, seed, json=json)
        return
    if steps is not None:
        _plan_until_sure(_of_best_answers("--steps", past, others, unit), steps, alpha, seed, json=json)
        return
    chosen = calibrator(_method(gate.promise, gate.method))
    runs = Simulation(repetitions=simulation.repetitions, seed=seed)
    if chosen.risk == "selective" and gate.attempts > 1:
        asked = f"--method {chosen.name}" if gate.promise is None else f"--promise {gate.promise}"
        raise UsageError(f"--attempts must be 1 with {asked}: attempts change what ships")
    if chosen.of_signals:
        _check_of_signals(unit, guessed, responses)
        found = _plan_all_signals(past, unit, alpha, gate.attempts, labels, runs)
        if json:
            print_json(asdict(found) | {"unit": unit, "method": chosen.name})
        else:
            print_all_signals(found, unit)
        return
    budget = Budget(alpha, labels, gate.attempts, chosen) if chosen.risk == "exposure" else None
    prompts = _guessed(guessed, responses, seed) if past is None else _past(past, guessed, responses, seed)
    if budget is None:
        _plan_among_shipped(prompts, unit, chosen, alpha, labels, runs, json=json)
    else:
        beside = None
        if gate.method is gate.promise is None and past is not None and unit != "response" and past.has_texts:
            beside = _plan_all_signals(past, unit, alpha, gate.attempts, labels, runs)
        _plan_budget(prompts, budget, unit, gate.audit_probability, runs, beside, json=json)


def _method(promise: str | None, method: str | None) -> str:
    """Return the name of the method that is asked for, by itself or by its promise."""
    if method is not None and method not in offered():
        raise UsageError(f"--method must be one of {', '.join(offered())}, not {method!r}")
    return method or "mean" if promise is None else promised_method(promise, method)


def _check_of_signals(unit: "Unit", guessed: "Mapping[str, float | None]", responses: int | None) -> None:
    """Refuse what a plan with all signals cannot look at."""
    if unit == "response":
        raise UsageError("--method full goes with the units best and batch, not response")
    given = [name for name, value in {**guessed, "responses": responses}.items() if value is not None]
    if given:
        raise UsageError(
            f"--{given[0]} goes with --method mean: what all signals serve is measured on past answers (--data), and not guessed"
        )


def _plan_all_signals(
    past: "_Past | None", unit: "Unit", alpha: float, attempts: int, labels: int | None, runs: "Simulation"
) -> "SignalsPlan":
    import numpy as np

    from streamer.clouds.offline import calibration_groups
    from streamer.frames.answers import signals_of
    from streamer.planning.all_signals import PastPrompts, plan_all_signals
    from streamer.research.experiments.score_cache import chosen_answers

    prompts = None
    if past is not None:
        listed = signals_of(past.clouds, past.reading.signals, past.reading.models)
        chosen = chosen_answers(past.clouds, past.encoder(), listed, unit)
        groups = calibration_groups(chosen, unit, drop_unlabelled=past.unlabelled == "drop")
        rows = {f"{one.cloud.batch_id}#1": one.row for one in chosen}
        prompts = PastPrompts(
            np.array([rows[group.id] for group in groups], dtype=np.float32),
            np.array([float(group.scores[0]) for group in groups]),
            np.array([float(group.severities.mean()) for group in groups]),
            held=sum(one.row is None for one in chosen),
        )
    try:
        with progress("Simulating calibrations with all signals", runs.repetitions) as advance:
            return plan_all_signals(
                prompts, alpha=alpha, attempts=attempts, labels=labels, simulation=runs, progress=advance
            )
    except ValueError as error:
        raise UsageError(str(error)) from None


def _plan_budget(
    prompts: "Prompts",
    budget: "Budget",
    unit: "Unit",
    audit_probability: float,
    runs: "Simulation",
    beside: "SignalsPlan | None",
    *,
    json: bool,
) -> None:
    from streamer.planning.plan import make_plan, rounds

    with progress("Simulating calibrations", rounds(prompts, budget, unit, runs)) as advance:
        made = make_plan(
            prompts,
            budget,
            unit=unit,
            audit_probability=audit_probability,
            simulation=runs,
            progress=lambda done, _of: advance(done),
        )
    if json:
        print_json(plan_json(made) | {"all_signals": None if beside is None else asdict(beside)})
        return
    print_plan(made)
    if beside is not None:
        say("")
        print_all_signals(beside, unit)


def _plan_among_shipped(
    prompts: "Prompts",
    unit: "Unit",
    method: "Calibrator",
    alpha: float,
    labels: int | None,
    runs: "Simulation",
    *,
    json: bool,
) -> None:
    from streamer.planning.among_shipped import LABELS, plan_among_shipped

    made = plan_among_shipped(
        prompts.by_size[prompts.responses].population(unit),
        alpha=alpha,
        calibrator=method,
        labels=LABELS if labels is None else tuple(sorted({*LABELS, labels})),
        repetitions=runs.repetitions,
        seed=runs.seed,
    )
    if json:
        print_json(asdict(made) | {"unit": unit, "source": prompts.source, "responses": prompts.responses})
    else:
        print_among_shipped(made, unit, prompts.source)


def _of_best_answers(option: str, data: "_Past | None", others: "Sequence[str]", unit: "Unit") -> "_Past":
    """Return the past answers, which a plan of this option needs, for the unit `best` and without these other options."""
    if data is None:
        whose = "the cheap gate's" if option == "--rungs" else "their"
        raise UsageError(f"{option} are planned on past answers: name {whose} file with --data")
    if unit != "best":
        raise UsageError(f"{option} go with the unit best, not {unit}: they look at the best score")
    if others:
        raise UsageError(f"{option} do not go with {', '.join(others)}")
    return data


def _plan_until_sure(data: "_Past", steps: str, alpha: float, seed: int, *, json: bool) -> None:
    from streamer.planning.until_sure import HALVINGS, ORDERS, plan_until_sure

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
        print_until_sure(made)


def _plan_rungs(data: "_Past", rungs: str, alpha: float, seed: int, *, json: bool) -> None:
    from streamer.planning.rungs import ROUNDS, first_answers, paired, plan_rungs

    clouds, encoder = data.clouds, data.encoder_of_scores()
    if rungs.isascii() and rungs.isdigit():
        cheap, dear, encoders = first_answers(clouds, int(rungs)), clouds, (encoder, encoder)
        if encoder is None and all(one.own_scores is not None for one in clouds):
            raise UsageError(
                "scores of your own say nothing of fewer answers: name the expensive gate's file"
            )
    else:
        expensive = _Past(Path(rungs), data.reading, data.unlabelled)
        dear, dear_encoder = expensive.clouds, expensive.encoder_of_scores()
        cheap, encoders = clouds, (encoder, dear_encoder or encoder)
    with progress("Scoring responses", 2) as advance:
        first, later, left_out = paired(cheap, dear, encoders=encoders, seed=seed, progress=advance)
    with progress("Trying splits", ROUNDS) as advance:
        made = plan_rungs(first, later, alpha=alpha, left_out=left_out, seed=seed, progress=advance)
    if json:
        print_json(asdict(made))
    else:
        print_rungs(made)


def _guessed(guessed: dict[str, float | None], responses: int | None, seed: int) -> "Prompts":
    from streamer.planning.guess import Guess
    from streamer.planning.prompts import guessed_prompts

    stated: dict[str, Any] = {name: value for name, value in guessed.items() if value is not None}
    if responses is not None:
        stated["responses"] = responses
    return guessed_prompts(Guess(**stated), seed=seed)


def _past(data: "_Past", guessed: dict[str, float | None], responses: int | None, seed: int) -> "Prompts":
    from streamer.planning.prompts import past_prompts

    for name, value in guessed.items():
        if value is not None:
            raise UsageError(f"--{name} is a guess, and --data measures it: leave one of them out")
    if responses is not None and responses < 2:
        raise UsageError(f"--responses must be at least 2, not {responses}: agreement needs others")
    clouds, encoder = data.clouds, data.encoder_of_scores()
    with progress("Scoring responses", len(clouds)) as advance:
        return past_prompts(clouds, responses=responses, encoder=encoder, seed=seed, progress=advance)


def _past_orders(
    data: "_Past", sizes: "Sequence[int]", orders: int, seed: int
) -> "list[Mapping[int, SampledBatches]]":
    from streamer.planning.prompts import past_prompts

    clouds, encoder = data.clouds, data.encoder_of_scores()
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


@dataclass(frozen=True)
class _Past:
    """Past answers, and how they are to be read: once, for standard input has them once."""

    file: Path
    reading: "Reading"
    unlabelled: str

    @cached_property
    def clouds(self) -> "list[Cloud]":
        """The prompts; an answer without a severity counts as 1, or has none, as the option says."""
        from streamer.clouds.cloud import severity_kind
        from streamer.clouds.cloud_files import read_clouds

        clouds = list(read_clouds(self.file, self.reading, report=note))
        severity_kind(clouds)
        choice = check_unlabelled(self.unlabelled)
        if missing := unlabelled_note(*counts(clouds), choice):
            warn(missing)
        return [filled(cloud) for cloud in clouds] if choice == "worst" else clouds

    @property
    def has_texts(self) -> bool:
        """Whether texts are what there is to decide by: they are known, and have no scores of their own."""
        from streamer.clouds.cloud import NOT_KEPT

        return all(cloud.own_scores is None and NOT_KEPT not in cloud.texts for cloud in self.clouds)

    def encoder_of_scores(self) -> "CachedEncoder | None":
        """What embeds texts that have no scores of their own; None: nothing need be embedded."""
        return None if all(cloud.own_scores is not None for cloud in self.clouds) else self.encoder()

    def encoder(self) -> "CachedEncoder | None":
        """What embeds texts; None: the answers bring embeddings."""
        return None if all(cloud.responses[0].embedding for cloud in self.clouds) else self._configured

    @cached_property
    def _configured(self) -> "CachedEncoder":
        encoder = wiring.encoder(wiring.load_settings())
        if encoder is None:
            raise UsageError(
                "past responses are scored by their embeddings, and encoder.name is none: set one"
            )
        return encoder
