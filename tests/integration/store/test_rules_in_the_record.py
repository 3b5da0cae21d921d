"""Rules of policies, and the cut, the segment and the random numbers of batches: kept to the bit, and under seal."""

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from streamer.errors import UsageError
from streamer.gates.policy import Policy
from streamer.gates.rule import INDICATOR, BatchCut, Chance, Cut, Quantile, Rank, Segments
from streamer.recalibration.run import calibrate_gate
from tests.integration.store.conftest import START, World

LATER = START + timedelta(hours=100)

GATES: dict[str, tuple[dict[str, Any], type]] = {
    "plain": ({}, type(INDICATOR)),
    "smooth": ({"shape": "smooth", "width": 0.01}, Chance),
    "quantile": ({"shape": "quantile"}, Quantile),
    "rank": ({"shape": "rank", "unit": "response"}, Rank),
    "transductive": ({"method": "transductive", "unit": "response", "audit_draws": 2}, BatchCut),
    "segments": ({"segment_by": "language"}, Segments),
}


def calibrated(world: World, name: str, settings: dict[str, Any]) -> Policy:
    """Fill a gate with labelled batches of two languages, calibrate it, and return its policy."""
    policy = world.gate(name, alpha=0.2, **settings)
    world.commit(
        world.slice(
            world.lease(len(world.store.gates.list())),
            *(
                world.decision(
                    n, f"{name}{n}", number=len(world.store.gates.list()), policy=policy,
                    scores=(n / 60, (n + 7) / 100), metadata={"language": ("de", "en")[n % 2]},
                    drawn=(0, 1),
                )
                for n in range(40)
            ),
        )
    )  # fmt: skip
    world.store.labels.add(
        [
            replace(world.label(float(n < 12), f"{name}{n}", response_id=response), key=key)
            for n in range(40)
            for response in "ab"
            for key in [world.label(0, f"{name}{n}").key._replace(gate=name)]
        ],
        now=START,
    )
    store = world.store.calibration
    run = calibrate_gate(store, world.store.gates.get(name), now=LATER, heads=store.heads())
    return store.record_run(run, by="bo", reason="first", now=LATER)


@pytest.mark.parametrize("name", GATES)
def test_a_policy_comes_back_with_its_rule(world: World, name: str) -> None:
    settings, kind = GATES[name]
    policy = calibrated(world, name, settings)
    assert isinstance(policy.rule, kind)
    assert world.store.policies.newest(name) == policy
    assert world.store.policies.active()[name].policy == policy
    (stored,) = world.rows("SELECT rule FROM policies WHERE gate = :gate AND version = 2", gate=name)
    assert (stored[0] is None) == (kind is type(INDICATOR))
    closed = world.store.policies.close(name, by="bo", reason="stop")
    assert (closed.state, closed.rule) == ("closed", INDICATOR)
    assert world.store.policies.rollback(name, 2, by="bo", reason="go on").rule == policy.rule
    world.store.gates.revise(name, {"alpha": 0.3}, by="bo", reason="more")
    assert world.store.policies.newest(name).rule == INDICATOR
    with pytest.raises(UsageError, match=r"different settings .*alpha"):
        world.store.policies.rollback(name, 2, by="bo", reason="no")
    assert world.store.evidence.log_faults() == []


def test_what_served_a_batch_is_kept_and_sealed(world: World) -> None:
    policy = world.policy
    assert policy is not None
    plain = world.decision(0, "plain")
    segment = world.decision(1, "segment", cut=Cut("cut", -0.125), segment="dé\u2028")
    opened = world.decision(2, "open", cut=Cut.at(-math.inf), segment="")
    randomised = world.decision(3, "randomised")
    randomised = msgspec.structs.replace(
        randomised,
        responses=tuple(
            msgspec.structs.replace(one, uniform=0.1 + place / 3)
            for place, one in enumerate(randomised.responses)
        ),
    )
    world.keep(plain, segment, opened, randomised)
    assert world.rows("SELECT cut_state, cut_threshold, segment FROM decisions ORDER BY batch") == [
        (None, None, None),
        ("cut", -0.125, "dé\u2028"),
        ("open", None, ""),
        (None, None, None),
    ]
    assert world.rows('SELECT policy_state, lambda, segment, shape FROM v_decisions ORDER BY "offset"') == [
        ("closed", None, None, "indicator"),
        ("cut", -0.125, "dé\u2028", "indicator"),
        ("open", None, "", "indicator"),
        ("closed", None, None, "indicator"),
    ]
    found = world.rows("SELECT uniform FROM responses WHERE uniform IS NOT NULL ORDER BY position")
    assert found == [(0.1,), (0.1 + 1 / 3,)]
    assert world.store.evidence.log_faults() == []
