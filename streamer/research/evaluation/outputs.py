"""The folder of an evaluation: the report, tables, the paper's CSV files and the results themselves."""

import io
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from streamer.clouds.compared_methods import DELTA, DRAWS, ETA
from streamer.errors import UsageError, why
from streamer.labels.judge.parsing import ASPECT_NAMES
from streamer.research.evaluation.data_sets import DataSet
from streamer.research.evaluation.results import DataSetResult, Evaluation
from streamer.research.evaluation.run import ProgressWatch
from streamer.research.evaluation.tables import markdown
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
                else raw_energy(energy, len(cloud.samples.responses), blank=blank),
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


def writable_folder(folder: Path) -> Path:
    """Return the folder, made if it was not there. Raises `UsageError` if it cannot be made or written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {why(error)}; name another folder") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write to {folder}: permission denied; name another folder")
    return folder


def write_outputs(
    evaluation: Evaluation, data_sets: Sequence[DataSet], folder: Path, *, watch: ProgressWatch
) -> list[Path]:
    """Write everything to `folder`, making it; returns the paths.

    Raises `UsageError` if the folder cannot be written to.
    """
    watch.phase("Writing the report")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        from streamer.research.evaluation.page import command, render_page

        head = (
            "# Evaluation\n\n"
            f"```sh\n{command(evaluation)}\n```\n\n"
            "Means over splits. ± is a standard error for other questions like these, sd × √(1/splits + measured/calibrating); SE is "
            "sd / √splits, for this data set. The unit of the paper's tables is `response`.\n\n"
        )
        written = {
            "report.html": render_page(evaluation).encode(),
            "tables.md": (head + markdown(evaluation)).encode(),
            "responses.csv": responses_csv(evaluation, data_sets).encode(),
            "parameters.csv": parameters_csv(evaluation, data_sets).encode(),
            "results.json": msgspec.json.format(msgspec.json.encode(evaluation), indent=1) + b"\n",
        }
        for name, content in written.items():
            write_file(folder / name, content)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror or error}") from error
    return [folder / name for name in written]


def write_file(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all."""
    unfinished = path.with_name(f".{path.name}.part")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
