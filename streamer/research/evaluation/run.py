"""One evaluation: data sets in, every figure out; what is known already is not computed again."""

import hashlib
import multiprocessing
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Protocol

import msgspec
import numpy as np

from streamer.calibration import groups_needed
from streamer.clouds.halves import Halves, seeded_splits
from streamer.clouds.offline import ScoredCloud, measured_units
from streamer.clouds.sentence import graded, percent
from streamer.clouds.unlabelled import check_unlabelled
from streamer.errors import UsageError
from streamer.gates.declared import Unit
from streamer.research.evaluation.data_sets import OWN_SCORE, DataSet
from streamer.research.evaluation.measures import (
    JUDGE,
    RUNS,
    calibrator_rows,
    mode_rows,
    ranking_rows,
    scorer_rows,
    stability_rows,
)
from streamer.research.evaluation.results import (
    DataSetResult,
    Evaluation,
    GateRow,
    Options,
    RankingRow,
    ScorerRow,
    StabilityRow,
)
from streamer.research.evaluation.words import UNITS
from streamer.scoring.judged import form
from streamer.scoring.plugins import entry_points
from streamer.scoring.registry import GRAM, LIKELIHOOD, SCORER_NAMES
from streamer.scoring.signals.signal_list import SignalList


def side_processes(count: int) -> ProcessPoolExecutor:
    """Return `count` new interpreters that take work, and that end when this process does, however it ends.

    New ones, because an encoder's threads do not survive a fork.
    """
    return ProcessPoolExecutor(
        count, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent
    )


def _end_with_parent() -> None:
    # A worker of a pool whose owner was killed waits for work forever: it holds the other end of its queue itself.
    threading.Thread(target=_await_parent, daemon=True).start()


def _await_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


MOST_MISSING = 0.5
"""Share of units without a severity above which figures that count them as 1 would say nothing."""
LEAST_LABELLED = 20
"""Questions that are left, at least, where those without a severity are left out: each half needs some."""


class ProgressWatch(Protocol):
    """What receives progress."""

    def phase(self, name: str, total: int | None = None) -> None:
        """Begin a part in which `total` things will be done."""

    def done(self, count: int) -> None:
        """Say how many things of this part are done."""


class NoWatch:
    """Progress goes nowhere."""

    def phase(self, name: str, total: int | None = None) -> None:
        """Say nothing."""

    def done(self, count: int) -> None:
        """Say nothing."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What one process computes at a time: one data set under one unit."""

    data_set: int
    unit: Unit
    scored: Mapping[str, Sequence[ScoredCloud]]
    chosen: tuple[ScoredCloud, ...]
    options: Options


@dataclass(frozen=True, slots=True)
class _Found:
    """The rows of a part, in the order of `DataSetResult`."""

    gates: tuple[GateRow, ...]
    stability: tuple[StabilityRow, ...]
    ranking: tuple[RankingRow, ...]
    compared: tuple[ScorerRow, ...]
    mean_severity: float


def check_options(options: Options) -> Options:
    """Return the options with budgets rising and names in order, or raise `UsageError`."""
    for alpha in options.alphas:
        if not 0 < alpha < 1:
            raise UsageError(f"a budget must be between 0 and 1, both excluded, not {alpha:g}")
    if not options.alphas:
        raise UsageError("there must be at least one budget")
    if options.splits < 2:
        raise UsageError(f"{options.splits} split is too few: a spread needs two")
    if options.seed < 0:
        raise UsageError(f"the seed must be 0 or more, not {options.seed}")
    for unit in options.units:
        if unit not in UNITS:
            raise UsageError(f"a unit is one of {', '.join(UNITS)}, not {unit!r}")
    names = (*SCORER_NAMES, *packages_of(options))
    wanted = (set(names) if "all" in options.scorers else set()) | (set(options.scorers) - {"all"}) | {GRAM}
    if unknown := sorted(wanted - set(names)):
        raise UsageError(
            f"there is no scorer {', '.join(unknown)}: name some of {', '.join(SCORER_NAMES)}, one of "
            "an installed package (`streamer scorer list`), or all"
        )
    if options.method not in RUNS:
        raise UsageError(f"scores are compared by one of {', '.join(RUNS)}, not {options.method!r}")
    check_unlabelled(options.unlabelled)
    try:
        SignalList(declared=options.signals, models=options.models)
        judged = tuple(one if one == "all" else form(one).text for one in options.judged)
    except ValueError as error:
        raise UsageError(str(error)) from None
    taken = sorted(set(options.external) & {*names, JUDGE, OWN_SCORE, LIKELIHOOD})
    if taken:
        raise UsageError(f"{', '.join(taken)} is the name of a scorer; call the field in meta something else")
    return replace(
        options,
        judged=judged,
        alphas=tuple(sorted(set(options.alphas))),
        units=tuple(unit for unit in UNITS if unit in options.units) or Options().units,
        scorers=tuple(name for name in names if name in wanted),
        external=tuple(dict.fromkeys(options.external)),
    )


