"""How often is a verdict false, at any look, and how soon does it come? And what a wrong one would say."""

from typing import Literal, NamedTuple

import numpy as np
import pytest
from scipy import stats

from streamer.risk.states.verdict_bets import Mark, VerdictBets

DELTA, ALPHA, P = 0.1, 0.1, 0.2
STREAMS, DECISIONS, LOOKS = 100, 1_000, 20
LATE = 50
"""Decisions until a label comes, on average, where labels are late; the 95 % quantile is three times as much."""


class Stream(NamedTuple):
    """One gate from its opening on: every prompt's loss if it shipped, what shipped, and the draws with their p."""

    losses: np.ndarray
    shipped: np.ndarray
    probability: np.ndarray
    sampled: np.ndarray


def stream(
    rng: np.random.Generator,
    exposure: float,
    *,
    share: float = 0.5,
    adaptive: bool = False,
    turns: bool = False,
    p: float = P,
    decisions: int = DECISIONS,
) -> Stream:
    """0/1 losses with this exposure risk.

    With `adaptive` the probability rises after each bad answer that was drawn; with `turns` nothing is bad in the first half,
    and as much more in the second.
    """
    half = np.arange(decisions) >= decisions // 2
    risk = np.where(half, 2 * exposure, 0.0) if turns else np.full(decisions, exposure)
    shipped = rng.random(decisions) < share
    losses = (rng.random(decisions) < risk / share) & shipped
    probability, sampled = np.full(decisions, p), np.empty(decisions, dtype=bool)
    raised = 0
    for i, uniform in enumerate(rng.random(decisions)):
        if adaptive and raised:
            probability[i], raised = min(1.0, 4 * p), raised - 1
        sampled[i] = uniform < probability[i]
        if sampled[i] and losses[i]:
            raised = 20
    return Stream(losses.astype(float), shipped, probability, sampled)


class Look(NamedTuple):
    """What is said after so many decisions with so many labels, and the mean loss up to there."""

    word: Literal["kept", "broken"] | None
    labels: int
    truth: float


def looks(
    one: Stream,
    *,
    late: bool = False,
    missing: float = 0.0,
    weighted: bool = True,
    labelled_only: bool = False,
    held: int = 0,
) -> list[Look]:
    """Look `LOOKS` times; `late` labels come in any order, a share `missing` of bad ones never.

    The keywords after them make the bets wrong on purpose: draws that count as if all had one probability, decisions without a
    label left out, so many decisions of a closed gate counted.
    """
    rng = np.random.default_rng(int(one.sampled.sum()))
    size = one.losses.size
    arrival = np.arange(size) + (rng.exponential(LATE, size) if late else 0.0)
    arrival[(one.losses > 0) & (rng.random(size) < missing)] = np.inf
    bets = VerdictBets(alpha=ALPHA, error=DELTA / 2, least=one.probability.min(), selective=False)
    waiting, found, step = held, [], size // LOOKS
    for start in range(0, size, step):
        marks = []
        for i in range(start, start + step):
            if not one.shipped[i]:
                waiting += 1
            elif one.sampled[i] and not (labelled_only and not np.isfinite(arrival[i])):
                weight = bets.least / one.probability[i] if weighted else 1.0
                marks.append(Mark(i, float(i), weight, 1.0, waiting, None))
                waiting = 0
        now = start + step
        there = np.flatnonzero(arrival[:now] <= now)
        known = {int(i): float(one.losses[i]) for i in there}
        bets = bets.after(marks, held=waiting, decisions=step, known=known)
        waiting = 0
        word = bets.says(now - 3 * LATE if late else now)
        found.append(Look(word, bets.labelled, float(one.losses[:now].mean())))
    return found


def false_words(seed: int, exposure: float, word: str, *, options: dict[str, object], **kinds: object) -> int:
    """Of `STREAMS` streams those of which a word is said at any look, against the mean loss of what was decided by then."""
    rng = np.random.default_rng(seed)
    found = 0
    for _ in range(STREAMS):
        for look in looks(stream(rng, exposure, **kinds), **options):  # type: ignore[arg-type]
            if look.word == word and (look.truth < ALPHA if word == "broken" else look.truth > ALPHA):
                found += 1
                break
    return found


ALLOWED = int(stats.binom.isf(1e-6, STREAMS, DELTA / 2))
CASES = [
    ({}, {}), ({"adaptive": True}, {"late": True}), ({"turns": True}, {}), ({"turns": True}, {"late": True}),
    ({"share": 0.9}, {"missing": 0.5}),
]  # fmt: skip


@pytest.mark.parametrize(("kinds", "options"), CASES, ids=str)
@pytest.mark.parametrize(("word", "exposure"), [("kept", 0.105), ("broken", 0.095)])
def test_a_word_is_false_less_often_than_promised(
    word: str, exposure: float, kinds: dict[str, object], options: dict[str, object]
) -> None:
    found = false_words(1, exposure, word, options=options, **kinds)
    print(f"{word} at {exposure}, {kinds} {options}: {found} of {STREAMS}, allowed {ALLOWED}")
    assert found <= ALLOWED


@pytest.mark.parametrize(
    ("exposure", "share", "labels", "least"), [(0.05, 0.5, 160, 0.8), (0.5, 0.7, 20, 0.8)]
)
def test_a_word_comes_in_time(exposure: float, share: float, labels: int, least: float) -> None:
    """Of all looks from so many labels on, at gates with half the budget or five times it."""
    rng = np.random.default_rng(5)
    said = [
        look.word is not None
        for _ in range(40)
        for look in looks(stream(rng, exposure, share=share, decisions=2 * DECISIONS, p=0.35), late=True)
        if look.labels >= labels
    ]
    print(f"{exposure}: a word in {np.mean(said):.2f} of {len(said)} looks with {labels} labels and more")
    assert np.mean(said) >= least


def test_counting_closed_phases_is_caught() -> None:
    """Control: 3,000 decisions of a closed gate among the prompts make most gates at three times their budget kept."""
    found = false_words(3, 0.3, "kept", options={"held": 3_000})
    print(f"closed phase counted: {found} of {STREAMS}")
    assert found > 5 * ALLOWED


def test_leaving_out_what_has_no_label_is_caught() -> None:
    """Control: most bad answers are never labelled, and draws without a label are left out."""
    found = false_words(4, 0.15, "kept", options={"labelled_only": True, "missing": 0.7})
    print(f"labelled only: {found} of {STREAMS}")
    assert found > 2 * ALLOWED


def test_draws_of_a_raised_rate_that_count_as_much_as_others_are_caught() -> None:
    """Control: where more is drawn after a bad answer, and bad ones come together, their mean is not that of the decisions."""
    rng = np.random.default_rng(6)
    found = 0
    for _ in range(STREAMS):
        one = stream(rng, 0.09)
        bad = np.repeat(rng.random(DECISIONS // 50) < 0.18, 50)
        losses = np.where(bad, rng.random(DECISIONS) < 0.9, 0.0) * one.shipped
        probability = np.where(bad & np.roll(bad, 10), 4 * P, P)
        clustered = Stream(losses, one.shipped, probability, rng.random(DECISIONS) < probability)
        found += any(
            look.word == "broken" and look.truth < ALPHA for look in looks(clustered, weighted=False)
        )
    print(f"unweighted: {found} of {STREAMS}")
    assert found > 2 * ALLOWED
