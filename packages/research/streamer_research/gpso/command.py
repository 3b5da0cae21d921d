"""`streamer gpso`: the paper's classifier on labelled response clouds, compared with the usual first choices."""

from dataclasses import asdict, dataclass
from pathlib import Path

from streamer import wiring
from streamer.cli.console import note, print_json, print_table, progress, say
from streamer.cli.options import JsonOption, argument, flag, in_groups, names, option
from streamer.clouds.cloud import Cloud
from streamer.errors import UsageError, why
from streamer.settings.settings import Settings
from streamer_research.gpso.options import StudyOptions
from streamer_research.gpso.study import GpsoStudy

_WRITTEN = ("gpso.json", "gpso.csv", "gpso-batches.csv", "gpso.md")


@dataclass(frozen=True, slots=True)
class ClassifierOptions:
    """The classifier."""

    pipeline: str = option(
        "A|B|C|D|all",
        "A: unit rows, centred; B: unit rows; C: centred; D: neither. Several with commas.",
        "all",
    )
    replicates: int = option("B", "Bootstrap replicates of a prototype.", 8)
    max_rank: int = option("R", "Largest rank that the eigengap may choose.", 8)


@dataclass(frozen=True, slots=True)
class ProtocolOptions:
    """How the classifier is tested."""

    splits: int = option("N", "Splits of each question.", 5)
    loo: bool = flag("--loo/--no-loo", "Also leave questions out and calibrate on the others.", True)
    folds: int = option("N", "Leave questions out in at most this many groups; 0: one by one.", 100)
    equal_sizes: bool = flag(
        "--equal-sizes/--all-held-out",
        "Classify batches of one size, or all that is held out, as the paper does (batch sizes then give the class away).",
        True,
    )
    distinct: bool = flag(
        "--distinct/--all-texts", "Use a text once per question: copies of training texts are easily judged."
    )
    min_per_class: int = option(
        "N", "Responses that a question needs in each class; with fewer it is skipped and counted.", 3
    )
    seed: int = option("S", "Seed of splits, folds and bootstrap.", 0, min=0, max=2**63 - 1)


@in_groups
def gpso(
    files: list[Path] = argument(
        "FILE", "Response clouds with severities, .jsonl or .jsonl.gz, or - for standard input."
    ),
    cut: float = option(
        "S",
        "A response with a severity of at most this is good, any other bad. Choose it before you look.",
        0.5,
    ),
    *,
    classifier: ClassifierOptions,
    protocol: ProtocolOptions,
    out: Path | None = option(
        "DIR", "Write gpso.json, gpso.csv, gpso-batches.csv and gpso.md into this folder."
    ),
    json: JsonOption = False,
) -> None:
    """Classify responses as good or bad by the subspaces that their embeddings span (the paper's GPSO).

    GPSO learns from severities; gates do not use it. Logistic regression and the nearest class mean get the same
    splits. Embeddings are kept in .streamer/embeddings, where `streamer evaluate` keeps its own: a second run is quick.
    """
    from streamer_research.gpso.options import StudyOptions
    from streamer_research.gpso.tables import NOTES, study_json

    options = StudyOptions(
        cut=cut,
        pipelines=_pipelines(classifier.pipeline),
        replicates=classifier.replicates,
        rank_cap=classifier.max_rank,
        **asdict(protocol) | {"folds": protocol.folds or None},
    )
    settings = wiring.load_settings()
    names = _names(files)
    clouds = {name: _labelled(path) for name, path in names.items()}
    if out is not None:
        _make_folder(out)
    studies = {}
    for name, read in clouds.items():
        studies[name] = _study(settings, name, read, options)
        if not json:
            _print(name, studies[name])
    if json:
        print_json([{"file": name, **study_json(study)} for name, study in studies.items()])
    else:
        say(NOTES)
    if out is not None:
        _write(out, studies)
        note(f"wrote gpso.json, gpso.csv, gpso-batches.csv and gpso.md into {out}")


def _pipelines(text: str) -> tuple[str, ...]:
    from streamer_research.gpso.scatter import PIPELINES

    if text.strip().lower() == "all":
        return tuple(PIPELINES)
    # In the paper's order; what is not a pipeline stays, to be named by the complaint.
    return tuple(sorted(names(text, "--pipeline", spelt=lambda part: part.strip().upper())))


