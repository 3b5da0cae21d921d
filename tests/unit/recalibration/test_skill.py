"""What is said of a score that does not separate what ships from what is held."""

from dataclasses import replace

import numpy as np
import pytest

from streamer.gates.batch_key import BatchKey
from streamer.gates.rule import INDICATOR, Cut
from streamer.gates.settings import GateSettings
from streamer.recalibration.age_cut import choose
from streamer.recalibration.comparison import Reading
from streamer.recalibration.sampled import SampledGroup, SampledItem
from streamer.recalibration.skill import LEVEL, Separation, level_of, separated, separation
from tests.made import a_sampled_prompt


def found(scores_and_severities: list[tuple[float, float]]) -> Separation:
    groups = [
        a_sampled_prompt(("bot", str(n)), [("a", score, severity)])
        for n, (score, severity) in enumerate(scores_and_severities)
    ]
    result = separation(Reading(Cut.at(0.5), INDICATOR), GateSettings(encoder="e"), groups)
    assert result is not None
    return result


def test_few_that_would_be_held_show_nothing_and_nothing_is_said_against_the_score() -> None:
    few = found([(0.9, float(n < 4)) for n in range(46)] + [(0.1, 1.0), (0.1, 1.0), (0.1, 0.0)])
    assert not few.shown
    assert few.shipped < few.held
    assert few.said == (
        "it is not shown that the score tells good from bad: on 49 labelled prompts the mean severity is 0.087 of "
        "what would ship and 0.667 of what would be held, which may be chance"
    )


@pytest.mark.parametrize("held", [0.25, 0.1])
def test_what_ships_and_is_no_better_is_said_of_the_score(held: float) -> None:
    same = found([(0.9, float(n % 4 == 0)) for n in range(40)] + [(0.1, held)] * 40)
    assert not same.shown
    assert same.said.startswith("the score does not tell good from bad: on 80 labelled prompts")


def test_many_on_both_sides_show_it() -> None:
    assert found([(0.9, 0.0)] * 30 + [(0.1, 1.0)] * 30).shown


@pytest.mark.parametrize("ships", [0.1, 0.05])
def test_where_few_ship_and_few_are_bad_chance_shows_no_skill(ships: float) -> None:
    """Long nothing bad ships, by chance, and the first that does weighs as much as all before it."""
    random, opened = np.random.default_rng(1), 0
    for _ in range(100):
        share, severity = ((random.random(600) < chance).astype(float) for chance in (ships, 0.05))
        found = (separated(share[:n], severity[:n], [1] * n, level=LEVEL) for n in range(50, 601, 50))
        opened += any(one is not None and one.shown for one in found)
    assert opened <= 10


@pytest.mark.parametrize(("wrong", "shown"), [((0.2, 0.2), (0, 5)), ((0.05, 0.4), (95, 100))])
def test_claims_that_are_labelled_to_the_first_wrong_one_show_only_what_skill_there_is(
    wrong: tuple[float, float], shown: tuple[int, int]
) -> None:
    random = np.random.default_rng(1)
    settings = GateSettings(unit="claim", scorer="support", method="mean", encoder="none")

    def prompt(number: int) -> SampledGroup:
        scores = np.sort(random.random(5))[::-1]
        bad = random.random(5) < np.where(scores > 0.5, *wrong)
        asked = np.cumsum(bad) - bad == 0
        items = (
            SampledItem(response_id=str(n), score=score, severity=float(bad[n]) if asked[n] else None)
            for n, score in enumerate(scores.tolist())
        )
        return SampledGroup(key=BatchKey("bot", str(number), 1), probability=1.0, items=tuple(items))

    cut = Reading(Cut.at(0.5), INDICATOR)
    samples = ([prompt(number) for number in range(100)] for _ in range(100))
    found = [separation(cut, settings, groups) for groups in samples]
    assert shown[0] <= sum(one is not None and one.shown for one in found) <= shown[1]


def test_a_test_of_every_sample_is_stricter_and_together_they_spend_no_more_than_five_percent() -> None:
    cut = choose([0.0] * 250, [False] * 250, pending="age", earlier=[], label_deadline=0, deadline=1)
    assert level_of(0, cut) == level_of(0, None) == LEVEL / 2
    assert 0.999 * LEVEL < sum(level_of(alarms, None) for alarms in range(10_000)) < LEVEL
    assert level_of(0, replace(cut, window=100)) == level_of(0, None) / 12, "the third window of draws"
    few = found([(0.9, float(n < 4)) for n in range(46)] + [(0.1, 1.0)] * 12)
    assert few.shown
    assert not replace(few, level=level_of(1000, None)).shown
