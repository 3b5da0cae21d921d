"""What another threshold would have cost is known without bias from the audit draw, and its interval holds.

A month is a gate's decisions in good and bad phases; how often they are drawn follows what was drawn before, late. The record
ships little, and what is asked about ships much more: most of what that would have let through was held.
"""

import functools
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np

from streamer.calibration.threshold import Threshold
from streamer.gates.gate import decide
from streamer.gates.rule import INDICATOR, Cut
from streamer.gates.settings import GateSettings
from streamer.recalibration.comparison import Reading
from streamer.whatif import Past
from streamer.whatif.figures import figures
from streamer.whatif.replay import replay, replay_record
from streamer.whatif.rescored import rescored
from tests.made import a_policy
from tests.validity.known_risk import most_violations

P, FACTOR, LAG, DELTA = 0.2, 4.0, 40, 0.1
MONTHS, LENGTH, PHASE, BAD = 1000, 2400, 600, 150
RECORDED, ASKED = 0.85, 0.3
START = datetime(2026, 11, 1, tzinfo=UTC)
SETTINGS = GateSettings(encoder="none@00000000", audit_probability=P, alpha=0.2, monitor_delta=DELTA)
POLICY = a_policy(SETTINGS, gate="tests", state="cut", threshold=RECORDED, valid_from=START)


ALL_DRAWN = {1: replace(POLICY, settings=replace(SETTINGS, audit_probability=1.0))}


@functools.cache
def names(count: int) -> tuple[list[str], list[datetime]]:
    return [f"b{i}" for i in range(count)], [START + timedelta(seconds=i) for i in range(count)]


def a_past(scores: np.ndarray, severities: np.ndarray, drawn: np.ndarray, probability: np.ndarray) -> Past:
    """Decisions of one answer each by `POLICY`, all labelled that were drawn: shapes (n,)."""
    count = len(scores)
    return Past(
        gate="tests", numbers=np.arange(count), batch_ids=names(count)[0],
        decided_at=names(count)[1], versions=np.ones(count, dtype=np.int64), policies={1: POLICY},
        sampled=drawn, probability=probability,
        selected=["r" if ships else None for ships in (scores > RECORDED).tolist()], cuts={},
        segments=[None] * count, named={}, rows=[None] * count, needed=[None] * count,
        starts=np.arange(count + 1), response_ids=["r"] * count, scores=scores,
        uniforms=np.full(count, np.nan), blank=np.zeros(count, dtype=np.bool_),
        shipped=scores > RECORDED, drawn=drawn, severities=np.where(drawn, severities, np.nan),
    )  # fmt: skip


@dataclass(frozen=True)
class Month:
    past: Past
    ships: np.ndarray
    truth: float
    """The exposure of all its decisions at the threshold that is asked about."""
    true_severities: np.ndarray


@functools.cache
def months() -> tuple[Month, ...]:
    rng = np.random.default_rng(20261123)
    scores = rng.random((MONTHS, LENGTH)).round(6)
    u = rng.random((MONTHS, LENGTH))
    bad = (np.arange(LENGTH) % PHASE) < BAD
    severities = (rng.random((MONTHS, LENGTH)) < np.where(bad, 0.9, 0.05) * (1 - scores / 2)).astype(float)
    probability = np.full((MONTHS, LENGTH), P)
    heat = np.zeros(MONTHS)
    for i in range(LENGTH):
        probability[:, i] = np.where(heat >= 2, FACTOR * P, P)
        if i >= LAG:
            then = i - LAG
            heat = 0.95 * heat + (u[:, then] < probability[:, then]) * severities[:, then]
    found = []
    for row in range(MONTHS):
        past = a_past(scores[row], severities[row], u[row] < probability[row], probability[row])
        ships = decide(scores[row], Threshold.at(ASKED, alpha=0.2, method="mean", groups=0, guarantee=""))
        found.append(Month(past, ships, float((severities[row] * ships).mean()), severities[row]))
    return tuple(found)


def bias(estimates: list[float], truths: list[float]) -> float:
    """The mean error in standard errors."""
    errors = np.array(estimates) - np.array(truths)
    print(
        f"mean error {errors.mean():+.5f}, {errors.mean() / (errors.std() / np.sqrt(len(errors))):+.1f} standard errors"
    )
    return float(errors.mean() / (errors.std() / np.sqrt(len(errors))))


def test_the_months_are_what_they_should_be() -> None:
    for month in months()[:10]:
        again = replay(month.past, SETTINGS, Reading(Cut.at(ASKED), INDICATOR), salt=b"")
        assert (again == month.ships).all(), "the gate decides batches as it decides columns"
        assert replay_record(month.past) == []
    raised = np.array([month.past.probability > P for month in months()])
    assert 0.1 < raised.mean() < 0.9, "the audit is raised now and then"
    held = np.mean([(month.ships & ~month.past.shipped).sum() / month.ships.sum() for month in months()])
    assert held > 0.7, "most of what would ship was held"


