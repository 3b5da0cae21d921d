"""People who label what the queue asks for, late and out of order, and some of it never."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

import numpy as np

from streamer import wiring
from streamer.settings.settings import Settings
from tests.made import a_label


class Labellers:
    """A thread that publishes severities on the labels topic; also a context manager.

    Every response of the queue gets a time at which its label is given, exponentially distributed after it was first
    seen, so that later ones are often labelled first.

    Parameters
    ----------
    truth : severities by batch and response; more may be added while it runs.
    mean_seconds : until a label.
    never : share of the responses that nobody labels, in [0, 1].

    Attributes
    ----------
    given : labels published.
    overtaken : those of them whose decision is older than one labelled before.
    """

    def __init__(
        self,
        settings: Settings,
        gate: str,
        truth: Mapping[tuple[str, str], float],
        *,
        seed: int,
        mean_seconds: float,
        never: float,
    ) -> None:
        self._settings = settings
        self._gate = gate
        self._truth = truth
        self._rng = np.random.default_rng(seed)
        self._mean_seconds = mean_seconds
        self._never = never
        self._due: dict[tuple[str, str], float] = {}
        self._stopping = threading.Event()
        self._resting = threading.Event()
        self._error: BaseException | None = None
        self._newest = 0.0
        self.given = 0
        self.overtaken = 0
        self._thread = threading.Thread(target=self._run, name="test-labellers", daemon=True)

    def _run(self) -> None:
        try:
            with wiring.open_store(self._settings) as store, wiring.publisher(self._settings) as publisher:
                topic = wiring.topics(self._settings).labels
                while not self._stopping.wait(0.2):
                    if self._resting.is_set():
                        continue
                    now = time.monotonic()
                    due = []
                    for item in store.labels.queue(self._gate, limit=5000):
                        response = (item.key.batch_id, item.response_id)
                        if response not in self._due:
                            never = self._rng.random() < self._never
                            wait = np.inf if never else self._rng.exponential(self._mean_seconds)
                            self._due[response] = now + wait
                        elif self._due[response] <= now:
                            self._due[response] = np.inf
                            due.append(item)
                    for position in self._rng.permutation(len(due)):
                        item = due[position]
                        decided = item.decided_at.timestamp()
                        self.overtaken += decided < self._newest
                        self._newest = max(self._newest, decided)
                        self.given += 1
                        publisher.send(
                            topic,
                            json.dumps(
                                a_label(
                                    self._gate, item.key.batch_id, item.response_id,
                                    self._truth[item.key.batch_id, item.response_id],
                                    attempt=item.key.attempt, kind=item.kind,
                                    labelled_at=wiring.now().isoformat(),
                                )
                            ).encode(),
                        )  # fmt: skip
        except BaseException as error:
            self._error = error

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Nobody labels meanwhile."""
        self._resting.set()
        try:
            yield
        finally:
            self._resting.clear()

    def check(self) -> None:
        """Raise what ended the thread, if anything did."""
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Labellers:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(240)
        if kind is None:
            self.check()
