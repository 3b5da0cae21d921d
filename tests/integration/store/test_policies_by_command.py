"""The life of a policy by commands: proposed, put in force, rolled back, closed; each with who and why."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from streamer.cli import main
from streamer.journal import OutboxMessage
from tests.integration.store.conftest import World
from tests.integration.store.test_labels_and_calibration import fill


@pytest.fixture(autouse=True)
def own_settings(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STREAMER_DATABASE_URL", world.url)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(words)
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def one(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[0])


def test_from_proposal_to_closing(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    fill(world)
    name = "support-bot"
    dry = one(capsys, "recalibrate", name, "--dry-run")
    assert (dry["dry_run"], dry["proposed"], dry["after"]) == (True, None, None)
    assert run(capsys, "threshold", "activate", name)[0] == 2

    proposed = one(capsys, "recalibrate", name, "--propose", "--by", "ana")
    assert (proposed["dry_run"], proposed["after"]) == (False, None)
    number = str(proposed["proposed"])
    status, text = run(capsys, "threshold", "list", name)
    assert status == 0
    assert f"Run {number} proposes Q > " in text
    assert "by ana" in text

    status, text = run(capsys, "threshold", "activate", name, "--run", "999")
    assert status == 2
    assert f"that is run {number}" in text
    active = one(
        capsys, "threshold", "activate", name, "--run", number, "--by", "bo", "--reason", "looks right"
    )
    wanted = (2, "cut", "bo", "looks right")
    assert (active["version"], active["state"], active["by"], active["reason"]) == wanted
    assert active["lambda"] == proposed["decided"]["lambda"]
    assert "proposes" not in run(capsys, "threshold", "list", name)[1]

    status, text = run(capsys, "threshold", "close", name)
    assert status == 2, "closing needs a reason"
    status, text = run(capsys, "threshold", "close", name, "--reason", "a complaint", "--by", "cy")
    assert status == 0
    assert "closed, holds everything: a complaint" in text
    status, text = run(capsys, "threshold", "rollback", name, "--to", "2", "--by", "bo")
    assert status == 0
    assert "(version 4)" in text
    assert run(capsys, "threshold", "rollback", name, "--to", "17")[0] == 2

    again = one(capsys, "recalibrate", name, "--activate", "--reason", "weekly")
    assert again["after"]["version"] == 5
    told = [(p.version, p.created_by, p.reason) for p in world.store.policies.list(name)]
    assert told[1:4] == [(2, "bo", "looks right"), (3, "cy", "a complaint"), (4, "bo", "rolled back")]
    assert told[4][2] == "weekly"
    assert world.store.evidence.log_faults() == []


def test_closing_reports_the_ships_that_are_still_to_be_published_and_waits_for_them(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    name, identity = "support-bot", "00000000-0000-0000-0000-000000000001"
    lease = world.lease()
    action = OutboxMessage("streamer.actions", b"k", b"{}", (("ce_id", identity.encode()),))
    world.commit(
        world.slice(lease, world.decision(0, actions=("ship", "abstain"), action_id=identity, action=action))
    )
    close = ("threshold", "close", name, "--reason", "a complaint")
    status, text = run(capsys, *close)
    assert status == 0
    assert "1 ship: committed before, and still published" in text
    assert one(capsys, *close)["waiting"] == {
        "queue": None, "outbox": 1, "desk": 0, "repeats": 1, "desk_rejected": None,
    }  # fmt: skip
    status, text = run(capsys, *close, "--wait", "--timeout", "1s")
    assert status == 1
    assert "gate support-bot is closed; after 1 s 1 ship committed before is not published yet" in text
    assert "`streamer doctor`" in text

    (row,) = [row for row in world.store.unpublished([lease.partition], limit=9) if row.value == b"{}"]
    publishes = threading.Timer(1, world.store.mark_published, [[row]])
    publishes.start()
    status, text = run(capsys, *close, "--wait")
    publishes.join()
    assert status == 0
    assert "No ship waits to be published any more." in text
    status, text = run(capsys, *close)
    assert "outbox nothing" in " ".join(text.split())
    assert run(capsys, *close, "--wait", "--timeout", "soon")[0] == 2
    assert world.store.policies.newest(name).version == 6, "a wrong option changes nothing"
