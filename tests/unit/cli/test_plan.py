"""`streamer plan` as people and programs read it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from streamer.calibration.registry import offered
from streamer.cli import DONE, WRONG_USAGE, main
from streamer.planning.among_shipped import shipped_for_power
from streamer.planning.plan import Plan, make_plan

FAST = ("--repetitions", "100")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["plan", *arguments]) == DONE
    return capsys.readouterr().out


def test_json_has_every_figure_and_a_rerun_is_identical(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--alpha", "0.1", "--labels", "200", "--unit", "response", *FAST, "--json")
    first = run(capsys, *words)
    assert run(capsys, *words) == first
    plan = json.loads(first)
    assert (plan["alpha"], plan["labels"], plan["unit"]) == (0.1, 200, "response")
    assert (plan["least_groups"], plan["smallest_alpha"]) == (9, pytest.approx(1 / 201))
    assert [(s["groups"], s["per_group"]) for s in plan["splits"]] == [
        (200, 1), (100, 2), (66, 3), (40, 5), (20, 10),
    ]  # fmt: skip
    assert plan["best"] in plan["splits"]
    assert plan["best"]["ship_rate"]["low"] <= plan["best"]["ship_rate"]["mean"]
    assert [size["responses"] for size in plan["sizes"]] == [2, 3, 5, 10, 20]
    assert plan["response_severity"] == pytest.approx(0.3, abs=0.02)
    assert plan["auc"] == pytest.approx(0.8, abs=0.001)
    assert plan["labels_per_served"] == pytest.approx(0.05 / (10 * plan["best"]["ship_rate"]["mean"]))
    assert plan["prompts_to_collect"] == 4000


def test_labelling_the_highest_scores_alone_costs_their_share_and_serves_no_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = json.loads(run(capsys, "--alpha", "0.1", "--labels", "500", *FAST, "--json"))
    (whole,) = plan["splits"]
    floors = plan["floors"]
    assert [one["above"] for one in floors] == [0.8, 0.7, 0.6, 0.5, 0.4, 0.3]
    for one in floors:
        assert one["labels"] == pytest.approx(one["above"] * 500, abs=2)
        for bound in ("low", "mean", "high"):
            served = one["prediction"]["ship_rate"][bound]
            assert served <= min(whole["ship_rate"][bound], one["above"]) + 1e-3
    # Below the cuts a floor changes nothing.
    assert whole["ship_rate"]["low"] < 0.7
    assert floors[0]["prediction"]["ship_rate"]["low"] == whole["ship_rate"]["low"]
    steady = [
        one for one in floors if one["prediction"]["ship_rate"]["low"] >= 0.8 * plan["oracle_ship_rate"]
    ]
    assert steady
    assert plan["fewest"] == min(steady, key=lambda one: one["labels"])
    of_batches = json.loads(
        run(capsys, "--alpha", "0.1", "--labels", "500", "--unit", "batch", *FAST, "--json")
    )
    assert (of_batches["floors"], of_batches["fewest"]) == ([], None)


@pytest.mark.parametrize("unit", ["best", "response", "batch"])
def test_people_read_what_it_needs_and_what_it_gives(
    unit: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = run(capsys, "--alpha", "0.1", "--unit", unit, *FAST)
    assert max(map(len, text.splitlines()[3:])) <= 90
    plain = " ".join(text.split())
    assert "9 labelled prompts or more" in plain
    assert "not used until these are older than 95 % of labels take: have so many more drawn" in plain
    assert "A guess: mean severity 0.30, AUC 0.80" in plain
    assert "100 simulated calibrations, seed 0" in plain
    assert re.search(r"served +\d\d\.\d % of (prompts|responses|batches); \d+ to \d+ % in 90 % of", text)
    assert ("How to spend" in text) == (unit != "best")
    assert text.count("planned") == 2
    assert "How many responses to sample" in text
    assert ("--label-above SHARE" in text) == (unit != "batch")


def test_a_budget_that_needs_no_gate_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    plain = " ".join(run(capsys, "--alpha", "0.6", "--labels", "20", *FAST).split())
    assert "nothing need be held" in plain
    assert "must come down" not in plain


def test_attempts_share_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    plan = json.loads(run(capsys, "--alpha", "0.1", "--attempts", "2", *FAST, "--json"))
    assert (plan["alpha_per_attempt"], plan["least_groups"]) == (0.05, 19)
    assert plan["smallest_alpha"] == pytest.approx(2 / (plan["labels"] + 1))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--alpha", "0"), "alpha must be between 0 and 1"),
        (("--alpha", "1.5"), "alpha must be between 0 and 1"),
        (("--alpha", "nan"), "alpha must be between 0 and 1"),
        (("--alpha", "0.05", "--labels", "0"), "labels must be a whole number of at least 1"),
        (("--alpha", "0.05", "--labels", "10"), r"needs at least 19 labelled prompts; 10 can support a budget of 0\.0909"),
        (("--alpha", "0.1", "--labels", "1", "--attempts", "2"), "1 can support no budget"),
        (("--alpha", "0.1", "--labels", "100001"), "100000 labels at most"),
        (("--alpha", "0.000001"), "needs 999999"),
        (("--alpha", "0.1", "--severity", "1"), "mean severity of 1"),
        (("--alpha", "0.1", "--auc", "0.4"), "AUC of 0.4"),
        (("--alpha", "0.1", "--auc", "0.999", "--responses", "2"), r"at most 0\.\d+; guess a lower AUC"),
        (("--alpha", "0.1", "--correlation", "1"), "correlation of 1"),
        (("--alpha", "0.1", "--responses", "1"), "1 responses"),
        (("--alpha", "0.1", "--data", "none.jsonl", "--auc", "0.8"), "--auc is a guess"),
        (("--alpha", "0.1", "--data", "none.jsonl"), "cannot read none.jsonl"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_refused_in_words(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words]) == WRONG_USAGE
    seen = capsys.readouterr()
    assert seen.out == ""
    assert re.search(said, seen.err)


@pytest.mark.parametrize("method", [name for name in offered() if name != "full"])
def test_any_method_is_planned_by_its_name(
    method: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Plan] = []

    def make_once(*arguments: Any, **options: Any) -> Plan:
        """The same words give the same plan, as the test above shows: it is written twice and made once."""
        if not made:
            made.append(make_plan(*arguments, **options))
        return made[0]

    monkeypatch.setattr("streamer.planning.plan.make_plan", make_once)
    words = ("--alpha", "0.2", "--method", method, "--labels", "120", "--responses", "2", *FAST)
    plan = json.loads(run(capsys, *words, "--json"))
    assert plan["method"] == method
    assert f"method {method}" in " ".join(run(capsys, *words).split())


def test_a_promise_among_what_ships_says_its_labels_before_anybody_labels(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("--alpha", "0.1", "--promise", "among-shipped", *FAST)
    plain = " ".join(run(capsys, *words).split())
    assert "at most 10.0 % wrong among what ships with probability 0.9" in plain
    assert re.search(r"needed \d+ labelled prompts, so that 80 % of calibrations ship anything", plain)
    assert "22 labelled answers that ship, none of them wrong" in plain
    made = json.loads(run(capsys, *words, "--json"))
    assert made["method"] == "selective"
    assert [one["share"] for one in made["cuts"]] == sorted(one["share"] for one in made["cuts"])
    assert all((one["labels"] is None) == (one["risk"] >= 0.1) for one in made["cuts"])
    assert made["needed"] == next(one["labels"] for one in made["ladder"] if one["opens"] >= 0.8)
    assert all(one["exceeds"] <= 0.25 for one in made["ladder"]), "delta .1, with 100 calibrations"
    served = [one["served"] for one in made["ladder"]]
    assert served[-1] > served[0]
    assert made["oracle"] >= served[-1]
    on_average = json.loads(
        run(
            capsys,
            "--alpha",
            "0.1",
            "--promise",
            "among-shipped-on-average",
            "--labels",
            "300",
            *FAST,
            "--json",
        )
    )
    assert (on_average["method"], on_average["least"]) == ("selective-mean", 9)
    assert 300 in [one["labels"] for one in on_average["ladder"]]
    assert (
        json.loads(run(capsys, "--alpha", "0.1", "--promise", "per-prompt", *FAST, "--json"))["method"]
        == "mean"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--promise", "all-right"),
            "--promise must be one of per-prompt, among-shipped-on-average, among-shipped",
        ),
        (("--promise", "among-shipped", "--method", "bb"), "is --method selective: leave --method bb out"),
        (
            ("--promise", "among-shipped", "--attempts", "2"),
            "--attempts must be 1 with --promise among-shipped",
        ),
        (("--method", "selective", "--attempts", "2"), "--attempts must be 1 with --method selective"),
        (("--method", "clt"), "--method must be one of mean, crc, bb"),
        (("--promise", "among-shipped", "--labels", "0"), "labels must be a whole number of at least 1"),
        (("--promise", "among-shipped", "--labels", "100001"), "100000 labels at most"),
        (("--method", "hb", "--data", "x", "--steps", "3,6"), "--steps do not go with --method"),
        (("--method", "hb", "--data", "x", "--rungs", "2"), "--rungs do not go with --method"),
    ],
)
def test_a_promise_that_cannot_be_planned_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--alpha", "0.1", *words]) == WRONG_USAGE
    assert said in " ".join(capsys.readouterr().err.split())


def test_shipped_labels_that_show_a_budget_are_about_what_the_formula_says() -> None:
    for alpha, risk in ((0.1, 0.07), (0.1, 0.05), (0.2, 0.15), (0.05, 0.03)):
        found = shipped_for_power(alpha, risk)
        assert found == pytest.approx(4.5 * alpha * (1 - alpha) / (alpha - risk) ** 2, rel=0.15)
    assert shipped_for_power(0.1, 0.0) == 22
    assert shipped_for_power(0.1, 0.1) is None


@pytest.mark.parametrize(
    ("rows", "words", "enough"),
    [([(1.0, n % 2) for n in range(200)], (), None), ([(n / 200, n % 3 == 0) for n in range(200)], ("--promise", "among-shipped"), None)],
    ids=["ties", "a worthless score"],
)  # fmt: skip
def test_a_budget_that_no_number_of_labels_meets_is_said_to_be_one(
    rows: list[tuple[float, int]], words: tuple[str, ...], enough: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    path = tmp_path / "scores.csv"
    path.write_text(
        "prompt_id,score,severity\n"
        + "".join(f"{n},{score},{int(bad)}\n" for n, (score, bad) in enumerate(rows))
    )
    words = ("--alpha", "0.1", "--data", str(path), *words)
    assert json.loads(run(capsys, *words, "--json"))["enough"] is enough
    assert "none of these serves steadily" in run(capsys, *words)
