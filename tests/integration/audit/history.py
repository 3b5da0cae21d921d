"""A record as real traffic leaves it: decided by the real decider, labelled, calibrated, closed, rolled back, signed."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from streamer import wiring
from streamer.audit import signing
from streamer.audit.bundle import write_bundle
from streamer.audit.verification import Lookups, Trusted, VerificationReport, verify_record
from streamer.deciding.decider import BatchDecider
from streamer.deciding.policy_book import PolicyBook
from streamer.events.cloudevents import rfc3339
from streamer.gates.batch_key import BatchKey
from streamer.gates.settings import GateSettings
from streamer.journal import DataGap, LabelRevision, Partition, Record, Slice
from streamer.labels.judge.scores import JudgeScores
from streamer.labels.signing import LabellerKey
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.settings.settings import Settings, load_settings
from streamer.store import Store
from streamer_verify.segments import NO_SEGMENTS, Segments
from tests.made import a_label, an_event
from tests.migrated import migrated
from tests.run_folder import made_once

PRIVATE, PUBLIC = signing.generate_keys()
KEYS = signing.read_public_keys(PUBLIC, place="the test")
LOG = "log-1"


@dataclass
class Scribe:
    """Writes traffic into a database as a worker and the commands do, without a broker."""

    store: Store
    settings: Settings
    encoder: CachedEncoder | None = None
    judge: JudgeScores | None = None

    def deliver(
        self,
        values: Iterable[bytes],
        *,
        partition: int = 0,
        topic: str = "responses",
        deadline_ms: int | None = None,
    ) -> None:
        """Let a worker decide records of one partition and commit them in one transaction."""
        topics = wiring.topics(self.settings)
        place = Partition(LOG, getattr(topics, topic), partition)
        lease = self.store.lease([place])[place]
        headers = (("traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"),)
        records = [
            Record(place, lease.next_offset + i, b"k", value, headers, 1_700_000_000_000 + i, deadline_ms)
            for i, value in enumerate(values)
        ]
        book = PolicyBook(self.store.policies.active, limits=wiring.limits(self.settings))
        book.refresh()
        decider = BatchDecider(
            book=book,
            known=self.store.known,
            encoder=self.encoder,
            judge=self.judge,
            topics=topics,
            limits=wiring.limits(self.settings),
            clock=wiring.now,
            candidate_seconds=60.0,  # never in full
        )
        outcomes = tuple(decider.outcomes(records))
        self.store.commit(
            [Slice(lease, lease.next_offset, records[-1].offset + 1, outcomes)], now=wiring.now()
        )

    def gate(self, name: str, **settings: Any) -> None:
        chosen = {
            "encoder": "external:made-up", "embeddings": "accept", "dimension": 8,
            "mode": "enforce", "audit_probability": 1.0,
        } | settings  # fmt: skip
        self.store.gates.create(name, GateSettings(**chosen), by="ana", reason="test")

    def import_labels(self, gate: str, numbers: Iterable[int], *, labeller: str = "ana") -> None:
        self.store.labels.add([label(gate, number, labeller=labeller) for number in numbers])

    def drawn_labels(
        self, gate: str, numbers: Iterable[int], severity: Callable[[int, int], float] = lambda _n, _i: 0.0
    ) -> list[bytes]:
        """Label events of what the audit drew of first attempts; `severity` of a batch's number and an answer's."""
        wanted = {f"batch-{number}": number for number in numbers}
        query = sa.text(
            "SELECT b.batch_id, r.position FROM responses r JOIN batches b ON b.id = r.batch"
            " WHERE b.gate = :gate AND b.attempt = 1 AND r.drawn ORDER BY b.id, r.position"
        )
        with self.store._database.reading() as connection:
            drawn = [(wanted.get(one), i) for one, i in connection.execute(query, {"gate": gate})]
        return [
            label_event(gate, n, response=f"r{i}", severity=severity(n, i)) for n, i in drawn if n is not None
        ]

    def recalibrate(self, gate: str) -> None:
        wiring.recalibrate(self.settings, gate, by="ana", reason="labels came")

    def checkpoint(self) -> None:
        before = self.store.heads.newest().size
        assert wiring.checkpointer(self.settings, self.store).run(publish=True).size == before + 1


def settings_for(url: str, directory: Path) -> Settings:
    """Settings with a key and a file for checkpoints."""
    return load_settings(
        database={"url": url},
        audit={
            "private_key": PRIVATE,
            "public_keys": PUBLIC,
            "checkpoint_file": str(directory / "checkpoints.jsonl"),
        },
    )


def event(gate: str, number: int, **changes: Any) -> bytes:
    """A batch of four responses with embeddings of their own: the higher the number's digit, the better they agree."""
    rng = np.random.default_rng(number)
    centre = rng.normal(size=8)
    spread = 0.2 + 0.3 * (number % 7)
    content = an_event(
        gate, f"batch-{number}",
        [f"answer {i} of {number}" if (number + i) % 11 else " " for i in range(4)],
        prompt=f"question {number} — ünïcode", embedding_encoder="made-up",
        references=["one", "two"] if number % 2 else None,
        metadata={"kind": "odd" if number % 2 else "even", "n": 1e300},
    )  # fmt: skip
    for answer in content["responses"]:
        answer["embedding"] = (centre + spread * rng.normal(size=8)).round(4).tolist()
    return json.dumps(content | changes).encode()


