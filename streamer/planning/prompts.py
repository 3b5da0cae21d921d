"""The prompts that a plan is simulated on: made from a guess, or past ones whose severities are known.

A population of prompts made from a guess: mean severity, quality of the score, likeness within a prompt.

Each prompt has its own chance of a fine answer, Beta distributed with the guessed mean and intraclass correlation. An
answer is fine (severity 0) or bad (severity 1). Fine answers to a prompt agree with one another; of the bad ones a part
that differs from prompt to prompt repeats one favoured mistake, and the rest agree with nothing. The score of an
answer is the share of the other n - 1 that agree with it, blurred by noise: so it is better with more samples, as Gram
energy is. How often mistakes are repeated, and beyond that how strong the noise is, follows from the guessed quality.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamer.clouds.cloud import Cloud, CloudResponse, response_id
from streamer.clouds.offline import ScoredCloud
from streamer.errors import UsageError
from streamer.scoring.blank import is_blank
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.scoring.gram import DECIMALS, score_batch
from streamer.scoring.judged import WHOLE
from streamer.scoring.unread_answers import not_read

Floats = NDArray[np.float64]


def area_under_curve(scores: Floats, severities: Floats) -> float | None:
    """Return the chance in [0, 1] that a fine answer scores above a bad one, ties counting half
    (the area under the ROC curve).

    An answer of severity m in [0, 1] counts as fine with weight 1 - m and as bad with weight m;
    with severities 0 and 1 this is the usual area. Answers of different prompts are compared with
    one another; both arrays are of one shape. None where all answers are fine, or all are bad.
    """
    order = np.argsort(scores, axis=None)
    ranked, bad = scores.ravel()[order], severities.ravel()[order]
    fine = 1 - bad
    if fine.sum() == 0 or bad.sum() == 0:
        return None
    starts = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
    fine, bad = np.add.reduceat(fine, starts), np.add.reduceat(bad, starts)
    below = np.cumsum(bad) - bad / 2
    return float(fine @ below / (fine.sum() * bad.sum()))


PROMPTS = 20_000
"""Prompts of a made population: shares of it have a standard error of .004 at most."""

_MOST_ANSWERS = 2_000_000
_WORDING_NOISE = 0.05
_STEPS = 18


@dataclass(frozen=True, slots=True)
class Guess:
    """What is thought of the answers before any is labelled. Raises `UsageError` if a number is
    outside its range.

    `severity` : the mean mu of a response, in (0, 1). `auc` : chance in [.5, 1) that a fine answer
    scores above a bad one, with `responses` samples a prompt, 2..256. `correlation` : how alike the
    severities of one prompt's answers are, in [0, 1): 0 not at all.
    """

    severity: float = 0.3
    auc: float = 0.8
    correlation: float = 0.5
    responses: int = 10

    def __post_init__(self) -> None:
        for what, ok, want in (
            (
                f"a mean severity of {self.severity:g}",
                0 < self.severity < 1,
                "between 0 and 1, both excluded",
            ),
            (
                f"an AUC of {self.auc:g}",
                0.5 <= self.auc < 1,
                "at least 0.5 (no better than chance) and below 1",
            ),
            (f"a correlation of {self.correlation:g}", 0 <= self.correlation < 1, "at least 0 and below 1"),
            (f"a number of {self.responses} responses", 2 <= self.responses <= 256, "in 2..256"),
        ):
            if not ok:
                raise UsageError(f"{what} cannot be planned with: it must be {want}")


@dataclass(frozen=True, slots=True, eq=False)
class GuessedWorld:
    """P prompts made from a guess, each with as many answers, N, as anyone will ask for.

    `fine`, `luck`, `noise` : shape (P, N): whether an answer is fine; uniform on [0, 1], whether a
    bad answer is the favoured mistake; standard normal, alike within a prompt by the guessed
    correlation. `repeats` : shape (P, 1), uniform on [0, 1], how inclined a prompt is to that
    mistake. `weakness` in [0, 2] makes the score as good as guessed: up to 1 repeated mistakes,
    from there on noise; 2 is a score of noise alone.
    """

    fine: NDArray[np.bool_]
    repeats: Floats
    luck: Floats
    noise: Floats
    weakness: float

    def sample(self, responses: int) -> tuple[Floats, Floats]:
        """Return scores and severities of the first `responses` answers to each prompt, both of shape (P, n)."""
        fine = self.fine[:, :responses]
        return _scores(self, responses, self.weakness), (~fine).astype(np.float64)


def make_world(
    guess: Guess, *, most_responses: int, prompts: int = PROMPTS, rng: np.random.Generator
) -> GuessedWorld:
    """Make prompts that fit a guess, with `most_responses` answers to each, at least those of the
    guess.

    Fewer than `prompts` are made where they would have more than two million answers. Every random
    choice comes from `rng`. Raises `UsageError` if no such score is that good: agreement among few
    samples shows little.
    """
    drawn = _draw(guess, most_responses, min(prompts, _MOST_ANSWERS // most_responses), rng)
    return replace(drawn, weakness=_fit(drawn, guess))


def _draw(guess: Guess, responses: int, prompts: int, rng: np.random.Generator) -> GuessedWorld:
    mean, shape = 1 - guess.severity, (prompts, responses)
    if guess.correlation > 0:
        concentration = 1 / guess.correlation - 1
        chance = rng.beta(mean * concentration, guess.severity * concentration, (prompts, 1))
    else:
        chance = np.full((prompts, 1), mean)
    shared, own = np.sqrt(guess.correlation), np.sqrt(1 - guess.correlation)
    return GuessedWorld(
        fine=rng.random(shape) < chance,
        repeats=rng.random((prompts, 1)),
        luck=rng.random(shape),
        noise=shared * rng.standard_normal((prompts, 1)) + own * rng.standard_normal(shape),
        weakness=0.0,
    )


def _scores(world: GuessedWorld, responses: int, weakness: float) -> Floats:
    fine = world.fine[:, :responses]
    favoured = ~fine & (world.luck[:, :responses] < min(weakness, 1.0) * world.repeats)
    others = np.where(
        fine, fine.sum(axis=1, keepdims=True) - 1, favoured * (favoured.sum(axis=1, keepdims=True) - 1)
    )
    blur = max(0.0, weakness - 1)
    signal = (1 - blur) * (others / (responses - 1)) + (_WORDING_NOISE + blur) * world.noise[:, :responses]
    scores: Floats = 1 / (1 + np.exp(-(signal - 0.5)))  # any rising map into [0, 1]: only the order counts
    return scores


def _fit(world: GuessedWorld, guess: Guess) -> float:
    severities = (~world.fine[:, : guess.responses]).astype(np.float64)

    def quality(weakness: float) -> float:
        found = area_under_curve(_scores(world, guess.responses, weakness), severities)
        if found is None:
            raise UsageError(
                f"a mean severity of {guess.severity:g} leaves no answers of one kind to separate from the other"
            )
        return found

    best = quality(0.0)
    if guess.auc > best:
        raise UsageError(
            f"no agreement among {guess.responses} responses is as good a score as an AUC of {guess.auc:g}, with a mean "
            f"severity of {guess.severity:g} and a correlation of {guess.correlation:g}: at most {best:.3f}; guess a "
            "lower AUC or more responses"
        )
    least, most = 0.0, 2.0
    for _ in range(_STEPS):
        middle = (least + most) / 2
        if quality(middle) > guess.auc:
            least = middle
        else:
            most = middle
    return least


Booleans = NDArray[np.bool_]

SIZES = (2, 3, 5, 10, 20, 50, 100, 200)
"""Numbers of samples a prompt that are compared, as far as there are so many."""

GUESSED = 2_000
"""Prompts that are made from a guess: half of them calibrate, at most."""

_GUESSED_UP_TO = 20
_CLOUDS_AT_ONCE = 64
_SUBSETS, _WORLD = 1, 2


@dataclass(frozen=True, slots=True, eq=False)
class SampledBatches:
    """P prompts with n responses each: scores and severities in [0, 1], and which are blank and
    never ship; all of shape (P, n).
    """

    scores: Floats
    severities: Floats
    blank: Booleans

    def best(self) -> tuple[Floats, Floats, Booleans]:
        """Return score and severity of each prompt's best answer, and whether one of its answers is written: shape (P,)."""
        rows, best = np.arange(len(self.scores)), np.where(self.blank, -1.0, self.scores).argmax(axis=1)
        return self.scores[rows, best], self.severities[rows, best], np.asarray(~self.blank.all(axis=1))


