"""How far four things walk through the code: calls of `streamer`, files that they touch, moves from module to module.

    python -m tests.walks

On SQLite, in a temporary folder, by the program's own parts, each after one of its kind that is not counted (what is made
once is made by then): a response from its record to its outbox row, a label from its record to its revision, a
recalibration of 60 labelled prompts, and a threshold to the worker that reads it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import streamer
from streamer import wiring
from streamer.deciding.policy_book import PolicyBook
from streamer.gates.settings import GateSettings
from streamer.journal import DeadLetter, Partition, Record, Slice
from streamer.settings.settings import Settings, load_settings
from streamer.store import Store
from tests.made import a_decider, a_label, an_event

HOME = str(Path(streamer.__file__).parent) + "/"
PROMPTS = 60


class Walk:
    """Counts while it is entered, in all threads that begin meanwhile."""

    def __init__(self) -> None:
        self.calls = 0
        self.files: set[str] = set()
        self.moves = 0
        self._at: dict[int, str] = {}

    def __enter__(self) -> Walk:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(HOME):
            return
        self.calls += 1
        self.files.add(path)
        module, thread = path[len(HOME) :].split("/")[0], threading.get_ident()
        if self._at.setdefault(thread, module) != module:
            self._at[thread] = module
            self.moves += 1


class Site:
    """A worker's decider and store, and their partitions."""

    def __init__(self, settings: Settings, store: Store) -> None:
        topics = wiring.topics(settings)
        self.store = store
        self.book = PolicyBook(store.policies.active, limits=wiring.limits(settings))
        self.responses = Partition("log", topics.responses, 0)
        self.labels = Partition("log", topics.labels, 0)
        self._leases = store.lease([self.responses, self.labels])
        self._offsets = {place: lease.next_offset for place, lease in self._leases.items()}
        usual = {"topics": topics, "limits": wiring.limits(settings), "clock": wiring.now}
        self._decider = a_decider(self.book, store.known, **usual)

    def take(self, place: Partition, value: dict[str, Any]) -> None:
        """Take one record to its end."""
        first = self._offsets[place]
        record = Record(place, first, b"key", json.dumps(value).encode(), (), 1_700_000_000_000)
        outcomes = tuple(self._decider.outcomes([record]))
        if any(isinstance(one, DeadLetter) for one in outcomes):
            raise ValueError(f"refused: {outcomes}")
        self.store.commit([Slice(self._leases[place], first, first + 1, outcomes)], now=wiring.now())
        self._offsets[place] += 1


def response(number: int) -> dict[str, Any]:
    answers = [
        {"id": f"r{place}", "text": f"Answer {place}.", "score": (number * 7 + place * 3) % 100 / 100}
        for place in range(4)
    ]
    return an_event("walked", f"batch-{number}", prompt=f"Question {number}?", responses=answers)


def label(number: int, answer: str) -> dict[str, Any]:
    severity, at = float(number % 5 == 0), wiring.now().isoformat()
    return a_label("walked", f"batch-{number}", answer, severity, labeller="walk", labelled_at=at)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(database={"url": f"sqlite:///{folder}/walks.sqlite3"})
        wiring.migrate(settings)
        with wiring.open_store(settings) as store:
            gate = GateSettings(scorer="external", encoder="none", audit_probability=1.0)
            store.gates.create("walked", gate, by="walk", reason="")
            site = Site(settings, store)
            site.book.refresh()
            walks = measure(site, settings)
    print(f"{'':40}{'calls':>8}{'files':>8}{'moves':>8}")
    for name, walk in walks.items():
        print(f"{name:40}{walk.calls:8}{len(walk.files):8}{walk.moves:8}")
    return 0


def measure(site: Site, settings: Settings) -> dict[str, Walk]:
    walks: dict[str, Walk] = {}

    def counted(name: str, step: Callable[[], object]) -> None:
        with Walk() as walk:
            step()
        walks[name] = walk

    for number in range(PROMPTS - 1):
        site.take(site.responses, response(number))
    counted("a response to its outbox row", lambda: site.take(site.responses, response(PROMPTS - 1)))
    best = {
        number: max(response(number)["responses"], key=lambda one: one["score"])["id"]
        for number in range(PROMPTS)
    }
    for number in range(PROMPTS - 1):
        site.take(site.labels, label(number, best[number]))
    counted("a label", lambda: site.take(site.labels, label(PROMPTS - 1, best[PROMPTS - 1])))
    wiring.recalibrate(settings, "walked", by="walk")
    counted(
        f"a recalibration of {PROMPTS} prompts", lambda: wiring.recalibrate(settings, "walked", by="walk")
    )
    counted("a threshold to a worker", site.book.refresh)
    return walks


if __name__ == "__main__":
    sys.exit(main())
