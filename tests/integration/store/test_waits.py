"""How often a commit waits for PostgreSQL: on a busy machine each wait costs every event of the group."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from streamer.store.db.bulk_insert import Statement, execute_all
from tests.faults.site import wait_until
from tests.integration.store.conftest import World

WAITS = 5
"""To begin; to lock and draw ids; for new batches; to write and pass the fence; to commit."""


@pytest.fixture
def waits(postgres_world: World, tmp_path: Path) -> Callable[[Callable[[], object]], int]:
    """Counts how often the server says that it is ready for more while something is done."""

    def count(work: Callable[[], object]) -> int:
        with (tmp_path / "protocol").open("w+b") as protocol:

            def trace(connection: Any, *_: object) -> None:
                connection.pgconn.trace(protocol.fileno())

            engine = postgres_world.store._database.engine
            sa.event.listen(engine, "checkout", trace)
            try:
                work()
            finally:
                sa.event.remove(engine, "checkout", trace)
            with engine.connect() as connection:
                connection.connection.dbapi_connection.pgconn.untrace()  # type: ignore[union-attr]
            protocol.seek(0)
            said = protocol.read()
        # Whatever ends with a flush is not ended by the server however long it sits idle.
        assert b"Flush" not in said
        return said.count(b"ReadyForQuery")

    return count


@pytest.mark.parametrize(("partitions", "each"), [(1, 1), (1, 30), (4, 30)])
def test_a_commit_waits_as_often_however_much_it_writes(
    postgres_world: World, waits: Callable[[Callable[[], object]], int], partitions: int, each: int
):
    world = postgres_world
    leases = [world.lease(number) for number in range(partitions)]
    for turn in range(8):  # statements are prepared after a few
        slices = [
            world.slice(
                lease,
                *(world.decision(turn * each + at, number=number) for at in range(each)),
                expected=turn * each,
            )
            for number, lease in enumerate(leases)
        ]
        waited = waits(lambda: world.commit(*slices))  # noqa: B023 - called at once
    assert waited == WAITS
    assert world.store.evidence.log_faults() == []


def test_a_process_that_is_stopped_between_two_statements_leaves_a_session_that_the_server_ends(
    postgres_world: World,
):
    """PostgreSQL ends a transaction that sits idle, and none in whose middle it waits for the rest of a pipeline."""
    engine = postgres_world.store._database.engine

    class Slow(list[int]):
        def __len__(self) -> int:
            query = sa.text("SELECT state FROM pg_stat_activity WHERE pid = :pid")
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as other:
                wait_until(lambda: other.scalar(query, {"pid": pid}) == "idle in transaction", "it is idle")
            return super().__len__()

    with engine.begin() as connection:
        pid = connection.scalar(sa.text("SELECT pg_backend_pid()"))
        found = execute_all(
            connection, [Statement("SELECT 1"), Statement("SELECT $1::int", Slow([2])), Statement("SELECT 3")]
        )
    assert found == [[(1,)], [(2,)], [(3,)]]


def test_a_reader_waits_for_nothing_but_its_question(
    postgres_world: World, waits: Callable[[Callable[[], object]], int]
):
    keys = [postgres_world.decision(0).key]
    assert waits(lambda: postgres_world.store.known(keys)) == 3  # to begin, to ask, to end


def test_values_that_no_socket_takes_at_once_are_sent_before_anything_is_waited_for(postgres_world: World):
    """The last of a pipeline's statements was still on its way when its result was waited for: for ever."""
    text = "x" * 8_000_000
    asked = [Statement("SELECT length($1::text)", [text]) for _ in range(3)]
    with postgres_world.store._database.reading() as connection:
        assert execute_all(connection, asked) == [[(len(text),)]] * 3
