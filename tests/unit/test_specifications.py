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
from streamer.labels import registry as severities
from streamer.recalibration.candidates import RunSample, candidates, decide
from streamer.scoring.registry import EVERY as EVERY_SCORER
from tests.e2e.test_contributing_pages import PAGES, steps

PACKAGE = Path(streamer.__file__).parent
ADDED = {
    file: text
    for page in ("calibrator", "scorer", "severity-kind")
    for _, file, text in steps(PAGES / f"{page}.md")
    if file.startswith("streamer/")
}
"""The one file each that the pages "how to add" add."""

USED = """
from streamer.cli import main
from streamer.cli.gate_options import SETTINGS
from streamer.cli.generate_docs import severities_page
from streamer.events.codec import encode
from streamer.events.thresholds import decode_threshold, policy_from_event, threshold_event
from streamer.gates.settings import GateSettings
from streamer.labels.registry import by_programs, program_kind
from streamer.scoring.registry import SCORER_NAMES
from streamer.store import migrate, open_store
from datetime import UTC, datetime
from streamer.events.thresholds import threshold_message

assert {"factor"} <= {one.name for one in SETTINGS}
assert "same-opening" in SCORER_NAMES
assert main(["label", "numeric", "--help"]) == main(["label", "clouds", "--help"]) == 0
assert "numeric" in by_programs()
assert "| numeric | `numeric` | 0 if the last number is that of a reference" in severities_page()
assert list(program_kind("numeric").options()) == []
assert main("plan --alpha 0.2 --method cautious --labels 50 --responses 2 --repetitions 100".split()) == 0
settings = GateSettings(
    encoder="e@00000000", method="cautious", factor=4, scorer="same-opening", severity_kind="numeric"
)
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
assert policy_from_event(decode_threshold(encode(threshold_event(policy)))) == policy
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


@pytest.mark.parametrize("name", [name for name in registry.offered() if name != "full"])
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
    for severity_kind in severities.every().values():
        assert severity_kind.title
        assert severity_kind.use_when
    for program_kind in severities.by_programs().values():
        assert f"`{program_kind.name}`" in program_kind.command
        assert all(one.help.endswith(".") for one in program_kind.options().values())


def test_a_lookup_that_finds_no_severity_kind_lists_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"one of lexical, bertscore, judge.*, not 'human'"):
        severities.program_kind("human")


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
        (folder / f"{name}.py").write_text(ADDED["streamer/calibration/calibrators/cautious.py"])
    monkeypatch.syspath_prepend(tmp_path)
    import twins  # type: ignore[import-not-found]

    with pytest.raises(TypeError, match="both name themselves 'cautious'"):
        discovered(twins, Calibrator)
    assert set(discovered(calibrators, Calibrator)) == set(registry.names())


def test_one_file_is_all_that_a_calibrator_a_scorer_and_a_severity_kind_need(tmp_path: Path) -> None:
    """In a copy of the program with one file more each: options, commands, SQL, topics and the policy know them."""
    assert len(ADDED) == 3
    shutil.copytree(PACKAGE, tmp_path / "streamer", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(
        PACKAGE.parent / "migrations", tmp_path / "migrations", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "docs").mkdir()
    shutil.copy(PACKAGE.parent / "docs" / "severities.md", tmp_path / "docs")
    for file, text in ADDED.items():
        (tmp_path / file).write_text(text)
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
    assert done.stdout.endswith("used\n")


def test_a_sample_of_few_groups_says_how_many_are_needed() -> None:
    few = Sample(groups=[], alpha=0.1, seed=1)
    for name in registry.offered():
        calibrator = registry.calibrator(name)
        assert calibrator.groups_needed(0.1) >= 9
        assert calibrator.calibrate(few).threshold.state == "closed" or name == "transductive"
