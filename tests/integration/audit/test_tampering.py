"""Whatever somebody with the database's password changes, `audit verify` and the one-file verifier find and name."""

import hashlib
import json
import zipfile
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from streamer import wiring
from streamer.audit import signing
from streamer.audit.checkpointing import said as checkpoint_of
from streamer.events.checkpoints import encode_checkpoint
from streamer.signing.canonical_json import canonical_json
from streamer_verify import bundle as alone_bundle
from streamer_verify.command import main as verify_bundle_alone
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.attacker import (
    batch_of,
    breaking_in,
    cut_tail,
    rebuild_control,
    rebuild_outcomes,
    remove_checkpoints,
    reseal,
)
from tests.integration.audit.conftest import Record
from tests.integration.audit.history import KEYS, PRIVATE
from tests.machine import LONG

B25 = "(SELECT id FROM batches WHERE gate = 'best' AND batch_id = 'batch-25')"
B26 = "(SELECT id FROM batches WHERE gate = 'best' AND batch_id = 'batch-26')"
HERE = "topic = 'streamer.responses' AND partition = 0"
LAST_RUN = "(SELECT max(id) FROM calibration_runs)"
CUT = "(SELECT max(version) FROM policies WHERE gate = 'best' AND state = 'cut')"

# One or two of each table: `test_every_column` changes every column.
CHANGES = [
    # what was decided
    (f"UPDATE responses SET score = 0.999 WHERE batch = {B25} AND position = 1", "best/batch-25#1", "not what"),
    (f"UPDATE decisions SET action_headers = '[]' WHERE batch = {B25}", "best/batch-25#1", "not what"),
    # texts and refused bytes
    (f"UPDATE batches SET prompt = 'else' WHERE id = {B25}", "best/batch-25#1", "texts"),
    (f"UPDATE responses SET text = 'else' WHERE batch = {B25} AND position = 0", "best/batch-25#1", "texts"),
    (f"UPDATE batches SET metadata = '{{}}' WHERE id = {B25}", "best/batch-25#1", "metadata"),
    ("UPDATE dead_letters SET value = key WHERE code = 'not_utf8'", r"streamer.responses[0], leaf", "bytes"),
    # leaves
    (f'DELETE FROM outcomes WHERE {HERE} AND "offset" = 21', "streamer.responses[0], leaf 21", "missing"),
    (f"DELETE FROM decisions WHERE batch = {B25}", "streamer.responses[0], leaf", "missing"),
    (f"DELETE FROM responses WHERE batch = {B25} AND position = 3", "best/batch-25#1", "not what"),
    (f'UPDATE outcomes SET "offset" = 900 WHERE {HERE} AND leaf_index = 39', "offset 900", "not what"),
    (f"UPDATE outcomes SET kind = 'duplicate' WHERE batch = {B25}", "leaf 25, offset 25", "not what"),
    (f"UPDATE outcomes SET leaf_hash = (SELECT leaf_hash FROM outcomes WHERE {HERE} AND leaf_index = 2)"
     f" WHERE {HERE} AND leaf_index = 25", "leaf 25, offset 25", "not what"),
    (f"UPDATE progress SET next_offset = 3 WHERE {HERE}", "streamer.responses[0]", "before it"),
    (f"DELETE FROM progress WHERE {HERE}", "streamer.responses[0]", "does not know"),
    # labels
    ("UPDATE label_revisions SET severity = 0.5 WHERE source = 'topic' AND batch_id = 'batch-3'", "streamer.labels[0]", "not what"),
    ("UPDATE label_revisions SET effective_at = '2020-01-01 00:00:00.000000' WHERE source = 'topic' AND batch_id = 'batch-3'",
     "streamer.labels[0]", "earlier of"),
    ("UPDATE label_revisions SET severity = 0 WHERE source = 'file' AND batch_id = 'batch-5'", "label_revisions gate each", "not what"),
    ("DELETE FROM label_revisions WHERE source = 'file' AND batch_id = 'batch-5'", "label_revisions", "gone"),
    ("DELETE FROM label_revisions WHERE source = 'topic' AND batch_id = 'batch-3'", "streamer.labels[0]", "missing"),
    ("UPDATE label_revisions SET source = 'topic' WHERE source = 'file' AND batch_id = 'batch-5'", "label_revisions gate each", "not what"),
    ("UPDATE label_revisions SET source = 'http' WHERE source = 'topic' AND batch_id = 'batch-3'", "label_revisions", "no log"),
    ("UPDATE label_revisions SET source = 'file' WHERE source = 'topic' AND batch_id = 'batch-3'", "label_revisions [", "no log"),
    *[(f"""INSERT INTO label_revisions (gate, batch_id, attempt, response_id, kind, labeller, severity, labelled_at,
           received_at, effective_at, source) SELECT gate, batch_id, attempt, response_id, kind, 'mallory', 0,
           labelled_at, received_at, effective_at, '{source}' FROM label_revisions WHERE source = 'file'
           AND batch_id = 'batch-5'""", "label_revisions [", "no log") for source in ("file", "topic")],
    # what governs decisions
    ("UPDATE gates SET seed = 7 WHERE name = 'each'", "control, leaf 5, gates name each", "not what"),
    ("UPDATE gates SET audit_salt = (SELECT audit_salt FROM gates WHERE name = 'best') WHERE name = 'each'", "gates name each", "not what"),
    ("UPDATE gate_revisions SET alpha = 0.9 WHERE gate = 'each'", "gate_revisions gate each revision 1", "not what"),
    (f"UPDATE policies SET threshold = 0.01 WHERE gate = 'best' AND version = {CUT}", "policies gate best version", "not what"),
    (f"DELETE FROM policies WHERE gate = 'best' AND version = {CUT}", "policies", "gone"),
    ("UPDATE policy_events SET by = 'nobody' WHERE event = 'closed' AND gate = 'best'", "policy_events gate best", "not what"),
    ("DELETE FROM policy_events WHERE event = 'closed' AND gate = 'best'", "policy_events", "gone"),
    (f"INSERT INTO policies (gate, version, gate_revision, state, threshold, calibrated, calibration_run, guarantee,"
     f" valid_from, created_by, reason, rule) SELECT gate, 99, gate_revision, state, threshold, calibrated, calibration_run, guarantee,"
     f" valid_from, created_by, reason, rule FROM policies WHERE gate = 'best' AND version = {CUT}", 'policies ["best",99]', "no log"),
    (f"UPDATE calibration_runs SET seed = 7 WHERE id = {LAST_RUN}", "calibration_runs gate best", "not what"),
    (f"UPDATE calibration_inputs SET severity = 0.25 WHERE run = {LAST_RUN} AND severity IS NOT NULL", "calibration_runs gate best", "not what"),
    (f"DELETE FROM calibration_inputs WHERE run = {LAST_RUN} AND severity IS NULL", "calibration_runs gate best", "not what"),
    (f"UPDATE calibration_candidates SET threshold = 0.1 WHERE run = {LAST_RUN} AND threshold IS NOT NULL", "calibration_runs gate best", "not what"),
    ("UPDATE data_gaps SET to_offset = to_offset + 5", "data_gaps topic streamer.responses", "not what"),
    ("DELETE FROM data_gaps", "data_gaps", "gone"),
    ("UPDATE control_log SET sealed = replace(sealed, '\"seed\"', '\"sead\"') WHERE leaf_index = 5", "control, leaf 5", ""),
    ("DELETE FROM control_log WHERE leaf_index = 6", "control, leaf 6", "missing"),
    ("UPDATE control_head SET log_size = 3", "control", "should have 3"),
    # checkpoints
    ("DELETE FROM heads WHERE leaf_index = 2", "checkpoint 3", "it saw 3 heads, there are 2"),
    ("DELETE FROM heads WHERE leaf_index = 1", "checkpoint 2", "there are 1"),
    ("UPDATE heads SET leaf_index = 5 WHERE leaf_index = 2", "checkpoint 3", "there are 2"),
    ("UPDATE control_head SET record_id = substr(log_edge, 1, 32)", "checkpoint 1", "another record"),
]  # fmt: skip


