"""From files to results, in one call: read, score, evaluate, write."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streamer.clouds.unlabelled import check_unlabelled
from streamer.errors import UsageError
from streamer.research.evaluation.data_sets import keeps_texts, named_apart, read_data_set
from streamer.research.evaluation.judge_marks import judged
from streamer.research.evaluation.results import JUDGE_FIELD, Options
from streamer.research.evaluation.run import (
    NoWatch,
    check_data_set,
    check_options,
    evaluate_data_sets,
    packages_of,
)
from streamer.research.experiments.score_cache import (
    OWN_EMBEDDINGS,
    agreement_of,
    compiled_pattern,
    every_score,
    final_answer,
    package_scores,
)
from streamer.scoring.encoders.registry import DEFAULT_ENCODER
from streamer.scoring.fitting import NothingToLearn
from streamer.scoring.registry import GRAM, LEARNED, SCORER_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamer.clouds.tables.columns import Role
    from streamer.labels.kinds.judge import PatientGrader
    from streamer.research.evaluation.data_sets import DataSet
    from streamer.research.evaluation.results import Evaluation
    from streamer.research.evaluation.run import ProgressWatch
    from streamer.research.experiments.stored_encoder import StoredEncoder
    from streamer.scoring.encoders.encoder import Encoder

CACHE = Path(".streamer")
"""Where scores, ratings and results are cached by default."""


def evaluate(
    files: Sequence[Path | str] | Path | str,
    *,
    out: Path | str | None = None,
    alphas: Sequence[float] = Options().alphas,
    units: Sequence[str] = Options().units,
    splits: int = Options().splits,
    seed: int = 0,
    scorers: Sequence[str] | str = ("gram",),
    external: Sequence[str] = (),
    judge_field: str = JUDGE_FIELD,
    answer_pattern: str | None = None,
    unlabelled: str = "worst",
    columns: Mapping[Role, tuple[str, ...]] | None = None,
    judge: PatientGrader | None = None,
    method: str = Options().method,
    encoder: str | Encoder = DEFAULT_ENCODER,
    device: str = "auto",
    threads: int | None = None,
    cache: Path | str | None = CACHE,
    processes: int = 1,
    watch: ProgressWatch | None = None,
) -> Evaluation:
    """Evaluate files of response clouds: the paper's tables, every calibrator, the scores behind them.

    Every figure is measured on the second halves of seeded splits by question, after a calibration on the first.

    Parameters
    ----------
    files : response clouds or tables; see `streamer.clouds.cloud_files.read_clouds`, also for `columns`.
    out : folder for the report, tables, figures and CSV files; None writes none.
    alphas : budgets, each in (0, 1).
    units : ``best`` (one answer or none for each prompt), ``response`` (each on its own; the paper's tables).
    splits, seed : number of splits, >= 2, and the seed of the first.
    scorers : names of label-free scores to compare, or ``all``; the Gram energy is always there.
    external : fields of a response's ``meta`` that hold other scores in [0, 1], higher is safer.
    judge_field : the field of ``meta`` that holds the judge's score in [0, 1], given without references.
    answer_pattern : regular expression whose one group is an answer's final answer, at its last match, for the scorer
        ``exact-match``; None: it compares the heads of answers.
    unlabelled : what becomes of answers without a severity: ``worst`` counts each as 1, ``drop`` leaves them out, ``fail``
        refuses the file.
    judge : who is asked for the scores of files that do not have them; None: nobody.
    method : by which the scores that are compared gate, with its usual parameters.
    encoder, device, threads : of the embeddings; see `streamer.research.experiments.stored_encoder.StoredEncoder`.
    cache : folder of what was computed before; None keeps nothing.
    processes : that compute side by side. More than 1 needs a main module that can be imported.
    watch : receives progress.

    Returns
    -------
    Evaluation
        Plain dataclasses; equal for equal inputs, options and code.

    Raises
    ------
    UsageError : an option or a file is not as described; the text names the file and the line.
    Unavailable : the judge's endpoint or the encoder's files cannot be reached; what was computed is kept.
    """
    named = [files] if isinstance(files, Path | str) else list(files)
    if not named:
        raise UsageError("there is nothing to evaluate: name at least one file of response clouds")
    options = check_options(
        Options(
            alphas=tuple(alphas),
            units=tuple(units),
            splits=splits,
            seed=seed,
            scorers=(scorers,) if isinstance(scorers, str) else tuple(scorers),
            external=tuple(external),
            judge_field=judge_field,
            answer_pattern=answer_pattern,
            unlabelled=unlabelled,
            method=method,
        )
    )
    watch = watch or NoWatch()
    data_sets = named_apart(
        [
            read_data_set(
                file,
                judge_field=judge_field,
                external=options.external,
                columns=columns,
                unlabelled=check_unlabelled(options.unlabelled),
            )
            for file in named
        ]
    )
    for data in data_sets:
        check_data_set(data, options)
    check_folders(out, cache)
    data_sets = scored_data_sets(
        data_sets,
        encoder=encoder,
        device=device,
        threads=threads,
        answer_pattern=answer_pattern,
        cache=cache,
        watch=watch,
        learned=LEARNED in options.scorers,
        packages=packages_of(options),
    )
    if judge is not None:
        data_sets = judged_data_sets(data_sets, judge, cache=cache, watch=watch)
    return evaluated(data_sets, options, out=out, cache=cache, processes=processes, watch=watch)


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
    cache: Path | str | None = CACHE,
    processes: int = 1,
    watch: ProgressWatch | None = None,
) -> Evaluation:
    """Evaluate data sets that have their scores, and write what was found to the folder `out`; see `evaluate`."""
    watch = watch or NoWatch()
    found = evaluate_data_sets(
        data_sets,
        options,
        results_folder=None if cache is None else Path(cache) / "evaluations",
        processes=processes,
        watch=watch,
    )
    if out is not None:
        from streamer.research.evaluation.outputs import write_outputs

        write_outputs(found, data_sets, Path(out), watch=watch)
    return found


def scored_data_sets(
    data_sets: Sequence[DataSet],
    *,
    encoder: str | Encoder = DEFAULT_ENCODER,
    device: str = "auto",
    threads: int | None = None,
    answer_pattern: str | None = None,
    cache: Path | str | None = CACHE,
    watch: ProgressWatch | None = None,
    learned: bool = False,
    packages: Sequence[str] = (),
) -> list[DataSet]:
    """Give data sets the scores of every label-free scorer; see `every_score` and `StoredEncoder` for what is kept.

    `packages` : scorers of installed packages too, by the names of their entry points. `learned` : a learned score too, which their labels fit: every answer by a model that its own prompt did not fit.
    """
    import tempfile

    watch = watch or NoWatch()
    with tempfile.TemporaryDirectory() as unkept:
        kept = Path(unkept if cache is None else cache)
        return [
            data
            if GRAM in data.scores and not keeps_texts(data)
            else _scored(
                data,
                encoder,
                device,
                threads,
                answer_pattern,
                kept,
                watch,
                learned=learned,
                packages=packages,
            )
            for data in data_sets
        ]


def _scored(
    data: DataSet,
    encoder: str | Encoder,
    device: str,
    threads: int | None,
    answer_pattern: str | None,
    kept: Path,
    watch: ProgressWatch,
    *,
    learned: bool,
    packages: Sequence[str],
) -> DataSet:
    from streamer.research.experiments.stored_encoder import StoredEncoder
    from streamer.scoring.encoders.registry import encoder_identity

    begun = ""

    def tell(part: str, done: int, total: int) -> None:
        nonlocal begun
        if part != begun:
            watch.phase(f"{part} {data.name}", total)
            begun = part
        watch.done(done)

    def load() -> StoredEncoder:
        return StoredEncoder(
            encoder,
            device=device,
            threads=threads,
            folder=kept / "embeddings",
            progress=partial(tell, "Encoding"),
        )

    own = data.clouds[0].responses[0].embedding is not None
    if own:
        identity = OWN_EMBEDDINGS
    else:
        identity = (encoder_identity(encoder) if isinstance(encoder, str) else encoder.identity).id
    scores = every_score(
        data.clouds,
        encoder_id=identity,
        load_encoder=load,
        folder=kept / "scores",
        progress=lambda done: tell("Scoring", done, len(data.clouds)),
        answer_pattern=answer_pattern,
    )
    scored = replace(data, encoder=identity)
    for name in SCORER_NAMES:
        scored = scored.with_scores(name, [None if one is None else one[name] for one in scores])
    for name in packages:
        scored = scored.with_scores(
            name, package_scores(name, data.clouds, None if own else load(), answer_pattern)
        )
    if learned:
        scored = _with_learned(scored, None if own else load(), answer_pattern)
    return scored if answer_pattern is None else _noting_no_answer(scored, answer_pattern)


def _with_learned(data: DataSet, encoder: StoredEncoder | None, answer_pattern: str | None) -> DataSet:
    """Give a data set how its answers agree, and what scores learn from that; where they learn nothing, a note says so."""
    from streamer.research.evaluation.learned import left_out_scores

    features = agreement_of(data.clouds, encoder, answer_pattern)
    try:
        scores = left_out_scores(data.clouds, features)
    except NothingToLearn as error:
        return replace(data, notes=(*data.notes, f"There is no learned score: {error}."))
    return replace(data.with_scores(LEARNED, scores), features=features)


def _noting_no_answer(data: DataSet, answer_pattern: str) -> DataSet:
    pattern = compiled_pattern(answer_pattern)
    texts = [text for cloud in data.clouds for text in cloud.texts]
    without = sum(not final_answer(text, pattern).strip() for text in texts)
    if not without:
        return data
    note = f"The answer pattern finds nothing in {without} of {len(texts)} answers; by exact match they agree with nobody."
    return replace(data, notes=(*data.notes, note))


def judged_data_sets(
    data_sets: Sequence[DataSet],
    judge: PatientGrader,
    *,
    cache: Path | str | None = CACHE,
    watch: ProgressWatch | None = None,
) -> list[DataSet]:
    """Give data sets that have no judge's scores those of `judge`; see `judged` for what is kept."""
    import tempfile

    watch = watch or NoWatch()
    with tempfile.TemporaryDirectory() as unkept:
        folder = Path(unkept if cache is None else cache) / "marks"
        made = []
        for data in data_sets:
            if "judge" in data.scores:
                made.append(data)
                continue
            begun = False

            def told(done: int, total: int, name: str = data.name) -> None:
                nonlocal begun
                if not begun:
                    watch.phase(f"Asking the judge about {name}", total)
                    begun = True
                watch.done(done)

            made.append(judged(data, judge, folder=folder, progress=told))
    return made
