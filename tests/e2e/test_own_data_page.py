"""docs/own-data.md, done as it says: its commands and its Python run as they stand on the files of `examples/`."""

import re
import shlex
import shutil
from pathlib import Path

import pandas as pd
import pytest

from streamer.cli import main
from streamer.clouds.tables.columns import ROLES, parse_mapping
from tests.checkout import ROOT
from tests.told import Told

PAGE = (ROOT / "docs" / "own-data.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.encoder
def test_the_commands(checkout: Path, capsys: pytest.CaptureFixture[str]):
    (block,) = blocks("sh")
    (shown,) = re.findall(r"^```\n(examples/.*)\n```$", PAGE, re.MULTILINE)
    said = []
    for line in block.splitlines():
        command = shlex.split(line, comments=True)[1:]
        short = {"evaluate": ["--splits", "4"]}.get(command[0], [])
        assert main([*command, *short]) == 0
        said.append(capsys.readouterr())
    assert shown in said[1].err
    assert "80 of 400 answers have no severity and are left out" in said[1].err
    tried = re.search(r"^```\n(Worth it: .*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
    assert tried[1].split() == said[0].out.split()[: len(tried[1].split())]
    assert (checkout / "evaluation" / "report.html").is_file()


def test_the_python(checkout: Path, capsys: pytest.CaptureFixture[str]):
    (block,) = blocks("python")
    exec(compile(block, "own-data.md", "exec"), {})
    out = capsys.readouterr().out
    assert re.search(r"serves \d+ % of prompts", out)
    assert "[ True False] {'new': 'r00'}" in out


def test_the_table_of_roles_is_whole():
    rows = re.findall(r"^\| `(\w+)` \| .*? \| (.*?) \|$", PAGE, re.MULTILINE)
    rows = [(role, names) for role, names in rows if role in ROLES]
    assert {role for role, _ in rows} == set(ROLES)
    from streamer.clouds.tables import columns

    for role, names in rows:
        if names.startswith("none: "):  # such a column is taken only where somebody names it
            assert not columns._NAMES[role], role  # type: ignore[index]
            continue
        for name in names.split(", "):
            assert name in columns._NAMES[role], name  # type: ignore[index]
    assert parse_mapping(["prompt_id="]) == {"prompt_id": ()}


@pytest.mark.encoder
def test_a_table_is_labelled_from_its_references_and_then_evaluated(checkout: Path, told: Told):
    rows = [
        {"Question": f"What is {a} times {b}?", "Name": name, "Output": f"It is {a * b + wrong}.", "Gold": str(a * b)}
        for a in range(12, 22)
        for b in range(3, 6)
        for name, wrong in (("x", 0), ("y", (a + b) % 3 == 0), ("z", a % 2))
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv("raw.csv", sep=";", index=False)
    command = ["label", "clouds", "raw.csv", "--out", "labelled.jsonl", "--match", "contained"]
    out = told(*command, "--column", "answer_id=Name")
    assert "answer_id from Name" in out.err
    assert "30 clouds written, 90 responses labelled" in out.out
    assert "kind" not in told("evaluate", "labelled.jsonl", "--alpha", "0.2", "--splits", "4").err
