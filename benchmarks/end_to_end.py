"""From the topic to the audited action: decisions a second of real workers, beside what bounds them, in the same run.

    python benchmarks/end_to_end.py [--kinds KIND ...] [--rounds 2] [--seconds 3] [--short]
        [--quota .3] [--beside CHECKOUT] [--json FILE] [--picture FILE.png]

Real Kafka and PostgreSQL (fsync on). Scores given, embeddings given as JSON lists or base64 (10 answers, 384 numbers each), and
texts: ten short ones or five of 60 words an event. Each arm has topics of its own. It is stopped while the events of a turn are
published, then goes on, and the turn ends when its last message is out; arms take turns on the same events. Processor time
is that of the arm's own processes, so neither Kafka's nor PostgreSQL's.

- worker, two workers: `streamer worker`, until the action is published, and so committed before.
- Faust, but for texts: an agent that reads each event and sends it.
- COPY, but for texts: aiokafka reads, decodes and sends; the rows that a worker wrote of such an event go to PostgreSQL by COPY, a
  transaction for each poll. It checks nothing and promises nothing.
- CTranslate2, sentence-transformers: the same texts with nothing around the encoder, which has all processors.

With `--quota` one worker and two alone take turns, each process with so much of a core (the CPU controller of control groups,
which takes root), so that Kafka and PostgreSQL have the rest and do not decide what a second worker adds.

Then one worker gets events one at a time, each when the action of the one before is out; and then at random moments, at half
of the rate that this reaches. Its time from publishing to the action stands beside that of the broker alone. Exit status 1 where a ratio is below a fifth of what was measured
before (`FLOORS`).
"""

import argparse
import asyncio
import base64
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from encode import WORDS, machine
from shared import TABLES, Template, parser_of

from streamer import wiring
from streamer.scoring.encoders.registry import DEFAULT_ENCODER, encoder_identity, find_encoder
from streamer.scoring.signals.signal_list import SignalList
from streamer.settings.settings import load_settings
from tests.faults.worker_process import WorkerProcess
from tests.services.kafka import KafkaBroker, what_kafka_needs
from tests.services.postgres import PostgresServer, what_postgres_needs

PARTITIONS = 4
ALONE, AT_RANDOM = 40, 80
"""Events of a turn that come one at a time, and of one that come at random moments."""
DIMENSION = 384
GIVEN = {"gate": {"encoder": "external:made-up", "embeddings": "accept", "dimension": DIMENSION}, "rate": 600}
TEXTS = {"gate": {"encoder": encoder_identity(DEFAULT_ENCODER).id}}
SHORT: dict[str, Any] = {"answers": 10, "words": (8, 16), "rate": 20}
ALL_SIGNALS = {"scorer": "choice", "signals": SignalList().text}
KINDS: dict[str, dict[str, Any]] = {
    "scores": SHORT | {"gate": {"scorer": "external", "encoder": "none"}, "rate": 1200},
    "embeddings, JSON": SHORT | GIVEN,
    "embeddings, base64": SHORT | GIVEN,
    "short texts": SHORT | TEXTS,
    "short texts, all signals": SHORT | {"gate": TEXTS["gate"] | ALL_SIGNALS},
    "long texts": TEXTS | {"answers": 5, "words": (55, 65), "rate": 12},
}
"""Settings of the gate, a guess of the rate (events a second) that sets how many make a turn, and what an event holds."""
ROOT = Path(__file__).parents[1]
SET_UP = """
import json, sys
from streamer import wiring
from streamer.gates.settings import GateSettings
from streamer.settings.settings import load_settings
from tests.faults.site import put_in_force
given, gate = json.loads(sys.argv[1])
settings = load_settings(**given)
wiring.migrate(settings)
wiring.create_topics(settings)
with wiring.open_store(settings) as store:
    store.gates.create("bench", GateSettings(**gate), by="bench", reason="")
    put_in_force(store, 0.6, "bench")
"""
"""Makes tables, topics and the gate, by the checkout whose workers are measured."""
FLOORS = {
    ("scores", "Faust"): 0.07,
    ("embeddings, JSON", "Faust"): 0.06,
    ("embeddings, base64", "Faust"): 0.06,
    ("short texts", "CTranslate2"): 0.1,
    ("long texts", "CTranslate2"): 0.1,
}
"""The least ratio of one worker to an anchor that passes."""
_HERTZ = os.sysconf("SC_CLK_TCK")