EVERYWHERE = [("sqlite", *change) for change in CHANGES] + [
    pytest.param("postgresql", *change, marks=pytest.mark.postgres)
    # The checks are the same code for both: without the long form a sample shows that PostgreSQL's rows are too.
    for change in (CHANGES if LONG else CHANGES[::5])
]


ON_SQLITE = pytest.mark.parametrize("template", ["sqlite"], indirect=True)
"""For what is the same code on both, and for values of a type that PostgreSQL does not store."""


def check(record: Record, place: str, said: str, *, alone: bool = True) -> None:
    """Both verifiers name the row; what they name first is it, or stands in the same words among the first."""
    with wiring.open_store(record.settings) as store:
        report = record.verify(store=store)
        theirs = record.verify_alone(store=store).faults if alone else []
    found = [(fault.place, fault.detail) for fault in report.faults]
    assert any(place in where and said in what for where, what in found[:3]), found[:5]
    if alone:
        named = [(fault["place"], fault["detail"]) for fault in theirs]
        assert any(
            place in where and said.replace("the database", "the bundle") in what for where, what in named[:3]
        ), named[:5]


def test_the_history_itself_fits(record: Record):
    report = record.verify()
    assert report.faults == ()
    assert (
        report.counts["decisions"] == report.counts["actions derived again"] == report.counts["draws"] == 76
    )
    assert report.counts["calibrations derived again"] == 3
    alone = record.verify_alone()
    assert alone.faults == []
    assert alone.counts["decisions"] == 76


