"""The prompts that a plan stands on: made ones fit their guess, past ones are scored as the gate would."""

from dataclasses import replace

import numpy as np
import pytest

from streamer.clouds.cloud import Cloud, CloudResponse
from streamer.planning.prompts import GUESSED, Guess, area_under_curve, guessed_answers, past_prompts
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


def arrays(guess: Guess, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and severities of the prompts that are made from a guess."""
    made = guessed_answers(guess, seed=0)[size]
    return np.array([one.scores for one in made]), np.array([one.cloud.severities for one in made])


@pytest.mark.parametrize(
    "guess",
    [Guess(), Guess(0.05, 0.7, 0.2, 5), Guess(0.6, 0.65, 0.4, 4), Guess(0.9, 0.6, 0.9, 3), Guess(0.3, 0.5, 0, 2)],
)  # fmt: skip
def test_made_prompts_fit_their_guess(guess: Guess) -> None:
    scores, severities = arrays(guess, guess.responses)
    assert area_under_curve(scores, severities) == pytest.approx(
        guess.auc, abs=1e-3 if guess.auc > 0.5 else 0.5 / np.sqrt(GUESSED)
    ), "a score of noise alone is as good as chance has it"
    # The mean of a prompt has a variance of mu (1 - mu) at most.
    error = np.sqrt(guess.severity * (1 - guess.severity) / GUESSED)
    assert abs(severities.mean() - guess.severity) < 4.9 * error


def test_a_score_gets_better_with_more_samples() -> None:
    quality = [area_under_curve(*arrays(Guess(), size)) for size in (2, 20)]
    assert quality == sorted(quality, key=float)  # type: ignore[arg-type]


def test_the_area_under_the_curve_counts_pairs() -> None:
    rng = np.random.default_rng(0)
    scores, severities = np.round(rng.random((6, 5)), 1), rng.random((6, 5))
    fine, bad = (1 - severities).ravel(), severities.ravel()
    above = np.sign(scores.ravel()[:, None] - scores.ravel()[None, :]) / 2 + 0.5
    expected = (fine[:, None] * bad[None, :] * above).sum() / (fine.sum() * bad.sum())
    assert area_under_curve(scores, severities) == pytest.approx(expected)
    assert area_under_curve(scores, np.zeros((6, 5))) is None


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
    plain, found = (past_prompts(each, 5, encoder=encoder(), seed=0) for each in (some, thought))
    assert (found.scores == plain.scores).all()
    assert (found.blank == plain.blank).all()
