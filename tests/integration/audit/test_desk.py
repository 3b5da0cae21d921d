"""The desk over both databases: exactly one outcome of each batch, on record, in the chain, erased with its batch."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from streamer import wiring
from streamer.errors import UsageError
from streamer.events.actions import decode_action
from streamer.events.desk import decode_desk, desk_id
from streamer.gates.batch_key import BatchKey
from streamer.journal import LabelRevision
from streamer.store import Store, prune
from streamer.store.desk.release_desk import AlreadyDecided, NotAtDesk, Reject, Release
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.history import KEYS, Scribe, event, export, settings_for, verify
from tests.migrated import migrated
from tests.services.postgres import PostgresServer

GATE = "front"
MINUTES = timedelta(minutes=15)


class Desk:
    """A record with what waits at the desk of a gate that ships nothing, and a clock that can be set ahead."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url, self.directory = url, directory
        self.settings = settings_for(url, directory)
        migrated(self.settings)
        self.ahead = timedelta()
        self.store: Store = wiring.open_store(self.settings)
        self.store.desk._clock = self.now
        self.scribe = Scribe(self.store, self.settings)
        self.scribe.gate(GATE, hold_action="escalate", desk_deadline_seconds=MINUTES.total_seconds())

    def now(self) -> datetime:
        return wiring.now() + self.ahead

    def hold(self, *numbers: int, **changes: Any) -> list[BatchKey]:
        self.scribe.deliver(event(GATE, n, **changes) for n in numbers)
        return [BatchKey(GATE, f"batch-{n}", changes.get("attempt", 1)) for n in numbers]

    def rows(self, query: str, **parameters: Any) -> list[Any]:
        with self.store._database.reading() as connection:
            return list(connection.execute(sa.text(query), parameters))

    def write(self, statement: str, **parameters: Any) -> None:
        """Change the record past the program."""
        with self.store._database.engine.begin() as connection:
            if connection.dialect.name == "sqlite":
                triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name LIKE 'desk%'"
                for name in connection.exec_driver_sql(triggers).scalars().all():
                    connection.exec_driver_sql(f"DROP TRIGGER {name}")
            else:
                connection.exec_driver_sql("SET session_replication_role = replica")
            connection.execute(sa.text(statement), parameters)

    def faults(self) -> list[str]:
        """What `audit verify` and the one-file verifier find; they must agree."""
        report = verify(self.settings, outside=[])
        folder = self.directory / f"bundle-{len(list(self.directory.glob('bundle-*')))}"
        export(self.settings, folder)
        alone = verify_bundle(folder, KEYS, None)
        assert [one.detail for one in report.faults] == [one["detail"] for one in alone.faults]
        return [one.detail for one in report.faults]


BOTH = pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])


@pytest.fixture
def kind() -> str:
    """SQLite, where nothing depends on it."""
    return "sqlite"


