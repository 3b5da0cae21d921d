"""`streamer apply`: gates brought to what files say; `streamer export gates` writes the files."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from streamer import wiring
from streamer.cli import FOUND
from streamer.cli import options as opt
from streamer.cli.broker import announce_now
from streamer.cli.console import picked, print_json, say, warn
from streamer.cli.gate import check_kind, wanted_settings
from streamer.cli.gate_files import as_keys, read_files, refuse, told
from streamer.errors import StreamerError, UsageError
from streamer.gates.setting_changes import calibrated_for_another, differences
from streamer.gates.settings import PARAMETERS, GateSettings
from streamer.recalibration.gate_rule import closing
from streamer.settings.settings import Settings
from streamer.whatif.asking import SETTINGS as ASKED
from streamer.wording.policies import setting_text

if TYPE_CHECKING:
    from streamer.store import Store

_MARKS = {"create": "+", "change": "~", "propose": "?", "close": "-"}
_NOTHING, _BY_A_PERSON, _IN_NO_FILE = "nothing to do", "left to a person", "in no file"


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of a gate: `does` is a key of `_MARKS`, or says why nothing is done."""

    gate: str
    does: str
    about: str = ""
    settings: GateSettings | None = None
    changes: Mapping[str, tuple[object, object]] | None = None

    def text(self) -> str:
        """Write it for people, a setting a line."""
        about = self.about and f", {self.about}"
        lines = [f"{_MARKS.get(self.does, ' ')} {self.gate}: {self.does}{about}"]
        for name, (was, now) in (self.changes or {}).items():
            before = "" if self.does == "create" else f"{setting_text(name, was)} -> "
            lines.append(f"    {name.removesuffix('_seconds')}: {before}{setting_text(name, now)}")
        return "\n".join(lines)


def apply(
    file: list[Path] = opt.option("PATH", "A file or a folder; may be repeated.", ..., "--file", "-f"),
    dry_run: bool = opt.flag("--dry-run", "Only show the plan."),
    prune: bool = opt.flag("--prune", "Close gates that no file names; their record stays."),
    reason: opt.ReasonOption = "applied from files",
    by: opt.ByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """Bring gates to what files say: a table [gates.NAME] with the options of `gate create`.

    What a table leaves out is as in a new gate; `streamer export gates` writes such files. All are checked
    first: after one unknown key or wrong value nothing is applied. Each change is a revision, with its
    reason. Of a gate that demands two people it becomes the candidate, which another person adopts at the
    console; what no candidate can change is left to `gate set`.

    Exit status 3 where --dry-run finds something to do, or something is left to a person.
    """
    settings = wiring.load_settings()
    with wiring.open_store(settings) as store:
        steps = _plan(read_files(file), settings, store, prune=prune)
        todo = [one for one in steps if one.does in _MARKS]
        for step in steps:
            try:
                if step in todo and not dry_run:
                    _do(step, store, by=by, reason=reason)
            except StreamerError:
                warn(f"Gate {step.gate} failed; done before it: {todo.index(step)} of {len(todo)}")
                raise
            if not json:
                say(step.text())
    counts = Counter(one.does for one in steps)
    if json:
        print_json([picked(one, "gate does about changes") for one in steps])
    else:
        found = ", ".join(f"{count} {does}" for does, count in counts.items())
        say(f"{'Plan' if dry_run else 'Done'}: {found}.")
    if todo and not dry_run:
        announce_now(settings)
    if (todo and dry_run) or counts[_BY_A_PERSON]:
        raise typer.Exit(FOUND)


def _do(step: Step, store: "Store", *, by: str, reason: str) -> None:
    if step.settings is None:
        store.policies.close(step.gate, by=by, reason=reason)
    elif step.does == "create":
        store.gates.create(step.gate, step.settings, by=by, reason=reason)
    elif step.does == "propose":
        wiring.set_candidate(store, step.gate, step.settings, cut=None, by=by, reason=reason)
    else:
        changes = {name: now for name, (_, now) in (step.changes or {}).items()}
        store.gates.revise(step.gate, changes, by=by, reason=reason)


def _plan(
    files: Mapping[str, tuple[str, Mapping[str, Any]]],
    settings: Settings,
    store: "Store",
    *,
    prune: bool,
) -> list[Step]:
    """Compare files with the record. Raises `UsageError` for what no gate can have."""
    present = {one.gate: one.settings for one in store.gates.list()}

    @cache
    def wanted(gate: str) -> GateSettings:
        before = present.get(gate)
        if gate not in files:
            return before or store.gates.get(gate).settings
        given = files[gate][1]
        if before is None or given.get("severity_kind") != before.severity_kind:
            check_kind(given.get("severity_kind"))
        return wanted_settings(gate, given, settings, store, before=before, settings_of=wanted)

    faults = []
    for gate, (where, _) in files.items():
        try:
            wanted(gate)
        except UsageError as error:
            faults.append(f"{where}: {as_keys(str(error))}")
    refuse(faults)
    steps = [_step(store, gate, present.get(gate), wanted(gate)) for gate in files]
    for gate in sorted(present.keys() - files.keys()):
        versions = store.policies.list(gate) if prune else []
        closed = closing(versions) if versions else None
        by_a_person = closed is not None and closed.by == "person"
        steps.append(Step(gate, _IN_NO_FILE if by_a_person or not prune else "close"))
    return steps


def _step(store: "Store", gate: str, before: GateSettings | None, wanted: GateSettings) -> Step:
    if before is None:
        new = {name: (None, now) for name, now in wanted.named().items() if told(name, now, wanted)}
        return Step(gate, "create", "closed until it is calibrated", wanted, new)
    changes = differences(before, wanted)
    if not changes:
        return Step(gate, _NOTHING)
    if not before.two_people:
        another = ", ".join(calibrated_for_another(before, wanted))
        closes = another and f"closed until it is calibrated again, for another {another}"
        return Step(gate, "change", closes, wanted, changes)

    candidate = store.candidates.newest(gate)
    if candidate is not None and candidate.settings == wanted:
        return Step(gate, _NOTHING, f"proposed by {candidate.by}: somebody else adopts it")
    own = changes.keys() - ({"model", "signals", *ASKED, *PARAMETERS} - {"encoder"})
    if own or wanted.asks:
        named = ", ".join(sorted(own or changes))
        said = f"it demands two people, and `gate set` alone changes {named}"
        return Step(gate, _BY_A_PERSON, said, wanted, changes)
    return Step(gate, "propose", "it demands two people", wanted, changes)