# -- the events -----------------------------------------------------------------------------------------------------


def made_texts(kind: str, number: int) -> list[str]:
    rng = np.random.default_rng(number)
    low, high = KINDS[kind]["words"]
    return [
        f"{number} {place} " + " ".join(rng.choice(WORDS, rng.integers(low, high + 1)))
        for place in range(KINDS[kind]["answers"])
    ]


def made_event(kind: str, number: int) -> bytes:
    rng = np.random.default_rng(number)
    answers: list[dict[str, Any]] = [
        {"id": f"r{place}", "text": text} for place, text in enumerate(made_texts(kind, number))
    ]
    for answer in answers:
        vector = rng.normal(size=DIMENSION).astype("<f4")
        if kind == "scores":
            answer["score"] = round(float(rng.random()), 4)
        elif kind == "embeddings, JSON":
            answer["embedding"] = [round(one, 8) for one in vector.tolist()]
        elif kind == "embeddings, base64":
            answer["embedding"] = base64.b64encode(vector.tobytes()).decode()
    event = {
        "schema": "streamer.responses.v1",
        "gate": "bench",
        "batch_id": f"batch-{number}",
        "prompt": f"Who wrote the book that film number {number} was made from?",
        "responses": answers,
    }
    if kind.startswith("embeddings"):
        event["embedding_encoder"] = "made-up"
    return msgspec.json.encode(event)


# -- the arms -------------------------------------------------------------------------------------------------------


@dataclass
class Arm:
    """Processes that read one topic and write another."""

    source: str
    results: str
    pids: list[int]

    def signal(self, number: signal.Signals) -> None:
        for pid in self.pids:
            os.kill(pid, number)

    def processor_seconds(self) -> float:
        return sum(
            sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) / _HERTZ
            for pid in self.pids
        )


