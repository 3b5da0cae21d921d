"""A copy of this checkout, as a fresh clone would have it."""

import shutil
import sys
from pathlib import Path

from tests import programs

ROOT = Path(__file__).parents[1]


def tracked() -> list[str]:
    """The paths of the files that git tracks, or would track, and that are there."""
    listed = programs.run("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", cwd=ROOT)
    return [name for name in listed.stdout.split("\0") if (ROOT / name).is_file()]


def copy_checkout(folder: Path) -> Path:
    """Copy what git tracks, or would track, into `folder`, beside a command `streamer` that runs the copy's code.

    The byte-code of the package comes along, and what import-linter keeps of it: both hold for a file as old and as long,
    and making them anew takes longer than most that is done in a copy. A file that is changed there is compiled again.
    """
    for name in tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    for kept in (*(ROOT / "streamer").rglob("__pycache__"), ROOT / ".import_linter_cache"):
        if kept.is_dir() and (beside := folder / kept.relative_to(ROOT)).parent.is_dir():
            shutil.copytree(kept, beside, ignore=shutil.ignore_patterns("*.pyc.*"))
    program = folder / ".venv" / "bin" / "streamer"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m streamer "$@"\n')
    program.chmod(0o755)
    return folder