@pytest.mark.parametrize(("template", "statement", "place", "said"), EVERYWHERE, indirect=["template"])
def test_a_change_is_named(record: Record, statement: str, place: str, said: str):
    with breaking_in(record.url) as connection:
        assert connection.exec_driver_sql(statement).rowcount
    check(record, place, said)


def test_a_decision_put_in_past_the_journal(record: Record):
    with breaking_in(record.url) as connection:
        for table, names in (
            ("batches", {"id": "9999", "batch_id": "'stray'"}),
            ("decisions", {"batch": "9999", "action_id": "'x'"}),
        ):
            columns = [c["name"] for c in sa.inspect(connection).get_columns(table)]
            quoted = ", ".join(f'"{name}"' for name in columns)
            values = ", ".join(names.get(name, f'"{name}"') for name in columns)
            where = "id" if table == "batches" else "batch"
            connection.exec_driver_sql(
                f"INSERT INTO {table} ({quoted}) SELECT {values} FROM {table} WHERE {where} = {B25}"
            )
    check(record, 'decisions ["best","stray",1]', "no log")


def test_leaves_that_changed_places(record: Record):
    with breaking_in(record.url) as connection:
        for old, new in ((25, 999), (26, 25), (999, 26)):
            connection.exec_driver_sql(
                f"UPDATE outcomes SET leaf_index = {new} WHERE {HERE} AND leaf_index = {old}"
            )
    check(record, "streamer.responses[0], leaf 25", "not what was recorded")


def test_an_old_outcome_told_once_more(record: Record):
    with breaking_in(record.url) as connection:
        connection.exec_driver_sql("DROP INDEX uq_outcomes_decided_once")
        connection.exec_driver_sql(
            'INSERT INTO outcomes (log_id, topic, partition, "offset", kind, batch, recorded_at, leaf_index, leaf_hash, root, control_size)'
            f" SELECT log_id, topic, partition, 500, kind, batch, recorded_at, 44, leaf_hash, root, control_size FROM outcomes"
            f" WHERE {HERE} AND leaf_index = 2"
        )
    check(record, "leaf 44, offset 500", "not what was recorded")


def test_texts_that_changed_places_with_their_seals(record: Record):
    with breaking_in(record.url) as connection:
        for column in ("prompt", "salt", "content_hash", "content_mac", '"references"', "metadata"):
            connection.exec_driver_sql(
                f"UPDATE batches SET {column} = (SELECT other.{column} FROM batches other WHERE other.id ="
                f" CASE WHEN batches.id = {B25} THEN {B26} ELSE {B25} END) WHERE id IN ({B25}, {B26})"
            )
    check(record, "best/batch-25#1", "not what was recorded")


def test_texts_that_changed_places_and_were_sealed_again(record: Record):
    with breaking_in(record.url) as connection:
        connection.exec_driver_sql(f"UPDATE batches SET prompt = 'else' WHERE id = {B25}")
        reseal(connection, batch_of(connection, "best", 25))
    check(record, "best/batch-25#1", "not what was recorded")


def test_a_tail_that_was_cut_off_and_mended(record: Record):
    with breaking_in(record.url) as connection:
        cut_tail(connection, 8)
    check(record, "streamer.responses[0], leaf 36", "the tail was cut off")