@pytest.fixture
def desk(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    url = f"sqlite:///{tmp_path / 'desk.db'}"
    if kind == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.create_database()
    made = Desk(url, tmp_path)
    yield made
    made.store.close()


@BOTH
def test_what_is_held_by_escalate_waits_and_each_batch_gets_one_outcome(desk: Desk):
    one, two, three, four = desk.hold(1, 2, 3, 4)
    waiting = desk.store.desk.waiting()
    assert [found.key for found in waiting] == [one, two, three, four], "the nearest deadline first"
    said = decode_action(desk.store.action(one).action)  # type: ignore[union-attr]
    assert said.action == "escalate"
    assert said.desk_until == said.decided_at + MINUTES == waiting[0].until
    assert desk.store.desk.state(one).outcome is None  # type: ignore[union-attr]

    released = desk.store.desk.decide(one, Release(response_id="r1"), by="account:ana", remark="as it was")
    edited = desk.store.desk.decide(two, Release(response_id="r0", text="Better."), by="account:ben")
    rejected = desk.store.desk.decide(three, Reject(), by="account:ana")
    assert (released.text, released.edited, released.remark) == ("answer 1 of 1", False, "as it was")
    assert (edited.text, edited.edited, edited.selected) == ("Better.", True, "r0")
    assert (rejected.action, rejected.text, rejected.reason) == ("rejected", None, "person")
    assert released.desk_id == desk_id(one) != released.action_id == said.action_id

    # Sent twice, by a double click or after a lost reply, it is the same; anything else is too late.
    assert desk.store.desk.decide(one, Release(response_id="r1"), by="account:ana") == released
    assert desk.store.desk.decide(three, Reject(), by="account:ana") == rejected
    for act, by in (
        (Release(response_id="r1"), "account:ben"),
        (Release(response_id="r2"), "account:ana"),
        (Release(response_id="r1", text="other"), "account:ana"),
        (Reject(), "account:ana"),
    ):
        with pytest.raises(AlreadyDecided, match="account:ana released it before") as late:
            desk.store.desk.decide(one, act, by=by)
        assert late.value.outcome == released

    # Nobody came for the fourth.
    assert desk.store.desk.reject_overdue(desk.store.leases.of_desk()) == 0
    desk.ahead = MINUTES + timedelta(seconds=1)
    assert [desk.store.desk.reject_overdue(desk.store.leases.of_desk()) for _ in range(2)] == [1, 0]
    expired = desk.store.desk.state(four).outcome  # type: ignore[union-attr]
    assert (expired.action, expired.reason, expired.by) == ("rejected", "deadline_passed", None)  # type: ignore[union-attr]
    with pytest.raises(AlreadyDecided, match="deadline had passed"):
        desk.store.desk.decide(four, Release(response_id="r0"), by="account:ana")
    assert desk.store.desk.waiting() == []
    assert desk.store.desk.counts() == {
        (GATE, "released"): 2, (GATE, "rejected"): 1, (GATE, "expired"): 1,
    }  # fmt: skip

    messages = [m for m in desk.store.unpublished([], limit=50) if m.topic == "streamer.desk"]
    assert [decode_desk(m.value) for m in messages] == [released, edited, rejected, expired]
    assert {m.key for m in messages} == {b"k"}, "the key of the action"
    headers = dict(messages[0].headers)
    assert headers["ce_id"] == released.desk_id.encode()
    assert headers["traceparent"] is not None
    receipts = [dict(m.headers)["streamer_receipt"] for m in messages]
    assert desk.faults() == []
    report = verify(desk.settings, outside=[], receipts=(receipts, "the test"))
    assert (report.faults, report.counts["receipts"], report.counts["outcomes at the desk"]) == ((), 4, 4)


def test_what_does_not_wait(desk: Desk):
    for name, changes in {
        "shadow": {"mode": "shadow"},
        "nobody": {"desk_deadline_seconds": None},
        "abstains": {"hold_action": "abstain", "desk_deadline_seconds": None},
    }.items():
        desk.scribe.gate(name, **({"hold_action": "escalate", "desk_deadline_seconds": 60.0} | changes))
        desk.scribe.deliver([event(name, 1)])
        key = BatchKey(name, "batch-1", 1)
        assert b"desk_until" not in desk.store.action(key).action  # type: ignore[union-attr]
        assert desk.store.desk.state(key) is None
        with pytest.raises(NotAtDesk):
            desk.store.desk.decide(key, Reject(), by="ana")
    (key,) = desk.hold(9, responses=[])
    action = desk.store.action(key).action  # type: ignore[union-attr]
    assert b'"escalate"' in action
    assert b"desk_until" not in action, "there is no answer that anybody could release"
    assert desk.store.desk.waiting() == []
    # What comes again waits once, and not any more once it is decided.
    (key,) = desk.hold(1)
    desk.hold(1)
    assert len(desk.store.desk.waiting()) == 1
    desk.store.desk.decide(key, Reject(), by="ana")
    desk.hold(1)
    assert desk.store.desk.waiting() == []


@BOTH
def test_people_at_one_answer_at_one_moment_and_the_deadline_with_them(desk: Desk):
    keys = desk.hold(*range(12))
    other = wiring.open_store(desk.settings)
    desks = [desk.store.desk, other.desk]
    other.desk._clock = desk.now
    for number, key in enumerate(keys):
        deadline = desk.store.desk.state(key).until  # type: ignore[union-attr]
        # A person at the moment of the deadline, for every other one.
        desk.ahead = deadline - wiring.now() if number % 2 else timedelta()
        start = threading.Barrier(4)
        told: list[Any] = []

        def act(
            who: int, key: BatchKey = key, start: threading.Barrier = start, told: list[Any] = told
        ) -> None:
            start.wait()
            if who == 3:
                desks[1].reject_overdue(other.leases.of_desk())
                return
            choice = Reject() if who == 2 else Release(response_id=f"r{who}", text=f"by {who}")
            try:
                told.append(("won", desks[who % 2].decide(key, choice, by=f"account:p{who}")))
            except AlreadyDecided as late:
                told.append(("lost", late.outcome))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(act, range(4)))
        desks[1].reject_overdue(other.leases.of_desk())
        stands = desk.store.desk.state(key).outcome  # type: ignore[union-attr]
        assert stands is not None
        assert [outcome for _, outcome in told] == [stands] * 3, "everybody is told what stands"
        assert [what for what, _ in told].count("won") == (0 if stands.by is None else 1)
    other.close()
    published = [m for m in desk.store.unpublished([], limit=100) if m.topic == "streamer.desk"]
    assert sorted(decode_desk(m.value).desk_id for m in published) == sorted(map(desk_id, keys))
    assert desk.rows("SELECT count(*) FROM desk_items")[0][0] == 0
    assert desk.faults() == []


