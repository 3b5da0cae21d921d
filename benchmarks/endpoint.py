"""How long a request to `streamer serve` takes, beside the encoder's own time for its texts.

    python benchmarks/endpoint.py [--requests N] [--clients C] [--database URL] [--short] [--json]

One service of the whole program in a process of its own, with `--no-kafka`, over SQLite in a new folder (or `--database`: an empty
one). Each batch is new: ten short texts, or ten embeddings of 384 numbers in base64, which need no encoder. First one client asks
one request after the other; then `--clients` ask as fast as they are answered, which gives the capacity; then requests come at
half of that, at random moments, and wait for nobody. A latency counts from the moment at which a request was due. Beside it, in
this process and with nothing around it, the encoder: in turns with the lone requests its call for ten texts as new (ratios are
over its median), and in turns with the half load, at the same moments, a thread that encodes whatever waits in one call.
"""

import base64
import http.client
import json
import os
import queue
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from shared import parser_of

from streamer import wiring
from streamer.gates.settings import GateSettings
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.settings.settings import load_settings

WORDS = [
    "parcel",
    "depot",
    "left",
    "today",
    "arrives",
    "tomorrow",
    "courier",
    "street",
    "number",
    "delayed",
    "signed",
    "neighbour",
    "refund",
    "order",
    "late",
]
ANSWERS, DIMENSION = 10, 384
TURNS = 5


class Batches:
    """Batches that nobody has seen before."""

    def __init__(self, kind: str, seed: int) -> None:
        self._kind, self._random, self._numbers = kind, random.Random(seed), np.random.default_rng(seed)
        self._count = 0
        self._lock = threading.Lock()

    def texts(self) -> list[str]:
        return [
            " ".join(self._random.choices(WORDS, k=8)) + f" {self._random.random()}" for _ in range(ANSWERS)
        ]

    def body(self) -> bytes:
        with self._lock:
            self._count += 1
            event: dict[str, Any] = {
                "batch_id": f"{self._kind}-{self._count}",
                "prompt": "Where is my parcel?",
            }
            event["responses"] = [{"id": str(i), "text": text} for i, text in enumerate(self.texts())]
            if self._kind == "embeddings":
                event["embedding_encoder"] = "made-up"
                rows = self._numbers.normal(size=(ANSWERS, DIMENSION)).astype("<f4")
                for one, row in zip(event["responses"], rows, strict=True):
                    one["embedding"] = base64.b64encode(row.tobytes()).decode()
            return json.dumps(event).encode()


