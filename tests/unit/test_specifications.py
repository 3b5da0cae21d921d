"""Calibrators, shapes and scorers by their specifications: one file each, and everything else follows."""

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import streamer
from streamer.calibration import LabelledGroup, calibrators, registry
from streamer.calibration.specification import Calibrator, Sample, discovered
from streamer.calibration.threshold import names
from streamer.gates import shapes
from streamer.gates.settings import FLAT_NAMES, PARAMETERS, GateSettings
from streamer.labels import registry as severities
from streamer.recalibration.candidates import candidates, decide
from streamer.scoring.registry import EVERY as EVERY_SCORER
from tests import programs
from tests.e2e.test_contributing_pages import PAGES, change, steps

PACKAGE = Path(streamer.__file__).parent
ADDED = {
    file: text
    for page in ("calibrator", "scorer", "severity-kind")
    for _, file, text in steps(PAGES / f"{page}.md")
    if file.startswith("streamer/")
}
"""The one file each that the pages "how to add" add."""
SETTING, TABLE = (
    {file: text for _, file, text in steps(PAGES / page) if file} for page in ("setting.md", "table.md")
)
"""The one file that each of these pages changes or adds."""

USED = """
from streamer.cli import main
from streamer.cli.gate_options import SETTINGS
from docs.generate import severities_page
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
assert main("plan --alpha 0.2 --method cautious --labels 50 --responses 2".split()) == 0
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

SET = """
from datetime import UTC, datetime

import sqlalchemy as sa

from docs.generate import cli_page
from streamer.wording.policies import settings_shown
from streamer.errors import BadMessage
from streamer.events.codec import encode
from streamer.events.json_schema import json_schema
from streamer.events.thresholds import decode_threshold, policy_from_event, threshold_event, threshold_message
from streamer.gates.setting_changes import calibrated_for_another
from streamer.gates.settings import GateSettings
from streamer.signing.policies import statement
from streamer.store import migrate, open_store
from verifiers import generate

try:
    GateSettings(encoder="e@00000000", quiet_hours=25)
except ValueError as error:
    assert str(error) == "quiet_hours must be in 0..24, not 25", error
assert "| `--quiet-hours H` | Hours after an alert in which no other is sent. New gates: 0. |" in cli_page()
field = json_schema("thresholds.v1")["$defs"]["ThresholdsV1"]["properties"]["quiet_hours"]
assert (field["type"], field["default"], field["minimum"], field["maximum"]) == ("integer", 0, 0, 24), field
for text in (file() for file in generate.FILES.values()):
    assert '"quiet_hours": 0' in text, text
migrate("sqlite:///gates.sqlite3")
with open_store(
    "sqlite:///gates.sqlite3",
    clock=lambda: datetime.now(UTC),
    policy_message=lambda policy, signature: threshold_message(threshold_event(policy, signature), topic="t"),
    dead_letter_message=None,
) as store:
    store.gates.create("g", GateSettings(encoder="e@00000000"), by="ann", reason="new")
    before = store.policies.newest("g")
    store.gates.revise("g", {"quiet_hours": 8}, by="ann", reason="more")
    after = store.policies.newest("g")
assert after.settings.quiet_hours == 8
assert calibrated_for_another(before.settings, after.settings) == []
assert ("quiet hours", "Hours after an alert in which no other is sent.", "8") in settings_shown(after.settings)
covered = [statement(one, record_id=bytes(32), audit_salt=bytes(32)) for one in (before, after)]
assert [b'"quiet_hours":8' in one for one in covered] == [False, True]
assert b"quiet_hours" not in covered[0], "a policy of a gate that never had it is signed as before"
event = encode(threshold_event(after))
assert policy_from_event(decode_threshold(event)) == after
try:
    decode_threshold(event.replace(b'"quiet_hours":8', b'"quiet_hours":25'))
except BadMessage as error:
    assert "quiet_hours" in str(error), error
else:
    raise AssertionError("25 hours were read")
with sa.create_engine("sqlite:///gates.sqlite3").begin() as connection:
    columns = {one["name"]: one for one in sa.inspect(connection).get_columns("gate_revisions")}
    assert columns["quiet_hours"]["default"] == "0"
    assert not columns["quiet_hours"]["nullable"]
    copied = ", ".join(f'"{one}"' for one in columns if one not in ("revision", "quiet_hours"))
    try:
        connection.execute(
            sa.text(f"INSERT INTO gate_revisions (revision, quiet_hours, {copied}) SELECT 9, 25, {copied} FROM gate_revisions")
        )
    except sa.exc.IntegrityError as error:
        assert "ck_gate_revisions_quiet_hours" in str(error), error
    else:
        raise AssertionError("25 hours were stored")
print("used")
"""


KEPT = """
from datetime import UTC, datetime

import sqlalchemy as sa

from streamer.store import migrate
from streamer.store.audit import control
from streamer.store.db.engine import Database
from streamer.store.db.roles import rights
from streamer.store.db.schema.notes import notes
from streamer.store.db.schema.types import no_evidence

