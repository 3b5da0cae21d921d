"""The prompts that a plan is simulated on: made from a guess, or past ones whose severities are known."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamer.clouds.cloud import Cloud, CloudResponse, response_id
from streamer.clouds.offline import ScoredCloud
from streamer.errors import UsageError
from streamer.planning.guess import Guess, make_world
from streamer.scoring.blank import is_blank
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.scoring.gram import DECIMALS, score_batch
from streamer.scoring.judged import WHOLE
from streamer.scoring.reading import not_read

Floats = NDArray[np.float64]
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
    """P prompts with n scored responses each, and what is known of them.

    Attributes
    ----------
    scores, severities : shape (P, n), in [0, 1].
    blank : shape (P, n), True for a blank answer, which never ships.
    """

    scores: Floats
    severities: Floats
    blank: Booleans

    def best(self) -> tuple[Floats, Floats, Booleans]:
        """Return score and severity of each prompt's best answer, and whether one of its answers is written: shape (P,)."""
        rows, best = np.arange(len(self.scores)), np.where(self.blank, -1.0, self.scores).argmax(axis=1)
        return self.scores[rows, best], self.severities[rows, best], np.asarray(~self.blank.all(axis=1))


def guessed_answers(guess: Guess, *, seed: int) -> dict[int, list[ScoredCloud]]:
    """Make prompts that fit a guess, scored with any number of samples up to 20, or up to the guess's, by that number.

    Raises `UsageError` if no such prompts can be; see `make_world`.

    Parameters
    ----------
    seed : a whole number >= 0; the same gives the same prompts.
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
    """Score a random `size` answers of each cloud by Gram energy. Blocks for as long as the encoder takes.

    Raises `AssertionError` if a cloud needs an encoder, and there is none.

    Parameters
    ----------
    clouds : with severities of all answers, `size` of them or more. Scores of their own stand for Gram energies; embeddings
        of their own for the encoder's.
    seed : of the subsets, a whole number >= 0.
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
