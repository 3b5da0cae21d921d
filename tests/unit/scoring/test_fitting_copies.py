"""Labels of one kind that are all of copies, as canned refusals are."""

from __future__ import annotations

import numpy as np
import pytest

from streamer.scoring.agreement import FEATURES
from streamer.scoring.fitting import Example, NothingToLearn, fit_and_measure


def examples(draw: int, copies: int) -> list[Example]:
    """Answers that are fine, all different, and bad ones that are a few, again and again."""
    rng = np.random.default_rng(7)
    bad = rng.normal(size=(copies, 1, len(FEATURES)))
    return [
        Example(
            f"{draw}-{number}",
            bad[number // 3 % copies] if number % 3 == 0 else rng.normal(size=(1, len(FEATURES))) + 1.0,
            np.array([float(number % 3 == 0)]),
            0,
        )
        for number in range(60)
    ]


@pytest.mark.parametrize("draw", range(8))
def test_a_few_copies_are_dealt_to_several_parts(draw: int) -> None:
    fit_and_measure(examples(draw, 2), order="gram", alphas=[0.1], calibrating=60, all_labelled=120)


def test_one_answer_again_and_again_is_refused() -> None:
    with pytest.raises(NothingToLearn, match="are of copies"):
        fit_and_measure(examples(0, 1), order="gram", alphas=[0.1], calibrating=60, all_labelled=120)
