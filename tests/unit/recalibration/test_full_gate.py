"""A run of a gate of method full: its rule, what it ships, and how it compares with another."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from streamer.calibration.full_fit import allowed, bag_counts, fit_full
from streamer.gates.policy import GateRevision
from streamer.gates.policy_gate import PolicyGate
from streamer.gates.rule import Full, Indicator, Segments, rule_of_text, rule_text
from streamer.gates.settings import GateSettings
from streamer.gates.uniforms import uniform_of
from streamer.recalibration.comparison import direction, lambda_step, losses, ship_rate
from streamer.recalibration.run import derive
from streamer.recalibration.sampled import SampledGroup, prompts_of_rule
from streamer.scoring.signals.signal_list import SignalList
from tests.made import a_revision, a_sampled_prompt

NOW = datetime(2026, 11, 28, tzinfo=UTC)
SALT = bytes(range(32))


def gate(**changes: Any) -> GateRevision:
    own = {
        "encoder": "e@00000000", "alpha": 0.1, "method": "full", "scorer": "choice",
        "signals": SignalList().text,
    }  # fmt: skip
    return a_revision(GateSettings(**own | changes), seed=7, audit_salt=SALT, created_at=NOW)


def groups(
    count: int, *, seed: int = 1, worse: int = 0, graded: bool = False, segments: int = 1
) -> list[SampledGroup]:
    """The first of five signals falls with the chance of a bad answer; of the newest `worse` all are bad."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, 5)).clip(-4, 4).astype("<f4")
    chance = 1 / (1 + np.exp(1 + 2 * rows[:, 0]))
    bad = rng.random(count) < chance
    bad[count - worse :] = True
    severities = rng.random(count) if graded else bad.astype(float)
    return [
        a_sampled_prompt(
            ("g", f"b{n}"),
            [("r0", 0.5, float(severities[n]))],
            segment=f"s{n % segments}",
            decided_at=NOW - timedelta(hours=count - n),
            signals=rows[n].tobytes(),
        )
        for n in range(count)
    ]


def run_of(some: list[SampledGroup], in_force: Any = None, **changes: Any) -> Any:
    return derive(gate(**changes), some, [], now=NOW, older_than=NOW, in_force=in_force)


def rows_of(some: list[SampledGroup]) -> np.ndarray:
    return np.array([np.frombuffer(one.signals or b"", "<f4") for one in some])


def bad_of(some: list[SampledGroup]) -> np.ndarray:
    return np.array([one.severity > 0 for one in some])


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_policy_ships_what_the_formula_ships(attempts: int) -> None:
    some, new = groups(90), groups(50, seed=2)
    run = run_of(some, max_attempts=attempts)
    assert isinstance(run.rule, Full)
    assert (run.decided.state, run.effective_alpha) == ("full", round(0.1 / attempts, 15))
    k = allowed(0.1, 90, attempts=attempts)
    assert run.rule.fits[0].allowed == k
    offline = fit_full(rows_of(some), bad_of(some))
    serving = PolicyGate(unit="best", cut=run.reading.cut, rule=run.rule)
    shipped = 0
    for row in rows_of(new):
        ruling = serving.decide([0.4, 0.6], row=row)
        assert (ruling.needed.count, ruling.needed.groups) == (offline.count(row), 90)
        assert (ruling.gate.selected == 1) == (offline.count(row) <= k)
        assert serving.decide([0.4, 0.6], needed=ruling.needed).gate == ruling.gate
        shipped += ruling.gate.selected is not None
    assert 0 < shipped < 50
    assert serving.decide([0.4, 0.6]).gate.selected is None, "without signals it is held"


def test_few_prompts_cut_the_score_and_the_number_alone_says_so() -> None:
    assert isinstance(run_of(groups(39)).rule, Indicator)
    assert isinstance(run_of(groups(40)).rule, Full)
    assert isinstance(run_of(groups(90), alpha=0.01).rule, Indicator)
    assert isinstance(run_of(groups(39), segment_by="k").rule, Segments)


