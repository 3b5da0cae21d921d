"""`calibrate` with the names of other promises is the calibrator of that name on the same groups."""

from typing import Any

import numpy as np
import pytest

from streamer import calibrate
from streamer.calibration import LabelledGroup, calibrate_clt, calibrate_high_probability

RNG = np.random.default_rng(5)
GROUPS = np.repeat(np.arange(120), 3)
SCORES = np.round(RNG.random(360), 3)
SEVERITIES = (RNG.random(360) < 0.4 * (1 - SCORES)).astype(float)
NAMED = [
    LabelledGroup(str(g), ("0", "1", "2"), SCORES[g == GROUPS], SEVERITIES[g == GROUPS]) for g in range(120)
]


@pytest.mark.parametrize("groups", [GROUPS, GROUPS.astype(np.int8), GROUPS.tolist()])
def test_the_names_lead_to_the_calibrators(groups: Any) -> None:
    for method in ("hb", "betting"):
        found = calibrate(SCORES, SEVERITIES, groups, alpha=0.1, method=method, delta=0.2, seed=3)
        wanted = calibrate_high_probability(NAMED, alpha=0.1, delta=0.2, method=method, seed=3)  # type: ignore[arg-type]
        assert found == wanted
        assert found.state == "cut"
    band = calibrate(SCORES, SEVERITIES, groups, alpha=0.1, method="clt", delta=0.2)
    assert band == calibrate_clt(NAMED, alpha=0.1, delta=0.2)
    assert "Asymptotic, no finite-sample promise" in band.guarantee


def test_a_generator_seeds_betting() -> None:
    found = [
        calibrate(SCORES, SEVERITIES, GROUPS, alpha=0.1, method="betting", seed=np.random.default_rng(4))
        for _ in range(2)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method": "transductive"}, "one of mean"),
        ({"method": "hb", "delta": 1.5}, "delta"),
        ({"method": "clt", "delta": 0.7}, r"at most 0\.5"),
        ({"method": "betting", "seed": -1}, "seed"),
        ({"method": "hb", "groups": GROUPS[:-1]}, "one group id for each item"),
        ({"method": "hb", "severities": SEVERITIES[:-1]}, "one each"),
        ({"method": "clt", "scores": SCORES + 1}, r"\[0, 1\]"),
    ],
)
def test_bad_arguments_are_named(changes: dict[str, Any], said: str) -> None:
    given = {"scores": SCORES, "severities": SEVERITIES, "groups": GROUPS, "alpha": 0.1} | changes
    with pytest.raises(ValueError, match=said):
        calibrate(given.pop("scores"), given.pop("severities"), given.pop("groups"), **given)