@dataclass
class Place:
    """The broker, and how to reach it."""

    broker: KafkaBroker
    folder: Path
    clients: ExitStack

    def publish(self, topic: str, values: Sequence[bytes]) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 5, "log_level": 0})
        for number, value in enumerate(values):
            while True:
                try:
                    producer.produce(topic, value, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(60):
            raise RuntimeError("the broker does not take the events")

    def written(self, topic: str) -> Callable[[], int]:
        """Return what counts the messages of a topic."""
        from kafka import KafkaConsumer, TopicPartition

        consumer = self.clients.enter_context(
            _closing(KafkaConsumer(bootstrap_servers=self.broker.bootstrap))
        )
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return lambda: sum(consumer.end_offsets(partitions).values())

    def turn(self, arm: Arm, values: Sequence[bytes]) -> tuple[float, float]:
        """Wall and processor seconds that the arm takes for these events."""
        written = self.written(arm.results)
        due = written() + len(values)
        arm.signal(signal.SIGSTOP)
        try:
            self.publish(arm.source, values)
            before = arm.processor_seconds()
            began = time.perf_counter()
        finally:
            arm.signal(signal.SIGCONT)
        while written() < due:
            if time.perf_counter() - began > 300:
                raise RuntimeError(f"{arm.results}: {due - written()} of {len(values)} messages are missing")
            time.sleep(0.01)
        wall = time.perf_counter() - began
        return wall, arm.processor_seconds() - before


@contextmanager
def _closing(client: Any) -> Iterator[Any]:
    try:
        yield client
    finally:
        client.close()


def workers(
    place: Place,
    database: PostgresServer,
    stack: ExitStack,
    kind: str,
    count: int,
    checkout: Path | None = None,
    quota: float | None = None,
) -> tuple[Arm, str]:
    """Start workers of one group, of another checkout where there is one; returns them and their database.

    `quota` : what each may take of a core, once it is ready.
    """
    prefix = f"{kind.replace(', ', '-').replace(' ', '-')}-{count}{'-before' if checkout else ''}."
    url = database.create_database()
    kafka = {"bootstrap_servers": place.broker.bootstrap, "topic_prefix": prefix, "replication_factor": 1}
    given = {"kafka": kafka | {"partitions": PARTITIONS}, "database": {"url": url}}
    gate = {"mode": "enforce", "audit_probability": 0.05, **KINDS[kind]["gate"]}
    path = {} if checkout is None else {"PYTHONPATH": str(checkout)}
    subprocess.run(
        [sys.executable, "-c", SET_UP, json.dumps([given, gate])],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | path,
        cwd=place.folder,
        check=True,
    )
    environment = {
        "STREAMER_KAFKA_BOOTSTRAP_SERVERS": place.broker.bootstrap,
        "STREAMER_KAFKA_TOPIC_PREFIX": prefix,
        "STREAMER_KAFKA_GROUP_ID": f"{prefix}workers",
        "STREAMER_DATABASE_URL": url,
        "STREAMER_LOGGING_FORMAT": "json",
    }
    if "texts" not in kind:
        environment["STREAMER_ENCODER_NAME"] = "none"
    environment |= path
    started = []
    for number in range(count):
        one = WorkerProcess(environment, place.folder / f"{prefix}{number}.log", program=("-m", "streamer"))
        stack.callback(let_go, one.process.pid)
        stack.callback(one.close)
        started.append(one)
    for one in started:
        one.wait_until_ready()
        if quota is not None:
            hold_to(one.process.pid, quota)
    named = wiring.topics(load_settings(**given))
    return Arm(named.responses, named.actions, [one.process.pid for one in started]), url


def _control_group(pid: int) -> Path:
    first = Path("/sys/fs/cgroup/cpu")  # of version 1; version 2 has all controllers in one folder
    return (first if first.exists() else first.parent) / f"streamer-bench-{pid}"


def hold_to(pid: int, share: float) -> None:
    """Let a process have at most this share of a core, counted anew every 10 ms."""
    group, quota = _control_group(pid), str(round(10_000 * share))
    group.mkdir()
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota} 10000")
    else:
        (group / "cpu.cfs_period_us").write_text("10000")
        (group / "cpu.cfs_quota_us").write_text(quota)
    (group / "cgroup.procs").write_text(str(pid))


def let_go(pid: int) -> None:
    """Remove what `hold_to` made for a process that has ended."""
    if _control_group(pid).exists():
        _control_group(pid).rmdir()


def anchor(place: Place, stack: ExitStack, name: str, kind: str, database: str = "") -> Arm:
    """Start this file as an anchor in a process of its own."""
    source, results = (
        place.broker.create_topic(f"{kind.replace(', ', '-').replace(' ', '-')}-{name}-{end}", PARTITIONS)
        for end in ("in", "out")
    )
    log = (place.folder / f"{source}.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, __file__, "--anchor", name, place.broker.bootstrap, source, results, database],
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=place.folder,
    )
    stack.callback(log.close)
    stack.callback(process.wait)
    stack.callback(process.kill)
    place.publish(source, [b"{}"] * PARTITIONS)
    written, deadline = place.written(results), time.monotonic() + 240
    while written() < PARTITIONS:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(Path(log.name).read_text()[-2000:])
        time.sleep(0.05)
    return Arm(source, results, [process.pid])


def faust_anchor(bootstrap: str, source: str, results: str) -> None:
    import faust

    app = faust.App(
        source,
        broker=f"kafka://{bootstrap}",
        store="memory://",
        web_enabled=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        consumer_auto_offset_reset="earliest",
    )
    events = app.topic(source, value_type=bytes, value_serializer="raw")
    sent = app.topic(results, value_type=bytes, value_serializer="raw")

    @app.agent(events)
    async def passes(stream: Any) -> None:
        async for value in stream:
            await sent.send(value=value)

    faust.Worker(app, loglevel="error").execute_from_commandline()


