"""The folder of an evaluation: the report, tables, the paper's CSV files and the results themselves."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from streamer.errors import UsageError, why
from streamer.research.evaluation.csv_files import parameters_csv, responses_csv
from streamer.research.evaluation.data_sets import DataSet
from streamer.research.evaluation.results import Evaluation
from streamer.research.evaluation.run import ProgressWatch
from streamer.research.evaluation.tables import markdown


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

    Raises
    ------
    UsageError
        If the folder cannot be written to.
    """
    watch.phase("Writing the report")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = _contents(evaluation, data_sets)
        for name, content in written.items():
            write_file(folder / name, content)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror or error}") from error
    return [folder / name for name in written]


def _contents(evaluation: Evaluation, data_sets: Sequence[DataSet]) -> dict[str, bytes]:
    from streamer.research.evaluation.page import command, render_page

    head = (
        "# Evaluation\n\n"
        f"```sh\n{command(evaluation)}\n```\n\n"
        "Means over splits. ± is a standard error for other questions like these, sd × √(1/splits + measured/calibrating); SE is "
        "sd / √splits, for this data set. The unit of the paper's tables is `response`.\n\n"
    )
    return {
        "report.html": render_page(evaluation).encode(),
        "tables.md": (head + markdown(evaluation)).encode(),
        "responses.csv": responses_csv(evaluation, data_sets).encode(),
        "parameters.csv": parameters_csv(evaluation, data_sets).encode(),
        "results.json": msgspec.json.format(msgspec.json.encode(evaluation), indent=1) + b"\n",
    }


def write_file(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all."""
    unfinished = path.with_name(f".{path.name}.part")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
