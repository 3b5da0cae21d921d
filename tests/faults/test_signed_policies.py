"""Case 12: policies that nobody signed, replays, forgeries and tombstones, in the record and on the topic; wrong clocks."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from streamer import wiring
from streamer.audit import signing
from streamer.cli import main
from streamer.errors import UsageError
from streamer.events.codec import encode
from streamer.events.thresholds import threshold_event
from streamer.gates.policy import Policy
from streamer.settings.settings import load_settings
from streamer.signing.policies import PolicyKeys, statement
from streamer.store.db.schema import gate_revisions, policies
from streamer.wiring import parts
from tests.faults import oracle
from tests.faults.agreement import actions_of, agree, decided_by, disagreements, newest_trusted
from tests.faults.matrix import Matrix
from tests.faults.site import GATE, Site, publish, wait_until
from tests.faults.worker_process import WorkerProcess

DAY = 86_400
CUT = 2
"""The version with the threshold that the site's gate begins with."""


@dataclass
class Signed:
    """A site whose operators have a private key, and whose workers have the public one."""

    site: Site
    signer: signing.Signer
    keys: PolicyKeys
    worker: dict[str, str]
    capsys: pytest.CaptureFixture[str]

    def command(self, *arguments: str, status: int = 0) -> str:
        """What an operator's command prints, on either way, in one line."""
        assert main(arguments) == status
        return " ".join("".join(self.capsys.readouterr()).split())

    def start_worker(self) -> WorkerProcess:
        return self.site.start_worker(**self.worker)

    def attack(self, statement: sa.Executable) -> None:
        """Do what the owner of the database can."""
        with self.site.store._database.engine.begin() as connection:
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
            connection.execute(statement)

    def row(self, version: int) -> dict[str, Any]:
        with self.site.store._database.engine.connect() as connection:
            query = sa.select(policies).where(policies.c.version == version)
            return dict(connection.execute(query).mappings().one())