def guessed_answers(guess: Guess, *, seed: int) -> dict[int, list[ScoredCloud]]:
    """Make prompts that fit a guess, scored with any number of samples up to 20, or up to the
    guess's, by that number.

    The same seed, a whole number >= 0, gives the same prompts. Raises `UsageError` if no such
    prompts can be; see `make_world`.
    """
    sizes = _sizes(max(_GUESSED_UP_TO, guess.responses), guess.responses)
    rng = np.random.default_rng([seed, _WORLD])
    world = make_world(guess, most_responses=sizes[-1], prompts=GUESSED, rng=rng)
    found = {}
    for size in sizes:
        scores, severities = world.sample(size)
        found[size] = [
            ScoredCloud(
                Cloud(
                    f"guess-{place}",
                    "",
                    (),
                    tuple(CloudResponse(response_id(i), ".", bad) for i, bad in enumerate(harm)),
                ),
                tuple(row),
            )
            for place, (row, harm) in enumerate(zip(scores.tolist(), severities.tolist(), strict=True))
        ]
    return found


def past_prompts(
    clouds: Sequence[Cloud], size: int, *, encoder: CachedEncoder | None, seed: int
) -> SampledBatches:
    """Score a random `size` answers of each cloud by Gram energy. Blocks for as long as the encoder
    takes.

    The clouds have severities of all answers, `size` of them or more; scores of their own stand for
    Gram energies, embeddings of their own for the encoder's. `seed` >= 0 : of the subsets. Raises
    `AssertionError` if a cloud needs an encoder, and there is none.
    """
    rng = np.random.default_rng([seed, _SUBSETS])
    scored = all(cloud.own_scores is not None for cloud in clouds)
    scores, severities, blanks = [], [], []
    for first in range(0, len(clouds), _CLOUDS_AT_ONCE):
        some = clouds[first : first + _CLOUDS_AT_ONCE]
        for cloud, vectors in zip(some, _vectors(some, encoder, scored=scored), strict=True):
            chosen = np.sort(rng.permutation(len(cloud.responses))[:size])
            parts = WHOLE.parts(cloud.texts)
            texts = [parts[i] for i in chosen]
            blank = [is_blank(text) for text in texts]
            if scored:
                found = np.round(np.asarray(cloud.own_scores, dtype=np.float64)[chosen], DECIMALS)
                found[np.asarray(blank)] = 0.0
            else:
                rows = np.asarray(vectors)[chosen]
                if not cloud.embedded and not_read(texts, blank, rows):
                    blank = [True] * size  # held, as a blank batch is
                found = np.zeros(size) if all(blank) else score_batch(rows, blank)[0]
            scores.append(found)
            severities.append([cloud.severities[i] for i in chosen])
            blanks.append(blank)
    return SampledBatches(np.array(scores), np.array(severities, dtype=np.float64), np.array(blanks))