async def copy_anchor(bootstrap: str, source: str, results: str, database: str) -> None:
    import psycopg
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    decode = msgspec.json.Decoder().decode
    url = database.replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as reading:
        # What waits for the relay is not there any more.
        templates = [Template.read(reading, table) for table in TABLES if table != "pending_messages"]
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=source,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=2**23,
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    await consumer.start()
    await producer.start()
    number = 0
    while True:
        polled = await consumer.getmany(timeout_ms=1000, max_records=1000)
        rows = []
        for record in (record for some in polled.values() for record in some):
            name = decode(record.value or b"").get("batch_id", f"none-{record.partition}")
            number += 1
            rows.append(
                {"batch": number, "name": name, "partition": record.partition, "offset": record.offset}
            )
        if not rows:
            continue
        async with connection.transaction():
            for one in templates:
                async with connection.cursor().copy(one.statement) as copy:
                    await copy.write(one.text(rows))
        acknowledged = [await producer.send(results, bytes(900), partition=row["partition"]) for row in rows]
        await asyncio.gather(*acknowledged)
        await consumer.commit()


def ctranslate2_anchor() -> Callable[[list[str]], object]:
    """The fastest exact engine, texts sorted by length, 2,048 tokens a pass, one thread a pass, as many as processors."""
    from concurrent.futures import ThreadPoolExecutor

    from streamer.scoring.encoders.ctranslate2_encoder import normalized
    from streamer.scoring.encoders.plain_bert import load_model, load_tokenizer, plain_bert

    model = plain_bert(find_encoder(DEFAULT_ENCODER).folder)
    assert model is not None
    threads = len(os.sched_getaffinity(0))
    tokenizer = load_tokenizer(model)
    loaded = load_model(model, tokenizer, threads=threads)
    pool = ThreadPoolExecutor(threads)

    def forward(tokens: list[list[int]]) -> object:
        hidden = np.asarray(loaded.forward_batch(tokens).last_hidden_state)
        counts = np.array([len(one) for one in tokens])
        hidden *= (np.arange(hidden.shape[1]) < counts[:, np.newaxis])[:, :, np.newaxis]
        return normalized(hidden.sum(axis=1) / counts[:, np.newaxis].astype(np.float32))

    def encode(texts: list[str]) -> object:
        tokens = sorted((one.ids for one in tokenizer.encode_batch(texts)), key=len)
        passes: list[list[list[int]]] = [[]]
        for one in tokens:
            if (len(passes[-1]) + 1) * len(one) > 2048:
                passes.append([])
            passes[-1].append(one)
        return list(pool.map(forward, passes))

    return encode


def sentence_transformers_anchor() -> Callable[[list[str]], object]:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = SentenceTransformer(str(find_encoder(DEFAULT_ENCODER).folder), device="cpu")
    return lambda texts: model.encode(texts, show_progress_bar=False, normalize_embeddings=True)


def timed(encode: Callable[[list[str]], object], texts: list[str]) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    encode(texts)
    return time.perf_counter() - wall, time.process_time() - processor


# -- the measurement ------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """Of one kind: events a second and processor milliseconds an event, one value a round."""

    kind: str
    event_bytes: int
    events: int
    rates: dict[str, list[float]]
    processor_ms: dict[str, list[float]]
    latency_ms: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def ratio(self, of: str, to: str) -> float:
        """The median over rounds of one arm's rate over another's in the same round."""
        return statistics.median(
            one / other for one, other in zip(self.rates[of], self.rates[to], strict=True)
        )


