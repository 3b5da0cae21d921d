"""Gates as files: exported, planned, applied, and refused, by the commands, on both databases."""

import json
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from streamer.cli import main
from streamer.cli.gate import NEW, chosen_settings
from streamer.cli.gate_files import FIELDS, gate_file, read_files, schema
from streamer.gates.setting import Setting
from streamer.gates.settings import METHODS, SHAPES, GateSettings
from streamer.scoring.signals.signal_list import signal_list
from streamer.settings.settings import load_settings
from tests.integration.store.conftest import World
from tests.integration.store.test_policies_by_command import own_settings, run

GATE = "support-bot"
__all__ = ["own_settings"]

BASES = (
    GateSettings(encoder="e@12345678", unit="response"),
    GateSettings(encoder="e@12345678", hold_action="escalate", segment_by="k", judge_kind="judge"),
    GateSettings(encoder="e@12345678", method="full", scorer="choice", signals=signal_list(["score"]).text),
    GateSettings(encoder="external:e", embeddings="accept", dimension=8, method="rbwa"),
    GateSettings(encoder="none", unit="claim", scorer="support", method="mean"),
)
TEXTS: dict[str, Any] = {
    "method": METHODS, "shape": SHAPES, "judged": ["number@1 comma", "raw@1"], "encoder": ["f@87654321", "external:f"],
    "signals": [signal_list(["number", "model=a=b", "own=-1e-7..2.5"]).text], "upstream": ["small=1@0badcafe"],
    "severity_kind": ["stars"], "judge_kind": ["judge"], "scorer": ["external"], "loss": ["share", "mass:3"],
}  # fmt: skip


def values(one: Setting) -> Iterator[Any]:
    """Values at the ends of a setting's range and within it."""
    if one.optional:
        yield None
    if one.choices or one.kind is bool:
        yield from one.choices or (True, False)
    elif one.numeric:
        ends = (one.least, one.least + 1e-9, 0.1, 7, 86_400, 90_000.25, one.most)
        yield from (one.kind(end) for end in ends if end < 1e308 and one.has(one.kind(end)))
    else:
        yield from (
            [("ana", 'bo "x", \\ ü')] if one.kind is tuple else TEXTS.get(one.name, ['a "key"\\ é\x7f'])
        )


def test_every_setting_is_exported_and_read_back(tmp_path: Path) -> None:
    file, settings, found = tmp_path / "gate.toml", load_settings(), set()
    form = jsonschema.Draft202012Validator(json.loads(schema()))
    for base in BASES:
        for key, one in FIELDS.items():
            for value in values(one):
                other = {"scorer": "external", "encoder": "none"} if value == "external" else {}
                try:
                    gate = replace(base, **{one.name: value} | other)
                except ValueError:
                    continue
                file.write_text(gate_file("a.b", gate), "utf-8")
                form.validate(tomllib.loads(file.read_text("utf-8")))
                ((_, given),) = read_files([file]).values()
                assert chosen_settings(NEW, given, settings, lambda _: 8) == gate, (key, value)
                found.add(key)
    assert found == FIELDS.keys()


def write(text: str) -> None:
    Path("gates").mkdir(exist_ok=True)
    Path("gates/all.toml").write_text(text)


