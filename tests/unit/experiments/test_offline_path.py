"""The offline twin: groups, thresholds and decisions are those of the parts it is made of."""

import hashlib
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from streamer.calibration import calibrate
from streamer.clouds.cloud import Cloud, CloudResponse, split_clouds
from streamer.clouds.offline import ScoredCloud, calibration_groups
from streamer.clouds.simulation import simulate_clouds
from streamer.gates.declared import Unit
from streamer.research.evaluation.words import UNITS
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.scoring.encoders.identity import EncoderIdentity
from tests.offline import run_scored, score_clouds


class HashedWords:
    """An encoder without a model: each word has a fixed random direction, a text is the sum of its words."""

    identity = EncoderIdentity("hashed-words", "test", "0" * 64, 32)

    def encode(
        self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
    ) -> NDArray[np.float32]:
        return np.array([self._vector(text) for text in texts], dtype=np.float32)

    def _vector(self, text: str) -> NDArray[np.float64]:
        total = np.zeros(32)
        for word in text.lower().split() or ["<blank>"]:
            seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
            total += np.random.default_rng(seed).standard_normal(32)
        return total / np.linalg.norm(total)


def encoder() -> CachedEncoder:
    return CachedEncoder(HashedWords())


def cloud(name: str, *answers: tuple[str, float | None]) -> Cloud:
    return Cloud(name, "?", (), tuple(CloudResponse(f"r{i:02d}", t, m) for i, (t, m) in enumerate(answers)))


def test_groups_hold_what_the_audit_would_ask_for():
    scored = [
        ScoredCloud(cloud("a", ("x", 1.0), ("y", 0.0), ("z", None)), (0.2, 0.9, 0.4)),
        ScoredCloud(cloud("b", ("x", 1.0), ("", 1.0), ("z", 0.5)), (0.5, 0.0, 0.5)),
        ScoredCloud(cloud("c", ("", 0.0), ("", 0.0)), None),
    ]
    best, response, whole = (calibration_groups(scored, unit) for unit in ("best", "response", "batch"))
    assert [(g.id, g.item_ids, g.scores.tolist(), g.severities.tolist()) for g in best] == [
        ("a#1", ("r01",), [0.9], [0.0]),
        ("b#1", ("r00",), [0.5], [1.0]),
    ]
    assert response[0].severities.tolist() == [1.0, 0.0, 1.0]
    assert [len(g.item_ids) for g in response] == [3, 3]
    assert [(g.id, g.scores.tolist()) for g in whole] == [("a#1", [0.5] * 3)]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("alpha", [0.001, 0.1, 0.3, 0.9])
def test_a_run_is_calibration_on_one_half_and_the_gate_on_the_other(unit: Unit, alpha: float):
    clouds = simulate_clouds(seed=5, clouds=120, responses=5)
    scored = score_clouds(clouds, encoder())
    result = run_scored(scored, unit=unit, alpha=alpha, seed=2)
    first, second = split_clouds(clouds, 2)
    by_id = {s.cloud.batch_id: s for s in scored}
    assert [b.batch_id for b in result.decided] == [c.batch_id for c in second]

    def unit_items(c: Cloud) -> list[tuple[float, float]]:
        scores, severities = by_id[c.batch_id].scores, [1.0 if m is None else m for m in c.severities]
        assert scores is not None
        if unit == "response":
            return list(zip(scores, severities, strict=True))
        if unit == "best":
            i = int(np.argmax(scores))
            return [(scores[i], severities[i])]
        return [(round(math.fsum(scores) / len(scores), 6), float(np.mean(severities)))]

    rows = [(s, m, c.batch_id) for c in first for s, m in unit_items(c)]
    expected = calibrate(*map(list, zip(*rows, strict=True)), alpha=alpha)  # type: ignore[arg-type]
    assert (result.threshold.state, result.threshold.value) == (expected.state, expected.value)
    decided = [(s, m) for c in second for s, m in unit_items(c)]
    shipped = np.array([s > expected.value for s, _ in decided])
    severities = np.array([m for _, m in decided])
    assert result.report.ship_rate == pytest.approx(shipped.mean())
    assert result.report.exposure_risk == pytest.approx((shipped * severities).mean())
    summary = result.summary()
    assert (summary["lambda"] is None) == (expected.state != "cut")
    assert (summary["calibration_groups"], summary["batches"], summary["responses"]) == (60, 60, 300)
    assert list(summary) == [
        "unit", "alpha", "method", "state", "lambda", "calibration_groups", "batches", "responses",
        "ship_rate", "exposure_risk", "exposure_risk_se", "selective_risk", "severity_reduction",
    ]  # fmt: skip
