"""The contract of scorers: every one of this package keeps it, and each way to break it is found."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from streamer.scoring.contract import check, sample_batches
from streamer.scoring.plugins import checked_scores, scorer_of
from streamer.scoring.registry import SCORER_NAMES, SCORERS
from streamer.scoring.scorer import AnswerBatch, Scorer, finished
from tests.told import Told


@pytest.mark.parametrize("scorer", SCORERS, ids=SCORER_NAMES)
def test_every_scorer_of_this_package_keeps_the_contract(scorer: Scorer):
    assert [one for one in check(lambda: type(scorer)()) if one.broken is not None] == []


@dataclass(frozen=True, slots=True)
class Made(Scorer):
    """A scorer whose scores a test gives."""

    by: Callable[[AnswerBatch], Any]
    name: ClassVar[str] = "made"
    title: ClassVar[str] = "made"
    says: ClassVar[str] = "a test says so"

    def __post_init__(self) -> None:
        """It has no parameters."""

    def score(self, batch: AnswerBatch) -> Any:
        return self.by(batch)


def half(batch: AnswerBatch) -> np.ndarray:
    return finished(np.full(len(batch.texts), 0.5), batch.blank)


def by_place(batch: AnswerBatch) -> np.ndarray:
    return finished(np.arange(len(batch.texts)) / len(batch.texts), batch.blank)


def spoiling(batch: AnswerBatch) -> np.ndarray:
    batch.embeddings[:] = 1.0
    return half(batch)


CALLS = [0]


def counting(batch: AnswerBatch) -> np.ndarray:
    CALLS[0] += 1
    return finished(np.full(len(batch.texts), CALLS[0] % 97 / 97), batch.blank)


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (lambda batch: [0.5] * len(batch.texts), "it returns list"),
        (lambda batch: np.full(len(batch.texts) + 1, 0.5), "of the shape"),
        (lambda batch: np.full(len(batch.texts), np.nan), "not finite"),
        (lambda batch: np.full(len(batch.texts), 1.5), "not in [0, 1]"),
        (lambda batch: np.full(len(batch.texts), 1 / 3), "not rounded"),
        (lambda batch: np.full(len(batch.texts), 0.5), "a blank answer scores more than 0"),
        (by_place, "in another order"),
        (counting, "the second time"),
        (spoiling, "it changes the batch"),
        (lambda batch: half(batch) * len(batch.severities), "severities"),
        (lambda batch: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_each_way_to_break_it_is_found(by: Callable[[AnswerBatch], Any], said: str):
    broken = [one.broken for one in check(lambda: Made(by)) if one.broken is not None]
    assert any(said in one for one in broken), broken


class Panic(BaseException):
    """What Rust in a package raises."""


@pytest.mark.parametrize(
    "raised", [RuntimeError("no"), SystemExit(3), Panic("no"), RecursionError(), MemoryError()]
)
def test_whatever_another_packages_scorer_raises_is_a_batch_without_scores(raised: BaseException):
    def fails(_batch: AnswerBatch) -> Any:
        raise raised

    with pytest.raises(ValueError, match=f"the scorer failed: {type(raised).__name__}"):
        checked_scores(Made(fails), sample_batches()[0])


def test_a_module_that_exits_cannot_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "exiting_scorers.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="cannot be loaded: SystemExit"):
        scorer_of("exiting_scorers:Any")


def test_what_batches_before_leave_behind_is_found():
    def make() -> Scorer:
        seen: list[int] = []

        def by(batch: AnswerBatch) -> np.ndarray:
            same = seen[-1:] == [len(batch.texts)]
            seen.append(len(batch.texts))
            return finished(np.full(len(batch.texts), 0.5 if same or len(seen) == 1 else 0.6), batch.blank)

        return Made(by)

    parts = {one.part for one in check(make) if one.broken is not None}
    assert "other batches change nothing" in parts


HASHED = """
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
from streamer.scoring.scorer import Scorer, finished

@dataclass(frozen=True, slots=True)
class Hashed(Scorer):
    name: ClassVar[str] = "hashed"
    title: ClassVar[str] = "hashed"
    says: ClassVar[str] = "the hash of a text is high"

    def score(self, batch):
        return finished(np.array([hash(text) % 997 / 997 for text in batch.texts]), batch.blank)
"""


def test_the_command_finds_what_only_another_process_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Told
):
    (tmp_path / "hashed_scorer.py").write_text(HASHED, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    parts = json.loads(told("scorer", "check", "hashed_scorer:Hashed", "--json", status=1).out)["parts"]
    assert [one["part"] for one in parts if one["broken"]] == ["other processes score the same"]
    for name, said in (
        ("nobody", "there is no installed scorer 'nobody'"),
        ("nobody:Here", "cannot be loaded: ModuleNotFoundError"),
        ("json:dumps", "is no streamer.scoring.scorer.Scorer"),
        ("streamer.scoring.scorers.external:External", "does not score answers by what they"),
    ):
        assert said in " ".join(told("scorer", "check", name, status=2).err.split())
