"""Write what the verifiers know of settings and of a decision's columns from their declarations.

`python -m verifiers.generate`, from the root.

Only these tables are made: what the verifiers do with them is written by hand, apart from the program.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill
from typing import Any

import sqlalchemy as sa

from streamer.calibration.signal_order import SIGNALS, UNREAD
from streamer.gates.declared import FIRST_PARAMETERS
from streamer.gates.setting import Setting
from streamer.gates.setting_changes import CALIBRATED_FOR
from streamer.gates.settings import SETTINGS
from streamer.signing.policies import FIRST_SETTINGS, NUMBERS, YOUNGER_SETTINGS
from streamer.store.db.schema import types as db
from streamer.store.log.leaves import decided_facts

ROOT = Path(__file__).parents[1]
SAID = "Made of the declarations in streamer/gates/declared.py by `python -m verifiers.generate`."
_WORDS = {
    sa.Boolean: "bool", sa.Integer: "count", sa.BigInteger: "whole", sa.LargeBinary: "hex", sa.Text: "text",
    db.UtcDateTime: "time",
}  # fmt: skip


def javascript() -> str:
    """The tables for `verifiers/javascript`."""
    return f"""// {SAID}

/** What a threshold is calibrated for, beside the parameters of its method and shape. */
export const CALIBRATED_FOR = {_lines(CALIBRATED_FOR)};

/** The settings that every policy signature covers, and the later ones with the value that leaves them out. */
export const FIRST_SETTINGS = {_lines(FIRST_SETTINGS)};
export const LATER_SETTINGS = {_lines(YOUNGER_SETTINGS)};

/** Those that are written as floats. */
export const FLOATS = new Set({_lines(sorted(NUMBERS))});

/** The signals that say, by 1, why an encoder did not read a batch. */
export const UNREAD = {list(range(len(SIGNALS)))[UNREAD]};
"""


def python() -> str:
    """The tables for `packages/verify`."""
    forms, facts = (fill(", ".join(one), 110) for one in (map(form, SETTINGS.values()), facts_forms()))
    return f'''"""What a gate's settings are, and what a leaf has of a decision's columns.

Tables made of streamer/gates/declared.py and streamer/store/db/schema/decisions.py by `python -m verifiers.generate`.
"""
# fmt: off

from __future__ import annotations

from typing import Any

FORM = """
{forms}
"""
"""What each looks like in a row of `gate_revisions`, in the words of `forms`."""

DECIDED = """
{facts}
"""
"""What the facts of a decision are that are columns of it, in the same words."""

CALIBRATED_FOR = {_tuple([*CALIBRATED_FOR, *FIRST_PARAMETERS])}
"""What a threshold is calibrated for, with the parameters that have a column."""

SIGNED_SETTINGS = {_tuple(FIRST_SETTINGS)}
"""The settings that every signature of a policy covers."""

SIGNED_IF_OTHER: dict[str, Any] = {{
{fill(", ".join(f"{json.dumps(name)}: {json.dumps(v) if isinstance(v, str) else repr(v)}" for name, v in YOUNGER_SETTINGS.items()), 110, **_INDENTED)},
}}
"""Those that it covers where they have another value."""

SIGNED_AS_FLOATS = frozenset({_tuple(sorted(NUMBERS))})

UNREAD = {UNREAD.start}, {UNREAD.stop}
"""The columns of a row of signals that say, by 1, why the encoder did not read a batch."""
'''


def _tuple(names: Iterable[str]) -> str:
    return "(\n" + fill(", ".join(map(json.dumps, names)), 110, **_INDENTED) + ",\n)"


_INDENTED = {"initial_indent": "    ", "subsequent_indent": "    "}


def form(one: Setting) -> str:
    """What a value looks like in a row of `gate_revisions`, in the words of `audit-format.schema.json`'s grammar."""
    if one.choices:
        word = "|".join(one.choices)
    elif one.kind is float:
        word = (
            "seconds" if one.name.endswith("_seconds")
            else "inner" if one.most == 1 and (one.open or one.open_most)
            else "share" if one.most == 1
            else "above" if not one.least and (one.open or one.open_least)
            else "number"
        )  # fmt: skip
    else:
        words = {
            str: "text",
            int: "some" if one.most == math.inf else "count",
            bool: "bool",
            tuple: "json:names",
        }
        word = words.get(one.kind, "json:numbers")
    return f"{one.name} {word}{'?' * one.optional}"


def facts_forms() -> list[str]:
    """What the facts look like that are columns of a decision."""
    found = []
    for name, fact in decided_facts().items():
        forms = [_column(one) + "?" * (one.nullable and not fact.where) for one in fact.columns]
        found.append(
            f"{name}{'?' * bool(fact.where)} {forms[0] if len(forms) == 1 else f'[{chr(59).join(forms)}]'}"
        )
    return found


def _column(one: sa.Column[Any]) -> str:
    said, must = one.info["leaf"].form, one.info["must"]
    if said is not None:
        return str(said)
    if isinstance(must, db.OneOf):
        return "|".join(must.words)
    if isinstance(one.type, sa.Double):
        return "share" if must == db.UNIT_INTERVAL else "number"
    return _WORDS[type(one.type)]


def _lines(names: object) -> str:
    inside = json.dumps(names, ensure_ascii=False)
    return (
        inside[0]
        + "\n"
        + fill(inside[1:-1], 118, initial_indent="  ", subsequent_indent="  ")
        + "\n"
        + inside[-1]
    )


FILES = {
    "packages/verify/streamer_verify/settings.py": python,
    "verifiers/javascript/settings.mjs": javascript,
}


def stale() -> list[str]:
    """The files that differ from what the declarations say."""
    return [
        name
        for name, text in FILES.items()
        if not (ROOT / name).is_file() or (ROOT / name).read_text("utf-8") != text()
    ]


if __name__ == "__main__":
    for stale_one in stale():
        (ROOT / stale_one).write_text(FILES[stale_one](), "utf-8")
        sys.stderr.write(f"wrote {stale_one}\n")
