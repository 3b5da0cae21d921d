"""What a decision costs the database: tables with their indexes, and write-ahead log, from its event to its published action."""

import psycopg
from psycopg.sql import SQL, Identifier
from sqlalchemy.engine import make_url

from tests.faults.site import Site, publish, wait_until

WARM, MEASURED = 500, 3000
TABLE_BYTES, LOG_BYTES = 3600, 4500

SIZES = """
SELECT relname, pg_total_relation_size(oid), pg_relation_size(oid) FROM pg_class
WHERE relnamespace = 'streamer'::regnamespace AND relkind = 'r'
"""
# PostgreSQL extends a table by up to 64 pages at a time. Those that are still empty belong to the decisions to come.
PAGES = "SELECT count(DISTINCT (ctid::text::point)[0]) * current_setting('block_size')::int FROM streamer.{}"
QUEUE = "pending_messages"  # its rows are gone by then, and their pages count


def sizes(connection: psycopg.Connection) -> dict[str, tuple[int, int]]:
    """Bytes of each table with its indexes, and of its heap alone."""
    found = {}
    for name, total, heap in connection.execute(SIZES).fetchall():
        used = heap
        if name != QUEUE:
            (used,) = connection.execute(SQL(PAGES).format(Identifier(name))).fetchone() or (heap,)
        found[name] = (total - heap + used, used)
    return found


def test_what_a_decision_of_four_short_answers_takes(site: Site) -> None:
    """Nothing is vacuumed in between: what the queue of messages leaves behind counts."""
    server = make_url(site.settings.database.url).set(drivername="postgresql").render_as_string(False)
    first = site.start_worker()
    publish(site, 0, WARM)
    wait_until(lambda: site.decided() == WARM and not site.store.reports.outbox_pending(), "warm")
    # A commit costs a few hundred bytes beside its decisions. What waits is decided in groups that do not hang on how fast this
    # machine publishes.
    assert first.terminate() == 0
    publish(site, WARM, MEASURED)
    with psycopg.connect(server, autocommit=True) as connection:
        # A page's first change after a checkpoint is logged as the whole page: that is a cost of checkpoints,
        # so one is made here, and none later (the server makes one in five minutes or a gigabyte).
        connection.execute("CHECKPOINT")
        before = sizes(connection)
        start = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
        site.start_worker()
        total = WARM + MEASURED
        wait_until(lambda: site.decided() == total and not site.store.reports.outbox_pending(), "published")
        row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)", start).fetchone()
        after = sizes(connection)
    logged = float(row[0]) / MEASURED
    grown = {name: (after[name][0] - before[name][0]) / MEASURED for name in after}
    heaps = {name: (after[name][1] - before[name][1]) / MEASURED for name in after}
    for name in sorted(grown, key=grown.__getitem__, reverse=True)[:8]:
        print(f"{name:20} {grown[name]:8.0f} heap {heaps[name]:8.0f}")
    print(f"tables {sum(grown.values()):.0f}, log {logged:.0f} bytes a decision")
    assert sum(grown.values()) <= TABLE_BYTES
    assert logged <= LOG_BYTES