def test_what_is_younger_than_the_last_checkpoint_can_be_cut_and_that_is_said(record: Record):
    assert any("younger than the last checkpoint" in note for note in record.verify().notes)
    with breaking_in(record.url) as connection:
        cut_tail(connection, 4)
    assert record.verify().faults == ()


REBUILT = {
    "texts": f"UPDATE batches SET prompt = 'else' WHERE id = {B25}",
    "a label": "UPDATE label_revisions SET severity = 0.5 WHERE source = 'topic' AND batch_id = 'batch-3'",
    "headers": f"UPDATE decisions SET action_headers = '[]' WHERE batch = {B25}",
    "a refusal": "UPDATE dead_letters SET code = 'nan' WHERE code = 'not_utf8'",
}


@pytest.mark.parametrize("change", REBUILT)
def test_chains_that_were_computed_anew(record: Record, change: str):
    """What no run has read afterwards contradicts nothing in the database: a checkpoint from outside does."""
    with breaking_in(record.url) as connection:
        connection.exec_driver_sql(REBUILT[change])
        reseal(connection, batch_of(connection, "best", 25))
        rebuild_outcomes(connection)
        connection.exec_driver_sql("UPDATE signed_head SET size = 0, note = ''")
    within = record.verify(from_database=True)
    # A run names the logs that it has read.
    assert {fault.check for fault in within.faults} == {"calibration"}
    said = [note for note in within.notes if "checkpoint was" in note or "there is no checkpoint" in note]
    assert len(said) == 1, said
    for details in (
        [fault.detail for fault in record.verify().faults],
        [fault["detail"] for fault in record.verify_alone().faults],
    ):
        assert any("made of another history" in detail for detail in details)
    with breaking_in(record.url) as connection:
        remove_checkpoints(connection)
    assert [fault.detail for fault in record.verify().faults if fault.check == "checkpoint"] == [
        f"it saw {size} heads, there are 0: the newest were cut off" for size in (1, 2, 3)
    ]


def test_a_bad_sample_dropped_with_the_chain_computed_anew(record: Record):
    """The run that read it and the checkpoints tell, whatever is mended in its partition."""
    with breaking_in(record.url) as connection:
        gone = batch_of(connection, "best", 25)
        connection.exec_driver_sql(f"DELETE FROM outcomes WHERE batch = {gone}")
        rebuild_outcomes(connection)
        for table, column in (("responses", "batch"), ("decisions", "batch"), ("batches", "id")):
            connection.exec_driver_sql(f"DELETE FROM {table} WHERE {column} = {gone}")
        connection.exec_driver_sql("UPDATE signed_head SET size = 0, note = ''")
    (first, *_) = record.verify(from_database=True).faults
    assert "calibration_runs gate best" in first.place
    assert any("another history" in fault.detail for fault in record.verify().faults)
    assert any("another history" in fault["detail"] for fault in record.verify_alone().faults)


def test_a_sample_redrawn_with_the_chain_computed_anew_is_found_without_checkpoints(record: Record):
    with breaking_in(record.url) as connection:
        connection.exec_driver_sql(f"UPDATE decisions SET sampled = (1 = 0) WHERE batch = {B25}")
        connection.exec_driver_sql(f"UPDATE responses SET drawn = (1 = 0) WHERE batch = {B25}")
        rebuild_outcomes(connection)
        remove_checkpoints(connection)
    report = record.verify(from_database=True)
    assert "best/batch-25#1" in report.faults[0].place
    assert "the audit sample takes this batch" in report.faults[0].detail


def test_another_salt_with_everything_computed_anew_breaks_the_commitment(record: Record):
    with breaking_in(record.url) as connection:
        connection.exec_driver_sql(
            "UPDATE gates SET audit_salt = (SELECT substr(log_edge, 1, 32) FROM control_head) WHERE name = 'best'"
        )
        rebuild_control(connection)
    check(record, "gates name best", "committed to another salt")


def test_another_threshold_with_everything_computed_anew_is_not_what_the_run_finds(record: Record):
    with breaking_in(record.url) as connection:
        run = connection.exec_driver_sql(
            "SELECT id FROM calibration_runs WHERE state = 'cut' ORDER BY id DESC LIMIT 1"
        ).scalar_one()
        connection.exec_driver_sql(
            f"UPDATE calibration_runs SET threshold = threshold - 1e-15 WHERE id = {run}"
        )
        connection.exec_driver_sql(
            f"UPDATE calibration_candidates SET threshold = threshold - 1e-15 WHERE run = {run} AND decides"
        )
        connection.exec_driver_sql(
            f"UPDATE policies SET threshold = threshold - 1e-15 WHERE calibration_run = {run}"
        )
        rebuild_control(connection)
        remove_checkpoints(connection)
    report = record.verify(from_database=True)
    assert f"calibration_runs gate best id {run}" in report.faults[0].place
    assert "finds cut" in report.faults[0].detail
    assert record.verify_alone().faults  # by the checkpoints


