"""Splitting a budget over a cheap gate and an expensive one: on made-up prompts where the best split is known."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamer.cli import WRONG_USAGE
from streamer.errors import UsageError
from streamer.gates.rungs import later_budget
from streamer.planning.prompts import SampledBatches
from streamer.planning.rungs import KEPT, PlannedRungs, plan_rungs
from tests.told import Told

PROMPTS, ALPHA = 900, 0.03
EASY, HARD, HOPELESS = 0.5, 0.25, 0.25


def best(scores: np.ndarray, wrong: np.ndarray) -> SampledBatches:
    """Prompts of two answers, the second of which is blank."""
    blank = np.zeros((len(scores), 2), dtype=np.bool_)
    blank[:, 1] = True
    return SampledBatches(
        np.column_stack([scores, np.zeros(len(scores))]), np.repeat(wrong[:, np.newaxis], 2, axis=1), blank
    )


def kinds(seed: int = 0) -> tuple[SampledBatches, SampledBatches]:
    """Half of the prompts the cheap gate answers as well as the dear one, a quarter only the dear one, a quarter neither."""
    rng = np.random.default_rng(seed)
    kind = rng.permutation(np.repeat([0, 1, 2], [int(PROMPTS * one) for one in (EASY, HARD, HOPELESS)]))
    near = rng.uniform(-0.04, 0.04, (2, PROMPTS))
    return (
        best(np.choose(kind, [0.9, 0.5, 0.1]) + near[0], np.choose(kind, [0.0, 1.0, 1.0])),
        best(np.choose(kind, [0.9, 0.9, 0.1]) + near[1], np.choose(kind, [0.0, 0.0, 1.0])),
    )


@cache
def planned() -> PlannedRungs:
    return plan_rungs(*kinds(), alpha=ALPHA, rounds=20)


def test_only_what_is_worth_it_costs_a_dear_call():
    made = planned()
    assert [one.kept for one in made.rungs] == list(KEPT)
    # The budget pays for as many wrong answers on top of those that are right.
    assert made.dear_served.mean == pytest.approx(EASY + HARD + ALPHA, abs=0.04)
    assert made.cheap_served.mean == pytest.approx(EASY + ALPHA, abs=0.04)
    for one in made.rungs[1:]:
        assert one.split is not None
        assert one.first is not None
        assert one.served.mean >= (one.kept - 0.04) * made.dear_served.mean
        assert one.handed_on.mean < HARD + 0.12
        assert one.exposure.mean <= ALPHA + 0.005
        assert one.first == pytest.approx(one.split.share * ALPHA)
    calls = [one.handed_on.mean for one in made.rungs]
    assert calls == sorted(calls, reverse=True)


def test_the_later_budget_is_counted_on_prompts_that_chose_nothing():
    one = planned().rungs[1]
    assert one.later is not None
    rest = (1 - one.split.share) * ALPHA
    possible = {later_budget(rest, handed_on=count, prompts=PROMPTS // 2) for count in range(PROMPTS // 2)}
    assert one.later in possible
    assert one.later > 2 * rest


def test_where_the_dear_gate_alone_knows_every_prompt_is_a_dear_call():
    rng = np.random.default_rng(1)
    right = rng.random(PROMPTS) < 0.5
    cheap = best(rng.random(PROMPTS), np.where(right, 0.0, 1.0))
    dear = best(np.where(right, 0.9, 0.1) + rng.uniform(-0.04, 0.04, PROMPTS), np.where(right, 0.0, 1.0))
    made = plan_rungs(cheap, dear, alpha=0.02, rounds=15)
    assert made.rungs[0].handed_on.mean > 0.8
    assert made.rungs[0].served.mean >= 0.9 * made.dear_served.mean


def test_a_plan_is_repeatable_and_says_what_it_cannot_do():
    few = tuple(
        SampledBatches(one.scores[:120], one.severities[:120], one.blank[:120]) for one in kinds(seed=3)
    )
    assert plan_rungs(*few, alpha=0.2, seed=5, rounds=5) == plan_rungs(*few, alpha=0.2, seed=5, rounds=5)
    with pytest.raises(UsageError, match="60 past prompts or more, and there are 59"):
        plan_rungs(
            *(SampledBatches(one.scores[:59], one.severities[:59], one.blank[:59]) for one in few), alpha=0.1
        )
    with pytest.raises(UsageError, match="alpha"):
        plan_rungs(*few, alpha=1.5)


def test_what_is_all_blank_is_handed_on_by_nobody():
    cheap, dear = kinds()
    cheap.blank[:] = True
    with pytest.raises(UsageError, match="no answer of the cheap gate that is not blank"):
        plan_rungs(cheap, dear, alpha=0.1)


def write(path: Path, model: str, prompts: int, answers: int) -> None:
    """Clouds with embeddings of their own: prompts whose number is odd are answered alike, by the dear model all."""
    lines: list[dict[str, Any]] = []
    for number in range(prompts):
        alike = model == "dear" or number % 2
        lines.append(
            {
                "question_id": f"q{number}",
                "question": "?",
                "responses": [
                    {
                        "text": f"{model} {number} {place}",
                        "label": 0 if alike else 1,
                        "meta": {"label_kind": "human"},
                        "embedding": [1.0, 0.01 * number, 0.0]
                        if alike
                        else [float(place == 0), float(place == 1), 0.02 * number + 0.1],
                    }
                    for place in range(answers)
                ],
            }
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_command_plans_on_two_files_and_on_the_first_answers_of_one(tmp_path: Path, told: Told):
    cheap, dear = tmp_path / "cheap.jsonl", tmp_path / "dear.jsonl"
    write(cheap, "cheap", 70, 2)
    write(dear, "dear", 66, 3)
    command = ["plan", "--alpha", "0.2", "--data", str(cheap)]
    made = json.loads(told(*command, "--rungs", str(dear), "--json").out)
    assert (made["prompts"], made["left_out"], made["answers"]) == (66, 4, [2, 3])
    assert made["dear_served"]["mean"] == 1
    write(short := tmp_path / "short.jsonl", "short", 4, 1)
    dear.write_text(dear.read_text() + short.read_text().replace('_id": "q', '_id": "s'))
    said = told("plan", "--alpha", "0.2", "--data", str(dear), "--rungs", "2").out
    assert "66 past prompts (4 more could not be used)" in said
    assert "2 and 3 answers" in said


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (["--rungs", "2"], "name the cheap gate's file with --data"),
        (["--rungs", "2", "--data", "FILE", "--unit", "batch"], "unit best, not batch"),
        (["--rungs", "2", "--data", "FILE", "--labels", "9"], "do not go with --labels"),
        (["--rungs", "1", "--data", "FILE"], "at least 2 answers, not 1"),
        (
            ["--rungs", "3", "--data", "FILE"],
            "no prompt has more than 3 answers, and the first rung alone takes 3",
        ),
        (["--rungs", "OTHER", "--data", "FILE"], "0 prompts of the same name"),
    ],
)
def test_what_cannot_be_planned_says_why(tmp_path: Path, told: Told, given: list[str], wrong: str):
    file, other = tmp_path / "file.jsonl", tmp_path / "other.jsonl"
    write(file, "dear", 3, 3)
    other.write_text(file.read_text().replace('_id": "q', '_id": "z'))
    names = {"FILE": str(file), "OTHER": str(other)}
    assert wrong in " ".join(
        told(
            "plan", "--alpha", "0.2", *(names.get(one, one) for one in given), status=WRONG_USAGE
        ).err.split()
    )