@pytest.fixture
def signed(site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Signed:
    """Keys, and commands of an operator in this process."""
    monkeypatch.chdir(site.directory)
    private, public = signing.generate_keys()
    Path("policies.pem").write_text(private)
    Path("policies.pub").write_text(public)
    for name, value in (site.environment | {"STREAMER_POLICIES_PRIVATE_KEY_FILE": "policies.pem"}).items():
        monkeypatch.setenv(name, value)
    signer = signing.Signer(private)
    return Signed(
        site, signer,
        PolicyKeys(trusted=[signer.public_key], verify=signing.verify, key_id=signing.key_id),
        {"STREAMER_POLICIES_PUBLIC_KEYS_FILE": str(Path("policies.pub").resolve())}, capsys,
    )  # fmt: skip


@pytest.mark.slow
def test_workers_obey_only_what_is_signed(signed: Signed, matrix: Matrix) -> None:
    site = signed.site
    workers = [signed.start_worker(), signed.start_worker()]
    _nothing_is_signed_yet(signed)
    signed.command("threshold", "sign", GATE, "--version", str(CUT), "--reason", "the first with a key")
    good = agree(site, keys=signed.keys, probe=100)
    assert (good.version, good.state, good.threshold) == (3, "cut", 0.6)

    _bad_ones_in_the_record(signed, good)
    wait_until(lambda: all(_refusals(one) == {4, 5, 6, 7} for one in workers), "all are refused")
    agree(site, keys=signed.keys, probe=200)
    for arguments in (
        ("gate", "set", GATE, "--mode", "shadow"),
        ("threshold", "rollback", GATE, "--to", "3"),
        ("threshold", "sign", GATE, "--version", "5"),
    ):
        assert "is not trusted" in signed.command(*arguments, status=2)
    with pytest.raises(UsageError, match="no key to sign"):
        site.store.policies.close(GATE, by="somebody", reason="without a key")
    assert "policy 7 is refused: its signature is not good for it" in signed.command("doctor", status=3)

    signed.command("threshold", "close", GATE, "--reason", "somebody was in the database")
    closed = agree(site, keys=signed.keys, probe=300)
    assert (closed.version, closed.state, closed.settings) == (8, "closed", good.settings)
    signed.command("threshold", "rollback", GATE, "--to", "3")
    opened = agree(site, keys=signed.keys)
    assert (opened.version, opened.threshold) == (9, good.threshold)

    _changed_in_place(signed, opened, closed)
    alerts = [one.alert for one in site.store.alerts.list(GATE) if one.alert.kind == "policy_refused"]
    assert sorted(one.details["version"] for one in alerts) == [1, 2, 4, 5, 6, 7, 9], "each once"
    published = oracle.read_all(wiring.connection(site.settings), wiring.topics(site.settings).alerts)
    told = {
        one.value for one in published
    }  # at least once: a message that comes again is the same to the byte
    assert sorted(json.loads(value or b"")["alert_id"] for value in told) == sorted(
        a.alert_id for a in alerts
    )
    verified = signed.command("audit", "verify", status=3)
    for version in (4, 5, 6, 7):
        assert f'policies ["{GATE}",{version}]: ' in verified
    assert f"policies gate {GATE} version 9" not in verified
    matrix.add(
        "12 policies unsigned, changed, replayed, of other keys and records", site.check(smuggled=True)
    )


def _nothing_is_signed_yet(signed: Signed) -> None:
    """Workers that ask for signatures hold everything, and consumers are to obey."""
    site = signed.site
    publish(site, 0, 10)
    wait_until(lambda: site.decided() == 10, "the batches are decided")
    for action in actions_of(site, 0, 10):
        assert (action.reason, action.action, action.enforced) == ("no_threshold", "abstain", True)
        assert all(one.score is None for one in action.responses)


def _bad_ones_in_the_record(signed: Signed, good: Policy) -> None:
    row = signed.row(good.version)
    other = signing.Signer(signing.generate_keys()[0])
    salt = signed.site.store.policies.versions()[GATE].active
    assert salt is not None
    wanted = replace(good, version=6, state="open", threshold=None)
    foreign = replace(good, version=7, threshold=0.0)
    opened = row | {"state": "open", "threshold": None}
    by_other = other.sign(statement(wanted, record_id=_record(signed), audit_salt=salt.audit_salt))
    elsewhere = signed.signer.sign(statement(foreign, record_id=bytes(32), audit_salt=salt.audit_salt))
    for bad in (
        opened | {"version": 4, "signature": None, "key_id": None},
        row | {"version": 5},
        opened | {"version": 6, "signature": by_other, "key_id": other.key_id},
        row | {"version": 7, "threshold": 0.0, "signature": elsewhere},
    ):
        signed.attack(sa.insert(policies).values(bad))
    # The topic tells of them too, as a genuine publisher would.
    for version in (4, 5, 6, 7):
        event = threshold_event(signed.site.store.policies.get(GATE, version))
        _write(signed.site, GATE.encode(), encode(event))


def _changed_in_place(signed: Signed, opened: Policy, closed: Policy) -> None:
    """Workers that run go on with what they have; one that starts finds the newest that is good. Both are told of."""
    site = signed.site
    change = sa.update(policies).where(policies.c.version == opened.version)
    signed.attack(change.values(threshold=0.1))
    kept = site.workers[:2]
    wait_until(lambda: all(9 in _refusals(one) for one in kept), "the change is noticed")
    decided_by(site, opened, 500)
    for worker in kept:
        assert worker.terminate() == 0
    signed.start_worker()
    agree(site, keys=signed.keys, probe=600)
    assert newest_trusted(site, keys=signed.keys).version == closed.version
    signed.attack(change.values(threshold=opened.threshold))
    # Settings are signed as well: they are another table's.
    loosened = sa.update(gate_revisions).where(gate_revisions.c.revision == 1)
    signed.attack(loosened.values(alpha=0.5))
    shown = signed.command("threshold", "show", GATE)
    assert "BAD SIGNATURE" in shown
    assert "Workers with the same public keys refuse this policy" in shown
    signed.attack(loosened.values(alpha=opened.settings.alpha))
    assert newest_trusted(site, keys=signed.keys).version == opened.version


@pytest.mark.slow
def test_the_topic_says_in_the_end_what_the_record_has(
    signed: Signed, matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = signed.site
    signed.command("threshold", "sign", GATE, "--version", str(CUT))
    signed.start_worker()
    signed.start_worker()
    for gate in STRANGE:
        signed.command("gate", "create", gate, "--encoder", "none", "--scorer", "external")
        signed.command("gate", "set", gate, "--alpha", "0.2")
    agree(site, keys=signed.keys)
    messages: dict[str, list[bytes]] = {}
    for record in oracle.read_all(wiring.connection(site.settings), wiring.topics(site.settings).thresholds):
        messages.setdefault((record.key or b"").decode(), []).append(record.value or b"")
    for gate, strange in STRANGE.items():
        last = strange(messages[gate][0], json.loads(messages[gate][-1]))
        _write(site, gate.encode(), last)
        _write(site, b"nobody", last)
    assert len(disagreements(site, keys=signed.keys)) == len(STRANGE), "each says something else now"
    agree(site, keys=signed.keys, probe=100, within=240)

    # The policy of a machine whose clock is a day off is the newest by its number, whatever its date.
    for off in (DAY, -DAY):
        with monkeypatch.context() as patch:
            patch.setattr("streamer.wiring.parts.datetime", _clock_off_by(off))
            signed.command("gate", "set", GATE, "--audit-probability", "0.9" if off > 0 else "0.8")
        policy = agree(site, keys=signed.keys, probe=200 if off > 0 else 300)
        wrong_by = policy.valid_from - wiring.now()
        assert abs(wrong_by - timedelta(seconds=off)) < timedelta(hours=1)
    # And it dies before it has told anybody: its row waits for a moment that is a day away.
    with monkeypatch.context() as patch:
        patch.setattr("streamer.wiring.parts.datetime", _clock_off_by(DAY))
        with wiring.open_store(load_settings()) as store:
            store.policies.close(GATE, by="ana", reason="and the power failed")
    assert agree(site, keys=signed.keys, probe=400, within=240).state == "closed"
    assert site.store.reports.outbox_pending() == 1, "the row that is dated ahead"
    wiring.publish_pending(site.settings)
    agree(site, keys=signed.keys)
    rejected = "streamer_policy_events_rejected_total"
    wait_until(lambda: all(one.metrics()[rejected] > 0 for one in site.workers), "each has read the rubbish")
    matrix.add("12 replays and rubbish last on the topic; policies dated a day off", site.check())


STRANGE: dict[str, Callable[[bytes, dict[str, Any]], bytes | None]] = {
    "replayed": lambda old, _event: old,
    "deleted": lambda _old, _event: None,
    "rubbish": lambda _old, _event: b"{",
    "forged": lambda _old, event: json.dumps(event | {"alpha": 0.9}).encode(),
    "from-the-future": lambda _old, event: json.dumps(
        event | {"version": 10_000, "valid_from": "2999-01-01T00:00:00Z"}
    ).encode(),
    "other-signature": lambda _old, event: json.dumps(
        event | {"signature": event["signature"][::-1]}
    ).encode(),
}
"""What a stranger leaves as the last message of a gate of that name, from its first message and its newest event."""


def _clock_off_by(seconds: float) -> type[datetime]:
    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(seconds=seconds)

    return Shifted


def test_of_two_publishers_the_slower_one_does_not_leave_its_policy_last(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def last() -> int:
        topic = wiring.topics(site.settings).thresholds
        return json.loads(oracle.read_all(wiring.connection(site.settings), topic)[-1].value or b"")[
            "version"
        ]

    def overtaken() -> None:
        """Read what waits, and publish it only after somebody else has published that and a newer policy."""
        waiting = site.store.unpublished

        def slowly(*arguments: Any, limit: int, **named: Any) -> Any:
            found = waiting(*arguments, limit=limit, **named)
            if limit > 1:
                patch.setattr(site.store, "unpublished", waiting)
                site.store.policies.close(GATE, by="ana", reason="the quick one")
                parts.publish_waiting(site.settings, site.store)
            return found

        with monkeypatch.context() as patch:
            site.store.gates.revise(
                GATE, {"audit_draws": 1 + site.store.policies.newest(GATE).version}, by="ana",
                reason="the slow one",
            )  # fmt: skip
            patch.setattr(site.store, "unpublished", slowly)
            parts.publish_waiting(site.settings, site.store)

    with monkeypatch.context() as blind:
        blind.setattr(site.store, "newer", lambda _messages: [])
        overtaken()
    assert (last(), site.store.policies.newest(GATE).version) == (3, 4), "so it was before anybody looked"
    overtaken()
    assert last() == 6
    assert agree(site, workers=[], within=0).version == 6, "and no worker was there to put it right"


def _refusals(worker: WorkerProcess) -> set[int]:
    """Versions that a worker has logged as refused and counted, but for those from before there was a key; each once."""
    counted = sum(
        value
        for name, value in worker.metrics().items()
        if name.startswith("streamer_policies_refused_total{")
    )
    lines = [json.loads(line) for line in worker.log_text().splitlines() if "deciding.policy_refused" in line]
    versions = [line["version"] for line in lines]
    assert len(versions) == len(set(versions)), "an error for each version, once"
    # Somebody who looks between the two sees one of them.
    return set(versions) - {1, CUT} if counted == len(versions) else set()


def _record(signed: Signed) -> bytes:
    return signed.site.store.policies.versions()[GATE].record_id


def _write(site: Site, key: bytes, value: bytes | None) -> None:
    with wiring.publisher(site.settings) as publisher:
        publisher.send(wiring.topics(site.settings).thresholds, value, key=key)
