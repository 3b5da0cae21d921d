"""The demo's story, on real parts: a closed gate collects an audit sample, is calibrated, opens, and is measured."""

import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import msgspec

from streamer.calibration.registry import every
from streamer.cli.dev.embedded import EmbeddedStep
from streamer.clouds.cloud import (
    Cloud,
    cloud_labels,
    cloud_message,
    cloud_to_event,
    severity_kind,
    split_clouds,
)
from streamer.clouds.measurement import DecidedBatch, measure
from streamer.errors import StreamerError, Unavailable, UsageError
from streamer.events.labels import encode_label
from streamer.events.limits import Limits
from streamer.events.responses import encode_responses
from streamer.gates.declared import Unit
from streamer.gates.policy import Policy
from streamer.gates.settings import GateSettings
from streamer.report.page import DemoRun
from streamer.scoring.registry import CHOICE
from streamer.scoring.signals.signal_list import SignalList
from streamer.settings.settings import Settings
from streamer.store import Store
from streamer.stream.publisher import Publisher
from streamer.wiring.encoders import encoder_identity
from streamer.wiring.parts import now, publish_pending, publisher, recalibrate, topics

GATE = "demo"
LABELLER = "demo"

_AHEAD = 400
"""Batches that may be published and undecided: the embedded broker keeps a few MiB per partition only."""

_LABELS_AHEAD = 8000
_PATIENCE_SECONDS = 120.0
_POLL_SECONDS = 0.05


class Stalled(StreamerError):
    """Nothing moved for too long."""


class DemoObserver(Protocol):
    """Somebody who looks on."""

    def phase(self, name: str, total: int | None = None) -> None:
        """A part of the story begins; `total` things will be done in it."""

    def done(self, count: int, *, shipped: int | None = None) -> None:
        """So many things of this phase are done, and so many units were shipped so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the gate has, and the seed: of the split, of simulated answers and of the gate's random weights."""

    unit: Unit
    alpha: float
    method: str
    seed: int


def check(clouds: Sequence[Cloud], limits: Limits) -> None:
    """Check before any part is started whether these clouds can be shown.

    Raises `UsageError` where there are fewer than two, none has a severity, or a worker with these
    limits would refuse one.
    """
    if len(clouds) < 2:
        raise UsageError(f"{len(clouds)} cloud is too few: one half calibrates and the other is decided")
    _kind(clouds)
    for cloud in clouds:
        cloud_message(cloud, GATE, limits)


