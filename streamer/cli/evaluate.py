"""`streamer evaluate`: the paper's tables on response clouds, and what they mean."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

from streamer import wiring
from streamer.calibration.calibrators.mean import Mean
from streamer.cli.console import note, print_json, print_table, say, warn
from streamer.cli.evaluate_claims import Calibrating, StoredGate, print_claims
from streamer.cli.options import (
    JsonOption,
    TableOptions,
    UnlabelledOption,
    argument,
    flag,
    gate_names,
    given,
    in_groups,
    names,
    option,
    share,
)
from streamer.clouds.cloud import Cloud
from streamer.clouds.cloud_files import read_clouds
from streamer.clouds.evaluated_claims import CLAIM, CLAIM_BUDGETS, has_claims
from streamer.clouds.unlabelled import check_unlabelled
from streamer.errors import UsageError
from streamer.frames.results import AtBudget
from streamer.gates.declared import Unit
from streamer.gates.settings import NO_ENCODER
from streamer.scoring.encoders.encoder import Encoder
from streamer.scoring.judged import FORMS
from streamer.scoring.registry import GRAM, SCORER_NAMES
from streamer.scoring.signals.signal_list import SignalList
from streamer.settings.settings import Settings

if TYPE_CHECKING:
    from streamer.labels.judge.client import JudgeClient
    from streamer.research.evaluation import DataSet, Evaluation, Options
    from streamer.research.evaluation.run import ProgressWatch


@dataclass(frozen=True, slots=True)
class AskedOptions:
    """What is asked."""

    alpha: list[float] | None = option(
        "A", "Budget on exposure risk; may be repeated. Default: .01 .05 .10 .15 .20.", parser=share
    )
    unit: list[str] | None = option(
        "|".join(get_args(Unit)),
        "best: one answer to a prompt, or none. response: each on its own, as in the paper's tables. batch: all or none. "
        "claim: of a long answer what is supported. May be repeated. Default: claim for files "
        "with claims, else best and response.",
    )
    splits: int = option("N", "Random halves of the questions.", 50, min=2, max=10_000)
    seed: int = option("S", "Seed of the first split.", 0, min=0, max=2**62)


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """Scores to compare."""

    scorers: str = option(
        "NAME,...|all",
        f"Scores to compare: {', '.join(SCORER_NAMES)}, or one of an installed package. all: those that are "
        "computed here, installed packages' too. A judge's marks are compared wherever the file has them.",
        "gram",
    )
    judged: list[str] | None = option(
        "FORM",
        f"What of the answers is judged: {', '.join(FORMS)}; after json or call fields of free text, as in 'json /notes'. May be "
        "repeated; all: every part that half of the questions have, ranked. Default: whole.",
    )
    score_field: list[str] | None = option(
        "FIELD", "Field of a response's meta that holds another score in [0, 1], higher is safer."
    )


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """The judge."""

    judge: bool = flag(
        "--judge",
        "Ask the configured judge for scores that the files lack; its ratings are cached.",
    )
    judge_model: str | None = option("MODEL", "The judge's model; overrides the setting and implies --judge.")
    judge_base_url: str | None = option(
        "URL", "The judge's endpoint; overrides the setting and implies --judge."
    )
    judge_field: str = option(
        "FIELD",
        "Field of a response's meta with the judge's score in [0, 1], given without references.",
        "judge_score",
    )


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The run."""

    cache: Path = option("DIR", "Where scores and ratings are cached.", Path(".streamer"))
    processes: int | None = option(
        "N", "Processes that compute in parallel. Default: one per core.", min=1, max=64
    )


