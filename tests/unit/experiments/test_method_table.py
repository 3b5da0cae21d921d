"""Every method on halves of a file: one measure for all, scores that are computed once."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from streamer.clouds.cloud import Cloud, CloudResponse
from streamer.clouds.compared_methods import METHODS_COMPARED
from streamer.clouds.halves import Halves
from streamer.clouds.offline import ScoredCloud
from streamer.errors import UsageError
from streamer.research.experiments import score_cache
from streamer.research.experiments.score_cache import scored_file
from streamer.scoring.encoders.registry import DEFAULT_ENCODER, encoder_identity
from streamer.scoring.registry import SCORER_NAMES
from streamer_research.studies import method_table
from streamer_research.studies.method_table import MethodFigures, main, markdown_table, method_figures
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
    row = method_figures(method, Halves.of(scored, unit, SEEDS), 0.15)
    other = split_figures(scored, unit=unit, alpha=0.15, method=scheme, seeds=SEEDS)
    assert row.exposure_risk == pytest.approx(other.exposure_risk, abs=1e-12)
    assert row.exposure_sd / math.sqrt(len(SEEDS)) == pytest.approx(other.exposure_risk_se, abs=1e-12)
    assert row.ship_rate == pytest.approx(other.ship_rate, abs=1e-12)
    assert row.selective_risk == pytest.approx(other.selective_risk, abs=1e-12)


@pytest.mark.parametrize("unit", ["best", "response"])
def test_every_method_has_a_row_that_can_be(scored, unit):
    halves = Halves.of(scored, unit, SEEDS)
    rows = {
        method.name: method_figures(method, halves, 0.3)
        for method in METHODS_COMPARED
        if unit == "response" or not method.response_only
    }
    for row in rows.values():
        assert 0 <= row.exposure_risk <= row.ship_rate <= 1
        assert 0 <= row.closed <= 1
        if row.ship_rate:
            assert row.exposure_risk <= row.selective_risk <= 1
    assert rows["hb"].ship_rate < rows["mean"].ship_rate
    assert rows["clt"].ship_rate < rows["mean"].ship_rate
    if unit == "best":
        for name in ("crc", "bb", "rbwa", "pooled", "transductive"):
            assert rows[name].exposure_risk == rows["mean"].exposure_risk
    else:
        assert rows["transductive"].ship_rate >= rows["mean"].ship_rate


def test_equal_rows_are_one_and_what_lies_above_the_budget_is_marked():
    figures = {"exposure_sd": 0.02, "ship_rate": 0.5, "selective_risk": None, "closed": 0.0, "halves": 25}
    rows = [
        MethodFigures(name=name, exposure_risk=risk, level_sd=spread, **figures)
        for name, risk, spread in (("a", 0.104, 0.1), ("b", 0.104, 0.1), ("c", 0.1, None))
    ]
    assert markdown_table(rows, 0.1).splitlines()[2:] == [
        "| `a`, `b` | 0.1040 (+1.0 SE) | 0.0200 | 0.500 | – | 0.1000 | 0.00 |",
        "| `c` | 0.1000 | 0.0200 | 0.500 | – | – | 0.00 |",
    ]


def write(path: Path, scored: list[ScoredCloud]) -> None:
    path.write_text(
        "".join(
            json.dumps(
                {
                    "question_id": item.cloud.question_id,
                    "question": item.cloud.question,
                    "responses": [{"text": r.text, "label": r.severity} for r in item.cloud.responses],
                }
            )
            + "\n"
            for item in scored
        )
    )


@pytest.fixture
def kept(scored, tmp_path, monkeypatch) -> Path:
    """A file whose scores are there already; whoever asks for an encoder fails."""
    path = tmp_path / "clouds.jsonl"
    write(path, scored)
    by_id = {item.cloud.batch_id: item.scores for item in scored}
    with monkeypatch.context() as patch:
        patch.setattr(
            score_cache,
            "cloud_scores",
            lambda cloud, *_: by_id[cloud.batch_id] and dict.fromkeys(SCORER_NAMES, by_id[cloud.batch_id]),
        )
        first = scored_file(
            path,
            encoder_id=encoder_identity(DEFAULT_ENCODER).id,
            load_encoder=lambda: SimpleNamespace(embed=lambda batches: batches),
            folder=tmp_path / "scores",
        )
    assert [item.scores for item in first] == [item.scores for item in scored]
    monkeypatch.setattr(method_table, "default_encoder", lambda: pytest.fail("an encoder was loaded"))
    return path


def test_scores_are_computed_once(kept, scored):
    folder = kept.parent / "scores"
    identity = encoder_identity(DEFAULT_ENCODER).id
    again = scored_file(kept, encoder_id=identity, load_encoder=lambda: pytest.fail("loaded"), folder=folder)
    assert [item.scores for item in again] == [item.scores for item in scored]
    (record,) = folder.iterdir()
    whole = record.read_bytes()
    flipped = whole.replace(b"0.", b"0.9", 1)
    for damage in (b"{", whole[:-20], flipped, b'{"key":"x","scores":{"gram":[0.5]}}\n'):
        record.write_bytes(damage)
        with pytest.raises(LookupError, match="computed anew"):
            scored_file(kept, encoder_id=identity, load_encoder=_refuse, folder=folder)
    record.write_bytes(whole)
    with pytest.raises(LookupError, match="computed anew"):
        scored_file(kept, encoder_id="another@00000000", load_encoder=_refuse, folder=folder)


def _refuse() -> None:
    raise LookupError("computed anew")


def test_the_command_prints_a_table_for_each_unit_and_budget(kept, capsys):
    options = ["--halves", "3", "--alpha", "0.1", "0.2", "--scores", str(kept.parent / "scores")]
    assert main([str(kept), *options]) == 0
    out = capsys.readouterr().out
    assert out.count("### clouds.jsonl: 80 clouds, unit best") == 2
    assert out.count("| `rank` |") == 2
    assert "unit response, alpha 0.2, 3 halves" in out


def test_a_file_that_is_no_cloud_is_named(tmp_path, capsys):
    with pytest.raises(UsageError, match="cannot read"):
        scored_file(tmp_path / "none", encoder_id="x", load_encoder=_refuse, folder=tmp_path)
    assert main([str(tmp_path / "none")]) == 1
    assert "cannot read" in capsys.readouterr().err
