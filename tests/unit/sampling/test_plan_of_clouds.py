"""A plan settles every request by its seed: how many, of which kinds, with the same noise for every model."""

from collections import Counter
from decimal import Decimal
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.errors import UsageError
from streamer.labels.llm.record import Price, TokenUsage
from streamer_research.sampling import PRESETS, Arm, Mix, Prompt, Recipe, SamplingPlan, estimate
from streamer_research.sampling.plan import RecordPart

PROMPTS = (
    Prompt("q1", "Capital of France?", ("Paris",)),
    Prompt("q2", "Largest planet?", ("Jupiter", "the planet Jupiter")),
    Prompt("q3", "Why?"),
)
ARM = Arm(0, "m", "h", 1.0)
SHARES = st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20)).filter(any)


def plan(*arms: Arm, **recipe: object) -> SamplingPlan:
    return SamplingPlan(PROMPTS, Recipe(**recipe), arms or (ARM,))  # type: ignore[arg-type]


@given(SHARES, st.integers(2, 300))
def test_shares_become_whole_numbers(parts: tuple[int, int, int], answers: int) -> None:
    shares = [part / sum(parts) for part in parts]
    counts = Mix(*shares).counts(answers)
    assert sum(counts.values()) == answers
    assert all(
        abs(count - share * answers) < 1 + 1e-6 for count, share in zip(counts.values(), shares, strict=True)
    )


def test_the_papers_configurations() -> None:
    assert Mix(0.75, 0.0, 0.25).counts(150) == {"normal": 113, "enforced": 0, "noise": 37}
    assert Mix(0.67, 0.0, 0.33).counts(16) == {"normal": 11, "enforced": 0, "noise": 5}
    assert Mix(0.6, 0.0, 0.4).counts(100) == {"normal": 60, "enforced": 0, "noise": 40}
    wanted = {"C1": 1.3, "C2": 0.1, "C3": 1.2, "C4": 0.7, "C5": 1.3, "C6": 0.1}
    assert {name: one["temperature"] for name, one in PRESETS.items()} == wanted


@pytest.mark.parametrize("shares", [(0.5, 0.0, 0.0), (1.5, 0.0, -0.5), (float("nan"), 0.5, 0.5)])
def test_a_mix_that_is_none(shares: tuple[float, float, float]) -> None:
    with pytest.raises(UsageError, match="make 1"):
        Mix(*shares)


def test_the_seed_settles_everything() -> None:
    first, again, other = (
        plan(answers=20, mix=Mix(0.5, 0.2, 0.3), rewordings=1, seed=seed) for seed in (5, 5, 6)
    )
    known = {(prompt.question_id, 1): "reworded" for prompt in PROMPTS}

    def sent(one: SamplingPlan) -> list[tuple[object, ...]]:
        missing = one.batches()
        requests = chain(one.preparations(missing, {}), one.answers(missing, {}, known))
        return [(r.batch, r.positions, r.mode, r.family, r.seed, r.messages) for r in requests]

    assert sent(first) == sent(again)
    assert sent(first) != sent(other)
    assert [first.noise(i) for i in range(3)] == [again.noise(i) for i in range(3)]
    assert first.noise(0) != other.noise(0)
    assert len({seed for *_, seed, _ in sent(first)}) == len(sent(first)), (
        "each request has a seed of its own"
    )


def test_every_place_is_asked_for_once() -> None:
    one = plan(
        answers=23, mix=Mix(0.5, 0.2, 0.3), rewordings=2, paraphrases=7, per_request=4, noise_by_model=True
    )
    known = {(prompt.question_id, k): f"{prompt.question} {k}" for prompt in PROMPTS for k in (1, 2)}
    missing = one.batches()
    asked: Counter[tuple[RecordPart, int]] = Counter()
    for request in chain(one.preparations(missing, {}), one.answers(missing, {}, known)):
        assert 1 <= len(request.positions) <= 4
        asked.update((request.batch, position) for position in request.positions)
    assert asked == Counter(
        (batch, position) for batch, positions in missing.items() for position in positions
    )
    assert RecordPart("q3", "paraphrase", 0) not in missing, "there is nothing to paraphrase"
    assert len(missing[RecordPart("q1", "paraphrase", 0)]) == 7


