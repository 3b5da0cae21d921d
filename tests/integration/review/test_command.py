"""`streamer review` as it is typed: what it refuses, and what it says."""

import socket
from pathlib import Path

import pytest

from streamer.cli import main
from tests.integration.store.conftest import World
from tests.told import Told


@pytest.fixture(autouse=True)
def settings(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMER_DATABASE_URL", world.url)
    world.store.gates.create("judged", _settings(world, "judge"), by="ana", reason="new")


def _settings(world: World, kind: str) -> object:
    from dataclasses import replace

    return replace(world.store.gates.get("support-bot").settings, severity_kind=kind)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--gate", "nobodys"], "there is no gate 'nobodys'"),
        (["--gate", "judged"], "streamer label judge"),
        (["--host", "0.0.0.0"], "streamer --insecure review"),
        (["--as", "a\u202eb"], "invisible"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(words: list[str], says: str, told: Told):
    said = told("review", "--no-open", *words, status=2)
    assert says in said.err
    assert said.out == ""


def test_a_port_that_is_taken_is_named(capsys: pytest.CaptureFixture[str]):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["review", "--no-open", "--port", str(port)]) == 2
    assert f"127.0.0.1:{port}" in capsys.readouterr().err


def test_addresses_and_gates_are_told_and_those_of_programs_left_out(
    told: Told, monkeypatch: pytest.MonkeyPatch
):
    served: list[int] = []
    monkeypatch.setattr(
        "streamer.review.server.serve", lambda app, listening: served.append(listening.getsockname()[1])
    )
    said = told("review", "--no-open", "--port", "0", "--as", "ana", "--as", "Ben B")
    first, second = said.out.splitlines()
    assert first.startswith(f"ana: http://127.0.0.1:{served[0]}/#")
    assert second.startswith(f"Ben B: http://127.0.0.1:{served[0]}/#")
    assert first.partition("#")[2] != second.partition("#")[2]
    assert "support-bot" in said.err
    assert "judged" not in said.err
