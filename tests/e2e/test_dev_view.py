"""`streamer dev` on a terminal: a living view of the whole screen, which gives the terminal back at the end."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_ENTER, _LEAVE = "\x1b[?1049h", "\x1b[?1049l"


def test_it_shows_what_happens_and_gives_the_terminal_back(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STREAMER_")}
    environment |= {"STREAMER_ENCODER_NAME": "none", "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    here, there = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "streamer", "dev"],
        stdin=there,
        stdout=there,
        stderr=there,
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(there)
    try:
        seen = _read_until(here, "There is no gate yet", 90)
        assert _ENTER in seen
        assert "batches/s" in seen
        assert "Starting an embedded broker" in seen
        assert "loading the encoder" not in seen  # it has none
        subprocess.run(
            [sys.executable, "-m", "streamer", "gate", "create", "bot", "--scorer", "external"],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
            timeout=240,
        )
        seen += _read_until(here, "created", 60)
        assert "policy 1 closed by" in seen
        os.write(here, b"\x03")  # Ctrl-C
        seen += _read_until(here, _LEAVE, 40)
        assert process.wait(240) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(here)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _read_until(terminal: int, words: str, seconds: float) -> str:
    """Read what the terminal shows until it has shown these words."""
    seen = b""
    deadline = time.monotonic() + seconds
    while words.encode() not in seen:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([terminal], [], [], left)[0]:
            pytest.fail(f"{words!r} was not shown; this was: {seen.decode(errors='replace')[-3000:]}")
        try:
            seen += os.read(terminal, 65536)
        except OSError:  # the other side is closed
            break
    assert words.encode() in seen, seen.decode(errors="replace")[-3000:]
    return seen.decode(errors="replace")
