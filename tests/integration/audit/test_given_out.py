"""Months that are given out: what nobody needs leaves, and the record proves as much as before."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import psycopg
import pytest
import sqlalchemy as sa
from pyarrow import parquet
from sqlalchemy.engine.interfaces import DBAPIConnection

from streamer import wiring
from streamer.audit.evidence.document import document_of
from streamer.audit.evidence.frameworks import ALL
from streamer.audit.evidence.pack import make_report
from streamer.audit.rescoring import Rescorer
from streamer.audit.signing import Signer, generate_keys
from streamer.audit.story import full_receipt, story_of
from streamer.audit.verification import Segments, VerificationReport
from streamer.cli import main
from streamer.errors import Unavailable, UsageError
from streamer.gates.batch_key import BatchKey
from streamer.journal import Partition
from streamer.risk.rounds.watch import RiskWatch
from streamer.signing.canonical_json import canonical_json
from streamer.signing.merkle import leaf_hash
from streamer.signing.notes import origin_of
from streamer.store import GivenOut, give_out, make_months, prune, schema_state
from streamer.store.audit import control
from streamer.store.audit.chained_rows import ChainedRowsSnapshot
from streamer.store.db.engine import Database
from streamer_verify.bundle import Bundle
from streamer_verify.command import Ranges, checkpoint_lines
from streamer_verify.command import verify_bundle as by_one_file
from streamer_verify.logs import Log
from streamer_verify.side_by_side import Processes
from streamer_verify.values import given_out_of, log_of
from streamer_verify.verifier import Verifier
from tests.conftest import ROOT
from tests.integration.audit.alone import in_javascript
from tests.integration.audit.attacker import breaking_in
from tests.integration.audit.beside import few_lines
from tests.integration.audit.conftest import Record
from tests.integration.audit.damage import Parts
from tests.integration.audit.history import KEYS, LOG, Scribe, event, export, label, settings_for, verify
from tests.integration.audit.judged import BY_A_JUDGE
from tests.integration.judge.test_judge_scores import Model, judge_at, scores_at
from tests.integration.watching.conftest import Shown
from tests.migrated import migrated
from tests.unit.signing.test_merkle import root_by_proof

SEGMENT_AS_TABLE = re.search(
    r"^```sh\n(streamer export segment .+)\n```\n\n```sql\n(.+);\n(.+);  -- 0\n```$",
    (ROOT / "docs" / "using.md").read_text(),
    re.MULTILINE,
)
GONE = "WHERE NOT EXISTS (SELECT 1 FROM decisions d WHERE d.batch = b.id) ORDER BY b.id"
CHANGED_BY_IT = {"control entries", "checkpoints", "decisions given out, not read"}


class Months:
    """A record of which months are given out."""

    def __init__(self, record: Record) -> None:
        self.record, self.settings = record, record.settings
        self.file = record.directory / "segment.zip"
        self.at = wiring.now() + timedelta(days=400)
        self.month = f"{wiring.now():%Y-%m}"

    def watch(self) -> None:
        """Everything is published, monitoring reads it, and a checkpoint covers it."""
        with wiring.open_store(self.settings) as store:
            places = [Partition(LOG, "streamer.responses", number) for number in range(2)]
            while waiting := store.unpublished(places, limit=500):
                store.mark_published(waiting)
            watcher = RiskWatch(store.monitoring, alerts=store.alerts, observer=Shown())
            for _ in range(3):
                self.at += timedelta(days=1)
                watcher.round(store.gates.list(), now=self.at)
        self.checkpoint()

    def checkpoint(self) -> None:
        with wiring.open_store(self.settings) as store:
            Scribe(store, self.settings).checkpoint()

    def deliver(self, *values: bytes) -> list[str]:
        """Let a worker decide; returns what became of each."""
        with wiring.open_store(self.settings) as store:
            Scribe(store, self.settings).deliver(values)
        newest = "SELECT kind FROM outcomes ORDER BY recorded_at DESC, leaf_index DESC"
        return [kind for (kind,) in reversed(self.rows(newest)[: len(values)])]

    def change(self, *statements: str) -> None:
        with breaking_in(self.record.url) as connection:
            for one in statements:
                assert connection.exec_driver_sql(one).rowcount > 0

    def gone(self) -> list[BatchKey]:
        """The batches whose decisions were given out."""
        columns = "gate, batch_id, attempt"
        return [BatchKey(*row) for row in self.rows(f"SELECT {columns} FROM batches b {GONE}")]

    def give(self, **options: Any) -> GivenOut:
        given = {"now": self.at, "by": "ana", "reason": "the disk is full", "keys": KEYS} | options
        month, out = given.pop("month", self.month), given.pop("out", self.file)
        return give_out(self.record.url, month, out, **given)

    def verify(self, segments: Iterable[Path] = ()) -> VerificationReport:
        return verify(self.settings, segments=Segments(segments))

    def alone(self, segments: Iterable[Path] = ()) -> Verifier:
        target = self.record.directory / "bundle.zip"
        target.unlink(missing_ok=True)
        export(self.settings, target)
        outside = checkpoint_lines(self.record.file.read_bytes())
        return by_one_file(Bundle(target), KEYS, outside, segments=Segments(segments))

    def rows(self, query: str) -> list[Any]:
        database = Database(self.record.url)
        try:
            with database.reading() as connection:
                return list(connection.exec_driver_sql(query))
        finally:
            database.close()

    def until_waited_for(self) -> None:
        """Somebody waits for a table that others read."""
        while not self.rows("SELECT 1 FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted"):
            time.sleep(0.01)

    def count(self, query: str) -> int:
        return int(self.rows(query)[0][0])


@pytest.fixture
def months(record: Record) -> Months:
    found = Months(record)
    found.watch()
    return found


def rest(counts: Any) -> dict[str, int]:
    return {name: count for name, count in counts.items() if name not in CHANGED_BY_IT and count}


def test_what_was_not_drawn_leaves_and_everything_verifies(months: Months) -> None:
    before, alone = months.verify(), months.alone()
    assert (before.faults, alone.faults) == ((), [])
    decided = months.count("SELECT count(*) FROM decisions")
    planned = months.give(dry_run=True)
    given = months.give()
    assert (planned.sha256, planned.decisions) == (None, given.decisions)
    stays = months.count("SELECT count(*) FROM decisions")
    assert (given.decisions > 5, stays) == (True, decided - given.decisions)
    texts = "SELECT count(*) FROM batches WHERE erased_at IS NULL"
    answered = "SELECT count(DISTINCT batch) FROM responses"
    assert months.count(texts) == stays == months.count(answered)

    found, found_alone = months.verify(), months.alone()
    assert (found.faults, found_alone.faults) == ((), [])
    for one, notes in ((found, found.notes), (found_alone, found_alone.notes.values())):
        assert one.counts["decisions given out, not read"] == given.decisions
        (note,) = (said for said in notes if "given out" in said)
        assert note == (
            f"{given.decisions} decisions through {months.month}: they were given out in"
            f" segment.zip, SHA-256 {given.sha256}; --segment reads it"
        )
    for name in ("calibrations derived again", "runs whose sample is complete"):
        assert found.counts[name] == before.counts[name] > 0

    months.checkpoint()
    found, found_alone = months.verify([months.file]), months.alone([months.file])
    assert (found.faults, found_alone.faults) == ((), [])
    assert (found.notes, found_alone.notes) == (before.notes, alone.notes)
    assert rest(found.counts) == rest(before.counts)
    assert rest(found_alone.counts) == rest(alone.counts)
    target = months.record.directory / "bundle.zip"
    with Processes(2, partial(Ranges, target, Segments([months.file]))) as beside, few_lines():
        found_beside = by_one_file(
            Bundle(target), KEYS, None, segments=Segments([months.file]), beside=beside
        )
    assert (found_beside.faults, rest(found_beside.counts)) == ([], rest(alone.counts))
    assert "were given out" in in_javascript(target, None)["unreadable"]
    with pytest.raises(ValueError, match="it is a segment"):
        by_one_file(Bundle(months.file), KEYS, None)

    assert months.give() == given  # repeated, it says the same
    with wiring.open_store(months.settings) as store:
        assert store.evidence.log_faults() == []


def test_marks_of_what_was_given_out_are_read_again_from_the_segment(tmp_path: Path) -> None:
    settings = settings_for(f"sqlite:///{tmp_path / 'record.db'}", tmp_path)
    migrated(settings)
    with Model() as model, judge_at(model) as judge, wiring.open_store(settings) as store:
        scribe = Scribe(store, settings, judge=scores_at(model, judge))
        scribe.gate("judged", unit="best", audit_probability=0.0, **BY_A_JUDGE)
        scribe.deliver(event("judged", n) for n in range(3))
    months = Months(Record(settings.database.url, tmp_path, settings))
    months.watch()

    def again(*segments: Path) -> int:
        report = verify(settings, segments=Segments(segments), rescorer=Rescorer({}))
        assert report.faults == ()
        return report.counts.get("marks read again", 0)

    marks = again()
    assert months.give().decisions > 1
    assert again() < again(months.file) == marks


def test_a_repeat_of_what_was_given_out_is_decided_no_second_time(months: Months) -> None:
    months.give()
    gate, batch_id, attempt = key = months.gone()[0]
    number = int(batch_id.removeprefix("batch-"))
    counts = [f"SELECT count(*) FROM {table}" for table in ("decisions", "pending_messages")]
    before = [*map(months.count, counts)]
    repeats = [event(gate, number, attempt=attempt, prompt=prompt) for prompt in ("one", "another")]
    assert months.deliver(*repeats) == ["duplicate", "duplicate"]
    assert [*map(months.count, counts)] == before
    with wiring.open_store(months.settings) as store:
        assert store.action(key) is None
        assert store.recorded(key) is None
        assert key in store.known([key])
        late = replace(label(gate, number), key=key)
        assert store.labels.unrecorded([late]) == [late]
        with store.evidence.logged() as rows:
            assert rows.actions([key])[key].value is None
    months.checkpoint()
    assert months.verify().faults == months.verify([months.file]).faults == ()


def test_inclusion_of_what_was_given_out_is_proved(months: Months) -> None:
    given = months.give()
    key = months.gone()[0]
    about = {"gate": key.gate, "attempt": key.attempt}
    with wiring.open_store(months.settings) as store:
        with store.evidence.snapshot() as snapshot:
            told = map(story_of, snapshot.decisions_of(key.batch_id, **about))
            assert [*told] == [[("given out", f"segment.zip, SHA-256 {given.sha256}")]]
        with store.evidence.snapshot(segments=Segments([months.file])) as snapshot:
            (told,) = snapshot.decisions_of(key.batch_id, **about)
            of = snapshot.leaves, snapshot.proof_of_head
            proved = full_receipt(told["line"], told["head"], *of)
    proof = [bytes.fromhex(one) for one in proved["proof"]]
    leaf = leaf_hash(proved["data"].encode())
    assert root_by_proof(proved["index"], proved["size"], leaf, proof).hex() == proved["root"]
    assert json.loads(proved["data"])["facts"]["batch"] == list(key)


def test_analysts_read_what_they_read_before_and_prove_it_from_the_file(
    months: Months, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(months.record.directory)
    monkeypatch.setenv("STREAMER_DATABASE_URL", months.record.url)
    assert main(["export", "decisions", "--format", "parquet", "--out", "before.parquet"]) == 0
    given = months.give(out=Path("2026-05.zip"))
    monkeypatch.delenv("STREAMER_DATABASE_URL")  # the file alone
    assert SEGMENT_AS_TABLE is not None
    command, counted, wrong = SEGMENT_AS_TABLE.groups()
    assert main(command.split()[1:]) == 0
    assert f"only the record says: the SHA-256 of 2026-05.zip, {given.sha256}," in capsys.readouterr().err
    before, table = (parquet.read_table(f"{one}.parquet") for one in ("before", "2026-05"))
    assert table.schema.metadata[b"sha256"].decode() == given.sha256
    before, rows = before.to_pylist(), table.to_pylist()
    key = itemgetter("gate", "batch_id", "attempt")
    decided = {key(row): row for row in rows if row["kind"] == "decision"}
    assert decided.keys() == set(map(key, before))
    for row in before:
        found = decided[key(row)]
        assert {name: found[name] for name in row} == row
        assert len(found["answers"]) == row["responses"]
    assert sum(count for *_, count, _ in duckdb.sql(counted).fetchall()) == len(before)
    assert duckdb.sql(wrong).fetchall() == [(0,)]

    gone = {tuple(one) for one in months.gone()}
    ((logs,),) = months.rows("SELECT logs FROM give_outs")
    with wiring.open_store(months.settings) as store, store.evidence.snapshot() as snapshot:
        heads = {log_of(one): one for one in snapshot.head()["partitions"]}
    places = itemgetter("log_id", "topic", "partition")
    for place, (_, end, count, root, _) in given_out_of(logs).items():
        whole, left = Log(), Log()
        for row in rows:
            if places(row) == place:
                leaf = leaf_hash(row["data"].encode())
                whole.append(leaf)
                if row["kind"] == "decision" and key(row) in gone:
                    recorded = row["recorded_at"].isoformat(timespec="microseconds")
                    left.append(leaf_hash(canonical_json([row["leaf"], recorded, list(key(row))])))
        assert (left.size, left.root()) == (count, root)
        assert (whole.size, whole.root()) == (end, heads[place]["root"])

    assert {row["gate"] for row in rows if row["kind"] in ("label", "duplicate", "conflict")} == {"best"}
    for says, change in NO_SEGMENT.items():
        shutil.unpack_archive("2026-05.zip", "changed")
        bundle = Parts.read(Path("changed"))
        change(bundle)
        bundle.write(Path("changed"))
        shutil.make_archive("changed", "zip", "changed")
        assert main(["export", "segment", "changed.zip", "--out", "changed.parquet"]) == 2
        assert re.search(says, capsys.readouterr().err)
        assert list(Path().glob("changed.parquet*")) == []


def without_policies(bundle: Parts) -> None:
    kept = (line for line in bundle.lines["control.jsonl"] if line["kind"] != "policies")
    bundle.lines["control.jsonl"] = [line | {"index": at} for at, line in enumerate(kept)]
    signed_anew(bundle)


def signed_anew(bundle: Parts) -> None:
    """Seal it as somebody would who has a key of their own."""
    bundle.reseal()
    said = {name: bundle.manifest["head"][name] for name in ("control", "partitions")}
    bundle.lines["heads.jsonl"] = [head := bundle.lines["heads.jsonl"][-1] | said | {"index": 0}]
    signer, root = Signer(generate_keys()[0]), leaf_hash(canonical_json(head))
    note = signer.checkpoint(origin_of(head["record"]), 1, root)
    bundle.lines["checkpoints.jsonl"] = [{"checkpoint": note.decode()}]


def altered(file: str, kind: str, **now: Any) -> Callable[[Parts], None]:
    part = {"control.jsonl": "row", "outcomes.jsonl": "facts"}[file]

    def change(bundle: Parts) -> None:
        next(one for one in bundle.lines[file] if one["kind"] == kind)[part] |= now

    return change


def cut(bundle: Parts, **lines: list[Any]) -> None:
    """Take the last leaf out, with a manifest that fits, and replace the lines of other files."""
    *_, before, last = bundle.lines["outcomes.jsonl"]
    head = next(one for one in bundle.manifest["head"]["partitions"] if [*log_of(one)] == last["source"][:3])
    head |= {"size": head["size"] - 1, "root": before["root"]}
    bundle.lines["outcomes.jsonl"].pop()
    bundle.lines |= {f"{name}.jsonl": some for name, some in lines.items()}


NO_SEGMENT: dict[str, Callable[[Parts], object]] = {
    "no checkpoint in it covers": lambda bundle: cut(bundle, heads=[], checkpoints=[]),
    "heads, there are 0": lambda bundle: cut(bundle, heads=[]),
    "it was recorded after 2020-01": lambda bundle: bundle.manifest.update(segment="2020-01"),
    "leaf 0.*: it is not what was recorded": altered("outcomes.jsonl", "decision", mode="shadow"),
    "gate_revisions .*: it is not what was recorded": altered("control.jsonl", "gate_revisions", alpha=0.5),
    "control: its log has": lambda bundle: bundle.lines["control.jsonl"].pop(),
    "it ends with leaf .*, and should between": cut,
    "leaf 1: .* one before it is missing": lambda bundle: bundle.lines["outcomes.jsonl"].pop(0),
    "another log of heads": lambda bundle: bundle.lines["heads.jsonl"][-1].update(gates=[]),
    "it lacks policy": without_policies,
    "is no segment": lambda bundle: bundle.manifest.pop("segment"),
}
"""What makes a segment none, by what is said of it."""


@pytest.mark.parametrize("template", ["sqlite"], indirect=True)
def test_bytes_of_texts_that_left_are_overwritten(months: Months) -> None:
    def keep(connection: DBAPIConnection, _: object) -> None:
        connection.cursor().execute("PRAGMA secure_delete = OFF")  # as some builds begin

    texts = dict(months.rows("SELECT id, prompt FROM batches"))
    sa.event.listen(sa.Engine, "connect", keep)
    try:
        months.give()
    finally:
        sa.event.remove(sa.Engine, "connect", keep)
    gone = {number for (number,) in months.rows(f"SELECT id FROM batches b {GONE}")}
    stay = {texts[number] for number in texts.keys() - gone}
    kept = (months.record.directory / "record.db").read_bytes()
    assert [texts[one] for one in gone if texts[one] not in stay and texts[one].encode() in kept] == []


def test_monitoring_that_begins_anew_takes_what_stayed_for_no_draw(months: Months) -> None:
    months.deliver(*(event("each", number) for number in range(100, 160)))
    months.watch()
    months.give()
    months.change(*(f"DELETE FROM monitor_{one}" for one in ("alarms", "sequences", "gates")))
    months.watch()
    assert months.rows("SELECT id FROM alerts WHERE kind = 'draws'") == []


GIVEN = f"(SELECT id FROM batches b {GONE} LIMIT 1)"
KEPT = "(SELECT min(batch) FROM decisions WHERE sampled)"
TAMPERED = {
    "the row removed": (["DELETE FROM give_outs"], "a row that a decision refers to is missing"),
    "the row removed from the log": (
        ["DELETE FROM give_outs", "DELETE FROM control_log WHERE kind = 'give_outs'"],
        "a row that a decision refers to is missing",
    ),
    "another file named": (
        ["UPDATE give_outs SET sha256 = 'aa' || substr(sha256, 3)"],
        "it is not what was recorded",
    ),
    "a leaf replaced": (
        [f"UPDATE outcomes SET leaf_hash = root WHERE kind = 'decision' AND batch = {GIVEN}"],
        "its root is not that of the leaves up to it",
    ),
    "the key changed by which a repeat is known": (
        [f"UPDATE batches SET batch_id = 'other' WHERE id = {GIVEN}"],
        "other decisions are gone than were given out",
    ),
    "the moment moved": (
        [
            "UPDATE outcomes SET recorded_at = '2026-01-02 03:04:05.000006'"
            f" WHERE kind = 'decision' AND batch = {GIVEN}"
        ],
        "other decisions are gone than were given out",
    ),
    "a drawn decision removed": (
        [
            f"DELETE FROM decisions WHERE batch = {KEPT}",
            "DELETE FROM responses WHERE batch NOT IN (SELECT batch FROM decisions)",
        ],
        "other decisions are gone than were given out",
    ),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_what_is_changed_is_named_with_the_segment_and_without(months: Months, what: str) -> None:
    months.give()
    months.checkpoint()
    statements, detail = TAMPERED[what]
    months.change(*statements)
    for segments in ([], [months.file]):
        told = [one.detail for one in months.verify(segments).faults]
        for faults in (told, [one["detail"] for one in months.alone(segments).faults]):
            assert any(detail in one for one in faults), faults


@pytest.mark.parametrize("which", ["max", "min"])
def test_a_run_from_a_checkpoint_compares_what_left_since(months: Months, which: str) -> None:
    """Whether what is gone beside it was verified before, or came since."""
    since = months.verify().reached
    months.deliver(*(event("each", number) for number in range(100, 140)))
    months.watch()
    months.give()
    months.checkpoint()
    found = verify(months.settings, since=since)
    assert found.faults == ()
    removed = f"(SELECT {which}(batch) FROM decisions WHERE sampled)"
    months.change(f"DELETE FROM decisions WHERE batch = {removed}")
    told = verify(months.settings, since=since).faults
    assert any("other decisions are gone than were given out" in one.detail for one in told), told
    assert verify(months.settings, since=found.reached).faults == ()  # neither is read again


@pytest.mark.parametrize("what", ["log", "range"])
def test_a_leaf_that_its_row_does_not_have_was_not_given_out(months: Months, what: str) -> None:
    months.give()
    target = months.record.directory / "bundle"
    export(months.settings, target)
    bundle = Parts.read(target)
    (row,) = (one["row"] for one in bundle.lines["control.jsonl"] if one["kind"] == "give_outs")
    none = [[*one[:3], one[4], *one[4:]] for one in json.loads(row["logs"])]
    row["logs"] = json.dumps([] if what == "log" else none)
    bundle.write(target)
    for segments in ([], [months.file]):
        found = by_one_file(Bundle(target), KEYS, None, segments=Segments(segments))
        assert any("it was not given out" in one["detail"] for one in found.faults)


def test_a_segment_that_is_changed_or_of_another_record_is_named(months: Months) -> None:
    months.give()
    whole = months.file.read_bytes()
    other = months.record.directory / "other.zip"
    export(months.settings, other)
    months.file.write_bytes(whole[:-200] + bytes([whole[-200] ^ 1]) + whole[-199:])
    for file in (months.file, other):
        (fault,) = months.verify([file]).faults
        assert (fault.check, fault.place) == ("segment", str(file))
        assert fault.detail.startswith("the record, as far as it was read, has no give-out into it: it came ")
        (named,) = months.alone([file]).faults
        assert (named["check"], named["place"]) == ("segment", str(file))
    months.file.write_bytes(b"no zip")
    months.change(f"UPDATE give_outs SET sha256 = '{sha256(b'no zip').hexdigest()}'")
    assert any("the segment" in one.detail for one in months.verify([months.file]).faults)


def stop_at(where: str, done: str) -> None:
    if done == where:
        raise KeyboardInterrupt


HALFWAY: dict[str, Callable[[Months], object]] = {
    "the file is being written": lambda months: Path(f"{months.file}.partial").exists(),
    "the file is there": lambda months: months.file.exists(),
    "it is on record": lambda months: months.count("SELECT count(*) FROM give_outs"),
}


@pytest.mark.parametrize("when", [*HALFWAY, "in_transaction=kill@1", "in_transaction=kill@2"])
def test_the_command_killed_at_any_moment_is_run_again(months: Months, when: str) -> None:
    environment = os.environ | {"STREAMER_DATABASE_URL": months.record.url}
    breaking = environment | {"STREAMER_FAILPOINTS": "" if when in HALFWAY else when}
    later = [sys.executable, str(ROOT / "tests/faults/shifted_clock.py"), str(40 * 86_400)]
    command = [*later, "db", "give-out", months.month, "--out", str(months.file), "--yes"]
    with subprocess.Popen(command, env=breaking, stdout=subprocess.DEVNULL) as process:
        while when in HALFWAY and process.poll() is None and not HALFWAY[when](months):
            pass
        process.kill() if when in HALFWAY else process.wait()
    assert process.returncode in (0, -signal.SIGKILL), "0: it was done before it could be killed"
    subprocess.run(command, env=environment, check=True, timeout=240)
    given = months.give(dry_run=True)
    emptied = "SELECT count(*) FROM batches WHERE erased_at IS NOT NULL"
    assert months.count(emptied) == given.decisions > 0
    assert months.verify([months.file]).faults == ()


def test_two_at_once_write_one_file(months: Months, monkeypatch: pytest.MonkeyPatch) -> None:
    heads = ChainedRowsSnapshot.heads

    def meanwhile(rows: ChainedRowsSnapshot, first: int = 0) -> Iterator[bytes]:
        monkeypatch.undo()
        with pytest.raises(UsageError, match="another process writes"):
            months.give()
        yield from heads(rows, first)

    monkeypatch.setattr(ChainedRowsSnapshot, "heads", meanwhile)
    months.give()
    assert months.verify([months.file]).faults == ()


def test_what_came_again_meanwhile_is_published_first(months: Months) -> None:
    repeats = (
        "INSERT INTO pending_messages (source_log_id, source_topic, source_partition, topic, batch)"
        " SELECT log_id, topic, partition, 'streamer.actions', batch FROM outcomes WHERE kind = 'decision'"
    )
    decided = months.count("SELECT count(*) FROM decisions")
    with pytest.raises(UsageError, match="wait for the broker"):
        months.give(progress=lambda done: months.change(repeats) if done == "written" else None)
    assert months.count("SELECT count(*) FROM decisions") == decided
    months.change("DELETE FROM pending_messages")
    assert months.give().decisions > 0


def test_a_report_on_a_bundle_reads_segments_beside_it(
    months: Months, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    months.give()
    months.checkpoint()
    target = months.record.directory / "bundle.zip"
    export(months.settings, target)
    report = partial(make_report, target, ALL["soc2"], since=None, until=None, keys=KEYS)
    with pytest.raises(UsageError, match="give --segment segment"):
        report()
    made = report(segments=Segments([months.file]))
    assert made["figures"]["verification"]["value"]["faults"] == 0
    assert " bundle.zip --segment segment.zip --public-key" in document_of(made).how[0]
    out = months.record.directory / "report"
    asked = ["audit", "report", "--framework", "soc2", "--no-pdf", "--bundle", str(target), "--out", str(out)]
    capsys.readouterr()
    assert main([*asked, "--segment", str(months.file)]) == 0
    command = f"verify.pyz {target} --segment {months.file} --report {out / 'report.json'}"
    assert command in capsys.readouterr().out
    shutil.rmtree(out)
    monkeypatch.setenv("STREAMER_DATABASE_URL", months.record.url)
    del asked[5:7]
    for _ in range(2):  # a refusal leaves nothing
        assert main(asked) == 2
        assert "give --segment segment.zip" in capsys.readouterr().err
        assert not out.exists()


def test_a_file_that_is_not_what_the_record_has_stays_and_nothing_leaves(months: Months) -> None:
    export(months.settings, months.file)
    decided = months.count("SELECT count(*) FROM decisions")
    with pytest.raises(UsageError, match="is not what the record has: remove it"):
        months.give()
    assert months.count("SELECT count(*) FROM decisions") == decided


def test_given_out_once_it_says_so_and_compares_the_file(
    months: Months, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = months.give()
    monkeypatch.setenv("STREAMER_DATABASE_URL", months.record.url)
    monkeypatch.setattr(wiring, "now", lambda: months.at)
    kept, other = (months.file.with_name(name) for name in ("kept.zip", "other.zip"))
    months.file.rename(kept)
    other.write_bytes(b"")
    for options in ([], ["--dry-run"]):
        command = ["db", "give-out", months.month, "--yes", *options, "--out"]
        for out, says in ((months.file, "is not there"), (other, "is another file")):
            assert main([*command, str(out)]) == 2
            assert f"into segment.zip, SHA-256 {given.sha256}: {out} {says}" in capsys.readouterr().err
        assert main([*command, str(kept)]) == 0
        assert f"{given.decisions} decisions through {months.month} left earlier" in capsys.readouterr().out
    assert main(["export", "decisions"]) == 0
    said = f"{given.decisions} undrawn decisions through {months.month} are in segment.zip alone"
    assert said in capsys.readouterr().err


def test_what_is_still_needed_is_said(record: Record) -> None:
    months = Months(record)
    with pytest.raises(UsageError, match="no checkpoint covers all"):
        months.give()
    months.checkpoint()
    with pytest.raises(UsageError, match="monitoring has not read all that best, each decided"):
        months.give()
    months.watch()
    for options, says in (
        *(({"month": one}, "written like 2026-05") for one in ("2026-13", "2026-5", "9999-12")),
        ({"month": "2020-01"}, "nothing that was recorded through 2020-01 is left"),
        ({"now": wiring.now()}, "has not ended"),
        ({"out": record.directory / "segment"}, "must end in .zip"),
        ({"witnesses": ["w"]}, "that every witness has cosigned covers"),
    ):
        with pytest.raises(UsageError, match=says):
            months.give(**options)
    months.change("UPDATE decisions SET segment = 'x' WHERE NOT sampled")
    with pytest.raises(UsageError, match="is not what was recorded"):
        months.give()


def test_months_follow_each_other_and_erasures_keep_their_place(months: Months) -> None:
    old = {"older_than": timedelta(0), "now": months.at, "sooner_than_six_months": True}
    prune(months.record.url, **old)  # type: ignore[arg-type]
    assert set(months.deliver(*(event("each", number) for number in range(80, 90)))) == {"decision"}
    months.watch()
    with pytest.raises(KeyboardInterrupt):
        months.give(progress=partial(stop_at, "recorded"))
    first = months.give(dry_run=True)
    more = [event("each", number) for number in range(100, 140)]
    assert set(months.deliver(*more)) == {"decision"}
    months.watch()
    pruned = prune(months.record.url, **old | {"now": months.at})  # type: ignore[arg-type]
    assert pruned.batches >= len(more)
    later = months.at + timedelta(days=40)
    second = months.record.directory / "second.zip"
    with pytest.raises(UsageError, match="was given out with"):
        months.give(month=f"{wiring.now() - timedelta(days=40):%Y-%m}")
    then = months.give(month=f"{wiring.now() + timedelta(days=32):%Y-%m}", out=second, now=later)
    assert 0 < then.decisions < len(more)
    assert all(at for (at,) in months.rows(f"SELECT erased_at FROM batches b {GONE}"))
    months.checkpoint()
    assert months.verify([months.file, second]).faults == ()
    assert months.verify([second]).counts["decisions given out, not read"] == first.decisions
    assert months.alone([second, months.file]).faults == []


@pytest.mark.postgres
@pytest.mark.parametrize("template", ["postgresql"], indirect=True)
def test_who_reads_all_the_time_stops_nobody_and_it_goes_on_when_that_has_ended(
    months: Months, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_months(months.record.url, now=wiring.now(), ahead=0)
    months.deliver(*(event("each", number) for number in range(100, 140)))
    months.watch()
    written, database = threading.Event(), Database(months.record.url)

    def deliver() -> None:
        """As a worker that comes while tables are waited for."""
        months.until_waited_for()
        months.deliver(event("each", 200))
        written.set()

    delivers = threading.Thread(target=deliver)
    monkeypatch.setattr("streamer.store.audit.giving_out._TRIES", 2)
    pause = SimpleNamespace(sleep=lambda _: written.wait(60))
    monkeypatch.setattr("streamer.store.audit.giving_out.time", pause)
    with database.reading(snapshot=True) as connection:
        decided = connection.exec_driver_sql("SELECT count(*) FROM decisions").scalar_one()
        delivers.start()
        with pytest.raises(Unavailable, match=r"Run this again when .*segment.zip"):
            months.give()
        assert written.is_set()
        assert connection.exec_driver_sql("SELECT count(*) FROM decisions").scalar_one() == decided
        months.watch()
        months.file.unlink()  # it lacks what came meanwhile
        monkeypatch.setattr(pause, "sleep", lambda _: connection.rollback())
        assert months.give().decisions > 0
    assert months.verify([months.file]).faults == ()
    database.close()


@pytest.mark.postgres
@pytest.mark.parametrize("template", ["postgresql"], indirect=True)
def test_partitions_are_put_in_place_of_those_that_lost_decisions(months: Months) -> None:
    make_months(months.record.url, now=wiring.now(), ahead=0)
    more = [event("each", number) for number in range(100, 140)]
    assert set(months.deliver(*more)) == {"decision"}
    months.watch()
    of_file = "SELECT oid, reltablespace FROM pg_class WHERE relname = 'decisions_before'"
    database, reads = Database(months.record.url), threading.Event()
    with psycopg.connect(months.record.url.replace("+psycopg", ""), autocommit=True) as one:
        one.execute("SET allow_in_place_tablespaces = on")
        one.execute("CREATE TABLESPACE cheap LOCATION ''")  # of the server: another test has `slow`
        one.execute("ALTER TABLE streamer.decisions_before SET TABLESPACE cheap")
    (was,) = months.rows(of_file)

    def calibrate() -> None:
        """Read decisions, then wait for who waits for them."""
        with database.engine.begin() as two:
            two.exec_driver_sql("SELECT 1 FROM decisions LIMIT 1")
            reads.set()
            months.until_waited_for()
            control.head(two, lock=True)

    def collide(done: str) -> None:
        if done == "written":
            calibrates.start()
            reads.wait()

    calibrates = threading.Thread(target=calibrate)
    undrawn = "SELECT count(*) FROM decisions_before WHERE NOT sampled"
    first = (
        "SELECT min(d.batch) FROM decisions d JOIN batches b ON b.id = d.batch WHERE b.attempt = 1"
        " GROUP BY d.gate, d.policy_version"
    )
    stay = months.count(f"{undrawn} AND batch IN ({first})")
    given = months.give(progress=collide)
    calibrates.join()
    ((oid, space),) = months.rows(of_file)
    assert oid != was.oid
    assert space == was.reltablespace > 0
    assert months.count(undrawn) == stay  # the first under each policy
    months.checkpoint()
    assert schema_state(months.record.url).drift == ()
    assert months.verify([months.file]).faults == ()
    assert months.verify().counts["decisions given out, not read"] == given.decisions
    with pytest.raises(Exception, match="append-only"), database.engine.begin() as three:
        three.exec_driver_sql("UPDATE decisions_before SET segment = 'x'")
    database.close()