class Session(threading.local):
    """A connection for each thread."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc)

    def forget(self) -> None:
        """The server may have closed a connection that was idle: begin with a new one."""
        self._connection.close()

    def ask(self, gate: str, body: bytes) -> None:
        self._connection.request(
            "POST", f"/v1/gates/{gate}/decisions", body, {"content-type": "application/json"}
        )
        answer = self._connection.getresponse()
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {answer.read().decode()}")
        answer.read()


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


@contextmanager
def service(url: str, folder: Path) -> Iterator[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAMER_")}
    environment |= {
        "STREAMER_DATABASE_URL": url,
        "STREAMER_HTTP_PORT": "0",
        "STREAMER_LOGGING_FORMAT": "json",
    }
    with (
        (folder / "serve.log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", "streamer", "serve", "--no-kafka", "--port", "0", "--json"],
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["endpoint"]
        finally:
            process.terminate()
            process.wait()


def at_half_load(
    ask: Callable[[], object], capacity: float, requests: int, clients: int, seed: int
) -> list[float]:
    """Latencies of requests that come at random at half of what the service can do."""
    took: list[float] = []

    def late(due: float) -> None:
        ask()
        took.append(time.perf_counter() - due)

    with ThreadPoolExecutor(4 * clients) as pool:
        for due in moments(capacity / 2, requests, seed):
            pool.submit(late, due)
    return took


def moments(rate: float, requests: int, seed: int) -> Iterator[float]:
    """Random moments, each when it comes."""
    gaps = random.Random(seed)
    due = time.perf_counter()
    for _ in range(requests):
        due += gaps.expovariate(rate)
        time.sleep(max(0.0, due - time.perf_counter()))
        yield due


def encoder_at_half_load(
    encoder: CachedEncoder, texts: Callable[[], list[str]], capacity: float, requests: int, seed: int
) -> list[float]:
    """Latencies of the encoder by itself at the same moments: one thread that encodes whatever waits."""
    waiting: queue.SimpleQueue[tuple[float, list[str]] | None] = queue.SimpleQueue()
    took: list[float] = []

    def encode() -> None:
        going = True
        while going:
            some = [waiting.get()]
            while not waiting.empty():
                some.append(waiting.get())
            going = some[-1] is not None
            group = [one for one in some if one is not None]
            if group:
                encoder.embed([batch for _, batch in group])
            took.extend(time.perf_counter() - due for due, _ in group)

    thread = threading.Thread(target=encode)
    thread.start()
    for due in moments(capacity / 2, requests, seed):
        waiting.put((due, texts()))
    waiting.put(None)
    thread.join()
    return took


def figures(seconds: list[float], encoder: float) -> dict[str, float]:
    p50, p99 = (float(np.quantile(seconds, q)) for q in (0.5, 0.99))
    return {
        "p50_ms": round(p50 * 1e3, 1),
        "p99_ms": round(p99 * 1e3, 1),
        "p50_ratio": round(p50 / encoder, 2),
        "p99_ratio": round(p99 / encoder, 2),
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--requests", type=int, default=600, help="of each kind, in each part")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--database")
    parser.add_argument("--short", action="store_true", help="a quarter of the requests")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    requests = chosen.requests // 4 if chosen.short else chosen.requests
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = chosen.database or f"sqlite:///{folder}/record.db"
        settings = load_settings(database={"url": url})
        wiring.migrate(settings)
        encoder = wiring.encoder(settings)
        assert encoder is not None
        with wiring.open_store(settings) as store:
            store.encoders.register(encoder.identity)
            for gate, chosen_settings in (
                ("texts", {"encoder": encoder.identity.id}),
                (
                    "embeddings",
                    {"encoder": "external:made-up", "embeddings": "accept", "dimension": DIMENSION},
                ),
            ):
                store.gates.create(gate, GateSettings(**chosen_settings), by="benchmark", reason="benchmark")
        found: dict[str, Any] = {}
        with service(url, folder) as address:
            session = Session(address)
            alone: list[float] = []
            anchor: list[float] = []
            for gate in ("texts", "embeddings"):
                batches = Batches(gate, seed=len(gate))

                def ask(gate: str = gate, batches: Batches = batches) -> None:
                    session.ask(gate, batches.body())

                session.forget()
                for _ in range(20):
                    ask()
                    encoder.embed([batches.texts()])
                lone = []
                for _ in range(requests):
                    body = batches.body()
                    lone.append(timed(partial(session.ask, gate, body)))
                    if gate == "texts":
                        texts = batches.texts()
                        alone.append(timed(partial(encoder.embed, [texts])))
                began = time.perf_counter()
                with ThreadPoolExecutor(chosen.clients) as pool:
                    list(pool.map(lambda _: ask(), range(requests)))
                capacity = requests / (time.perf_counter() - began)
                own = statistics.median(alone)
                half: list[float] = []
                for turn in range(TURNS):
                    half += at_half_load(ask, capacity, requests // TURNS, chosen.clients, turn)
                    if gate == "texts":
                        anchor += encoder_at_half_load(
                            encoder, batches.texts, capacity, requests // TURNS, turn
                        )
                found[gate] = {
                    "alone": figures(lone, own),
                    "half_load": figures(half, own),
                    "capacity_per_second": round(capacity, 1),
                }
            found["encoder"] = {"alone": figures(alone, own), "half_load": figures(anchor, own)}
    if chosen.json:
        print(json.dumps(found))
        return
    print(f"{'':24}{'p50 ms':>9}{'p99 ms':>9}{'p50 / encoder':>15}{'p99 / encoder':>15}")
    for gate in ("encoder", "texts", "embeddings"):
        for part in ("alone", "half_load"):
            row = found[gate][part]
            print(
                f"{gate + ', ' + part.replace('_', ' '):24}{row['p50_ms']:9}{row['p99_ms']:9}{row['p50_ratio']:15}{row['p99_ratio']:15}"
            )
    for gate in ("texts", "embeddings"):
        print(f"{gate}: {found[gate]['capacity_per_second']} requests a second by {chosen.clients} clients")


if __name__ == "__main__":
    main()