def apply(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    return run(capsys, "apply", "-f", "gates", "--by", "ci", "--reason", "merge 7", *words)


def test_what_is_exported_is_applied_and_what_drifts_is_shown(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "export", "gates", "--to", "gates")[0] == 0
    assert apply(capsys) == (0, f"  {GATE}: nothing to do\nDone: 1 nothing to do.\n")
    file = Path("gates", f"{GATE}.toml")
    file.write_text(file.read_text() + '[gates.new]\nscorer = "external"\nlabel_deadline = "12h"\n')
    assert run(capsys, "gate", "set", GATE, "--alpha", "0.3", "--audit-boost", "none")[0] == 0
    plan = apply(capsys, "--dry-run")
    assert plan[0] == 3
    for line in ("+ new: create", "    label_deadline: 12h\n", f"~ {GATE}: change, closed until", "    alpha: 0.3 -> 0.05\n",
                 "    audit_boost: none -> 4\n", "Plan: 1 change, 1 create."):  # fmt: skip
        assert line in plan[1]
    assert len(world.store.gates.list()) == 1
    assert apply(capsys)[0] == 0
    made, changed = world.store.gates.get("new"), world.store.gates.get(GATE)
    assert (made.created_by, made.reason, made.settings.label_deadline_seconds) == ("ci", "merge 7", 43_200)
    assert (changed.revision, changed.created_by, changed.reason) == (3, "ci", "merge 7")
    assert changed.settings == world.store.gates.history(GATE)[0].settings
    assert apply(capsys, "--dry-run")[0] == 0
    assert "2 nothing to do" in apply(capsys)[1]
    assert world.store.gates.get(GATE).revision == 3
    file.write_text('[gates.new]\nscorer = "external"\nlabel_deadline = "12h"\n')
    assert f"{GATE}: in no file" in apply(capsys)[1]
    assert [apply(capsys, *words)[0] for words in (("--prune", "--dry-run"), ("--prune",))] == [3, 0]
    newest = world.store.policies.newest(GATE)
    assert (newest.state, newest.created_by, newest.reason) == ("closed", "ci", "merge 7")
    assert apply(capsys, "--prune", "--dry-run")[0] == 0
    assert len(world.store.gates.history(GATE)) == 3


def test_of_two_people_a_change_is_proposed(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "gate", "set", GATE, "--two-people")[0] == 0
    write(gate_file(GATE, replace(world.store.gates.get(GATE).settings, alpha=0.2)))
    assert "? support-bot: propose" in apply(capsys)[1]
    candidate, wanted = world.store.candidates.present(GATE)
    assert (candidate.by, candidate.reason, wanted.alpha) == ("ci", "merge 7", 0.2)
    assert apply(capsys, "--dry-run")[0] == 0
    write(Path("gates/all.toml").read_text().replace('"enforce"', '"shadow"'))
    status, said = apply(capsys)
    assert (status, "`gate set` alone changes mode" in said) == (3, True)
    present = world.store.gates.get(GATE)
    assert (present.revision, present.settings.alpha, present.settings.mode) == (2, 0.05, "enforce")
    assert world.store.candidates.present(GATE)[0].number == candidate.number


def test_nothing_is_applied_where_anything_is_wrong(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {
        "alhpa = 0.1": "gates/all.toml, gate x: a gate has no alhpa; alpha is known",
        "alpha = '5%'": "gate x: alpha must be a number, like 0.05, not '5%'",
        "alpha = 2": "gate x: alpha must be at least 1e-09 and less than 1",
        "audit_draws = true": "gate x: audit_draws must be a whole number, not True",
        "label_deadline = '5 min'": "gate x: label_deadline must be a time like 90s",
        "mode = 'on'": "gate x: mode must be one of shadow, enforce, not 'on'",
        "severity_kind = 'humn'": "gate x: there is no kind of severity 'humn', and it looks like 'human'",
        "signals = ['own']": "gate x: signals given with an answer must be among",
        "upstream = 'small'": "gate x: upstream must be MODEL@ and 8 hexadecimal digits",
        "alpha = ": "gates/all.toml: Invalid value (at line 3, column 9)",
        "[other]": "gates/all.toml: write tables [gates.NAME], not other",
        "[gates.'X y']": "gates/all.toml: gates.X y is no table of a gate",
    }  # fmt: skip
    for line, said in wrong.items():
        write(
            f"[gates.good]\nscorer = 'external'\n[gates.x]\n{line}\n".replace(
                "[gates.x]\nalpha = \n", "alpha = \n"
            )
        )
        status, text = apply(capsys)
        found = (status, said in " ".join(text.split()), "nothing was applied" in text)
        assert found == (2, True, True), text
    write("")
    assert (apply(capsys)[0], main(["apply", "-f", "elsewhere"])) == (2, 2)
    assert [one.gate for one in world.store.gates.list()] == [GATE]