def _names(files: list[Path]) -> dict[str, Path]:
    """Name each file by the last part of its path, or by the whole where two share that."""
    short = [path.name.removesuffix(".gz").removesuffix(".jsonl") for path in files]
    names = {
        (name if short.count(name) == 1 else str(path)): path for name, path in zip(short, files, strict=True)
    }
    if len(names) < len(files):
        raise UsageError("a file is named twice")
    return names


def _labelled(path: Path) -> "list[Cloud]":
    """Read a file whose severities are of one kind. Raises `UsageError`, with the file's name and the line."""
    from streamer.clouds.cloud import NOT_KEPT, severity_kind
    from streamer.clouds.cloud_files import read_clouds
    from streamer.clouds.tables.answers import Reading

    clouds = list(read_clouds(path, Reading(trust_score=True), report=note))
    if any(r.text == NOT_KEPT and r.embedding is None for cloud in clouds for r in cloud.responses):
        raise UsageError(f"{path} has neither texts nor embeddings, and GPSO learns from embeddings")
    try:
        severity_kind(clouds)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return clouds


def _study(settings: "Settings", name: str, clouds: "list[Cloud]", options: "StudyOptions") -> "GpsoStudy":
    import numpy as np

    from streamer_research.gpso.embeddings import stored_encoder
    from streamer_research.gpso.selection import cloud_embeddings, select
    from streamer_research.gpso.study import gpso_study

    try:
        # Before the encoder is loaded: what is wrong with the labels is reported at once.
        select(clouds, [np.zeros((len(cloud.responses), 1), dtype=np.float32) for cloud in clouds], options)
        texts = {text for cloud in clouds for text in cloud.texts}
        with progress(f"{name}: embedding", len(texts)) as advance:
            rows = cloud_embeddings(
                clouds,
                lambda asked: stored_encoder(settings, progress=lambda done, _: advance(done)).rows(asked),
            )
        rounds = {"within": 0, "across": len(clouds)}
        with progress(f"{name}: judging", len(clouds) * (1 + options.loo)) as advance:
            return gpso_study(
                clouds,
                rows,
                options,
                progress=lambda protocol, done: advance(rounds[protocol] + done),
            )
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def _print(name: str, study: "GpsoStudy") -> None:
    from streamer_research.gpso import tables

    say(name)
    for line in tables.selection_lines(study):
        say(f"  {line}")
    for protocol, task in tables.sections(study):
        rows = tables.section_rows(study, protocol, task)
        say("")
        title = tables.section_title(study, protocol, task)
        if not rows:
            say(title)
            continue
        narrow = [line[: len(tables.PLAIN_HEADS)] for line in tables.cells(rows)]
        print_table(tables.PLAIN_HEADS, narrow, title=title)
        if task == "batch":
            say("")
            print_table(
                tables.DIAGNOSTIC_HEADS,
                tables.diagnostic_cells(rows),
                title="Diagnostics, means over batches",
            )
        say("")
        print_table(tables.AGAINST_HEADS, tables.against_cells(rows), title="Differences on the same splits")
    say("")


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {out}: {why(error)}") from error
    for file in _WRITTEN:
        if (out / file).is_dir():
            raise UsageError(f"{out / file} is a folder; name another --out")


def _write(out: Path, studies: "dict[str, GpsoStudy]") -> None:
    import json

    from streamer_research.gpso import tables

    texts = (
        json.dumps([{"file": name, **tables.study_json(study)} for name, study in studies.items()], indent=1)
        + "\n",
        tables.figures_csv(studies),
        tables.batches_csv(studies),
        tables.markdown(studies),
    )
    unfinished = [out / f".{file}.part" for file in _WRITTEN]
    try:
        for part, text in zip(unfinished, texts, strict=True):
            part.write_text(text, encoding="utf-8")
        for part, file in zip(unfinished, _WRITTEN, strict=True):
            part.replace(out / file)
    except OSError as error:
        raise UsageError(f"cannot write into {out}: {error.strerror or error}") from error
    finally:
        for part in unfinished:
            part.unlink(missing_ok=True)
