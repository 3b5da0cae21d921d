"""The extras of pyproject.toml bring what the program imports, and whatever needs one names it."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from streamer.cli.app import app
from streamer.errors import UsageError
from streamer.extras import EXTRAS, needed_by
from streamer.labels.bertscore import BertScorer

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = PROJECT["optional-dependencies"]
IMPORTED = importlib.metadata.packages_distributions()
"""The distributions that bring each module."""


def brought(requirements: list[str]) -> set[str]:
    """The distributions that an installer would install for these requirements."""
    waiting, seen = [Requirement(text) for text in requirements], set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        for extra in ("", *wanted.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            if name == "conformal-streamer":
                texts = OPTIONAL[extra] if extra else PROJECT["dependencies"]
            else:
                texts = importlib.metadata.requires(name) or []
            needed = [Requirement(text) for text in texts]
            waiting += [one for one in needed if one.marker is None or one.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen}


def test_every_extra_but_all_is_in_the_table() -> None:
    assert set(OPTIONAL) == {*EXTRAS, "all"}
    (everything,) = OPTIONAL["all"]
    assert brought([everything]) == brought([f"conformal-streamer[{extra}]" for extra in EXTRAS])


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_what_is_imported_of_it_and_the_default_does_not(extra: str) -> None:
    having, default = brought([f"conformal-streamer[{extra}]"]), brought(["conformal-streamer"])
    for module in EXTRAS[extra]:
        by = {canonicalize_name(name) for name in IMPORTED[module]}
        assert by & having, module
        assert not by & default, module
    # and what is asked for by name is imported, or is there for the sake of another (click)
    asked = {canonicalize_name(Requirement(text).name) for text in OPTIONAL[extra]} - {"conformal-streamer"}
    used = {canonicalize_name(name) for module in EXTRAS[extra] for name in IMPORTED[module]}
    assert asked - used <= {"click"}


def test_whatever_is_imported_comes_by_default_or_is_in_the_table() -> None:
    """The contracts of pyproject.toml name everything that comes from outside; see test_contracts.py."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    imported = {
        pair.split(" -> ")[1] for contract in contracts for pair in contract.get("ignore_imports", ())
    }
    outside = {name for name in imported if not name.startswith("streamer")}
    default = brought(["conformal-streamer"])
    for module in outside - set().union(*EXTRAS.values()):
        assert {canonicalize_name(name) for name in IMPORTED[module]} & default, module


def importing(package: str) -> None:
    raise ModuleNotFoundError(f"No module named {package!r}", name=package)


def test_the_least_extra_is_named_unless_a_larger_one_is_known_to_be_needed() -> None:
    with (
        pytest.raises(
            UsageError,
            match=r"^it needs the package ctranslate2: pip install 'conformal-streamer\[encoder\]'$",
        ),
        needed_by("it"),
    ):
        importing("ctranslate2.specs")
    with (
        pytest.raises(UsageError, match=r"^all of it .*\[research\]'$"),
        needed_by("all of it", "research"),
        needed_by("it"),
    ):
        importing("tokenizers")
    with (
        pytest.raises(UsageError, match=r"^it .*\[sentence-transformers\]'$"),
        needed_by("all of it", "service"),
        needed_by("it"),
    ):
        importing("torch")


def test_what_no_extra_has_is_an_error_like_any_other() -> None:
    with pytest.raises(ModuleNotFoundError), needed_by("it", "worker"):
        importing("streamer.nothing")


def test_bertscore_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bert_score.utils", None)
    with pytest.raises(UsageError, match=r"pip install 'conformal-streamer\[bertscore\]'"):
        BertScorer("/nowhere")


def test_importing_these_parts_imports_no_model_library() -> None:
    code = """
import sys
import streamer.labels.bertscore, streamer.labels.severity
assert not {"torch", "transformers", "bert_score", "openai", "pandas"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)


def test_the_page_on_installing_has_every_extra_and_every_command_beside_its_own() -> None:
    lines = [
        line.split("|") for line in (ROOT / "docs" / "install.md").read_text().splitlines() if "|" in line
    ]
    jobs = {cells[2].strip(" `[]"): cells[1] for cells in lines}
    assert {*OPTIONAL, "no extra"} <= set(jobs)
    for name, command in typer.main.get_command(app).commands.items():
        assert f"`{name}`" in jobs[command.extra or "no extra"], name


def test_the_image_and_the_pages_name_extras_that_there_are() -> None:
    texts = [
        file.read_text() for file in (ROOT / "Dockerfile", ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    ]
    named = {
        name
        for text in texts
        for found in re.findall(r"conformal-streamer\[([a-z,]+)\]|^ARG EXTRAS=([a-z,]+)", text, re.MULTILINE)
        for group in found
        for name in group.split(",")
    }
    assert named - {""} <= set(OPTIONAL)
