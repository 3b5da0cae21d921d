"""docs/evaluation.md: its code runs, and the columns that it promises are those that are written."""

import re
from pathlib import Path

import pytest

from streamer.research.evaluation import read_data_set
from streamer.scoring.registry import SCORER_NAMES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "evaluation.md").read_text()


def test_every_scorer_is_on_the_page() -> None:
    table = PAGE[PAGE.index("| `--scorers` |") :].split("\n\n")[0]
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)[1:] == list(SCORER_NAMES)


def test_votes_become_scores_and_severities(
    tot_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "votes" in block]
    (tmp_path / "tot_text_gpt4_20x.jsonl.gz").symlink_to(tot_path)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "evaluation.md", "exec"), {})
    data = read_data_set("votes.jsonl")
    assert len(data.clouds) == 100
    assert all(score is not None for scores in data.scores["judge"] for score in scores)
