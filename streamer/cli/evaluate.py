"""`streamer evaluate`: the paper's tables and figures on response clouds, and what they mean."""

import os
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamer import wiring
from streamer.cli.console import note, output, print_json, print_table, say, warn
from streamer.cli.gate_names import gate_names
from streamer.cli.options import ColumnOption, JsonOption, UnlabelledOption, names, share
from streamer.clouds.tables.columns import parse_mapping
from streamer.clouds.unlabelled import check_unlabelled
from streamer.errors import UsageError
from streamer.scoring.registry import LEARNED, SCORER_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamer.labels.judge.client import JudgeClient
    from streamer.research.evaluation import DataSet, Evaluation, Options
    from streamer.research.evaluation.run import ProgressWatch
    from streamer.scoring.encoders.encoder import Encoder
    from streamer.settings.settings import Settings

_ASKED, _SCORES, _JUDGE, _RUN = "What is asked", "Scores to compare", "The judge", "The run"


_Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE",
        help="Answers with severities: response clouds (.jsonl), or a table in CSV, JSON Lines or Parquet; - is standard input.",
    ),
]
_Out = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        help="Folder for the report, tables, figures and CSV files; created if missing.",
    ),
]
_FromStore = Annotated[
    list[str] | None,
    typer.Option(
        "--from-store",
        metavar="GATE",
        autocompletion=gate_names,
        help="Evaluate what this gate decided, from stored scores and labels; may be repeated.",
    ),
]
_Alpha = Annotated[
    list[float] | None,
    typer.Option(
        metavar="A",
        parser=share,
        rich_help_panel=_ASKED,
        help="Budget on exposure risk; may be repeated. Default: .01 .05 .10 .15 .20.",
    ),
]
_Unit = Annotated[
    list[str] | None,
    typer.Option(
        metavar="best|response",
        rich_help_panel=_ASKED,
        help="best: one answer to a prompt, or none. response: each on its own, as in the paper's tables. Default: both.",
    ),
]
_Splits = Annotated[
    int,
    typer.Option(
        metavar="N", min=2, max=10_000, rich_help_panel=_ASKED, help="Random halves of the questions."
    ),
]
_Seed = Annotated[
    int,
    typer.Option(metavar="S", min=0, max=2**62, rich_help_panel=_ASKED, help="Seed of the first split."),
]
_Scorers = Annotated[
    str,
    typer.Option(
        metavar="NAME,...|all",
        rich_help_panel=_SCORES,
        help=f"Scores to compare: {', '.join((*SCORER_NAMES, LEARNED))}, logprob, or one of an installed package. all: those that are "
        "computed here, installed packages' too. logprob and a judge's marks are compared wherever the file has them.",
    ),
]
_ScoreField = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD",
        rich_help_panel=_SCORES,
        help="Field of a response's meta that holds another score in [0, 1], higher is safer.",
    ),
]
_AnswerPattern = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX",
        rich_help_panel=_SCORES,
        help="Regular expression whose one group is the final answer, which exact-match compares instead of an answer's head: 'A: (.*)'.",
    ),
]
_Judge = Annotated[
    bool,
    typer.Option(
        "--judge",
        rich_help_panel=_JUDGE,
        help="Ask the configured judge for scores that the files lack; its ratings are cached.",
    ),
]
_JudgeModel = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        rich_help_panel=_JUDGE,
        help="The judge's model; overrides the setting and implies --judge.",
    ),
]
_JudgeBaseUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        rich_help_panel=_JUDGE,
        help="The judge's endpoint; overrides the setting and implies --judge.",
    ),
]
_JudgeField = Annotated[
    str,
    typer.Option(
        metavar="FIELD",
        rich_help_panel=_JUDGE,
        help="Field of a response's meta with the judge's score in [0, 1], given without references.",
    ),
]
_Cache = Annotated[
    Path,
    typer.Option(metavar="DIR", rich_help_panel=_RUN, help="Where scores, ratings and results are cached."),
]
_Processes = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=64,
        rich_help_panel=_RUN,
        help="Processes that compute in parallel. Default: one per core.",
    ),
]


