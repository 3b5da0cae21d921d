"""`streamer dev` on a terminal: a living view of the whole screen, which gives the terminal back at the end."""

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.services.ports import free_port

_ENTER, _LEAVE = "\x1b[?1049h", "\x1b[?1049l"


@pytest.mark.skipif(
    shutil.which("curl") is None and "CI" not in os.environ,
    reason="no curl: install your system's package curl",
)
def test_it_shows_what_happens_and_gives_the_terminal_back(tmp_path: Path) -> None:
    environment = os.environ | {
        "STREAMER_ENCODER_NAME": "none", "TERM": "xterm", "COLUMNS": "100", "LINES": "30",
    }  # fmt: skip
    worker, recalibrator = free_port(), free_port()
    here, there = pty.openpty()
    process = subprocess.Popen(
        [
            sys.executable, "-m", "streamer", "dev", "--port", f"{worker}", "--recalibrator-port",
            f"{recalibrator}",
        ],
        stdin=there,
        stdout=there,
        stderr=there,
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
        preexec_fn=_take_terminal,
    )  # fmt: skip
    os.close(there)
    try:
        seen = _read_until(here, "There is no gate yet", 90)
        assert _ENTER in seen
        assert "batches/s" in seen
        assert "Starting an embedded broker" in seen
        assert "loading the encoder" not in seen  # it has none
        seen += _read_until(here, "Press Ctrl-C to stop", 90)
        link = re.search(r"console .*?(http://127\.0\.0\.1:\d+/)enter#[\w-]{40,}", seen)
        with urllib.request.urlopen(f"{link[1]}login", timeout=240) as answer:
            assert answer.status == 200
        assert "streamer_encoded_texts_total" in _metrics(worker)
        assert "streamer_recalibrator_leader 1.0" in _metrics(recalibrator)
        pasted = _requests(seen)[-1]
        assert pasted.startswith("streamer gate create try ")
        for _ in range(2):  # the second time there is the gate, and a decision of another batch
            action = _paste(pasted, tmp_path, environment)
            assert (action["gate"], action["action"], action["reason"]) == ("try", "abstain", "no_threshold")
        seen = _read_until(here, "created", 60)
        assert "policy 1 closed by" in seen
        curl = pasted.partition("\n")[2]
        while curl not in _requests(seen):
            seen += _read_until(here, "Press Ctrl-C to stop", 60)
        os.write(here, b"\x03")  # Ctrl-C
        seen += _read_until(here, _LEAVE, 40)
        assert process.wait(240) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(here)


def _metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=240) as answer:
        text: str = answer.read().decode()
    return text


def _requests(screens: str) -> list[str]:
    """The lines that each screen says to paste."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screens).replace("\r", "")
    text = re.sub(r" +$", "", text, flags=re.MULTILINE)
    return re.findall(r"in this directory\n(.*?\]\}')\n", text, re.DOTALL)


def _paste(lines: str, folder: Path, environment: dict[str, str]) -> Any:
    """What a shell says to them, in another terminal of the same folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", lines], cwd=folder, env=environment | {"PATH": path}, stdout=subprocess.PIPE,
        check=True, timeout=240,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


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
