"""Whose labels are read: what anybody else brings, by whatever way, changes nothing that any reader says."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import streamer.store
from streamer.audit import signing
from streamer.errors import UsageError
from streamer.gates.batch_key import BatchKey
from streamer.gates.setting_changes import calibrated_for_another
from streamer.journal import LabelRevision
from streamer.labels.filling import Attempted
from streamer.labels.severity import LabelTask, Severity
from streamer.labels.signing import LabelKeys, LabellerKey, statement
from streamer.recalibration.run import SampleQuery, calibrate_gate
from streamer.review.items import Mark, Reviewer
from streamer.store import Store, open_store
from streamer.store.db.schema import control_head, label_revisions, label_signatures
from streamer.store.labels.read_labels import UnreadLabels
from tests.integration.store.conftest import SETTINGS, START, World, dead_letter_message, policy_message

GATE, OTHER = "support-bot", "other-bot"
LATER = START + timedelta(days=1)
ALL = 2**40
BATCHES = 6
ANA = Reviewer(labeller="ana", holder="a1")


class Keys:
    """Private keys of ana and mallory, and readers that know the public ones."""

    def __init__(self) -> None:
        self.signers = {
            name: signing.Signer(signing.generate_keys()[0]) for name in ("ana", "mallory", "ana2")
        }
        self.signers |= {"stranger": signing.Signer(signing.generate_keys()[0])}

    def of(self, *signs: str, trusted: Sequence[tuple[str, str]] = ()) -> LabelKeys:
        """Keys that sign for the first, and trust those (labeller, whose key)."""
        known = trusted or (("ana", "ana"), ("mallory", "mallory"))
        return LabelKeys(
            signers={name: self.signers[name] for name in signs},
            trusted=[LabellerKey(name, self.signers[key].public_key) for name, key in known],
            verify=signing.verify,
            key_id=signing.key_id,
        )

    def signed(self, label: LabelRevision, record_id: bytes, *, by: str = "ana") -> LabelRevision:
        signer = self.signers[by]
        value = signer.sign(statement(label, record_id=record_id))
        return replace(label, signature=value, key_id=signer.key_id)


@pytest.fixture(scope="module")
def keys() -> Keys:
    return Keys()


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    """Without a gate: each test says what its own reads."""
    return new_world()


def open_with(world: World, label_keys: LabelKeys) -> Store:
    store = open_store(
        world.url, clock=world.clock, policy_message=policy_message, dead_letter_message=dead_letter_message,
        label_keys=label_keys,
    )  # fmt: skip
    world.stores.append(store)
    return store


def record_id(world: World) -> bytes:
    with world.store._database.reading() as connection:
        return bytes(connection.execute(sa.select(control_head.c.record_id)).scalar_one())


def fill(world: World, **settings: Any) -> None:
    """A gate with batches that shipped and were drawn; ana has labelled the first two."""
    fields = {"audit_probability": 1.0, "alpha": 0.5, "judge_kind": "judge", "recalibrate": "auto"} | settings
    world.gate(**fields)
    world.store.gates.create(OTHER, replace(SETTINGS, **fields), by="ana", reason="new", now=START)
    decisions = [
        world.decision(n, f"b{n}", scores=(0.25, n / 10), actions=("abstain", "ship"), at=START)
        for n in range(BATCHES)
    ]
    world.keep(*decisions)
    for n in range(BATCHES):  # six pages, each shows another answer
        page = Reviewer(labeller="ana", holder=f"page {n}")
        assert world.store.reviews.next(page, [GATE], hold=timedelta(minutes=1), now=START) is not None


def readings(world: World, store: Store) -> dict[str, Any]:
    """What every reader of labels says."""
    settings = store.gates.get(GATE).settings
    keys = [BatchKey(GATE, f"b{n}", 1) for n in range(BATCHES)]
    severities = store.labels.severities(GATE, "human")
    decided = store.monitoring.decided(GATE, after=0, until=ALL, limit=100)
    run = calibrate_gate(store.calibration, store.gates.get(GATE), now=LATER)
    statuses = {one.gate.gate: one for one in store.recalibration_status.statuses(now=LATER)}
    found: dict[str, Any] = {
        "severities": [severities.get(key, "b") for key in keys],
        "pending": store.labels.pending(),
        "queue": [(one.key, one.response_id) for one in store.labels.queue(GATE)],
        "every queue": [(one.key, one.response_id) for one in store.labels.queue()],
        "risk in service": [
            (one.severities, one.predicted) for one in store.monitoring.labelled(GATE, decided, until=ALL)
        ],
        "late": store.monitoring.late_labels(GATE, after=0, until=ALL, read=ALL),
        "answers": store.answers.audited(GATE, settings=settings, older_than=LATER),
        "new groups": statuses[GATE].new_groups,
        "shown": store.calibration.shown(GATE, "human", before=LATER, deadline=timedelta(hours=2)),
        "run": [one.threshold for one in run.candidates],
        "review": store.reviews.progress(ANA, [GATE], since=START, now=LATER).gates,
        "v_severities": world.rows(
            "SELECT gate, batch_id, severity, labellers FROM v_severities ORDER BY 1, 2"
        ),
        "v_label_queue": world.rows("SELECT gate, batch_id FROM v_label_queue ORDER BY 1, 2"),
        "v_risk": world.rows(
            "SELECT gate, labelled_batches, pending_batches, exposure_risk FROM v_risk ORDER BY 1"
        ),
    }
    for basis in ("mean", "highest"):
        query = SampleQuery(GATE, settings, LATER, severities=basis)  # type: ignore[arg-type]
        sample = store.calibration.audit_sample(query)
        found[f"sample, {basis}"] = [(one.key, one.items) for one in sample]
    with store._database.reading() as connection:
        labels = store.reviews._read.table(connection)
        from streamer.store.labels.reviews import candidates

        found["candidates"] = [
            row.batch for row in connection.execute(candidates(labels, ANA, [GATE], LATER))
        ]
    return found


def differing(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {name for name in before if before[name] != after[name]}


def label(
    severity: float, number: int, *, by: str = "ana", at: datetime = START, **changes: Any
) -> LabelRevision:
    fields: dict[str, Any] = {
        "key": BatchKey(GATE, f"b{number}", 1), "response_id": "b", "severity": severity, "raw_severity": None,
        "kind": "human", "labeller": by, "labelled_at": at,
    }  # fmt: skip
    return LabelRevision(**(fields | changes))


def strangers() -> list[LabelRevision]:
    """Mallory's labels of every kind for every batch, and those of fifty invented people for two."""
    at = START + timedelta(hours=1)
    return [
        label(1.0, n, by="mallory", at=at, kind=kind) for n in range(BATCHES) for kind in ("human", "judge")
    ] + [label(1.0, n, by=f"person {who}", at=at) for n in (0, 5) for who in range(50)]


