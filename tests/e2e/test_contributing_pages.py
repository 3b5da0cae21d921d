"""The pages "how to add", done as they say: their steps are applied to a copy of the repository, and their commands run."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests import programs
from tests.checkout import ROOT, copy_checkout
from tests.machine import LONG
from tests.run_folder import RUN_FOLDER

PAGES = ROOT / "docs" / "contributing"


def steps(page: Path) -> list[tuple[str, str, str]]:
    """The blocks of a page in order: language, file (where it is one), content."""
    return re.findall(
        r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )


def change(path: Path, diff: str) -> None:
    """Make the changes of a block: hunks between lines `@@`, each of which must fit in exactly one place."""
    whole = path.read_text("utf-8")
    for hunk in diff.split("@@\n"):
        lines = hunk.splitlines()
        before, after = (
            "".join(f"{line[1:]}\n" for line in lines if line[:1] in kinds)
            for kinds in ((" ", "-"), (" ", "+"))
        )
        assert whole.count(before) == 1, f"{path.name} has this {whole.count(before)} times:\n{before}"
        whole = whole.replace(before, after)
    path.write_text(whole, "utf-8")


NAMES = ["calibrator", "command", "scorer", "severity-kind", "table", "topic"]


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    "names", [["setting"], ["column"], *([[name] for name in NAMES] if LONG else [NAMES])], ids="-".join
)
def test_doing_what_the_pages_say(names: list[str], tmp_path: Path):
    """With `make faults` each in a copy of its own; else most in one copy, where each command runs once."""
    copy = copy_checkout(tmp_path / "copy")
    bin_ = Path(sys.executable).parent
    # The copy's own code, also where a program is installed for the checkout.
    environment = os.environ | {
        "PATH": f"{copy / '.venv' / 'bin'}:{bin_}:{os.environ['PATH']}",
        "PYTHONPATH": f"{copy}:{copy / 'packages' / 'client'}:{copy / 'packages' / 'verify'}",
    }
    environment.pop(RUN_FOLDER, None)  # its tables are the copy's, too
    commands: list[str] = []
    for name in names:
        before = len(commands)
        for language, file, text in steps(PAGES / f"{name}.md"):
            if language == "diff":
                change(copy / file, text)
            elif file:
                assert not (copy / file).exists(), f"{file} is there already: the page adds it"
                (copy / file).parent.mkdir(parents=True, exist_ok=True)
                (copy / file).write_text(text, "utf-8")
            else:
                assert language == "sh"
                commands += text.splitlines()
        assert len(commands) > before, f"{name} runs nothing"
    # What writes files goes first, and first of it what the others read.
    first = ("python -m verifiers.", "python -m ")
    for command in sorted(
        dict.fromkeys(commands), key=lambda one: [not one.startswith(two) for two in first]
    ):
        programs.run("bash", "-euo", "pipefail", "-c", command, seconds=600, cwd=copy, env=environment)


def test_every_page_is_linked():
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for page in PAGES.glob("*.md"):
        assert f"docs/contributing/{page.name}" in contributing
