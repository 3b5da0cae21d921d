"""A history with crashes in it is a clean history: checkpoints by a killed recalibrator, on the topic and in a file."""

import json
from typing import Any

import pytest

from streamer import wiring
from streamer.audit import signing
from streamer.audit.checkpointing import said
from streamer_verify import bundle, command
from streamer_verify.command import complete_lines
from streamer_verify.logs import read_note
from tests.faults.matrix import LONG
from tests.faults.oracle import read_all
from tests.faults.site import Site, publish, wait_until
from tests.services.service_forks import FORKS

KILLS = 5 if LONG else 1


@pytest.mark.long
def test_a_killed_worker_leaves_nothing_that_does_not_fit(site: Site) -> None:
    key, file = site.directory / "key.pem", site.directory / "checkpoints.jsonl"
    site.command("audit", "keygen", "--out", str(key))
    signed = {
        "STREAMER_AUDIT_PRIVATE_KEY_FILE": str(key),
        "STREAMER_AUDIT_CHECKPOINT_FILE": str(file),
        "STREAMER_AUDIT_CHECKPOINT_EVERY_SECONDS": "0.5",
        "STREAMER_AUDIT_SIGN_EVERY_SECONDS": "0.1",
    }
    site.environment.update(signed)

    batches = 60 + 80 * KILLS
    publish(site, 0, 40)
    for kill in range(KILLS):
        worker, signer = site.start_worker(), site.start_recalibrator()
        worker.wait_until_ready()
        decided, size = site.decided(), site.store.heads.newest().size
        publish(site, 40 + 80 * kill, 80)
        wait_until(lambda before=decided: site.decided() > before, "the worker decides")  # type: ignore[misc]
        wait_until(lambda before=size: site.store.heads.newest().size > before, "it is signed")  # type: ignore[misc]
        wait_until(lambda: file.exists() and bool(file.read_bytes()), "there is a checkpoint")
        worker.kill()
        signer.kill()
    with file.open("ab") as torn:
        torn.write(b'{"schema": "streamer.chec')  # as a crash in the middle of a line leaves it
    last, signer = site.start_worker(), site.start_recalibrator()
    last.wait_until_ready()
    wait_until(lambda: site.decided() == 40 + 80 * KILLS, "every batch is decided")
    publish(site, 40 + 80 * KILLS, 20)
    wait_until(lambda: site.decided() == batches, "every batch is decided")
    site.check()
    assert last.terminate() == 0
    assert signer.terminate() == 0
    site.command("audit", "checkpoint")  # whatever was signed last

    published = read_all(wiring.connection(site.settings), wiring.topics(site.settings).checkpoints)
    for lines in (complete_lines(file.read_bytes()), [record.value or b"" for record in published]):
        assert said(lines[-1]) == read_note(site.store.heads.newest().note.decode())

    for where in (str(file), "topic"):
        report = _json(site, "audit", "verify", "--json", "--checkpoints", where)
        assert report["counts"]["decisions"] == batches
        # The site puts a threshold in force that no labels found: that is named, and nothing else is.
        assert [fault["detail"].partition(":")[0] for fault in report["faults"]] == [
            "its inputs cannot be calibrated"
        ]
    site.command("audit", "export", "--salts", "--out", str(site.directory / "bundle.zip"))
    keys = signing.read_public_keys((site.directory / "key.pem.pub").read_text(), place="here")
    alone = command.verify_bundle(
        bundle.Bundle(site.directory / "bundle.zip"),
        keys,
        command.complete_lines(file.read_bytes()),
    )
    assert alone.faults == []
    assert alone.counts["decisions"] == alone.counts["draws"] == batches


def _json(site: Site, *arguments: str) -> Any:
    """What a command prints though it found something."""
    done = FORKS.run(arguments, environment=site.whole_environment(), folder=site.directory, seconds=240)
    assert done.returncode == 3, done.stderr
    return json.loads(done.stdout)