def insert(store: Store, labels: Sequence[LabelRevision]) -> None:
    """Do what somebody with the rights of the program could: write rows past it."""
    with store._database.engine.begin() as connection:
        for one in labels:
            number = connection.execute(
                sa.insert(label_revisions)
                .values(
                    gate=one.key.gate, batch_id=one.key.batch_id, attempt=one.key.attempt, response_id=one.response_id,
                    kind=one.kind, labeller=one.labeller, severity=one.severity, raw_severity=one.raw_severity,
                    labelled_at=one.labelled_at, received_at=one.labelled_at, effective_at=one.labelled_at, source="topic",
                )
                .returning(label_revisions.c.id)
            ).scalar_one()  # fmt: skip
            if one.signature is not None:
                connection.execute(
                    sa.insert(label_signatures).values(
                        label=number, signature=one.signature, key_id=one.key_id, received_at=one.labelled_at,
                        source="topic",
                    )
                )  # fmt: skip


def by_topic(world: World, labels: Sequence[LabelRevision]) -> None:
    lease = world.lease(topic="streamer.labels")
    first = lease.next_offset
    records = [
        replace(one, record=world.record(first + n, topic="streamer.labels")) for n, one in enumerate(labels)
    ]
    for start in range(0, len(records), 200):
        world.commit(world.slice(lease, *records[start : start + 200], expected=first + start))


def test_without_names_everybody_is_read_by_every_reader(world: World) -> None:
    """What the others say nothing of would show nothing: each reader sees these labels where nobody forbids it."""
    fill(world)
    world.store.labels.add([label(0.25, n) for n in (4, 5)], now=START)
    before = readings(world, world.store)
    world.store.labels.add(strangers(), now=START + timedelta(hours=1))
    assert set(before) - differing(before, readings(world, world.store)) == set()