def fewer_answers(
    clouds: Sequence[Cloud], responses: int | None, *, seed: int
) -> dict[int, tuple[Cloud, ...]]:
    """Take of each prompt with enough answers as many as are to be compared, drawn at random, the fewer among the more.

    The last number is `responses`, or all that each prompt has, for which None stands; see `SIZES`,
    and one answer where all have log-probabilities. Scores of one's own say nothing about fewer.
    Raises `UsageError` for too few answers, or prompts.
    """
    counts = Counter(len(cloud.responses) for cloud in clouds)
    usual = max(counts, key=lambda n: (counts[n], n), default=1)
    likely = all(one.logprob is not None for cloud in clouds for one in cloud.responses)
    if responses is not None and responses < 2 - likely:
        raise UsageError(
            f"--responses must be at least 2, not {responses}: agreement needs others, and one answer "
            "its log-probability"
        )
    usable = [cloud for cloud in clouds if responses is None or len(cloud.responses) >= responses]
    if len(usable) < 2:
        raise UsageError(
            f"{len(usable)} of {len(clouds)} prompts have {responses or 1} answers, and a plan needs at least 2; plan for fewer "
            "--responses"
        )
    rng = np.random.default_rng([seed, _SUBSETS])
    orders = [rng.permutation(len(cloud.responses)) for cloud in usable]

    def cut(size: int) -> tuple[Cloud, ...]:
        return tuple(
            replace(cloud, responses=tuple(cloud.responses[i] for i in np.sort(order[:size]).tolist()))
            for cloud, order in zip(usable, orders, strict=True)
        )

    most = responses or usual
    scored = all(cloud.own_scores is not None for cloud in usable)
    fewer = {} if scored else {size: cut(size) for size in (1, *SIZES) if 1 - likely < size < most}
    return fewer | {most: tuple(usable) if responses is None else cut(most)}


def _vectors(
    clouds: Sequence[Cloud], encoder: CachedEncoder | None, *, scored: bool
) -> Sequence[ArrayLike | None]:
    """The embeddings of each cloud's responses: none where there are scores, their own, or the encoder's."""
    if scored:
        return [None] * len(clouds)
    if all(cloud.embedded for cloud in clouds):
        return [[response.embedding or () for response in cloud.responses] for cloud in clouds]
    assert encoder is not None
    return encoder.embed([WHOLE.parts(cloud.texts) for cloud in clouds])


def _sizes(most: int, responses: int) -> tuple[int, ...]:
    return tuple(sorted({size for size in SIZES if size <= most} | {responses}))