def test_what_cannot_be_released(desk: Desk):
    (key,) = desk.hold(9)
    blank = next(one for one in desk.store.desk.batch(key).answers if not (one.text or "").strip())  # type: ignore[union-attr]
    for act, said in (
        (Release(response_id="nobody"), "no answer"),
        (Release(response_id=blank.id), "nothing to see"),
        (Release(response_id="r0", text=" \n"), "has a text"),
    ):
        with pytest.raises(UsageError, match=said):
            desk.store.desk.decide(key, act, by="ana")
    with pytest.raises(UsageError, match="501 characters"):
        desk.store.desk.decide(key, Reject(), by="ana", remark="x" * 501)
    assert desk.store.desk.state(key).outcome is None  # type: ignore[union-attr]
    # Nobody noticed the deadline: then whoever comes late is told, and it is on record.
    desk.ahead = MINUTES + timedelta(seconds=1)
    with pytest.raises(AlreadyDecided, match="deadline had passed"):
        desk.store.desk.decide(key, Release(response_id="r0"), by="ana")
    assert desk.store.desk.state(key).outcome.reason == "deadline_passed"  # type: ignore[union-attr]


@BOTH
def test_what_is_released_enters_neither_exposure_nor_calibration(desk: Desk):
    keys = desk.hold(*range(1, 9))
    before = (
        desk.store.monitoring.watch(GATE),
        desk.rows("SELECT outcome, count(*) FROM decisions GROUP BY outcome"),
    )
    for key in keys[:5]:
        desk.store.desk.decide(key, Release(response_id="r1"), by="ana")
    desk.store.desk.decide(keys[5], Release(response_id="r1", text="new"), by="ana")
    since = wiring.now() - timedelta(days=1)
    labels = [
        LabelRevision(
            key=key, response_id="r1", severity=severity, raw_severity=None, kind="human", labeller=who,
            labelled_at=wiring.now(),
        )
        for key, who, severity in (
            (keys[0], "ana", 1.0), (keys[0], "ben", 0.0), (keys[1], "ana", 0.0), (keys[5], "ana", 1.0), (keys[7], "ana", 1.0),
        )
    ]  # fmt: skip
    desk.store.labels.add(labels)
    report = desk.store.desk.report(GATE, kind="human", since=since)
    assert (report.released, report.edited, report.rejected, report.expired) == (6, 1, 0, 0)
    # The mean of an answer's labellers; an edited answer is not the one that was labelled, and a held one was not released.
    assert (report.labelled, report.severity) == (2, 0.25)
    assert desk.store.desk.report(GATE, kind="human", since=wiring.now()).total == 0
    assert before == (
        desk.store.monitoring.watch(GATE),
        desk.rows("SELECT outcome, count(*) FROM decisions GROUP BY outcome"),
    )
    drawn = {
        (row[0], row[1])
        for row in desk.rows(
            "SELECT b.batch_id, r.response_id FROM responses r JOIN batches b ON b.id = r.batch WHERE r.drawn"
        )
    }
    desk.scribe.recalibrate(GATE)
    inputs = desk.rows(
        "SELECT b.batch_id, i.response_id FROM calibration_inputs i JOIN batches b ON b.id = i.batch"
    )
    assert {tuple(one) for one in inputs} <= drawn


