"""Checkpoints with witnesses that keep to the protocol, and with some that do not; on SQLite."""

import base64
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from streamer import wiring
from streamer.audit import signing, witnesses
from streamer.audit.witnesses import read_witness
from streamer.cli import main
from streamer.errors import UsageError
from streamer.settings.settings import Settings, load_settings
from streamer.signing.notes import VerifierKey, origin_of
from streamer.telemetry.recalibrator_metrics import RecalibratorMetrics
from streamer_verify.command import main as verify_pyz
from streamer_verify.logs import read_note
from tests.faults.site import wait_until
from tests.integration.audit.alone import JAVASCRIPT, need_node
from tests.integration.audit.attacker import (
    breaking_in,
    rebuild_control,
    rebuild_outcomes,
    remove_checkpoints,
)
from tests.integration.audit.history import PRIVATE, PUBLIC, Scribe, event, export, verify
from tests.migrated import migrated
from tests.services.witness import StrictWitness


@pytest.fixture
def scribe(tmp_path: Path) -> Iterator[Scribe]:
    settings = settings_with(tmp_path)
    migrated(settings)
    with wiring.open_store(settings) as store:
        scribe = Scribe(store, settings)
        scribe.gate("best", unit="best", alpha=0.3)
        yield scribe


def settings_with(folder: Path, *witnesses: StrictWitness) -> Settings:
    return load_settings(
        database={"url": f"sqlite:///{folder / 'record.db'}"},
        audit={
            "private_key": PRIVATE,
            "public_keys": PUBLIC,
            "checkpoint_file": str(folder / "checkpoints.jsonl"),
            "witnesses": [one.address for one in witnesses],
            "sign_every_seconds": 0.02,
        },
    )


def key_of_log(scribe: Scribe) -> VerifierKey:
    origin = origin_of(scribe.store.heads.standing()[0]["record"])
    return signing.Signer(PRIVATE).verifier_key(origin)


def sign(scribe: Scribe, number: int) -> None:
    scribe.deliver([event("best", number)])
    scribe.checkpoint()


def send(scribe: Scribe, settings: Settings) -> dict[str, str | None]:
    return witnesses.send(wiring.witnesses(settings), scribe.store.heads)


def test_a_witness_cosigns_each_checkpoint_by_a_proof_and_the_newest_alone_once_it_is_back(
    scribe: Scribe, tmp_path: Path
):
    with StrictWitness(key_of_log(scribe)) as one, StrictWitness(key_of_log(scribe), name="w2") as other:
        settings = settings_with(tmp_path, one, other)
        good = {"witness.example/w1": None, "w2": None}
        for number in range(4):
            sign(scribe, number)
            assert send(scribe, settings) == good
        other.broken = 503, b""
        for number in range(4, 11):
            sign(scribe, number)
            said = send(scribe, settings)
            assert (said[one.key.name], said["w2"]) == (None, "it answered with status 503")
        there = {known.witness: known.size for known in scribe.store.heads.cosigned()}
        assert there == {one.key.name: 11, "w2": 4}
        other.broken = None
        assert send(scribe, settings) == good
        assert (one.size, other.size) == (11, 11)
        assert other.answers == [200, 200, 200, 200, *[503] * 7, 200]
        assert send(scribe, settings) == good
        assert len(one.answers) == 11, "it has the newest"
        assert {found.note for found in scribe.store.heads.cosigned()} == {one.newest, other.newest}
        assert verify(settings).faults == ()
        assert one.newest is not None
        assert verify(settings, outside=[one.newest]).faults == ()


def test_who_has_forgotten_where_a_witness_is_asks_it(scribe: Scribe, tmp_path: Path):
    with StrictWitness(key_of_log(scribe)) as witness:
        settings = settings_with(tmp_path, witness)
        for number in range(3):
            sign(scribe, number)
            send(scribe, settings)
        with breaking_in(scribe.settings.database.url) as connection:
            connection.exec_driver_sql("DELETE FROM cosignatures")
        sign(scribe, 3)
        assert send(scribe, settings) == {witness.key.name: None}
        assert witness.answers == [200, 200, 200, 409, 200]


