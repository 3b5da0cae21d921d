"""API keys as values: tokens, what they allow, the ring of a service, and rates."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.errors import Unavailable, UsageError
from streamer.security.api_keys import (
    MAY,
    MOST_SECONDS_OLD,
    TOKEN,
    ApiKey,
    KeyRing,
    Rate,
    RateLimits,
    allows,
    digest_of,
    new_token,
    read_rate,
)

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def made(**changes: Any) -> tuple[ApiKey, str]:
    identity, token = new_token()
    key = ApiKey(
        id=identity, digest=digest_of(token), gates=("a", "b"), may=("decide",), rate=None, note="", created_at=NOW,
        created_by="ana", expires_at=None,
    )  # fmt: skip
    return replace(key, **changes), token


def test_a_token_has_its_form_its_id_and_256_bits_of_its_own():
    tokens = [new_token() for _ in range(100)]
    assert len({token[-64:] for _, token in tokens}) == len({identity for identity, _ in tokens}) == 100
    for identity, token in tokens:
        assert TOKEN.fullmatch(token)[1] == identity
    seen = 0
    for _, token in tokens:
        seen |= int(token[-64:], 16)
    assert seen == 2**256 - 1  # no bit is always 0; the chance that one is by accident: 256 / 2^100


def test_a_key_does_not_show_its_digest():
    key, _ = made()
    assert "digest" not in repr(key)
    assert key.digest.hex() not in repr(key)


@pytest.mark.parametrize("gates", [None, ("a",), ("a", "b")])
@pytest.mark.parametrize("may", [("decide",), ("label", "read"), MAY])
@pytest.mark.parametrize("gate", ["a", "b", "A", ""])
def test_a_key_allows_what_it_names_and_nothing_else(gates: Any, may: Any, gate: str):
    key, _ = made(gates=gates, may=may)
    for one in MAY:
        assert allows(key, gate, one) == (one in may and (gates is None or gate in gates))


@pytest.mark.parametrize(
    ("text", "rate"), [("50/s", Rate(50, 1)), (" 100/m", Rate(100, 60)), ("1000/h", Rate(1000, 3600))]
)
def test_a_rate_is_read_and_written(text: str, rate: Rate):
    assert read_rate(text) == rate
    assert str(rate) == text.strip()


@pytest.mark.parametrize("text", ["", "50", "0/s", "-1/s", "1.5/s", "50/d", "50/ s", "/s", "99999999/s"])
def test_what_is_no_rate(text: str):
    with pytest.raises(UsageError, match="like 50/s"):
        read_rate(text)


class Watch:
    """A clock that a test moves."""

    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def test_a_ring_finds_keys_in_force_by_their_tokens():
    (good, token), (over, old), (revoked, lost) = (
        made(), made(expires_at=NOW), made(revoked_at=NOW - timedelta(days=1)),
    )  # fmt: skip
    ring = KeyRing(lambda: [good, over, revoked], monotonic=Watch())
    ring.refresh()
    assert ring.find(token, now=NOW) is good
    assert ring.find(old, now=NOW) is None
    assert ring.find(old, now=NOW - timedelta(seconds=1)) is over
    assert ring.find(lost, now=NOW) is None
    other = new_token()[1]
    for unknown in (
        other,
        token[:-1] + "0",
        token.upper(),
        f" {token}",
        token + "\n",
        "",
        "\ud800",
        "streamer_",
    ):
        if unknown != token:
            assert ring.find(unknown, now=NOW) is None


def test_a_revocation_takes_effect_within_the_stated_time_even_where_nothing_can_be_read():
    key, token = made()
    watch, held = Watch(), [key]

    def load() -> Iterable[ApiKey]:
        if not held:
            raise Unavailable("the database is away")
        return held

    ring = KeyRing(load, monotonic=watch)
    with pytest.raises(Unavailable):
        ring.find(token, now=NOW)  # never read
    ring.refresh()
    watch.seconds += MOST_SECONDS_OLD
    assert ring.find(token, now=NOW) is key
    held.clear()
    with pytest.raises(Unavailable, match="away"):
        ring.refresh()
    watch.seconds += 0.001
    with pytest.raises(Unavailable, match="10 s"):
        ring.find(token, now=NOW)
    held.append(replace(key, revoked_at=NOW))
    ring.refresh()
    assert ring.find(token, now=NOW) is None


def test_keys_are_as_old_as_when_their_reading_began():
    """A revocation that is written while the keys are read may be missed: it must not be missed for longer."""
    key, token = made()
    watch = Watch()

    def slowly() -> list[ApiKey]:
        watch.seconds += MOST_SECONDS_OLD + 1
        return [key]

    ring = KeyRing(slowly, monotonic=watch)
    ring.refresh()
    with pytest.raises(Unavailable):
        ring.find(token, now=NOW)


def test_a_key_without_a_rate_never_waits():
    key, _ = made()
    limits = RateLimits()
    assert [limits.wait(key, now=0.0) for _ in range(1000)] == [0.0] * 1000


def test_a_bucket_begins_full_and_says_how_long_to_wait():
    key, _ = made(rate=Rate(3, 60))
    other, _ = made(rate=Rate(3, 60))
    limits = RateLimits()
    assert [limits.wait(key, now=5.0) for _ in range(4)] == [0.0, 0.0, 0.0, 20.0]
    assert limits.wait(other, now=5.0) == 0.0  # a bucket for each key
    assert limits.wait(key, now=20.0) == pytest.approx(5.0)  # asking in vain counts nothing
    assert limits.wait(key, now=25.0) == 0.0
    assert limits.wait(key, now=-1000.0) > 0.0  # a clock that goes back refills nothing
    assert [limits.wait(key, now=1e6) for _ in range(4)] == [0.0, 0.0, 0.0, 20.0]  # full, and no fuller


@given(
    st.integers(1, 20), st.sampled_from([1, 60, 3600]), st.lists(st.floats(0, 5), min_size=1, max_size=200)
)
def test_no_span_of_time_lets_more_pass_than_the_rate_says(requests: int, seconds: int, steps: list[float]):
    key, _ = made(rate=Rate(requests, seconds))
    limits, now, passed = RateLimits(), 0.0, []
    for step in steps:
        now += step * seconds / requests
        wait = limits.wait(key, now=now)
        if wait == 0:
            passed.append(now)
        else:
            assert 0 < wait <= seconds / requests * (1 + 1e-9)
    for first, began in enumerate(passed):
        for last in range(first, len(passed)):
            most = requests * (1 + (passed[last] - began) / seconds)
            assert last - first + 1 <= most + 1e-6


@given(st.integers(1, 1000), st.sampled_from([1, 60, 3600]))
def test_whoever_waits_as_long_as_told_passes(requests: int, seconds: int):
    key, _ = made(rate=Rate(requests, seconds))
    limits, now = RateLimits(), 0.0
    while (wait := limits.wait(key, now=now)) == 0:
        pass
    assert limits.wait(key, now=now + wait * (1 + 1e-9)) == 0
