"""The demo's story, on real parts: a closed gate collects an audit sample, is calibrated, opens, and is measured."""

import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
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
from streamer.events.topics import Topics
from streamer.gates.declared import Unit
from streamer.gates.policy import Policy
from streamer.gates.settings import GateSettings
from streamer.recalibration.run import Recalibration
from streamer.report.page import DemoRun
from streamer.scoring.registry import CHOICE
from streamer.scoring.signals.signal_list import SignalList
from streamer.store import Store
from streamer.stream.publisher import Publisher

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What is to be shown: clouds such as `check` accepts, of which the first half of a seeded shuffle calibrates.

    `origin` : where they come from, one sentence; `simulated` says whether a program made them up.
    """

    clouds: Sequence[Cloud]
    origin: str
    simulated: bool
    asked: Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The real parts that the story plays on."""

    step: EmbeddedStep
    store: Store
    topics: Topics
    publisher: Callable[[], AbstractContextManager[Publisher]]
    recalibrate: Callable[[str], Recalibration]
    encoder_id: str
    clock: Callable[[], datetime]


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


def play(story: Story, stage: Stage, watch: DemoObserver) -> DemoRun:
    """Play the story to its end and measure the second half.

    Raises `Stalled` or `WorkerDied` where a part did not do its work.
    """
    kind, asked = _kind(story.clouds), story.asked
    by_signals = every()[asked.method].of_signals
    reads = {"scorer": CHOICE, "signals": SignalList().text} if by_signals else {}
    first, second = split_clouds(story.clouds, asked.seed)
    stage.store.gates.create(
        GATE,
        GateSettings(
            unit=asked.unit,
            encoder=stage.encoder_id,
            severity_kind=kind,
            alpha=asked.alpha,
            method=asked.method,
            **reads,
            mode="enforce",
            audit_probability=1.0,
            audit_draws=256,
        ),
        by=LABELLER,
        reason="streamer demo",
        seed=asked.seed,
    )
    stopwatch = _Stopwatch()
    with stage.publisher() as publisher:
        with stopwatch.running():
            _stream(first, stage, publisher, watch, "first half, gate closed: score and record")
        _label(first, kind, stage, publisher, watch)
        watch.phase("recalibrate from the audit sample")
        calibrated = stage.recalibrate(GATE)
        policy = calibrated.after or calibrated.before
        _wait_for_policy(policy, stage)
        with stopwatch.running():
            _stream(
                second, stage, publisher, watch, f"second half, gate {policy.state}: score, gate and record"
            )
    decided = _decided(second, stage)
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
        origin=story.origin,
        simulated=story.simulated,
        severity_kind=kind,
        encoder=stage.encoder_id,
        database=stage.step.database_url,
        seconds=stopwatch.seconds,
        batches_per_second=len(story.clouds) / stopwatch.seconds,
    )


def _kind(clouds: Sequence[Cloud]) -> str:
    """The severities' kind. A gate is controlled by one, so a file of several kinds counts as one of its own."""
    kinds = {r.kind for cloud in clouds for r in cloud.responses if r.severity is not None}
    return "mixed" if len(kinds) > 1 else severity_kind(clouds)


def _stream(
    clouds: Sequence[Cloud], stage: Stage, publisher: Publisher, watch: DemoObserver, name: str
) -> None:
    watch.phase(name, len(clouds))
    before, shipped_before = stage.store.reports.decided_and_shipped(GATE)

    def look() -> int:
        decided, shipped = stage.store.reports.decided_and_shipped(GATE)
        watch.done(decided - before, shipped=shipped - shipped_before)
        return decided - before

    for sent, cloud in enumerate(clouds):
        if sent >= _AHEAD and sent % 50 == 0:
            _wait_until(sent - _AHEAD, look, stage)
        event = cloud_to_event(cloud, GATE)
        publisher.send(stage.topics.responses, encode_responses(event), key=cloud.batch_id.encode())
    publisher.flush()
    _wait_until(len(clouds), look, stage)


def _label(
    clouds: Sequence[Cloud], kind: str, stage: Stage, publisher: Publisher, watch: DemoObserver
) -> None:
    at = stage.clock()
    labels = [
        msgspec.structs.replace(label, kind=kind)
        for cloud in clouds
        for label in cloud_labels(cloud, GATE, LABELLER, at)
    ]
    watch.phase("severities of the first half, by the labels topic", len(labels))

    def look() -> int:
        recorded = stage.store.labels.counts().get((GATE, kind), 0)
        watch.done(recorded)
        return recorded

    for sent, label in enumerate(labels):
        if sent >= _LABELS_AHEAD and sent % 500 == 0:
            _wait_until(sent - _LABELS_AHEAD, look, stage)
        publisher.send(stage.topics.labels, encode_label(label), key=label.batch_id.encode())
    publisher.flush()
    _wait_until(len(labels), look, stage)


def _wait_until(count: int, progress: Callable[[], int], stage: Stage) -> None:
    """Wait until so many are done, as long as something moves; a stop of two minutes is an error."""
    seen, since = progress(), time.monotonic()
    while seen < count:
        stage.step.check_worker()
        time.sleep(_POLL_SECONDS)
        present = progress()
        if present != seen:
            seen, since = present, time.monotonic()
        elif time.monotonic() - since > _PATIENCE_SECONDS:
            raise Stalled(
                f"the worker made no progress for {_PATIENCE_SECONDS:.0f} s; its log is {stage.step.log_path}"
            )


def _wait_for_policy(policy: Policy, stage: Stage) -> None:
    """Wait until the worker's own metrics show the version: from then on it decides with it."""
    wanted = f'streamer_policy_version{{gate="{policy.gate}"}} {policy.version}.0'
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        stage.step.check_worker()
        with urllib.request.urlopen(f"{stage.step.metrics_url}/metrics", timeout=5) as answer:  # noqa: S310
            if wanted in answer.read().decode().splitlines():
                return
        time.sleep(_POLL_SECONDS)
    raise Unavailable(f"the worker did not take up policy {policy.version}; its log is {stage.step.log_path}")


def _decided(clouds: Sequence[Cloud], stage: Stage) -> list[DecidedBatch]:
    """What the record says of the second half, with the severities that the file knows of it."""
    recorded = stage.store.reports.decided_batches(GATE)
    decided = []
    for cloud in clouds:
        batch = recorded[cloud.batch_id]
        decided.append(
            DecidedBatch(
                batch_id=cloud.batch_id,
                prompt=cloud.question,
                texts=cloud.texts,
                scores=batch.scores,
                shipped=batch.shipped,
                severities=cloud.severities,
            )
        )
    return decided


class _Stopwatch:
    """Adds up the time of the blocks that it runs over."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start