@pytest.mark.parametrize("bring", ["file", "topic", "rows"])
def test_labels_by_others_are_recorded_and_change_nothing(world: World, bring: str) -> None:
    fill(world, labellers=("ana", "ben"))
    world.store.labels.add([label(0.25, n) for n in range(2)], now=START)
    before = readings(world, world.store)
    if bring == "file":
        added = world.store.labels.add(strangers(), now=START + timedelta(hours=1))
        assert added.unread == {GATE: UnreadLabels(others=112)}
    elif bring == "topic":
        by_topic(world, strangers())
    else:
        insert(world.store, strangers())
    assert differing(before, readings(world, world.store)) == set()
    assert world.rows("SELECT count(*) FROM label_revisions") == [(114,)]
    assert world.store.labels.unread() == {GATE: UnreadLabels(others=112)}
    world.store.labels.add([label(1.0, n, by="ben") for n in range(BATCHES)], now=LATER)
    assert readings(world, world.store)["severities"] == [0.625, 0.625, 1.0, 1.0, 1.0, 1.0]
    if bring != "rows":
        assert world.store.evidence.log_faults() == []


def forgeries(keys: Keys, record: bytes) -> Iterator[tuple[str, LabelRevision]]:
    """Labels in ana's name that she did not give; and those of hers, copied to where they do not belong."""
    honest = keys.signed(label(0.25, 0, at=START + timedelta(hours=1)), record)
    moments = (START + timedelta(hours=2, minutes=n) for n in range(60))
    ana = keys.signers["ana"].key_id

    def wrong() -> LabelRevision:
        return label(1.0, 3, at=next(moments))

    yield "unsigned", wrong()
    yield "by mallory's key", keys.signed(wrong(), record, by="mallory")
    yield "by mallory's key under ana's id", replace(keys.signed(wrong(), record, by="mallory"), key_id=ana)
    yield "by a key that nobody knows", keys.signed(wrong(), record, by="stranger")
    yield "by a key of hers that is revoked", keys.signed(wrong(), record, by="ana2")
    yield "of another database", keys.signed(wrong(), bytes(32))
    yield "no signature at all", replace(wrong(), signature="ä" * 88, key_id=ana)
    yield "an empty one", replace(wrong(), signature="=", key_id=ana)
    for name, changes in {
        "severity": {"severity": 1.0},
        "batch": {"key": BatchKey(GATE, "b3", 1)},
        "attempt": {"key": BatchKey(GATE, "b0", 2)},
        "response": {"response_id": "a"},
        "kind": {"kind": "judge"},
        "gate": {"key": BatchKey(OTHER, "b0", 1)},
        "moment": {"labelled_at": START + timedelta(hours=3)},
        "name": {"labeller": "mallory"},
        "mark": {"raw_severity": 75.0, "labelled_at": START + timedelta(hours=1), "severity": 0.75},
    }.items():
        yield f"copied to another {name}", replace(honest, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("bring", ["topic", "rows"])
def test_only_what_ana_signed_is_read_of_a_gate_that_demands_it(world: World, keys: Keys, bring: str) -> None:
    fill(world, labellers=("ana",), signed_labels=True)
    store = open_with(world, keys.of("ana"))
    store.labels.add([label(0.25, n) for n in range(2)], now=START, sign=True)
    before = readings(world, store)
    assert before["severities"][:3] == [0.25, 0.25, None]
    forged = [one for _, one in forgeries(keys, record_id(world))]
    (by_topic if bring == "topic" else lambda _world, labels: insert(store, labels))(world, forged)
    assert differing(before, readings(world, store)) == set()
    fresh = open_with(world, keys.of())
    assert differing(before, readings(world, fresh)) == set(), "a reader that verifies everything anew"
    ignorant = readings(world, world.store)
    assert ignorant["severities"] == [None] * BATCHES, "without public keys no signature is good"
    others = sum(one.labeller != "ana" for one in forged)
    unsigned = sum(one.key.gate == GATE for one in forged) - others
    assert store.labels.unread(GATE) == {GATE: UnreadLabels(others=others, unsigned=unsigned)}
    assert (others, unsigned) == (1, 15)
    if bring == "topic":
        assert world.store.evidence.log_faults() == []


def test_an_unsigned_copy_that_comes_first_keeps_no_signature_out(world: World, keys: Keys) -> None:
    fill(world, signed_labels=True)
    store = open_with(world, keys.of("ana"))
    by_topic(world, [label(0.25, 0), replace(label(0.25, 0), signature="x", key_id="y")])
    assert store.labels.severities(GATE, "human").get(BatchKey(GATE, "b0", 1), "b") is None
    signed = keys.signed(label(0.25, 0), record_id(world))
    by_topic(world, [signed, signed])
    assert store.labels.severities(GATE, "human").get(BatchKey(GATE, "b0", 1), "b") == 0.25
    added = store.labels.add([label(0.25, 0), label(0.5, 1)], sign=True, now=START)
    assert (added.added, added.repeated, added.signed, added.unread) == (1, 1, 1, {})
    assert world.rows("SELECT count(*) FROM label_revisions") == [(2,)]
    assert world.rows("SELECT count(*) FROM label_signatures") == [(3,)]
    assert world.store.evidence.log_faults() == []
    with world.store.evidence.snapshot() as snapshot:
        assert list(snapshot.unchained()) == []
    world.tamper("UPDATE label_signatures SET signature = 'z' WHERE signature = 'x'")
    (fault,) = world.store.evidence.log_faults()
    assert fault.startswith("streamer.labels[0], ")
    world.tamper("UPDATE label_signatures SET signature = 'x' WHERE signature = 'z'")
    insert(store, [signed_later(keys, record_id(world))])
    with world.store.evidence.snapshot() as snapshot:
        assert [one["kind"] for one in snapshot.unchained()] == ["label_revisions", "label_signatures"]


def signed_later(keys: Keys, record: bytes) -> LabelRevision:
    return keys.signed(label(0.5, 2, at=LATER), record)


def test_a_revoked_key_and_a_new_one(world: World, keys: Keys) -> None:
    fill(world, labellers=("ana",), signed_labels=True)
    record = record_id(world)
    by_topic(world, [keys.signed(label(0.25, 0), record), keys.signed(label(0.5, 1), record, by="ana2")])

    def read(*trusted: tuple[str, str]) -> list[float | None]:
        return readings(world, open_with(world, keys.of(trusted=trusted)))["severities"][:2]  # type: ignore[no-any-return]

    assert read(("ana", "ana")) == [0.25, None]
    assert read(("ana", "ana"), ("ana", "ana2")) == [0.25, 0.5]
    assert read(("ana", "ana2")) == [None, 0.5]
    with pytest.raises(UsageError, match="one key cannot sign for two labellers, 'ana' and 'ben'"):
        keys.of(trusted=[("ana", "ana"), ("ben", "ana")])


def test_who_labels_by_program_or_on_the_page_signs_by_itself(world: World, keys: Keys) -> None:
    fill(world, labellers=("ana", "mallory"), signed_labels=True)
    store, without = open_with(world, keys.of("ana", "mallory")), open_with(world, keys.of())
    # What a stranger said first keeps the program from nothing.
    by_topic(world, [label(1.0, n, by="mallory") for n in range(BATCHES)])
    tasks = [
        Attempted(
            task=LabelTask(key=one.key, response_id=one.response_id, kind=one.kind, prompt="", response=""),
            severity=Severity(0.5, 2.0),
        )
        for one in store.labels.queue(GATE)
    ]
    assert store.judgements.keep(tasks[:3], kind="human", labeller="mallory", source="judge") == 3
    assert store.judgements.keep(tasks[:3], kind="human", labeller="mallory", source="judge") == 0
    item = store.reviews.next(ANA, [GATE], hold=timedelta(minutes=1), now=LATER)
    store.reviews.mark(ANA, Mark(token=item.token, severity=0.25, name="m", count=1), now=LATER)
    assert readings(world, without)["severities"] == [0.5, 0.5, 0.5, 0.25, None, None]
    assert store.reviews.back(ANA, [GATE], before=None, since=START).severity == 0.25
    assert store.reviews.refusals("ana", [GATE, OTHER]) == {}
    assert list(without.reviews.refusals("ana", [GATE])) == [GATE]
    assert "not by ben" in store.reviews.refusals("ben", [GATE])[GATE]
    with pytest.raises(UsageError, match="no private key of 'ben' here"):
        store.labels.add([label(0.0, 0, by="ben")], sign=True)


def test_the_newest_policy_that_is_trusted_says_whose_labels_are_read(world: World) -> None:
    fill(world, labellers=("ana",))
    world.store.labels.add([label(1.0, 0, by="ben")], now=START)

    def read() -> float | None:
        return world.store.labels.severities(GATE, "human").get(BatchKey(GATE, "b0", 1), "b")

    assert read() is None
    world.store.gates.revise(
        GATE, {"labellers": ("ana", "ben")}, by="ana", reason="ben labels too", now=LATER
    )
    assert read() == 1.0
    world.store.gates.revise(GATE, {"labellers": ("ana",)}, by="ana", reason="no more", now=LATER)
    assert read() is None
    # A revision that no policy carries is in force nowhere.
    columns = "revision, labellers, signed_labels"
    others = ", ".join(
        f'"{name}"' for (name,) in _columns(world) if name not in ("revision", "labellers", "signed_labels")
    )
    world.tamper(
        f"INSERT INTO gate_revisions ({columns}, {others}) SELECT 9, NULL, signed_labels, {others}"
        f" FROM gate_revisions WHERE gate = '{GATE}' AND revision = 1"
    )
    assert read() is None
    world.store.gates.revise(GATE, {"labellers": None}, by="ana", reason="everybody", now=LATER)
    assert read() == 1.0


def _columns(world: World) -> list[tuple[str]]:
    with world.store._database.reading() as connection:
        return [(one["name"],) for one in sa.inspect(connection).get_columns("gate_revisions")]


@pytest.mark.parametrize(
    ("before", "after", "closes"),
    [
        ({}, {"labellers": ("ana",)}, ["labellers"]),
        ({"labellers": ("ana", "ben")}, {"labellers": ("ana",)}, ["labellers"]),
        ({"labellers": ("ana",)}, {"labellers": ("ana", "ben")}, []),
        ({"labellers": ("ana",)}, {"labellers": None}, []),
        ({}, {"signed_labels": True}, ["signed_labels"]),
        ({"signed_labels": True}, {"signed_labels": False}, []),
    ],
)
def test_a_gate_closes_where_labels_are_not_read_any_more(
    before: dict[str, Any], after: dict[str, Any], closes: list[str]
) -> None:
    was = replace(SETTINGS, **before)
    assert calibrated_for_another(was, replace(was, **after)) == closes


def test_readers_have_labels_from_one_place() -> None:
    """Other modules that name the table write it, seal it, or ask for numbers of rows alone."""
    may = {
        "labels/read_labels.py", "log/resolve_outcomes.py", "audit/chained_rows.py", "audit/outcome_rows.py",
        "audit/unchained.py", "log/rows.py",
        "audit/logged.py",  # what was ever given, read or not
    }  # fmt: skip
    mentions = {
        "labels/revisions.py": 3,  # counts of all; sealing
        "labels/reviews.py": 3,  # that a labeller's next label is later than the last
        "calibration/calibration_runs.py": 2, "calibration/recalibration_status.py": 5, "risk/monitored_decisions.py": 5,  # numbers
        "risk/monitoring_state.py": 2,  # likewise
        "log/reports.py": 7,  # whether a gate has any; the export of every row
    }  # fmt: skip
    folder = Path(streamer.store.__file__).parent
    found = {
        path.relative_to(folder).as_posix(): count
        for path in folder.rglob("*.py")
        if folder / "db" / "schema" not in path.parents
        and (count := len(re.findall(r"\blabel_revisions\b", path.read_text("utf-8"))))
    }
    assert may <= found.keys()
    assert {name: count for name, count in found.items() if name not in may} == mentions


def test_under_a_lease_the_same_labels_are_read(world: World, keys: Keys) -> None:
    """The recalibrator reads and writes under leases, one within the other."""
    fill(world, labellers=("ana",), signed_labels=True)
    reader = open_with(world, keys.of())
    by_topic(world, [keys.signed(label(0.25, 0), record_id(world))])
    with reader.leases.of_gate(GATE, wait_seconds=0) as lease:
        bound = reader.under(lease)
        for store in (reader, bound, bound.under(lease)):
            assert store.labels.severities(GATE, "human").get(BatchKey(GATE, "b0", 1), "b") == 0.25
