"""The example of a scorer's package, as docs/serving-more.md has it: built, installed into an environment of its own, used, and changed."""

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import programs
from tests.services.integrations import uv
from tests.services.service_forks import FORKS

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "scorer-package"

USE = """
import json, sys
from pathlib import Path
from streamer import wiring
from streamer.audit.rescoring import Rescorer
from streamer.cli import main
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.settings.settings import load_settings
from tests.integration.audit.history import Scribe, verify
from tests.unit.deciding.test_decider import HashingEncoder

settings, encoder = load_settings(), CachedEncoder(HashingEncoder())
deliver, *commands = json.loads(sys.argv[1])
status = [main(command) for command in commands]
with wiring.open_store(settings) as store:
    Scribe(store, settings, encoder).deliver([
        json.dumps({
            "schema": "streamer.responses.v1", "gate": "bot", "batch_id": deliver, "prompt": "Where?",
            "responses": [{"id": "a", "text": "in the depot"}, {"id": "b", "text": "in the shop today"}],
        }).encode()
    ])
    with store._database.reading() as connection:
        rows = [list(row) for row in connection.exec_driver_sql(
            "SELECT d.scorer, d.reason, r.score FROM decisions d JOIN batches b ON b.id = d.batch"
            " JOIN responses r ON r.batch = d.batch WHERE b.batch_id = ? ORDER BY r.position", (deliver,)
        )]
report = verify(settings, rescorer=Rescorer({encoder.identity.id: encoder.embed}))
print(json.dumps([status, rows, [str(one) for one in report.faults], dict(report.counts), list(report.notes)]))
"""


class Place:
    """An environment with this checkout's packages, and beside them whatever is installed into it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.installed = folder, folder / "installed"
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(self.installed), str(ROOT))),
            "STREAMER_DATABASE_URL": f"sqlite:///{folder / 'record.db'}",
            "STREAMER_ENCODER_NAME": "none",
            "COLUMNS": "300",
        }

    def run(self, *arguments: str, module: str = "streamer") -> str:
        """Run `streamer`, or a program, forked; fail unless it exits 0."""
        done = FORKS.run(
            arguments, environment=self.environment, folder=self.folder, seconds=240, module=module
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def use(self, batch: str, *commands: list[str]) -> Any:
        """Run commands, have one batch decided, and verify: statuses, the batch's scores, faults, counts and notes."""
        program = self.folder / "use.py"
        program.write_text(USE)
        lines = self.run(json.dumps([batch, *commands]), module=str(program)).splitlines()
        return json.loads(next(line for line in lines if line.startswith("[[")))

    def install(self, source: Path) -> None:
        wheels = self.folder / "wheels"
        shutil.rmtree(self.installed, ignore_errors=True)
        shutil.rmtree(wheels, ignore_errors=True)
        self._ran(
            [
                uv(), "build", "--wheel", "--quiet", "--no-build-isolation", "--python",
                sys.executable, "--out-dir", str(wheels), str(source),
            ]
        )  # fmt: skip
        built = [str(one) for one in wheels.glob("*.whl")]
        self._ran([uv(), "pip", "install", "--quiet", "--no-deps", "--target", str(self.installed), *built])

    def _ran(self, command: list[str]) -> None:
        programs.run(*command)


def ranked_beside_gram_energy(place: Place) -> None:
    """`evaluate --scorers` has the package's scorer: here words in common say all, and embeddings nothing."""
    with (place.folder / "labelled.jsonl").open("w", encoding="utf-8") as file:
        for number in range(60):
            texts = (f"one{number}", f"two{number}") if number % 3 == 0 else ("in the depot", "in the shop")
            responses = [
                {"text": text, "label": float(number % 3 == 0), "embedding": [1.0, float(number % 7)]}
                for text in texts
            ]
            line = {"question_id": f"q{number}", "question": "?", "references": [], "responses": responses}
            file.write(json.dumps(line) + "\n")
    evaluate = ["evaluate", "labelled.jsonl", "--splits", "4", "--alpha", "0.2", "--unit", "best"]
    said = json.loads(
        place.run(*evaluate, "--scorers", "common-words", "--out", "report", "--json").splitlines()[0]
    )
    rows = {row["scorer"]: row for one in said["data_sets"] for row in one["compared"]}
    assert rows["common-words"]["ship_rate"]["mean"] > rows["gram"]["ship_rate"]["mean"] + 0.2


@pytest.mark.slow
def test_an_installed_scorer_is_a_gates_until_its_files_change(tmp_path: Path):
    source = shutil.copytree(EXAMPLE, tmp_path / "source")
    place = Place(tmp_path)
    place.install(source)
    assert "broken" not in place.run("scorer", "check", "common-words")
    ranked_beside_gram_energy(place)
    create = ["gate", "create", "bot", "--encoder", "hashing@abababab", "--audit-probability", "1"]
    of_package = ["--embeddings", "refuse", "--scorer", "common-words"]
    status, decided, faults, counts, _ = place.use(
        "one", ["db", "upgrade"], ["scorer", "list"], [*create, *of_package], ["gate", "show", "bot"]
    )
    assert (status, faults) == ([0, 0, 0, 0], [])
    frozen = decided[0][0]
    assert re.fullmatch("common-words@[0-9a-f]{16}", frozen)
    assert decided == [[frozen, "no_threshold", 0.666667], [frozen, "no_threshold", 0.5]]
    assert counts["batches scored again"] == 1

    module = source / "src" / "acme_scorers" / "__init__.py"
    module.write_text(module.read_text("utf-8").replace("casefold", "lower"), "utf-8")
    place.install(source)
    _, held, faults, counts, notes = place.use("two")
    assert held == [[frozen, "scorer_failed", None]] * 2
    assert faults == []
    assert counts["batches not scored again"] == 1
    assert any(f"there is no scorer {frozen} here" in one for one in notes)
    status, fresh, *_ = place.use("three", ["gate", "set", "bot", "--scorer", "common-words"])
    assert status == [0]
    assert [row[1] for row in fresh] == ["no_threshold"] * 2
    assert fresh[0][0] != frozen

    shutil.rmtree(place.installed)
    status, held, *_ = place.use("four", ["gate", "show", "bot"], [*create, *of_package])
    assert status == [0, 2], "its settings can be read without the package, and no gate begins with it"
    assert held[0][1] == "scorer_failed"
