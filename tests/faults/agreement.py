"""What must hold of policies once nothing happens any more: the record, the thresholds topic and the workers agree.

P1 the last message of each gate's key on the compacted topic is the message about its newest trusted policy.
P2 every worker decides with that policy.
P3 what is decided from now on names it, and ships nothing that it does not ship.
"""

import time
from collections.abc import Sequence

from streamer import wiring
from streamer.errors import BadMessage
from streamer.events.actions import ActionsV1, decode_action
from streamer.events.thresholds import decode_threshold, policy_from_event
from streamer.gates.gate import gate_batch
from streamer.gates.policy import Policy
from streamer.signing.policies import NO_KEYS, PolicyKeys, PolicyVersion
from tests.faults import oracle
from tests.faults.site import GATE, Site, publish, wait_until
from tests.faults.worker_process import WorkerProcess


def newest_trusted(site: Site, gate: str = GATE, keys: PolicyKeys = NO_KEYS) -> PolicyVersion:
    """The newest policy of a gate that the record has and the keys trust."""
    return [one for one in site.store.policies.every_version(gate) if keys.refusal(one) is None][-1]


def disagreements(
    site: Site, *, keys: PolicyKeys = NO_KEYS, workers: Sequence[WorkerProcess] | None = None
) -> list[str]:
    """Say where P1 or P2 do not hold now, of every gate of the site; nobody need to have stopped for it."""
    named, found = wiring.topics(site.settings), []
    last: dict[bytes | None, bytes | None] = {}
    for record in oracle.read_all(wiring.connection(site.settings), named.thresholds):
        last[record.key] = record.value
    for gate in site.store.gates.list():
        version = newest_trusted(site, gate.gate, keys)
        policy = version.active.policy
        said = _said(last.get(gate.gate.encode()))
        if said != (policy, version.signature):
            found.append(f"P1: the topic says last of {gate.gate}: {said}, the record has {policy}")
        for worker in [one for one in site.workers if not one.ended] if workers is None else workers:
            found += _of_worker(worker, policy)
    return found


def _said(value: bytes | None) -> tuple[Policy, str | None] | str:
    try:
        event = decode_threshold(value)
        return policy_from_event(event), event.signature
    except BadMessage as bad:
        return bad.code


def _of_worker(worker: WorkerProcess, policy: Policy) -> list[str]:
    metrics = worker.metrics()
    label = f'{{gate="{policy.gate}"}}'
    shown = (
        metrics.get(f"streamer_policy_version{label}"),
        metrics.get(f'streamer_policy_state{{gate="{policy.gate}",state="{policy.state}"}}'),
        metrics.get(f"streamer_policy_lambda_ratio{label}"),
        metrics.get(f"streamer_policy_alpha_ratio{label}"),
    )
    expected = (policy.version, 1, policy.threshold, policy.settings.alpha)
    return [] if shown == expected else [f"P2: a worker has {shown}, which should be {expected}"]


def agree(
    site: Site,
    *,
    keys: PolicyKeys = NO_KEYS,
    workers: Sequence[WorkerProcess] | None = None,
    within: float = 40,
    probe: int | None = None,
) -> Policy:
    """Wait until P1 and P2 hold, then assert P3 with ten batches; returns the policy of the site's own gate.

    Parameters
    ----------
    keys : public keys that workers have; by default every policy is trusted.
    workers : by default those of the site that run.
    within : seconds that it may take.
    probe : number of the first of ten batches that nobody has published yet; None: P3 is not looked at.
    """
    deadline = time.monotonic() + within
    while found := disagreements(site, keys=keys, workers=workers):
        assert time.monotonic() < deadline, f"not within {within:g} s:\n" + "\n".join(found)
        time.sleep(0.3)
    active = newest_trusted(site, GATE, keys).active
    assert active is not None
    if probe is not None:
        decided_by(site, active.policy, probe)
    return active.policy


def decided_by(site: Site, policy: Policy, first: int, count: int = 10) -> None:
    """Assert that batches which are published now are decided by this policy, and as it says."""
    before = site.decided()
    publish(site, first, count)
    wait_until(lambda: site.decided() == before + count, "the batches are decided")
    for action in actions_of(site, first, count):
        assert action.policy.version == policy.version, "P3"
        assert action.enforced == (policy.settings.mode == "enforce"), "P3"
        shipped = gate_batch(
            [r.score for r in action.responses if r.score is not None],
            unit=policy.settings.unit, state=policy.state, threshold=policy.threshold,
        ).shipped  # fmt: skip
        assert tuple(r.action == "ship" for r in action.responses) == shipped, "P3"


def actions_of(site: Site, first: int, count: int) -> list[ActionsV1]:
    """The published actions of batches, once all are there."""
    wanted = {f"batch-{number}" for number in range(first, first + count)}
    found: dict[str, ActionsV1] = {}

    def there() -> bool:
        records = oracle.read_all(wiring.connection(site.settings), wiring.topics(site.settings).actions)
        found.update((one.batch_id, one) for one in (decode_action(record.value) for record in records))
        return wanted <= set(found)

    wait_until(there, "all actions are published")
    return [found[name] for name in sorted(wanted)]
