"""The prompts that a plan stands on: made ones fit their guess, past ones are scored as the gate would."""

from dataclasses import replace

import numpy as np
import pytest

from streamer.clouds.cloud import Cloud, CloudResponse
from streamer.clouds.measurement import units_of
from streamer.clouds.offline import decided_batch, score_clouds
from streamer.errors import UsageError
from streamer.gates.settings import UNITS
from streamer.planning.guess import Guess
from streamer.planning.prompts import SampledBatches, guessed_prompts, past_prompts
from streamer.planning.score_quality import area_under_curve, intraclass_correlation
from streamer.scoring.encoders.encoder import CachedEncoder


class LetterCounts:
    """A stand-in for the encoder, quick and known: it counts letters."""

    name, identity, dimension = "letters", "letters@1", 27

    def encode(self, texts: object) -> np.ndarray:
        rows = []
        for text in texts:  # type: ignore[attr-defined]
            counts = np.zeros(27)
            for letter in text.lower():
                counts[min(max(ord(letter) - 97, 0), 26)] += 1
            rows.append((counts + 1e-3) / np.linalg.norm(counts + 1e-3))
        return np.array(rows)


def clouds(count: int, responses: int, *, blank: bool = False) -> list[Cloud]:
    rng = np.random.default_rng(4)
    words = [*([""] if blank else []), "paris", "rome", "lyon", "nice", "oslo", "bonn"]
    return [
        Cloud(
            f"q{i}",
            "?",
            (),
            tuple(
                CloudResponse(f"r{j:02d}", words[k], float(words[k] != "rome"))
                for j, k in enumerate(rng.integers(len(words), size=responses))
            ),
        )
        for i in range(count)
    ]  # fmt: skip


def encoder() -> CachedEncoder:
    return CachedEncoder(LetterCounts())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "guess",
    [Guess(), Guess(0.05, 0.7, 0.2, 5), Guess(0.6, 0.65, 0.4, 4), Guess(0.9, 0.6, 0.9, 3), Guess(0.3, 0.5, 0, 2)],
)  # fmt: skip
def test_made_prompts_fit_their_guess(guess: Guess) -> None:
    made = guessed_prompts(guess, seed=0).by_size[guess.responses]
    prompts = len(made.severities)
    assert area_under_curve(made.scores, made.severities) == pytest.approx(guess.auc, abs=1e-3)
    # The mean of a prompt has a variance of mu (1 - mu) at most.
    error = np.sqrt(guess.severity * (1 - guess.severity) / prompts)
    assert abs(made.severities.mean() - guess.severity) < 4.9 * error
    found = intraclass_correlation(made.severities)
    assert found is not None
    assert abs(found - guess.correlation) < 0.05


def test_a_score_gets_better_with_more_samples() -> None:
    prompts = guessed_prompts(Guess(), seed=0)
    quality = [area_under_curve(b.scores, b.severities) for _, b in sorted(prompts.by_size.items())]
    assert quality == sorted(quality, key=float)  # type: ignore[arg-type]


def test_the_area_under_the_curve_counts_pairs() -> None:
    rng = np.random.default_rng(0)
    scores, severities = np.round(rng.random((6, 5)), 1), rng.random((6, 5))
    fine, bad = (1 - severities).ravel(), severities.ravel()
    above = np.sign(scores.ravel()[:, None] - scores.ravel()[None, :]) / 2 + 0.5
    expected = (fine[:, None] * bad[None, :] * above).sum() / (fine.sum() * bad.sum())
    assert area_under_curve(scores, severities) == pytest.approx(expected)
    assert area_under_curve(scores, np.zeros((6, 5))) is None


def test_answers_that_are_all_alike_in_a_prompt_have_correlation_one() -> None:
    alike = np.repeat([[0.0], [1.0], [0.5]], 4, axis=1)
    assert intraclass_correlation(alike) == pytest.approx(1)
    assert intraclass_correlation(alike[:1]) is None
    assert intraclass_correlation(np.zeros((3, 4))) is None


@pytest.mark.parametrize("unit", UNITS)
def test_past_prompts_are_scored_and_reduced_as_the_gate_does(unit: str) -> None:
    some = clouds(40, 5, blank=True)
    population = past_prompts(some, encoder=encoder(), seed=0).by_size[5].population(unit)  # type: ignore[arg-type]
    scored = score_clouds(some, encoder())
    batches = [decided_batch(one, unit=unit, state="open", threshold=None) for one in scored]  # type: ignore[arg-type]
    units = units_of(batches, unit)  # type: ignore[arg-type]
    assert population.prompts == 40
    shipped = population.shippable.sum() / (population.prompts * population.items)
    assert shipped == pytest.approx(units.shipped.mean())
    assert population.mean_severity == pytest.approx((units.shipped * units.severities).mean())
    for threshold in (0.2, 0.5, 0.8):
        above = (population.shippable & (population.scores > threshold)).sum()
        assert above / (population.prompts * population.items) == pytest.approx(
            units.shipped_above(threshold).mean()
        )


def test_reasoning_is_not_read() -> None:
    some = clouds(12, 5, blank=True)
    thought = [
        replace(
            one,
            responses=tuple(
                replace(r, text=f"<think>about x{i}</think>{r.text}") for i, r in enumerate(one.responses)
            ),
        )
        for one in some
    ]
    plain, found = (past_prompts(each, encoder=encoder(), seed=0).by_size[5] for each in (some, thought))
    assert (found.scores == plain.scores).all()
    assert (found.blank == plain.blank).all()


def test_fewer_samples_are_subsets_scored_anew() -> None:
    some = clouds(12, 6)
    prompts = past_prompts(some, encoder=encoder(), seed=3)
    assert sorted(prompts.by_size) == [2, 3, 5, 6]
    two = prompts.by_size[2]
    assert (two.scores[:, 0] == two.scores[:, 1]).all()  # a pair agrees equally, both ways
    again = past_prompts(some, encoder=encoder(), seed=3).by_size[3]
    assert (again.scores == prompts.by_size[3].scores).all()


def test_clouds_that_cannot_be_used_are_left_out_and_counted() -> None:
    short, unlabelled = clouds(1, 3)[0], clouds(1, 5)[0]
    unlabelled = Cloud("u", "?", (), (*unlabelled.responses[1:], CloudResponse("x", "rome")))
    short = Cloud("s", "?", (), short.responses)
    prompts = past_prompts([*clouds(4, 5), short, unlabelled], encoder=encoder(), seed=0)
    assert (prompts.responses, len(prompts.by_size[5].scores), prompts.left_out) == (5, 4, 2)
    with pytest.raises(UsageError, match="0 of 4 prompts have 9 responses"):
        past_prompts(clouds(4, 5), responses=9, encoder=encoder(), seed=0)


def test_nothing_but_blank_answers_cannot_be_planned_with() -> None:
    blank = SampledBatches(np.zeros((2, 2)), np.ones((2, 2)), np.ones((2, 2), dtype=bool))
    with pytest.raises(UsageError, match="blank"):
        blank.population("best")
