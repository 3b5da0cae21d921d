"""A gate that keeps hashes only: no text of it is ever in the database, and repeats are still told from conflicts."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from streamer.events.dead_letters import dead_letter_message
from streamer.journal import DeadLetter, OutboxMessage, Record
from streamer.store import open_store
from tests.integration.store.conftest import World, policy_message
from tests.integration.store.test_prune import SECRET, everything

ACTION = OutboxMessage("streamer.actions", b"k", b"names and numbers", ())


def refusal(record: Record, code: str, detail: str) -> OutboxMessage:
    return dead_letter_message(record, code, detail, topic="streamer.dead-letters", max_bytes=65536)


@pytest.fixture
def silent(new_world: Callable[..., World]) -> World:
    """A world with a gate that keeps no texts."""
    world = new_world()
    world.gate(keep_texts=False)
    world.store = open_store(
        world.url, clock=world.clock, policy_message=policy_message, dead_letter_message=refusal
    )
    world.stores.append(world.store)
    return world


def refused(world: World, offset: int) -> DeadLetter:
    record = replace(world.record(offset), value=SECRET.encode(), headers=(("h", SECRET.encode()),))
    return DeadLetter(
        record=record, code="not_json", detail=SECRET, message=refusal(record, "not_json", SECRET)
    )


def test_no_text_is_ever_in_the_database(silent: World) -> None:
    lease = silent.lease()
    kinds = silent.commit(
        silent.slice(
            lease,
            silent.decision(0, "a", content=SECRET, action=ACTION),
            silent.decision(1, "a", content=SECRET, action=ACTION),
            silent.decision(2, "a", content=f"other {SECRET}", action=ACTION),
            refused(silent, 3),
        )
    )
    assert kinds == [["decision", "duplicate", "conflict", "dead_letter"]]
    kept = everything(silent)
    assert SECRET not in kept
    assert SECRET.encode().hex() not in kept
    assert silent.store.evidence.log_faults() == []
    letters = silent.store.dead_letters.list()
    wanted = {(2, silent.record(2).key, None), (3, silent.record(3).key, None)}
    assert {(one.offset, one.key, one.value) for one in letters} == wanted
    published = [m for m in silent.store.unpublished([silent.partition()], limit=10) if m.value is None]
    assert [dict(m.headers)["__connect.errors.offset"] for m in published] == [b"2", b"3"]


def test_the_queue_names_what_waits_and_has_no_texts(silent: World) -> None:
    lease = silent.lease()
    silent.commit(silent.slice(lease, silent.decision(0, "a", content=SECRET, action=ACTION)))
    (task,) = silent.store.labels.queue()
    assert (task.key.batch_id, task.response_id, task.prompt, task.text) == ("a", "b", "", None)
    assert silent.store.labels.pending() == {"support-bot": 1}
    silent.store.labels.add([silent.label(0.5, "a")], source="file")
    assert silent.store.labels.queue() == []


def test_each_batch_is_kept_as_its_own_policy_says(silent: World) -> None:
    lease = silent.lease()
    silent.commit(silent.slice(lease, silent.decision(0, "a", content=SECRET, action=ACTION)))
    silent.store.gates.revise("support-bot", {"keep_texts": True}, by="ana", reason="for a review")
    silent.policy = silent.store.policies.newest("support-bot")
    assert silent.policy.settings.keep_texts
    later = silent.decision(1, "b", content="kept words", action=ACTION)
    silent.commit(silent.slice(lease, later, refused(silent, 2), expected=1))
    kept = everything(silent)
    assert "prompt kept words" in kept
    assert f"prompt {SECRET}" not in kept
    assert silent.store.dead_letters.list()[0].value == SECRET.encode()
    assert silent.store.evidence.log_faults() == []
