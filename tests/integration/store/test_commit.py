"""The group commit: one outcome per offset, one decision per key, under lost answers, zombies and races."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import sqlalchemy as sa

from streamer.errors import Fenced, TopicRecreated
from streamer.events.codes import CONFLICTING_CONTENT
from streamer.events.receipts import without_receipt
from streamer.events.responses import REQUEST_HEADER, SAMPLING
from streamer.journal import DataGap, OutboxMessage, Slice
from tests.at_once import at_once
from tests.integration.store.conftest import World


def as_stored(message: OutboxMessage) -> OutboxMessage:
    """A message that waits, without what is added when it is published."""
    return replace(message, id=0, queued=False, headers=without_receipt(message.headers)[0])


def test_a_lease_raises_the_epoch_and_tells_where_to_go_on(world: World):
    first = world.lease()
    assert (first.epoch, first.next_offset) == (1, 0)
    world.commit(world.slice(first, world.decision(0), world.dead(4)))
    second = world.lease()
    assert (second.epoch, second.next_offset) == (2, 5)


def test_a_commit_keeps_everything_and_enqueues_the_actions_in_order(world: World):
    lease = world.lease()
    decisions = [world.decision(offset) for offset in range(3)]
    assert world.commit(world.slice(lease, *decisions)) == [["decision"] * 3]
    waiting = world.store.unpublished([lease.partition], limit=10)
    assert [as_stored(message) for message in waiting[1:]] == [decision.action for decision in decisions]
    leaves = world.rows('SELECT leaf_index, leaf_hash, root FROM outcomes ORDER BY "offset"')
    receipts = [json.loads(without_receipt(message.headers)[1] or b"") for message in waiting[1:]]
    assert receipts == [
        [*lease.partition, index, bytes(leaf).hex(), bytes(root).hex()] for index, leaf, root in leaves
    ]
    assert waiting[0].topic == "streamer.thresholds"
    ids = [message.id for message in waiting[1:]]
    assert ids == sorted(ids)
    assert world.rows("SELECT count(*) FROM pending_messages WHERE batch IS NOT NULL AND value IS NULL") == [
        (3,)
    ]
    assert world.store.known([d.key for d in decisions]) == {d.key: d.content_hash for d in decisions}
    (row,) = world.rows("SELECT text FROM responses WHERE position = 1 ORDER BY batch LIMIT 1")
    assert row.text == decisions[0].responses[1].text


def test_a_commit_tells_what_waits_as_it_would_be_read(world: World):
    lease = world.lease()
    told: list[Sequence[OutboxMessage]] = []

    def commit(*slices: Slice) -> None:
        world.store.commit(slices, now=world.clock(), queued=told.append)

    def waiting() -> list[OutboxMessage]:
        return [one for one in world.store.unpublished([lease.partition], limit=100) if one.queued]

    first = world.slice(lease, world.decision(0, "a"), world.dead(1), world.decision(2, "b"))
    commit(first)
    assert len(told[0]) == 3
    assert list(told[0]) == waiting()
    # Other content under a known key is a dead letter, which the commit itself makes.
    commit(world.slice(lease, world.decision(3, "c"), world.decision(4, "a", content="two"), expected=3))
    assert [*told[0], *told[1]] == waiting()
    # The receipt of a decision that was made before only the database has; and what a commit put there whose answer was lost.
    commit(world.slice(lease, world.decision(5, "d"), world.decision(6, "a"), expected=5))
    commit(world.slice(lease, world.decision(5, "d"), world.decision(6, "a"), expected=5))
    assert [list(one) for one in told[2:]] == [[], []]
    assert len(waiting()) == 7


def test_the_same_content_again_is_a_duplicate_with_the_stored_action(world: World):
    lease = world.lease()
    first = world.decision(0, "b")
    world.commit(world.slice(lease, first))
    again = world.decision(1, "b", action=OutboxMessage("streamer.actions", b"other", b"other", ()))
    kinds = world.commit(world.slice(lease, again, world.redelivery(2, "b"), expected=1))
    assert kinds == [["duplicate", "duplicate"]]
    actions = [
        m for m in world.store.unpublished([lease.partition], limit=10) if m.topic == "streamer.actions"
    ]
    assert [as_stored(message) for message in actions] == [first.action] * 3
    assert len({message.headers for message in actions}) == 1, "one receipt, that of the decision"


def test_other_content_is_a_conflict_and_becomes_a_dead_letter(world: World):
    lease = world.lease()
    world.commit(world.slice(lease, world.decision(0, "b")))
    kinds = world.commit(
        world.slice(
            lease, world.decision(1, "b", content="two"), world.redelivery(2, "b", content="3"), expected=1
        )
    )
    # Only requests by HTTP say what they were sampled for: a publisher may send any header.
    asked = {"metadata": {SAMPLING: {"request": "a1"}}}
    for n in (3, 4):
        record = replace(world.record(n), headers=((REQUEST_HEADER, b"a1"),))
        sampled = world.decision(n, "c", content=f"{n}", record=record, **asked)
        kinds += world.commit(world.slice(lease, sampled, expected=n))
    assert kinds == [["conflict", "conflict"], ["decision"], ["conflict"]]
    assert world.rows("SELECT code FROM dead_letters") == [(CONFLICTING_CONTENT,)] * 3
    letters = [
        m for m in world.store.unpublished([lease.partition], limit=10) if m.topic == "streamer.dead-letters"
    ]
    assert [letter.value for letter in letters] == [b'{"n": 1}', b'{"n": 2}', b'{"n": 4}']
    assert world.rows("SELECT count(*) FROM decisions") == [(2,)]


def test_repeats_inside_one_commit_are_outcomes_too(world: World):
    zero, one = world.lease(0), world.lease(1)
    kinds = world.commit(
        world.slice(zero, world.decision(0, "b"), world.decision(1, "b"), world.decision(2, "c")),
        world.slice(one, world.decision(0, "b", number=1, content="two"), world.decision(1, "d", number=1)),
    )
    assert kinds == [["decision", "duplicate", "decision"], ["conflict", "decision"]]


def test_a_commit_whose_answer_was_lost_can_be_repeated(world: World):
    zero, one = world.lease(0), world.lease(1)
    slices = [
        world.slice(zero, world.decision(0, "b"), world.decision(5, "b"), world.dead(7)),
        world.slice(one, world.decision(0, number=1)),
    ]
    expected = [["decision", "duplicate", "dead_letter"], ["decision"]]
    assert world.commit(*slices) == expected
    assert world.commit(*slices) == expected
    # ... and together with what came after it.
    later = world.slice(one, world.decision(1, number=1), expected=1)
    assert world.commit(slices[0], later) == [expected[0], ["decision"]]
    assert world.rows("SELECT count(*) FROM outcomes") == [(5,)]


def test_a_zombie_is_fenced_and_writes_nothing(world: World):
    zombie = world.lease()
    world.lease(store=world.open())
    with pytest.raises(Fenced, match="epoch 1"):
        world.commit(world.slice(zombie, world.decision(0)))
    with pytest.raises(Fenced):
        world.store.record_gap(zombie, DataGap(zombie.partition, 0, 5))
    assert world.rows("SELECT count(*) FROM batches") == [(0,)]


def test_one_lost_lease_stops_the_whole_commit(world: World):
    zero, one = world.lease(0), world.lease(1)
    world.lease(1)
    with pytest.raises(Fenced):
        world.commit(world.slice(zero, world.decision(0)), world.slice(one, world.decision(0, number=1)))
    assert world.rows("SELECT count(*) FROM outcomes") == [(0,)]


def test_progress_elsewhere_is_fenced_even_under_our_epoch(world: World):
    lease = world.lease()
    world.commit(world.slice(lease, world.decision(0), world.decision(1)))
    with pytest.raises(Fenced):
        world.commit(world.slice(lease, world.decision(5), expected=3))


def test_a_partition_that_was_never_leased_is_fenced(world: World):
    lease = replace(world.lease(), partition=world.partition(9))
    with pytest.raises(Fenced):
        world.commit(world.slice(lease, world.decision(0, number=9)))


@pytest.mark.parametrize("kind", ["order", "partition", "next"])
def test_a_slice_that_contradicts_itself_is_a_bug(world: World, kind: str):
    lease = world.lease()
    piece = world.slice(lease, world.decision(0), world.decision(1))
    broken = {
        "order": replace(piece, outcomes=piece.outcomes[::-1]),
        "partition": replace(piece, outcomes=(world.decision(0, number=3), world.decision(1))),
        "next": replace(piece, next_offset=9),
    }[kind]
    with pytest.raises(ValueError, match="offset"):
        world.commit(broken)


def test_a_gap_is_recorded_once_and_passed(world: World):
    lease = world.lease()
    world.commit(world.slice(lease, world.decision(0)))
    gap = DataGap(lease.partition, 1, 50)
    world.store.record_gap(lease, gap)
    world.store.record_gap(lease, gap)
    assert world.rows("SELECT from_offset, to_offset FROM data_gaps") == [(1, 50)]
    world.commit(world.slice(lease, world.decision(50), expected=50))
    with pytest.raises(Fenced):
        world.store.record_gap(lease, DataGap(lease.partition, 7, 60))
    assert world.lease().next_offset == 51


def test_labels_on_the_topic_are_kept_and_repeats_are_one_row(world: World):
    lease = world.lease(topic="streamer.labels")
    kinds = world.commit(
        world.slice(
            lease,
            world.label(0.5, "b0-0", offset=0),
            world.label(0.5, "b0-0", offset=1),
            world.label(0.5, "b0-0", offset=2, labeller="bo"),
            world.label(0.5, "x", offset=3, key=world.label(0, "x").key._replace(gate="nobody")),
        )
    )
    assert kinds == [["label", "label", "label", "dead_letter"]]
    world.commit(world.slice(lease, world.label(0.5, "b0-0", offset=4), expected=4))
    assert world.rows("SELECT count(*) FROM label_revisions") == [(2,)]
    assert world.rows("SELECT code FROM dead_letters") == [("unknown_gate",)]
    assert world.rows("SELECT count(DISTINCT label) FROM outcomes WHERE kind = 'label'") == [(2,)]
    assert world.store.evidence.log_faults() == []


def test_published_and_parked_messages_do_not_come_again(world: World):
    zero, one = world.lease(0), world.lease(1)
    world.commit(
        world.slice(zero, world.decision(0), world.decision(1)), world.slice(one, world.decision(0, number=1))
    )
    (policy, *_rest) = world.store.unpublished([], limit=10)
    assert len(_rest) == 0
    world.store.mark_published([policy])
    first, second = world.store.unpublished([zero.partition], limit=10)
    world.store.park(first, "too large\x00")
    assert [m.id for m in world.store.unpublished([zero.partition], limit=10)] == [second.id]
    assert len(world.store.unpublished([zero.partition, one.partition], limit=10)) == 2
    assert len(world.store.unpublished([zero.partition, one.partition], limit=1)) == 1
    found = world.rows("SELECT error FROM pending_messages WHERE id = :id", id=first.id)
    assert found == [("too large\ufffd",)]
    world.store.mark_published([second])
    world.store.mark_published([second])
    assert world.store.unpublished([zero.partition], limit=10) == []
    assert world.rows("SELECT count(*) FROM pending_messages") == [(2,)]
    (published,) = world.rows("SELECT published_at FROM outbox")
    assert published.published_at is not None


def test_what_another_worker_publishes_while_the_queue_is_read_is_left_out(world: World):
    """Two workers read the same partition's queue for as long as one of them does not know that its lease has gone."""
    lease = world.lease()
    world.commit(
        world.slice(lease, *(world.decision(offset) for offset in range(2)), world.dead(2), world.dead(3))
    )
    sources = [lease.partition]
    one, two, letter, _other_letter = waiting = world.store.unpublished(sources, limit=10, ownerless=None)
    other = world.open()
    publishes = [[one, letter]]

    def published_between_two_reads(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if publishes and "pending_messages" in statement:
            other.mark_published(publishes.pop())

    engine = world.store._database.engine
    sa.event.listen(engine, "after_cursor_execute", published_between_two_reads)
    try:
        found = world.store.unpublished(sources, limit=10, ownerless=None)
    finally:
        sa.event.remove(engine, "after_cursor_execute", published_between_two_reads)
    assert not publishes
    assert [message for message in found if message in waiting] == found
    assert two in found
    assert letter not in world.store.unpublished(sources, limit=10, ownerless=None)


def test_the_queue_is_read_by_topic_from_a_place_on_and_up_to_a_size(world: World):
    lease = world.lease()
    world.commit(
        world.slice(lease, *(world.decision(offset) for offset in range(3)), world.dead(3), world.dead(4))
    )
    sources = [lease.partition]
    wanted = ["streamer.actions", "streamer.dead-letters", "streamer.thresholds"]
    assert world.store.unpublished_topics(sources) == wanted
    assert world.store.unpublished_topics([]) == ["streamer.thresholds"]
    found = world.store.unpublished_topics(sources, ownerless=None)
    assert found == ["streamer.actions", "streamer.dead-letters"]

    actions = world.store.unpublished(sources, limit=10, topic="streamer.actions")
    expected = [world.decision(offset).action.value for offset in range(3)]
    assert [action.value for action in actions] == expected
    later = world.store.unpublished(sources, limit=10, topic="streamer.actions", after=actions[0].id)
    assert later == actions[1:]
    letters = world.store.unpublished(sources, limit=10, topic="streamer.dead-letters")
    assert [letter.key for letter in letters] == [world.dead(3).record.key, world.dead(4).record.key]
    some = world.store.unpublished(sources, limit=10, topic="streamer.dead-letters", max_bytes=1)
    assert some == letters[:1]


def test_two_workers_that_get_the_same_batches_at_once_decide_each_once(world: World):
    rounds, size = 6, 30
    barrier = threading.Barrier(2)
    kinds: dict[int, list[str]] = {0: [], 1: []}

    def work(number: int) -> None:
        try:
            store = world.open()
            lease = world.lease(number, store=store)
            for turn in range(rounds):
                offsets = range(turn * size, (turn + 1) * size)
                # The two see the same keys in opposite order.
                names = [f"t{turn}-{i}" for i in range(size)][:: 1 if number else -1]
                outcomes = [
                    world.decision(offset, name, number=number)
                    for offset, name in zip(offsets, names, strict=True)
                ]
                barrier.wait(timeout=240)
                kinds[number] += world.commit(
                    world.slice(lease, *outcomes, expected=turn * size), store=store
                )[0]
        except BaseException:
            barrier.abort()
            raise

    at_once(work, 0, 1)
    every = kinds[0] + kinds[1]
    assert every.count("decision") == every.count("duplicate") == rounds * size
    assert world.rows("SELECT count(*) FROM decisions") == [(rounds * size,)]
    assert world.store.evidence.log_faults() == []


def test_one_database_serves_several_logs(new_world: Callable[..., World]):
    one = new_world(log_id="cluster-1")
    one.gate()
    two = new_world(log_id="cluster-2")
    two.policy = one.policy
    one.keep(one.decision(0, "b"))
    assert two.keep(two.decision(0, "b")) == [["duplicate"]]


def ids(world: World, identity: str) -> dict[str, str]:
    return {world.partition(0).topic: identity}


def test_another_topic_under_the_same_name_gets_no_lease(world: World) -> None:
    both = [world.partition(0), world.partition(1)]
    lease = world.store.lease(both, topic_ids=ids(world, "first"))[both[0]]
    world.commit(world.slice(lease, world.decision(0)))
    with pytest.raises(TopicRecreated) as caught:
        world.store.lease(both, topic_ids=ids(world, "second"))
    assert caught.value.topic == both[0].topic
    # Neither partition was taken: whoever has the lease keeps it.
    again = world.store.lease(both, topic_ids=ids(world, "first"))
    assert {one.epoch for one in again.values()} == {2}


def test_without_an_outcome_a_new_topic_is_as_good(world: World) -> None:
    world.store.lease([world.partition(0)], topic_ids=ids(world, "first"))
    lease = world.store.lease([world.partition(0)], topic_ids=ids(world, "second"))[world.partition(0)]
    world.commit(world.slice(lease, world.decision(0)))
    with pytest.raises(TopicRecreated):
        world.store.lease([world.partition(0)], topic_ids=ids(world, "first"))


def test_an_id_that_is_not_known_changes_nothing(world: World) -> None:
    lease = world.store.lease([world.partition(0)])[world.partition(0)]
    world.commit(world.slice(lease, world.decision(0)))
    world.store.lease([world.partition(0)], topic_ids=ids(world, "first"))  # first known now
    assert world.store.lease([world.partition(0)])[world.partition(0)].epoch == 3
    with pytest.raises(TopicRecreated):
        world.store.lease([world.partition(0)], topic_ids=ids(world, "second"))