def test_a_policy_that_ships_more_with_everything_computed_anew(record: Record):
    with breaking_in(record.url) as connection:
        connection.exec_driver_sql(
            f"UPDATE policies SET threshold = 0.01 WHERE gate = 'best' AND version = {CUT}"
        )
        rebuild_control(connection)
        remove_checkpoints(connection)
    for faults in (
        [fault.detail for fault in record.verify(from_database=True).faults],
        [fault["detail"] for fault in record.verify_alone(from_bundle=True).faults],
    ):
        assert "not what run" in faults[0]
        assert any("do not follow from scores and policy" in detail for detail in faults)


@ON_SQLITE
@pytest.mark.parametrize(
    ("change", "said"),
    [
        # An old threshold under a budget that it was never calibrated for.
        (f"UPDATE gate_revisions SET alpha = 0.01 WHERE gate = 'best' AND revision = (SELECT gate_revision FROM"
         f" policies WHERE gate = 'best' AND version = {CUT})", "calibrated for different settings: alpha"),
        ("UPDATE policies SET calibration_run = (SELECT max(id) FROM calibration_runs WHERE gate = 'each') WHERE"
         f" gate = 'best' AND version = {CUT}", "is of the gate each"),
        (f"""UPDATE policies SET rule = '{{"curve":null,"kind":"rank","parameters":{{}}}}' WHERE gate = 'best'"""
         f" AND version = {CUT}", "its rule is not the one"),
        (f"UPDATE policies SET guarantee = 'nothing bad ever ships' WHERE gate = 'best' AND version = {CUT}", "its guarantee"),
        (f"UPDATE calibration_runs SET groups = 1000, items = 1000 WHERE id = {LAST_RUN}", "another number of groups"),
        (f"UPDATE calibration_runs SET method = 'hb' WHERE id = {LAST_RUN}", "its method is not that of"),
        ("UPDATE label_revisions SET effective_at = '2020-01-01 00:00:00.000000' WHERE source = 'file' AND"
         " batch_id = 'batch-5'", "earlier of labelled and received"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_named_with_everything_computed_anew(
    record: Record, change: str, said: str
):
    with breaking_in(record.url) as connection:
        connection.exec_driver_sql(change)
        rebuild_control(connection)
        rebuild_outcomes(connection)
        remove_checkpoints(connection)
    assert any(said in fault.detail for fault in record.verify(from_database=True).faults)
    assert any(said in fault["detail"] for fault in record.verify_alone(from_bundle=True).faults)


@ON_SQLITE
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE outcomes SET recorded_at = 'yesterday' WHERE leaf_index = 2",
        "UPDATE outcomes SET leaf_hash = 'x' WHERE leaf_index = 2",
        "UPDATE control_log SET recorded_at = 'x' WHERE leaf_index = 2",
        "UPDATE policies SET rule = '[' WHERE version = 2",
        "UPDATE batches SET metadata = '{' WHERE id = 3",
        "UPDATE progress SET log_edge = 'hello'",
        "UPDATE calibration_inputs SET score = 'x'",
        "UPDATE gate_revisions SET alpha = 'x' WHERE revision = 1",
        "DELETE FROM control_head",
        "DELETE FROM gates",
    ],
)
def test_a_value_that_cannot_be_read_is_a_fault_and_no_crash(record: Record, change: str):
    with breaking_in(record.url) as connection:
        connection.exec_driver_sql(change)
    assert record.verify().faults


@ON_SQLITE
def test_an_outside_file_without_checkpoints_is_no_evidence_and_that_is_said(record: Record):
    record.file.write_bytes(b'{"sequence": 1, "torn')
    assert any("has no checkpoint" in note for note in record.verify().notes)
    assert any("has no checkpoint" in note for note in record.verify_alone().notes.values())


def _signed_by_another(line: bytes) -> bytes:
    checkpoint = checkpoint_of(line)
    signer = signing.Signer(signing.generate_keys()[0])
    return encode_checkpoint(signer.checkpoint(*checkpoint[:3]), wiring.now())


def _made_of_another_log(line: bytes) -> bytes:
    checkpoint = checkpoint_of(line)
    return encode_checkpoint(
        signing.Signer(PRIVATE).checkpoint(checkpoint.origin, checkpoint.size, bytes(32)), wiring.now()
    )


def _note(line: bytes) -> str:
    return str(json.loads(line)["checkpoint"])


def _with_note(line: bytes, note: str) -> bytes:
    return canonical_json(json.loads(line) | {"checkpoint": note})


FILES: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str, str]] = {
    "one was changed": (lambda s: [s[0], _with_note(s[1], _note(s[1]).replace("\n2\n", "\n3\n")), s[2]], "checkpoint 3", "not good"),
    "one is signed by another key": (lambda s: [*s[:2], _signed_by_another(s[2])], "checkpoint 3", "not trusted"),
    "one is of another log": (lambda s: [s[0], _made_of_another_log(s[1]), s[2]], "checkpoint 2", "another log of heads"),
    "one has another's signature": (
        lambda s: [s[0], _with_note(s[1], _note(s[1]).partition("\n\n")[0] + "\n\n" + _note(s[2]).partition("\n\n")[2]), s[2]],
        "checkpoint 2", "not good",
    ),
    "one is rubbish": (lambda s: [s[0], b"{}", *s[1:]], "line 2", "not a checkpoint"),
    "one has no signature": (lambda s: [s[0], _with_note(s[1], _note(s[1]).partition("\n\n")[0] + "\n\n"), s[2]], "line 2", "not a checkpoint"),
}  # fmt: skip