migrate("sqlite:///gates.sqlite3")
database = Database("sqlite:///gates.sqlite3")
now = datetime.now(UTC)
with database.engine.begin() as connection:
    connection.exec_driver_sql("INSERT INTO gates VALUES ('g', 1, zeroblob(32), '2026-01-01')")
    row = {"gate": "g", "by": "ann", "text": "a secret", "at": now}
    assert control.insert(connection, notes, row, now=now) == (1,)
    ((kind, sealed),) = connection.exec_driver_sql("SELECT kind, sealed FROM control_log")
    assert kind == "notes", kind
    assert '"by":"ann"' in sealed, sealed
    assert "secret" not in sealed, "what is erased one day is not sealed"
    assert "erased_at" not in sealed
    connection.execute(sa.update(notes).values(text=None, erased_at=now))
for change in ("UPDATE notes SET by = 'eve'", "UPDATE notes SET text = 'x', erased_at = NULL", "DELETE FROM notes"):
    try:
        with database.engine.begin() as connection:
            connection.exec_driver_sql(change)
    except sa.exc.IntegrityError as error:
        assert "notes is append-only" in str(error), error
    else:
        raise AssertionError(change)
assert notes in control.SEALED_TABLES
assert rights("notes") == ["SELECT", "INSERT"]
assert not any("notes" in one for one in no_evidence())
print("used")
"""


def drawn(groups: int = 1200) -> Sample:
    rng = np.random.default_rng(5)
    scores = np.round(rng.random((groups, 3)), 6)
    severities = (rng.random((groups, 3)) < 0.4 * (1 - scores)).astype(float)
    return Sample(
        groups=[LabelledGroup(f"g{n}", ("a", "b", "c"), scores[n], severities[n]) for n in range(groups)],
        segments={}, alpha=0.15, seed=3, drawn=3,
    )  # fmt: skip


@pytest.mark.parametrize("name", [name for name in registry.offered() if name != "full"])
def test_a_gate_gets_the_method_that_it_names(name: str):
    found = decide(GateSettings(encoder="e@1", method=name, audit_draws=3, unit="response"), drawn())
    assert found.threshold.method == name
    assert found.threshold.state == "cut"
    assert f"method {name}" in found.threshold.guarantee or name == "transductive"


def test_a_run_shows_every_other_method_once():
    found = candidates(GateSettings(encoder="e@1", audit_draws=3, unit="response"), drawn())
    wanted = sorted(name for name, kind in registry.every().items() if kind.diagnostic)
    assert sorted(one.name for one in found) == wanted
    assert [one.threshold.method for one in found] == [one.name for one in found]
    assert [one.name for one in found if one.decides] == ["mean"]


def test_every_specification_says_what_it_is():
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


def test_a_lookup_that_finds_no_severity_kind_lists_what_there_is():
    with pytest.raises(ValueError, match=r"one of lexical, bertscore, judge.*, not 'human'"):
        severities.program_kind("human")


def test_parameters_of_one_name_have_one_range_and_one_default():
    for kinds in (registry.every(), shapes.EVERY):
        for kind in kinds.values():
            for name, about in kind.ranges().items():
                if getattr(kind, "offered", True):
                    assert (about, kind.defaults()[name]) == PARAMETERS[name][:2]


def test_settings_are_held_as_what_they_mean_and_told_flat():
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


def test_two_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "twins"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for name in ("one", "two"):
        (folder / f"{name}.py").write_text(ADDED["streamer/calibration/calibrators/cautious.py"])
    monkeypatch.syspath_prepend(tmp_path)
    import twins  # type: ignore[import-not-found]

    with pytest.raises(TypeError, match="both name themselves 'cautious'"):
        discovered(twins, Calibrator)
    assert set(discovered(calibrators, Calibrator)) == set(names())


@pytest.mark.parametrize(
    ("added", "used"),
    [(ADDED, USED), (SETTING, SET), (TABLE, KEPT)],
    ids=["new files", "a setting", "a table"],
)
def test_one_declaration_is_all_that_one_of_several_needs(added: dict[str, str], used: str, tmp_path: Path):
    """In a copy with a calibrator, scorer and severity kind, a setting, or a table more: whatever is made of them knows them."""
    assert len(added) == (3 if used is USED else 1)
    for folder in ("streamer", "migrations", "verifiers"):
        shutil.copytree(
            PACKAGE.parent / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    (tmp_path / "docs").mkdir()
    shutil.copy(PACKAGE.parent / "docs" / "severities.md", tmp_path / "docs")
    for file, text in added.items():
        change(tmp_path / file, text) if (tmp_path / file).exists() else (tmp_path / file).write_text(text)
    done = programs.run(
        sys.executable, "-c", used, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)}
    )
    assert done.stdout.endswith("used\n")


def test_a_sample_of_few_groups_says_how_many_are_needed():
    few = Sample(groups=[], alpha=0.1, seed=1)
    for name in registry.offered():
        calibrator = registry.calibrator(name)
        assert calibrator.groups_needed(0.1) >= 9
        assert calibrator.calibrate(few).threshold.state == "closed" or name == "transductive"
