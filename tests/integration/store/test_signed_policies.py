"""Signed policies in the record: what is signed is what is stored, and nothing is built on what is not trusted."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from streamer.audit import signing
from streamer.deciding.policy_book import TrustedPolicies
from streamer.errors import UsageError
from streamer.events.thresholds import threshold_event, threshold_message
from streamer.gates.policy import ActivePolicy, Policy
from streamer.gates.rule import BatchCut, Cut, Segments
from streamer.journal import OutboxMessage
from streamer.scoring.signals.signal_list import SignalList
from streamer.signing.policies import PolicyKeys, PolicySignature
from streamer.store import Store, open_store
from streamer.store.db.schema import control_head, gate_revisions, gates, policies
from tests.integration.store.conftest import SETTINGS, START, SteppingClock, dead_letter_message

GATE = "support-bot"

pytestmark = pytest.mark.expected_errors(r"^streamer\.deciding\.policy_book: deciding\.policy_refused")


def signer() -> signing.Signer:
    return signing.Signer(signing.generate_keys()[0])


def keys_of(*trusted: signing.Signer, by: signing.Signer | None = None, **other: bool) -> PolicyKeys:
    return PolicyKeys(
        trusted=[one.public_key for one in trusted],
        verify=signing.verify,
        key_id=signing.key_id,
        signer=by,
        **other,
    )


class Place:
    """A migrated database, and stores on it that have these or those keys."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = SteppingClock()
        self.told: list[tuple[Policy, PolicySignature | None]] = []
        self.stores: list[Store] = []

    def open(self, keys: PolicyKeys) -> Store:
        def message(policy: Policy, signature: PolicySignature | None) -> OutboxMessage:
            self.told.append((policy, signature))
            return threshold_message(threshold_event(policy, signature), topic="streamer.thresholds")

        store = open_store(
            self.url,
            clock=self.clock,
            policy_message=message,
            dead_letter_message=dead_letter_message,
            policy_keys=keys,
        )
        self.stores.append(store)
        return store

    def attack(self, *statements: sa.Executable) -> None:
        """Do what somebody with the rights of the database's owner can: triggers do not bind them."""
        database = self.stores[0]._database
        with database.engine.begin() as connection:
            if database.sqlite:
                for (name,) in connection.exec_driver_sql(
                    "SELECT name FROM sqlite_master WHERE type = 'trigger'"
                ).all():
                    connection.exec_driver_sql(f'DROP TRIGGER "{name}"')
            else:
                connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
            for statement in statements:
                connection.execute(statement)

    def newest(self) -> Any:
        database = self.stores[0]._database
        with database.engine.connect() as connection:
            return (
                connection.execute(sa.select(policies).order_by(policies.c.version.desc()).limit(1))
                .mappings()
                .one()
            )


@pytest.fixture
def place(migrated_database_url: str) -> Iterator[Place]:
    one = Place(migrated_database_url)
    yield one
    for store in one.stores:
        store.close()


def cut(store: Store, threshold: float = 0.5, **changes: Any) -> Policy:
    """Put a threshold in force the way a calibration does, without its run."""
    writer = store.policies._writer

    def work(connection: sa.Connection) -> Policy:
        present = writer.lock_newest(connection, GATE)
        wanted = replace(
            present, state="cut", threshold=threshold, calibrated=True, guarantee="holds", **changes
        )
        return writer.next(connection, wanted, by="ana", reason="calibrated", now=store.policies._clock())

    return store._database.writing(work)


class Worker:
    """What a worker makes of the record with these keys: its policy, and what it refused and told."""

    def __init__(self, store: Store, keys: PolicyKeys) -> None:
        self.refused: list[tuple[int, str]] = []
        self.alerts: list[tuple[int, str, int | None]] = []
        self.trusted = TrustedPolicies(
            store.policies.versions,
            store.policies.before,
            keys,
            on_refused=lambda _gate, version, why: self.refused.append((version, why)),
            raise_alert=lambda _gate, version, why, kept: self.alerts.append((version, why, kept)),
            now=lambda: START,
        )

    def look(self) -> ActivePolicy | None:
        return self.trusted(None).get(GATE)


