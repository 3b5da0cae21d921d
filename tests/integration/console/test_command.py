"""`streamer console` and its people, as they are called."""

import io
import json
import os
import subprocess
import sys

import httpx
import pytest

from streamer.__main__ import main
from tests.integration.console.conftest import PASSWORD
from tests.integration.store.conftest import World
from tests.integration.store.labelled_gate import GATE


@pytest.fixture
def _here(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMER_DATABASE_URL", world.url)


@pytest.mark.usefixtures("_here")
def test_people_are_added_listed_changed_and_closed(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\n"))
    add = ["console", "user", "add", "ana", "--role", "approver", "--password-stdin", "--by", "root"]
    assert main(add) == 0
    said = capsys.readouterr()
    assert said.out == "ana may sign in at the console, as approver.\n"
    assert "links that were printed open nothing any more" in said.err
    assert "Nobody is an administrator" in said.err
    assert main(["console", "user", "password", "ana"]) == 2
    assert "--password-stdin" in capsys.readouterr().err, "there is no terminal to ask at"
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    assert main(["console", "user", "password", "ana", "--password-stdin"]) == 2
    assert "10 to 1000 characters" in capsys.readouterr().err
    assert main(["console", "user", "roles", "ana", "--role", "viewer", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["roles"] == ["viewer"]
    assert main(["console", "user", "close", "ben"]) == 2
    assert "there is no account of 'ben'" in capsys.readouterr().err
    assert main(["console", "user", "roles", "ana", "--role", "administrator"]) == 0
    assert "Nobody is an administrator" not in capsys.readouterr().err
    for change in (("close", "ana"), ("roles", "ana", "--role", "viewer")):
        assert main(["console", "user", *change]) == 2
        assert "ana is the last administrator: make another one first" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\n"))
    assert main([*add[:3], "ben", "--role", "administrator", "--password-stdin"]) == 0
    assert main(["console", "user", "close", "ana", "--reason", "left"]) == 0
    assert "Nobody is an administrator" not in capsys.readouterr().err
    assert main(["console", "user", "list"]) == 0
    assert "closed" in capsys.readouterr().out
    assert [one.revision for one in world.store.accounts.list()] == [4, 1]


@pytest.mark.usefixtures("_here")
def test_a_proposal_is_rejected_and_no_command_acts_as_somebody_who_signed_in(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["threshold", "activate", GATE, "--by", "account:ana"]) == 2
    assert "of people who signed in at the console" in capsys.readouterr().err
    assert main(["threshold", "reject", GATE, "--reason", "too loose", "--by", "ana", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "gate": GATE, "run": 2, "by": "ana", "reason": "too loose",
    }  # fmt: skip
    assert world.store.calibration.proposal(GATE) is None
    assert main(["threshold", "reject", GATE, "--reason", "again"]) == 2
    assert "nothing is proposed" in capsys.readouterr().err


@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (["--public-url", "streamer.example"], "is like https://streamer.example"),
        (["--public-url", "https://streamer.example/path"], "without a path"),
        (["--public-url", "https://streamer.example:99999"], "without a path"),
        (["--public-url", "https://[::1"], "without a path"),
        (["--public-url", "https://a:b@streamer.example"], "without a path"),
        (["--host", "192.0.2.1"], "say `streamer --insecure console ...`"),
        (["--as", "account:ana"], "say who you are without it"),
    ],
)
def test_what_cannot_be_served_says_why(
    options: list[str], wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["console", "--port", "0", *options]) == 2
    assert wrong in " ".join(capsys.readouterr().err.split())


def test_a_console_tells_prometheus_of_its_requests(world: World) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "streamer", "console", "--json", "--port", "0", "--until-stdin-closes"],
        env=os.environ | {"STREAMER_DATABASE_URL": world.url, "STREAMER_HTTP_PORT": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        said = json.loads(process.stdout.readline())
        for _ in range(2):
            httpx.get(f"{said['url']}login").raise_for_status()
        assert httpx.get(f"{said['url']}nowhere").status_code in (303, 404)
        found = httpx.get(said["metrics"]).text
        process.stdin.close()
        assert process.wait(timeout=60) == 0
    assert 'streamer_http_requests_total{route="/login",status="200"} 2.0' in found
    assert 'streamer_http_request_duration_seconds_count{route="none"} 1.0' in found
