"""The README, done as it says: its three paths run as they stand in a fresh clone, and its numbers are measured."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from streamer.cli import main
from streamer.labels.label_files import LABEL_FIELDS
from streamer.research.evaluation import Encoding, evaluate
from streamer.scoring.encoders.encoder import Encoder
from tests.checkout import ROOT, copy_checkout
from tests.services.kafka import KafkaBroker
from tests.services.ports import free_port

README = (ROOT / "README.md").read_text("utf-8")
ADDRESS = "localhost:9092"


def blocks(language: str, section: str) -> list[str]:
    """Fenced blocks of one language between one heading and the next."""
    parts = re.split(r"^## (.+)$", README, flags=re.MULTILINE)
    body = dict(zip(parts[1::2], parts[2::2], strict=True))[section]
    found = re.findall(rf"^```{language}\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)
    assert found, f"the section {section!r} has no {language} block any more"
    return found


def lines(block: str) -> list[str]:
    return [line for line in block.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_checkout(tmp_path_factory.mktemp("clone"))


def run(clone: Path, script: str, *, seconds: float = 540, **settings: str) -> str:
    """Run a block of the README in the clone, in one shell, without any setting of this machine; its output."""
    finished = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f'export PATH="$PWD/.venv/bin:$PATH"\n{script}'],
        cwd=clone, env=os.environ | settings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=seconds,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout
    return finished.stdout


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 150
    for section in ("I have answers in a file", "I have an HTTP service", "I have Kafka"):
        whole = [
            line
            for language in ("sh", "python")
            for block in _found(language, section)
            for line in lines(block)
        ]
        assert 0 < len(whole) < 10


def _found(language: str, section: str) -> list[str]:
    try:
        return blocks(language, section)
    except AssertionError:
        return []


@pytest.mark.slow
@pytest.mark.encoder
def test_answers_in_a_file(clone: Path) -> None:
    (block,) = blocks("sh", "I have answers in a file")
    out = run(clone, block)
    assert "80 clouds written, 400 responses labelled" in out
    assert "labelled: At a budget of 10 % the gate serves" in out
    assert (clone / "evaluation" / "report.html").is_file()
    assert "Worth it" in (clone / "try.html").read_text("utf-8")


def test_scores_in_a_file(clone: Path) -> None:
    (block,) = blocks("python", "I have answers in a file")
    (clone / "block.py").write_text(block)
    out = run(clone, f'PYTHONPATH=. "{sys.executable}" -W error block.py')
    assert "exposure risk is at most 10 %" in out
    assert out.splitlines()[-1] == "[ True False]"


@pytest.mark.slow
@pytest.mark.encoder
@pytest.mark.skipif(shutil.which("curl") is None, reason="the block calls curl")
def test_http(clone: Path) -> None:
    (block,) = blocks("sh", "I have an HTTP service")
    port = str(free_port())
    assert block.count("serve --no-kafka") == block.count("8080") == 1
    script = block.replace("8080", port).replace("serve --no-kafka", f"serve --no-kafka --port {port}")
    out = run(clone, f"trap 'kill $(jobs -p); wait' EXIT\n{script}", STREAMER_HTTP_PORT="0")
    held, later = out.split('{"recorded":400}')
    assert held.count('"reason":"no_threshold"') == 80
    assert later.count('"action":"ship","enforced":true') == 1


@pytest.mark.slow
@pytest.mark.encoder
@pytest.mark.kafka
def test_kafka(clone: Path, kafka_broker: KafkaBroker, topic_prefix: str) -> None:
    (block,) = blocks("sh", "I have Kafka")
    assert block.count(ADDRESS) == 1
    script = block.replace(ADDRESS, kafka_broker.bootstrap)
    # The worker that the block leaves running ends with the shell here.
    out = run(
        clone,
        f"trap 'kill $(jobs -p); wait' EXIT\n{script}",
        STREAMER_KAFKA_TOPIC_PREFIX=topic_prefix,
        STREAMER_KAFKA_GROUP_ID=topic_prefix,
        STREAMER_HTTP_PORT="0",
    )
    decisions = [line for line in out.splitlines() if "  quiz  simulated-" in line]
    assert len(decisions) == 80 + 100
    held, later = decisions[:80], [line for line in decisions[80:] if " v2 " in line]
    assert all("no_threshold" in line and " v1 " in line for line in held)
    assert len(later) == 20
    assert 0 < sum(" ship r" in line for line in later) < 20
    assert "imported 400 labels" in out


def test_the_sample_table_is_a_label_file() -> None:
    columns = (ROOT / "examples" / "labelled.csv").read_text("utf-8").partition("\n")[0].split(",")
    assert set(columns) >= set(LABEL_FIELDS) - {"attempt", "labelled_at"}


@pytest.mark.slow
@pytest.mark.encoder
@pytest.mark.shared_data
@pytest.mark.usefixtures("trivia")  # encodes what is evaluated here
def test_the_result_in_words_is_measured(
    triviaqa_path: Path, real_encoder: Encoder, evaluated_folder: Path
) -> None:
    """By `streamer evaluate`, whose picture stands above these words and whose table is in docs/result.md."""
    found = evaluate(triviaqa_path, units=("best",), encoding=Encoding(real_encoder), cache=evaluated_folder)
    (result,) = found.data_sets
    assert result.questions == 500
    ungated = 100 * result.mean_severity["best"]
    table = {"no gate": (100.0, ungated, ungated)}
    for alpha in found.options.alphas:
        row = result.default_row("best", alpha)
        assert row.method == "full"
        of_row = (row.ship_rate.mean, row.shipped_severity.mean, row.exposure.mean)
        table[f"{100 * alpha:.0f} %"] = tuple(100 * (one or 0) for one in of_row)

    page = (ROOT / "docs" / "result.md").read_text("utf-8")
    said = {
        cells[0].strip(): [float(one.strip(" %")) for one in cells[1:]]
        for cells in re.findall(r"^\| (.+?%|no gate) \| (.+?) \| (.+?) \| (.+?) \|$", page, re.MULTILINE)
    }
    assert said == {budget: pytest.approx(row, abs=0.15) for budget, row in table.items()}

    words = " ".join(README.split())
    served, wrong, exposure = (round(one) for one in table["5 %"])
    assert (
        f"at a budget of 5 %, it answers {served} % of prompts, of which {wrong} % are wrong: {exposure} % of all prompts get "
        f"a wrong answer. Without a gate {ungated:.0f} % do."
    ) in words
    assert f"(above: {wrong} % at 5 %)" in words
    assert (
        f"without a gate {100 - ungated:.0f} get a right answer and {ungated:.0f} a wrong one; at a budget of 5 % "
        f"{served - exposure} get a right answer, {exposure} a wrong one and {100 - served} none"
    ) in words


def test_make_has_the_targets_that_are_named() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    (block,) = blocks("sh", "Try it")
    named = set(re.findall(r"^make ([a-z]+)", block, re.MULTILINE))
    assert named == {"demo", "test"}
    assert named <= targets


def test_commands_named_in_the_text_exist(capsys: pytest.CaptureFixture[str]) -> None:
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    for words in re.findall(r"`streamer ([a-z-]+(?: [a-z]+)?)[^`]*`", prose):
        assert main([*words.split(), "--help"]) == 0
    assert "Usage: streamer" in capsys.readouterr().out


def test_the_index_leads_to_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    linked = {(ROOT / "docs" / link).resolve() for link in re.findall(r"\]\(([^)#]+)\)", index)}
    contributing = {ROOT / "docs" / "contributing", ROOT / "docs" / "decisions"}
    pages = {page for page in (ROOT / "docs").rglob("*.md") if page.parent not in contributing}
    assert pages - linked == {ROOT / "docs" / "index.md"}
