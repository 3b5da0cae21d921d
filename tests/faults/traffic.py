"""Publishers under load: batches, repeats, contradictions, labels and rubbish, until told to stop."""

from __future__ import annotations

import json
import random
import threading
import time
from types import TracebackType
from typing import Any

from confluent_kafka import Producer

from streamer import wiring
from tests.faults.site import GATE, Site, event
from tests.made import a_label

RUBBISH = (
    None,
    b"",
    b"\xff\xfe",
    b"{",
    b"[" * 5000,
    b'{"schema":"streamer.responses.v1","gate":"nobody","batch_id":"x","prompt":"p","responses":[]}',
    json.dumps({"schema": "streamer.responses.v1", "gate": "a\u0000b", "batch_id": "\u202e"}).encode(),
    # What some platforms write for "no date"; it has no moment in UTC.
    event(0, created_at="0001-01-01T00:00:00+01:00"),
    event(0, created_at="9999-12-31T23:59:59-05:00"),
)


class Traffic:
    """A thread that publishes about `rate` records a second; also a context manager.

    Of a hundred records about eighty are new batches, and the others repeat one in another partition at the
    same time, contradict one in another partition, label one, or are rubbish. Batches have one of 64 keys, which
    choose their partition.

    Attributes
    ----------
    batches : ids of the batches that the broker has at least one record of.
    accepted : records that the broker has acknowledged, by topic; `huge` counts its own in `huge_ones`.
    """

    def __init__(self, site: Site, *, seed: int, rate: float = 250, first: int = 0) -> None:
        named = wiring.topics(site.settings)
        self._responses, self._labels = named.responses, named.labels
        self._partitions = site.settings.kafka.partitions
        self._rng = random.Random(seed)
        self._rate = rate
        self._next = first
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self.batches: set[str] = set()
        self.accepted = {self._responses: 0, self._labels: 0}
        self.huge_ones = 0
        self._servers = site.settings.bootstrap_servers
        # It waits for a broker that is unavailable for as long as it takes, and never publishes twice by itself.
        self._producer = Producer(
            {
                "bootstrap.servers": self._servers, "enable.idempotence": True,
                "message.timeout.ms": 300_000, "linger.ms": 5, "log_level": 0,
            }
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, name="test-traffic", daemon=True)

    def _send(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        batch: str | None = None,
        key: bytes | None = None,
    ) -> None:
        def told(error: Any, _message: Any) -> None:
            if error is not None:
                self._error = RuntimeError(str(error))
                return
            self.accepted[topic] += 1
            if batch is not None:
                self.batches.add(batch)

        while True:
            try:
                self._producer.produce(topic, value, key=key, partition=partition, on_delivery=told)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _one(self) -> None:
        rng, number = self._rng, self._next
        self._next += 1
        batch = f"batch-{number}"
        number_of_key = rng.randrange(64)
        here = number_of_key % self._partitions
        there = (here + rng.randrange(1, self._partitions)) % self._partitions
        kind = rng.random()
        self._send(self._responses, here, event(number), batch, key=b"key-%d" % number_of_key)
        if kind < 0.07:
            self._send(self._responses, there, event(number), batch)
        elif kind < 0.12:
            self._send(self._responses, there, event(number, prompt="another question"), batch)
        elif kind < 0.20:
            self._send(self._labels, there, self._label(rng.randrange(number + 1), rng))
        elif kind < 0.23:
            self._send(rng.choice((self._responses, self._labels)), there, rng.choice(RUBBISH))

    @staticmethod
    def _label(number: int, rng: random.Random) -> bytes:
        gate, response = GATE if rng.random() < 0.95 else "nobody", f"r{rng.randrange(4)}"
        return json.dumps(a_label(gate, f"batch-{number}", response, rng.choice((0, 0, 0, 1)))).encode()

    def _run(self) -> None:
        began, sent = time.monotonic(), 0
        while not self._stopping.is_set():
            due = (time.monotonic() - began) * self._rate
            while sent < due and not self._stopping.is_set():
                self._one()
                sent += 1
            self._producer.poll(0.02)
            self._stopping.wait(0.02)

    def huge(self, size: int, compression: str) -> None:
        """Publish one record that is small on the wire and has `size` bytes once it is unpacked."""
        refused: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": self._servers, "compression.type": compression,
                "message.max.bytes": size + 2**20, "message.timeout.ms": 300_000, "log_level": 0,
            }
        )  # fmt: skip
        producer.produce(
            self._responses,
            bytes(size),
            partition=self._rng.randrange(self._partitions),
            on_delivery=lambda error, _message: refused.append(error),
        )
        producer.flush(120)
        assert refused == [None], refused
        self.huge_ones += 1

    def stop(self) -> None:
        """Publish no more, and wait until the broker has everything."""
        self._stopping.set()
        self._thread.join(240)
        left = self._producer.flush(120)
        assert not left, f"{left} records never reached the broker"
        if self._error is not None:
            raise self._error

    @property
    def total(self) -> int:
        """Records that the broker has."""
        return sum(self.accepted.values()) + self.huge_ones

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(240)
        if kind is None:
            self.stop()
