"""A plan from one half of real answers, against what calibrations on the other half give."""

from dataclasses import replace
from pathlib import Path

import pytest

from streamer.clouds.cloud import Cloud, split_clouds
from streamer.clouds.cloud_files import read_clouds
from streamer.clouds.offline import score_clouds
from streamer.gates.declared import Unit
from streamer.planning.plan import Budget, Simulation, make_plan
from streamer.planning.prompts import past_prompts
from streamer.scoring.encoders.encoder import CachedEncoder, Encoder
from tests.offline import split_figures

RESPONSES = 5
LEVEL = 0.99
"""Stated before anything was run: each of the two checks below fails by bad luck once in a hundred."""


@pytest.fixture(scope="module")
def halves(triviaqa_path: Path) -> tuple[list[Cloud], list[Cloud]]:
    clouds = [replace(c, responses=c.responses[:RESPONSES]) for c in read_clouds(triviaqa_path)]
    first, second = split_clouds(clouds, 0)
    return list(first), list(second)


@pytest.fixture(scope="module")
def encoder(real_encoder: Encoder) -> CachedEncoder:
    return CachedEncoder(real_encoder)


@pytest.mark.parametrize(("unit", "alpha"), [("best", 0.1), ("response", 0.1)])
def test_one_half_tells_what_the_other_gives(
    halves: tuple[list[Cloud], list[Cloud]], unit: Unit, alpha: float, encoder: CachedEncoder
) -> None:
    groups = len(halves[1]) // 2
    each = 1 if unit == "best" else RESPONSES  # the offline path labels every response that may ship
    plan = make_plan(
        past_prompts(halves[0], encoder=encoder, seed=0),
        Budget(alpha, groups * each),
        unit=unit,
        simulation=Simulation(level=LEVEL),
    )
    drawn = plan.splits[-1]
    assert (drawn.split.groups, drawn.split.per_group) == (groups, each)
    happened = split_figures(score_clouds(halves[1], encoder), unit=unit, alpha=alpha, seeds=range(20))
    assert happened.ship_rate is not None
    assert happened.exposure_risk is not None
    assert drawn.ship_rate.low <= happened.ship_rate <= drawn.ship_rate.high
    assert drawn.exposure_risk.low <= happened.exposure_risk <= drawn.exposure_risk.high