def packages_of(options: Options) -> tuple[str, ...]:
    """Return the scorers of installed packages that are named, in order; ``all`` stands for all that are installed."""
    named = set(options.scorers) - set(SCORER_NAMES)
    return tuple(name for name in sorted(entry_points()) if name in named or "all" in named) if named else ()


def evaluate_data_sets(
    data_sets: Sequence[DataSet],
    options: Options,
    *,
    processes: int = 1,
    watch: ProgressWatch | None = None,
) -> Evaluation:
    """Compute every figure of data sets that have their scores.

    `data_sets`: at least one, under names of their own, each with the scores of `options.scorers`.
    `processes`: that compute side by side; 1: this one alone.
    """
    options = check_options(options)
    watch = watch or NoWatch()
    units = [_units(data, options) for data in data_sets]
    parts = [
        _Part(
            place,
            unit,
            {name: data.scored(name) for name in _scorers(data, options)},
            data.chosen.get(unit, ()),
            options,
        )
        for place, data in enumerate(data_sets)
        for unit in units[place][0]
    ]
    watch.phase("Calibrating on seeded halves", len(parts))
    found = _computed(parts, processes, watch)
    results = tuple(
        _result(
            data,
            options,
            notes,
            [(unit, found[place, unit]) for unit in wanted],
        )
        for place, (data, (wanted, notes)) in enumerate(zip(data_sets, units, strict=True))
    )
    return Evaluation(
        key=results_key(data_sets, options),
        version=version("conformal-streamer"),
        options=options,
        data_sets=results,
    )


def results_key(data_sets: Sequence[DataSet], options: Options) -> str:
    """Return SHA-256, hexadecimal, of the data, their scores and the options."""
    content = [
        options,
        [
            [
                data.name,
                data.source,
                data.digest,
                data.encoder,
                data.judge,
                data.notes,
                data.scores,
                [
                    (one.scores, None if one.row is None else one.row.tobytes())
                    for some in data.chosen.values()
                    for one in some
                ],
            ]
            for data in data_sets
        ],
    ]
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()


def _scorers(data: DataSet, options: Options) -> list[str]:
    own = [name for name in (JUDGE, OWN_SCORE, LIKELIHOOD) if name in data.scores]
    names = [name for name in options.scorers if name in data.scores and name not in own]
    return [*names, *own, *options.external]


def _units(data: DataSet, options: Options) -> tuple[list[Unit], tuple[str, ...]]:
    """The units that there are labels for, and a note on each that there are not."""
    wanted: list[Unit] = []
    notes: list[str] = []
    scored = data.scored(GRAM)
    for unit in UNITS:
        if unit not in options.units:
            continue
        units = measured_units(scored, unit)
        missing, why = float(units.unlabelled.mean()), None
        if options.unlabelled == "drop":
            left = len(np.unique(units.labelled().batch))
            if missing and left < LEAST_LABELLED:
                why = f"only {left} questions have a severity for what it ships or holds, and {LEAST_LABELLED} are needed."
        elif missing > MOST_MISSING:
            why = (
                f"{missing:.0%} of what it ships or holds has no severity, and figures in which most count as 1 would say "
                "nothing."
            )
        if why is None:
            wanted.append(unit)
        else:
            notes.append(f"Unit {unit} is left out: {why}")
    if not wanted:
        raise UsageError(
            f"{data.source}: too few severities for any unit. {' '.join(notes)} Label more responses and run again"
        )
    return wanted, tuple(notes)


def check_data_set(data: DataSet, options: Options) -> None:
    """Refuse a data set that cannot be evaluated, before anything is encoded: too few severities, or no log-probabilities.

    Raises `UsageError` when it is certain that no unit could be evaluated.
    """
    labelled = sum(any(one is not None for one in cloud.severities) for cloud in data.clouds)
    answers = sum(len(cloud.responses) for cloud in data.clouds)
    if options.unlabelled == "drop":
        useless = labelled < min(LEAST_LABELLED, len(data.clouds))
        why = f"only {labelled} of {len(data.clouds)} questions have any, and {LEAST_LABELLED} are needed"
    else:
        enough = {
            "best": labelled >= (1 - MOST_MISSING) * len(data.clouds),
            "response": data.unlabelled <= MOST_MISSING * answers,
            "batch": data.unlabelled <= MOST_MISSING * answers,
        }
        useless = not any(enough[unit] for unit in options.units)
        why = (
            f"{answers - data.unlabelled} of {answers} answers have one, and {labelled} of {len(data.clouds)} questions "
            "have any; figures in which most count as 1 would say nothing"
        )
    if useless:
        raise UsageError(
            f"{data.source}: too few severities for any unit: {why}. Label more answers and run again"
        )


