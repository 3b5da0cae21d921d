"""What a worker records and publishes under each rule: the cut of this batch, its segment, its random numbers."""

import math
from dataclasses import replace
from typing import Any

import pytest

from streamer.events.actions import decode_action
from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import Policy
from streamer.gates.policy_gate import PolicyGate
from streamer.gates.rule import INDICATOR, BatchCut, Chance, Cut, Quantile, Rank, Rule, Segments
from streamer.gates.uniforms import uniforms_for
from streamer.journal import BatchDecision
from tests.unit.deciding.test_decider import World, active, batch, raw

SCORES = (0.9, 0.4, 0.6)


def decided(
    rule: Rule, *, metadata: dict[str, Any] | None = None, held: bool = False, **settings: Any
) -> BatchDecision:
    """One batch with the scores of `SCORES` under a policy with this rule."""
    state, threshold = settings.pop("cut", ("cut", 0.5))
    made = active("bot", state=state, threshold=threshold, scorer="external", encoder="none", **settings)
    world = World()
    world.sql["bot"] = replace(made, policy=replace(made.policy, rule=rule))
    event = batch("bot", metadata=metadata or {})
    for response, score in zip(event["responses"], SCORES, strict=True):
        if not held:
            response["score"] = score
    (decision,) = world.decide(raw(event))
    return decision  # type: ignore[no-any-return]


def shipped(decision: BatchDecision) -> list[bool]:
    return [response.action == "ship" for response in decision.responses]


def test_a_plain_policy_leaves_no_cut_of_its_own() -> None:
    decision = decided(Quantile(0.3), unit="response", shape="quantile")
    assert shipped(decision) == [True, False, True]
    assert (decision.cut, decision.segment) == (None, None)
    assert [response.uniform for response in decision.responses] == [None] * 3
    assert decode_action(decision.action.value).policy.segment is None


@pytest.mark.parametrize("unit", ["best", "response", "batch"])
def test_random_numbers_are_recorded_and_decide(unit: str) -> None:
    decision = decided(Chance("smooth", 0.2), unit=unit, shape="smooth")
    key = BatchKey("bot", "b-1", 1)
    uniforms = uniforms_for(b"s" * 32, key, ["r0", "r1", "r2"], unit)  # type: ignore[arg-type]
    assert tuple(response.uniform for response in decision.responses) == uniforms
    gate = PolicyGate.of(decision.policy)
    assert tuple(shipped(decision)) == gate.decide(SCORES, uniforms=uniforms).gate.shipped
    assert decision == decided(Chance("smooth", 0.2), unit=unit, shape="smooth"), "a redelivery decides alike"


def test_a_transductive_gate_records_the_cut_of_the_batch() -> None:
    rule = BatchCut(alpha=0.25, groups=3, labelled=3, levels=(0.3, 0.5), totals=(0.5, 0.0))
    decision = decided(rule, unit="response", method="transductive", cut=("cut", 1.0), audit_draws=3)
    # limit .25 x 4 = 1: at .5 the sum is 0 and c = 2/3; from .3 on it is .5 and c = 1, too much
    assert decision.cut == Cut("cut", 0.5)
    assert shipped(decision) == [True, False, True]
    event = decode_action(decision.action.value)
    assert (event.policy.state, event.policy.threshold) == ("cut", 0.5)
    everything = BatchCut(alpha=0.5, groups=3, labelled=3, levels=(-math.inf,), totals=(0.0,))
    decision = decided(everything, unit="response", method="transductive", cut=("open", None), audit_draws=3)
    assert decision.cut == Cut("open", None)
    assert decision.outcome == "ship"


def test_segments_are_recorded_and_cut_by_their_own() -> None:
    rule = Segments("language", (("de", Cut("cut", 0.8)), ("en", Cut("open", None))))

    def by(language: Any) -> BatchDecision:
        return decided(
            rule, metadata={"language": language}, unit="response", segment_by="language",
            cut=("closed", None),
        )  # fmt: skip

    for language, cut, actions, reason in (
        ("de", Cut("cut", 0.8), [True, False, False], "scored"),
        ("en", Cut("open", None), [True] * 3, "scored"),
        ("fr", Cut("closed", None), [False] * 3, "closed"),
        (None, Cut("closed", None), [False] * 3, "closed"),
    ):
        decision = by(language)
        assert (decision.cut, decision.segment, decision.reason) == (cut, language or "", reason)
        assert shipped(decision) == actions
        event = decode_action(decision.action.value)
        assert (event.policy.segment, event.policy.state) == (language or "", cut.state)
        assert event.policy.threshold == cut.threshold


def test_the_segment_is_recorded_before_anything_is_calibrated() -> None:
    decision = decided(
        INDICATOR, metadata={"language": "de"}, segment_by="language", cut=("closed", None), unit="response"
    )
    assert (decision.cut, decision.segment, decision.reason) == (None, "de", "closed")


def test_a_rank_gate_cuts_ranks() -> None:
    decision = decided(Rank(), unit="response", shape="rank", cut=("cut", 0.4))
    assert shipped(decision) == [True, False, False]


def test_a_batch_that_is_not_scored_has_neither_cut_nor_numbers() -> None:
    for rule, settings in (
        (Chance("ramp", 0.2), {"shape": "ramp"}),
        (Segments("k", ()), {"segment_by": "k"}),
    ):
        decision = decided(rule, held=True, **settings)
        assert decision.reason == "scorer_failed"
        assert (decision.cut, decision.segment, decision.outcome) == (None, None, "abstain")
        assert [response.uniform for response in decision.responses] == [None] * 3


def test_below_the_label_floor_a_drawn_response_asks_for_no_label() -> None:
    decision = decided(INDICATOR, unit="response", label_floor=0.5, audit_draws=3)
    assert [response.drawn for response in decision.responses] == [True] * 3, "the group stays whole"
    assert decode_action(decision.action.value).audit.label == ("r0", "r2")


def test_a_newer_policy_replaces_the_gate_that_was_built() -> None:
    world = World()
    made = active("bot", threshold=0.5, scorer="external", encoder="none", unit="response")
    event = batch("bot")
    for response, score in zip(event["responses"], SCORES, strict=True):
        response["score"] = score
    results = []
    for version, threshold in ((3, 0.5), (4, 0.95), (5, 0.1)):
        policy: Policy = replace(made.policy, version=version, threshold=threshold)
        world.sql["bot"] = replace(made, policy=policy)
        world.book.refresh(["bot"])
        (decision,) = world.decide(raw(event | {"batch_id": f"b{version}"}))
        results.append(sum(shipped(decision)))
    assert results == [2, 0, 3]


def test_the_trace_of_an_envelope_goes_on_with_the_action() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    world = World()
    world.sql["bot"] = active("bot", scorer="external", encoder="none")
    envelope = {"specversion": "1.0", "id": "e", "source": "/s", "type": "t", "traceparent": parent}
    (decision,) = world.decide(raw(envelope | {"data": batch("bot")}))
    assert ("traceparent", parent.encode()) in decision.action.headers
