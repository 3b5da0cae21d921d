"""`streamer demo` as a user runs it: a process of its own in an empty folder, all parts real."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import streamer
from streamer.clouds.cloud import split_clouds
from streamer.clouds.cloud_files import read_clouds
from streamer.clouds.offline import ScoredCloud
from streamer.settings.settings import load_settings
from streamer.wiring import open_store
from tests import programs
from tests.clouds import first_lines
from tests.offline import run_scored
from tests.services.service_forks import FORKS

pytestmark = [pytest.mark.slow, pytest.mark.encoder]

CLOUDS = 80

SAME_AS_OFFLINE = (
    "unit", "alpha", "method", "state", "lambda", "calibration_groups", "batches", "responses",
    "ship_rate", "exposure_risk", "exposure_risk_se", "selective_risk", "severity_reduction",
)  # fmt: skip


def demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return programs.run(sys.executable, "-m", "streamer", "demo", *arguments, seconds=480, cwd=folder)


def test_the_stream_decides_as_the_offline_computation_does_number_for_number(
    tmp_path: Path, triviaqa_path: Path, trivia: list[ScoredCloud]
):
    data = first_lines(triviaqa_path, CLOUDS, tmp_path / "clouds.jsonl")
    options = ["--gate-unit", "best", "--alpha", "0.1", "--method", "rbwa", "--seed", "0"]
    streamed: dict[str, Any] = json.loads(demo(tmp_path, "--data", str(data), *options, "--json").stdout)
    offline = run_scored(trivia[:CLOUDS], unit="best", alpha=0.1, method="rbwa", seed=0)
    summary = offline.summary()
    wanted = {name: summary[name] for name in SAME_AS_OFFLINE}
    assert {name: streamed[name] for name in SAME_AS_OFFLINE} == wanted
    assert streamed["batches"] + streamed["calibration_groups"] == CLOUDS
    assert streamed["batches_per_second"] > 0

    with open_store(load_settings(database={"url": streamed["database"]})) as store:
        recorded = store.reports.decided_batches("demo")
        assert len(recorded) == CLOUDS
        for batch in offline.decided:
            assert recorded[batch.batch_id].scores == batch.scores
            assert recorded[batch.batch_id].shipped == batch.shipped
        assert store.evidence.log_faults() == []
        newest = store.policies.newest("demo")
        run = store.calibration.inputs(newest.calibration_run or 0)
        wanted = {g.id: g.severities.tolist() for g in offline.calibration}
        assert {g.id: [i.severity for i in g.items] for g in run} == wanted


def test_all_signals_decide_as_a_gate_in_python_does(tmp_path: Path, triviaqa_path: Path):
    data = first_lines(triviaqa_path, CLOUDS, tmp_path / "clouds.jsonl")
    done = demo(tmp_path, "--data", str(data), "--method", "full", "--json")
    streamed: dict[str, Any] = json.loads(done.stdout)
    halves = split_clouds(list(read_clouds(data)), 0)
    lines = {json.loads(line)["question_id"]: line for line in data.read_text().splitlines(keepends=True)}
    paths = [tmp_path / f"{name}.jsonl" for name in ("first", "second")]
    for path, half in zip(paths, halves, strict=True):
        path.write_text("".join(lines[cloud.question_id] for cloud in half))
    offline = streamer.Gate(alpha=0.1, encoder="all-MiniLM-L6-v2").fit(paths[0]).report(paths[1]).at
    wanted = ("full", None, CLOUDS // 2)
    assert (streamed["state"], streamed["lambda"], streamed["calibration_groups"]) == wanted
    assert streamed["ship_rate"] == offline.ship_rate.mean
    assert streamed["exposure_risk"] == pytest.approx(offline.exposure.mean, rel=1e-12)
    assert streamed["selective_risk"] == pytest.approx(offline.selective.mean, rel=1e-12)
    assert 0 < streamed["ship_rate"] < 1
    page = (next((tmp_path / ".streamer").iterdir()) / "report.html").read_text()
    assert "by all signals" in page
    assert "How the threshold was found" not in page


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        for name, value in attrs:
            assert name not in {"src", "href"} or (value or "").startswith(("#", "data:")), (
                "not self-contained"
            )

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_demo_without_data_tells_a_person_what_happened(tmp_path: Path):
    done = demo(tmp_path, "--seed", "5")
    first = done.stdout.splitlines()[0]
    assert re.fullmatch(
        r"served \d+ % of prompts, error rate among shipped \d+ %, "
        r"exposure [\d.]+ % per prompt against a budget of 10 %",
        first,
    ), first
    assert "simulated" in done.stdout
    (folder,) = (tmp_path / ".streamer").iterdir()
    assert folder.stat().st_mode & 0o077 == 0, "people's texts lie open to other users"
    assert str(folder / "report.html") in done.stdout
    assert str(folder / "audit.db") in done.stdout
    page = _Text()
    page.feed((folder / "report.html").read_text())
    text = " ".join(page.words)
    assert page.scripts == 0
    for words in ("simulated", "budget", "exposure", "selective", "exchangeable", str(folder / "audit.db")):
        assert words in text, words
    assert done.stderr.count("half") >= 2, "the phases are told on standard error"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--alpha", "1.5"], "between 0 and 1"),
        (["--data", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--data", "broken.jsonl"], "line 1"),
        (["--gate-unit", "batch"], "best"),
        (["--method", "full", "--gate-unit", "response"], "goes with --gate-unit best"),
    ],
)
def test_a_wrong_question_gets_a_clear_answer_and_no_traceback(
    tmp_path: Path, arguments: list[str], words: str
):
    (tmp_path / "broken.jsonl").write_text("{broken\n")
    done = FORKS.run(["demo", *arguments], environment=os.environ, folder=tmp_path, seconds=240)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