def test_no_other_history_is_cosigned_not_even_with_the_key(scribe: Scribe, tmp_path: Path):
    """Somebody has the database and the key, and writes another history: the witness refuses it, and its checkpoint names it."""
    with StrictWitness(key_of_log(scribe)) as witness:
        settings = settings_with(tmp_path, witness)
        for number in range(3):
            sign(scribe, number)
            send(scribe, settings)
        kept = witness.newest
        assert kept is not None
        with breaking_in(scribe.settings.database.url) as connection:
            remove_checkpoints(connection)
            connection.exec_driver_sql("DELETE FROM cosignatures")
            connection.exec_driver_sql("UPDATE gate_revisions SET reason = 'another'")
            rebuild_control(connection)
            rebuild_outcomes(connection)
        (tmp_path / "checkpoints.jsonl").unlink()
        maker = wiring.checkpointer(settings, scribe.store)
        maker.run(publish=True)
        assert "was a backup restored?" in str(send(scribe, settings)[witness.key.name])
        for number in range(3, 6):
            sign(scribe, number)
        assert "has cosigned another history" in str(send(scribe, settings)[witness.key.name])
        assert witness.newest == kept
        assert verify(settings).faults == ()
        found = [fault.detail for fault in verify(settings, outside=[kept]).faults]
        assert found == ["it was made of another log of heads"]