def test_every_way_to_mint_signs_and_what_is_stored_verifies(place: Place):
    ours = signer()
    keys = keys_of(ours, by=ours)
    store = place.open(keys)
    # whole numbers and -0.0 where a float is meant: what comes back from the database is not what went in
    settings = replace(SETTINGS, alpha=0.1, label_deadline_seconds=3, width=1, delta=0.5)
    store.gates.create(GATE, settings, by="ana", reason="neü\u2028 \U0001f600", seed=7)
    cut(store, -0.0)
    cut(
        store,
        0.25,
        rule=BatchCut(
            alpha=0.1,
            groups=3,
            labelled=None,
            levels=(float("-inf"), 0.1 + 0.2, 1),
            totals=(1e-320, 0.3, -0.0),
        ),
    )
    cut(store, 1, rule=Segments("language", (("", Cut("closed", None)), ("de", Cut("cut", 1)))))
    store.gates.revise(GATE, {"audit_probability": 1}, by="bo", reason="")
    store.policies.rollback(GATE, 2, by="ana", reason="back")
    store.policies.close(GATE, by="cy", reason="complaints")
    store.policies.sign(GATE, 4, by="ana", reason="again")
    versions = store.policies.every_version(GATE)
    assert [one.version for one in versions] == list(range(1, 9))
    assert {keys.refusal(one) for one in versions} == {None}
    assert {one.key_id for one in versions} == {ours.key_id}
    assert [policy.version for policy, _ in place.told] == list(range(1, 9))
    for found, (_, signature) in zip(versions, place.told, strict=True):
        assert (signature.value, signature.key_id) == (found.signature, found.key_id)
    assert keys_of(signer()).refusal(versions[-1]) == "unknown_key"


TAMPERED: dict[str, dict[str, Any]] = {
    "policies": {
        "state": "open", "threshold": 0.4999999999999999, "rule": Segments("x", (("y", Cut("open", None)),)),
        "calibrated": False, "guarantee": "more", "valid_from": START, "created_by": "bo", "reason": "", "gate_revision": 1,
    },
    "gate_revisions": {
        "parameters": {"delta": 0.3},
        "unit": "response", "scorer": "external", "model": "{}", "encoder": "other@1", "embeddings": "accept", "dimension": 8,
        "severity_kind": "judge", "labellers": ["mallory"], "signed_labels": True, "two_people": True, "signals": SignalList().text, "upstream": "small@0badcafe", "group_by": "session", "judged": "raw@1", "alpha": 0.06,
        "method": "crc", "eta": 2.0, "draws": 21, "delta": 0.2, "rho": 0.98, "shape": "rank",
        "width": 0.06, "segment_by": "language", "segment_fallback": "pooled", "label_floor": 0.1,
        "hold_action": "escalate", "desk_deadline_seconds": 60.0, "max_attempts": 2, "mode": "shadow", "audit_probability": 0.4, "audit_draws": 2,
        "audit_boost": 1000.0, "audit_boost_most": 1_000_000,
        "label_deadline_seconds": 1.0, "decision_deadline_seconds": 1.0, "keep_texts": False, "recalibrate": "auto",
        "recalibrate_every_seconds": 1.0, "recalibrate_after_groups": 1, "max_lambda_step": 0.9,
        "max_ship_rate_step": 0.9, "least_groups": 1, "on_alarm": "report", "monitor_delta": 0.2, "alarm_delta": 0.2,
        "alarm_tolerance": 9.0, "monitor_deadline_seconds": 1.0, "budget_period_days": 1.0, "drift_delta": 0.2,
        "loss": "share", "left_out": "mark", "least_kept": 0.5,
        "judge_kind": "judge2", "pending": "worst", "window": 300, "on_selective_alarm": "close", "on_missing": "close", "early": "drift", "alarm_false_every": 7,
    },
    "gates": {"seed": 1, "audit_salt": b"s" * 32},
    "control_head": {"record_id": b"r" * 32},
}  # fmt: skip
"""Another value for every column that bears on a policy."""


