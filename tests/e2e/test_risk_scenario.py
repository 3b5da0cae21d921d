"""A gate's story on real Kafka, PostgreSQL and Prometheus: labels, recalibrations, a worse population, and back."""

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamer import wiring
from streamer.gates.settings import GateSettings
from streamer.recalibration.gate_status import GateStatus
from streamer.research.experiments.stored_encoder import StoredEncoder
from streamer.settings.settings import load_settings
from streamer.store import Store
from tests.e2e.scenario.labeller import Labellers
from tests.e2e.scenario.population import Prompt, read_prompts, steady, worse
from tests.e2e.scenario.timeline import Timeline
from tests.faults import oracle
from tests.faults.agreement import disagreements
from tests.faults.worker_process import WorkerProcess
from tests.promql import RULE_FILES, expressions
from tests.services.kafka import KafkaBroker
from tests.services.prometheus import Prometheus
from tests.services.service_forks import FORKS

GATE = "support-bot"
ALPHA = 0.1

ALARM_DELTA = 0.001
"""Chance of a false alarm. Which prompts come first depends on how partitions take turns, so the story would end early now
and then with a chance that people are content with."""

EMPTY_BY_DESIGN = (
    "streamer-pipeline / Cache hits /",
    "streamer-pipeline / HTTP requests",
    "streamer-pipeline / At the desk /",
    "streamer-pipeline / Oldest at the desk /",
    "streamer-pipeline / Signing and witnesses /",
    "rules / gate:streamer_desk_waiting:max",
)
"""How the places of expressions begin that have nothing to say here: nothing is encoded, since embeddings come with the
events, nothing is asked by HTTP, no gate has a desk, and nothing is signed."""

TROUBLES = ("StreamerRiskAlarm", "StreamerGateClosed", "StreamerProposalWaiting")
"""Alerts that this story has a reason for. The others tell of troubles that it does not have, and are empty by design."""

pytestmark = pytest.mark.slow


