"""The folder of an evaluation: the report, tables, figures, the paper's CSV files and the results themselves."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

import streamer
from streamer.errors import UsageError, why
from streamer.research.evaluation.csv_files import parameters_csv, responses_csv
from streamer.research.evaluation.data_sets import DataSet
from streamer.research.evaluation.results import Evaluation
from streamer.research.evaluation.run import ProgressWatch
from streamer.research.evaluation.tables import markdown
from streamer.research.evaluation.words import short_digest

LISTING = "contents.json"
"""Names what was written and its hashes, so that what is there already is not drawn again."""


class _Listing(msgspec.Struct):
    key: str
    files: dict[str, str]


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

    Files that an earlier run of the same wrote, and that are as it wrote them, are left as they are; those of an earlier
    run of something else, which this one has no use for, are removed.

    Raises
    ------
    UsageError
        If the folder cannot be written to.
    """
    key = hashlib.sha256(f"{evaluation.key}:{_own_digest()}".encode()).hexdigest()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        listing = _listing(folder)
        if listing is not None and listing.key == key and _whole(folder, listing.files):
            return [folder / name for name in listing.files]
        watch.phase("Writing the report")
        written = _contents(evaluation, data_sets)
        if listing is not None:
            _remove(folder, {name: listing.files[name] for name in listing.files.keys() - written.keys()})
        for name, content in written.items():
            _write(folder / name, content)
        hashes = {name: short_digest(content) for name, content in written.items()}
        _write(folder / LISTING, msgspec.json.format(msgspec.json.encode(_Listing(key, hashes)), indent=1))
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror or error}") from error
    return [folder / name for name in written]


def _contents(evaluation: Evaluation, data_sets: Sequence[DataSet]) -> dict[str, bytes]:
    # These take a second to import, and a run that finds everything written needs neither.
    from streamer.research.evaluation.figures import all_figures
    from streamer.research.evaluation.page import command, render_page

    pictures = all_figures(evaluation)
    head = (
        "# Evaluation\n\n"
        f"```sh\n{command(evaluation)}\n```\n\n"
        "Means over splits. ± is a standard error for other questions like these, sd × √(1/splits + measured/calibrating); SE is "
        "sd / √splits, for this data set. The unit of the paper's tables is `response`.\n\n"
    )
    return {
        "report.html": render_page(evaluation, pictures).encode(),
        "tables.md": (head + markdown(evaluation)).encode(),
        "responses.csv": responses_csv(evaluation, data_sets).encode(),
        "parameters.csv": parameters_csv(evaluation, data_sets).encode(),
        "results.json": msgspec.json.format(msgspec.json.encode(evaluation), indent=1) + b"\n",
        **pictures,
    }


def _listing(folder: Path) -> _Listing | None:
    try:
        return msgspec.json.decode((folder / LISTING).read_bytes(), type=_Listing)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _whole(folder: Path, files: Mapping[str, str]) -> bool:
    try:
        return all(short_digest((folder / name).read_bytes()) == digest for name, digest in files.items())
    except OSError:
        return False


def _remove(folder: Path, files: Mapping[str, str]) -> None:
    """Remove what an earlier evaluation wrote and this one does not, unless somebody has changed it."""
    for name, digest in files.items():
        path = folder / Path(name).name
        if path.is_file() and short_digest(path.read_bytes()) == digest:
            path.unlink()


def _write(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.part")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _own_digest() -> str:
    """A hash of what draws and writes: the results may be the same and the page another."""
    digest = hashlib.sha256()
    folder, root = Path(__file__).parent, Path(streamer.__file__).parent
    shared = [*(root / "dev" / "report").glob("*.py"), root / "web" / "plot.py", root / "web" / "look.py"]
    for path in sorted([*folder.glob("*.py"), *folder.glob("*.j2"), *shared]):
        digest.update(path.read_bytes())
    return digest.hexdigest()
