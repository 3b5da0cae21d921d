"""How long both verifiers take for a bundle of a gate that decides by all signals, beside the sealing of the same bytes.

    python benchmarks/verifying_bundles.py [--decisions 10000] [--labelled 1000] [--rounds 3] [--short]

A gate of method `full` calibrates on the labelled prompts and decides the rest: four answers with embeddings an event. Both
programs run as a user runs them, in turns; times are their processors'. The unit that they stand beside is one SHA-256 of the
unpacked bundle. Exit status 1 where a verifier finds a fault, or takes more than 3,000 times one SHA-256 of the bundle.
"""

import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from encode import machine
from shared import parser_of

from streamer import wiring
from streamer.scoring.signals.signal_list import SignalList
from streamer_verify.pyz import archive
from tests.integration.audit.history import PUBLIC, Scribe, event, export, label_event, settings_for
from tests.migrated import migrated

ROOT = Path(__file__).parents[1]
GATE = "all"
AT_ONCE = 500
MOST_HASHES = 3_000


def record(folder: Path, decisions: int, labelled: int) -> None:
    settings = settings_for(f"sqlite:///{folder / 'record.db'}", folder)
    migrated(settings)
    with wiring.open_store(settings) as store:
        scribe = Scribe(store, settings)
        listed = SignalList().text
        scribe.gate(GATE, alpha=0.1, method="full", scorer="choice", signals=listed, audit_probability=1.0)
        for first, end in ((0, labelled), (labelled, decisions)):
            for start in range(first, end, AT_ONCE):
                scribe.deliver(event(GATE, number) for number in range(start, min(end, start + AT_ONCE)))
            if first == 0:
                for start in range(0, end, AT_ONCE):
                    scribe.deliver(
                        (
                            label_event(GATE, number, response=f"r{place}", severity=float(number % 7 > 3))
                            for number in range(start, min(end, start + AT_ONCE))
                            for place in range(4)
                        ),
                        topic="labels",
                    )
                scribe.recalibrate(GATE)
                assert store.policies.newest(GATE).state == "full"
        scribe.checkpoint()
    export(settings, folder / "bundle")
    (folder / "key.pub").write_text(PUBLIC)


def seconds(command: list[str], folder: Path) -> tuple[float, float]:
    """Seconds of a verifier that finds nothing wrong: its processor's, and by the clock."""
    began = time.perf_counter()
    options = ["--public-key", "key.pub", "--checkpoints", "checkpoints.jsonl"]
    child = subprocess.Popen(
        [*command, "bundle", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert child.stdout is not None
    said = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0 or "budgets derived again" not in said:
        sys.exit(f"{command}: status {child.returncode}\n{said}")
    return used.ru_utime + used.ru_stime, time.perf_counter() - began


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--decisions", type=int, default=10_000)
    parser.add_argument("--labelled", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="a smaller form")
    given = parser.parse_args()
    if given.short:
        given.decisions, given.labelled, given.rounds = 1_000, 100, 1
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "verify.pyz").write_bytes(archive())
        commands = {"Python": [sys.executable, "-I", "-S", str(folder / "verify.pyz")]}
        commands["Python, two jobs"] = [*commands["Python"], "--jobs", "2"]
        if shutil.which("node") is not None:
            commands["JavaScript"] = ["node", str(ROOT / "verifiers/javascript/verify.mjs")]
        record(folder, given.decisions, given.labelled)
        content = b"".join(one.read_bytes() for one in sorted((folder / "bundle").iterdir()))
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        hashing = []
        for _ in range(given.rounds):
            for name, command in commands.items():
                taken[name].append(seconds(command, folder))
            began = time.process_time()
            hashlib.sha256(content).digest()
            hashing.append(time.process_time() - began)
    print(machine("cpu"))
    size, unit = len(content) / 1e6, statistics.median(hashing)
    print(
        f"{given.decisions} decisions, {given.labelled} labelled prompts, {size:.0f} MB, hashed in {unit:.3f} s"
    )
    slow = False
    for name, found in taken.items():
        middle, clock = map(statistics.median, zip(*found, strict=True))
        slow |= middle > MOST_HASHES * unit
        times = f"{middle / unit:.0f} times the hash"
        print(f"{name}: {middle:.1f} s of processor, {times}, {clock:.1f} s by the clock")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
