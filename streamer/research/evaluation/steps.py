"""From files to results, in one call: read, score, evaluate, write.

The judge's scores Q_J = J/100 of all answers of some clouds: each distinct answer is put to the judge once.

A score decides at run time, where there are no references: the judge sees question and answer head alone.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from numpy.typing import ArrayLike

from streamer.clouds.cloud import Cloud
from streamer.clouds.cloud_files import AS_IT_IS
from streamer.clouds.line_files import append_lines, read_lines
from streamer.clouds.offline import ScoredCloud
from streamer.clouds.tables.answers import Reading
from streamer.errors import Unavailable, UsageError
from streamer.frames.answers import Read, measured, signals_of
from streamer.gates.declared import Unit
from streamer.labels.judge.client import JudgeClient
from streamer.labels.judge.rubric import JudgeCase
from streamer.labels.kinds.judge import GIVE_UP_AFTER
from streamer.labels.llm.record import PASSING
from streamer.research.evaluation.data_sets import (
    DataSet,
    by_form,
    check_texts,
    keeps_texts,
    named_apart,
    read_data_set,
)
from streamer.research.evaluation.measures import JUDGE
from streamer.research.evaluation.results import Evaluation, Options
from streamer.research.evaluation.run import (
    NoWatch,
    ProgressWatch,
    check_data_set,
    check_options,
    evaluate_data_sets,
    packages_of,
)
from streamer.research.evaluation.words import UNITS
from streamer.research.experiments.score_cache import OWN_EMBEDDINGS, every_score, package_scores
from streamer.scoring.answer_head import answer_head
from streamer.scoring.blank import is_blank
from streamer.scoring.encoders.encoder import Encoder
from streamer.scoring.encoders.registry import DEFAULT_ENCODER, encoder_identity
from streamer.scoring.registry import CHOICE, EVERY, GRAM, LIKELIHOOD, SCORER_NAMES
from streamer.scoring.signals.declared import GIVEN

if TYPE_CHECKING:
    from streamer.research.experiments.stored_encoder import StoredEncoder


class _JudgeMark(msgspec.Struct):
    key: str
    score: float
    subscores: dict[str, float]


def judged(
    data: DataSet, judge: JudgeClient, *, folder: Path, progress: Callable[[int, int], None]
) -> DataSet:
    """Return the data set with the scores ``judge``.

    Every mark is written to `folder` as soon as it is there, under a hash of question and answer head and the judge's
    name: a run that is ended, or whose endpoint becomes unavailable, loses nothing, and the next one asks for the rest. An answer
    without a mark has no score; one that is blank has 0 and is not asked about. Raises `UsageError`
    where the endpoint takes no request at all; `Unavailable` where it answered none of
    `GIVE_UP_AFTER` answers one after another, each as often as it is tried.

    `judge`: who marks. `folder`: made if it is not there. `progress`: called with the numbers of
    answers that are marked and that there are, repeated ones counted once.
    """
    record = folder / f"{hashlib.sha256(judge.id.encode()).hexdigest()[:32]}.jsonl"
    marks = {mark.key: mark for mark in read_lines(record, strict_type=_JudgeMark) if 0 <= mark.score <= 1}
    cases = [
        [JudgeCase(cloud.question, answer_head(response.text)) for response in cloud.responses]
        for cloud in data.clouds
    ]
    distinct = {_key(case): case for row in cases for case in row if not is_blank(case.candidate)}
    missing = [key for key in distinct if key not in marks]
    progress(len(distinct) - len(missing), len(distinct))
    failures: Counter[str] = Counter()
    in_vain = 0
    with closing(judge.finished(distinct[key] for key in missing)) as groups:
        for judgements in groups:
            found = []
            for number, judgement in judgements:
                if judgement.verdict is not None and judgement.normalised is not None:
                    points = dict(judgement.verdict.subscores)
                    found.append(_JudgeMark(missing[number], judgement.normalised, points))
                    in_vain = 0
                elif judgement.failure is not None:
                    failures[judgement.failure.code] += 1
                    in_vain = in_vain + 1 if judgement.failure.code in PASSING else 0
            append_lines(record, found)
            marks |= {mark.key: mark for mark in found}
            progress(sum(key in marks for key in distinct), len(distinct))
            if in_vain >= GIVE_UP_AFTER:
                code = failures.most_common(1)[0][0]
                have = sum(key in marks for key in distinct)
                raise Unavailable(
                    f"the judge's endpoint answered none of the last {in_vain} answers ({code}); {have} of "
                    f"{len(distinct)} ratings are kept, and the same command resumes with the rest"
                )
    found_marks = [[marks.get(_key(case)) for case in row] for row in cases]
    made = data.with_scores(
        "judge",
        [
            [
                0.0 if is_blank(case.candidate) else None if mark is None else mark.score
                for case, mark in zip(row, of_row, strict=True)
            ]
            for row, of_row in zip(cases, found_marks, strict=True)
        ],
    )
    subscores = tuple(tuple(None if one is None else one.subscores for one in row) for row in found_marks)
    made = replace(made, judge=judge.id, subscores=subscores)
    if not failures:
        return made
    listed = ", ".join(f"{code} {count}" for code, count in failures.most_common())
    return made.with_note(
        f"The judge gave no rating to {sum(failures.values())} of {len(distinct)} distinct answers ({listed}); they are "
        "held by the gates that go by it, and the next run asks again."
    )


def _key(case: JudgeCase) -> str:
    return hashlib.sha256(msgspec.json.encode([case.question, case.candidate])).hexdigest()[:32]


CACHE = Path(".streamer")
"""Where scores, ratings and results are cached by default."""

_OPTIONS = Options()


@dataclass(frozen=True, slots=True)
class Encoding:
    """What makes embeddings where a file has none; see `streamer.research.experiments.stored_encoder.StoredEncoder`."""

    encoder: str | Encoder = DEFAULT_ENCODER
    device: str = "auto"
    threads: int | None = None

    @property
    def id(self) -> str:
        """The encoder's name and revision."""
        one = self.encoder
        return (encoder_identity(one) if isinstance(one, str) else one.identity).id