@in_groups
def evaluate(
    files: list[Path] | None = argument(
        "FILE",
        "Answers with severities: response clouds (.jsonl), or a table in CSV, JSON Lines or Parquet; - is standard input.",
        None,
    ),
    out: Path = option(
        "DIR",
        "Folder for the report, tables and CSV files; created if missing.",
        Path("evaluation"),
    ),
    unlabelled: UnlabelledOption = "worst",
    from_store: list[str] | None = option(
        "GATE",
        "Evaluate what this gate decided, from stored scores and labels; may be repeated.",
        None,
        "--from-store",
        autocompletion=gate_names,
    ),
    *,
    tables: TableOptions,
    asked: AskedOptions,
    scores: ScoreOptions,
    judging: JudgeOptions,
    claims: Calibrating,
    run: RunOptions,
    json: JsonOption = False,
) -> None:
    """Evaluate answers with severities: what a gate would ship, what harm would get through, which score and method do best.

    Each file is halved by question many times: one half calibrates, the other is measured. The folder gets report.html,
    tables.md, responses.csv, parameters.csv and results.json; of claims, claims.json. Stop when you
    like: what was computed is kept, and the same command resumes.
    """
    import msgspec

    from streamer.cli.demo import DemoProgress
    from streamer.research.evaluation import evaluated
    from streamer.research.evaluation.data_sets import by_form, named_apart, read_data_set
    from streamer.research.evaluation.run import check_data_set
    from streamer.research.evaluation.steps import check_folders
    from streamer.research.evaluation.stored import stored_data_set

    if not files and not from_store:
        raise UsageError("name files of response clouds, or a gate with --from-store")
    for unit in set(asked.unit or ()) - {*get_args(Unit)}:
        raise UsageError(f"--unit must be one of {', '.join(get_args(Unit))}, not {unit!r}")
    options = _options(asked, scores, judging.judge_field, tables.signals(), unlabelled)
    overrides = given(model=judging.judge_model, base_url=judging.judge_base_url)
    settings = wiring.load_settings(judge=overrides) if overrides else wiring.load_settings()
    reading = tables.reading()
    read = [(str(file), list(read_clouds(file, reading, report=note))) for file in files or ()]
    cut, rest = _parted(_Some(read, _stored(settings, from_store or [])), set(asked.unit or ()))
    if cut:
        if json and rest:
            raise UsageError("--json prints one kind of evaluation; ask for --unit claim alone")
        check_folders(out)
        of_claims = replace(options, alphas=options.alphas if asked.alpha else CLAIM_BUDGETS)
        print_claims(claims.results(cut.files, cut.gates, of_claims, out=out), json=json)
        if not json:
            say("")
            say(f"figures   {out / 'claims.json'}")
    elif claims.scorer is not None or claims.method != Mean.name:
        raise UsageError("--scorer and --method are of claims, and there are none; see --scorers")
    if not rest:
        return
    how = {"reading": reading, **options.reading()}
    data_sets = [
        *by_form([read_data_set(name, clouds=some, **how) for name, some in rest.files], options.judged),
        *(
            stored_data_set(some, name, settings=own, unlabelled=check_unlabelled(options.unlabelled))
            for name, own, some in rest.gates
        ),
    ]
    for data in data_sets:
        check_data_set(data, options)
    check_folders(out, run.cache)
    processes = run.processes or len(os.sched_getaffinity(0))
    try:
        with ExitStack() as until, DemoProgress() as watch:
            grader = until.enter_context(wiring.judge(settings)) if judging.judge or overrides else None
            scored = _with_scores(settings, named_apart(data_sets), options, grader, run.cache, watch)
            found = evaluated(scored, options, out=out, processes=processes, watch=watch)
    except KeyboardInterrupt:
        note(f"Stopped; scores and ratings are kept in {run.cache}, and the same command resumes with them.")
        raise
    if json:
        print_json(msgspec.to_builtins(found))
    else:
        _print(found, out)


def _options(
    asked: AskedOptions,
    scores: ScoreOptions,
    judge_field: str,
    signals: SignalList,
    unlabelled: str,
) -> "Options":
    """Return what is evaluated of answers other than claims. Raises `UsageError`."""
    from streamer.research.evaluation import Options
    from streamer.research.evaluation.run import check_options

    return check_options(
        Options(
            alphas=tuple(asked.alpha or Options().alphas),
            units=tuple(unit for unit in asked.unit or () if unit != CLAIM) or Options().units,
            splits=asked.splits,
            seed=asked.seed,
            scorers=names(scores.scorers, "--scorers"),
            external=tuple(scores.score_field or ()),
            judge_field=judge_field,
            signals=signals.declared,
            models=signals.models,
            judged=tuple(scores.judged or Options().judged),
            unlabelled=unlabelled,
        )
    )


class _Some(NamedTuple):
    """Files, by their names, and gates; false without any."""

    files: "list[tuple[str, list[Cloud]]]"
    gates: "list[StoredGate]"

    def __bool__(self) -> bool:
        return bool(self.files or self.gates)


def _parted(every: _Some, units: set[str]) -> tuple[_Some, _Some]:
    """Part what is evaluated by claims from the rest; a file may be both. Raises `UsageError` for a unit that a gate has not."""
    others = units - {CLAIM}
    for name, own, _ in every.gates:
        if units and not (units & {CLAIM} if own.unit == CLAIM else others):
            raise UsageError(f"gate {name} has the unit {own.unit}, and its record answers for no other")
    cut = [one for one in every.files if CLAIM in units or (not units and has_claims(one[1]))]
    rest = [one for one in every.files if others or not (units or has_claims(one[1]))]
    return (
        _Some(cut, [one for one in every.gates if one[1].unit == CLAIM]),
        _Some(rest, [one for one in every.gates if one[1].unit != CLAIM]),
    )