def measure(
    place: Place,
    database: PostgresServer,
    kind: str,
    given: argparse.Namespace,
    encoders: dict[str, Any],
) -> Result:
    rounds, short, quota = given.rounds, given.short, given.quota
    events = max(20, round(KINDS[kind]["rate"] * given.seconds))
    with ExitStack() as stack:
        one, url = workers(place, database, stack, kind, 1, quota=quota)
        arms = {"worker": one}
        if given.beside is not None and "signals" not in kind:
            arms["worker before"] = workers(place, database, stack, kind, 1, given.beside)[0]
        if not short:
            arms["two workers"] = workers(place, database, stack, kind, 2, quota=quota)[0]
        numbers = iter(range(10**9))

        def some(count: int) -> tuple[list[int], list[bytes]]:
            taken = [next(numbers) for _ in range(count)]
            return taken, [made_event(kind, number) for number in taken]

        _, values = some(max(20, events // 4))
        for arm in arms.values():
            place.turn(arm, values)
        # Only now are there rows that COPY can write again.
        names = ("Faust",) if short else ("Faust", "COPY")
        for name in () if "texts" in kind or quota is not None else names:
            arms[name] = anchor(place, stack, name, kind, url)
            place.turn(arms[name], values)
        result = Result(kind, len(values[0]), events, {}, {})
        for turn in range(rounds):
            taken, values = some(events)
            measured = {}
            order = [*arms, *(encoders if "texts" in kind else ())]
            for name in order[turn % len(order) :] + order[: turn % len(order)]:
                if name in arms:
                    measured[name] = place.turn(arms[name], values)
                else:
                    texts = [text for number in taken for text in made_texts(kind, number)]
                    measured[name] = timed(encoders[name], texts)
            for name in order:
                wall, processor = measured[name]
                result.rates.setdefault(name, []).append(events / wall)
                result.processor_ms.setdefault(name, []).append(1000 * processor / events)
        if quota is None and not short:
            plain = place.broker.create_topic(f"{one.source}-plain", PARTITIONS)
            half: float | None = None
            for count in (ALONE, AT_RANDOM):
                found: dict[str, list[float]] = {"worker": [], "broker alone": []}
                for turn in range(rounds):
                    _, values = some(count)
                    found["worker"] += latencies(place, one.source, one.results, values, half, seed=turn)
                    if not turn:
                        found["broker alone"] = latencies(place, plain, plain, values[:ALONE], half, seed=0)
                shown = "one at a time" if half is None else f"{half:,.3g} a second"
                result.latency_ms[shown] = found
                half = 500 / statistics.fmean(found["worker"])
    return result


def latencies(
    place: Place, source: str, results: str, values: Sequence[bytes], rate: float | None, seed: int
) -> list[float]:
    """Milliseconds from producing to consuming of each event, at random moments (a Poisson process); None: one at a time."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    decode = msgspec.json.Decoder().decode
    servers = {"bootstrap.servers": place.broker.bootstrap, "log_level": 0}
    consumer = Consumer(servers | {"group.id": "latency", "fetch.queue.backoff.ms": 1})
    producer = Producer(servers | {"linger.ms": 0})
    try:
        consumer.assign(
            [
                TopicPartition(
                    results, number, consumer.get_watermark_offsets(TopicPartition(results, number))[1]
                )
                for number in range(PARTITIONS)
            ]
        )
        consumer.poll(0.5)
        sent: dict[str, float] = {}
        found: list[float] = []

        def look(seconds: float) -> None:
            message = consumer.poll(max(0.0, seconds))
            if message is not None and message.error() is None:
                came = time.perf_counter()
                found.append(1000 * (came - sent[decode(message.value() or b"")["batch_id"]]))

        rng, at, deadline = np.random.default_rng(seed), time.perf_counter(), time.monotonic() + 240
        for number, value in enumerate(values):
            name = decode(value)["batch_id"]
            if rate is not None:
                at += rng.exponential(1 / rate)
            while (left := at - time.perf_counter()) > 0:
                look(left)
            while rate is None and len(found) < number and time.monotonic() < deadline:
                look(1.0)
            sent[name] = time.perf_counter()
            producer.produce(source, value, partition=number % PARTITIONS)
            producer.poll(0)
        while len(found) < len(values) and time.monotonic() < deadline:
            producer.poll(0)
            look(0.1)
        return found
    finally:
        consumer.close()


# -- the report -----------------------------------------------------------------------------------------------------

ANCHORS = ("Faust", "COPY", "CTranslate2", "sentence-transformers")


def table(results: Sequence[Result]) -> str:
    lines = [
        "| events (bytes) | arm | a second | processor ms each | one worker / this | two workers / this |",
        "|---|---|---|---|---|---|",
    ]
    for one in results:
        for name, rates in one.rates.items():
            ratios = [
                f"{one.ratio(of, name):.2f}" if of in one.rates and of != name else ""
                for of in ("worker", "two workers")
            ]
            lines.append(
                f"| {one.kind} ({one.event_bytes:,}) | {name} | {statistics.median(rates):,.4g} |"
                f" {statistics.median(one.processor_ms[name]):.3g} | {' | '.join(ratios)} |"
            )
    slow = [one for one in results if one.latency_ms]
    if slow:
        lines += [
            "",
            "| events | how they come | worker, p50 / p99 ms | broker alone | p99 over it |",
            "|---|---|---|---|---|",
        ]
    for one in slow:
        for rate, found in one.latency_ms.items():
            shown = {name: np.percentile(values, (50, 99)) for name, values in found.items()}
            mine, alone = shown["worker"], shown["broker alone"]
            lines.append(
                f"| {one.kind} | {rate} | {mine[0]:.1f} / {mine[1]:.1f} | {alone[0]:.1f} / {alone[1]:.1f} |"
                f" {mine[1] - alone[1]:.1f} |"
            )
    return "\n".join(lines)


def draw(results: Sequence[Result], path: Path) -> None:
    """Draw each arm's rate, a panel a kind; for texts beside the encoders alone, which what encodes nothing would dwarf."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(
        1, len(results), figsize=(2.6 * len(results), 3.4), constrained_layout=True, squeeze=False
    )
    for panel, one in zip(panels[0], results, strict=True):
        dwarfing = {"Faust", "COPY"} if "texts" in one.kind else set()
        names = [name for name in reversed(one.rates) if name not in dwarfing]
        medians = [statistics.median(one.rates[name]) for name in names]
        # Okabe and Ito's colours, which people with any colour vision can tell apart.
        colours = ["#0072B2" if "worker" in name else "#999999" for name in names]
        bars = panel.barh(names, medians, color=colours)
        panel.bar_label(
            bars,
            [f"{median:,.0f}" if median >= 100 else f"{median:.1f}" for median in medians],
            padding=2,
            fontsize=8,
        )
        panel.set_title(one.kind, fontsize=10)
        panel.set_xlabel("events a second")
        panel.margins(x=0.25)
        panel.tick_params(labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, default=[one for one in KINDS if "signals" not in one]
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0, help="about how long one worker's turn takes")
    parser.add_argument("--short", action="store_true", help="a smaller form")
    parser.add_argument(
        "--quota", type=float, help="how much of a core each worker may take; with one and two alone"
    )
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="one worker of it as another arm")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--anchor", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.anchor:
        name, *rest = given.anchor
        faust_anchor(*rest[:3]) if name == "Faust" else asyncio.run(copy_anchor(*rest))
        return 0
    for need in (what_kafka_needs(), what_postgres_needs()):
        if need:
            sys.exit(": ".join(need))
    if given.short:
        given.kinds = [
            kind for kind in given.kinds if kind in ("scores", "embeddings, base64", "short texts")
        ]
        given.rounds, given.seconds = 1, 1.0
    encoders: dict[str, Any] = {}
    if given.quota is None and any("texts" in kind for kind in given.kinds):
        encoders["CTranslate2"] = ctranslate2_anchor()
        if not given.short:
            encoders["sentence-transformers"] = sentence_transformers_anchor()
        for encode in encoders.values():
            timed(encode, ["one", "two"])
    # Whoever ends it by a signal leaves no broker and no database behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    broker, database = KafkaBroker(), PostgresServer()
    try:
        broker.start()
        database.start()
        # Clients are closed whatever happens: their threads would keep this process from ending.
        with tempfile.TemporaryDirectory(prefix="streamer-bench-") as folder, ExitStack() as clients:
            place = Place(broker, Path(folder), clients)
            results: list[Result] = []
            for kind in given.kinds:
                results.append(measure(place, database, kind, given, encoders))
                if given.json:  # what is measured is kept, whatever becomes of the next kind
                    given.json.write_text(json.dumps([msgspec.to_builtins(one) for one in results]))
    finally:
        broker.remove()
        database.remove()
    print(machine("cpu"), table(results), sep="\n\n")
    if given.picture:
        draw(results, given.picture)
    low = [
        f"{one.kind}: {one.ratio('worker', to):.2f} of {to}, at least {floor} is wanted"
        for one in results
        for (kind, to), floor in FLOORS.items()
        if kind == one.kind and to in one.rates and one.ratio("worker", to) < floor
    ]
    print(*low, sep="\n", file=sys.stderr)
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