class World:
    """The services, the traffic and the story."""

    def __init__(self, prefix: str, broker: KafkaBroker, database_url: str, directory: Path) -> None:
        self.settings = load_settings(
            kafka={"bootstrap_servers": broker.bootstrap, "topic_prefix": prefix, "replication_factor": 1},
            database={"url": database_url},
        )
        self.environment = {
            "STREAMER_KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap,
            "STREAMER_KAFKA_TOPIC_PREFIX": prefix, "STREAMER_KAFKA_GROUP_ID": f"{prefix}workers",
            "STREAMER_KAFKA_REPLICATION_FACTOR": "1", "STREAMER_DATABASE_URL": database_url,
            "STREAMER_ENCODER_NAME": "none", "STREAMER_LOGGING_FORMAT": "json",
        }  # fmt: skip
        self.directory = directory
        self.truth: dict[tuple[str, str], float] = {}
        self.timeline = Timeline()
        self.store: Store
        self.workers: list[WorkerProcess] = []
        self._numbers = itertools.count(1)

    def start(self, service: str, stack: ExitStack) -> WorkerProcess:
        """Start a service and wait until it is ready."""
        process = WorkerProcess(self.environment, self.directory / f"{service}.log", service=service)
        stack.callback(process.close)
        process.wait_until_ready()
        return process

    def streamer(self, *arguments: str) -> list[Any]:
        """Run a command as a person would, with `--json`, and return the lines that it printed."""
        done = FORKS.run(
            [*arguments, "--json"],
            environment=os.environ | self.environment,
            folder=self.directory,
            seconds=240,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def publish(self, prompts: Iterator[Prompt], count: int) -> None:
        """Publish batches; their severities become known to the labellers first."""
        topic = wiring.topics(self.settings).responses
        with wiring.publisher(self.settings) as publisher:
            for prompt in itertools.islice(prompts, count):
                batch = f"batch-{next(self._numbers):05}"
                for position, severity in enumerate(prompt.severities):
                    self.truth[batch, f"r{position}"] = severity
                publisher.send(topic, json.dumps(prompt.event(GATE, batch)).encode(), key=batch.encode())

    def all_decided(self) -> dict[str, Any] | None:
        """The decisions by batch, once every batch that was published has one."""
        decided = self.store.reports.decided_batches(GATE)
        return decided if decided.keys() == {batch for batch, _ in self.truth} else None

    def groups(self) -> int:
        """Labelled groups that the newest run read, of those decided since the newest alarm."""
        last = self._status().last
        return last.groups if last is not None and last.usable else 0

    def _status(self) -> GateStatus:
        (status,) = self.store.recalibration_status.statuses(now=wiring.now())
        return status

    def wait(self, reached: Callable[[], Any], what: object, seconds: float = 240) -> Any:
        """Ask until it is so, and return the answer."""
        deadline = time.monotonic() + seconds
        while not (found := reached()):
            if time.monotonic() > deadline:
                status = self._status()
                alerts = [one.alert.message for one in self.store.alerts.list(GATE)]
                stands = f"{status.new_groups} new groups since {status.last}, alerts {alerts}"
                pytest.fail(f"not within {seconds:g} s: {what}; {stands}")
            time.sleep(0.2)
        return found


@pytest.mark.timeout(900)
def test_from_the_first_label_to_an_alarm_and_back(
    kafka_broker: KafkaBroker,
    postgres_database_url: str,
    topic_prefix: str,
    prometheus: Prometheus,
    stored_encoder: StoredEncoder,
    triviaqa_path: Path,
    tmp_path: Path,
):
    prompts = read_prompts(triviaqa_path, stored_encoder.rows, questions=400, each=3, answers=4)
    rng = np.random.default_rng(20)
    world = World(topic_prefix, kafka_broker, postgres_database_url, tmp_path)
    wiring.migrate(world.settings)
    wiring.create_topics(world.settings)
    with ExitStack() as stack:
        store = world.store = stack.enter_context(wiring.open_store(world.settings))
        store.gates.create(
            GATE,
            GateSettings(
                encoder="external:all-MiniLM-L6-v2", embeddings="accept",
                dimension=len(prompts[0].embeddings[0]), alpha=ALPHA, mode="enforce",
                audit_probability=0.5, label_deadline_seconds=6, monitor_deadline_seconds=15,
                recalibrate="propose", recalibrate_every_seconds=None, recalibrate_after_groups=110,
                least_groups=60, alarm_delta=ALARM_DELTA, max_lambda_step=1, max_ship_rate_step=1,
            ),
            by="risk owner",
            reason="a new gate",
        )  # fmt: skip
        worker, recalibrator = (world.start(service, stack) for service in ("worker", "recalibrator"))
        prometheus.start(
            {
                "streamer-worker": [worker.url.removeprefix("http://")],
                "streamer-recalibrator": [recalibrator.url.removeprefix("http://")],
            },
            rules=RULE_FILES,
            every_seconds=0.5,
        )
        people = stack.enter_context(
            Labellers(world.settings, GATE, world.truth, seed=21, mean_seconds=1.0, never=0.01)
        )
        tell = world.timeline.tell
        tell("worker, recalibrator, Prometheus are up; the gate is closed and draws half of all batches")

        def gauge(name: str, **labels: str) -> float | None:
            chosen = ",".join(f'{key}="{value}"' for key, value in {"gate": GATE, **labels}.items())
            return prometheus.value(f"max(streamer_{name}{{{chosen}}})")

        def runs() -> float:
            found = prometheus.value(
                f'sum(streamer_calibration_runs_total{{gate="{GATE}",outcome!="failed"}})'
            )
            return found or 0.0

        def another_run(more: int = 1) -> Callable[[], bool]:
            """Whether a run has read so many groups more than the newest one has now."""
            before = world.groups()
            return lambda: world.groups() >= before + more

        # -- the first policy: proposed by the service, put in force by a person
        world.publish(steady(prompts, rng), 300)
        proposal = world.wait(lambda: store.calibration.proposal(GATE), "a proposal")
        tell(
            f"recalibrator proposes {proposal.cut.threshold:.3f} from {proposal.groups} labelled groups",
            mark="proposed",
        )
        assert store.policies.newest(GATE).state == "closed"
        world.wait(lambda: gauge("proposal_pending") == 1, "Prometheus sees the proposal")
        world.streamer("threshold", "activate", GATE, "--by", "risk owner", "--reason", "looks right")
        changes = ("--recalibrate", "auto", "--recalibrate-after-groups", "60")
        world.streamer("gate", "set", GATE, *changes, "--by", "risk owner", "--reason", "it may go on")
        first = store.policies.newest(GATE)
        assert (first.state, first.calibrated) == ("cut", True)
        tell(
            f"a person puts it in force: policy {first.version}, lambda {first.threshold:.3f}",
            mark="activated",
            at=first.valid_from.timestamp(),
        )
        world.wait(lambda: gauge("policy_version") == first.version, "the worker decides with it")

        # -- three recalibrations by the service, as labels come
        for number in (1, 2, 3):
            reached = another_run(60)
            world.publish(steady(prompts, rng), 200)
            world.wait(reached, f"recalibration {number}")
            now = store.policies.newest(GATE)
            tell(
                f"recalibration {number}: policy {now.version}, {now.state}, lambda {now.threshold}",
                mark=f"run {number}",
            )
        world.wait(lambda: runs() >= 4, "Prometheus sees the runs")
        serving = store.policies.newest(GATE)
        assert serving.state == "cut"
        assert serving.threshold is not None
        world.wait(lambda: (gauge("monitored_decisions") or 0) >= 600, "monitoring has read what was decided")
        lower, upper = gauge("exposure_risk_lower_ratio"), gauge("exposure_risk_upper_ratio")
        tell(
            f"exposure risk of {gauge('exposure_risk_ratio'):.3f}, in [{lower:.3f}, {upper:.3f}], budget {ALPHA}"
        )
        assert lower is not None
        assert lower <= ALPHA
        assert gauge("alarm_raised", alarm="risk") == 0

        # -- a worse population: answers that agree on something wrong
        band = (serving.threshold, 0.93)
        bad = worse(prompts, rng, between=band, times=20)
        tell("the population changes: answers agree on something wrong twenty times as often", mark="worse")
        with people.at_rest():  # the labels of what is wrong come when all of it is out
            world.publish(bad, 500)
            world.wait(world.all_decided, "the worse population is decided")
        world.wait(lambda: store.policies.newest(GATE).created_by == "monitor", "the alarm closes the gate")
        closed = store.policies.newest(GATE)
        assert closed.state == "closed"
        tell(
            f"the risk alarm closes the gate: policy {closed.version} ({closed.reason})",
            mark="alarm, closed",
            at=closed.valid_from.timestamp(),
        )
        world.wait(lambda: gauge("alarm_raised", alarm="risk") == 1, "Prometheus sees the alarm")
        world.wait(
            lambda: (gauge("exposure_risk_lower_ratio") or 0) > ALPHA, "the interval has left the budget"
        )
        tell(
            f"the whole interval is above the budget: [{gauge('exposure_risk_lower_ratio'):.3f}, "
            f"{gauge('exposure_risk_upper_ratio'):.3f}]",
            mark="over budget",
        )
        raised = [one for one in world.streamer("alert", "list", GATE) if one["kind"] == "risk"]
        assert len(raised) == 1

        # -- labels of the new population open it again, at a safer threshold
        # A run that cannot show yet that the score tells good answers from bad ones leaves the gate closed until more labels come.
        opened, count = closed, 300
        while opened.version == closed.version:
            assert count <= 1800, "eleven runs left the gate closed"
            reached = another_run()
            world.publish(bad, 300 if count == 300 else 150)
            world.wait(
                lambda reached=reached: reached() or store.policies.newest(GATE).version > closed.version,
                "a run on the new population",
            )
            opened, count = store.policies.newest(GATE), count + 150
        assert (opened.state, opened.created_by) == ("cut", "recalibrator")
        assert opened.threshold is not None
        assert opened.threshold >= serving.threshold
        groups = len(store.calibration.inputs(opened.calibration_run))
        tell(
            f"recalibrated on {groups} groups decided since: "
            f"policy {opened.version}, lambda {opened.threshold:.3f}",
            mark="reopened",
            at=opened.valid_from.timestamp(),
        )
        world.wait(lambda: gauge("policy_version") == opened.version, "the worker decides with it")
        known = world.wait(world.all_decided, "all so far are decided")
        world.publish(bad, 300)
        decided = world.wait(world.all_decided, "all are decided")
        losses = [
            sum(world.truth[batch, f"r{i}"] for i, shipped in enumerate(decided[batch].shipped) if shipped)
            for batch in decided.keys() - known.keys()
        ]
        served = np.mean([any(decided[batch].shipped) for batch in decided.keys() - known.keys()])
        tell(f"the new population, 300 batches more: {served:.0%} served, exposure {np.mean(losses):.3f}")
        # Over calibrations the mean is at most alpha; one calibration and one sample of batches scatter around it.
        scatter = np.sqrt(ALPHA * (1 - ALPHA) * (1 / len(losses) + 1 / groups))
        assert np.mean(losses) <= ALPHA + 4.76 * scatter
        assert people.overtaken > 100, "labels came in the order of decisions"
        people.check()

        world.wait(lambda: store.reports.outbox_pending() == 0, "all is published")
        named = wiring.topics(world.settings)
        world.wait(lambda: not disagreements(world, workers=[worker]), "record, topic and worker agree")
        told = [
            json.loads(record.value or b"{}")
            for record in oracle.read_all(wiring.connection(world.settings), named.alerts)
        ]
        assert [one["alert_id"] for one in told if one["kind"] == "risk"] == [raised[0]["alert_id"]]

        # What is watched is shown some rounds and scrapes after it happened.
        troubles = {f"rules / {name}" for name in TROUBLES}
        silent = {
            f"{one.place}: {one.text}": one.text
            for one in expressions(GATE, interval="20s")
            if one.place in troubles or (one.kind != "alert" and not one.place.startswith(EMPTY_BY_DESIGN))
        }

        def all_have_had_data() -> bool:
            for place, text in list(silent.items()):
                if prometheus.query_range(text, start=world.timeline.began, end=time.time(), step=1.0):
                    del silent[place]
            return not silent

        world.wait(all_have_had_data, silent)
        fired = prometheus.query_range(
            'ALERTS{alertname="StreamerRiskAlarm"}', start=world.timeline.began, end=time.time(), step=1.0
        )
        assert {one["metric"]["gate"] for one in fired} == {GATE}