def _computed(parts: Sequence[_Part], processes: int, watch: ProgressWatch) -> dict[tuple[int, str], _Found]:
    found: dict[tuple[int, str], _Found] = {}
    if processes <= 1 or len(parts) == 1:
        for number, part in enumerate(parts, start=1):
            found[part.data_set, part.unit] = _compute(part)
            watch.done(number)
        return found
    # The largest first.
    order = sorted(parts, key=_weight, reverse=True)
    with side_processes(min(processes, len(parts))) as pool:
        jobs = {pool.submit(_compute, part): part for part in order}
        for number, job in enumerate(as_completed(jobs), start=1):
            part = jobs[job]
            found[part.data_set, part.unit] = job.result()
            watch.done(number)
    return found


def _weight(part: _Part) -> int:
    clouds = part.scored[GRAM]
    return sum(len(item.cloud.responses) for item in clouds) if part.unit == "response" else len(clouds)


def _compute(part: _Part) -> _Found:
    options, unit = part.options, part.unit
    seeds = range(options.seed, options.seed + options.splits)
    splits = seeded_splits([item.cloud for item in part.scored[GRAM]], seeds)
    drop = options.unlabelled == "drop"
    at = partial(Halves.at, unit=unit, splits=splits, drop_unlabelled=drop)
    halves = {name: at(clouds) for name, clouds in part.scored.items()}
    full = at(part.chosen) if part.chosen else None
    return _Found(
        gates=(
            *mode_rows(halves, unit, alphas=options.alphas),
            *calibrator_rows(halves[GRAM], unit, alphas=options.alphas, full=full),
        ),
        stability=tuple(stability_rows(halves[GRAM], alphas=options.alphas) if unit == "response" else ()),
        ranking=tuple(ranking_rows(part.scored, unit, seed=options.seed, drop_unlabelled=drop)),
        compared=tuple(scorer_rows(halves, unit, alphas=options.alphas, method=options.method, full=full)),
        mean_severity=float(
            measured_units(part.chosen or part.scored[GRAM], unit, drop_unlabelled=drop).severities.mean()
        ),
    )


def _result(
    data: DataSet, options: Options, notes: tuple[str, ...], found: Sequence[tuple[str, _Found]]
) -> DataSetResult:
    sizes = [len(cloud.responses) for cloud in data.clouds]
    calibrating = len(data.clouds) // 2
    infeasible = [alpha for alpha in options.alphas if groups_needed(alpha) > calibrating]
    if infeasible:
        listed = ", ".join(f"{groups_needed(alpha)} at {alpha:g}" for alpha in infeasible)
        notes = (
            *notes,
            f"{calibrating} {'question calibrates' if calibrating == 1 else 'questions calibrate'}, and the guarantee needs {listed}: "
            "there nothing ships, whatever the answers are.",
        )
    if data.encoder is not None and data.unread:
        notes = (
            f"{percent(data.unread / len(sizes))} of your prompts have answers that the encoder cannot read; a cut holds these, and a gate "
            "of all signals does until 20 labelled prompts of their kind say what they are worth. Shorten them, or take an encoder for "
            "their length or language (docs/encoders.md).",
            *notes,
        )
    return DataSetResult(
        name=data.name,
        source=data.source,
        judged=data.form.text,
        digest=data.digest,
        questions=len(sizes),
        responses=sum(sizes),
        fewest=min(sizes),
        most=max(sizes),
        calibrating=calibrating,
        severity_kind=data.severity_kind,
        unlabelled=data.unlabelled,
        blank=data.blank,
        mean_severity={unit: one.mean_severity for unit, one in found},
        encoder=data.encoder,
        judge=data.judge,
        scorers=tuple(_scorers(data, options)),
        notes=(
            *data.notes,
            *notes,
            *filter(None, [graded(one for cloud in data.clouds for one in cloud.severities)]),
        ),
        **{
            name: tuple(row for _, one in found for row in getattr(one, name))
            for name in ("gates", "stability", "ranking", "compared")
        },
    )
