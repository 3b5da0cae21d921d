"""Gates as tables of TOML files: read and checked, written, and the JSON Schema that editors use."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from streamer.cli import options as opt
from streamer.cli.console import warn
from streamer.cli.gate_options import SETTINGS, name_of, value_of
from streamer.errors import UsageError, why
from streamer.gates.setting import GATE_NAME, GATE_NAME_RULE, Setting
from streamer.gates.setting_changes import unread
from streamer.gates.settings import SETTINGS as DECLARED
from streamer.gates.settings import GateSettings
from streamer.scoring.signals.signal_list import SignalList, signal_list

_UPSTREAM = replace(DECLARED["upstream"], matching=None, least=1)  # by its name as well
FIELDS: Mapping[str, Setting] = {name_of(one): one for one in (*SETTINGS, DECLARED["model"])} | {
    "upstream": _UPSTREAM
}
"""What a file may say: the options of `gate create`, and what is frozen of another package's scorer."""

SCHEMA = "gates.schema.json"
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def read_files(places: Iterable[Path]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Read the gates of files, and of folders of ``*.toml``: where each stands, and its settings.

    Raises `UsageError` where a file has a fault, or none has a gate.
    """
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    faults: list[str] = []
    for place in places:
        for path in sorted(place.rglob("*.toml")) if place.is_dir() else [place]:
            try:
                gates = _tables(tomllib.loads(path.read_text("utf-8")))
            except (OSError, ValueError) as error:
                faults.append(f"{path}: {why(error) if isinstance(error, OSError) else error}")
                continue
            for gate, values in gates.items():
                where = f"{path}, gate {gate}"
                if gate in found:
                    faults.append(f"{where}: {found[gate][0]} has it already")
                    continue
                found[gate] = where, {}
                for key, value in values.items():
                    try:
                        found[gate][1].update(_setting(key, value))
                    except (UsageError, ValueError) as error:
                        faults.append(f"{where}: {as_keys(str(error))}")
    refuse(faults)
    if not found:
        raise UsageError(f"no gate is in {', '.join(map(str, places))}: write a table [gates.NAME]")
    return found


def refuse(faults: list[str]) -> None:
    """Raise `UsageError` with the last fault, if there is one, and warn of those before it."""
    for one in faults[:-1]:
        warn(one)
    if faults:
        raise UsageError(f"{faults[-1]}; nothing was applied")


def _tables(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    gates = document.pop("gates", {})
    if document or not isinstance(gates, dict):
        raise ValueError(f"write tables [gates.NAME], not {next(iter(document), 'gates')}")
    for name, values in gates.items():
        if not GATE_NAME.fullmatch(name) or not isinstance(values, dict):
            raise ValueError(f"gates.{name} is no table of a gate: a name has {GATE_NAME_RULE}")
    return gates


def _setting(key: str, value: Any) -> dict[str, Any]:
    """Return one setting by its name. Raises `UsageError` or `ValueError` for what can be none."""
    if (one := FIELDS.get(key)) is None:
        near = get_close_matches(key, FIELDS, n=1)
        raise UsageError(f"a gate has no {key}; {near[0] if near else SCHEMA} is known")
    found = value
    if key == "signals" and isinstance(value, list):
        found = signal_list([str(name) for name in value]).text
    elif isinstance(value, list):
        found = tuple(value)
    elif one.kind is float and type(value) is int:
        found = float(value)
    elif isinstance(value, str) and (one.optional or one.name.endswith("_seconds")):
        found = value_of(one, value) if key != "signals" else value
    wrong_kind = isinstance(value, bool) and one.kind is not bool
    if want := one.fault(object() if wrong_kind else found):
        raise UsageError(f"{key} must be {want}, not {value!r}")
    return {one.name: found}


def as_keys(text: str) -> str:
    """Name settings as files do in a message that speaks of options."""
    return re.sub(
        r"--([a-z-]+)", lambda at: key if (key := at[1].replace("-", "_")) in FIELDS else at[0], text
    )


def told(name: str, value: object, settings: GateSettings) -> bool:
    """Whether a file says it: a setting that differs from new gates', or a threshold is calibrated for."""
    one = FIELDS[name.removesuffix("_seconds")]
    always = one.calibrated or "New gates:" in one.typed
    return value != one.default or (always and value is not None and name not in unread(settings))


def gate_file(gate: str, settings: GateSettings) -> str:
    """Write a gate as a table of TOML that reads back as the same settings."""
    named, lines, panel = settings.named(), [f"[gates.{_toml(gate)}]"], ""
    for key, one in FIELDS.items():
        value = named[one.name]
        if not told(one.name, value, settings):
            continue
        if one.panel != panel:
            panel = one.panel
            lines.append(f"# {panel}" if panel else "")
        if key == "signals" and value is not None:
            value = SignalList.of_text(value).written
        lines.append(f"{key} = {_toml(one.nothing if value is None else value)}")
    return "\n".join(lines)


def _toml(value: Any) -> str:
    """Write a value; of texts TOML escapes what JSON does, and DEL."""
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def schema() -> str:
    """Write the JSON Schema of a file."""
    gate = {"type": "object", "properties": {key: _form(key, one) for key, one in FIELDS.items()}}
    gates = {"type": "object", "patternProperties": {f"^{GATE_NAME.pattern}$": gate | _NO_OTHER}}
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Gates, for `streamer apply`",
        "type": "object",
        "properties": {"gates": gates | _NO_OTHER},
    }
    return json.dumps(whole | _NO_OTHER, indent=1, ensure_ascii=False) + "\n"


_NO_OTHER = {"additionalProperties": False}
_TEXTS = {"type": "array", "items": {"type": "string"}}


def _form(key: str, one: Setting) -> dict[str, Any]:
    kinds: dict[type, dict[str, Any]] = {
        float: {"type": "number"},
        int: {"type": "integer"},
        bool: {"type": "boolean"},
        str: {"enum": one.choices} if one.choices else {"type": "string"},
        tuple: _TEXTS,
    }
    form = _TEXTS if key == "signals" else kinds[one.kind]
    if one.numeric:
        form = form | {_BOUNDS[way]: end for way, end in one.bounds().items()}
    forms = [form]
    if one.name.endswith("_seconds"):
        forms.append({"type": "string", "pattern": f"^{opt.SECONDS.pattern}$"})
    if one.optional:
        forms.append({"const": one.nothing})
    return {"description": f"{one.help} {one.typed}".strip(), "anyOf": forms}
