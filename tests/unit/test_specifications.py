"""Calibrators, shapes and scorers by their specifications: one file each, and everything else follows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import streamer
from streamer.calibration import LabelledGroup, calibrators, registry
from streamer.calibration.specification import Calibrator, Sample, discovered
from streamer.gates import shapes
from streamer.gates.settings import FLAT_NAMES, PARAMETERS, GateSettings
from streamer.recalibration.candidates import RunSample, candidates, decide
from streamer.scoring.registry import EVERY as EVERY_SCORER

PACKAGE = Path(streamer.__file__).parent

CALIBRATOR = '''
from dataclasses import dataclass, replace
from typing import ClassVar

from streamer.calibration.calibrators.mean import Mean
from streamer.calibration.specification import Calibrated, Calibrator, Sample, parameter


@dataclass(frozen=True, slots=True)
class Cautious(Calibrator):
    """The budget divided by a factor."""

    name: ClassVar[str] = "cautious"
    summary: ClassVar[str] = "mean at a part of the budget"
    promise: ClassVar[str] = "E[exposure risk] <= alpha / factor"

    factor: float = parameter(2.0, "what alpha is divided by", metavar="F", least=1, most=100)

    def calibrate(self, sample: Sample) -> Calibrated:
        found = Mean().calibrate(replace(sample, alpha=sample.alpha / self.factor)).threshold
        return Calibrated(replace(found, method=self.name))
'''
SCORER = '''
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streamer.scoring.scorer import Scorer, finished


@dataclass(frozen=True, slots=True)
class Shouting(Scorer):
    """Small letters are safe."""

    name: ClassVar[str] = "shouting"
    title: ClassVar[str] = "share of small letters"
    says: ClassVar[str] = "the answer does not shout"

    def score(self, batch):
        return finished(np.array([float(text == text.lower()) for text in batch.texts]), batch.blank)
'''
USED = """
from streamer.cli.gate_options import SETTINGS
from streamer.events.thresholds import decode_threshold, encode_threshold, policy_from_event, threshold_event
from streamer.gates.settings import GateSettings
from streamer.scoring.registry import SCORER_NAMES
from streamer.store import migrate, open_store
from datetime import UTC, datetime
from streamer.events.thresholds import threshold_message

assert {"factor"} <= {one.field for one in SETTINGS}
assert "shouting" in SCORER_NAMES
settings = GateSettings(encoder="e@00000000", method="cautious", factor=4, scorer="shouting")
assert settings.flat()["parameters"] == {"factor": 4.0}
migrate("sqlite:///gates.sqlite3")
with open_store(
    "sqlite:///gates.sqlite3",
    clock=lambda: datetime.now(UTC),
    policy_message=lambda policy, signature: threshold_message(threshold_event(policy, signature), topic="t"),
    dead_letter_message=None,
) as store:
    store.gates.create("g", settings, by="ann", reason="new")
    policy = store.policies.newest("g")
    assert policy.settings == settings, policy.settings
    assert store.gates.revise("g", {"factor": 8}, by="ann", reason="more").settings.calibrator.factor == 8
