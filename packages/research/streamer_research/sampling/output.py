"""The files that a run leaves: response clouds, each file written whole or not at all."""

import gzip
import os
import re
from dataclasses import dataclass
from pathlib import Path

from streamer.errors import Unavailable, UsageError, named_beside
from streamer_research.sampling.clouds import make_clouds
from streamer_research.sampling.plan import SamplingPlan
from streamer_research.sampling.replies import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """One file of clouds.

    `path`: where it is. `clouds`, `answers`: how many it holds; where there are no clouds there is
    no file. `left_out`: prompts without a cloud: fewer than two answers, or (when the run was
    stopped) an incomplete one. `refused`, `empty`, `missing`: places of all its prompts without an
    answer. `cut_off`, `headless`: answers that ended at the most tokens, and those whose head is
    blank.
    """

    path: Path
    clouds: int
    answers: int
    left_out: int
    refused: int
    empty: int
    missing: int
    cut_off: int
    headless: int


def journal_path(out: Path) -> Path:
    """Where the journal of a run with this output is."""
    return named_beside(out, ".journal")


def cloud_paths(plan: SamplingPlan, out: Path) -> tuple[Path, ...]:
    """The files of a run: `out` itself, or for several arms with clouds of their own one file each beside it."""
    if plan.clouds_per_prompt == 1:
        return (out,)
    stem, dot, rest = out.name.partition(".")
    hosts = len({arm.host for arm in plan.arms}) > 1
    names = []
    for arm in plan.arms:
        parts = [_slug(arm.model), *([_slug(arm.host)] if hosts else []), f"t{arm.temperature:g}"]
        names.append(f"{stem}.{'.'.join(parts)}{dot}{rest}")
    if len(set(names)) < len(names):
        names = [f"{stem}.{i}{name.removeprefix(stem)}" for i, name in enumerate(names)]
    return tuple(out.with_name(name) for name in names)


def check_out(plan: SamplingPlan, out: Path) -> None:
    """Refuse an output that could not be written, or that would take the place of somebody's file.

    Raises `UsageError`.
    """
    if not out.parent.is_dir():
        raise UsageError(f"there is no folder {out.parent}; make it, or give another --out")
    if out.is_dir():
        raise UsageError(f"{out} is a folder; --out names a file")
    if out.exists() and not out.is_file():
        raise UsageError(f"{out} is a device or a pipe; --out names a file")
    if not journal_path(out).exists():
        for path in (out, *cloud_paths(plan, out)):
            if path.exists():
                raise UsageError(f"{path} exists already, without a journal; give another --out")


def write_clouds(
    plan: SamplingPlan, ledger: Ledger, out: Path, *, incomplete: bool = True
) -> tuple[WrittenFile, ...]:
    """Write what is there, each file in one step; names that end with ``.gz`` are compressed.

    `incomplete`: also write clouds of which answers are missing, if they have at least two. Raises
    `Unavailable`: the disk does not take it.
    """
    written = []
    for cloud, path in enumerate(cloud_paths(plan, out)):
        made = make_clouds(plan, ledger, cloud)
        kept = [one for one in made if one.line is not None and (incomplete or not one.missing)]
        if kept:
            _replace(path, "".join(f"{one.line}\n" for one in kept).encode("utf-8"))
        written.append(
            WrittenFile(
                path=path,
                clouds=len(kept),
                answers=sum(one.answers for one in kept),
                left_out=len(made) - len(kept),
                refused=sum(one.refused for one in made),
                empty=sum(one.empty for one in made),
                missing=sum(one.missing for one in made),
                cut_off=sum(one.cut_off for one in kept),
                headless=sum(one.headless for one in kept),
            )
        )
    return tuple(written)


def _replace(path: Path, whole: bytes) -> None:
    if path.suffix == ".gz":
        whole = gzip.compress(whole, mtime=0)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(whole)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise Unavailable(
            f"cannot write {path}: {error.strerror or error}; the journal holds every answer, and the same command "
            "writes the file again"
        ) from error


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model"