def test_estimates_are_unbiased_and_intervals_hold() -> None:
    estimates, rates, widths = [], [], []
    outside = outside_rate = 0
    for month in months():
        found = figures(month.past, month.ships, unit="best", alpha=0.2, delta=DELTA)
        assert found.served == month.ships.mean()
        assert found.exposure.estimate is not None
        assert found.selective.estimate is not None
        estimates.append(found.exposure.estimate)
        rate = month.truth / month.ships.mean()
        rates.append(rate)
        widths.append(found.exposure.upper - found.exposure.lower)
        outside += not found.exposure.lower <= month.truth <= found.exposure.upper
        outside_rate += not found.selective.lower <= rate <= found.selective.upper
    print(f"outside: {outside} and {outside_rate} of {MONTHS}; width {np.median(widths):.3f}")
    assert abs(bias(estimates, [month.truth for month in months()])) < 4
    assert outside <= most_violations(MONTHS, DELTA)
    assert outside_rate <= most_violations(MONTHS, DELTA)
    assert np.median(widths) < 0.15, "an interval that says nothing holds always"


def test_labels_without_their_weights_are_caught() -> None:
    """What is labelled alone, as if every decision had been as likely to be drawn."""
    estimates, outside = [], 0
    for month in months():
        labelled = month.past.where(month.past.sampled)
        labelled = replace(labelled, probability=np.ones(len(labelled)), policies=ALL_DRAWN)
        found = figures(
            labelled, month.ships[month.past.sampled], unit="best", alpha=0.2, delta=DELTA
        ).exposure
        assert found.estimate is not None
        estimates.append(found.estimate)
        outside += not found.lower <= month.truth <= found.upper
    print(f"outside: {outside} of {MONTHS}")
    assert abs(bias(estimates, [month.truth for month in months()])) > 10
    assert outside > most_violations(MONTHS, DELTA)


def test_the_base_probability_in_place_of_the_logged_one_is_caught() -> None:
    estimates, outside = [], 0
    for month in months():
        wrong = replace(month.past, probability=np.full(LENGTH, P))
        found = figures(wrong, month.ships, unit="best", alpha=0.2, delta=DELTA)
        assert found.exposure.estimate is not None
        estimates.append(found.exposure.estimate)
        outside += not found.exposure.lower <= month.truth <= found.exposure.upper
    print(f"outside: {outside} of {MONTHS}")
    assert abs(bias(estimates, [month.truth for month in months()])) > 10
    assert outside > most_violations(MONTHS, DELTA)


def test_what_shipped_alone_says_nothing_of_what_was_held() -> None:
    """Weighted, but of shipped answers alone, as if held ones had never been drawn."""
    estimates = []
    for month in months():
        drawn = month.past.sampled & month.past.shipped
        weights = drawn / month.past.probability
        estimates.append(float((weights * month.true_severities).sum() / weights.sum()) * month.ships.mean())
    assert abs(bias(estimates, [month.truth for month in months()])) > 4


def test_intervals_of_a_candidate_hold_by_the_draws_of_the_gate_that_decided() -> None:
    """Another score, of which some batches have none, by weights and labels of the gate's own audit."""
    rng = np.random.default_rng(20261125)
    estimates, truths, outside, outside_rate = [], [], 0, 0
    for row, month in enumerate(months()):
        theirs = np.clip(0.5 * month.past.scores + 0.5 * rng.random(LENGTH), 0, 1).round(6)
        late, failed = rng.random(LENGTH) < 0.1, rng.random(LENGTH) < 0.05
        recorded = {
            n: (("r",), None if failed[n] else (float(theirs[n]),), None)
            for n in np.flatnonzero(~late).tolist()
        }
        beside, known = rescored(month.past, lambda _gate, _numbers, made=recorded: made)
        assert (known == ~late).all()
        beside = beside.where(known)
        ships = decide(theirs, Threshold.at(ASKED, alpha=0.2, method="mean", groups=0, guarantee=""))
        ships = (ships & ~failed)[known]
        if row < 5:
            again = replay(beside, SETTINGS, Reading(Cut.at(ASKED), INDICATOR), salt=b"")
            assert (again == ships).all(), "the gate decides batches as it decides columns"
        found = figures(beside, ships, unit="best", alpha=0.2, delta=DELTA)
        assert found.exposure.estimate is not None
        truth = float((month.true_severities[known] * ships).mean())
        truths.append(truth)
        estimates.append(found.exposure.estimate)
        rate = truth / ships.mean()
        outside += not found.exposure.lower <= truth <= found.exposure.upper
        outside_rate += not found.selective.lower <= rate <= found.selective.upper
    print(f"outside: {outside} and {outside_rate} of {MONTHS}")
    assert abs(bias(estimates, truths)) < 4
    assert outside <= most_violations(MONTHS, DELTA)
    assert outside_rate <= most_violations(MONTHS, DELTA)
