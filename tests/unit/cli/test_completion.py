"""The shell completes commands, options, topics and the names of gates, once it was told to."""

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from streamer.cli import main
from tests import programs

BIN = Path(sys.executable).parent
NAMED = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"
"""Makes the options take the name of the shell, in place of looking at the process above."""


def environment_of(folder: Path) -> dict[str, str]:
    return {"HOME": str(folder), "PATH": f"{BIN}:{os.environ['PATH']}"}


def streamer(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return programs.run(
        BIN / "streamer", *words, status=None, cwd=folder, env=environment_of(folder) | environment
    )


@cache
def shown_to_bash() -> str:
    """The script that the command shows for bash to read."""
    with tempfile.TemporaryDirectory() as folder:
        shown = streamer(Path(folder), "--show-completion", "bash", **{NAMED: "1"})
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


def completed(folder: Path, line: str) -> list[str]:
    """What bash offers for the last word of the line, which may be empty, after it has read the shown script."""
    words = line.split(" ")
    program = (
        f"{shown_to_bash()}\nCOMP_WORDS=({' '.join(word or repr('') for word in words)}); COMP_CWORD={len(words) - 1}; "
        'handler=$(complete -p streamer | sed "s/.*-F \\([^ ]*\\) .*/\\1/"); $handler streamer; echo "${COMPREPLY[@]}"'
    )
    asked = programs.run("bash", "--norc", "-c", program, status=None, cwd=folder, env=environment_of(folder))
    assert (asked.returncode, asked.stderr) == (0, "")
    return asked.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("streamer re", ["review", "recalibrate", "recalibrator"]),
        ("streamer gate ", ["create", "set", "list", "show"]),
        (
            "streamer tail ",
            ["responses", "labels", "actions", "desk", "thresholds", "alerts", "checkpoints", "dead-letters"],
        ),
        ("streamer tail --from", ["--from-beginning"]),
        ("streamer --ins", ["--insecure", "--install-completion"]),
    ],
)
def test_commands_options_and_topics_are_completed(tmp_path: Path, line: str, offered: list[str]):
    assert sorted(completed(tmp_path, line)) == sorted(offered)


def test_gates_are_completed_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    line = "streamer publish answers.jsonl --gate s"
    assert completed(tmp_path, line) == []  # and no database is made for the asking
    assert list(tmp_path.iterdir()) == []
    monkeypatch.chdir(tmp_path)
    assert main(["db", "upgrade"]) == 0
    for name in ("support", "other"):
        assert main(["gate", "create", name, "--scorer", "external", "--encoder", "none"]) == 0
    assert completed(tmp_path, line) == ["support"]
    assert completed(tmp_path, "streamer gate show s") == ["support"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_shown_and_installed(tmp_path: Path, shell: str):
    shown = streamer(tmp_path, "--show-completion", shell, **{NAMED: "1"})
    assert shown.returncode == 0
    assert "_STREAMER_COMPLETE" in shown.stdout
    done = streamer(tmp_path, "--install-completion", shell, **{NAMED: "1"})
    assert done.returncode == 0, done.stderr
    assert f"{shell} completion installed in {tmp_path}" in done.stdout
