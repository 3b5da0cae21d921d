"""`streamer plan`: what a budget needs, and what it would give, before anyone labels."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from streamer import wiring
from streamer.calibration.arguments import check_alpha
from streamer.calibration.calibrators.full import Full
from streamer.calibration.plan import Interval
from streamer.calibration.registry import calibrator, offered, promises
from streamer.calibration.specification import Calibrator
from streamer.cli.console import (
    counted,
    note,
    percent,
    print_fields,
    print_json,
    print_table,
    progress,
    say,
    warn,
)
from streamer.cli.evaluate_claims import ScoredClaims, print_plan
from streamer.cli.options import (
    JsonOption,
    TableOptions,
    UnlabelledOption,
    in_groups,
    option,
    promised_method,
    share,
    share_from,
)
from streamer.clouds.cloud import Cloud, severity_kind
from streamer.clouds.cloud_files import read_clouds
from streamer.clouds.evaluated_claims import has_claims, planned_claims
from streamer.clouds.line_files import shown_name
from streamer.clouds.tables.answers import Reading
from streamer.clouds.unlabelled import check_unlabelled, counts, filled, unlabelled_note
from streamer.errors import UsageError
from streamer.frames.answers import Read
from streamer.frames.results import spread_text
from streamer.gates.declared import Unit
from streamer.planning.past import PastPlan, Tried, plan_past
from streamer.planning.prompts import Guess, fewer_answers, guessed_answers
from streamer.planning.rungs import ROUNDS, PlannedRungs, Rungs, first_answers, paired, plan_rungs
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.scoring.registry import SUPPORT
from streamer.scoring.unread_answers import HELPS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, slots=True)
class GuessOptions:
    """Your guess about the answers."""

    severity: float | None = option(
        "MEAN",
        "Mean severity of a response; where severities are 0 or 1, the share of bad ones. Default: 0.3.",
        parser=share_from(0),
    )
    auc: float | None = option(
        "P",
        "Chance that a fine answer scores above a bad one, of any prompts: 0.5 is useless, 1 is perfect. "
        "Default: 0.8.",
        parser=share_from(0),
    )
    correlation: float | None = option(
        "R",
        "How alike the answers to one prompt are in severity: 0 not at all, near 1 all fine or all bad. "
        "Default: 0.5.",
    )


@dataclass(frozen=True, slots=True)
class GateOptions:
    """The gate."""

    unit: Unit | None = option(
        None,
        "What ships: the best response of a batch, each response separately, the whole "
        "batch, or of a long answer what is supported. Default: claim for past answers with "
        "claims, else best.",
    )
    promise: str | None = option(
        "|".join(promises()),
        "What the budget bounds: the harm per prompt, or the error rate among shipped answers, with high "
        "probability or on average. The plan then says which labels that needs.",
    )
    method: str | None = option(
        "|".join(offered()),
        "Calibrator; what each promises is in docs/guarantees.md. Default: mean on a guess; with --data that "
        "of a new gate, as in `streamer try`.",
    )
    attempts: int = option(
        "R",
        "Attempts per prompt when held batches are regenerated; each is calibrated at alpha / R.",
        1,
        min=1,
        max=1000,
    )
    rungs: str | None = option(
        "FILE|N",
        "Past answers of a more expensive gate to the same prompts, or how many of the answers in --data a cheap one would "
        "decide about: find what to hand on, and how to split the budget. With --data.",
    )


@in_groups
def plan(
    alpha: float = option("A", "Budget, between 0 and 1: on what --promise says.", ..., parser=share),
    labels: int | None = option(
        "N", "Labels that you can afford. Default: the fewest that keep calibrations stable."
    ),
    data: Path | None = option(
        "FILE",
        "Past answers with severities in place of a guess: response clouds (.jsonl), or a table in CSV, JSON Lines or "
        "Parquet.",
    ),
    unlabelled: UnlabelledOption = "worst",
    *,
    tables: TableOptions,
    guess: GuessOptions,
    responses: int | None = option(
        "n",
        "Responses sampled for each prompt, at which the score is as good as you say. "
        "Default: 10; with --data: what most clouds have.",
    ),
    gate: GateOptions,
    claims: ScoredClaims,
    seed: int = option("S", "Seed of the first halves, and of a guess.", 0, min=0, max=2**62),
    json: JsonOption = False,
) -> None:
    """Plan a budget before anyone labels: how many labels it needs, how to spend them, how many responses to sample.

    Numbers of labels are tried on the halves of `streamer try`: of past answers (--data), or of 2,000 prompts that are made from your
    guess. A plan promises nothing: only a threshold calibrated on labels does.
    """
    try:
        check_alpha(alpha)
    except ValueError as error:
        raise UsageError(str(error)) from None
    past = None if data is None else _Past(data, tables.reading(), unlabelled)
    asked = _Asked(alpha, labels, seed, gate, claims)
    guessed = asdict(guess)
    given = {
        "--labels": labels, "--promise": gate.promise, "--responses": responses,
        **{f"--{name}": value for name, value in guessed.items()},
        "--attempts": gate.attempts if gate.attempts > 1 else None,
        "--method": gate.method,
    }  # fmt: skip
    others = [name for name, value in given.items() if value is not None]
    if gate.unit == "claim":
        _plan_claims(past, others, asked, json=json)
        return
    unit = gate.unit or "best"
    if gate.rungs is not None:
        _plan_rungs(_of_two_gates(past, others, unit), gate.rungs, alpha, seed, json=json)
        return
    chosen = _calibrator(gate)
    measured = past is not None or chosen.of_signals
    if measured:
        _check_measured(chosen, unit, guessed, responses if past is None else None)
    if past is not None and gate.unit is None and has_claims(past.read):
        _plan_claims(past, others, asked, json=json)
        return
    if claims.scorer is not None:
        raise UsageError("--scorer is of claims, and --data names none: leave it out")
    try:
        if past is not None:
            found = _plan_past(past, unit, asked, responses)
        else:
            found = _plan_guess({} if measured else {**guessed, "responses": responses}, chosen, unit, asked)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if json:
        print_json(asdict(found))
    else:
        print_past(found)


class _Asked(NamedTuple):
    """What is planned, whatever on."""

    alpha: float
    labels: int | None
    seed: int
    gate: GateOptions
    claims: ScoredClaims

    def of_past(self) -> dict[str, Any]:
        """Return it as `plan_past` takes it."""
        return {"alpha": self.alpha, "attempts": self.gate.attempts, "labels": self.labels, "seed": self.seed}


def _calibrator(gate: GateOptions) -> Calibrator:
    """Return the calibrator that is asked for. Raises `UsageError`, also where attempts do not go with it."""
    chosen = calibrator(_method(gate.promise, gate.method))
    if chosen.risk == "selective" and gate.attempts > 1:
        asked = f"--method {chosen.name}" if gate.promise is None else f"--promise {gate.promise}"
        raise UsageError(f"--attempts must be 1 with {asked}: attempts change what ships")
    return chosen


def _method(promise: str | None, method: str | None) -> str:
    """Return the name of the method that is asked for, by itself or by its promise."""
    if method is not None and method not in offered():
        raise UsageError(f"--method must be one of {', '.join(offered())}, not {method!r}")
    return method or "mean" if promise is None else promised_method(promise, method)


def _check_measured(
    method: Calibrator, unit: Unit, guessed: Mapping[str, float | None], responses: int | None
) -> None:
    """Refuse what a plan on past answers cannot look at."""
    if method.of_signals and unit == "response":
        raise UsageError("--method full goes with the units best and batch, not response")
    given = [name for name, value in {**guessed, "responses": responses}.items() if value is not None]
    if given:
        raise UsageError(
            f"--{given[0]} is a guess, and goes with neither --data, which measures it, nor --method full, which is measured on past "
            "answers alone: leave it out"
        )


def _plan_guess(guessed: Mapping[str, Any], method: Calibrator, unit: Unit, asked: _Asked) -> "PastPlan":
    """Plan on prompts that are made from a guess; empty: on none, where only past answers could say more."""
    if not guessed:
        return plan_past({}, method, unit, **asked.of_past())
    made = Guess(**{name: value for name, value in guessed.items() if value is not None})
    answers = guessed_answers(made, seed=asked.seed)
    return plan_past(answers, method, unit, answers=made.responses, guessed=True, **asked.of_past())


def _plan_past(past: "_Past", unit: Unit, asked: _Asked, responses: int | None) -> "PastPlan":
    """Try numbers of labels and of answers on past ones, by the gate that `streamer try` makes of them."""
    from streamer.frames.calibrating import Marking
    from streamer.frames.gate import Gate

    of = asked.gate
    gate = Gate(
        alpha=asked.alpha,
        unit=unit,
        method=None if of.promise is of.method is None else _method(of.promise, of.method),
        unlabelled=past.unlabelled,
        encoder=Marking(past.encode),
        signals=past.reading.signals,
        models=past.reading.models,
    )
    table = Read(tuple(past.clouds), None, len(past.clouds), str(past.file))
    settings = gate._settings(table)
    by_size = fewer_answers(table.clouds, responses, seed=asked.seed)
    found = {}
    with progress("Scoring responses", len(by_size)) as advance:
        for done, (size, clouds) in enumerate(by_size.items(), start=1):
            part = replace(table, clouds=clouds)
            found[size] = gate._scored(part, gate._settings(part))[0]
            advance(done)
    drop = past.unlabelled == "drop"
    return plan_past(found, settings.calibrator, unit, drop_unlabelled=drop, **asked.of_past())


def _plan_claims(past: "_Past | None", others: Sequence[str], asked: _Asked, *, json: bool) -> None:
    if past is None:
        raise UsageError("claims are planned on past answers with labelled ones: name --data")
    others = [name for name in others if name not in ("--labels", "--method")]
    others += ["--rungs"] if asked.gate.rungs is not None else []
    if others:
        raise UsageError(f"the unit claim does not go with {', '.join(others)}")
    how: Any = {} if asked.gate.method is None else {"method": asked.gate.method}
    how |= {"scorer": asked.claims.scorer or SUPPORT, "unlabelled": past.unlabelled}
    options = asked.claims.asked("any", alphas=(asked.alpha,), seed=asked.seed, **how)
    print_plan(planned_claims(shown_name(past.file), past.read, options, labels=asked.labels), json=json)


def _of_two_gates(data: "_Past | None", others: Sequence[str], unit: Unit) -> "_Past":
    """Return the past answers, which a plan of rungs needs, for the unit `best` and without these other options."""
    if data is None:
        raise UsageError("--rungs are planned on past answers: name the cheap gate's file with --data")
    if unit != "best":
        raise UsageError(f"--rungs go with the unit best, not {unit}: they look at the best score")
    if others:
        raise UsageError(f"--rungs do not go with {', '.join(others)}")
    return data


def _plan_rungs(data: "_Past", rungs: str, alpha: float, seed: int, *, json: bool) -> None:
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


@dataclass(frozen=True)
class _Past:
    """Past answers, and how they are to be read: once, for standard input has them once."""

    file: Path
    reading: "Reading"
    unlabelled: str

    @cached_property
    def read(self) -> "list[Cloud]":
        """The prompts as they are in the file."""
        return list(read_clouds(self.file, self.reading, report=note))

    @cached_property
    def clouds(self) -> "list[Cloud]":
        """The prompts; an answer without a severity counts as 1, or has none, as the option says."""
        clouds = self.read
        severity_kind(clouds)
        choice = check_unlabelled(self.unlabelled)
        if missing := unlabelled_note(*counts(clouds), choice):
            warn(missing)
        return [filled(cloud) for cloud in clouds] if choice == "worst" else clouds

    def encode(self, texts: list[str]) -> "ArrayLike":
        """Embed texts; what was embedded before is known."""
        return self._configured.embed([texts])[0]

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


def _helps(made: PastPlan) -> str:
    if made.unread and made.method != Full.name:
        return (
            f"the encoder does not read an answer of {made.unread} of the {made.prompts} prompts, which the method {made.method} "
            f"therefore holds; what helps is {HELPS}"
        )
    return "label more, find a better score, or raise the budget"


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
            f"none of these serves steadily: {_helps(made)}"
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
        held = f", and it holds {made.unread} of the {made.prompts} prompts, which the encoder does not read"
        say(
            f"one score: what a cut of {score} serves on the same labels{held if made.unread else ''}.\n"
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
