"""The command that measures the scales of the signals."""

from pathlib import Path

import pytest

from streamer.calibration.signal_order import SIGNALS
from streamer.research.experiments.stored_encoder import EMBEDDINGS_FOLDER
from streamer.scoring.signals.signal_list import MEASURED
from streamer.scoring.unread_answers import RULES
from streamer_research.studies.signal_scales import main, scales


def test_the_scale_of_an_answer_is_over_what_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = '{"question_id": %d, "question": %s, "responses": [%s]}\n'
    answers = ", ".join(
        f'{{"text": "{text}", "embedding": [1, {n}]}}'
        for n, text in enumerate(("Paris", "Lyon 2", " ", "Nice"))
    )
    path = tmp_path / "clouds.jsonl"
    path.write_text(line % (1, '"Paris or Nice?"', answers))
    found = {name: pair for name, *pair in scales([path], tmp_path)}
    assert list(found) == list(SIGNALS)
    assert found["has_number"] == pytest.approx([1 / 3, (2 / 9) ** 0.5])
    assert found["question_overlap"] == pytest.approx([2 / 3, (2 / 9) ** 0.5])
    unknown = tmp_path / "unknown.jsonl"
    unknown.write_text(line % (1, "null", answers))
    both = {name: pair for name, *pair in scales([path, unknown], tmp_path)}
    assert all(both[name] == pytest.approx(pair) for name, pair in found.items()), (
        "a file without questions says nothing of them"
    )
    assert main([str(path)]) == 0
    assert "has_number           mean=0.33 deviation=0.47" in capsys.readouterr().out


@pytest.mark.encoder
@pytest.mark.long
def test_the_frozen_scales_are_those_of_the_shared_clouds(triviaqa_path: Path) -> None:
    found = scales(sorted(triviaqa_path.parent.glob("*.jsonl.gz")), EMBEDDINGS_FOLDER)
    for (name, mean, deviation), one in zip(found, MEASURED, strict=True):
        if name in RULES:
            continue  # a mark is 1 or 0
        assert (one.name, one.mean, one.deviation) == (name, float(f"{mean:.2g}"), float(f"{deviation:.2g}"))