@pytest.mark.parametrize("change", FILES)
def test_a_file_of_checkpoints_that_was_changed(record: Record, change: str):
    edit, place, said = FILES[change]
    record.file.write_bytes(b"".join(line + b"\n" for line in edit(record.file.read_bytes().splitlines())))
    check(record, place, said)


@ON_SQLITE
def test_the_newest_checkpoint_alone_binds_all_that_was_signed(record: Record):
    newest = record.file.read_bytes().splitlines()[-1]
    record.file.write_bytes(_note(newest).encode())  # as a witness gives it
    assert record.verify().faults == ()
    with breaking_in(record.url) as connection:
        connection.exec_driver_sql(
            'UPDATE heads SET data = CAST(replace(data, \'"at":"2\', \'"at":"1\') AS BLOB) WHERE leaf_index = 0'
        )
    check(record, "checkpoint 3", "another log of heads")


def test_checkpoints_delivered_twice_in_any_order_are_no_fault(record: Record):
    lines = record.file.read_bytes().splitlines()
    assert record.verify(outside=[lines[2], lines[0], lines[1], lines[0], lines[2]]).faults == ()


def test_a_forged_checkpoint_in_the_database(record: Record):
    forged = json.loads(_signed_by_another(record.file.read_bytes().splitlines()[-1]))["checkpoint"].encode()
    with breaking_in(record.url) as connection:
        connection.execute(sa.text("UPDATE signed_head SET note = :value"), {"value": forged})
    check(record, "checkpoint 3", "not trusted")


def test_values_of_another_type_are_named_and_stop_nothing(record: Record):
    if not record.url.startswith("sqlite"):
        pytest.skip("only SQLite stores a value of any type in any column")
    with breaking_in(record.url) as connection:
        connection.exec_driver_sql(f"UPDATE batches SET content_mac = 'text' WHERE id = {B25}")
        connection.exec_driver_sql(
            f"UPDATE responses SET score = 'high' WHERE batch = {B26} AND position = 0"
        )
    check(record, "streamer.responses[0], leaf 25", "cannot be read")


