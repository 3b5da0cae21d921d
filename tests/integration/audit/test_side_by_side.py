"""`--jobs`: several processes find in a record, or a bundle, what one finds, in the same order."""

import json
import random
import sys
from itertools import islice
from pathlib import Path

import pytest

from streamer import wiring
from streamer.cli import main
from streamer_verify.pyz import archive
from tests import programs
from tests.integration.audit.attacker import breaking_in
from tests.integration.audit.beside import few_lines, same_bundle, verify_beside
from tests.integration.audit.conftest import Record
from tests.integration.audit.damage import BYTES, Parts, damages
from tests.integration.audit.history import KEYS, PUBLIC, Scribe, event, export
from tests.integration.audit.test_audit_commands import here
from tests.integration.audit.test_tampering import CHANGES
from tests.machine import LONG

__all__ = ["here"]

DAMAGES = 1_000 if LONG else 20
UNREADABLE = "UPDATE outcomes SET recorded_at = 'x' WHERE leaf_index = 30"


@pytest.mark.parametrize("change", [None, *range(0, len(CHANGES), 1 if LONG else 6)])
def test_two_processes_find_in_a_record_what_one_finds(record: Record, change: int | None):
    if change is not None:
        with breaking_in(record.url) as connection:
            connection.exec_driver_sql(CHANGES[change][0])
    report = record.verify()
    assert bool(report.faults) == (change is not None)
    assert verify_beside(record.settings) == report


@pytest.mark.parametrize("template", ["sqlite"], indirect=True)
def test_what_cannot_be_read_ends_both_at_the_same_line(record: Record):
    with breaking_in(record.url) as connection:
        connection.exec_driver_sql(UNREADABLE)
    with few_lines():  # what is read at once is read, or is not
        report = record.verify()
    assert report.faults
    assert verify_beside(record.settings) == report


def test_what_is_written_meanwhile_is_not_read(record: Record):
    before, numbers = record.verify(), iter(range(5_000, 6_000))
    with wiring.open_store(record.settings) as store:
        scribe = Scribe(store, record.settings)
        during = verify_beside(
            record.settings, progress=lambda _done: scribe.deliver([event("best", next(numbers))])
        )
    assert during == before
    after = record.verify()
    assert not after.faults
    assert after.counts["decisions"] > before.counts["decisions"]


def test_two_processes_find_in_a_bundle_what_one_finds(record: Record, tmp_path: Path):
    export(record.settings, tmp_path / "good")
    good, rng, target = Parts.read(tmp_path / "good"), random.Random(37), tmp_path / "damaged"
    target.mkdir()
    lines = [good.of({("outcomes.jsonl", 20): how}) for how in BYTES.values()]
    files, read = ("control.jsonl", "outcomes.jsonl"), 0
    members = (one.of(good) for one in damages(good, rng) if one.file in files)
    for parts in [good, *lines, *islice(members, DAMAGES)]:
        parts.write(target)
        read += same_bundle(target, KEYS, None)
    assert read > DAMAGES / 2


def test_commands_say_the_same_with_two_jobs(here: Path, capsys: pytest.CaptureFixture[str]):
    said = []
    for jobs in ("1", "2"):
        status = main(["audit", "verify", "--json", "--jobs", jobs])
        said.append((status, json.loads(capsys.readouterr().out)))
    assert said[0] == said[1]
    assert said[0][0] == 0
    assert main(["audit", "verify", "--jobs", "2", "--rescore"]) == 2
    assert main(["audit", "export", "--out", "bundle.zip"]) == 0
    (here / "verify.pyz").write_bytes(archive())
    (here / "other.pub").write_text(PUBLIC)
    command = [sys.executable, "-I", "-S", "verify.pyz", "bundle.zip", "--public-key", "other.pub"]
    one, two = (programs.run(*command, "--jobs", jobs, status=None) for jobs in ("1", "2"))
    assert (one.returncode, one.stdout, one.stderr) == (two.returncode, two.stdout, two.stderr)
    assert one.returncode == 0, one.stderr