@pytest.mark.parametrize("table", list(TAMPERED))
def test_a_change_of_any_column_is_refused_and_the_last_good_kept(place: Place, table: str):
    ours = signer()
    keys = keys_of(ours, by=ours)
    store = place.open(keys)
    store.gates.create(GATE, SETTINGS, by="ana", reason="new", seed=7)
    store.gates.revise(
        GATE, {"audit_draws": 3}, by="ana", reason="more"
    )  # a revision that only the newest have
    good = cut(store)
    target = {
        "policies": policies,
        "gate_revisions": gate_revisions,
        "gates": gates,
        "control_head": control_head,
    }[table]
    where = {
        "policies": policies.c.version == good.version,
        "gate_revisions": gate_revisions.c.revision == good.gate_revision,
        "gates": gates.c.name == GATE,
        "control_head": control_head.c.id == 1,
    }[table]
    with store._database.engine.connect() as connection:
        before = connection.execute(sa.select(target).where(where)).mappings().one()
    columns = {c.name for c in target.c} - {
        "gate",
        "revision",
        "version",
        "signature",
        "key_id",
        "name",
        "id",
    }
    passed_over = {
        "gate_revisions": {"created_at", "created_by", "reason"},  # the policy has its own
        "gates": {"created_at"},
        "control_head": {"log_size", "log_edge"},
        "policies": {"calibration_run"},  # below: a foreign key
    }[table]
    assert columns - passed_over == set(TAMPERED[table]), "every column has another value here"
    running = Worker(store, keys)
    first = running.look()
    assert first is not None
    for name, other in TAMPERED[table].items():
        assert before[name] != other, name
        change = {name: other}
        # what the database itself asks for, so that the change can be made at all
        if name == "scorer":
            change["encoder"] = "none"
        if name == "embeddings":
            change["dimension"] = 8
        if name == "state":
            change["threshold"] = None
        if name == "calibrated":
            change |= {"state": "closed", "threshold": None}
        place.attack(sa.update(target).where(where).values(**change))
        found = store.policies.versions()[GATE]
        assert keys.refusal(found) in ("bad_signature", "unreadable"), name
        assert running.look() == first, "nothing new for a worker that runs"
        restarted = Worker(store, keys).look()
        assert restarted is not None
        if table in ("gates", "control_head"):
            assert not restarted.trusted, "they bear on every policy of the gate"
            assert (restarted.policy.state, restarted.policy.settings.mode) == ("closed", "enforce")
        else:
            assert restarted.trusted
            assert restarted.policy.version < good.version
        for writer in (
            lambda: store.gates.revise(GATE, {"alpha": 0.2}, by="x", reason="x"),
            lambda: store.policies.rollback(GATE, 1, by="x", reason="x"),
            lambda: store.policies.sign(GATE, good.version, by="x", reason="x"),
        ):
            with pytest.raises(UsageError, match="is not trusted"):
                writer()
        place.attack(sa.update(target).where(where).values({key: before[key] for key in change}))
        assert keys.refusal(store.policies.versions()[GATE]) is None, name
    assert {version for version, _ in running.refused} <= set(range(1, good.version + 1))
    assert len(running.refused) == len(running.alerts) == len(set(running.refused)), "each is told once"


def test_an_old_policy_again_and_one_of_another_record_are_refused(
    place: Place, tmp_path: Path, migrated_sqlite_file: Path
):
    ours = signer()
    keys = keys_of(ours, by=ours)
    store = place.open(keys)
    store.gates.create(GATE, SETTINGS, by="ana", reason="new", seed=7)
    old = cut(store, 0.1)
    good = cut(store, 0.9)
    with store._database.engine.connect() as connection:
        rows = connection.execute(sa.select(policies).order_by(policies.c.version)).mappings().all()
    place.attack(sa.insert(policies).values(dict(rows[old.version - 1]) | {"version": 4}))
    worker = Worker(store, keys)
    held = worker.look()
    assert held.policy == good
    assert worker.refused == [(4, "bad_signature")]
    assert worker.alerts == [(4, "bad_signature", 3)]

    elsewhere = Place(f"sqlite:///{shutil.copy(migrated_sqlite_file, tmp_path / 'other.db')}")
    other = elsewhere.open(keys)
    other.gates.create(GATE, SETTINGS, by="ana", reason="new", seed=7)
    for _ in range(4):
        cut(other, 0.0)
    foreign = elsewhere.newest()
    other.close()
    assert foreign["version"] == 5
    place.attack(sa.insert(policies).values(foreign))
    assert worker.look() == replace(held, newest_seen=5), "it goes on with the good one"
    assert worker.refused[1:] == [(5, "bad_signature")]
    closed = store.policies.close(GATE, by="ana", reason="somebody was here")
    assert (closed.version, closed.settings) == (6, good.settings)
    assert worker.look().policy == closed
    assert store.policies.rollback(GATE, good.version, by="ana", reason="the last good one").threshold == 0.9
    with pytest.raises(UsageError, match="is not trusted"):
        store.policies.rollback(GATE, 4, by="ana", reason="a trap")


def test_a_gate_revision_that_nobody_signed_is_no_base(place: Place):
    ours = signer()
    store = place.open(keys_of(ours, by=ours))
    store.gates.create(GATE, SETTINGS, by="ana", reason="new", seed=7)
    with store._database.engine.connect() as connection:
        row = dict(connection.execute(sa.select(gate_revisions)).mappings().one())
    place.attack(sa.insert(gate_revisions).values(row | {"revision": 2, "alpha": 0.9, "mode": "shadow"}))
    assert store.gates.get(GATE).settings == SETTINGS
    revised = store.gates.revise(GATE, {"audit_draws": 2}, by="ana", reason="more")
    assert revised.revision == 3
    assert revised.settings == replace(SETTINGS, audit_draws=2)