def evaluate(
    files: _Files = None,
    out: _Out = Path("evaluation"),
    column: ColumnOption = None,
    unlabelled: UnlabelledOption = "worst",
    from_store: _FromStore = None,
    alpha: _Alpha = None,
    unit: _Unit = None,
    splits: _Splits = 50,
    seed: _Seed = 0,
    scorers: _Scorers = "gram",
    score_field: _ScoreField = None,
    answer_pattern: _AnswerPattern = None,
    judge: _Judge = False,
    judge_model: _JudgeModel = None,
    judge_base_url: _JudgeBaseUrl = None,
    judge_field: _JudgeField = "judge_score",
    cache: _Cache = Path(".streamer"),
    processes: _Processes = None,
    json: JsonOption = False,
) -> None:
    """Evaluate answers with severities: what a gate would ship, what harm would get through, which score and method do best.

    Each file is halved by question many times: one half calibrates, the other is measured. The folder gets report.html,
    tables.md, figures, responses.csv, parameters.csv and results.json. Stop when you like: what was computed is kept, and
    the same command resumes; a second identical run returns at once.
    """
    from streamer.cli.demo import DemoProgress
    from streamer.research.evaluation import Options, evaluated
    from streamer.research.evaluation.data_sets import named_apart
    from streamer.research.evaluation.run import check_data_set, check_options
    from streamer.research.evaluation.steps import check_folders

    if not files and not from_store:
        raise UsageError("name files of response clouds, or a gate with --from-store")
    options = check_options(
        Options(
            alphas=tuple(alpha or Options().alphas),
            units=tuple(unit or Options().units),
            splits=splits,
            seed=seed,
            scorers=names(scorers, "--scorers"),
            external=tuple(score_field or ()),
            judge_field=judge_field,
            answer_pattern=answer_pattern,
            unlabelled=unlabelled,
        )
    )
    overrides = {"model": judge_model, "base_url": judge_base_url}
    asked = {name: value for name, value in overrides.items() if value is not None}
    settings = wiring.load_settings(judge=asked) if asked else wiring.load_settings()
    data_sets = [*_read(files or [], column, options), *_stored(settings, from_store or [], options)]
    for data in data_sets:
        check_data_set(data, options)
    check_folders(out, cache)
    try:
        with ExitStack() as until, DemoProgress() as watch:
            grader = until.enter_context(wiring.judge(settings)) if judge or asked else None
            scored = _with_scores(settings, named_apart(data_sets), options, grader, cache, watch)
            found = evaluated(
                scored,
                options,
                out=out,
                cache=cache,
                processes=processes or len(os.sched_getaffinity(0)),
                watch=watch,
            )
    except KeyboardInterrupt:
        note(f"Stopped; scores and ratings are kept in {cache}, and the same command resumes with them.")
        raise
    if json:
        import msgspec

        print_json(msgspec.to_builtins(found))
    else:
        _print(found, out)


def _read(files: list[Path], column: list[str] | None, options: "Options") -> "list[DataSet]":
    from streamer.research.evaluation import read_data_set

    columns = parse_mapping(column or ())
    return [read_data_set(file, columns=columns, report=note, **options.reading()) for file in files]


def _stored(settings: "Settings", gates: list[str], options: "Options") -> "list[DataSet]":
    if not gates:
        return []
    from streamer.research.evaluation.stored import stored_data_set

    found, unlabelled = [], check_unlabelled(options.unlabelled)
    with wiring.open_store(settings) as store:
        for name in gates:
            of_gate = store.gates.get(name).settings
            deadline = wiring.now() - timedelta(seconds=of_gate.label_deadline_seconds)
            found.append(
                stored_data_set(
                    store.answers, name, settings=of_gate, older_than=deadline, unlabelled=unlabelled
                )
            )
    return found


def _with_scores(
    settings: "Settings",
    data_sets: "list[DataSet]",
    options: "Options",
    judge: "JudgeClient | None",
    cache: Path,
    watch: "ProgressWatch",
) -> "list[DataSet]":
    from streamer.gates.settings import NO_ENCODER
    from streamer.research.evaluation import Encoding, judged_data_sets, scored_data_sets
    from streamer.research.evaluation.data_sets import keeps_texts
    from streamer.scoring.registry import GRAM
    from streamer.scoring.scorers.logprob import Logprob

    others = [name for name in options.scorers if name not in (GRAM, Logprob.name)]
    made = []
    for data in data_sets:
        kept = data.scores.get(GRAM)
        if kept is None or others:
            own = data.clouds[0].responses[0].embedding is not None
            if not keeps_texts(data) and (others or not own):
                raise UsageError(
                    f"{data.source}: its texts are not stored, so {', '.join(others)} cannot be computed; leave "
                    "--scorers out"
                )
            if settings.encoder.name == NO_ENCODER and not own:
                raise UsageError("answers are scored by their embeddings, and encoder.name is none: set one")
            with _encoder(settings, own=own) as encoder:
                encoding = Encoding(encoder, settings.encoder.device, settings.encoder.threads)
                (data,) = scored_data_sets([data], options, encoding=encoding, cache=cache, watch=watch)
        made.append(data if kept is None else data.with_scores(GRAM, kept))
    return made if judge is None else judged_data_sets(made, judge, cache=cache, watch=watch)


@contextmanager
def _encoder(settings: "Settings", *, own: bool) -> "Iterator[str | Encoder]":
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
    from streamer.research.evaluation.findings import findings, headline

    for result in found.data_sets:
        say(f"{result.name}: {headline(found, result).sentence}")
        for remark in result.notes:
            warn(f"{result.name}: {remark}")
    say("")
    print_table(
        (
            "data set",
            "unit",
            "mode",
            "alpha",
            "ship rate",
            "exposure",
            "severity shipped",
            "held",
            "reduction",
        ),
        [
            (
                result.name,
                row.unit,
                row.mode,
                f"{row.alpha:g}",
                *(
                    None if value is None else f"{value:.3f}"
                    for value in (
                        row.ship_rate.mean,
                        row.exposure.mean,
                        row.shipped_severity.mean,
                        row.held_severity.mean,
                        row.reduction.mean,
                    )
                ),
            )
            for result in found.data_sets
            for row in result.gates
            if row.mode is not None
        ],
        title=f"The paper's modes, means over {found.options.splits} splits (its tables have unit response)",
    )
    say("")
    for text in findings(found):
        say(f"- {text}")
    say("")
    console = output()
    console.print(f"report    {out / 'report.html'}", markup=False, soft_wrap=True)
    console.print(f"tables    {out / 'tables.md'}", markup=False, soft_wrap=True)
