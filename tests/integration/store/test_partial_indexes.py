"""SQLite reads by an index where a query says the condition as it does; PostgreSQL takes a list for one."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from streamer.gates.batch_key import BatchKey
from streamer.gates.settings import GateSettings
from streamer.recalibration.run import SampleQuery
from streamer.store.calibration.audit_sample import readable
from streamer.store.db.bulk_insert import look_up, look_up_rows
from streamer.store.db.schema import batches, decisions
from streamer.store.log.commit import known_content
from streamer.store.risk.audit_rates import extra_labels

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def sample(connection: sa.Connection) -> None:
    conditions = readable(SampleQuery("g", GateSettings(encoder="e@1"), NOW))
    query = sa.select(decisions.c.batch).join_from(decisions, batches, batches.c.id == decisions.c.batch)
    connection.execute(query.where(*conditions))


def known(connection: sa.Connection) -> None:
    known_content(connection, [BatchKey("g", f"batch-{number}", 1) for number in range(30)])


@pytest.mark.parametrize(
    ("ask", "index"),
    [
        (lambda connection: extra_labels(connection, "g", NOW), "ix_decisions_extra_draw"),
        (sample, "ix_decisions_sampled"),
        (known, "sqlite_autoindex_batches_1"),
    ],
)
def test_rows_are_found_by_their_index(
    migrated_sqlite_file: Path, ask: Callable[[sa.Connection], object], index: str
) -> None:
    engine = sa.create_engine(f"sqlite:///{migrated_sqlite_file}")
    asked: list[tuple[str, Any]] = []

    @sa.event.listens_for(engine, "before_cursor_execute")
    def _note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    with engine.connect() as connection:
        ask(connection)
        statement, parameters = asked[-1]
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
    engine.dispose()
    steps = [row[-1] for row in plan]
    assert any(index in step for step in steps), steps
    assert not any(step.startswith("SCAN") for step in steps if not step.startswith("SCAN wanted ")), steps


def test_a_key_with_a_zero_in_it_is_not_taken_for_what_precedes_the_zero(migrated_sqlite_file: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{migrated_sqlite_file}")
    with engine.connect() as connection:
        columns = [sa.literal_column("'a'", sa.Text), sa.literal_column("1", sa.Integer)]
        query = sa.select(columns[0].label("text"))
        assert len(list(look_up(connection, query, columns, [("a", 1), ("b", 1), ("a", 1)]))) == 1
        assert not list(look_up(connection, query, columns, [("a\x00b", 1), ("b", 1)]))
    engine.dispose()


@pytest.mark.postgres
@pytest.mark.parametrize("lasting", [False, True])
def test_postgresql_reads_a_list_of_keys_once(postgres_database_url: str, lasting: bool) -> None:
    engine = sa.create_engine(postgres_database_url)

    @sa.event.listens_for(engine, "before_cursor_execute", retval=True)
    def _explain(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> Any:
        return f"EXPLAIN {statement}", parameters

    number = sa.table("pg_sequence", sa.column("seqstart", sa.BigInteger)).c.seqstart
    with engine.connect() as connection:
        plan = look_up_rows(connection, sa.select(number), [number], [(1,), (2,)], lasting=lasting)
    engine.dispose()
    assert any("'{1,2}'::bigint[]" in line for (line,) in plan), plan  # a constant
