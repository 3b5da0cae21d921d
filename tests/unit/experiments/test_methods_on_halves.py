"""Every method on halves of a file: one measure for all, scores that are computed once."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamer.clouds.cloud import Cloud, CloudResponse
from streamer.clouds.compared_methods import METHODS_COMPARED
from streamer.clouds.halves import Halves, outcomes
from streamer.clouds.offline import ScoredCloud
from streamer.research.experiments import score_cache
from streamer.research.experiments.score_cache import every_score
from streamer.scoring.registry import GRAM, SCORER_NAMES
from tests.offline import split_figures

SEEDS = range(8)


def made_up(count: int = 80, answers: int = 5) -> list[ScoredCloud]:
    """Clouds whose severities follow their scores; some answers are blank, one cloud has nothing but blanks."""
    rng = np.random.default_rng(20261120)
    scored = []
    for q in range(count):
        quality = rng.random()
        scores = np.round(0.6 * quality + 0.4 * rng.random(answers), 2)
        blank = rng.random(answers) < (0.03 if q else 1.1)
        scores[blank] = 0.0
        responses = tuple(
            CloudResponse(
                f"r{i:02d}", " " if blank[i] else f"answer {i} to {q}", float(rng.random() > 0.3 + 0.7 * s)
            )
            for i, s in enumerate(scores)
        )
        cloud = Cloud(f"q{q}", f"question {q}", (), responses)
        scored.append(ScoredCloud(cloud, tuple(scores.tolist()) if q else None))
    return scored


@pytest.fixture(scope="module")
def scored() -> list[ScoredCloud]:
    return made_up()


@pytest.mark.parametrize("unit", ["best", "response"])
@pytest.mark.parametrize("scheme", ["mean", "crc", "bb", "rbwa"])
def test_the_weighting_schemes_have_the_figures_of_the_offline_path(scored, unit, scheme):
    (method,) = (method for method in METHODS_COMPARED if method.name == scheme)
    row = outcomes(method.run, Halves.of(scored, unit, SEEDS), 0.15)
    other = split_figures(scored, unit=unit, alpha=0.15, method=scheme, seeds=SEEDS)
    spread = row.exposure.std(ddof=1) / math.sqrt(len(SEEDS))
    assert row.exposure.mean() == pytest.approx(other.exposure_risk, abs=1e-12)
    assert spread == pytest.approx(other.exposure_risk_se, abs=1e-12)
    assert row.ship_rate.mean() == pytest.approx(other.ship_rate, abs=1e-12)
    assert np.nanmean(row.shipped_severity) == pytest.approx(other.selective_risk, abs=1e-12)


@pytest.mark.parametrize("unit", ["best", "response"])
def test_methods_stand_to_each_other_as_their_promises_do(scored, unit):
    halves = Halves.of(scored, unit, SEEDS)
    rows = {
        method.name: outcomes(method.run, halves, 0.3)
        for method in METHODS_COMPARED
        if unit == "response" or not method.response_only
    }
    for row in rows.values():
        assert 0 <= row.exposure.mean() <= row.ship_rate.mean() <= 1
    served = {name: row.ship_rate.mean() for name, row in rows.items()}
    assert served["hb"] < served["mean"]
    assert served["clt"] < served["mean"]
    if unit == "best":
        for name in ("crc", "bb", "rbwa", "pooled", "transductive"):
            assert rows[name].exposure.mean() == rows["mean"].exposure.mean()
    else:
        assert served["transductive"] >= served["mean"]


def test_no_method_serves_what_the_encoder_does_not_read(scored):
    halves = Halves.of([ScoredCloud(one.cloud, None) for one in scored], "best", SEEDS)
    assert not any(outcomes(method.run, halves, 0.15).ship_rate.any() for method in METHODS_COMPARED)


def test_scores_are_computed_once(scored, tmp_path, monkeypatch):
    by_id = {item.cloud.batch_id: item.scores for item in scored}
    asked: dict[str, Any] = {
        "clouds": [item.cloud for item in scored],
        "folder": tmp_path,
        "encoder_id": "x@1",
    }
    with monkeypatch.context() as patch:
        patch.setattr(
            score_cache,
            "measured_batches",
            lambda clouds, *_: (
                found and dict.fromkeys(SCORER_NAMES, found)
                for found in (by_id[one.batch_id] for one in clouds)
            ),
        )
        every_score(**asked, load_encoder=lambda: SimpleNamespace(embed=lambda batches: batches))
    again = every_score(**asked, load_encoder=_refuse)
    assert [one and one[GRAM] for one in again] == [item.scores for item in scored]
    (record,) = Path(tmp_path).iterdir()
    whole = record.read_bytes()
    flipped = whole.replace(b"0.", b"0.9", 1)
    for damage in (b"{", whole[:-20], flipped, b'{"key":"x","scores":{"gram":[0.5]}}\n'):
        record.write_bytes(damage)
        with pytest.raises(LookupError, match="computed anew"):
            every_score(**asked, load_encoder=_refuse)
    record.write_bytes(whole)
    with pytest.raises(LookupError, match="computed anew"):
        every_score(**asked | {"encoder_id": "another@00000000"}, load_encoder=_refuse)


def _refuse() -> Any:
    raise LookupError("computed anew")