def by_javascript(arguments: list[str]) -> int:
    done = subprocess.run(
        ["node", str(JAVASCRIPT), *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    print(done.stdout)
    return done.returncode


@pytest.mark.parametrize(
    "alone", [verify_pyz, pytest.param(by_javascript, marks=pytest.mark.node)], ids=["pyz", "javascript"]
)
def test_the_verifiers_say_how_far_each_witness_has_cosigned(
    alone: Callable[[list[str]], int], scribe: Scribe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    if alone is by_javascript:
        need_node()
    with (
        StrictWitness(key_of_log(scribe)) as one,
        StrictWitness(key_of_log(scribe), name="b.example/w") as other,
    ):
        settings = settings_with(tmp_path, one)
        sign(scribe, 0)
        send(scribe, settings)
        keys = {each.key.name: each.key.key for each in (one, other)}
        silent = "b.example/w has cosigned none of the checkpoints that were read"
        report = verify(settings, witnesses=keys)
        assert report.faults == ()
        covered = report.counts["heads cosigned by witness.example/w1"]
        assert covered > 0
        assert [note for note in report.notes if "cosigned" in note] == [silent]
        sign(scribe, 1)
        notes = verify(settings, witnesses=keys).notes
        assert [
            note for note in notes if f"head {covered}, the newest that witness.example/w1 cosigned" in note
        ]
        export(settings, tmp_path / "bundle")
        (tmp_path / "witnesses").write_text(f"{one.key} https://witness.example\n\n{other.key}\n")
        (tmp_path / "key.pem").write_text(PUBLIC)
        given = [str(tmp_path / "bundle"), "--public-key", str(tmp_path / "key.pem"), "--json"]
        assert alone(given) == 0
        assert "cosigned" not in capsys.readouterr().out
        asked = ["--witness-keys", str(tmp_path / "witnesses")]
        assert alone([*given, *asked]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["counts"]["heads cosigned by witness.example/w1"] == covered
        assert silent in said["notes"]
        assert any(
            f"head {covered}, the newest that witness.example/w1 cosigned" in note for note in said["notes"]
        )
        lines = one.newest.splitlines(keepends=True)
        *rest, encoded = lines[-1].split(b" ")
        raw = bytearray(base64.b64decode(encoded))
        raw[-1] ^= 1
        changed = b"".join(lines[:-1]) + b" ".join([*rest, base64.b64encode(raw)]) + b"\n"
        wrong = "the cosignature of witness.example/w1 is not good for what it says"
        assert [one.detail for one in verify(settings, outside=[changed], witnesses=keys).faults] == [wrong]
        (tmp_path / "note").write_bytes(changed)
        assert alone([*given, *asked, "--checkpoints", str(tmp_path / "note")]) == 3
        assert wrong in capsys.readouterr().out
        (tmp_path / "witnesses").write_text(str(key_of_log(scribe)))
        assert alone([*given, *asked]) == 2


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ((500, b"x" * 70_000), "status 500"),
        ((200, b"x" * 70_000), "bytes"),
        ((200, b""), "no good signature"),
        ((200, b"\xff"), "no good signature"),
        ((200, "— witness.example/w1 AAAAAAAA\n".encode()), "no good signature"),
        ((302, b""), "status 302"),
        ((409, b"many\n"), "says no size"),
        ((409, b"0\n"), "two sizes in turn"),
        ((409, b"99\n"), "was a backup restored?"),
        ((422, b""), "another history"),
    ],
)
def test_what_is_no_cosignature_is_told_and_asked_for_again(
    scribe: Scribe, broken: tuple[int, bytes], said: str, tmp_path: Path
):
    with StrictWitness(key_of_log(scribe)) as witness:
        settings = settings_with(tmp_path, witness)
        sign(scribe, 1)
        witness.broken = broken
        assert said in str(send(scribe, settings)[witness.key.name])
        assert scribe.store.heads.cosigned() == []
        witness.broken = None
        assert send(scribe, settings) == {witness.key.name: None}


def test_who_does_not_know_the_log_or_its_key_says_so(scribe: Scribe, tmp_path: Path):
    sign(scribe, 1)
    origin = key_of_log(scribe).name
    stranger = signing.Signer(signing.generate_keys()[0]).verifier_key(origin)
    for known, said in ((None, "does not know this record"), (stranger, "does not trust the key")):
        with StrictWitness(known) as witness:
            failed = send(scribe, settings_with(tmp_path, witness))
            assert said in str(failed[witness.key.name])


def test_nothing_waits_for_a_witness(scribe: Scribe, tmp_path: Path):
    """What signs goes on while one witness does not answer, and shows for how long it has lacked a head."""
    stop = threading.Event()
    with StrictWitness(key_of_log(scribe)) as away, StrictWitness(key_of_log(scribe), name="w2") as there:
        away.broken = 503, b""
        metrics = RecalibratorMetrics()
        stack = ExitStack()
        run = wiring.signing(stack, settings_with(tmp_path, away, there), scribe.store, metrics)

        def shown(name: str) -> float:
            return metrics.of("audit_unwitnessed_seconds").labels(name)._value.get()

        signing_thread = threading.Thread(target=run, args=(stop,))
        signing_thread.start()
        try:
            wait_until(lambda: there.size == 1, "the other has cosigned")
            for number in range(3):
                scribe.deliver([event("best", number)])
                wait_until(lambda most=number + 2: there.size >= most, "it cosigns what is new")  # type: ignore[misc]
            wait_until(lambda: shown(away.key.name) > 0, "one lacks some")
            wait_until(lambda: shown("w2") == 0.0, "the other lacks nothing")
            away.broken = None
            wait_until(lambda: away.size == there.size, "it has them once it is back", seconds=240)
        finally:
            stop.set()
            signing_thread.join()
            stack.close()


@pytest.mark.parametrize(
    "text", ["", "kept.jsonl", "https://witness.example", "w1+00000000+BAAA https://witness.example"]
)
def test_a_witness_that_is_none_is_refused(text: str):
    with pytest.raises(UsageError, match=r"a witness is NAME\+HASH\+KEY https"):
        read_witness(text)


def test_the_commands(
    scribe: Scribe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("STREAMER_DATABASE_URL", scribe.settings.database.url)
    monkeypatch.setenv("STREAMER_AUDIT_PRIVATE_KEY", PRIVATE)
    with StrictWitness(key_of_log(scribe)) as witness:
        name = witness.key.name
        monkeypatch.setenv("STREAMER_AUDIT_WITNESSES", json.dumps([witness.address]))
        sign(scribe, 1)
        assert main(["audit", "checkpoint", "--json"]) == 0
        made: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert made == {
            "made": False,
            "size": 1,
            "witnesses": [{"witness": name, "cosigned": 1, "failed": None}],
            "verifier_key": str(key_of_log(scribe)),
        }
        sign(scribe, 2)
        # A receipt goes up to what a witness has cosigned, where that covers the decision.
        assert main(["audit", "receipt", "batch-1"]) == 0
        assert json.loads(capsys.readouterr().out)["checkpoint"].encode() == witness.newest
        assert main(["audit", "receipt", "batch-2"]) == 0
        assert read_note(json.loads(capsys.readouterr().out)["checkpoint"]).size == 2
        witness.broken = 503, b""
        assert main(["audit", "checkpoint"]) == 1
        found = capsys.readouterr().err
        assert f"{name} did not cosign it, and is asked again: it answered with status 503" in found
        witness.broken = None
        assert main(["audit", "checkpoint"]) == 0
        assert f"{name} has cosigned checkpoint 2." in capsys.readouterr().out
        assert witness.newest is not None
        (tmp_path / "witnessed").write_bytes(witness.newest)
    assert main(["audit", "verify", "--checkpoints", str(tmp_path / "witnessed")]) == 0
