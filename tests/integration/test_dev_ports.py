"""`streamer dev` serves metrics where the project's own Prometheus files look for them, and says so where it cannot."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.services.ports import free_port

TARGETS = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "targets"


def target(name: str) -> int:
    """The port in a file of Prometheus' targets."""
    (port,) = re.findall(r'^- targets: \["127\.0\.0\.1:(\d+)"\]', (TARGETS / name).read_text(), re.MULTILINE)
    return int(port)


@pytest.mark.parametrize("in_use", [False, True])
def test_prometheus_finds_it_or_it_says_where_it_is(tmp_path: Path, in_use: bool) -> None:
    wanted = {"worker": target("workers.yml"), "recalibrator": target("recalibrators.yml")}
    with ExitStack() as others:
        if in_use:
            for port in wanted.values():
                with suppress(OSError):  # somebody else has it: that will do
                    others.enter_context(socket.create_server(("127.0.0.1", port)))
        facts, err = run_dev(tmp_path)
    for service, name in (("worker", "http"), ("recalibrator", "recalibrator")):
        port = urlsplit(facts[name]).port
        said = f"Port {wanted[service]}, where Prometheus looks for the {service}, is in use: its metrics are at {facts[name]}"
        assert (said in err) == (port != wanted[service]), err
        assert not in_use or port != wanted[service]


def test_a_port_that_was_named_is_that_port_or_an_error(tmp_path: Path) -> None:
    worker, recalibrator = free_port(), free_port()
    facts, err = run_dev(tmp_path, "--port", str(worker), "--recalibrator-port", str(recalibrator))
    assert [urlsplit(facts[name]).port for name in ("http", "recalibrator")] == [worker, recalibrator]
    assert "is in use" not in err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = started(tmp_path, "--port", str(taken.getsockname()[1]), "--recalibrator-port", "0")
        _, err = process.communicate(timeout=240)
    assert process.returncode != 0
    assert "cannot serve metrics" in err


def run_dev(folder: Path, *words: str) -> tuple[dict[str, str], str]:
    """Run it until it is ready; what it said of itself, and what it wrote on standard error."""
    process = started(folder, *words)
    line = process.stdout.readline()
    try:
        facts: dict[str, str] = json.loads(line)
        for name in ("http", "recalibrator"):
            with urllib.request.urlopen(f"{facts[name]}/metrics", timeout=240) as answer:
                assert answer.status == 200
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=240)
    return facts, err


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "streamer", "dev", "--no-view", "--json", *words], cwd=folder,
        env=os.environ | {"STREAMER_ENCODER_NAME": "none", "COLUMNS": "400"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