def label_event(
    gate: str, number: int, *, severity: float = 0.0, response: str = "r0", **fields: Any
) -> bytes:
    said = a_label(gate, f"batch-{number}", response, severity, labeller="bob")
    return json.dumps(fields | said).encode()


def label(gate: str, number: int, *, labeller: str = "ana") -> LabelRevision:
    return LabelRevision(
        key=BatchKey(gate, f"batch-{number}", 1), response_id=f"r{number % 4}",
        severity=float(number % 5 == 0), raw_severity=-0.25 if number % 3 else None, kind="human",
        labeller=labeller, labelled_at=wiring.now(),
    )  # fmt: skip


@contextmanager
def scribing(directory: Path, url: str | None = None) -> Iterator[tuple[Settings, Store, Scribe]]:
    """Settings, a store and a scribe of a database, or of a new file in the folder."""
    settings = settings_for(url or f"sqlite:///{directory / 'record.db'}", directory)
    migrated(settings)
    with wiring.open_store(settings) as store:
        yield settings, store, Scribe(store, settings)


def write_history(url: str, directory: Path) -> Settings:
    """Make the record that the tampering suite changes; three checkpoints, and something after the last."""
    with scribing(directory, url) as (settings, store, scribe):
        scribe.gate("best", unit="best", alpha=0.3, pending="worst")  # some are never labelled
        scribe.gate("each", unit="response", alpha=0.3, audit_probability=0.8, audit_draws=2)
        scribe.checkpoint()
        scribe.deliver(event("best", n) for n in range(20))
        scribe.deliver((event("each", n) for n in range(20)), partition=1)
        labels = [label_event("best", n, response=f"r{i}") for n in range(15) for i in range(4)]
        scribe.deliver(labels, topic="labels")
        scribe.import_labels("each", range(20))
        scribe.import_labels("best", range(3), labeller="eve")
        scribe.recalibrate("best")
        scribe.recalibrate("each")
        scribe.checkpoint()
        scribe.deliver(
            [
                *(event("best", n) for n in range(20, 34)),
                event("best", 3),  # a duplicate
                event("best", 4, prompt="another question"),  # a conflict
                b"\xff\xfe rubbish",
                event("nobody", 1),
                event("best", 40, responses=[{"id": "a", "text": "alone"}]),  # too few to be scored
                event("best", 41, attempt=7),
            ]
        )
        scribe.deliver((event("each", n) for n in range(20, 30)), partition=1)
        place = Partition(LOG, wiring.topics(settings).responses, 1)
        lease = store.lease([place])[place]
        store.record_gap(lease, DataGap(place, lease.next_offset, lease.next_offset + 2))
        store.gates.revise("best", {"audit_probability": 0.25}, by="ana", reason="fewer labels")
        scribe.recalibrate("best")
        newest = store.policies.newest("best").version
        store.policies.close("best", by="ana", reason="an incident")
        store.policies.rollback("best", newest, by="ana", reason="it is over")
        scribe.deliver((event("best", n) for n in range(50, 56)), partition=1)
        scribe.checkpoint()
        scribe.deliver(event("each", n) for n in range(60, 64))
    return settings


def written_history(directory: Path) -> Settings:
    """Copy into a folder what `write_history` makes on SQLite, once a run."""

    def make(folder: Path) -> None:
        folder.mkdir()
        write_history(f"sqlite:///{folder / 'record.db'}", folder)

    shutil.copytree(made_once("history", make), directory, dirs_exist_ok=True)
    return settings_for(f"sqlite:///{directory / 'record.db'}", directory)


def verify(
    settings: Settings,
    *,
    outside: list[bytes] | None = None,
    from_database: bool = False,
    store: Store | None = None,
    label_keys: Mapping[str, LabellerKey] | None = None,
    witnesses: Mapping[str, bytes] | None = None,
    others: Callable[[str | None], None] | None = None,
    segments: Segments = NO_SEGMENTS,
    **options: Any,
) -> VerificationReport:
    """`audit verify`, with the checkpoints of the file unless told otherwise; of a store that is open, or of the settings'."""
    found = wiring.outside_checkpoints(settings, None)
    kept = outside if outside is not None else found[0] if found is not None else None
    with (
        wiring.open_store(settings) if store is None else nullcontext(store) as opened,
        opened.evidence.snapshot(others, segments) as snapshot,
    ):
        return verify_record(
            snapshot, trusted=Trusted(KEYS, labels=label_keys, witnesses=witnesses or {}),
            outside=None if from_database or kept is None else (kept, "the file"),
            lookups=Lookups(opened.gates.history, opened.calibration.inputs), **options,
        )  # fmt: skip


def export(settings: Settings, target: Path, *, store: Store | None = None, **options: Any) -> dict[str, Any]:
    with (
        wiring.open_store(settings) if store is None else nullcontext(store) as opened,
        opened.evidence.snapshot() as snapshot,
    ):
        return write_bundle(snapshot, target, keys=KEYS, made_at=rfc3339(wiring.now()), **options)
