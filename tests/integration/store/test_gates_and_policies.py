"""Gates, their revisions, and the policies that follow from them."""

from dataclasses import replace
from datetime import timedelta

import pytest

from streamer.errors import UsageError
from streamer.gates.policy import Policy
from streamer.gates.settings import GateSettings
from tests.at_once import at_once
from tests.integration.store.conftest import SETTINGS, START, World


def test_a_gate_is_created_closed_and_uncalibrated_and_told_to_the_world(world: World):
    revision = world.store.gates.get("support-bot")
    assert revision.revision == 1
    assert revision.settings == SETTINGS
    assert 0 <= revision.seed < 2**63
    assert len(revision.audit_salt) == 32
    assert (revision.created_at, revision.created_by, revision.reason) == (START, "ana", "new")
    policy = world.store.policies.newest("support-bot")
    assert (policy.version, policy.state, policy.calibrated, policy.threshold) == (1, "closed", False, None)
    (message,) = world.store.unpublished([], limit=10)
    assert (message.topic, message.key) == ("streamer.thresholds", b"support-bot")
    assert [event.event for event in world.store.policies.events("support-bot")] == ["created", "closed"]


def test_every_setting_survives_the_database(world: World):
    settings = GateSettings(
        unit="response", scorer="external", encoder="none", severity_kind="lexical", alpha=0.1,
        method="rbwa", eta=0.30000000000000004, draws=7, hold_action="escalate", max_attempts=3,
        mode="shadow", audit_probability=1 / 3, audit_draws=2, label_deadline_seconds=86400.5,
        decision_deadline_seconds=1.5,
    )  # fmt: skip
    world.store.gates.create("other", settings, by="bo", reason="", seed=2**63 - 1)
    assert world.store.gates.get("other").settings == settings
    assert world.store.gates.get("other").seed == 2**63 - 1
    assert [gate.gate for gate in world.store.gates.list()] == ["other", "support-bot"]
    assert world.store.policies.newest("other").settings == settings


@pytest.mark.parametrize("name", ["", "A", "ü", "-a", "a b", "a" * 65, "a\n"])
def test_names_that_no_gate_may_have(world: World, name: str):
    with pytest.raises(UsageError, match="no name for a gate"):
        world.store.gates.create(name, SETTINGS, by="ana", reason="")


def test_a_gate_is_created_once(world: World):
    with pytest.raises(UsageError, match="already"):
        world.gate()
    with pytest.raises(UsageError, match="seed"):
        world.store.gates.create("b", SETTINGS, by="ana", reason="", seed=2**63)


def test_what_does_not_exist_is_said_so(world: World):
    for ask in (
        lambda: world.store.gates.get("x"),
        lambda: world.store.gates.history("x"),
        lambda: world.store.gates.revise("x", {"mode": "shadow"}, by="", reason=""),
        lambda: world.store.policies.newest("x"),
        lambda: world.store.policies.list("x"),
        lambda: world.store.policies.close("x", by="", reason=""),
        lambda: world.store.policies.get("support-bot", 9),
    ):
        with pytest.raises(UsageError, match=r"no (gate|policy)"):
            ask()


def open_gate(world: World, threshold: float = 0.5) -> Policy:
    """Write an open threshold the way a calibration does, without its run."""
    writer = world.store.policies._writer

    def work(connection):  # type: ignore[no-untyped-def]
        present = writer.lock_newest(connection, "support-bot")
        return writer.next(
            connection,
            replace(present, state="cut", threshold=threshold, calibrated=True, guarantee="holds"),
            by="ana",
            reason="calibrated",
            now=world.clock(),
        )

    return world.store._database.writing(work)  # type: ignore[no-any-return]


def test_a_change_that_needs_recalibration_closes_the_gate(world: World):
    open_gate(world)
    revision = world.store.gates.revise("support-bot", {"alpha": 0.1}, by="bo", reason="more risk")
    policy = world.store.policies.newest("support-bot")
    assert (policy.version, policy.gate_revision, revision.revision) == (3, 2, 2)
    assert (policy.state, policy.calibrated, policy.guarantee) == ("closed", False, "")
    assert policy.settings.alpha == 0.1
    assert revision.seed == world.store.gates.history("support-bot")[0].seed