_ENCODING = Encoding()


def evaluate(
    files: Sequence[Path | str] | Path | str,
    *,
    reading: Reading = AS_IT_IS,
    judge: JudgeClient | None = None,
    encoding: Encoding = _ENCODING,
    out: Path | str | None = None,
    cache: Path | str | None = CACHE,
    processes: int = 1,
    watch: ProgressWatch | None = None,
    **options: Any,
) -> Evaluation:
    """Evaluate files of response clouds: the paper's tables, every calibrator, the scores behind
    them.

    Every figure is measured on the second halves of seeded splits by question, after a calibration
    on the first. Returns plain dataclasses; equal for equal inputs and options, which are fields of
    `streamer.research.evaluation.Options`, like ``alphas=(0.05, 0.1), scorers="all"``.

    Files and `reading` are as for `streamer.clouds.cloud_files.read_clouds`. `judge`: who is asked
    for the scores of files that do not have them. `out`: folder for the report, tables and CSV
    files. `cache`: folder of what was computed before. More than 1 of `processes` needs a main
    module that can be imported. Raises `UsageError` where an option or a file is not as described;
    the text names the file and the line; `Unavailable` where the judge's endpoint or the encoder's
    files cannot be reached; what was computed is kept.
    """
    named = [files] if isinstance(files, Path | str) else list(files)
    if not named:
        raise UsageError("there is nothing to evaluate: name at least one file of response clouds")
    if isinstance(scorers := options.get("scorers"), str):
        options["scorers"] = (scorers,)
    asked = check_options(Options(**options))
    read = [read_data_set(file, reading=reading, **asked.reading()) for file in named]
    data_sets = by_form(named_apart(read), asked.judged)
    for data in data_sets:
        check_data_set(data, asked)
    check_folders(out, cache)
    watch = watch or NoWatch()
    if judge is not None:
        data_sets = judged_data_sets(data_sets, judge, cache=cache, watch=watch)
    data_sets = scored_data_sets(data_sets, asked, encoding=encoding, cache=cache, watch=watch)
    return evaluated(data_sets, asked, out=out, processes=processes, watch=watch)


def check_folders(*folders: Path | str | None) -> None:
    """Make the folders that will be written to, before anything is computed. Raises `UsageError` where that fails."""
    from streamer.research.evaluation.outputs import writable_folder

    for folder in folders:
        if folder is not None:
            writable_folder(Path(folder))


def evaluated(
    data_sets: Sequence[DataSet],
    options: Options,
    *,
    out: Path | str | None = None,
    processes: int = 1,
    watch: ProgressWatch | None = None,
) -> Evaluation:
    """Evaluate data sets that have their scores, and write what was found to the folder `out`; see `evaluate`."""
    watch = watch or NoWatch()
    found = evaluate_data_sets(
        data_sets,
        options,
        processes=processes,
        watch=watch,
    )
    if out is not None:
        from streamer.research.evaluation.outputs import write_outputs

        write_outputs(found, data_sets, Path(out), watch=watch)
    return found


@contextmanager
def _kept(cache: Path | str | None, name: str) -> Iterator[Path]:
    """Give a folder of the cache, or one that is removed afterwards."""
    with tempfile.TemporaryDirectory() as unkept:
        yield Path(unkept if cache is None else cache) / name


