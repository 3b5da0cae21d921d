"""Files of one answer a prompt with the log-probabilities of its tokens, in the place of ten."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamer
from streamer.clouds.cloud import cloud_to_event
from streamer.clouds.cloud_files import read_clouds
from streamer.deciding.measuring import batch_made, measured
from streamer.errors import UsageError
from streamer.events.responses import decode_responses, encode_responses
from streamer.research.evaluation import evaluate
from tests.told import Told

RNG = np.random.default_rng(7)
PROMPTS = 120


def token(logprob: float) -> dict[str, Any]:
    other = math.log(1 - math.exp(logprob))
    tops = [{"token": one, "logprob": value} for one, value in (("a", logprob), ("b", other))]
    return {"token": "a", "logprob": logprob, "top_logprobs": tops}


BAD = (RNG.random(PROMPTS) < 0.3).tolist()
TOKENS = [(-RNG.exponential(1.0 if bad else 0.1, 6) - 0.001).tolist() for bad in BAD]
SHAPES: dict[str, Any] = {
    "logprob": lambda tokens: {"logprob": math.fsum(tokens) / len(tokens)},
    "token_logprobs": lambda tokens: {"token_logprobs": tokens},
    "logprobs": lambda tokens: {"logprobs": {"content": list(map(token, tokens))}},
}
FIGURES = {"logprob": 1, "token_logprobs": 3}
"""How many figures each shape has; the others have five."""


def rows_of(shape: str) -> list[dict[str, Any]]:
    return [
        {"prompt": f"What is {place}?", "answer": f"It is {place}.", "severity": float(bad)}
        | SHAPES[shape](tokens)
        for place, (bad, tokens) in enumerate(zip(BAD, TOKENS, strict=True))
    ]


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("shape", SHAPES)
def test_a_gate_reads_them_as_they_are(shape: str, tmp_path: Path):
    path = written(tmp_path / "one.jsonl", rows_of(shape))
    gate = streamer.Gate(alpha=0.1).fit(str(path))
    settings = gate.settings_
    assert (settings.scorer, settings.method, settings.encoder) == ("likelihood", "full", "none")
    assert len(settings.signal_list.given) == FIGURES.get(shape, 5)
    for cloud, found in zip(read_clouds(path), gate._fitted_on[2], strict=True):
        event = decode_responses(encode_responses(cloud_to_event(cloud, "g")))
        batch = batch_made(settings, event, [False], None, encoded=False)
        made = measured(settings, event, batch)
        assert (made.scores, made.row.tolist()) == (found.scores, found.row.tolist()), "as a worker does"
    decided = gate.decide(str(path))
    assert (decided.ship & np.array(BAD)).mean() <= 0.1
    assert decided.ship.mean() > 0.5


def test_clouds_carry_them_and_what_is_wrong_is_said(tmp_path: Path):
    line = {"question_id": "q", "question": "?", "responses": [{"text": "a", "token_logprobs": [-0.5, -1]}]}
    (cloud,) = read_clouds(written(tmp_path / "clouds.jsonl", [line]))
    assert (cloud.responses[0].logprob, cloud.responses[0].signals["least_logprob"]) == (-0.75, -1)
    for wrong, says in (
        ({"logprobs": ["a"]}, r"line 1, column logprobs: log-probabilities must be numbers"),
        ({"logprobs": [-0.1, 0.7]}, "lies above 0: take natural logarithms"),
        ({"logprobs": {"tokens": 3}}, "or OpenAI's `logprobs` with `content`"),
        ({"logprobs": []}, r"one answer only to each prompt .*\(logprobs\)"),
    ):
        with pytest.raises(UsageError, match=says):
            list(read_clouds(written(tmp_path / "wrong.jsonl", [{"prompt": "p", "answer": "a"} | wrong])))


def test_evaluate_measures_them_without_an_encoder(tmp_path: Path):
    path = written(tmp_path / "one.jsonl", rows_of("logprobs"))
    how: dict[str, Any] = {"alphas": (0.1,), "units": ("best",), "splits": 4, "cache": None}
    (found,) = evaluate(path, **how).data_sets
    assert found.encoder is None
    assert any("log-probability, not of Gram energies" in note for note in found.notes)
    by = {row.method: row for row in found.gates}
    assert by["full"].ship_rate.mean > 0.5


def test_plan_compares_one_call_with_several(tmp_path: Path, told: Told):
    rows = [
        row | {"embedding": [1.0, 0.1 * k] if not bad else [0.2 * k, 1.0 - 0.3 * k]}
        for row, bad in zip(rows_of("token_logprobs"), BAD, strict=True)
        for k in range(3)
    ]
    path = str(written(tmp_path / "three.jsonl", rows))
    sizes = {
        one["answers"]: one["served"]["mean"]
        for one in json.loads(told("plan", "--alpha", "0.1", "--data", path, "--json").out)["sizes"]
    }
    assert list(sizes) == [1, 2, 3]
