"""Progress belongs to one topic: under the same name, another id is another topic."""

import pytest

from streamer.errors import TopicRecreated
from tests.integration.store.conftest import World


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
