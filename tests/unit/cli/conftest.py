"""Commands in this process."""

from collections.abc import Callable

import pytest

from streamer import cli
from streamer.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A command in this process: its exit status, and what it prints."""

    def run(*words: str) -> tuple[int, str, str]:
        status = main(words)
        return status, *capsys.readouterr()

    return run


def refused(run: Run, *words: str) -> str:
    """What a command says that is called in a wrong way, without its line breaks."""
    status, out, err = run(*words)
    assert (status, out) == (cli.WRONG_USAGE, "")
    return " ".join(err.split())
