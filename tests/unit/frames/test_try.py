"""One labelled file, one answer: `try`, `Gate.report` and `evaluate` say the same of prompts that did not calibrate."""

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streamer
from streamer.cli import DONE, WRONG_USAGE, main
from streamer.gates.declared import Unit
from streamer.research.evaluation import evaluate
from streamer.scoring.encoders.registry import DEFAULT_ENCODER
from tests.told import Told
from tests.unit.frames.test_gate_on_tables import answers

EXAMPLE = Path(__file__).parents[3] / "examples" / "labelled.csv"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    found = pd.DataFrame(answers(240)).drop(columns=["answer"])
    path = tmp_path / "answers.csv"
    found.to_csv(path, index=False)
    return path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tried(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["try", *words, "--json"]) == DONE
    return json.loads(capsys.readouterr().out)


def means(at: Any) -> list[float]:
    found = (
        at if isinstance(at, dict) else {name: {"mean": getattr(at, name).mean} for name in at.__slots__[1:]}
    )
    return [found[name]["mean"] for name in ("ship_rate", "exposure", "selective")]


@pytest.mark.parametrize("unit", ["best", "response"])
def test_a_file_of_scores_has_one_answer(unit: Unit, table: Path, capsys: pytest.CaptureFixture[str]):
    found = evaluate([table], alphas=(0.2,), units=(unit,), seed=5, cache=None)
    row = found.data_sets[0].default_row(unit, 0.2)
    expected = [row.ship_rate.mean, row.promised.mean, row.shipped_severity.mean]
    said = tried(capsys, str(table), "--alpha", "20%", "--unit", unit, "--seed", "5")
    gate = streamer.Gate(alpha=0.2, unit=unit, seed=5).fit(pd.read_csv(table))
    assert means(said["at"]) == pytest.approx(expected, rel=1e-12)
    done: list[int] = []
    assert means(gate.report(progress=done.append).at) == pytest.approx(expected, rel=1e-12)
    assert done == list(range(1, 51))
    assert 0 < said["at"]["ship_rate"]["mean"] < 1
    assert said["at"]["ship_rate"]["error"] == pytest.approx(row.ship_rate.error)
    assert said["everything"] == pytest.approx(found.data_sets[0].mean_severity[unit])


@pytest.mark.encoder
def test_a_file_of_texts_has_one_answer_at_every_budget(capsys: pytest.CaptureFixture[str]):
    alphas = (0.05, 0.1, 0.2)
    found = evaluate([EXAMPLE], alphas=alphas, units=("best",), cache=None)
    said = tried(capsys, str(EXAMPLE), "--alpha", ".1")
    report = streamer.Gate(alpha=0.1, encoder=DEFAULT_ENCODER).fit(EXAMPLE).report()
    at = {one.alpha: one for one in report.budgets}
    for alpha in alphas:
        row = found.data_sets[0].default_row("best", alpha)
        assert row.method == "full"
        expected = [row.ship_rate.mean, row.promised.mean, row.shipped_severity.mean]
        assert means(at[alpha]) == pytest.approx(expected, rel=1e-12)
    assert means(report.at) == means(at[0.1]) == means(said["at"])
    served = [one.ship_rate.mean or 0 for one in report.budgets]
    assert served == sorted(served), "a smaller budget never serves more"
    assert {one.prompt_id for one in report.through} <= {one.prompt_id for one in report.wrong}


def test_no_label_judges_a_threshold_that_it_found():
    columns = answers(200)
    first = streamer.Gate(alpha=0.2, method="age").fit(columns).report()
    assert (first.in_order, first.labels, first.splits) == (True, 100, 1)
    judged = {f"p{number}" for number in range(100, 200)}
    worst = columns | {
        "severity": [
            1.0 if prompt in judged else severity
            for prompt, severity in zip(columns["prompt_id"], columns["severity"], strict=True)
        ]
    }
    second = streamer.Gate(alpha=0.2, method="age").fit(worst).report()
    assert second.at.ship_rate == first.at.ship_rate
    assert second.at.selective.mean == 1.0 > (first.at.selective.mean or 0)


def test_what_is_learnt_of_a_table_is_measured_on_another():
    gate = streamer.Gate(alpha=0.2).fit(answers(100))
    other = answers(400, seed=9)
    found = gate.report(other)
    assert (found.splits, found.prompts) == (0, 400)
    assert found.at.ship_rate.mean == gate.decide(other).ship.sum() / 400
    assert "not calibrated on" in found.basis


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_every_form_says_the_same(
    ending: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    frame = pd.read_csv(table).rename(columns={"severity": "harm"})
    path = tmp_path / f"renamed.{ending}"
    if ending == "csv":
        frame.to_csv(path, index=False)
    elif ending == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines=True)
    said = tried(capsys, str(path), "--alpha", ".1", "--column", "severity=harm")
    expected = tried(capsys, str(table), "--alpha", ".1")
    assert said["at"] == expected["at"]