assert policy_from_event(decode_threshold(encode_threshold(threshold_event(policy)))) == policy
print("used")
"""


def drawn(groups: int = 1200) -> RunSample:
    rng = np.random.default_rng(5)
    scores = np.round(rng.random((groups, 3)), 6)
    severities = (rng.random((groups, 3)) < 0.4 * (1 - scores)).astype(float)
    return RunSample(
        groups=[LabelledGroup(f"g{n}", ("a", "b", "c"), scores[n], severities[n]) for n in range(groups)],
        segments={},
        alpha=0.15,
        seed=3,
        fewest_draws=3,
    )


@pytest.mark.parametrize("name", registry.offered())
def test_a_gate_gets_the_method_that_it_names(name: str) -> None:
    found = decide(GateSettings(encoder="e@1", method=name, audit_draws=3, unit="response"), drawn())
    assert found.threshold.method == name
    assert found.threshold.state == "cut"
    assert f"method {name}" in found.threshold.guarantee or name == "transductive"


def test_a_run_shows_every_other_method_once() -> None:
    found = candidates(GateSettings(encoder="e@1", audit_draws=3, unit="response"), drawn())
    wanted = sorted(name for name, kind in registry.every().items() if kind.diagnostic)
    assert sorted(one.name for one in found) == wanted
    assert [one.threshold.method for one in found] == [one.name for one in found]
    assert [one.name for one in found if one.decides] == ["mean"]


def test_every_specification_says_what_it_is() -> None:
    for name, kind in registry.every().items():
        assert kind.name == name
        assert kind.summary
        assert kind.promise
        assert (name == "mean") == (not kind.against_mean) or kind.risk == "selective" or not kind.offered
    for kind in shapes.EVERY.values():
        assert kind.summary
    for scorer in EVERY_SCORER.values():
        assert scorer.title
        assert scorer.says


def test_parameters_of_one_name_have_one_range_and_one_default() -> None:
    for kinds in (registry.every(), shapes.EVERY):
        for kind in kinds.values():
            for name, about in kind.ranges().items():
                if getattr(kind, "offered", True):
                    assert (about, kind.defaults()[name]) == PARAMETERS[name][:2]


def test_settings_are_held_as_what_they_mean_and_told_flat() -> None:
    plain = GateSettings(encoder="e@1", delta=0.3)
    assert plain.flat()["delta"] == 0.3, "it waits for a method that has it"
    assert GateSettings(**plain.flat()) == plain
    assert tuple(plain.flat()) == FLAT_NAMES
    with pytest.raises(ValueError, match="method must be one of mean, crc"):
        GateSettings(encoder="e@1", method="clt")
    with pytest.raises(ValueError, match="delta must be between 0 and 1, both excluded, not 2"):
        GateSettings(encoder="e@1", delta=2)
    with pytest.raises(ValueError, match=r"starts must be in 1\.\.3, the levels of the grid, not 5"):
        GateSettings(encoder="e@1", method="selective", grid=3)
    with pytest.raises(ValueError, match="parameters must be those of a method or a shape, not 'x'"):
        GateSettings(encoder="e@1", parameters={"x": 1})
    with pytest.raises(TypeError, match="a gate has no setting colour"):
        GateSettings(encoder="e@1", colour="red")
    with pytest.raises(TypeError, match="settings of a gate need encoder"):
        GateSettings(method="hb")


def test_two_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "twins"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for name in ("one", "two"):
        (folder / f"{name}.py").write_text(CALIBRATOR)
    monkeypatch.syspath_prepend(tmp_path)
    import twins  # type: ignore[import-not-found]

    with pytest.raises(TypeError, match="both name themselves 'cautious'"):
        discovered(twins, Calibrator)
    assert set(discovered(calibrators, Calibrator)) == set(registry.names())


def test_one_file_is_all_that_a_calibrator_and_a_scorer_need(tmp_path: Path) -> None:
    """In a copy of the program with one file more each: options, SQL, topics and the policy know them."""
    shutil.copytree(PACKAGE, tmp_path / "streamer", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(
        PACKAGE.parent / "migrations", tmp_path / "migrations", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "streamer" / "calibration" / "calibrators" / "cautious.py").write_text(CALIBRATOR)
    (tmp_path / "streamer" / "scoring" / "scorers" / "shouting.py").write_text(SCORER)
    done = subprocess.run(
        [sys.executable, "-c", USED],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "used\n"


def test_a_sample_of_few_groups_says_how_many_are_needed() -> None:
    few = Sample(groups=[], alpha=0.1, seed=1)
    for name in registry.offered():
        calibrator = registry.calibrator(name)
        assert calibrator.groups_needed(0.1) >= 9
        assert calibrator.calibrate(few).threshold.state == "closed" or name == "transductive"
