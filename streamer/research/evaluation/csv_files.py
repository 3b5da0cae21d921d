"""The paper's two CSV files: one row a response, one row a data set. Columns are stable; docs/evaluation.md has them."""

import io
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from streamer.clouds.compared_methods import DELTA, DRAWS, ETA
from streamer.labels.judge.parsing import ASPECT_NAMES
from streamer.research.evaluation.data_sets import DataSet
from streamer.research.evaluation.results import DataSetResult, Evaluation
from streamer.scoring.blank import is_blank
from streamer.scoring.registry import GRAM
from streamer.security.csv_cells import CsvTable


def responses_csv(evaluation: Evaluation, data_sets: Sequence[DataSet]) -> str:
    """Write one row for each response: severity, Gram energies, the judge's marks, every other score; no texts."""
    others = list(
        dict.fromkeys(
            name for result in evaluation.data_sets for name in result.scorers if name not in (GRAM, "judge")
        )
    )
    return _csv(row for data in data_sets for row in _response_rows(data, others))


def _response_rows(data: DataSet, others: Sequence[str]) -> Iterator[dict[str, object]]:
    for place, cloud in enumerate(data.clouds):
        gram = data.scores[GRAM][place]
        median = None if gram is None else statistics.median(score for score in gram if score is not None)
        for position, response in enumerate(cloud.responses):
            marks = data.subscores[place][position] if data.subscores else None
            energy = None if gram is None else gram[position]
            blank = is_blank(response.text)
            yield {
                "data_set": data.name,
                "question_id": cloud.question_id,
                "response_id": response.id,
                "position": position,
                "model": response.meta.get("model"),
                "severity": response.severity,
                "severity_kind": response.kind,
                "blank": int(blank),
                "gram_energy": energy,
                "gram_energy_raw": None
                if energy is None
                else raw_energy(energy, len(cloud.responses), blank=blank),
                "queue_median": None if median is None else round(median, 6),
                "judge_score": _score(data, "judge", place, position),
                **{f"judge_{name}": None if marks is None else marks.get(name) for name in ASPECT_NAMES},
                **{f"score_{name}": _score(data, name, place, position) for name in others},
            }


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
    return _csv(
        _parameter_row(evaluation, result, data)
        for result, data in zip(evaluation.data_sets, data_sets, strict=True)
    )


def _parameter_row(evaluation: Evaluation, result: DataSetResult, data: DataSet) -> dict[str, object]:
    options = evaluation.options
    return {
        "data_set": result.name,
        "source": result.source,
        "sha256": result.digest,
        "questions": result.questions,
        "responses": result.responses,
        "responses_fewest": result.fewest,
        "responses_most": result.most,
        "unlabelled": result.unlabelled,
        "blank": result.blank,
        "severity_kind": result.severity_kind,
        "models": _stated(data, "model"),
        "temperatures": _stated(data, "temperature"),
        "encoder": result.encoder,
        "judge": result.judge,
        "alphas": " ".join(f"{alpha:g}" for alpha in options.alphas),
        "units": " ".join(result.mean_severity),
        "splits": options.splits,
        "first_seed": options.seed,
        "calibrating_questions": result.calibrating,
        "eta": ETA,
        "draws": DRAWS,
        "delta": DELTA,
        "version": evaluation.version,
        "key": evaluation.key,
    }


def _stated(data: DataSet, name: str) -> str:
    """What the file says of its responses, the most frequent first; at most eight values."""
    values = Counter(
        str(response.meta[name])
        for cloud in data.clouds
        for response in cloud.responses
        if response.meta.get(name) is not None
    )
    return "; ".join(value for value, _ in values.most_common(8))


def _csv(rows: Iterable[dict[str, object]]) -> str:
    """Write rows of the same columns, at least one."""
    text = io.StringIO()
    table = CsvTable(text)
    for number, row in enumerate(rows):
        if not number:
            table.write(row)
        table.write(row.values())
    return text.getvalue()
