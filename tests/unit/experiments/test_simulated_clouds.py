"""Simulated clouds: reproducible, plausible, and labelled as they were made."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest

from streamer.clouds.cloud import cloud_to_event, severity_kind
from streamer.clouds.facts import number_fact, tabled_facts
from streamer.clouds.noise import NOISE_FAMILIES, make_noise
from streamer.clouds.simulation import DEFAULT_CLOUDS, NOISE_SHARE, simulate_clouds
from streamer.clouds.traffic import endless_clouds, occurrences
from streamer.errors import UsageError


def test_a_seed_makes_the_same_clouds_again_and_another_makes_others() -> None:
    assert simulate_clouds(seed=1, clouds=40) == simulate_clouds(seed=1, clouds=40)
    assert simulate_clouds(seed=1, clouds=40) != simulate_clouds(seed=2, clouds=40)


def test_the_default_has_enough_varied_prompts_and_says_that_it_is_simulated() -> None:
    clouds = simulate_clouds(seed=0)
    assert len(clouds) == DEFAULT_CLOUDS >= 300
    assert len({cloud.question for cloud in clouds}) == len(clouds)
    assert len({cloud.batch_id for cloud in clouds}) == len(clouds)
    assert {len(cloud.responses) for cloud in clouds} == {10}
    assert severity_kind(clouds) == "simulated"
    assert all(cloud.question_id.startswith("simulated-0-") for cloud in clouds)
    assert len({r.meta["topic"] for cloud in clouds for r in cloud.responses}) >= 8
    for cloud in clouds:
        cloud_to_event(cloud, "demo")


def test_severities_follow_from_how_a_response_was_made() -> None:
    by_origin: dict[str, set[float | None]] = {}
    for cloud in simulate_clouds(seed=0):
        for response in cloud.responses:
            by_origin.setdefault(response.meta["origin"], set()).add(response.severity)
            if response.meta["origin"] == "right":
                assert cloud.references[0].lower() in response.text.lower()
    assert by_origin.pop("right") == {0.0}
    assert by_origin.pop("half right") == {0.5}
    assert by_origin.pop("contradiction") == {0.5}
    assert set(by_origin) == {"wrong", *NOISE_FAMILIES} - {"contradiction"}
    assert all(severities == {1.0} for severities in by_origin.values())


def test_the_share_of_noise_is_the_mix_that_was_asked_for() -> None:
    origins = Counter(r.meta["origin"] for cloud in simulate_clouds(seed=3) for r in cloud.responses)
    noisy = sum(origins[family] for family in NOISE_FAMILIES)
    n = origins.total()
    # 4.9 standard errors of a binomial share: chance 1e-6.
    assert abs(noisy / n - NOISE_SHARE) < 4.9 * (NOISE_SHARE * (1 - NOISE_SHARE) / n) ** 0.5
    assert all(
        r.meta["origin"] not in NOISE_FAMILIES
        for c in simulate_clouds(seed=3, clouds=9, noise=0)
        for r in c.responses
    )
    assert all(
        r.meta["origin"] in NOISE_FAMILIES
        for c in simulate_clouds(seed=3, clouds=9, noise=1)
        for r in c.responses
    )


def test_facts_are_complete_and_no_wrong_answer_is_the_right_one() -> None:
    rng = np.random.default_rng(0)
    facts = [*tabled_facts(), *(number_fact(rng) for _ in range(500))]
    assert len(facts) > 700
    for fact in facts:
        assert fact.answer
        assert fact.rivals
        assert fact.answer not in {*fact.rivals, fact.misconception}
        assert fact.statement.count("{}") == 1
        assert 0 <= fact.difficulty <= 4
        assert all("{" not in text for text in (*fact.questions, *fact.support))
    assert len({q for f in tabled_facts() for q in f.questions}) == sum(
        len(f.questions) for f in tabled_facts()
    )


def test_number_facts_are_right() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        fact = number_fact(rng)
        question = fact.questions[0]
        words = question.replace("?", "").split()
        if " times " in question:
            assert int(fact.answer) == int(words[2]) * int(words[4])
        elif "rises by" in question:
            price, percent = int(words[3]), int(words[7])
            assert int(fact.answer) == pytest.approx(price * (1 + percent / 100) * (1 - percent / 100))
        elif "km/h and back" in question:
            out, back = (int(word) for word in words if word.isdigit())
            assert int(fact.answer) == pytest.approx(2 / (1 / out + 1 / back))
            assert fact.misconception == str((out + back) // 2)
        elif "+" in question:
            a, b, c = (int(word) for word in words if word.isdigit())
            assert int(fact.answer) == a + b * c


def test_every_family_of_noise_turns_up() -> None:
    rng = np.random.default_rng(0)
    made = [make_noise(rng, right="Rome", wrong="Milan", statement="It is {}.") for _ in range(300)]
    assert {noise.family for noise in made} == set(NOISE_FAMILIES)
    assert all(noise.text.strip() for noise in made)
    assert all("Rome" in n.text and "Milan" in n.text for n in made if n.family == "contradiction")
    assert all("Milan" in n.text for n in made if n.family == "fabricated citation")


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"clouds": 0}, {"responses": 1}, {"noise": 1.5}])
def test_nonsense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="a simulation needs"):
        simulate_clouds(**({"seed": 0} | wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("clouds", [1, 3, 700])
def test_any_number_of_clouds_can_be_had(clouds: int) -> None:
    assert len({cloud.question for cloud in simulate_clouds(seed=0, clouds=clouds, responses=2)}) == clouds


def test_no_batch_comes_twice_and_the_same_seed_gives_the_same() -> None:
    clouds = list(islice(endless_clouds(seed=5, responses=2), 250))
    assert len({cloud.batch_id for cloud in clouds}) == 250
    assert clouds == list(islice(endless_clouds(seed=5, responses=2), 250))
    later = {cloud.batch_id for cloud in islice(endless_clouds(seed=8, responses=2), 250)}
    assert not later & {cloud.batch_id for cloud in clouds}


@pytest.mark.parametrize("delay", [0.0, 0.2, 3.0, 100.0])
def test_labels_follow_their_batch_by_the_delay(delay: float) -> None:
    clouds = list(islice(endless_clouds(seed=1, responses=2), 30))
    came = list(occurrences(iter(clouds), rate=4.0, label_after=delay))
    assert [each.at for each in came] == sorted(each.at for each in came)
    batches = [each for each in came if not each.labels]
    assert [each.cloud for each in batches] == clouds
    assert [each.at for each in batches] == [i / 4 for i in range(30)]
    when = {each.cloud.batch_id: each.at for each in batches}
    labels = [each for each in came if each.labels]
    assert len(labels) == 30
    for each in labels:
        assert each.at == when[each.cloud.batch_id] + delay
        assert came.index(each) > came.index(next(b for b in batches if b.cloud is each.cloud))


def test_it_holds_no_more_than_what_waits_for_labels() -> None:
    endless = occurrences(endless_clouds(seed=1, responses=2), rate=10.0, label_after=1.0)
    assert sum(each.labels for each in islice(endless, 500)) >= 240