def test_another_change_keeps_the_threshold(world: World):
    before = open_gate(world)
    world.store.gates.revise(
        "support-bot", {"mode": "shadow", "hold_action": "escalate"}, by="bo", reason="try"
    )
    policy = world.store.policies.newest("support-bot")
    wanted = ("cut", 0.5, True, "holds")
    assert (policy.state, policy.threshold, policy.calibrated, policy.guarantee) == wanted
    assert (policy.version, policy.settings.mode) == (before.version + 1, "shadow")
    assert world.store.policies.get("support-bot", 2) == before
    events = [(e.version, e.event, e.by) for e in world.store.policies.events("support-bot")]
    assert events[-3:] == [(3, "created", "bo"), (3, "activated", "bo"), (2, "superseded", "bo")]
    assert len(world.store.unpublished([], limit=10)) == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "already"),
        ({"mode": "enforce"}, "already"),
        ({"mode": "x"}, "mode"),
        ({"colour": 1}, "colour"),
        ({"alpha": "x"}, "alpha must be a number, like 0.05, not 'x'"),
    ],
)
def test_changes_that_cannot_be(world: World, changes: dict[str, object], said: str):
    with pytest.raises(UsageError, match=said):
        world.store.gates.revise("support-bot", changes, by="bo", reason="")
    assert len(world.store.gates.history("support-bot")) == 1


def test_close_and_roll_back(world: World):
    opened = open_gate(world)
    closed = world.store.policies.close("support-bot", by="bo", reason="incident")
    assert (closed.state, closed.calibrated, closed.version) == ("closed", True, 3)
    back = world.store.policies.rollback("support-bot", 2, by="bo", reason="over")
    assert (
        replace(back, version=2, valid_from=opened.valid_from, created_by="ana", reason="calibrated")
        == opened
    )
    assert back.version == 4
    world.store.gates.revise("support-bot", {"unit": "batch"}, by="bo", reason="other")
    with pytest.raises(UsageError, match=r"different settings \(unit\)"):
        world.store.policies.rollback("support-bot", 2, by="bo", reason="again")


def test_active_policies_carry_the_secret(world: World):
    world.gate("b")
    world.store.policies.close("b", by="bo", reason="")
    active = world.store.policies.active()
    assert {name: one.policy.version for name, one in active.items()} == {"b": 2, "support-bot": 1}
    assert active["b"].audit_salt == world.store.gates.get("b").audit_salt
    assert active["b"].audit_salt != active["support-bot"].audit_salt
    assert set(world.store.policies.active(["b", "nobody"])) == {"b"}


def test_changes_at_the_same_time_get_one_version_each(world: World):
    stores = [world.open() for _ in range(4)]

    def work(number: int) -> None:
        for turn in range(5):
            change = {"label_deadline_seconds": float(number * 10 + turn + 1)}
            stores[number].gates.revise("support-bot", change, by=str(number), reason="")

    at_once(work, *range(4))
    assert [policy.version for policy in world.store.policies.list("support-bot")] == list(range(1, 22))
    assert [revision.revision for revision in world.store.gates.history("support-bot")] == list(range(1, 22))


def test_the_same_name_created_twice_at_once_is_one_gate(world: World):
    stores = [world.open() for _ in range(3)]

    def work(number: int) -> object:
        try:
            return stores[number].gates.create("same", SETTINGS, by=f"{number}", reason="").created_by
        except UsageError as error:
            return error

    results = at_once(work, *range(3))
    assert sum(isinstance(result, str) for result in results) == 1
    assert sum(isinstance(result, UsageError) for result in results) == 2


def test_a_policys_message_is_its_commands_to_publish_before_it_is_a_workers(world: World):
    """The clock of this store moves on by a second at each look."""
    waits = {m.id for m in world.store.unpublished([], limit=10)}
    assert waits
    assert world.store.unpublished([], limit=10, ownerless=None) == []
    assert world.store.unpublished([], limit=10, ownerless=timedelta(hours=1)) == []
    assert {m.id for m in world.store.unpublished([], limit=10, ownerless=timedelta(seconds=1))} == waits
