"""Candidate policies in the record: set, sealed, stopped, and one outcome of theirs with each decision, on both databases."""

from dataclasses import replace

import pytest

from streamer.errors import Fenced, UsageError
from streamer.gates.policy import CandidateDecision, CandidatePolicy
from streamer.gates.rule import Cut, Segments
from tests.integration.store.conftest import SETTINGS, World

GATE = "support-bot"
TRIED = replace(SETTINGS, scorer="choice", labellers=("ana", "bob"), signed_labels=False)


def set_one(world: World, *, cut: Cut | None = None) -> CandidatePolicy:
    return world.store.candidates.start(GATE, TRIED, cut=cut, by="ana", reason="try")


def test_it_is_read_as_it_was_set_and_reaches_workers_with_the_policy(world: World) -> None:
    assert world.store.candidates.newest(GATE) is None
    assert world.store.policies.active()[GATE].candidate is None
    rule = Segments(key="language", own=(("de", Cut.at(0.5)),))
    made = world.store.candidates.start(
        GATE, TRIED, cut=Cut.at(0.7), rule=rule, guarantee="promised", by="ana", reason="try"
    )
    assert (made.settings, made.cut, made.rule, made.guarantee) == (TRIED, Cut.at(0.7), rule, "promised")
    assert world.store.candidates.newest(GATE) == made
    assert world.store.policies.active()[GATE].candidate == made
    later = set_one(world)
    assert later.number > made.number
    assert later.cut is None
    assert world.store.policies.versions([GATE])[GATE].active.candidate == later  # type: ignore[union-attr]
    assert world.store.candidates.stop(GATE, by="bob", reason="tried") == later
    assert world.store.candidates.newest(GATE) is None
    with pytest.raises(UsageError, match="no candidate"):
        world.store.candidates.stop(GATE, by="bob", reason="again")
    assert [one.by for one in world.store.candidates.story(GATE)] == ["ana", "ana", "bob"]
    assert world.rows("SELECT count(*) FROM control_log WHERE kind = 'candidate_policies'") == [(3,)]


def test_each_decision_has_one_outcome_of_it_whatever_is_delivered_again(world: World) -> None:
    number = set_one(world, cut=Cut.at(0.5)).number
    lease = world.lease()
    scored = CandidateDecision(number, (0.125, 0.9), (False, True))
    piece = world.slice(
        lease,
        world.decision(0, "a", candidate=scored),
        world.decision(1, "b", candidate=CandidateDecision(number, why="too_slow")),
        world.decision(2, "a", candidate=CandidateDecision(number, (1.0, 1.0))),
        world.dead(3),
    )
    assert (
        world.commit(piece) == world.commit(piece) == [["decision", "decision", "duplicate", "dead_letter"]]
    )
    world.commit(
        world.slice(
            lease, world.decision(4, "b", candidate=scored), world.redelivery(5, "a"), world.decision(6, "c"), expected=4
        )
    )  # fmt: skip
    numbers = [row[0] for row in world.rows("SELECT batch FROM decisions ORDER BY batch")]
    found = list(world.store.candidates.made(GATE, TRIED, numbers))
    wanted = [(numbers[0], scored), (numbers[1], CandidateDecision(number, why="too_slow"))]
    assert [(one.number, one.decision) for one in found] == wanted
    assert found[0].response_ids == ("a", "b")
    assert world.store.candidates.counts(number) == {None: 1, "too_slow": 1}
    assert list(world.store.candidates.made(GATE, SETTINGS, numbers)) == [], "another scorer's"
    assert world.store.evidence.log_faults() == []


def test_a_commit_that_fails_leaves_nothing_of_it(world: World) -> None:
    number = set_one(world).number
    lease = world.lease()
    world.lease()  # another worker has taken the partition
    with pytest.raises(Fenced):
        world.commit(
            world.slice(lease, world.decision(0, candidate=CandidateDecision(number, why="too_slow")))
        )
    assert world.rows("SELECT count(*) FROM candidate_decisions") == [(0,)]


def test_one_that_cannot_be_read_leaves_the_policies_alone(world: World) -> None:
    set_one(world)
    world.gate("other")
    good = world.store.candidates.start("other", TRIED, by="ana", reason="try")
    for wrong in ('{"scorer"\\: "of a later version"}', "no JSON"):  # a colon begins a parameter
        world.tamper(f"UPDATE candidate_policies SET settings = '{wrong}' WHERE gate = '{GATE}'")
        active = world.store.policies.active()
        assert active[GATE].candidate is None
        assert active[GATE].policy.gate == GATE
        assert active["other"].candidate == good