@ON_SQLITE
@pytest.mark.parametrize("name", ["manifest.json", "control.jsonl", "outcomes.jsonl", "checkpoints.jsonl"])
def test_a_bundle_of_rubbish_is_refused_in_one_line(
    record: Record, name: str, capsys: pytest.CaptureFixture[str]
):
    record.verify_alone()
    bundle = record.directory / "bundle"
    whole = (bundle / name).read_bytes()
    manifest = json.loads((bundle / "manifest.json").read_bytes())
    rubbish = (
        b"null", b"[1]", b"NaN", b"[" * 100_000, b'{"a":1,"a":2}', b"\xff", b"{}",
        b'{"sequence":1e400}',
    )  # fmt: skip
    for line in rubbish:
        data = line + b"\n" + whole
        (bundle / name).write_bytes(data)
        if name != "manifest.json":
            about = {"sha256": hashlib.sha256(data).hexdigest(), "lines": data.count(b"\n")}
            changed = manifest | {"files": manifest["files"] | {name: about}}
            (bundle / "manifest.json").write_text(json.dumps(changed))
        status = verify_bundle_alone([str(bundle)])
        said = capsys.readouterr()
        # An object that is no checkpoint, or no leaf, is a fault among others; what is no canonical JSON is not gone through.
        named = name == "checkpoints.jsonl" or (name != "manifest.json" and line == b"{}")
        assert status == (3 if named else 2), line[:20]
        assert said.err.count("\n") == (0 if status == 3 else 1), said.err
        assert "Everything fits" not in said.out


@ON_SQLITE
@pytest.mark.parametrize("name", ["manifest.json", "control.jsonl", "outcomes.jsonl", "checkpoints.jsonl"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_line_without_end_is_refused_before_it_is_read(
    record: Record,
    name: str,
    packed: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    record.verify_alone()
    bundle = record.directory / "bundle"
    longest = max(len(line) + 1 for file in bundle.iterdir() for line in file.read_bytes().splitlines())
    monkeypatch.setattr(alone_bundle, "MOST_LINE", max(longest, (bundle / "manifest.json").stat().st_size))
    place = record.directory / "packed.zip" if packed else bundle

    def verified() -> int:
        if packed:
            with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as opened:
                for file in bundle.iterdir():
                    opened.write(file, file.name)
        return verify_bundle_alone([str(place), "--json"])

    assert verified() == 0
    with (bundle / name).open("ab") as file:
        file.write(b" " * (alone_bundle.MOST_LINE + 1))
    capsys.readouterr()
    assert verified() == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert name in said.err
    assert f"is longer than {alone_bundle.MOST_LINE} bytes" in said.err
    assert said.err.count("\n") == 1


@ON_SQLITE
def test_a_zip_that_no_record_is_packed_as_is_refused(
    record: Record, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    record.verify_alone()
    monkeypatch.setattr(alone_bundle, "MOST_LINE", 1_000)
    manifest = (record.directory / "bundle" / "manifest.json").read_bytes()
    for number, (method, said) in enumerate(
        (
            (zipfile.ZIP_DEFLATED, "unpacked, which no record is"),
            (zipfile.ZIP_BZIP2, "neither stored nor deflated"),
        )
    ):
        place = record.directory / f"{number}.zip"
        with zipfile.ZipFile(place, "w", method) as opened:
            opened.writestr("manifest.json", manifest)
            opened.writestr("outcomes.jsonl", b"{}\n" * 2**20)
        assert verify_bundle_alone([str(place)]) == 2
        assert said in capsys.readouterr().err


@ON_SQLITE
def test_a_manifest_that_lies_about_lines(record: Record):
    record.verify_alone()
    path = record.directory / "bundle" / "manifest.json"
    manifest = json.loads(path.read_bytes())
    manifest["files"]["outcomes.jsonl"]["lines"] += 1
    path.write_text(json.dumps(manifest))
    assert verify_bundle(path.parent, KEYS, None).faults[0]["place"] == "outcomes.jsonl"


def test_a_bundle_that_was_changed_after_it_was_exported(record: Record):
    record.verify_alone()
    target = record.directory / "bundle" / "outcomes.jsonl"
    target.write_bytes(target.read_bytes().replace(b'"kind":"human"', b'"kind":"Human"', 1))
    assert verify_bundle(target.parent, KEYS, None).faults[0]["place"] == "outcomes.jsonl"


@ON_SQLITE
def test_a_wait_that_no_proposal_has_is_named_with_everything_computed_anew(record: Record):
    with breaking_in(record.url) as connection:
        connection.exec_driver_sql(
            "UPDATE calibration_runs SET requested_by = 'recalibrator', held_until = '2099-01-01 00:00:00.000000'"
            f" WHERE id = {LAST_RUN}"
        )
        rebuild_control(connection)
        remove_checkpoints(connection)
    report = record.verify(from_database=True)
    assert any("only a proposal waits" in fault.detail for fault in report.faults), report.faults
