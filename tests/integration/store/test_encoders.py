"""A decision's short encoder name leads to the whole truth."""

from streamer.scoring.encoders.identity import EncoderIdentity
from tests.integration.store.conftest import World

IDENTITY = EncoderIdentity("all-MiniLM-L6-v2", "package-0.1.0", "53aa5117" + "0" * 56, 384)


def test_an_encoder_is_remembered_once(world: World) -> None:
    world.store.encoders.register(IDENTITY)
    world.store.encoders.register(IDENTITY)
    assert world.store.encoders.get(IDENTITY.id) == [IDENTITY]
    assert world.store.encoders.get("unheard-of@00000000") == []


def test_the_same_short_name_with_other_weights_is_another_row(world: World) -> None:
    twin = EncoderIdentity(IDENTITY.name, IDENTITY.revision, "53aa5117" + "1" * 56, 384)
    world.store.encoders.register(IDENTITY)
    world.store.encoders.register(twin)
    assert set(world.store.encoders.get(IDENTITY.id)) == {IDENTITY, twin}