def test_places_by_kind_and_noise_families_in_turn() -> None:
    one = plan(answers=40, mix=Mix(0.5, 0.15, 0.35))
    slots = one.slots(PROMPTS[0], 0)
    assert Counter(slot.mode for slot in slots) == {"normal": 20, "enforced": 6, "noise": 14}
    families = Counter(slot.family for slot in slots if slot.family)
    assert set(families.values()) == {2}
    assert len(families) == 7
    assert sorted(one.noise(0)) == [slot.position for slot in slots if slot.mode == "noise"]


def test_what_differs_between_models_is_the_models() -> None:
    arms = (Arm(0, "a", "h", 0.1), Arm(1, "b", "h", 0.1))
    one = plan(*arms, answers=20, mix=Mix(0.7, 0.0, 0.3))
    first, second = one.slots(PROMPTS[0], 0), one.slots(PROMPTS[0], 1)
    assert [(s.mode, s.family) for s in first] == [(s.mode, s.family) for s in second]
    assert {s.arm for s in first} == {None, 0}
    assert {s.arm for s in second} == {None, 1}
    together = plan(*arms, answers=20, mix=Mix(0.7, 0.0, 0.3), together=True)
    assert together.clouds_per_prompt == 1
    assert Counter(s.arm for s in together.slots(PROMPTS[0], 0)) == {None: 6, 0: 7, 1: 7}


def test_rewordings_and_models_that_share_a_cloud_cross() -> None:
    arms = (Arm(0, "a", "h", 0.1), Arm(1, "b", "h", 0.1))
    one = plan(*arms, answers=12, rewordings=2, together=True)
    crossed = Counter((slot.arm, slot.rewording) for slot in one.slots(PROMPTS[0], 0))
    assert crossed == dict.fromkeys([(arm, k) for arm in (0, 1) for k in (0, 1, 2)], 2)


def test_a_question_whose_rewording_is_missing_waits_for_it() -> None:
    one = plan(answers=10, rewordings=1)
    asked = [r for r in one.answers(one.batches(), {}, {}) if r.batch.question_id == "q1"]
    assert sum(len(r.positions) for r in asked) == 5


def test_an_endpoint_that_gives_fewer_is_asked_for_fewer() -> None:
    one = plan(answers=10, per_request=5)
    assert {len(r.positions) for r in one.answers(one.batches(), {0: 2}, {})} == {2}


def test_the_same_arm_twice_is_none() -> None:
    with pytest.raises(UsageError, match="twice"):
        plan(ARM, ARM)


@pytest.mark.parametrize(
    "recipe",
    [
        {"answers": 1},
        {"answers": 1001},
        {"top_p": 0.0},
        {"max_tokens": 0},
        {"families": ()},
        {"families": ("x",)},
        {"seed": -1},
    ],
)
def test_recipes_out_of_range(recipe: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        plan(**recipe)


def test_the_estimate_counts_requests_exactly_and_bounds_tokens() -> None:
    one = plan(answers=10, per_request=4, max_tokens=96)
    requests = list(one.answers(one.batches(), {}, {}))
    price = Price(Decimal(1), Decimal(2))
    found = estimate(one, requests, [price])
    assert (found.requests, found.answers) == (len(requests), 30)
    assert found.most.completion == 30 * 96
    assert found.expected.prompt < found.most.prompt
    assert found.cost is not None
    assert found.most_cost == price.cost(TokenUsage(found.most.prompt, 30 * 96))
    assert estimate(one, requests, [None]).cost is None
