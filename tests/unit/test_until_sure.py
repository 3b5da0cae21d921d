"""Finding where to stop sampling: on made-up prompts where the best rule is known."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from streamer.cli import DONE, WRONG_USAGE, main
from streamer.errors import UsageError
from streamer.planning.prompts import SampledBatches
from streamer.planning.until_sure import KEPT, plan_until_sure
from streamer.scoring.steps import Steps

SIZES = (3, 6, 12)
PROMPTS = 400


def prompts(*, told_by: int, seed: int = 0) -> list[Mapping[int, SampledBatches]]:
    """Half the prompts are right. From `told_by` answers on the best score tells which; before, it says .5 of all."""
    rng = np.random.default_rng(seed)
    wrong = np.repeat([0.0, 1.0], PROMPTS // 2)
    told = np.where(wrong, 0.1, 0.9)
    orders: list[Mapping[int, SampledBatches]] = []
    for _ in range(2):
        by_size = {}
        for size in SIZES:
            best = told if size >= told_by else np.full(PROMPTS, 0.5)
            best = np.clip(best + rng.uniform(-0.02, 0.02, PROMPTS), 0, 1)
            scores = np.column_stack([best, np.zeros((PROMPTS, size - 1))])
            by_size[size] = SampledBatches(
                scores, np.repeat(wrong[:, np.newaxis], size, axis=1), np.zeros(scores.shape, dtype=np.bool_)
            )
        orders.append(by_size)
    return orders


@pytest.mark.parametrize("told_by", [3, 6])
def test_it_stops_as_soon_as_the_score_tells_and_keeps_everything(told_by: int) -> None:
    made = plan_until_sure(prompts(told_by=told_by), SIZES, alpha=0.05)
    assert [one.kept for one in made.rules] == list(KEPT)
    for one in made.rules:
        assert one.rule.sizes == SIZES
        assert one.served.mean >= (one.kept - 0.03) * made.all_served.mean
        assert (
            told_by - 0.7 < one.answers.mean < told_by + 0.5
        )  # what need not be kept need not be told, either
        assert one.fixed == told_by
    assert made.all_served.mean == pytest.approx(0.5, abs=0.06)


def test_where_only_all_answers_tell_nothing_stops_early() -> None:
    made = plan_until_sure(prompts(told_by=12), SIZES, alpha=0.05)
    whole = made.rules[0]
    assert whole.answers.mean > 11
    assert whole.served.mean == pytest.approx(made.all_served.mean, abs=0.02)


def test_a_blank_best_is_held_and_never_served() -> None:
    orders = []
    for order in prompts(told_by=3):
        found = {}
        for size, one in order.items():
            blank = np.zeros(one.blank.shape, dtype=np.bool_)
            blank[: PROMPTS // 4] = True
            found[size] = SampledBatches(np.where(blank, 0.0, one.scores), one.severities, blank)
        orders.append(found)
    made = plan_until_sure(orders, SIZES, alpha=0.05)
    assert made.all_served.mean == pytest.approx(0.25, abs=0.06)


def test_the_same_arguments_give_the_same_plan() -> None:
    assert plan_until_sure(prompts(told_by=6), SIZES, alpha=0.05, seed=7) == plan_until_sure(
        prompts(told_by=6), SIZES, alpha=0.05, seed=7
    )


def test_what_cannot_be_planned_is_said() -> None:
    few = [
        {
            size: SampledBatches(one.scores[:19], one.severities[:19], one.blank[:19])
            for size, one in order.items()
        }
        for order in prompts(told_by=3)
    ]
    with pytest.raises(UsageError, match="on 20 past prompts or more, and there are 19"):
        plan_until_sure(few, SIZES, alpha=0.05)
    with pytest.raises(UsageError, match="alpha"):
        plan_until_sure(few, SIZES, alpha=1.5)
    with pytest.raises(UsageError, match="rising numbers"):
        plan_until_sure(few, (6, 3), alpha=0.05)


def test_a_rule_stops_at_its_levels_and_at_the_end() -> None:
    rule = Steps(sizes=(3, 6), above=0.9, below=0.1)
    assert [rule.enough(3, best) for best in (0.9, 0.1, 0.5)] == [True, True, False]
    assert rule.enough(6, 0.5)
    assert not Steps(sizes=(3, 6), above=0.9).enough(3, 0.0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--steps", "3,6"], "name their file with --data"),
        (["--steps", "3,x", "--data", "none.jsonl"], "like 3,6,12,20, not '3,x'"),
        (["--steps", "6,3", "--data", "none.jsonl"], "two rising numbers"),
        (["--steps", "3", "--data", "none.jsonl"], "two rising numbers"),
        (["--steps", "3,6", "--data", "none.jsonl", "--unit", "batch"], "the unit best, not batch"),
        (["--steps", "3,6", "--data", "none.jsonl", "--labels", "9"], "do not go with --labels"),
        (["--steps", "3,6", "--data", "none.jsonl", "--attempts", "2"], "do not go with --attempts"),
        (["--steps", "3,6", "--data", "none.jsonl"], "none.jsonl"),
    ],
)
def test_the_command_refuses_what_it_cannot_plan(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--alpha", "0.1", *words]) != DONE
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.encoder
def test_the_command_shows_rules_that_an_upstream_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rng = np.random.default_rng(3)
    file = tmp_path / "clouds.jsonl"
    with file.open("w") as lines:
        for number in range(40):
            wrong = rng.random() < 0.4
            texts = [f"City {rng.integers(50)}" if wrong else "Paris" for _ in range(6)]
            cloud = {
                "question_id": str(number),
                "question": "Where?",
                "responses": [{"text": text, "label": float(wrong)} for text in texts],
            }
            lines.write(json.dumps(cloud) + "\n")
    words = ["plan", "--alpha", "10%", "--data", str(file), "--steps", "2,3,6"]
    assert main([*words, "--json"]) == DONE
    made = json.loads(capsys.readouterr().out)
    assert (made["prompts"], made["sizes"]) == (40, [2, 3, 6])
    assert [one["kept"] for one in made["rules"]] == list(KEPT)
    for one in made["rules"]:
        Steps(sizes=tuple(one["rule"]["sizes"]), above=one["rule"]["above"], below=one["rule"]["below"])
    assert main(words) == DONE
    text = capsys.readouterr().out
    assert "Sampling until sure, for a budget of 10 %" in text
    assert "steps = [2, 3]" in " ".join(text.split())
    assert main(["plan", "--alpha", "0.1", "--steps", "2,7", "--data", str(file)]) == WRONG_USAGE
