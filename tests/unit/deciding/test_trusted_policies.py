"""Refused policies are passed over, each told of once; and the topic is set right by the one worker that looks after it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from streamer.audit import signing
from streamer.deciding.policy_book import Announcements, PolicyBook, TrustedPolicies
from streamer.errors import Unavailable
from streamer.events.limits import DEFAULT_LIMITS
from streamer.events.thresholds import threshold_event, threshold_message
from streamer.gates.policy import ActivePolicy, Policy
from streamer.gates.settings import GateSettings
from streamer.journal import OutboxMessage
from streamer.signing.policies import NO_KEYS, PolicyKeys, PolicyVersion
from tests.made import a_policy

NOW = datetime(2026, 11, 20, tzinfo=UTC)
RECORD, SALT = bytes(32), b"s" * 32
SIGNER = signing.Signer(signing.generate_keys()[0])
KEYS = PolicyKeys(trusted=[SIGNER.public_key], verify=signing.verify, key_id=signing.key_id, signer=SIGNER)

pytestmark = pytest.mark.expected_errors(r"deciding\.policy_refused")


def policy(version: int, gate: str = "g") -> Policy:
    return a_policy(GateSettings(encoder="e"), gate=gate, version=version, state="cut", threshold=0.5)


def version(number: int, *, signed: bool = True) -> PolicyVersion:
    made = policy(number)
    signature = KEYS.sign(made, record_id=RECORD, audit_salt=SALT) if signed else None
    return PolicyVersion(
        gate="g",
        version=number,
        active=ActivePolicy(made, SALT),
        signature=None if signature is None else signature.value,
        key_id=None if signature is None else signature.key_id,
        record_id=RECORD,
    )


class Table:
    """Versions of one gate, the oldest first."""

    def __init__(self, *versions: PolicyVersion) -> None:
        self.rows = list(versions)
        self.read = 0

    def versions(self, _names: Sequence[str] | None = None) -> dict[str, PolicyVersion]:
        return {"g": self.rows[-1]}

    def before(self, _gate: str, below: int, limit: int) -> list[PolicyVersion]:
        found = [row for row in reversed(self.rows) if row.version < below][:limit]
        self.read += len(found)
        return found


class Told:
    """What was counted, and what was told for good; the first call finds the database away."""

    def __init__(self, table: Table, keys: PolicyKeys = KEYS) -> None:
        self.counted: list[tuple[int, str]] = []
        self.lasting: list[tuple[int, int | None]] = []
        self.away = 0
        self.policies = TrustedPolicies(
            table.versions,
            table.before,
            keys,
            on_refused=lambda _gate, number, why: self.counted.append((number, why)),
            raise_alert=self._tell,
            now=lambda: NOW,
        )

    def _tell(self, _gate: str, number: int, _why: str, kept: int | None) -> None:
        if self.away:
            self.away -= 1
            raise Unavailable("away")
        self.lasting.append((number, kept))


def test_however_many_bad_ones_lie_on_top_the_last_good_one_is_found_and_not_looked_for_again() -> None:
    bad = [version(number, signed=False) for number in range(2, 202)]
    table = Table(version(1), *bad)
    told = Told(table)
    assert told.policies(None)["g"].policy.version == 1
    assert len(told.counted) == len(told.lasting) == 200
    assert told.lasting[0] == (2, 1)
    table.read = 0
    kept = told.policies(None)["g"]
    assert (kept.policy.version, kept.newest_seen) == (1, 201), "nothing new"
    assert table.read <= 250
    assert len(told.counted) == len(told.lasting) == 200
    table.rows.append(version(202))
    assert told.policies(["g"])["g"].policy.version == 202


def test_what_could_not_be_told_is_told_with_the_next_look_and_counted_once() -> None:
    told = Told(Table(version(1), version(2, signed=False)))
    told.away = 1
    with pytest.raises(Unavailable):
        told.policies(None)
    assert (told.counted, told.lasting) == ([(2, "unsigned")], [])
    told.policies(None)
    told.policies(None)
    assert (told.counted, told.lasting) == ([(2, "unsigned")], [(2, 1)])


def test_what_nobody_can_read_holds_without_settings_of_its_own() -> None:
    told = Told(Table(replace(version(1), active=None)), NO_KEYS)
    held = told.policies(None)["g"]
    assert not held.trusted
    assert (held.policy.version, held.policy.state, held.policy.settings.mode) == (1, "closed", "enforce")
    assert told.counted == [(1, "unreadable")]


def test_a_trusted_policy_takes_the_place_of_one_that_only_holds_and_never_the_other_way() -> None:
    table = Table(version(5, signed=False))
    book = PolicyBook(Told(table).policies, limits=DEFAULT_LIMITS)
    book.refresh()
    assert not book.get("g").trusted
    table.rows = [version(5)]  # the database was put right
    book.refresh()
    taken = book.get("g")
    assert taken.trusted
    table.rows = [version(6, signed=False)]
    book.refresh()
    assert book.get("g") == replace(taken, newest_seen=6)


def test_a_gate_without_any_trusted_policy_notices_each_new_one_that_is_refused() -> None:
    table = Table(version(5, signed=False))
    book = PolicyBook(Told(table).policies, limits=DEFAULT_LIMITS)
    book.refresh()
    table.rows.append(version(6, signed=False))
    book.refresh()
    held = book.get("g")
    assert (held.trusted, held.newest_seen) == (False, 6)


class Messages:
    """The record's message of each policy, and how often it was asked to be published again."""

    def __init__(self) -> None:
        self.announced: list[int] = []

    def message(self, made: Policy) -> OutboxMessage | None:
        return threshold_message(threshold_event(made), topic="t")

    def announce(self, made: Policy) -> bool:
        self.announced.append(made.version)
        return True