def _stored(settings: Settings, gates: list[str]) -> "list[StoredGate]":
    """Read the record of each gate, by its name and settings."""
    if not gates:
        return []
    from streamer.frames.recorded import recorded

    found: list[StoredGate] = []
    with wiring.open_store(settings) as store:
        for name in gates:
            of_gate = store.gates.get(name).settings
            batches, young = recorded(store.answers, store.calibration, name, of_gate, now=wiring.now())
            for text in young:
                note(f"{name}: {text}")
            found.append((name, of_gate, batches))
    return found


def _with_scores(
    settings: Settings,
    data_sets: "list[DataSet]",
    options: "Options",
    judge: "JudgeClient | None",
    cache: Path,
    watch: "ProgressWatch",
) -> "list[DataSet]":
    from streamer.research.evaluation import Encoding, judged_data_sets, scored_data_sets
    from streamer.research.evaluation.data_sets import check_texts

    if judge is not None:  # first: its marks are signals of the method full
        data_sets = judged_data_sets(data_sets, judge, cache=cache, watch=watch)
    others = [name for name in options.scorers if name != GRAM]
    made = []
    for data in data_sets:
        kept = data.scores.get(GRAM)
        if kept is None or others or data.one_call:
            own = data.clouds[0].embedded or data.one_call
            check_texts(data, options.scorers)
            if settings.encoder.name == NO_ENCODER and not own:
                raise UsageError("answers are scored by their embeddings, and encoder.name is none: set one")
            with _encoder(settings, own=own) as encoder:
                encoding = Encoding(encoder, settings.encoder.device, settings.encoder.threads)
                (data,) = scored_data_sets([data], options, encoding=encoding, cache=cache, watch=watch)
        made.append(data if kept is None else data.with_scores(GRAM, kept))
    return made


@contextmanager
def _encoder(settings: Settings, *, own: bool) -> "Iterator[str | Encoder]":
    """Give the configured encoder's name, or what asks its endpoint; `own`: answers bring embeddings of their own."""
    asked = None if own else wiring.endpoint_encoder(settings)
    if asked is None:
        yield settings.encoder.name
        return
    with closing(asked):
        try:
            yield asked
        finally:
            cost = "" if asked.cost is None else f", cost {asked.cost:.4f}"
            note(f"{asked.tokens} tokens of texts were sent to {asked.identity.revision}{cost}")


def _print(found: "Evaluation", out: Path) -> None:
    from streamer.cli.try_file import print_budgets
    from streamer.research.evaluation.findings import findings, headline

    for result in found.data_sets:
        say(f"{result.name}: {headline(found, result).sentence}")
        for remark in result.notes:
            warn(f"{result.name}: {remark}")
    for result in found.data_sets:
        for unit in result.mean_severity:
            rows = [result.default_row(unit, alpha) for alpha in found.options.alphas]
            say("")
            print_budgets(
                [AtBudget(row.alpha, row.ship_rate, row.promised, row.shipped_severity) for row in rows],
                f"{result.name}, unit {unit}, method {rows[0].method}: means over {found.options.splits} splits",
            )
    if len({result.judged for result in found.data_sets}) > 1:
        say("")
        _print_judged(found)
    say("")
    for text in findings(found):
        say(f"- {text}")
    say(f"\nreport    {out / 'report.html'}")
    say(f"tables    {out / 'tables.md'}")


def _print_judged(found: "Evaluation") -> None:
    """Rank what may be judged, by the share that is served at each budget."""
    alphas = found.options.alphas
    for unit in found.units_shown:
        rows = [
            (result.judged, [result.default_row(unit, alpha) for alpha in alphas], result.name)
            for result in found.data_sets
            if unit in result.mean_severity
        ]
        rows.sort(key=lambda one: -sum(row.ship_rate.mean or 0 for row in one[1]))
        print_table(
            (
                "judged",
                "method",
                *(f"served at {alpha:g}" for alpha in alphas),
                *(f"exposure at {alpha:g}" for alpha in alphas),
                "data set",
            ),
            [
                (
                    judged,
                    own[0].method,
                    *(None if row.ship_rate.mean is None else f"{row.ship_rate.mean:.3f}" for row in own),
                    *(None if row.exposure.mean is None else f"{row.exposure.mean:.3f}" for row in own),
                    name,
                )
                for judged, own, name in rows
            ],
            title=f"What to judge, unit {unit}: the most served first",
        )