def test_unsigned_policies_hold_everything_until_somebody_vouches_for_one(place: Place):
    ours = signer()
    plain = place.open(keys_of())
    plain.gates.create(GATE, replace(SETTINGS, mode="shadow"), by="ana", reason="new", seed=7)
    found = cut(plain)
    trusting, keys = keys_of(), keys_of(ours, by=ours)
    assert Worker(plain, trusting).look().policy == found, "without keys nothing is asked for"
    worker = Worker(plain, keys_of(ours))
    held = worker.look()
    assert not held.trusted
    wanted = ("closed", False, "enforce")
    assert (held.policy.state, held.policy.calibrated, held.policy.settings.mode) == wanted
    assert worker.refused == [(1, "unsigned"), (2, "unsigned")]
    store = place.open(keys)
    for writer in (lambda: store.gates.revise(GATE, {"alpha": 0.2}, by="x", reason="x"), lambda: cut(store)):
        with pytest.raises(UsageError, match=f"streamer threshold sign {GATE} --version 2"):
            writer()
    with pytest.raises(UsageError, match="no policy of gate"):
        store.policies.close(GATE, by="x", reason="x")
    with pytest.raises(UsageError, match="STREAMER_POLICIES_PRIVATE_KEY_FILE"):
        place.open(keys_of(ours)).policies.sign(GATE, 2, by="x", reason="x")
    signed = store.policies.sign(GATE, 2, by="ana", reason="looked at it")
    assert (signed.version, signed.threshold, signed.settings) == (3, found.threshold, found.settings)
    taken = worker.look()
    assert taken.trusted
    assert taken.policy == signed


def test_keys_are_changed_while_workers_run(place: Place):
    old, new = signer(), signer()
    store = place.open(keys_of(old, by=old))
    store.gates.create(GATE, SETTINGS, by="ana", reason="new", seed=7)
    good = cut(store)
    both = Worker(store, keys_of(old, new))
    only_new = Worker(store, keys_of(new))
    assert both.look().policy == good
    assert not only_new.look().trusted
    changed = place.open(keys_of(old, new, by=new)).policies.sign(
        GATE, good.version, by="ana", reason="a new key"
    )
    for worker in (both, only_new):
        assert worker.look().policy == changed
    assert both.refused == []
    assert {why for _, why in only_new.refused} == {"unknown_key"}


def test_without_a_key_nothing_follows_a_signed_policy_unless_signing_is_given_up(place: Place):
    ours = signer()
    store = place.open(keys_of(ours, by=ours))
    store.gates.create(GATE, SETTINGS, by="ana", reason="new", seed=7)
    without = place.open(keys_of())
    with pytest.raises(UsageError, match="no key to sign with is configured here"):
        without.policies.close(GATE, by="bo", reason="complaints")
    with pytest.raises(UsageError, match="no key to sign with is configured"):
        place.open(keys_of(ours)).gates.create("other", SETTINGS, by="ana", reason="new")
    for one, missing in ((store, False), (without, True), (place.open(keys_of(ours)), True)):
        (found,) = one.recalibration_status.statuses(now=START)
        assert (found.missing_key is not None) == missing
    given_up = place.open(keys_of(give_up_signing=True))
    assert given_up.policies.close(GATE, by="bo", reason="complaints").version == 2
    assert without.policies.close(GATE, by="bo", reason="again").version == 3


def test_the_same_policy_is_announced_again_only_while_it_is_the_records_own(place: Place):
    ours = signer()
    store = place.open(keys_of(ours, by=ours))
    store.gates.create(GATE, SETTINGS, by="ana", reason="new", seed=7)
    good = cut(store)
    first = store.unpublished([], limit=10)
    assert store.policies.announce(good)
    assert store.unpublished([], limit=10) == first, "one waits already"
    store.mark_published(first)
    assert store.policies.announce(good)
    (again,) = store.unpublished([], limit=10)
    assert replace(again, id=first[-1].id) == first[-1], "byte for byte"
    assert not store.policies.announce(replace(good, threshold=0.1))
    place.attack(sa.update(policies).where(policies.c.version == good.version).values(threshold=0.1))
    assert not store.policies.announce(good)
    assert not store.policies.announce(replace(good, threshold=0.1))
