"""What `streamer demo` shows on a terminal while it runs."""

import io
import sys

import pytest

from streamer.cli.demo import DemoProgress


class Terminal(io.StringIO):
    """Standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [80, 150])
def test_figures_are_never_cut(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    with DemoProgress() as watch:
        watch.phase("start the embedded broker and the worker, load the encoder")
        watch.phase("second half, gate closed: score, gate and record", 2000)
        watch.done(2000, shipped=1234)
    shown = terminal.getvalue()
    assert "2000/2000" in shown
    assert "1/1" in shown
    assert "0:00:0" in shown
    assert "1234 shipped" in shown
    assert "…" not in shown
    assert ("━" in shown) == (columns == 150)
