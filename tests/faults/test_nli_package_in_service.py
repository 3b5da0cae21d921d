"""An NLI model in the example's package, as a gate's scorer: installed, used, scored again, and its weights exchanged."""

import re
import shutil
from pathlib import Path

import pytest

from tests.packaging.test_nli_package import EXAMPLE, WEIGHTS, expected, write_model
from tests.packaging.test_scorer_package import Place


@pytest.mark.long
@pytest.mark.encoder
def test_an_nli_model_is_a_gates_score_until_its_weights_change(tmp_path: Path) -> None:
    source = shutil.copytree(EXAMPLE, tmp_path / "source", ignore=WEIGHTS)
    model = source / "src" / "nli_scorer" / "model"
    write_model(model, 1)
    place = Place(tmp_path)
    place.install(source)
    assert "broken" not in place.run("scorer", "check", "nli")
    create = ["gate", "create", "bot", "--encoder", "hashing@abababab", "--audit-probability", "1"]
    status, decided, faults, counts, _ = place.use(
        "one", ["db", "upgrade"], [*create, "--embeddings", "refuse", "--scorer", "nli"]
    )
    assert (status, faults) == ([0, 0], [])
    frozen = decided[0][0]
    assert re.fullmatch("nli@[0-9a-f]{16}", frozen)
    assert [row[2] for row in decided] == pytest.approx(expected(model), abs=2e-6)
    assert counts["batches scored again"] == 1

    write_model(place.installed / "nli_scorer" / "model", 2)
    _, held, faults, _, notes = place.use("two")
    assert held == [[frozen, "scorer_failed", None]] * 2
    assert faults == []
    assert any(f"there is no scorer {frozen} here" in one for one in notes)
