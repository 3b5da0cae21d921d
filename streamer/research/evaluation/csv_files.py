"""The paper's two CSV files: one row a response, one row a data set. Columns are stable; docs/evaluation.md has them."""

from __future__ import annotations

import io
import statistics
from collections import Counter
from typing import TYPE_CHECKING

from streamer.labels.judge.parsing import ASPECT_NAMES
from streamer.scoring.blank import is_blank
from streamer.scoring.registry import GRAM
from streamer.security.csv_cells import CsvTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamer.research.evaluation.data_sets import DataSet
    from streamer.research.evaluation.results import DataSetResult, Evaluation

RESPONSE_COLUMNS = (
    "data_set",
    "question_id",
    "response_id",
    "position",
    "model",
    "severity",
    "severity_kind",
    "blank",
    "gram_energy",
    "gram_energy_raw",
    "queue_median",
    "judge_score",
    *(f"judge_{name}" for name in ASPECT_NAMES),
)
"""Columns of ``responses.csv``; ``score_NAME`` for every other scorer follows."""

PARAMETER_COLUMNS = (
    "data_set",
    "source",
    "sha256",
    "questions",
    "responses",
    "responses_fewest",
    "responses_most",
    "unlabelled",
    "blank",
    "severity_kind",
    "models",
    "temperatures",
    "encoder",
    "judge",
    "alphas",
    "units",
    "splits",
    "first_seed",
    "calibrating_questions",
    "eta",
    "draws",
    "delta",
    "version",
    "key",
)
"""Columns of ``parameters.csv``."""


def responses_csv(evaluation: Evaluation, data_sets: Sequence[DataSet]) -> str:
    """Write one row for each response: severity, Gram energies, the judge's marks, every other score; no texts."""
    others = list(
        dict.fromkeys(
            name for result in evaluation.data_sets for name in result.scorers if name not in (GRAM, "judge")
        )
    )
    rows = (row for data in data_sets for row in _response_rows(data, others))
    return _csv((*RESPONSE_COLUMNS, *(f"score_{name}" for name in others)), rows)


def _response_rows(data: DataSet, others: Sequence[str]) -> Iterator[list[object]]:
    for place, cloud in enumerate(data.clouds):
        gram = data.scores[GRAM][place]
        median = None if gram is None else statistics.median(score for score in gram if score is not None)
        for position, response in enumerate(cloud.responses):
            marks = data.subscores[place][position] if data.subscores else None
            energy = None if gram is None else gram[position]
            blank = is_blank(response.text)
            yield [
                data.name,
                cloud.question_id,
                response.id,
                position,
                response.meta.get("model"),
                response.severity,
                response.kind,
                int(blank),
                energy,
                None if energy is None else raw_energy(energy, len(cloud.responses), blank=blank),
                None if median is None else round(median, 6),
                _score(data, "judge", place, position),
                *(None if marks is None else marks.get(name) for name in ASPECT_NAMES),
                *(_score(data, name, place, position) for name in others),
            ]


def raw_energy(score: float, n: int, *, blank: bool) -> float:
    """Return the paper's E of a leave-one-out energy q of n responses: sqrt((1 + (n - 1) q^2) / n), to six digits.

    A blank answer has no direction and agrees with nobody: 0.
    """
    return 0.0 if blank else float(round(((1 + (n - 1) * score * score) / n) ** 0.5, 6))


def _score(data: DataSet, name: str, place: int, position: int) -> float | None:
    scores = data.scores.get(name)
    one = None if scores is None else scores[place]
    return None if one is None else one[position]


def parameters_csv(evaluation: Evaluation, data_sets: Sequence[DataSet]) -> str:
    """Write one row for each data set: what it is and what was done with it."""
    rows = (
        _parameter_row(evaluation, result, data)
        for result, data in zip(evaluation.data_sets, data_sets, strict=True)
    )
    return _csv(PARAMETER_COLUMNS, rows)


def _parameter_row(evaluation: Evaluation, result: DataSetResult, data: DataSet) -> list[object]:
    from streamer.research.experiments.compared_methods import DELTA, DRAWS, ETA

    options = evaluation.options
    return [
        result.name,
        result.source,
        result.digest,
        result.questions,
        result.responses,
        result.fewest,
        result.most,
        result.unlabelled,
        result.blank,
        result.severity_kind,
        _stated(data, "model"),
        _stated(data, "temperature"),
        result.encoder,
        result.judge,
        " ".join(f"{alpha:g}" for alpha in options.alphas),
        " ".join(result.mean_severity),
        options.splits,
        options.seed,
        result.calibrating,
        ETA,
        DRAWS,
        DELTA,
        evaluation.version,
        evaluation.key,
    ]


def _stated(data: DataSet, name: str) -> str:
    """What the file says of its responses, the most frequent first; at most eight values."""
    values = Counter(
        str(response.meta[name])
        for cloud in data.clouds
        for response in cloud.responses
        if response.meta.get(name) is not None
    )
    return "; ".join(value for value, _ in values.most_common(8))


def _csv(columns: Sequence[str], rows: Iterator[list[object]]) -> str:
    text = io.StringIO()
    table = CsvTable(text)
    table.write(columns)
    for row in rows:
        table.write(row)
    return text.getvalue()
