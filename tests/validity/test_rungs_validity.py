"""A cheap gate and an expensive one behind it: the budgets add up, and need not where the dear one follows the cheap one's threshold."""

from typing import Literal

import numpy as np
import pytest
from scipy import stats

from streamer import calibrate
from streamer.gates.rungs import hands_on, later_budget

REPETITIONS = 2500
SURE = float(stats.norm.isf(5e-7))


def mean_and_error(values: list[float]) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


def cut(scores: np.ndarray, severities: np.ndarray, alpha: float) -> float:
    return calibrate(scores, severities, np.arange(len(scores)), alpha=alpha).value


def test_the_budgets_add_up_to_what_is_lost_though_one_prompt_is_wrong_at_both() -> None:
    """Tight: alpha (G + 1) is whole at both gates, scores do not tie, and both ship until their budgets are spent."""
    floor, first, later = 0.5, 0.02, 0.1
    labelled_first, labelled_later = 99, 59
    rng = np.random.default_rng(1)
    found = []
    for _ in range(REPETITIONS):
        cheap, dear, luck = rng.random((3, 400))
        wrong_at_first, wrong_later = luck > cheap, luck > dear
        reaches = np.flatnonzero([hands_on(score, at_least=0.0, floor=floor) for score in cheap])[
            :labelled_later
        ]
        assert len(reaches) == labelled_later
        some = np.arange(labelled_first)
        level = max(cut(cheap[some], wrong_at_first[some].astype(float), first), floor)
        later_level = cut(dear[reaches], wrong_later[reaches].astype(float), later)
        # A score is uniform, and an answer of score q is wrong with chance 1 - q.
        found.append((1 - level) ** 2 / 2 + floor * (1 - later_level) ** 2 / 2)
    mean, error = mean_and_error(found)
    assert abs(mean - (first + floor * later)) <= SURE * error


Follows = Literal["the label floor", "a threshold of other labels", "a threshold of the same labels"]


def lost_later(follows: Follows, alpha: float) -> tuple[float, float]:
    """What the expensive gate loses a prompt that reaches it, and the standard error.

    Half of the prompts score high at the cheap gate, which ships all of these or none: as its labels fall, about half of the
    time. On those the expensive gate is wrong where the cheap one is right. So where labels close the cheap gate, the same prompts
    make the dear one look better than it is. It is wrong on .4 of whatever reaches it, at any score. Tight, as above.
    """
    read, labelled_later = 160, 59
    rng = np.random.default_rng(2)
    found = []
    for _ in range(2 * REPETITIONS):
        high = rng.random(2 * read) < 0.5
        later_wrong, dear = rng.random(2 * read) < 0.4, rng.random(2 * read)
        cheap, wrong = np.where(high, 0.8, 0.2), np.where(high, ~later_wrong, True)
        chosen_by = slice(read, None) if follows == "a threshold of other labels" else slice(read)
        level = max(cut(cheap[chosen_by], wrong[chosen_by].astype(float), 0.3), 0.2)
        at_most = 0.2 if follows == "the label floor" else level
        # Of the same prompts the first ones; a few more where these are too few.
        reaches = np.flatnonzero([hands_on(score, at_least=0.0, floor=at_most) for score in cheap])[
            :labelled_later
        ]
        later_level = cut(dear[reaches], later_wrong[reaches].astype(float), alpha)
        found.append(0.4 * (1 - max(later_level, 0.0)))
    return mean_and_error(found)


@pytest.mark.parametrize("follows", ["the label floor", "a threshold of other labels"])
def test_a_later_gate_keeps_its_budget_if_its_labels_did_not_choose_its_prompts(follows: Follows) -> None:
    mean, error = lost_later(follows, 0.25)
    assert abs(mean - 0.25) <= SURE * error


def test_a_later_gate_whose_labels_chose_its_prompts_breaks_its_budget() -> None:
    mean, error = lost_later("a threshold of the same labels", 0.25)
    assert mean > 0.25 + SURE * error


@pytest.mark.parametrize("share_handed_on", [0.05, 0.3, 0.9])
def test_the_share_that_is_handed_on_may_be_counted(share_handed_on: float) -> None:
    """Exact: what is lost over all prompts, averaged over the prompts that were counted, if the later budget is all spent."""
    budget, prompts = 0.02, 30
    counts = np.arange(prompts + 1)
    chances = stats.binom.pmf(counts, prompts, share_handed_on)
    budgets = [later_budget(budget, handed_on=int(one), prompts=prompts) for one in counts]
    lost = share_handed_on * float(chances @ budgets)
    assert lost == pytest.approx(budget * (1 - (1 - share_handed_on) ** (prompts + 1)))
    natural = [budget * prompts / max(one, 1) for one in counts]
    if share_handed_on > 0.1:  # where a gate that nothing reaches is rare
        assert share_handed_on * float(chances @ natural) > budget


@pytest.mark.parametrize(
    ("share", "handed_on", "prompts"), [(0.0, 1, 2), (1.0, 1, 2), (0.1, 3, 2), (0.1, -1, 2)]
)
def test_budgets_of_what_cannot_be_counted_are_refused(share: float, handed_on: int, prompts: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        later_budget(share, handed_on=handed_on, prompts=prompts)


def test_a_later_budget_is_less_than_one() -> None:
    assert later_budget(0.5, handed_on=0, prompts=50) < 1
