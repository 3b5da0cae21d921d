"""The learned score in an evaluation reads the labels of first halves alone, and of each for one thing only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamer.clouds.cloud import Cloud, CloudResponse
from streamer.clouds.offline import ScoredCloud
from streamer.gates.folds import fold_of
from streamer.research.evaluation.learned import example, in_gram_order, learned_halves, left_out_scores
from streamer.research.experiments.halves import Halves, seeded_splits
from streamer.scoring.agreement import FEATURES

GRAM = FEATURES.index("gram")


def made_up(count: int) -> tuple[list[Cloud], tuple[np.ndarray, ...]]:
    """Clouds of three answers that are fine where the sixth number is positive; Gram energy says nothing."""
    rng = np.random.default_rng(7)
    rows = tuple(rng.normal(size=(3, len(FEATURES))) for _ in range(count))
    for one in rows:
        one[:, GRAM] = rng.random(3)
    clouds = [
        Cloud(
            question_id=f"q{n}",
            question=f"question {n}",
            references=(),
            responses=tuple(
                CloudResponse(id=f"r{i}", text=f"answer {i}", severity=float(rows[n][i, 5] < 0), kind="human")
                for i in range(3)
            ),
        )
        for n in range(count)
    ]
    return clouds, rows


def by_gram(clouds: list[Cloud], rows: tuple[np.ndarray, ...]) -> list[ScoredCloud]:
    return [
        ScoredCloud(cloud, tuple(one[:, GRAM].round(6).tolist()))
        for cloud, one in zip(clouds, rows, strict=True)
    ]


@pytest.mark.parametrize("unit", ["best", "response"])
def test_nothing_that_is_measured_has_any_part_in_the_fit_or_the_threshold(unit: str) -> None:
    clouds, rows = made_up(200)
    (split,) = seeded_splits(clouds, [3])
    fit = {p for p in split.first if fold_of(b"evaluation 3", "evaluation", clouds[p].batch_id) == "fit"}

    def groups(changed: set[int]) -> dict[str, list[float]]:
        """The calibration groups with their scores, where some clouds have their labels the other way round."""
        other = [
            replace(
                cloud,
                responses=tuple(replace(r, severity=1.0 - (r.severity or 0.0)) for r in cloud.responses),
            )
            if place in changed
            else cloud
            for place, cloud in enumerate(clouds)
        ]
        gram = by_gram(other, rows)
        found = learned_halves(gram, rows, unit, [split], Halves.at(gram, unit, [split]), [0.2])
        if found.refused[0.2]:
            return {}
        return {group.id: group.scores.tolist() for group in found.halves[0.2].labels[0].groups}

    plain = groups(set())
    assert plain.keys() == {f"q{p}#1" for p in set(split.first) - fit}
    assert groups(set(split.second.tolist())) == plain, "labels that are measured changed the score"
    assert groups(set(split.first) - fit) == plain, "labels that calibrate changed the score"
    assert groups(set(sorted(fit)[:2])) != plain


def test_a_prompt_is_ranked_by_a_model_that_its_labels_did_not_fit() -> None:
    clouds, rows = made_up(60)
    plain = left_out_scores(clouds, rows)
    flipped = replace(
        clouds[0],
        responses=tuple(replace(r, severity=1.0 - (r.severity or 0.0)) for r in clouds[0].responses),
    )
    changed = left_out_scores([flipped, *clouds[1:]], rows)
    assert changed[1:] != plain[1:]
    assert changed[0] == pytest.approx(plain[0], abs=0.2)  # the choice of the penalty alone
    gram = by_gram(clouds, rows)
    scored = [ScoredCloud(cloud, one) for cloud, one in zip(clouds, plain, strict=True)]
    for ordered, other in zip(in_gram_order(scored, gram), gram, strict=True):
        assert np.argmax(ordered.scores) == np.argmax(other.scores)


def test_under_best_the_one_label_is_that_of_the_answer_that_gram_energy_chooses() -> None:
    clouds, rows = made_up(5)
    found = example(clouds[0], rows[0], "best")
    assert found is not None
    place = int(np.argmax(rows[0][:, GRAM]))
    assert found.severities.tolist() == [clouds[0].severities[place]]
    unlabelled = replace(
        clouds[0],
        responses=tuple(
            replace(r, severity=None) if i == place else r for i, r in enumerate(clouds[0].responses)
        ),
    )
    assert example(unlabelled, rows[0], "best") is None
    assert example(unlabelled, rows[0], "response") is not None
