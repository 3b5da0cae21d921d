"""The figures of real answers, with the real encoder: independent ones that a right implementation reproduces."""

import pytest

from streamer.clouds.offline import ScoredCloud
from streamer.clouds.simulation import simulate_clouds
from streamer.scoring.encoders.encoder import CachedEncoder, Encoder
from tests.offline import score_clouds, split_figures

SEEDS = range(20)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("alpha", "ship_rate", "reduction"), [(0.01, 0.08, None), (0.05, 0.38, 0.83), (0.20, 0.69, 0.69)]
)
def test_unit_response(trivia: list[ScoredCloud], alpha: float, ship_rate: float, reduction: float | None):
    figures = split_figures(trivia, unit="response", alpha=alpha, seeds=SEEDS)
    assert figures.ship_rate == pytest.approx(ship_rate, abs=0.03)
    if reduction is not None:
        assert figures.severity_reduction == pytest.approx(reduction, abs=0.03)
    assert figures.exposure_risk <= alpha + 2 * figures.exposure_risk_se


@pytest.mark.parametrize(("alpha", "ship_rate"), [(0.05, 0.45), (0.20, 0.84)])
def test_unit_best(trivia: list[ScoredCloud], alpha: float, ship_rate: float):
    figures = split_figures(trivia, unit="best", alpha=alpha, seeds=SEEDS)
    assert figures.ship_rate == pytest.approx(ship_rate, abs=0.04)
    assert figures.exposure_risk <= alpha + 2 * figures.exposure_risk_se


def test_simulated_clouds_score_usefully(real_encoder: Encoder):
    scored = score_clouds(simulate_clouds(seed=0, clouds=100, responses=5), CachedEncoder(real_encoder))
    figures = split_figures(scored, unit="best", alpha=0.10, seeds=SEEDS)
    assert figures.ship_rate is not None
    assert 0.2 < figures.ship_rate < 0.95
    assert figures.severity_reduction is not None
    assert figures.severity_reduction > 0.25
    assert figures.exposure_risk <= 0.10 + 2 * figures.exposure_risk_se