@BOTH
def test_what_was_released_is_erased_with_its_batch(desk: Desk):
    one, two = desk.hold(1, 2)
    desk.store.desk.decide(one, Release(response_id="r0", text="a secret of somebody"), by="ana")
    desk.store.desk.decide(two, Release(response_id="r1"), by="ana")
    found = prune(
        desk.url,
        older_than=timedelta(microseconds=1),
        now=wiring.now(),
        sooner_than_six_months=True,
        by="ana",
    )
    assert (found.batches, found.released) == (2, 2)
    outcome = desk.store.desk.state(one).outcome  # type: ignore[union-attr]
    assert (outcome.action, outcome.text, outcome.edited) == ("released", None, True)  # type: ignore[union-attr]
    assert desk.faults() == []
    # Erased by somebody, without an erasure on record.
    (three,) = desk.hold(3)
    desk.store.desk.decide(three, Release(response_id="r0"), by="ana")
    desk.write(
        "UPDATE desk_texts SET text = NULL, salt = NULL, erased_at = :now WHERE outcome = :id",
        now=wiring.now(),
        id=desk_id(three),
    )
    assert any("no erasure on record allows it" in one for one in desk.faults())


TAMPERED = {
    "UPDATE desk_texts SET text = 'another'": "the text that was released was changed",
    "UPDATE desk_outcomes SET \"by\" = 'account:eve'": "it is not what was recorded",
    "DELETE FROM desk_texts": "the text that was released is gone, and was not erased",
    "UPDATE desk_outcomes SET remark = 'never said'": "it is not what was recorded",
}


@pytest.mark.parametrize("statement", TAMPERED)
def test_a_changed_outcome_is_named(desk: Desk, statement: str):
    (key,) = desk.hold(1)
    desk.store.desk.decide(key, Release(response_id="r0", text="as I say"), by="account:ana")
    assert desk.faults() == []
    desk.write(statement)
    assert TAMPERED[statement] in desk.faults()


def test_a_made_up_outcome_is_named(desk: Desk):
    """Somebody who can write the database and seal it, past the program."""
    one, two = desk.hold(1, 2)
    plain = desk.store.desk
    with desk.store._database.engine.begin() as connection:
        from streamer.store.desk import release_desk as module

        for key, changes in ((one, {}), (two, {"until": wiring.now() + timedelta(days=9)})):
            row = module.batch_row(connection, key)
            until = module._take(connection, row["id"])
            assert until is not None
            plain._record(
                connection, [(row, changes.get("until", until), Release(response_id="r0"), "eve", "")],
                until + timedelta(hours=1), ("not the answer", False),
            )  # fmt: skip
    faults = desk.faults()
    assert "its deadline had passed" in faults
    assert "its deadline is not that of the batch" in faults
    assert "the answer is not the one it says" in faults


def test_who_may_not_rewrite_it(desk: Desk):
    (key,) = desk.hold(1)
    desk.store.desk.decide(key, Release(response_id="r0"), by="ana")
    for statement in (
        "UPDATE desk_outcomes SET remark = 'x'",
        "DELETE FROM desk_outcomes",
        "UPDATE desk_texts SET text = 'x'",
        "DELETE FROM desk_texts",
    ):
        with (
            pytest.raises(sa.exc.DBAPIError, match="append-only"),
            desk.store._database.engine.begin() as connection,
        ):
            connection.execute(sa.text(statement))
    told = desk.store.evidence
    with told.snapshot() as snapshot:
        (found,) = snapshot.decisions_of("batch-1", gate=GATE)
    assert found["desk"]["by"] == "ana"
    assert json.loads(json.dumps(found["desk"]))["content"]["text"] == "answer 0 of 1"
