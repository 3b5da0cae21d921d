"""`streamer plan` on a guess and on scores, as people and programs read it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from streamer.calibration.registry import offered
from streamer.cli import DONE, WRONG_USAGE, main
from tests.told import Told


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["plan", *arguments]) == DONE
    return capsys.readouterr().out


def made(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    return json.loads(run(capsys, *arguments, "--json"))


def test_a_guess_is_planned_with_and_a_rerun_is_identical(capsys: pytest.CaptureFixture[str]):
    words = ("--alpha", "0.1", "--labels", "200", "--unit", "response")
    plan = made(capsys, *words)
    assert made(capsys, *words) == plan
    assert (plan["alpha"], plan["unit"], plan["guessed"], plan["prompts"]) == (0.1, "response", True, 2000)
    assert (plan["least"], plan["method"]) == (9, "mean")
    assert [one["labels"] for one in plan["ladder"]] == [40, 60, 100, 200, 250, 1000]
    assert [one["answers"] for one in plan["sizes"]] == [2, 3, 5, 10, 20]
    assert plan["mean_severity"] == pytest.approx(0.3, abs=0.02)
    for one in plan["ladder"]:
        assert one["exposure"]["mean"] < 0.1 + 4 * one["exposure"]["se"], "the budget holds on average"
    served = [one["served"]["mean"] for one in plan["ladder"]]
    assert served[-1] > served[0]
    plain = " ".join(run(capsys, "--alpha", "0.1").split())
    assert "9 labelled prompts or more" in plain
    assert "2000 prompts made from a guess" in plain
    assert "label a few and plan again with --data" in plain


def test_attempts_share_the_budget(capsys: pytest.CaptureFixture[str]):
    assert made(capsys, "--alpha", "0.1", "--attempts", "2")["least"] == 19


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--alpha", "0", "--data", "none.jsonl"), "alpha must be between 0 and 1"),
        (("--alpha", "1.5"), "alpha must be between 0 and 1"),
        (("--alpha", "nan"), "alpha must be between 0 and 1"),
        (("--alpha", "0.05", "--labels", "0"), "labels must be a whole number of at least 1"),
        (("--alpha", "0.1", "--severity", "1"), "mean severity of 1"),
        (("--alpha", "0.1", "--auc", "0.4"), "AUC of 0.4"),
        (("--alpha", "0.1", "--auc", "0.999", "--responses", "2"), r"at most 0\.\d+; guess a lower AUC"),
        (("--alpha", "0.1", "--correlation", "1"), "correlation of 1"),
        (("--alpha", "0.1", "--responses", "1"), "1 responses"),
        (("--alpha", "0.1", "--data", "none.jsonl", "--auc", "0.8"), "--auc is a guess"),
        (("--alpha", "0.1", "--data", "none.jsonl"), "cannot read none.jsonl"),
        (("--alpha", "0.1", "--promise", "all-right"), "--promise must be one of per-prompt, among-shipped"),
        (("--alpha", "0.1", "--promise", "among-shipped", "--method", "bb"), "is --method selective: leave"),
        (("--alpha", "0.1", "--promise", "among-shipped", "--attempts", "2"), "--attempts must be 1 with --promise"),
        (("--alpha", "0.1", "--method", "selective", "--attempts", "2"), "--attempts must be 1 with --method"),
        (("--alpha", "0.1", "--method", "clt"), "--method must be one of mean, crc, bb"),
        (("--alpha", "0.1", "--method", "hb", "--data", "x", "--rungs", "2"), "--rungs do not go with --method"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_refused_in_words(words: tuple[str, ...], said: str, told: Told):
    seen = told("plan", *words, status=WRONG_USAGE)
    assert seen.out == ""
    assert re.search(said, " ".join(seen.err.split()))


def scores(path: Path, rows: list[tuple[float, int]]) -> str:
    """Write a file of scores and severities, one answer a prompt."""
    path.write_text(
        "prompt_id,score,severity\n" + "".join(f"{n},{score},{int(bad)}\n" for n, (score, bad) in enumerate(rows))
    )  # fmt: skip
    return str(path)


@pytest.mark.parametrize("method", [name for name in offered() if name != "full"])
def test_any_method_is_planned_by_its_name(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    data = scores(tmp_path / "some.csv", [(n / 90, n % 7 == 0) for n in range(90)])
    plan = made(capsys, "--alpha", "0.3", "--method", method, "--data", data)
    assert plan["method"] == method
    wanted = {**dict.fromkeys((40, 45), True), **dict.fromkeys((60, 100, 250, 1000), False)}
    assert {one["labels"]: one["served"] is not None for one in plan["ladder"]} == wanted


@pytest.mark.parametrize(("promise", "method", "least"), [("among-shipped", "selective", 22), ("among-shipped-on-average", "selective-mean", 9)])  # fmt: skip
def test_a_promise_among_what_ships_says_its_labels_before_anybody_labels(
    promise: str, method: str, least: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    data = scores(tmp_path / "good.csv", [(n / 300, n < 100 or n == 120) for n in range(300)])
    plan = made(capsys, "--alpha", "0.1", "--promise", promise, "--data", data)
    assert (plan["method"], plan["least"]) == (method, least)
    (most,) = (one for one in plan["ladder"] if one["labels"] == 150)
    assert most["served"]["mean"] > 0.5
    assert most["selective"]["mean"] < 0.1


@pytest.mark.parametrize("words", [(), ("--promise", "among-shipped")])
def test_a_budget_that_no_number_of_labels_meets_is_said_to_be_one(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    data = scores(tmp_path / "ties.csv", [(1.0, n % 2) for n in range(200)])
    words = ("--alpha", "0.1", "--data", data, *words)
    assert made(capsys, *words)["enough"] is None
    assert "none of these serves steadily" in run(capsys, *words)