def _kind(clouds: Sequence[Cloud]) -> str:
    """The severities' kind. A gate is controlled by one, so a file of several kinds counts as one of its own."""
    kinds = {r.kind for cloud in clouds for r in cloud.responses if r.severity is not None}
    return "mixed" if len(kinds) > 1 else severity_kind(clouds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """What is shown on an embedded step, which `settings` reach, and its record: clouds such as `check` accepts, of which the
    first half of a seeded shuffle calibrates.

    `origin` : where they come from, one sentence; `simulated` says whether a program made them up.
    """

    settings: Settings
    step: EmbeddedStep
    store: Store
    watch: DemoObserver
    clouds: Sequence[Cloud]
    origin: str
    simulated: bool
    asked: Asked

    def play(self) -> DemoRun:
        """Play the story to its end and measure the second half.

        Raises `Stalled` or `WorkerDied` where a part did not do its work.
        """
        kind, asked, encoder = _kind(self.clouds), self.asked, encoder_identity(self.settings).id
        by_signals = every()[asked.method].of_signals
        reads = {"scorer": CHOICE, "signals": SignalList().text} if by_signals else {}
        first, second = split_clouds(self.clouds, asked.seed)
        settings = GateSettings(
            unit=asked.unit,
            encoder=encoder,
            severity_kind=kind,
            alpha=asked.alpha,
            method=asked.method,
            **reads,
            mode="enforce",
            audit_probability=1.0,
            audit_draws=256,
        )
        self.store.gates.create(GATE, settings, by=LABELLER, reason="streamer demo", seed=asked.seed)
        stopwatch = _Stopwatch()
        with publisher(self.settings) as publishing:
            with stopwatch.running():
                self._stream(first, publishing, "first half, gate closed: score and record")
            self._label(first, kind, publishing)
            self.watch.phase("recalibrate from the audit sample")
            calibrated = recalibrate(self.settings, GATE, by=LABELLER, reason="streamer demo")
            publish_pending(self.settings)
            policy = calibrated.after or calibrated.before
            self._wait_for_policy(policy)
            with stopwatch.running():
                self._stream(second, publishing, f"second half, gate {policy.state}: score, gate and record")
        decided = self._decided(second)
        return DemoRun(
            unit=asked.unit,
            alpha=asked.alpha,
            method=asked.method,
            state=policy.state,
            threshold=policy.threshold,
            guarantee=policy.guarantee,
            calibration=calibrated.run.labelled_groups,
            decided=decided,
            report=measure(decided, asked.unit),
            origin=self.origin,
            simulated=self.simulated,
            severity_kind=kind,
            encoder=encoder,
            database=self.step.database_url,
            seconds=stopwatch.seconds,
            batches_per_second=len(self.clouds) / stopwatch.seconds,
        )

    def _stream(self, clouds: Sequence[Cloud], publishing: Publisher, name: str) -> None:
        self.watch.phase(name, len(clouds))
        before, shipped_before = self.store.reports.decided_and_shipped(GATE)

        def look() -> int:
            decided, shipped = self.store.reports.decided_and_shipped(GATE)
            self.watch.done(decided - before, shipped=shipped - shipped_before)
            return decided - before

        topic = topics(self.settings).responses
        for sent, cloud in enumerate(clouds):
            if sent >= _AHEAD and sent % 50 == 0:
                self._wait_until(sent - _AHEAD, look)
            event = cloud_to_event(cloud, GATE)
            publishing.send(topic, encode_responses(event), key=cloud.batch_id.encode())
        publishing.flush()
        self._wait_until(len(clouds), look)

    def _label(self, clouds: Sequence[Cloud], kind: str, publishing: Publisher) -> None:
        at = now()
        labels = [
            msgspec.structs.replace(label, kind=kind)
            for cloud in clouds
            for label in cloud_labels(cloud, GATE, LABELLER, at)
        ]
        self.watch.phase("severities of the first half, by the labels topic", len(labels))

        def look() -> int:
            recorded = self.store.labels.counts().get((GATE, kind), 0)
            self.watch.done(recorded)
            return recorded

        topic = topics(self.settings).labels
        for sent, label in enumerate(labels):
            if sent >= _LABELS_AHEAD and sent % 500 == 0:
                self._wait_until(sent - _LABELS_AHEAD, look)
            publishing.send(topic, encode_label(label), key=label.batch_id.encode())
        publishing.flush()
        self._wait_until(len(labels), look)

    def _wait_until(self, count: int, progress: Callable[[], int]) -> None:
        """Wait until so many are done, as long as something moves; a stop of two minutes is an error."""
        seen, since = progress(), time.monotonic()
        while seen < count:
            self.step.check_worker()
            time.sleep(_POLL_SECONDS)
            present = progress()
            if present != seen:
                seen, since = present, time.monotonic()
            elif time.monotonic() - since > _PATIENCE_SECONDS:
                raise Stalled(
                    f"the worker made no progress for {_PATIENCE_SECONDS:.0f} s; its log is {self.step.log_path}"
                )

    def _wait_for_policy(self, policy: Policy) -> None:
        """Wait until the worker's own metrics show the version: from then on it decides with it."""
        wanted = f'streamer_policy_version{{gate="{policy.gate}"}} {policy.version}.0'
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            self.step.check_worker()
            with urllib.request.urlopen(f"{self.step.metrics_url}/metrics", timeout=5) as answer:  # noqa: S310
                if wanted in answer.read().decode().splitlines():
                    return
            time.sleep(_POLL_SECONDS)
        raise Unavailable(
            f"the worker did not take up policy {policy.version}; its log is {self.step.log_path}"
        )

    def _decided(self, clouds: Sequence[Cloud]) -> list[DecidedBatch]:
        """What the record says of the second half, with the severities that the file knows of it."""
        recorded = self.store.reports.decided_batches(GATE)
        return [
            DecidedBatch(
                batch_id=cloud.batch_id,
                prompt=cloud.question,
                texts=cloud.texts,
                scores=recorded[cloud.batch_id].scores,
                shipped=recorded[cloud.batch_id].shipped,
                severities=cloud.severities,
            )
            for cloud in clouds
        ]


class _Stopwatch:
    """Adds up the time of the blocks that it runs over."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start
