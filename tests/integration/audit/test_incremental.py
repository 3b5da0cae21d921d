"""`audit verify --incremental`: what was recorded since the last run is verified in full, and nothing older is read again."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from streamer import wiring
from streamer.audit.checkpointing import said
from streamer.audit.reached import Reached, read_reached, write_reached
from streamer.cli import main
from streamer.errors import UsageError
from streamer.signing.merkle import leaf_hash
from streamer_verify.command import complete_lines
from streamer_verify.logs import Log
from tests.integration.audit.attacker import breaking_in, cut_tail, rebuild_outcomes
from tests.integration.audit.conftest import Record
from tests.integration.audit.history import Scribe, event
from tests.integration.audit.test_audit_commands import here
from tests.integration.audit.test_tampering import CHANGES

__all__ = ["here"]

ON_SQLITE = pytest.mark.parametrize("template", ["sqlite"], indirect=True)

# Changes to labels by the topic that were verified before. All but the one of a date show in what belongs to no log, or in
# what a run says it has read, all of which every verification reads.
OLDER = "source = 'topic' AND batch_id = 'batch-3'"
UNSEEN = (
    "UPDATE label_revisions SET effective_at",
    f"UPDATE label_revisions SET severity = 0.5 WHERE {OLDER}",
    f"DELETE FROM label_revisions WHERE {OLDER}",
)
"""Of labels that were verified before; only a whole run reads them again."""


def head_at(record: Record, size: int) -> dict[str, Any]:
    """The head that a checkpoint covers last."""
    with breaking_in(record.url) as connection:
        query = sa.text("SELECT data FROM heads WHERE leaf_index = :i")
        found: dict[str, Any] = json.loads(bytes(connection.execute(query, {"i": size - 1}).scalar_one()))
    return found


def at_checkpoint(record: Record, sequence: int) -> Reached:
    """What a run has remembered that was made right after a checkpoint."""
    facts = head_at(record, sequence)
    checkpoint = complete_lines(record.file.read_bytes())[sequence - 1]
    query = (
        "SELECT leaf_hash FROM outcomes WHERE log_id = :log_id AND topic = :topic AND partition = :partition"
        " AND leaf_index < :size ORDER BY leaf_index"
    )
    logs = []
    with breaking_in(record.url) as connection:
        for head in facts["partitions"]:
            log = Log()
            for leaf in connection.execute(sa.text(query), head).scalars():
                log.append(leaf)
            assert (log.size, log.root()) == (head["size"], head["root"])
            place = [head[name] for name in ("log_id", "topic", "partition")]
            logs.append([*place, log.size, [one.hex() for one in log.edge]])
        heads = Log()
        for leaf in connection.exec_driver_sql("SELECT data FROM heads ORDER BY leaf_index").scalars():
            if heads.size < sequence - 1:
                heads.append(leaf_hash(leaf))
    edge = [one.hex() for one in heads.edge]
    return Reached(facts["record"], sequence, said(checkpoint).root.hex(), edge, logs)


def test_a_remembered_log_that_is_not_the_checkpoints_is_a_fault(record: Record):
    since = at_checkpoint(record, 2)
    others = [[*place, size, edge[::-1] or ["00" * 32]] for *place, size, edge in since.logs]
    (fault,) = record.verify(since=replace(since, logs=others)).faults
    assert (fault.place, fault.detail) == (
        "checkpoint 2", "it is not what an earlier verification has kept of it"
    )  # fmt: skip


def test_only_what_came_since_is_read(record: Record):
    whole = record.verify()
    assert whole.faults == ()
    assert whole.reached == at_checkpoint(record, 3)
    rest = record.verify(since=at_checkpoint(record, 2))
    assert rest.faults == ()
    assert rest.reached == whole.reached
    older = sum(head["size"] for head in head_at(record, 2)["partitions"])
    assert 0 < rest.counts["outcomes"] == whole.counts["outcomes"] - older
    assert rest.counts["calibrations derived again"] == 1 < whole.counts["calibrations derived again"]
    assert f"{older} outcomes up to checkpoint 2 were verified before, and not read again" in rest.notes

    with wiring.open_store(record.settings) as store:
        scribe = Scribe(store, record.settings)
        scribe.deliver(
            (event("each", n) for n in range(70, 75)), partition=7
        )  # a partition that no checkpoint knew
        scribe.checkpoint()
    assert whole.reached is not None
    later = record.verify(since=whole.reached)
    assert later.faults == ()
    assert later.counts["outcomes"] == 4 + 5
    assert later.reached == at_checkpoint(record, 4)
    none = record.verify(since=later.reached)
    assert (none.faults, none.counts["outcomes"]) == ((), 0)
    with breaking_in(record.url) as connection:
        connection.execute(sa.text("UPDATE heads SET data = :data WHERE leaf_index = 0"), {"data": b"{}"})
    found = record.verify(since=later.reached).faults
    assert found == (), "of the log of heads, too, only what came since is read"
    assert record.verify().faults != ()


@ON_SQLITE
@pytest.mark.parametrize(("statement", "place", "said"), CHANGES)
def test_a_change_behind_the_checkpoint_is_named(record: Record, statement: str, place: str, said: str):
    """As a whole verification does, unless the row was verified before."""
    since = at_checkpoint(record, 2)
    with breaking_in(record.url) as connection:
        connection.exec_driver_sql(statement)
    report = record.verify(since=since)
    if statement.startswith(UNSEEN):
        assert report.faults == ()
        assert record.verify().faults != ()
        return
    assert report.faults
    assert report.reached is None
    if OLDER in statement:
        return
    found = [(fault.place, fault.detail) for fault in report.faults]
    assert any(place in where and said in what for where, what in found[:3]), found[:5]


def test_a_history_that_was_made_anew_since_contradicts_a_checkpoint(record: Record):
    since = at_checkpoint(record, 2)
    with breaking_in(record.url) as connection:
        connection.exec_driver_sql(
            "UPDATE decisions SET segment = 'x' WHERE batch = (SELECT max(batch) FROM decisions) - 12"
        )
        rebuild_outcomes(connection)
    assert any("made of another history" in fault.detail for fault in record.verify(since=since).faults)


def test_a_tail_that_was_cut_off(record: Record):
    since = at_checkpoint(record, 3)
    with breaking_in(record.url) as connection:
        cut_tail(connection, 1)
    assert record.verify(since=since).faults == (), "what is younger than the last checkpoint"
    with breaking_in(record.url) as connection:
        cut_tail(connection, 8)
    assert any("and should have" in fault.detail for fault in record.verify(since=since).faults)


@ON_SQLITE
def test_the_checkpoint_itself_is_gone_or_another(record: Record):
    since = at_checkpoint(record, 2)
    other = replace(since, root="0" * 64)
    earlier = "(an earlier verification)"
    assert [fault.place for fault in record.verify(since=other).faults] == [f"checkpoint 2 {earlier}"]
    ahead = replace(since, size=9)
    (fault,) = record.verify(since=ahead).faults
    wanted = (f"checkpoint 9 {earlier}", "it saw 9 heads, there are 3: the newest were cut off")
    assert (fault.place, fault.detail) == wanted
    elsewhere = replace(since, record_id="ab" * 32)
    assert [fault.check for fault in record.verify(since=elsewhere).faults] == ["checkpoint"]


def test_the_command_goes_on_where_it_ended(here: Path, capsys: pytest.CaptureFixture[str]):
    def verify() -> tuple[int, Any]:
        status = main(["audit", "verify", "--incremental", "verified.json", "--json"])
        return status, json.loads(capsys.readouterr().out)

    status, first = verify()
    assert (status, first["counts"]["outcomes"]) == (0, 140)
    status, second = verify()
    assert (status, second["counts"]["outcomes"]) == (0, 4)
    assert main(["audit", "checkpoint"]) == 0
    capsys.readouterr()
    assert verify()[1]["counts"]["outcomes"] == 4
    assert verify()[1]["counts"]["outcomes"] == 0
    kept = (here / "verified.json").read_text()
    with breaking_in("sqlite:///record.db") as connection:
        connection.exec_driver_sql("UPDATE gates SET seed = 7 WHERE name = 'each'")
    assert verify()[0] == 3
    assert (here / "verified.json").read_text() == kept
    (here / "verified.json").write_text('{"form": "another"}')
    assert main(["audit", "verify", "--incremental", "verified.json"]) == 2
    assert "is no file of `streamer audit verify --incremental`" in capsys.readouterr().err
    assert main(["audit", "verify", "--incremental", "nowhere/verified.json"]) == 3
    assert main(["audit", "verify", "--full", "--incremental", "verified.json"]) == 2
    assert "give one of them" in capsys.readouterr().err
    assert main(["audit", "verify", "--full", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["counts"]["outcomes"] > 4


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"form": "streamer.verified.v1", "record_id": "a", "sequence": "1", "digest": "b"}',
        "\x00",
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, text: str):
    path = tmp_path / "verified.json"
    assert read_reached(path) is None
    path.write_text(text)
    with pytest.raises(UsageError, match="remove it to begin anew"):
        read_reached(path)
    with pytest.raises(UsageError, match="cannot read"):
        read_reached(tmp_path)
    with pytest.raises(UsageError, match="cannot write"):
        write_reached(tmp_path / "no" / "folder", Reached("a", 1, "b", [], []))
    write_reached(path, Reached("a", 1, "b", [], []))
    assert read_reached(path) == Reached("a", 1, "b", [], [])
