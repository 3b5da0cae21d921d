"""docs/using.md and docs/deploying.md, done as they say: their command lines and Python blocks are run."""

import csv
import gzip
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packaging.requirements import Requirement

from streamer.clouds.cloud import Cloud
from streamer.clouds.simulation import simulate_clouds
from streamer.scoring.registry import SCORER_NAMES
from tests.services.service_forks import FORKS

ROOT = Path(__file__).parents[2]
PAGES = "".join((ROOT / "docs" / name).read_text("utf-8") for name in ("using.md", "deploying.md"))

# Bounds against hanging: how long a step takes depends on what else the machine does.
START_SECONDS = 90
COMMAND_SECONDS = 120
STOP_SECONDS = 60
CLOUDS, ANSWERS = 30, 5


def section(title: str) -> str:
    """What stands between the heading that begins with `title` and the next one."""
    body = re.search(
        rf"^#+ {re.escape(title)}.*?$(.*?)(?=^#+ |\Z)", without_fenced_hashes(), re.MULTILINE | re.DOTALL
    )
    assert body is not None, f"the pages have no section {title!r} any more"
    return body[1].replace(HASH, "#")


def blocks(language: str, title: str) -> list[str]:
    """Fenced blocks of one language in a section."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", section(title), re.MULTILINE | re.DOTALL)
    assert found, f"the section {title!r} has no {language} block any more"
    return found


HASH = "\N{FULLWIDTH NUMBER SIGN}"


def without_fenced_hashes() -> str:
    """The pages with another sign for the comments of its commands, so that only headings begin with one."""
    return re.sub(
        r"^```.*?^```$", lambda block: block[0].replace("#", HASH), PAGES, flags=re.MULTILINE | re.DOTALL
    )


def commands(block: str) -> list[list[str]]:
    """The command lines of a block, split as a shell would, comments gone."""
    return [words for line in block.splitlines() if (words := shlex.split(line, comments=True))]


def named_in_prose(title: str) -> list[list[str]]:
    """Command lines that the running text of a section names in full, `streamer ...`."""
    prose = re.sub(r"^```.*?^```$", "", section(title), flags=re.MULTILINE | re.DOTALL)
    return [shlex.split(" ".join(one.split())) for one in re.findall(r"`(streamer [^`]+)`", prose)]


class Terminal:
    """Runs the command `streamer` in a folder of its own, without any setting of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = dict(os.environ)

    def start(self, words: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        assert words[0] == "streamer"
        return subprocess.Popen(
            [sys.executable, "-m", *words], cwd=self.folder, env=self.environment,
            stdin=subprocess.DEVNULL, text=True, **options,
        )  # fmt: skip

    def run(self, words: Sequence[str], *, seconds: float = COMMAND_SECONDS) -> str:
        """Run to the end and return standard output; anything but success fails the test."""
        assert words[0] == "streamer"
        done = FORKS.run(words[1:], environment=self.environment, folder=self.folder, seconds=seconds)
        assert done.returncode == 0, (
            f"{shlex.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
        return done.stdout

    def shell(self, lines: str) -> str:
        """Paste lines into a shell; standard output. The last command must succeed."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-c", lines], cwd=self.folder, env=self.environment | {"PATH": path},
            stdout=subprocess.PIPE, text=True, check=True, timeout=COMMAND_SECONDS,
        ).stdout  # fmt: skip

    def clouds(self, **of: int) -> None:
        """Simulated clouds with labels in the file that the page names."""
        write_clouds(self.folder / "clouds.jsonl.gz", simulate_clouds(**of), labels=True)

    @contextmanager
    def running(self, words: Sequence[str]) -> Iterator[None]:
        """Keep a service running, from when it says that it is ready until SIGTERM, and see that it ends well."""
        log = self.folder / "dev.log"
        note = self.folder / ".streamer" / "dev.json"
        with log.open("w") as lines:
            process = self.start(words, stdout=lines, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + START_SECONDS
            # The note is there before: who creates a gate by then is told to ask that one.
            while "Ready;" not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, f"not ready in time:\n{log.read_text()}"
                time.sleep(0.1)
            assert note.exists()
            yield
            assert process.poll() is None, log.read_text()
            process.send_signal(signal.SIGTERM)
            status = process.wait(STOP_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        assert status in (0, 130), f"status {status}:\n{log.read_text()}"
        assert "Traceback" not in log.read_text()
        assert not note.exists()


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def write_clouds(path: Path, clouds: Sequence[Cloud], *, labels: bool) -> None:
    lines = [
        json.dumps(
            {
                "question_id": cloud.question_id,
                "question": cloud.question,
                "references": list(cloud.references),
                "responses": [
                    {"text": r.text} | ({"label": r.severity} if labels else {}) for r in cloud.responses
                ],
            }
        )
        for cloud in clouds
    ]
    text = "\n".join(lines) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def fill_in(queue: Path, clouds: Sequence[Cloud]) -> int:
    """Do what the person does whom the page sends to the column `severity`."""
    known = {(cloud.batch_id, r.id): r.severity for cloud in clouds for r in cloud.responses}
    with queue.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        row["severity"] = str(known[row["batch_id"], row["response_id"]])
    with queue.open("w", encoding="utf-8", newline="") as lines:
        table = csv.DictWriter(lines, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return len(rows)


class Reader:
    """Somebody who follows the section "Run a gate" line by line, and looks at what comes."""

    def __init__(self, terminal: Terminal, clouds: Sequence[Cloud]) -> None:
        self.terminal = terminal
        self.clouds = clouds
        self.seen: list[str] = []

    def follow(self, words: list[str]) -> str:
        """Do one line of the page; what follows a topic or is filled in gets an end and a person."""
        self.seen.append(" ".join(words[1:3]))
        if words[1] == "tail":
            return self.decisions(words, len(self.clouds))
        out = self.terminal.run(words)
        if words[1:3] == ["label", "queue"]:
            assert fill_in(self.terminal.folder / words[words.index("--out") + 1], self.clouds) == len(
                self.clouds
            )
        return out

    def decisions(self, tail: list[str], count: int) -> str:
        """The lines of the page's `tail`, from the first event to the `count`-th."""
        out = self.terminal.run([*tail, "--from-beginning", "--count", str(count), "--timeout", "60s"])
        assert len(out.splitlines()) == count, out
        return out


@pytest.mark.slow
@pytest.mark.encoder
def test_from_a_closed_gate_to_a_decision_by_the_calibrated_policy(terminal: Terminal) -> None:
    clouds = simulate_clouds(seed=0, clouds=2 * CLOUDS, responses=ANSWERS)
    first, second = clouds[:CLOUDS], clouds[CLOUDS:]
    start, label, ask, approve = blocks("sh", "Run a gate")
    (dev, *at_first), then, (what_if,), at_last = map(commands, (start, label, ask, approve))
    assert dev == ["streamer", "dev"]
    (publish,) = (words for words in at_first if words[1] == "publish")
    (tail,) = (words for words in at_first if words[1] == "tail")
    answers = terminal.folder / publish[2]
    write_clouds(answers, first, labels=False)
    reader = Reader(terminal, first)

    with terminal.running(dev):
        for words in at_first:
            out = reader.follow(words)
        assert all(re.search(r"held .* v1 .*shadow.* to label", line) for line in out.splitlines()), out
        for words in then:
            out = reader.follow(words)
        assert re.search(r"threshold +Q > 0\.\d+", out), out
        assert "Not promised" in out
        assert reader.seen == [
            *("gate create", f"publish {publish[2]}", "tail actions"),
            *("label queue", "label import", "recalibrate support-bot", "threshold show"),
        ]

        assert "Measured on prompts that did not calibrate" in terminal.run(what_if, seconds=100)

        for words in at_last:
            out = reader.follow(words)
        assert "(version 5)" in out, "proposed, put in force, closed, rolled back"

        # "A consumer's rule" names the command that makes decisions count.
        for words in named_in_prose("Run a gate") + named_in_prose("The event you publish"):
            if words != dev:
                terminal.run(words)
        write_clouds(answers, second, labels=False)
        terminal.run(publish)
        new = reader.decisions(tail, 2 * CLOUDS).splitlines()
        later = [line for line in new if " v6" in line]
        assert len(later) == CLOUDS
        assert not [line for line in later if "shadow" in line]
        shipped = [line for line in later if re.search(r" ship r\d\d ", line)]
        assert 0 < len(shipped) < CLOUDS, "\n".join(later)

        # What it printed asks the endpoint, which decides beside the worker.
        assert shutil.which("curl"), "no curl: install your system's package curl"
        printed = (terminal.folder / "dev.log").read_text()
        (line,) = re.findall(r"^streamer gate create try\ncurl .*?\]\}'$", printed, re.MULTILINE | re.DOTALL)
        asked = json.loads(terminal.shell(line).splitlines()[-1])
        assert "gate" in asked, f"{asked}\n{(terminal.folder / '.streamer/dev/endpoint.log').read_text()}"
        assert (asked["gate"], asked["action"], asked["source"]["topic"]) == ("try", "abstain", "http")

        # "The event you publish, the event you get": the two examples belong together.
        published, got = blocks("json", "The event you publish")
        (terminal.folder / "event.jsonl").write_text(" ".join(published.split()) + "\n")
        terminal.run(["streamer", "publish", "event.jsonl"])
        actions = reader.decisions([*tail, "--json"], 2 * CLOUDS + 2).splitlines()
        (action,) = (one for one in map(json.loads, actions) if one["batch_id"] == "order-4711")
        example = json.loads(got)
        assert example.pop("...") == "..."
        for name, value in example.items():
            assert name in action, f"an action has no {name}"
            if name not in ("action", "selected"):
                assert action[name] == value
        assert action["selected"] in ("a", "b", None)


def test_the_demo_on_your_own_response_clouds(terminal: Terminal) -> None:
    (line,) = (
        words
        for block in blocks("sh", "Try it on your own")
        for words in commands(block)
        if words[0] != "make"
    )
    assert line[:3] == ["streamer", "demo", "--data"], "which test_demo.py runs"
    assert "Usage: streamer demo" in terminal.run([*line, "--help"])


@pytest.mark.slow
@pytest.mark.encoder
def test_a_plan_on_a_guess_and_on_your_own_response_clouds(terminal: Terminal) -> None:
    (block,) = blocks("sh", "Plan it")
    terminal.clouds(seed=3, clouds=40, responses=4)
    for words in commands(block):
        plan = json.loads(terminal.run([*words, "--json"], seconds=240))
        assert plan["alpha"] == 0.1
        assert plan["guessed"] == ("--data" not in words)


@pytest.mark.slow
@pytest.mark.encoder
def test_an_evaluation_by_command_and_from_python(
    terminal: Terminal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = blocks("sh", "Evaluate it")
    terminal.clouds(seed=4, clouds=24, responses=4)
    for words in commands(block):
        out = terminal.run([*words, "--splits", "3"], seconds=100)
        assert "clouds: " in out, out
        assert "At a budget of 10 % the gate" in out, out
        assert (terminal.folder / "evaluation" / "report.html").is_file()
    (python,) = blocks("python", "Evaluate it")
    monkeypatch.chdir(terminal.folder)
    names: dict[str, Any] = {}
    exec(compile(python, "using.md", "exec"), names)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == (2 * len(SCORER_NAMES) + 1) * 2, (
        "units and scores, all signals for the unit best, budgets"
    )
    assert names["found"].data_sets[0].questions == 24


@pytest.mark.slow
@pytest.mark.encoder
def test_the_papers_classifier_by_command_and_from_python(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = blocks("sh", "Classify it")
    terminal.clouds(seed=5, clouds=8, responses=10)
    for words in commands(block):
        out = terminal.run([*words, "--splits", "2"], seconds=100)
        assert "8 questions, 80 responses; good: severity at most 0.5" in out, out
        assert (terminal.folder / words[words.index("--out") + 1] / "gpso.md").is_file()
    (python,) = blocks("python", "Classify it")
    rng = np.random.default_rng(0)
    rows = {name: rng.normal(size=(6, 5)) + shift for name, shift in (("good", 3), ("bad", -3), ("new", 3))}
    rows["bad"][:, 0] += 6
    exec(compile(python, "using.md", "exec"), rows)
    assert capsys.readouterr().out == "True\n"


def test_commands_and_settings_for_kafka_and_postgresql_exist(terminal: Terminal) -> None:
    (block,) = blocks("sh", "Kafka and PostgreSQL")
    secret = terminal.folder / "url"
    secret.write_text("postgresql+psycopg://user:hidden@host/name\n")
    named = []
    for words in commands(block):
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            terminal.environment[name] = str(secret) if name.endswith("_FILE") else value
            named.append(name.removesuffix("_FILE"))
        elif words[0] == "streamer":
            assert "Usage: streamer" in terminal.run([*words, "--help"])
        else:
            assert words[:2] == ["pip", "install"]
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            wanted = Requirement(words[2])
            assert wanted.name == project["name"]
            assert wanted.extras <= set(project["optional-dependencies"])
    shown = terminal.run(["streamer", "config", "show", "--json"])
    settings = json.loads(shown)
    assert settings["unknown_variables"] == []
    assert set(named) <= {one["variable"] for one in settings["settings"] if one["origin"] != "default"}
    assert "hidden" not in shown


def test_commands_that_label_have_these_options(terminal: Terminal) -> None:
    (people,), (block,) = blocks("sh", "Labels from people"), blocks("sh", "Labels from programs")
    for words in commands(people) + commands(block):
        terminal.run([*words, "--help"])
    assert "STREAMER_JUDGE_API_KEY_FILE" in block


def test_commands_of_the_recalibrator_have_these_options(terminal: Terminal) -> None:
    (block,) = blocks("sh", "Recalibrate on a schedule")
    for words in commands(block):
        assert "Usage: streamer" in terminal.run([*words, "--help"])


def test_the_python_block_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks("python", "Python alone")
    rng = np.random.default_rng(0)
    severities = rng.integers(0, 2, 400).astype(float)
    names: dict[str, Any] = {
        "embeddings": rng.normal(size=(5, 8)),
        "scores_seen": np.clip(rng.uniform(0, 1, 400) - severities / 3, 0, 1),
        "severities": severities,
        "prompts": np.repeat(np.arange(100), 4),
    }
    exec(compile(block, "using.md", "exec"), names)
    assert names["scores"].shape == (5,)
    assert ((names["scores"] >= 0) & (names["scores"] <= 1)).all()
    assert names["ship"].shape == (5,)
    assert names["ship"].dtype == bool
    assert names["threshold"].state == "cut"
    assert capsys.readouterr().out.strip() == names["threshold"].guarantee
