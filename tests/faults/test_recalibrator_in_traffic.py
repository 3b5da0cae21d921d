"""From labels on the topic to what workers decide by, with nobody at the keyboard but whoever approves."""

from collections.abc import Callable

import pytest

from streamer import wiring
from streamer.gates.policy import RECALIBRATOR
from tests.faults.agreement import disagreements
from tests.faults.site import GATE, Site, publish, wait_until
from tests.faults.test_recalibration_killed import label, severity_of
from tests.faults.worker_process import WorkerProcess


def tell(site: Site, first: int, count: int, severity: Callable[[int, int], float]) -> None:
    with wiring.publisher(site.settings) as publisher:
        for n in range(first, first + count):
            for r in range(4):
                key, value = label(n, r, severity(n, r))
                publisher.send(wiring.topics(site.settings).labels, value, key=key)


@pytest.mark.slow
def test_labels_on_the_topic_become_a_proposal_a_policy_and_decisions(site: Site) -> None:
    site.command(
        "gate",
        "set",
        GATE,
        "--alpha",
        "0.2",
        "--recalibrate-after-groups",
        "15",  # about half of the batches are drawn: of 80, fewer than 15 once in 10^8 times
        "--recalibrate-every",
        "none",
        "--on-alarm",
        "report",  # by draws the alarm may be first, and it closes the gate
    )
    worker = site.start_worker()
    publish(site, 0, 80)
    tell(site, 0, 80, severity_of)
    # A run in between would count what is still on its way as the worst, and hold nearly everything from then on.
    wait_until(lambda: site.decided() == 80 and not site.store.labels.pending().get(GATE), "all is labelled")
    recalibrator = WorkerProcess(
        site.environment, site.directory / "recalibrator.log", service="recalibrator"
    )
    site.stack.callback(recalibrator.close)
    wait_until(lambda: site.store.calibration.proposal(GATE) is not None, "there is a proposal")
    closed = site.store.policies.newest(GATE)
    assert not closed.calibrated
    recalibrator.wait_until_ready()
    shown = f'{{gate="{GATE}"}}'
    wait_until(lambda: recalibrator.metrics().get(f"streamer_proposal_pending{shown}") == 1, "it is shown")
    said = site.command("threshold", "show", GATE).stderr
    assert "It waits for a person: the gate's rule is propose" in said.replace("\n", " ")
    found = site.command("doctor").stdout
    assert "which waits for a person: the gate's rule is propose" in found.replace("\n", " ")
    site.command("threshold", "activate", GATE, "--by", "ana")
    opened = site.store.policies.newest(GATE)
    assert opened.state == "cut"

    # From now on by itself; then answers get worse.
    site.command("gate", "set", GATE, "--recalibrate", "auto")
    publish(site, 80, 80)
    tell(site, 80, 80, lambda _n, _r: 1.0)
    wait_until(lambda: site.store.policies.newest(GATE).created_by == RECALIBRATOR, "the service acts")
    tightened = site.store.policies.newest(GATE)
    assert tightened.threshold is None or tightened.threshold > (opened.threshold or 0)
    shown_version = f'streamer_policy_version{{gate="{GATE}"}}'
    wait_until(lambda: worker.metrics()[shown_version] >= tightened.version, "the worker takes it up")
    wait_until(lambda: not disagreements(site), "record, topic and worker agree")
    outcomes = {
        name: value
        for name, value in recalibrator.metrics().items()
        if name.startswith("streamer_calibration_runs_total") and value
    }
    assert any('outcome="proposed"' in name for name in outcomes)
    assert any('outcome="applied"' in name for name in outcomes)
    assert recalibrator.terminate() == 0
    site.check()