def test_the_rule_finds_its_prompts_again_and_no_others() -> None:
    some = groups(60)
    rule = run_of(some).rule
    read = rule_of_text(rule_text(rule))
    assert read == rule
    assert isinstance(read, Full)
    again = read.with_prompts(prompts_of_rule(read, some, NOW))
    row = rows_of(groups(1, seed=3))[0]
    assert list(again.counts(row)) == list(rule.counts(row))
    with pytest.raises(ValueError, match="not those that the policy was made of"):
        read.with_prompts(prompts_of_rule(read, groups(60, seed=9), NOW))
    with pytest.raises(ValueError, match="were not read"):
        list(read.counts(row))
    assert len(json.dumps(rule_text(rule))) < 1000


def test_a_severity_between_counts_by_the_keyed_draw() -> None:
    some = groups(80, graded=True)
    (prompts,) = run_of(some).rule.prompts
    drawn = [uniform_of(SALT, one.key, "severity") < one.severity for one in some]
    assert prompts.bad.tolist() == drawn


def test_a_segment_counts_its_own_bad_prompts_by_the_fit_to_all() -> None:
    some = groups(150, segments=3)
    rule = run_of(some, segment_by="k").rule
    assert [(name, size) for name, size, _ in rule.fits[0].own] == [("s0", 50), ("s1", 50), ("s2", 50)]
    offline = fit_full(rows_of(some), bad_of(some))
    names = np.array([one.segment for one in some])[offline.bad]
    for row in rows_of(groups(20, seed=4)):
        ((count, size, k),) = rule.counts(row, "s1")
        assert (count, size, k) == (offline.count(row, np.flatnonzero(names == "s1")), 50, allowed(0.1, 50))
        assert list(rule.counts(row, "elsewhere")) == [(1, 0, 0)]
    pooled = run_of(some, segment_by="k", segment_fallback="pooled").rule
    for row in rows_of(groups(20, seed=4)):
        assert list(pooled.counts(row, "elsewhere")) == [(offline.count(row), 150, allowed(0.1, 150))]
    bag = bag_counts(rows_of(some), bad_of(some), segments=[one.segment for one in some])
    for place, one in enumerate(some):
        assert next(rule.counts(rows_of([one])[0], one.segment, prompt=one.id))[0] == bag[place]


def test_where_the_newest_are_worse_both_fits_must_pass() -> None:
    some = groups(400, worse=60)
    before = run_of(groups(200))
    run = run_of(some, in_force=(1, before.reading))
    assert run.suffix.cuts
    assert len(run.rule.fits) == 2
    newest = some[-run.suffix.calibrated_on :]
    both = fit_full(rows_of(some), bad_of(some)), fit_full(rows_of(newest), bad_of(newest))
    serving = PolicyGate(unit="best", cut=run.reading.cut, rule=run.rule)
    for row in rows_of(groups(40, seed=5)):
        counts = [(fit.count(row), fit.groups) for fit in both]
        ruling = serving.decide([0.5, 0.1], row=row)
        assert (ruling.gate.selected is not None) == all(c <= allowed(0.1, g) for c, g in counts)
        assert ruling.needed.share == max(c / (g + 1) for c, g in counts)
    again = rule_of_text(rule_text(run.rule)).with_prompts(prompts_of_rule(run.rule, some, NOW))
    assert again == run.rule


def test_rules_are_compared_on_the_newest_prompts() -> None:
    some = groups(300)
    strict, loose = (run_of(some, alpha=alpha).reading for alpha in (0.05, 0.2))
    assert direction(strict, loose, "best", some) == "looser"
    assert direction(loose, strict, "best", some) == "tighter"
    assert direction(strict, strict, "best", some) == "same"
    assert direction(loose, strict) == "looser", "nothing to compare on"
    assert lambda_step(strict, loose) == 0.0
    bag = bag_counts(rows_of(some), bad_of(some))
    shipped = bag <= allowed(0.2, 300)
    assert ship_rate(loose, "best", some) == shipped.mean()
    assert losses(loose, "best", some).tolist() == (shipped & bad_of(some)).astype(float).tolist()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"unit": "response"}, "units best and batch"),
        ({"label_floor": 0.3}, "label_floor does not go with method full"),
        ({"shape": "quantile"}, "quantile"),
        ({"shape": "smooth"}, "smooth"),
        ({"pending": "labelled-only"}, "pending must be age or worst"),
        ({"signals": None}, "signals must be a list"),
        ({"scorer": "gram"}, "scorer must be choice"),
    ],
)
def test_what_has_no_proof_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        gate(**changes)
