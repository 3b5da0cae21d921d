"""The command that compares learned scores with Gram energy, on a file that brings its embeddings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from streamer.research.experiments.learned_score import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_file_has_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(1)
    with (tmp_path / "made-up.jsonl").open("w") as file:
        for number in range(60):
            bad = number % 3 == 0  # what agrees best is bad, and long
            centre = rng.normal(size=4)
            responses = [
                {
                    "text": "a long answer that says nothing" if bad else "Paris",
                    "label": float(bad),
                    "embedding": (centre + (0.1 if bad else 0.5) * rng.normal(size=4)).tolist(),
                }
                for _ in range(3)
            ]
            line = {"question_id": f"q{number}", "question": "?", "references": [], "responses": responses}
            file.write(json.dumps(line) + "\n")
    assert (
        main([str(tmp_path / "made-up.jsonl"), "--labels", "40", "--alpha", "0.2", "--repetitions", "2"]) == 0
    )
    said = capsys.readouterr().out
    assert said.startswith("### made-up.jsonl: 40 labelled prompts, measured on the other 20, 2 draws\n")
    gram, learned = (line.split("|")[2] for line in said.splitlines()[4:6])
    assert float(learned) > float(gram) + 0.2
    assert main([str(tmp_path / "nothing.jsonl")]) == 1
    blank = {"text": " ", "label": 1.0, "embedding": [1.0, 0.0]}
    line = {"question_id": "q", "question": "?", "references": [], "responses": [blank, blank]}
    (tmp_path / "blank.jsonl").write_text(json.dumps(line) + "\n")
    capsys.readouterr()
    assert main([str(tmp_path / "blank.jsonl")]) == 1
    assert "at least two prompts must have a written answer, and 0 have" in capsys.readouterr().err
