"""Time the encoder against sentence-transformers' own `encode`, and check that vectors depend on their text alone.

    python benchmarks/encode.py [--device auto] [--name NAME] [--threads N] [--texts N] [--rounds R] [--json]
                                [--clouds FILE...]

Without files the texts are made up, short, medium and long. With response clouds (JSON lines, .gz or not) each
file's distinct answers are one kind. Both encoders are timed in turns on the same texts, so that whatever else the
machine does falls on both alike; what counts is the ratio of the medians. Exit status 1 if a vector changed with
its neighbours, or strayed from the reference by more than 1e-5.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from shared import parser_of

from streamer.scoring.encoders.registry import DEFAULT_ENCODER, find_encoder, load_encoder

Encode = Callable[[Sequence[str]], NDArray[np.float32]]


AGREEMENT = 1e-5
KINDS = {"short": (1, 8), "medium": (40, 120), "long": (150, 400)}
WORDS = [
    "the",
    "a",
    "of",
    "in",
    "to",
    "and",
    "is",
    "was",
    "answer",
    "Paris",
    "river",
    "king",
    "1917",
    "forty",
    "two",
    "because",
    "therefore",
    "first",
    "city",
    "island",
    "novel",
    "actor",
    "wrote",
    "born",
    "capital",
    "war",
    "album",
    "song",
    "film",
    "player",
    "team",
    "she",
    "he",
    "they",
    "it",
    "then",
    "adds",
    "subtracts",
    "total",
    "cost",
    "dollars",
]


def made_up_texts(count: int) -> dict[str, list[str]]:
    """Distinct texts of three kinds by number of words, seeded."""
    rng = np.random.default_rng(20260101)
    return {
        kind: [
            f"{number} " + " ".join(rng.choice(WORDS, rng.integers(low, high + 1))) for number in range(count)
        ]
        for kind, (low, high) in KINDS.items()
    }


def cloud_texts(paths: list[Path], count: int) -> dict[str, list[str]]:
    """Up to `count` distinct answers of each file, evenly spread; 0: all."""
    kinds = {}
    for path in paths:
        with (
            gzip.open(path, "rt", encoding="utf-8")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8") as lines
        ):
            texts = list(dict.fromkeys(r["text"] for line in lines for r in json.loads(line)["responses"]))
        kinds[path.name.partition(".")[0]] = texts[:: max(1, len(texts) // count) if count else 1]
    return kinds


def seconds(task: Callable[[], object]) -> float:
    """Run `task` once and return its wall-clock time."""
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def throughput(ours: Encode, reference: Encode, texts: list[str], rounds: int) -> dict[str, float]:
    """Median texts per second of both, timed in turns, and the largest difference of a number."""
    times: dict[str, list[float]] = {"ours": [], "reference": []}
    for _ in range(rounds):
        times["ours"].append(seconds(lambda: ours(texts)))
        times["reference"].append(seconds(lambda: reference(texts)))
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        "texts": len(texts),
        "texts_per_second": len(texts) / medians["ours"],
        "reference_texts_per_second": len(texts) / medians["reference"],
        "ratio": medians["reference"] / medians["ours"],
        "largest_difference": float(np.abs(ours(texts) - reference(texts)).max()),
    }


def latency(ours: Encode, reference: Encode, texts: list[str], calls: int) -> dict[str, float]:
    """Milliseconds of a call with ten short answers, both timed in turns."""
    rng = np.random.default_rng(1)
    tens = [[texts[i] for i in rng.choice(len(texts), 10, replace=False)] for _ in range(calls)]
    for ten in tens[:5]:
        ours(ten), reference(ten)
    milliseconds: dict[str, list[float]] = {"ours": [], "reference": []}
    for ten in tens:
        milliseconds["ours"].append(1e3 * seconds(partial(ours, ten)))
        milliseconds["reference"].append(1e3 * seconds(partial(reference, ten)))
    return {
        f"{name}_p{percentile}_ms": float(np.percentile(values, percentile))
        for name, values in milliseconds.items()
        for percentile in (50, 99)
    }


def changed_by_neighbours(encode: Encode, texts: list[str]) -> int:
    """How many vectors are not bit-equal when the same texts come in another order and in calls of other sizes."""
    rng = np.random.default_rng(2)
    together = encode(texts)
    changed = np.zeros(len(texts), dtype=bool)
    order, start = rng.permutation(len(texts)), 0
    while start < len(order):
        part = order[start : start + int(rng.integers(1, 40))]
        rows = encode([texts[i] for i in part])
        changed[part] |= [rows[k].tobytes() != together[i].tobytes() for k, i in enumerate(part)]
        start += len(part)
    return int(changed.sum())


def machine(device: str) -> str:
    """Name the processor that runs the model."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} CPUs"


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything that the benchmark reports."""
    load_seconds = seconds(lambda: load_encoder(arguments.name, device=arguments.device).close())
    encoder = load_encoder(arguments.name, device=arguments.device, threads=arguments.threads, strict=False)

    import torch
    from sentence_transformers import SentenceTransformer

    plain = SentenceTransformer(str(find_encoder(arguments.name).folder), device=encoder.device)

    def reference(texts: Sequence[str]) -> NDArray[np.float32]:
        # All processors, as the encoder has, whatever OMP_NUM_THREADS says.
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        return plain.encode(list(texts), show_progress_bar=False, normalize_embeddings=True)

    kinds = (
        cloud_texts(arguments.clouds, arguments.texts) if arguments.clouds else made_up_texts(arguments.texts)
    )
    mixed = [text for texts in kinds.values() for text in texts]
    result = {
        "encoder": encoder.identity.id,
        "device": encoder.device,
        "machine": machine(encoder.device),
        "torch": torch.__version__,
        "load_seconds": load_seconds,
        "throughput": {
            k: throughput(encoder.encode, reference, v, arguments.rounds) for k, v in kinds.items()
        },
        "ten_short_answers": latency(
            encoder.encode,
            reference,
            min(kinds.values(), key=lambda v: sum(map(len, v)) / len(v)),
            arguments.calls,
        ),
        "changed_by_neighbours": {
            "texts": len(mixed),
            "ours": changed_by_neighbours(encoder.encode, mixed),
            "reference": changed_by_neighbours(reference, mixed),
        },
    }
    encoder.close()
    return result


def print_for_people(result: dict[str, Any]) -> None:
    print(f"{result['encoder']} on {result['device']} ({result['machine']}), torch {result['torch']}")
    print(f"loaded in {result['load_seconds']:.1f} s, imports included")
    print(
        f"{'texts':>32} {'count':>7} {'texts/s':>9} {'reference':>9} {'ratio':>6} {'largest difference':>19}"
    )
    for kind, row in result["throughput"].items():
        print(
            f"{kind:>32} {row['texts']:7} {row['texts_per_second']:9.0f} {row['reference_texts_per_second']:9.0f} "
            f"{row['ratio']:6.2f} {row['largest_difference']:19.1e}"
        )
    ten = result["ten_short_answers"]
    print(
        f"ten short answers: p50 {ten['ours_p50_ms']:.1f} ms, p99 {ten['ours_p99_ms']:.1f} ms "
        f"(reference {ten['reference_p50_ms']:.1f} and {ten['reference_p99_ms']:.1f})"
    )
    changed = result["changed_by_neighbours"]
    print(
        f"vectors that changed with their neighbours: {changed['ours']} of {changed['texts']} "
        f"(reference {changed['reference']})"
    )


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--name", default=DEFAULT_ENCODER)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--texts", type=int, default=60, help="texts of each kind; 0 takes all of a file")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--calls", type=int, default=40, help="calls of ten short answers")
    parser.add_argument("--clouds", type=Path, nargs="*", default=[])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--short", action="store_true", help="a smaller form")
    arguments = parser.parse_args()
    if arguments.short:
        arguments.texts, arguments.rounds, arguments.calls = 20, 1, 10
    if arguments.texts < 1 and not arguments.clouds:
        parser.error("--texts must be at least 1 without --clouds")
    result = measure(arguments)
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        print_for_people(result)
    strayed = max(row["largest_difference"] for row in result["throughput"].values()) > AGREEMENT
    return 1 if strayed or result["changed_by_neighbours"]["ours"] else 0


if __name__ == "__main__":
    sys.exit(main())
