"""Every decision in a sentence, on the console's page and in `audit show`, whatever the gate decides by."""

from typing import Any

import pytest

from streamer.audit.story import HELD, _policy, _upstream, threshold_of
from streamer.console.pages import _decided
from streamer.gates.policy import MONITOR, RECALIBRATOR
from streamer.gates.rule import Chance, Quantile, Rank, Rule, rule_text
from streamer.wording.policies import who


def a_decision(
    *,
    reason: str = "scored",
    outcome: str = "ship",
    unit: str = "best",
    rule: Rule | None = None,
    **facts: Any,
) -> dict[str, Any]:
    responses = [["a", 0.8, None, "ship" if outcome == "ship" else outcome, False]]
    return {
        "line": {
            "facts": {
                "batch": ["bot", "b", 1], "responses": responses, "reason": reason, "outcome": outcome, "unit": unit,
                "selected": None, "embedding_source": "encoder", "encoder": "e", "mode": "enforce", "trusted": True,
                "decided_at": "2026-01-01T00:00:00Z", **facts,
            },
        },
        "policy": {
            "version": 3, "state": "cut", "threshold": 0.31, "rule": None if rule is None else rule_text(rule),
            "valid_from": "2026-01-01T00:00:00Z", "created_by": "ana", "reason": "first", "guarantee": "",
        },
        "revision": {"alpha": 0.1, "method": "mean", "model": None},
    }  # fmt: skip


def sentence(found: dict[str, Any]) -> str:
    return _decided(found, found["line"]["facts"], [{"score": 0.8}])


@pytest.mark.parametrize("reason", sorted(HELD))
def test_what_was_held_before_its_scores_counted_says_why(reason: str) -> None:
    said = sentence(a_decision(reason=reason, outcome="abstain"))
    assert said.startswith("Held, because ")
    assert HELD[reason] in said
    always = "which the method mean always holds; what helps is the method full" in said
    assert always == (reason == "not_read"), "labels of it say something under full alone"


def test_what_was_scored_names_the_threshold_as_everywhere() -> None:
    assert sentence(a_decision()) == "The best score, 0.8, is above the threshold 0.31 of policy 3"
    assert sentence(a_decision(unit="batch")) == (
        "Shipped by policy 3 (Q > 0.31), which decides on all answers together; the best score is 0.8"
    )
    for rule, says in (
        (Quantile(quantile=0.25), "Q > 0.31 (quantile 0.25)"),
        (Rank(), "rank > 0.31"),
        (Chance(kind="ramp", width=0.1), "ramp at 0.31, width 0.1"),
    ):
        found = a_decision(rule=rule)
        assert says in sentence(found)
        assert threshold_of(found["line"]["facts"], found["policy"]) == says


def test_a_name_that_nobody_checked_is_told_as_one() -> None:
    assert who("ana") == "ana (name not verified)"
    assert who("account:ana") == "ana (signed in)"
    assert (who(RECALIBRATOR), who(MONITOR)) == ("the recalibrator", "an alarm")
    assert "by ana (name not verified): first" in _policy(
        a_decision()["line"]["facts"], *(a_decision()[one] for one in ("policy", "revision"))
    )


def test_what_an_upstream_was_asked_is_read_from_its_own_record_alone() -> None:
    sampled = {
        "calls": [{"detail": "500: boom"}, {"detail": None}],
        "finish_reasons": [],
        "problem": "timed_out",
    }
    found = _upstream({"metadata": {"upstream": "small@1", "sampling": sampled}})
    assert found == ["small@1, 2 calls, no answers: timed_out (500: boom)"]
    whole = sampled | {"finish_reasons": ["stop"], "problem": None}
    found = _upstream({"metadata": {"upstream": "small@1", "sampling": whole}})
    assert found == ["small@1, 2 calls, 1 answer"]
    for publishers in (None, {}, {"sampling": "by hand"}, {"sampling": {"calls": 3}}):
        assert _upstream({"metadata": publishers}) == []
    assert _upstream(None) == [], "erased"
    strange = {"calls": [7, {"detail": 8}], "finish_reasons": [], "problem": "x"}
    assert _upstream({"metadata": {"sampling": strange}}) == ["None, 2 calls, no answers: x"]
