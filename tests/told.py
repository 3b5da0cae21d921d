"""What commands print that run in this process."""

from collections.abc import Callable
from typing import Any

import pytest

Told = Callable[..., Any]
"""Takes the words of a command, and gives `.out` and `.err`."""


def telling(capsys: pytest.CaptureFixture[str]) -> Told:
    """Runs `streamer WORD...`, which must end with `status`; gives all that was not read before."""
    from streamer.cli import main

    def told(*words: str, status: int = 0) -> Any:
        found = main(words)
        said = capsys.readouterr()
        assert found == status, "".join(said)
        return said

    return told
