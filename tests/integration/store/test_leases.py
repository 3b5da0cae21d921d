"""Leases of processes: held by one, renewed while it lives, taken over when they expire, and checked by whatever is written."""

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from streamer.errors import LeaseLost, TryLater, Unavailable
from streamer.store.db.leases import LEADER, GateBusy, Leases
from streamer.store.db.schema import leases
from tests.at_once import at_once
from tests.faults.site import wait_until
from tests.integration.store.conftest import World

SHORT = 0.4
"""Seconds, where expiring is what a test waits for."""
LONG = 600.0
"""Where it is not."""


def leases_of(world: World, seconds: float) -> Leases:
    return Leases(world.open()._database, seconds=seconds)


def row(world: World, name: str = LEADER) -> Any:
    with world.store._database.reading() as connection:
        return connection.execute(sa.select(leases).where(leases.c.name == name)).one()


def stop_renewing(lease: Any) -> None:
    """As a process that is frozen, or whose network is gone."""
    lease._released.set()
    lease._keeper.join(240)


def expire(world: World) -> None:
    """As if nobody had renewed the leadership for so long."""
    with world.store._database.engine.begin() as connection:
        connection.execute(
            sa.update(leases).values(expires_at=row(world).expires_at - timedelta(seconds=LONG))
        )


def test_one_leads_and_the_next_takes_over(new_world: Callable[..., World]):
    world = new_world()
    first, second = (leases_of(world, LONG).leadership() for _ in range(2))
    assert (first.held(), second.held(), first.held()) == (True, False, True)
    assert second.holder == row(world).holder
    first.release()
    assert (second.held(), first.held()) == (True, False)
    assert row(world).epoch == 2
    second.release()


def test_what_is_renewed_does_not_expire_and_what_is_not_is_taken_over(
    new_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("streamer.store.db.leases._RENEWALS", 10 * LONG)
    world = new_world()
    first, second = (leases_of(world, LONG).leadership() for _ in range(2))
    assert first.held()
    for _ in range(3):
        before = row(world).expires_at
        wait_until(lambda: row(world).expires_at > before, "it is renewed")  # noqa: B023 - at once
        assert not second.held()
    assert not first.lapsed()
    stop_renewing(first)
    expire(world)
    assert second.held(), "another one takes over"
    assert not first.held()
    assert row(world).epoch == 2
    second.release()


def test_who_lost_its_lease_writes_nothing(new_world: Callable[..., World]):
    world = new_world()
    world.gate()
    store, other = world.open(), leases_of(world, LONG).leadership()
    lease = Leases(store._database, seconds=LONG).leadership()
    bound = store.under(lease)
    with pytest.raises(LeaseLost):
        bound.gates.revise("support-bot", {"alpha": 0.2}, by="ana", reason="never held")
    assert lease.held()
    bound.gates.revise("support-bot", {"alpha": 0.21}, by="ana", reason="held")
    expire(world)
    assert other.held(), "another one takes over"
    with pytest.raises(LeaseLost, match="Nothing was written"):
        bound.gates.revise("support-bot", {"alpha": 0.22}, by="ana", reason="lost")
    assert store.gates.get("support-bot").settings.alpha == 0.21
    assert issubclass(LeaseLost, Unavailable), "whoever waits for the database tries again"
    other.release()
    assert lease.held(), "and may, once the lease is free and taken again"
    bound.gates.revise("support-bot", {"alpha": 0.23}, by="ana", reason="held again")
    lease.release()


def test_a_takeover_waits_for_what_is_being_committed(migrated_postgres_url: str):
    world = World(migrated_postgres_url)
    database = world.store._database
    first, second = (leases_of(world, SHORT).leadership() for _ in range(2))
    taken = threading.Event()

    def take() -> None:
        wait_until(second.held, "another one takes over")
        taken.set()

    thread = threading.Thread(target=take)
    while not thread.ident:
        assert first.held()
        with (
            suppress(LeaseLost),
            database.engine.begin() as connection,
        ):  # again where the machine stood still
            first.check(connection)  # whoever renews it waits from here on, too
            wait_until(first.lapsed, "it expires")
            thread.start()
            assert not taken.wait(3 * SHORT), "it waits for the row"
    stop_renewing(first)
    assert taken.wait(240)
    thread.join()
    second.release()
    world.close()


def test_two_takers_at_one_moment_make_one_holder(new_world: Callable[..., World]):
    world = new_world()
    many = [leases_of(world, LONG).leadership() for _ in range(6)]
    assert sorted(at_once(lambda lease: lease.held(), *many)) == [False] * 5 + [True]
    for one in many:
        one.release()


def test_a_leader_whose_round_hangs_is_renewed_no_more(
    new_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, expected_errors: Any
):
    monkeypatch.setattr("streamer.store.db.leases.SIGN_OF_LIFE_SECONDS", 2 * SHORT)
    world = new_world()
    first, second = (leases_of(world, SHORT).leadership() for _ in range(2))
    assert first.held()
    wait_until(second.held, "another one takes over")
    assert "lease.holder_hangs" in str(expected_errors.lines)
    second.release()
    assert first.held(), "once it asks again"
    first.release()


def test_an_expiry_that_no_lease_can_have_is_one_of_a_wrong_clock(new_world: Callable[..., World]):
    world = new_world()
    first, second = (world.open().leases.leadership() for _ in range(2))
    assert first.held()
    stop_renewing(first)
    with world.store._database.engine.begin() as connection:
        connection.execute(sa.update(leases).values(expires_at=row(world).expires_at + timedelta(days=1)))
    assert second.held()
    second.release()


def test_a_gate_is_calibrated_by_one_at_a_time(new_world: Callable[..., World]):
    world = new_world()
    mine, others = leases_of(world, LONG), leases_of(world, LONG)
    with mine.of_gate("a", wait_seconds=0) as held:
        with pytest.raises(GateBusy, match=r"another calibration of gate 'a' is under way, by .* \(process"):
            others.of_gate("a", wait_seconds=0.2).__enter__()
        assert issubclass(GateBusy, TryLater)
        with others.of_gate("b", wait_seconds=0):
            pass
        done = threading.Event()

        def wait() -> None:
            with others.of_gate("a", wait_seconds=240):
                done.set()

        thread = threading.Thread(target=wait)
        thread.start()
        assert not done.wait(0.3)
        assert held.held()
    assert done.wait(240)
    thread.join()


def test_a_lease_is_given_back_when_its_block_fails(new_world: Callable[..., World]):
    world = new_world()
    with pytest.raises(ZeroDivisionError), world.store.leases.of_gate("a", wait_seconds=0):
        raise ZeroDivisionError
    with world.open().leases.of_gate("a", wait_seconds=0):
        pass


def test_a_dead_process_keeps_a_gate_until_its_lease_expires(new_world: Callable[..., World]):
    world = new_world()
    dead = leases_of(world, SHORT).of_gate("a", wait_seconds=0)
    stop_renewing(dead.__enter__())
    with leases_of(world, SHORT).of_gate("a", wait_seconds=240):
        assert row(world, "gate-a").epoch == 2
