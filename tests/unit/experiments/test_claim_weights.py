"""The command that learns the weights of `support-learned`."""

import json
import random
from pathlib import Path

import pytest

from streamer_research.studies.claim_weights import answers, learned, main


def test_weights_are_learned_from_some_answers_and_judged_on_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three models say the same of what is right; of what is wrong, half the time, none does."""
    rng, models = random.Random(5), ("ann", "ben", "cem")
    for path in (paths := [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]):
        lines = []
        for number in range(24):
            true = [f"Item{rng.randrange(99)} weighs {rng.randrange(99)}." for _ in range(3)]
            responses = []
            for one in models:
                false = rng.choice([f"{one} saw {rng.randrange(99)}.", f"Item{number} is red."])
                claims = [*({"text": text, "label": 0} for text in true), {"text": false, "label": 1}]
                text = " ".join([*true, false])
                responses.append({"text": text, "meta": {"model": one}, "claims": claims})
            lines.append({"question_id": f"{path.stem}{number}", "question": "?", "responses": responses})
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = list(answers(names := list(map(str, paths))))
    assert (len(found), {one.inputs.shape for one in found}) == (144, {(4, 6)})
    weights, _ = learned(found)
    assert weights[:5].sum() > 0
    monkeypatch.setattr("streamer_research.studies.claim_weights.HALVES", 2)
    main(names)
    said_of = capsys.readouterr().out.splitlines()
    rows = ["model", "support", "learned", "file", "support", "learned"]
    assert [line.split()[0] for line in said_of[:-1]] == rows
    assert said_of[-1].startswith(f"576 claims: ({round(float(weights[0]), 4)}, ")
