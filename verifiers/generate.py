"""Write what the verifiers know of a gate's settings from their declarations: `python -m verifiers.generate`, from the root.

Only these tables are made: what the verifiers do with them is written by hand, apart from the program.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from streamer.gates.setting_changes import CALIBRATED_FOR
from streamer.signing.policies import FIRST_SETTINGS, NUMBERS, YOUNGER_SETTINGS

if TYPE_CHECKING:
    from streamer.gates.setting import Setting

ROOT = Path(__file__).parents[1]
SAID = "Made of the declarations in streamer/gates/declared.py by `python -m verifiers.generate`."


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
"""


def form(one: Setting) -> str:
    """What a value looks like in a row of `gate_revisions`, in the words of `audit-format.schema.json`'s grammar."""
    if one.choices:
        word = "|".join(one.choices)
    elif one.kind is float:
        word = (
            "seconds" if one.name.endswith("_seconds")
            else "inner" if one.open and one.most == 1
            else "share" if one.most == 1
            else "above" if one.open_least and not one.least
            else "number"
        )  # fmt: skip
    else:
        words = {str: "text", int: "some" if one.least else "count", bool: "bool", tuple: "json:names"}
        word = words.get(one.kind, "json:numbers")
    return f"{one.name} {word}{'?' * one.optional}"


def _lines(names: object) -> str:
    inside = json.dumps(names, ensure_ascii=False)
    return (
        inside[0]
        + "\n"
        + fill(inside[1:-1], 118, initial_indent="  ", subsequent_indent="  ")
        + "\n"
        + inside[-1]
    )


FILES = {"verifiers/javascript/settings.mjs": javascript}


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
