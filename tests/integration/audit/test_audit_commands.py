"""`streamer audit` as people use it, and stored texts scored again by the real encoder."""

import json
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamer import wiring
from streamer.audit import signing
from streamer.audit.checkpointing import said
from streamer.audit.rescoring import Rescorer
from streamer.cli import main
from streamer.events.checkpoints import encode_checkpoint
from streamer.events.receipts import receipt_line
from streamer.journal import Partition
from streamer.scoring.encoders.encoder import CachedEncoder, Encoder
from streamer.signing.notes import origin_of
from streamer_verify import command, signatures
from streamer_verify.bundle import Bundle
from streamer_verify.pyz import archive
from tests import programs
from tests.integration.audit.attacker import batch_of, breaking_in, rebuild_outcomes, reseal
from tests.integration.audit.history import (
    LOG,
    PRIVATE,
    PUBLIC,
    Scribe,
    label,
    settings_for,
    verify,
    written_history,
)
from tests.made import a_batch
from tests.migrated import migrated
from tests.told import Told


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the history, whose keys are configured."""

    monkeypatch.chdir(tmp_path)
    written_history(tmp_path)
    monkeypatch.setenv("STREAMER_DATABASE_URL", "sqlite:///record.db")
    monkeypatch.setenv("STREAMER_AUDIT_CHECKPOINT_FILE", "checkpoints.jsonl")
    (tmp_path / "key.pem").write_text(PRIVATE)
    (tmp_path / "key.pub").write_text(PUBLIC)
    monkeypatch.setenv("STREAMER_AUDIT_PRIVATE_KEY_FILE", "key.pem")
    return tmp_path


def test_a_pair_of_keys(tmp_path: Path, told: Told):
    key = tmp_path / "key.pem"
    assert main(["audit", "keygen", "--out", str(key)]) == 0
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert "PRIVATE" in key.read_text()
    assert signatures.read_public_keys((tmp_path / "key.pem.pub").read_text())
    assert "PRIVATE KEY" not in "".join(told("audit", "keygen", "--out", str(key), status=2))


def test_verify_says_what_fits_and_what_it_could_not_check(here: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["audit", "verify"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "Everything that could be checked is consistent.\n"
    assert "younger than the last checkpoint" in printed.err
    (here / "checkpoints.jsonl").rename(here / "elsewhere.jsonl")
    assert main(["audit", "verify", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert any("taken from the database itself" in text for text in report["not_checked"])
    assert main(["audit", "verify", "--checkpoints", "nowhere.jsonl"]) == 2
    assert main(["audit", "verify", "--checkpoints", "elsewhere.jsonl", "--public-key", "key.pub"]) == 0
    with breaking_in("sqlite:///record.db") as connection:
        connection.exec_driver_sql("UPDATE gates SET seed = 7 WHERE name = 'each'")
    capsys.readouterr()
    assert main(["audit", "verify", "--checkpoints", "elsewhere.jsonl"]) == 3
    assert capsys.readouterr().out.startswith(
        "control, leaf 5, gates name each: it is not what was recorded\n"
    )


def test_receipts_that_somebody_kept(here: Path, capsys: pytest.CaptureFixture[str]):
    with wiring.open_store(settings_for(f"sqlite:///{here / 'record.db'}", here)) as store:
        sent = store.unpublished(
            [Partition(LOG, "streamer.responses", number) for number in range(2)], limit=500
        )
        repeated = store.unpublished([Partition(LOG, "streamer.responses", 0)], limit=500)
    assert {(one.id, one.headers) for one in repeated} <= {(one.id, one.headers) for one in sent}
    kept = [line for one in sent if (line := receipt_line(one.value, one.headers)) is not None]
    assert len(kept) > 60
    bare = json.loads(kept[0])["receipt"].encode()
    (here / "kept.jsonl").write_bytes(b"\n".join([*kept, bare]) + b"\n")
    assert main(["audit", "verify", "--receipts", "kept.jsonl", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["counts"]
    assert (counts["receipts"], counts["events with a receipt"]) == (len(kept) + 1, len(kept))
    assert main(["audit", "export", "--out", "bundle.zip"]) == 0
    alone = ["bundle.zip", "--public-key", "key.pub", "--receipts", "kept.jsonl"]
    assert command.main(alone) == 0
    another = json.loads(kept[-1]) | {"sha256": "0" * 64}
    (here / "kept.jsonl").write_text(json.dumps(another) + "\n")
    capsys.readouterr()
    assert main(["audit", "verify", "--receipts", "kept.jsonl"]) == 3
    assert "another action event than the one on record" in capsys.readouterr().out
    assert command.main(alone) == 3
    assert main(["audit", "verify", "--receipts", "nowhere.jsonl"]) == 2
    assert "cannot read receipts from nowhere.jsonl" in capsys.readouterr().err


def test_show_tells_the_story_of_a_decision(here: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["audit", "show", "batch-3", "--gate", "best"]) == 0
    told = capsys.readouterr().out
    for words in (
        "batch-3 of gate best, attempt 1",
        "question 3",
        "the gate had not been calibrated",
        "drawn for the audit sample",
        "severity 0.0 (human) by bob",
        "offset 34: duplicate",
        "which fits what the tables say; checkpoint 2 of",
    ):
        assert words in " ".join(told.split()), words
    assert "counts" not in told, "the only label does"
    with wiring.open_store(settings_for(f"sqlite:///{here / 'record.db'}", here)) as store:
        for severity in (0.25, 0.5):  # whoever changes their mind has one label
            store.labels.add([replace(label("best", 3), response_id="r0", severity=severity)])
        assert main(["audit", "show", "batch-3", "--gate", "best"]) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert "counts r0 (human): severity 0.25, the mean of each labeller's newest" in told
        store.gates.revise("best", {"labellers": ("cara",)}, by="root", reason="test")
    assert main(["audit", "show", "batch-3", "--gate", "best"]) == 0
    assert "counts r0 (human): none of these labels" in " ".join(capsys.readouterr().out.split())
    assert main(["audit", "show", "batch-25", "--json"]) == 0
    stories = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [story["line"]["facts"]["batch"][0] for story in stories] == ["best", "each"]
    assert all(story["fits"] and story["run"] is not None for story in stories)
    assert main(["audit", "show", "nothing"]) == 2
    with breaking_in("sqlite:///record.db") as connection:
        connection.exec_driver_sql(
            f"UPDATE responses SET score = 0 WHERE batch = {batch_of(connection, 'best', 25)}"
        )
    assert main(["audit", "show", "batch-25", "--gate", "best"]) == 3
    assert "DOES NOT FIT" in capsys.readouterr().out


def test_a_bundle_is_verified_by_one_file_with_the_standard_library_alone(here: Path):
    assert main(["audit", "export", "--out", "secret.zip"]) == 0
    assert not any("audit_salt" in line for line in Bundle(here / "secret.zip").values("control.jsonl"))
    assert main(["audit", "export", "--salts", "--out", "bundle.zip"]) == 0
    assert any("audit_salt" in line for line in Bundle(here / "bundle.zip").values("control.jsonl"))
    assert main(["audit", "export", "--out", "bundle.zip"]) == 2, "it exists"
    assert main(["audit", "export", "--out", "other", "--gate", "nobody"]) == 2
    file = here / "verify.pyz"
    file.write_bytes(archive())

    def alone(*arguments: str) -> Any:
        # -I -S: no site-packages, no environment, nothing of this directory.
        return programs.run(sys.executable, "-I", "-S", file, *arguments, status=None)

    done = alone("bundle.zip", "--public-key", "key.pub", "--checkpoints", "checkpoints.jsonl")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("Everything fits.\n")
    assert alone("nothing.zip").returncode == 2
    with breaking_in("sqlite:///record.db") as connection:
        connection.exec_driver_sql("UPDATE gates SET seed = 7 WHERE name = 'each'")
    assert main(["audit", "export", "--out", "broken"]) == 0
    done = alone("broken", "--public-key", "key.pub", "--checkpoints", "checkpoints.jsonl", "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["faults"][0]["place"] == "control, leaf 5, gates name each"


@pytest.mark.expected_errors(r"streamer\.audit\.checkpointing: audit\.checkpoint_file_")
def test_a_checkpoint_on_demand(here: Path, told: Told, monkeypatch: pytest.MonkeyPatch):
    made = json.loads(told("audit", "checkpoint", "--json").out)
    assert (made.pop("verifier_key").partition("+")[0], made) == (
        said((here / "checkpoints.jsonl").read_bytes().splitlines()[-1]).origin,
        {"made": True, "size": 4, "witnesses": []},
    )
    assert told("audit", "checkpoint").out == "Nothing was recorded since checkpoint 4.\n"
    assert len((here / "checkpoints.jsonl").read_bytes().splitlines()) == 4
    assert "younger" not in told("audit", "verify").err
    # Nothing new is no reason to be silent about who has not got what is there.
    with monkeypatch.context() as elsewhere:
        (here / "a-file").write_text("")
        elsewhere.setenv("STREAMER_AUDIT_CHECKPOINT_FILE", str(here / "a-file" / "checkpoints.jsonl"))
        assert f"The file does not have it: {here / 'a-file'}" in told("audit", "checkpoint", status=1).err
        other = signing.Signer(PRIVATE).checkpoint(origin_of("ff" * 32), 1, bytes(32))
        (here / "other.jsonl").write_bytes(encode_checkpoint(other, wiring.now()) + b"\n")
        elsewhere.setenv("STREAMER_AUDIT_CHECKPOINT_FILE", str(here / "other.jsonl"))
        assert "checkpoint 1 of another record" in told("audit", "checkpoint", status=1).err
    monkeypatch.delenv("STREAMER_AUDIT_PRIVATE_KEY_FILE")
    assert "streamer audit keygen" in told("audit", "checkpoint", status=2).err
    assert "signatures were not checked" in told("audit", "verify").err


def test_stored_texts_are_scored_again(real_encoder: Encoder, tmp_path: Path):
    settings = settings_for(f"sqlite:///{tmp_path / 'record.db'}", tmp_path)
    migrated(settings)
    encoder = CachedEncoder(real_encoder)

    def batch(number: int) -> bytes:
        texts = [f"It costs {number} euros.", f"{number} euros", "I do not know, sorry.", " "]
        return a_batch("texts", number, texts)

    with wiring.open_store(settings) as store:
        store.encoders.register(encoder.identity)
        scribe = Scribe(store, settings, encoder)
        scribe.gate("texts", encoder=encoder.identity.id)
        scribe.deliver(map(batch, range(5)))

    def rescorer() -> Rescorer:
        return Rescorer({encoder.identity.id: CachedEncoder(real_encoder).embed})

    report = verify(settings, rescorer=rescorer())
    assert report.faults == ()
    assert report.counts["batches scored again"] == 5
    with breaking_in(settings.database.url) as connection:
        # Texts that are sealed and chained anew: without checkpoints only their scores can tell.
        connection.exec_driver_sql(
            "UPDATE responses SET text = 'It is free.' WHERE batch = 3 AND position = 0"
        )
        reseal(connection, batch_of(connection, "texts", 2))
        rebuild_outcomes(connection)
    assert verify(settings).faults == ()
    (fault,) = verify(settings, rescorer=rescorer()).faults
    assert "texts/batch-2#1" in fault.place
    assert "differs by" in fault.detail