def test_the_topic_is_set_right_after_a_while_not_too_often_and_by_one_worker_alone() -> None:
    clock, mine = [100.0], [True]
    book = PolicyBook(lambda _names: {"g": ActivePolicy(policy(2), SALT)}, limits=DEFAULT_LIMITS)
    book.refresh()
    messages = Messages()
    topic = Announcements(
        book,
        message=messages.message,
        announce=messages.announce,
        mine=lambda: mine[0],
        limits=DEFAULT_LIMITS,
        clock=lambda: clock[0],
        patience=4,
        pause=30,
    )

    def after(seconds: float) -> list[int]:
        clock[0] += seconds
        topic.keep()
        return messages.announced

    right, old = (messages.message(policy(number)) for number in (2, 1))
    assert right is not None
    topic.hear(b"g", old.value)
    topic.hear(b"g", right.value)
    assert after(0) == after(100) == [], "the last message counts"
    for stranger in (
        old.value,
        None,
        b"{",
        json.dumps(json.loads(right.value or b"") | {"lambda": 0}).encode(),
    ):
        messages.announced.clear()
        clock[0] += 100
        topic.hear(b"g", stranger)
        assert after(0) == after(3.9) == [], "a command may be about to say it by itself"
        assert after(0.2) == [2]
        assert after(29) == [2], "somebody who writes without end is not answered without end"
        assert after(2) == [2, 2]
        topic.hear(b"g", right.value)
        assert after(100) == [2, 2]
    younger = json.dumps(json.loads(right.value or b"") | {"what_a_later_version_says": 1}).encode()
    topic.hear(b"g", younger)
    assert after(0) == after(100) == [2, 2], "two versions of the program do not overwrite each other"
    messages.announced.clear()
    mine[0] = False
    topic.hear(b"g", None)
    assert after(0) == after(100) == []
    mine[0] = True
    assert after(0) == [], "whoever takes over waits as well"
    assert after(5) == [2]
    for number in range(100):
        topic.hear(b"%d" % number, b"{")
    assert set(topic._last) == {"g"}, "strangers' keys are not kept"
