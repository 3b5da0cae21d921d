"""All gates in one service: a broker, a database, one worker, one recalibrator; prompts and labels in lock step.

Nothing is measured in seconds: after each stretch of prompts and labels the recalibrator gets two rounds.
"""

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np

from streamer import wiring
from streamer.gates.settings import GateSettings
from streamer.scoring.signals.signal_list import SignalList
from streamer.settings.settings import load_settings
from streamer.store import Store
from streamer.stream.publisher import Publisher
from tests.e2e.swap.answers import Answers, Batch, Source
from tests.e2e.swap.lives import Lengths, Life
from tests.e2e.swap.outcomes import Outcome, judged
from tests.faults.worker_process import WorkerProcess
from tests.made import a_label
from tests.recorded import newest_decisions
from tests.services.service_forks import FORKS

ALPHA = 0.1
_PATIENCE = 120.0
"""Seconds without any progress after which the run is given up: the machine may be busy."""

_ROUNDS = 2
_PAGE = 50
"""Decisions that the recalibrator reads of a gate in one round, at least."""


class Service:
    """The gates, where their answers come from, and the people who label."""

    def __init__(
        self,
        *,
        bootstrap: str,
        database_url: str,
        prefix: str,
        directory: Path,
        answers: Sequence[Answers],
        lives: Sequence[Life],
        lengths: Lengths,
        tell: Callable[[str], object] = print,
    ) -> None:
        self._settings = load_settings(
            kafka={"bootstrap_servers": bootstrap, "topic_prefix": prefix, "replication_factor": 1},
            database={"url": database_url},
        )
        self._environment = {
            "STREAMER_KAFKA_BOOTSTRAP_SERVERS": bootstrap, "STREAMER_KAFKA_TOPIC_PREFIX": prefix,
            "STREAMER_KAFKA_GROUP_ID": f"{prefix}workers", "STREAMER_KAFKA_REPLICATION_FACTOR": "1",
            "STREAMER_DATABASE_URL": database_url, "STREAMER_ENCODER_NAME": "none",
            "STREAMER_LOGGING_FORMAT": "json",
        }  # fmt: skip
        self._directory = directory
        self._lives = lives
        self._lengths = lengths
        self._tell = tell
        self._sources = {life.gate: Source(life, answers, mean_lag=lengths.lag) for life in lives}
        self._batches: dict[str, Batch] = {}
        self._labelled: set[tuple[str, str]] = set()
        self._given: Counter[str] = Counter()
        self._labels_at: dict[str, dict[int, int]] = defaultdict(dict)
        self._said: dict[str, dict[int, str]] = defaultdict(dict)
        self._published = 0
        self._judge = np.random.default_rng(1)
        self._publisher: Publisher
        self._store: Store
        self._recalibrator: WorkerProcess

    def run(self) -> list[Outcome]:
        """Let all gates live; what became of each."""
        wiring.migrate(self._settings)
        wiring.create_topics(self._settings)
        with ExitStack() as stack:
            self._store = stack.enter_context(wiring.open_store(self._settings))
            stack.enter_context(self._process("worker"))
            self._recalibrator = stack.enter_context(self._process("recalibrator"))
            self._publisher = stack.enter_context(
                Publisher(
                    wiring.connection(self._settings),
                    max_request_size=wiring.limits(self._settings).max_output_bytes,
                    timeout=_PATIENCE,
                )
            )
            began = time.monotonic()
            changed = self._live()
            self._tell(f"{len(self._batches)} decisions in {time.monotonic() - began:.0f} s")
            for life in self._lives:
                self._tell_closings(life.gate)
            return [self._outcome(life, changed[life.gate]) for life in self._lives]

    def _live(self) -> dict[str, int]:
        """Return the number of the first prompt of each gate after the change."""
        lengths, lives = self._lengths, self._lives
        old = [life for life in lives if life.old]
        young = [life for life in lives if not life.old]
        if old:
            self._open(old)
            for _ in range((lengths.old - lengths.young) // lengths.stride):
                self._stretch(old, lengths.stride)
        if young:
            self._open(young)
        for _ in range(lengths.young // lengths.step):
            self._stretch(lives, lengths.step)
        changed = {life.gate: self._sources[life.gate].given for life in lives}
        self._tell("the answers' source changes")
        for life in lives:
            self._sources[life.gate].changed = True
        closed: dict[str, int] = {}
        for since in range(0, lengths.after + 1, lengths.step):
            if since:
                self._stretch(lives, lengths.step)
            for life in lives:
                self._labels_at[life.gate][since] = self._given[life.gate]
            self._mend(since, closed)
            if since % lengths.look == 0:
                self._look(since)
        return changed

    def _mend(self, since: int, closed: dict[str, int]) -> None:
        """Give gates that have been closed for long enough what they got before the change.

        Parameters
        ----------
        closed : when each gate was found closed, to which this adds.
        """
        for life in self._lives:
            if life.mended is None or self._store.policies.newest(life.gate).state != "closed":
                continue
            if since - closed.setdefault(life.gate, since) >= life.mended:
                self._sources[life.gate].changed = False

    def _open(self, lives: Sequence[Life]) -> None:
        """Make gates, draw and label every prompt of theirs until they are calibrated, and open them."""
        lengths = self._lengths
        for life in lives:
            full = {"scorer": "choice", "signals": SignalList().text} if lengths.method == "full" else {}
            judged = {"judge_kind": "judge"} if lengths.early == "judge" else {}
            settings = GateSettings(
                method=lengths.method, early=lengths.early, **full, **judged,
                encoder="external:all-MiniLM-L6-v2", embeddings="accept", dimension=384,
                alpha=ALPHA, mode="enforce", audit_probability=1.0, recalibrate="manual",
                recalibrate_every_seconds=None, recalibrate_after_groups=50, least_groups=60,
                on_alarm="close",
            )  # fmt: skip
            self._store.gates.create(life.gate, settings, by="risk owner", reason="a new gate")
        self._stretch(lives, lengths.closed, late_labels=False, rounds=0)
        for life in lives:
            wiring.recalibrate(self._settings, life.gate, by="risk owner")
            self._store.gates.revise(
                life.gate, {"audit_probability": lengths.audit, "recalibrate": "auto"},
                by="risk owner", reason="it may serve",
            )  # fmt: skip
        wiring.publish_pending(self._settings)
        self._rounds(lengths.closed // _PAGE + 2)
        states = Counter(self._store.policies.newest(life.gate).state for life in lives)
        self._tell(f"{len(lives)} gates are calibrated: {dict(states)}")

    def _stretch(
        self, lives: Sequence[Life], count: int, *, late_labels: bool = True, rounds: int = _ROUNDS
    ) -> None:
        """Publish so many prompts of each gate, and the labels whose time has come, and let the service read them."""
        named = wiring.topics(self._settings)
        for _ in range(count):
            for life in lives:
                batch = self._sources[life.gate].next(late_labels=late_labels)
                self._batches[batch.id] = batch
                self._publish(named.responses, batch.event)
        self._recorded()
        marks = self._marks(lives, count) if self._lengths.early == "judge" else ()
        for label in (*marks, *self._due()):
            self._publish(named.labels, label)
        self._recorded()
        self._rounds(rounds)

    def _publish(self, topic: str, value: bytes) -> None:
        self._publisher.send(topic, value)
        self._published += 1

    def _due(self) -> Iterator[bytes]:
        """The labels that people give now, of what the queue asks for."""
        for item in self._store.labels.queue(limit=1_000_000):
            batch, response = self._batches[item.key.batch_id], (item.key.batch_id, item.response_id)
            if response in self._labelled or batch.labelled_at >= self._sources[batch.gate].given:
                continue
            self._labelled.add(response)
            self._given[batch.gate] += 1
            severity = batch.severities[int(item.response_id.removeprefix("r"))]
            yield _label(batch, item.response_id, severity, kind=item.kind, labeller="people")

    def _marks(self, lives: Sequence[Life], count: int) -> Iterator[bytes]:
        """What a judge says at once of each answer that shipped of a gate's newest decisions."""
        for life in lives:
            for decision in newest_decisions(self._store, life.gate, limit=count):
                batch, answer = self._batches[decision.batch_id], decision.selected
                if answer is not None:
                    wrong = batch.severities[int(answer.removeprefix("r"))] >= 0.5
                    says = self._judge.random() < self._lengths.judge[not wrong]
                    yield _label(batch, answer, float(wrong == says), kind="judge", labeller="judge")

    def _look(self, since: int) -> None:
        """Ask `streamer risk` what it says of each gate."""
        for line in self._streamer("risk").splitlines():
            gate, colon, sentence = line.partition(": ")
            if colon and gate in self._sources:
                self._said[gate][since] = sentence

    def _tell_closings(self, gate: str) -> None:
        """Say why the gate was closed, and opened again."""
        for before, after in pairwise(self._store.policies.list(gate)):
            if after.state != before.state:
                self._tell(f"{gate}, policy {after.version}: {after.state}: {after.reason}")

    def _outcome(self, life: Life, changed: int) -> Outcome:
        """What the record says, judged by the true severities."""
        gate = life.gate
        return judged(
            life, newest_decisions(self._store, gate, limit=1_000_000),
            {id_: batch.severities for id_, batch in self._batches.items() if batch.gate == gate},
            closed=self._lengths.closed, changed=changed, step=self._lengths.step,
            labels=self._labels_at[gate], said=self._said[gate],
        )  # fmt: skip

    # ---- the processes

    @contextmanager
    def _process(self, service: str) -> Iterator[WorkerProcess]:
        process = WorkerProcess(self._environment, self._directory / f"{service}.log", service=service)
        try:
            process.wait_until_ready()
            yield process
        finally:
            process.close()

    def _streamer(self, *arguments: str) -> str:
        done = FORKS.run(
            arguments, environment=os.environ | self._environment | {"COLUMNS": "1000"},
            folder=self._directory, seconds=120,
        )  # fmt: skip
        done.check_returncode()
        return done.stdout

    def _recorded(self) -> None:
        """Wait until every message has its outcome in the record."""
        self._publisher.flush()
        self._wait(
            lambda: sum(self._store.reports.log_sizes().values()),
            lambda links: links >= self._published, "every message has an outcome", every=0.1,
        )  # fmt: skip

    def _rounds(self, count: int) -> None:
        """Wait until the recalibrator has made so many rounds that began after now."""
        since = time.time()
        for _ in range(count):
            since = self._wait(
                lambda: self._recalibrator.metrics()["streamer_recalibrator_round_timestamp_seconds"],
                lambda began, since=since: began > since, "a round of the recalibrator", every=0.5,
            )  # fmt: skip

    def _wait(
        self, ask: Callable[[], float], reached: Callable[[float], bool], what: str, *, every: float
    ) -> float:
        """Ask until it is so, as long as the answer changes now and then."""
        deadline, before = time.monotonic() + _PATIENCE, None
        while not reached(now := ask()):
            if now != before:
                deadline, before = time.monotonic() + _PATIENCE, now
            assert time.monotonic() < deadline, f"not within {_PATIENCE:g} s: {what} (stands at {now})"
            time.sleep(every)
        return now


def _label(batch: Batch, answer: str, severity: float, *, kind: str, labeller: str) -> bytes:
    said = {"kind": kind, "labeller": labeller, "labelled_at": wiring.now().isoformat()}
    return json.dumps(a_label(batch.gate, batch.id, answer, severity, **said)).encode()
