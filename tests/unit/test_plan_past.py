"""What labels buy on past answers: the figures of `streamer try`, with fewer labels too; and what is said without any."""

import json
from pathlib import Path
from typing import Any

import pytest

from streamer.calibration.full_fit import allowed, chance_above
from streamer.cli import DONE, WRONG_USAGE, main
from streamer.planning.past import LABELS
from tests.unit.evaluation.made_up import rows, write


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words, "--alpha", "0.2"]) == DONE
    return capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    return json.loads(said(capsys, *words, "--json"))


def means(one: dict[str, Any], *names: str) -> list[float]:
    return [one[name]["mean"] for name in names]


def test_half_of_the_past_as_labels_serves_what_try_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = str(write(tmp_path / "c.jsonl", rows(90)))
    for words in ((), ("--method", "mean"), ("--unit", "response"), ("--unit", "batch")):
        plan = as_json(capsys, "plan", "--data", path, *words)
        at = as_json(capsys, "try", path, *words)["at"]
        (half,) = (one for one in plan["ladder"] if one["labels"] == 45)
        assert means(half, "served", "exposure", "selective") == pytest.approx(
            means(at, "ship_rate", "exposure", "selective"), rel=1e-12
        )
        assert plan["sizes"][-1]["served"] == half["served"]
        served = {one["labels"]: one["served"] is not None for one in plan["ladder"]}
        assert served == {labels: labels <= 45 for labels in (*LABELS, 45)}
    full = as_json(capsys, "plan", "--data", path)
    assert (full["method"], full["unit"], full["prompts"]) == ("full", "best", 90)
    wanted = [allowed(0.2, one["labels"]) for one in full["ladder"]]
    assert [one["allowed"] for one in full["ladder"]] == wanted
    text = said(capsys, "plan", "--data", path)
    assert "one score: what a cut of (Gram energy + chrF) / 2 serves on the same labels." in text
    assert "How many answers to sample, with 45 labels" in text


def test_one_score_serves_nothing_of_what_the_encoder_does_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMER_ENCODER_NAME", "all-MiniLM-L6-v2")
    clouds = rows(90)
    for one in (one for cloud in clouds for one in cloud["responses"]):
        del one["embedding"]
        one["text"] = "👍👍" if "right" in one["text"] else "😀😡🤖"
    path = str(write(tmp_path / "c.jsonl", clouds))
    made = as_json(capsys, "plan", "--data", path)
    (half,) = (one for one in made["ladder"] if one["labels"] == 45)
    assert (made["unread"], half["by_one_score"]) == (90, 0)
    assert half["served"]["mean"] > 0.2
    full, mean = (said(capsys, "plan", "--data", path, *words) for words in ((), ("--method", "mean")))
    assert "it holds 90 of the 90 prompts, which the encoder does not read." in " ".join(full.split())
    assert "does not read an answer of 90 of the 90 prompts" in " ".join(mean.split())


def test_what_needs_no_past_answers_is_said_without_them(capsys: pytest.CaptureFixture[str]) -> None:
    without = said(capsys, "plan", "--method", "full")
    assert "no past answers" in without
    assert f"{100 * chance_above(0.3, alpha=0.2, groups=40):.1f} %" in without
    for words, why in (
        (("--unit", "response"), "goes with the units best and batch"),
        (("--auc", "0.8"), "--auc is a guess"),
        (("--labels", "0"), "labels must be a whole number of at least 1"),
    ):
        assert main(["plan", "--alpha", "0.1", "--method", "full", *words]) == WRONG_USAGE
        assert why in capsys.readouterr().err