def scored_data_sets(
    data_sets: Sequence[DataSet],
    options: Options = _OPTIONS,
    *,
    encoding: Encoding = _ENCODING,
    cache: Path | str | None = CACHE,
    watch: ProgressWatch | None = None,
) -> list[DataSet]:
    """Give data sets the scores of every label-free scorer; see `every_score` and `StoredEncoder` for what is kept.

    Where `options.scorers` names them, scorers of installed packages too. Raises `UsageError` where they name one that is computed of texts which
    are not there.
    """
    watch = watch or NoWatch()
    for data in data_sets:
        if _brings_scores_alone(data):
            check_texts(data, options.scorers)
    with _kept(cache, "scores") as scores, _kept(cache, "embeddings") as embeddings:
        return [
            data
            if _brings_scores_alone(data)
            else _scored(data, options, encoding, scores, embeddings, watch)
            for data in data_sets
        ]


def _progress(watch: ProgressWatch) -> Callable[[str, int, int], None]:
    """What is told how much of a part is done, of how much; a part begins when it is named."""
    begun = ""

    def progressed(part: str, done: int, total: int) -> None:
        nonlocal begun
        if part != begun:
            watch.phase(part, total)
            begun = part
        watch.done(done)

    return progressed


def _brings_scores_alone(data: DataSet) -> bool:
    return GRAM in data.scores and not keeps_texts(data)


def _scored(
    data: DataSet, options: Options, encoding: Encoding, kept: Path, embeddings: Path, watch: ProgressWatch
) -> DataSet:
    from streamer.research.experiments.stored_encoder import StoredEncoder

    progressed = _progress(watch)

    def load() -> StoredEncoder:
        return StoredEncoder(
            encoding.encoder,
            device=encoding.device,
            threads=encoding.threads,
            folder=embeddings,
            progress=partial(progressed, f"Encoding {data.name}"),
        )

    own = data.clouds[0].embedded
    scored = data
    if not data.one_call:
        identity = OWN_EMBEDDINGS if own else encoding.id
        scores = every_score(
            data.clouds,
            encoder_id=identity,
            load_encoder=load,
            folder=kept,
            form=data.form,
            progress=lambda done: progressed(f"Scoring {data.name}", done, len(data.clouds)),
        )
        scored = replace(data, encoder=identity)
        for name in SCORER_NAMES:
            scored = scored.with_scores(name, [None if one is None else one[name] for one in scores])
        for name in packages_of(options):
            scored = scored.with_scores(
                name, package_scores(name, data.clouds, None if own else load(), data.form)
            )
    clouds = (
        [_with_marks(*one) for one in zip(data.clouds, data.scores[JUDGE], strict=True)]
        if JUDGE in data.scores
        else data.clouds
    )
    ranges = {name: (least, most) for name, least, most in options.signals}
    signals = signals_of(clouds, ranges, options.models, data.form)

    table = Read(tuple(clouds), None, len(clouds), data.source)
    scorer = EVERY[LIKELIHOOD if data.one_call else CHOICE]

    def encode(texts: list[str]) -> ArrayLike:
        return load().embed([texts])[0]

    chosen: dict[Unit, tuple[ScoredCloud, ...]] = {
        unit: tuple(measured(table, signals, unit, encode, data.form, scorer)[0])
        for unit in UNITS
        if unit in options.units and unit != "response"
    }
    if came := [name for name in signals.given if name not in data.form.signal]:
        scored = scored.with_note(f"Method full reads what came with the answers too: {', '.join(came)}.")
    return replace(scored, chosen=chosen)


def _with_marks(cloud: Cloud, scores: Sequence[float | None] | None) -> Cloud:
    """The cloud with a judge's marks among the numbers that came with its answers; `scores` : the marks as shares of 1."""
    given = zip(cloud.responses, scores or [None] * len(cloud.responses), strict=True)
    return replace(
        cloud,
        responses=tuple(
            one if score is None else replace(one, signals={**one.signals, JUDGE: score * GIVEN[JUDGE][1]})
            for one, score in given
        ),
    )


def judged_data_sets(
    data_sets: Sequence[DataSet],
    judge: JudgeClient,
    *,
    cache: Path | str | None = CACHE,
    watch: ProgressWatch | None = None,
) -> list[DataSet]:
    """Give data sets that have no judge's scores those of `judge`; see `judged` for what is kept."""
    progressed = _progress(watch or NoWatch())
    with _kept(cache, "marks") as folder:
        return [
            data
            if JUDGE in data.scores
            else judged(
                data,
                judge,
                folder=folder,
                progress=partial(progressed, f"Asking the judge about {data.name}"),
            )
            for data in data_sets
        ]
