"""Scores that are kept line by line: what was computed before a run ended is not computed again."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from streamer.clouds.cloud import Cloud, CloudResponse
from streamer.clouds.line_files import append_lines, read_lines
from streamer.errors import Unavailable
from streamer.research.experiments import score_cache
from streamer.research.experiments.score_cache import every_score


class Falters:
    """Encodes texts by their letters; after `portions` calls it is gone, as a process that was ended."""

    def __init__(self, portions: int) -> None:
        self.left = portions
        self.seen: list[str] = []

    def embed(self, batches: Sequence[Sequence[str]]) -> list[np.ndarray]:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        self.seen += [text for batch in batches for text in batch]
        return [
            np.array([[text.count(c) + 0.1 for c in "0123456789"] for text in batch]) for batch in batches
        ]


def clouds(count: int) -> list[Cloud]:
    return [
        Cloud(f"q{q}", "?", (), tuple(CloudResponse(f"r{i:02d}", f"answer {i} to {q}") for i in range(3)))
        for q in range(count)
    ]


def test_a_run_that_was_ended_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_cache, "_CLOUDS_A_CALL", 64)
    asked = clouds(150)
    first, second, whole = Falters(1), Falters(9), Falters(9)
    with pytest.raises(KeyboardInterrupt):
        every_score(asked, encoder_id="x@1", load_encoder=lambda: first, folder=tmp_path / "a")  # type: ignore[arg-type, return-value]
    told: list[int] = []
    found = every_score(
        asked,
        encoder_id="x@1",
        load_encoder=lambda: second,  # type: ignore[arg-type, return-value]
        folder=tmp_path / "a",
        progress=told.append,
    )
    assert told == [64, 128, 150]
    assert not set(first.seen) & set(second.seen)
    assert len(first.seen) + len(second.seen) == 450
    assert found == every_score(
        asked, encoder_id="x@1", load_encoder=lambda: whole, folder=tmp_path / "b"  # type: ignore[arg-type, return-value]
    )  # fmt: skip


def test_a_line_that_was_cut_takes_no_other_along(tmp_path: Path) -> None:
    record = tmp_path / "deep" / "record.jsonl"
    append_lines(record, [{"n": 1}, {"n": 2}])
    record.write_bytes(record.read_bytes()[:-5])
    append_lines(record, [{"n": 3}])
    assert read_lines(record, strict_type=dict[str, int]) == [{"n": 1}, {"n": 3}]
    append_lines(record, [{"n": "not a number"}])
    assert len(read_lines(record, strict_type=dict[str, int])) == 2
    assert read_lines(tmp_path / "nowhere", strict_type=int) == []


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match=r"cannot write .*record\.jsonl"):
        append_lines(tmp_path / "file" / "record.jsonl", [1])