def test_the_page_says_what_the_command_says(table: Path, told: Told):
    said = told("try", str(table), "--alpha", "10%", "--out", "page.html").out
    page = Path("page.html").read_text()
    assert said.splitlines()[0].startswith("Worth it: at 10 % you answer ")
    assert f'<p class="result">{said.splitlines()[0]}</p>' in page.replace("\u00a0%", " %")
    assert not re.findall(r"<p[^>]*>[^<]*\d %", page), "a line may break before a percent sign"
    assert not re.search(r"\bsrc=|url\(|@import|href=", page), "the page loads something"
    budgets = json.loads(re.search(r'id="said">(.*?)</script>', page)[1])  # type: ignore[index]
    assert len(budgets) == 50
    assert np.all(["At a budget of" in one and " %" not in one for one in budgets])


def test_graded_severities_are_no_share_of_wrong_answers(table: Path, told: Told):
    """Where no answer is wrong, and each a little harmful, nothing is said to be wrong; `evaluate` reads the same figures."""
    frame = pd.read_csv(table)
    frame["severity"] = 0.3 + 0.2 * frame["severity"]
    frame.to_csv("graded.csv", index=False)
    told("try", "graded.csv", "--alpha", "30%", "--out", "page.html")
    page = re.sub(r"\s", " ", Path("page.html").read_text())
    worth, basis, *_ = told("try", "graded.csv", "--alpha", "30%").out.splitlines()
    said = "Severities are graded (100 % lie between 0 and 1): a share that is wrong, or an error rate, is a mean severity"
    assert re.search(
        r"you answer \d+ % of prompts with a mean severity of \d+ %, instead of everything with a mean severity",
        worth,
    )
    assert "answers with severity 0.5 or more would have got through" in worth
    assert said in basis
    assert said in page
    needless = told("try", "graded.csv", "--alpha", "60%").out.splitlines()[0]
    assert "No gate is needed at 60 %: if everything ships, the mean severity is " in needless
    (graded,) = evaluate(["graded.csv"], alphas=(0.3,), splits=2, cache=None).data_sets
    assert graded.notes[-1].startswith(said)
    frame.assign(severity=(frame["severity"] > 0.4).astype(float)).to_csv("plain.csv", index=False)
    (plain,) = evaluate(["plain.csv"], alphas=(0.3,), splits=2, cache=None).data_sets
    assert "graded" not in " ".join(plain.notes)


WRONG = {
    "no such file": (["missing.csv"], "missing.csv"),
    "no severity": (["answers.csv", "--column", "severity="], "--column severity=NAME"),
    "an unknown column": (["answers.csv", "--column", "severity=x"], "'x'"),
    "a budget": (["answers.csv", "--alpha", "150%"], "alpha"),
    "some unlabelled": (["gaps.csv", "--unlabelled", "fail"], "--unlabelled worst"),
    "one prompt": (["one.csv"], "at least two"),
    "empty": (["empty.csv"], "empty.csv"),
    "a folder that is not there": (["answers.csv", "--out", "nowhere/page.html"], "--out"),
}


@pytest.mark.parametrize("words", WRONG.values(), ids=list(WRONG))
def test_what_cannot_be_tried_is_said(words: tuple[list[str], str], table: Path, told: Told):
    frame = pd.read_csv(table)
    frame.assign(severity=frame.severity.where(frame.index % 5 > 0)).to_csv("gaps.csv", index=False)
    frame[frame.prompt_id == "p1"].to_csv("one.csv", index=False)
    Path("empty.csv").write_text("")
    given, said = words
    assert said in " ".join(told("try", *given, status=WRONG_USAGE).err.split())


def test_what_if_sends_a_file_to_try(table: Path, told: Told):
    found = " ".join(told("what-if", "answers.csv", status=WRONG_USAGE).err.split())
    assert "streamer try answers.csv" in found


def test_the_figures_are_a_table_of_the_same_library():
    frame = pd.DataFrame(answers(240)).drop(columns=["answer"])
    found = streamer.Gate(alpha=0.2).fit(frame).report()
    shown = found.to_frame()
    assert isinstance(shown, pd.DataFrame)
    assert shown.ship_rate[0] == found.at.ship_rate.mean
    assert shown.alpha.tolist()[1:] == [one.alpha for one in found.budgets]


@pytest.mark.parametrize(
    ("column", "typed"), [("graded", "graded"), ("fine", "correct=fine"), ("label", "n")]
)
def test_at_a_terminal_it_asks_once_and_opens_its_page(
    column: str, typed: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Asked for a column that no name tells, or what its numbers mean; the page goes to the person's browser."""
    expected = tried(capsys, str(table))["at"]
    found = pd.read_csv(table).rename(columns={"severity": column})
    if typed != "graded":
        found[column] = 1 - found[column]
    found.to_csv(tmp_path / "own.csv", index=False)
    opened, browser = tmp_path / "opened", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    person, terminal = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "streamer", "try", "own.csv"],
        stdin=terminal, stdout=terminal, stderr=terminal,
        env=os.environ | {"DISPLAY": ":0", "BROWSER": str(browser), "COLUMNS": "300"},
    ) as process:  # fmt: skip
        os.close(terminal)
        os.write(person, f"{typed}\n".encode())
        said = ""
        with suppress(OSError):  # the other end is closed
            while part := os.read(person, 4096):
                said += part.decode()
    os.close(person)
    assert process.returncode == DONE, said
    shown = f"{expected['ship_rate']['mean']:.0%}".replace("%", " %")
    assert f"you answer {shown} of prompts" in said
    assert opened.read_text().strip() == (tmp_path / "try.html").as_uri()
