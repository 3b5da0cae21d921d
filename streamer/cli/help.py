"""How `--help` is written, of all commands alike, and what docs/cli.md says of an option.

Typer would draw tables with Rich: four columns, of which the names take the most and break in the middle of a word. Here an
option stands at the left and its text beside it, or below it where the option is long.
"""

import re
from collections.abc import Sequence
from enum import Enum
from textwrap import wrap
from typing import Any, Literal, get_args, get_origin

WIDEST = 100
"""Columns that a help takes at most, however wide the terminal is."""

_TERM = 26
"""A longer option has a line for itself."""
_HUGE = 10**9
"""Nobody needs to be told bounds beyond this one."""
_LAST = re.compile(r"(?:^|(?<=[.?!:;)]) )((?:Default|New gates): (?:[^.]|\.(?! [A-Z]))*)\.$")
"""A last sentence that says a default."""
_NOTES = re.compile(r"\[(?:new gates|default|required|at least|at most|\d)[^\[\]]*\]$")
_KEPT = "\N{NO-BREAK SPACE}"
"""Stands for a space between words of a note, which share a line where they fit."""


def written_for_help(command: Any) -> Any:
    """Give a command, and those below it, this form of help. Returns the command."""
    if command.help:
        # One line a paragraph: it is broken at the edge of the terminal, not where the source is.
        command.help = "\n\n".join(" ".join(part.split()) for part in command.help.split("\n\n"))
    command.rich_markup_mode = None
    command.format_options = lambda context, formatter: write_options(command, context, formatter)
    if hasattr(command, "commands"):
        command.format_commands = lambda _context, formatter: write_commands(
            {
                "Commands": [
                    (name, (child.help or "").split("\n\n")[0]) for name, child in command.commands.items()
                ]
            },
            formatter,
        )
    for one in command.params:
        if one.param_type_name == "argument":
            one.get_usage_pieces = lambda _context, one=one: [_in_usage(one)]
    for child in getattr(command, "commands", {}).values():
        written_for_help(child)
    return command


def write_options(command: Any, context: Any, formatter: Any) -> None:
    """Write arguments, options under their headings, and the commands of a group."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for one in command.get_params(context):
        if not getattr(one, "hidden", False):
            usual = "Arguments" if one.param_type_name == "argument" else "Options"
            heading = getattr(one, "rich_help_panel", None) or usual
            groups.setdefault(heading, []).append((term(one), _text(one)))
    width = max((len(name) for rows in groups.values() for name, _ in rows if len(name) <= _TERM), default=0)
    for heading, rows in groups.items():
        _write_rows(heading, rows, width, formatter)
    if hasattr(command, "commands"):
        command.format_commands(context, formatter)


def write_commands(commands: dict[str, Sequence[tuple[str, str]]], formatter: Any) -> None:
    """List commands with their lines, under headings."""
    width = max(len(name) for rows in commands.values() for name, _ in rows)
    for heading, rows in commands.items():
        _write_rows(heading, rows, width, formatter)


def _write_rows(heading: str, rows: Sequence[tuple[str, str]], width: int, formatter: Any) -> None:
    """Write names and texts in two columns, of which the first is `width` wide; a text is broken at spaces alone."""
    with formatter.section(heading):
        before = " " * formatter.current_indent
        for name, text in rows:
            kept = _NOTES.sub(lambda notes: notes[0].replace(" ", _KEPT), text)
            room = max(formatter.width - len(before) - width - 2, 20)
            if max(map(len, kept.split(" ")), default=0) > room:
                kept = text
            lines = wrap(kept, room, break_long_words=False, break_on_hyphens=False)
            if len(name) > width:
                formatter.write(f"{before}{name}\n")
                name = ""
            for line in lines or [""]:
                formatter.write(f"{before}{name:{width}}  {line.replace(_KEPT, ' ')}".rstrip() + "\n")
                name = ""


def term(one: Any) -> str:
    """Write an argument or an option as it is typed: ``--alpha A``, ``--view / --no-view``, ``[FILE]...``."""
    if one.param_type_name == "argument":
        return str(one.metavar or f"[{one.name.upper()}]")
    value = "" if one.is_flag else f" {one.metavar or '|'.join(choices(one)) or 'VALUE'}"
    return " / ".join(filter(None, (", ".join(one.opts), ", ".join(one.secondary_opts)))) + value


def default(one: Any) -> str | None:
    """Write the default of an option; None where it has none, or its text says it."""
    value = one.default
    if isinstance(value, bool) and one.secondary_opts:
        value = (one.opts if value else one.secondary_opts)[0]
    if value is None or value is False or value in ((), "") or callable(value):
        return None
    return str(getattr(value, "value", value))


def choices(one: Any) -> list[str]:
    """Values that an option takes; none where they are not listed."""
    annotation = one.type_descriptor.annotation
    for inner in (annotation, *get_args(annotation)):
        if get_origin(inner) is Literal:
            return [str(value) for value in get_args(inner)]
        if isinstance(inner, type) and issubclass(inner, Enum):
            return [str(member.value) for member in inner]
    return []


def _text(one: Any) -> str:
    text, notes = str(one.help or ""), []
    if one.param_type_name == "argument" and (values := choices(one)):
        text += f" One of {', '.join(values)}."
    if (range_ := _range(one)) is not None:
        notes.append(range_)
    if (said := _LAST.search(text)) is not None:
        text = text[: said.start()].rstrip()
        notes.append(said[1][0].lower() + said[1][1:])
    elif (value := default(one)) is not None:
        notes.append(f"default: {value}")
    if one.required:
        notes.append("required")
    return f"{text} [{'; '.join(notes)}]".strip() if notes else text


def _range(one: Any) -> str | None:
    low, high = getattr(one, "min", None), getattr(one, "max", None)
    if high is not None and high >= _HUGE:
        low, high = (None, None) if low == 0 else (low, None)
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    if low is not None:
        return f"at least {low:g}"
    return None if high is None else f"at most {high:g}"


def _in_usage(one: Any) -> str:
    name = term(one).strip("[]")
    repeated = "..." if one.nargs != 1 else ""
    return f"{name}{repeated}" if one.required else f"[{name}]{repeated}"
