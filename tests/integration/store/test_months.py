"""Partitions by month on PostgreSQL: made while somebody reads, moved on to, and out of the way of all else."""

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.store import make_months, schema_state
from streamer.store.db.migrate import MONTH
from tests.integration.store.conftest import World

OCTOBER, DECEMBER = datetime(2026, 10, 31, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)


def of(world: World, table: str) -> list[tuple[str, int]]:
    """In which partition how many rows are."""
    return [
        (name, count)
        for name, count in world.rows(
            f"SELECT CAST(CAST(tableoid AS regclass) AS text), count(*) FROM {table} GROUP BY 1 ORDER BY 1"
        )
    ]


def test_batches_go_to_their_month_and_the_record_verifies(postgres_world: World) -> None:
    world = postgres_world
    lease = world.lease()
    world.commit(world.slice(lease, world.decision(0, "before")))
    assert make_months(world.url, now=OCTOBER, ahead=2) == [
        f"{table}_{month}"
        for month in ("2026_10", "2026_11", "2026_12")
        for table in ("responses", "decisions")
    ]
    world.commit(world.slice(lease, world.decision(1, "october"), expected=1))
    assert make_months(world.url, now=OCTOBER, ahead=2) == []
    world.commit(world.slice(lease, world.decision(2, "october too"), expected=2))
    assert make_months(world.url, now=DECEMBER, ahead=0) == []
    world.commit(world.slice(lease, world.decision(3, "december"), expected=3))
    # A batch of an earlier month is a repeat in this one.
    world.commit(world.slice(lease, world.decision(4, "october"), expected=4))
    assert make_months(world.url, now=OCTOBER, ahead=0) == []  # a clock that goes back moves nothing back
    world.commit(world.slice(lease, world.decision(5, "december too"), expected=5))

    expected = [("decisions_2026_10", 2), ("decisions_2026_12", 2), ("decisions_before", 1)]
    assert of(world, "decisions") == expected
    assert [name for name, _ in of(world, "responses")] == [
        name.replace("decisions", "responses") for name, _ in expected
    ]
    wanted = [*["decision"] * 4, "duplicate", "decision"]
    assert [kind for (kind,) in world.rows('SELECT kind FROM outcomes ORDER BY "offset"')] == wanted
    numbers = [number for (number,) in world.rows("SELECT batch FROM decisions ORDER BY batch")]
    october, december = (2026 * 12 + 9) * MONTH, (2026 * 12 + 11) * MONTH
    assert numbers[1:] == [october, october + 1, december, numbers[-1]]
    assert december < numbers[-1] < 2**53
    assert world.store.evidence.log_faults() == []
    assert schema_state(world.url).drift == ()


def test_months_are_made_beside_readers_and_keep_the_guards(postgres_world: World) -> None:
    world = postgres_world
    lease = world.lease()
    with world.store._database.reading() as reader:
        for table in ("decisions", "responses", "batches", "outcomes", "calibration_inputs"):
            reader.execute(sa.text(f"SELECT count(*) FROM {table}"))
        assert len(make_months(world.url, now=OCTOBER, ahead=0)) == 2
        world.commit(world.slice(lease, world.decision(0, "october")))
    for change in ("UPDATE decisions_2026_10 SET reason = 'x'", "UPDATE responses_2026_10 SET score = 0"):
        with pytest.raises(Exception, match="append-only"), world.store._database.engine.begin() as one:
            one.execute(sa.text(change))


def test_a_month_moves_to_another_disk_and_still_verifies(postgres_world: World) -> None:
    world = postgres_world
    make_months(world.url, now=OCTOBER, ahead=0)
    world.keep(world.decision(0, "october"))
    engine = sa.create_engine(world.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as one:
        one.execute(sa.text("SET allow_in_place_tablespaces = on"))
        one.execute(sa.text("CREATE TABLESPACE slow LOCATION ''"))
        for table in ("decisions_2026_10", "responses_2026_10"):
            one.execute(sa.text(f"ALTER TABLE streamer.{table} SET TABLESPACE slow"))
    engine.dispose()
    assert world.store.evidence.log_faults() == []


def test_sqlite_has_no_months(tmp_path: object) -> None:
    with pytest.raises(UsageError, match="only PostgreSQL"):
        make_months(f"sqlite:///{tmp_path}/x.db", now=OCTOBER, ahead=0)
