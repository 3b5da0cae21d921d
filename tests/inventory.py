"""What users build upon, by name: ``python -m tests.inventory`` writes tests/inventory.json.

A change of the code that keeps everything leaves the file as it is; what a change adds, renames or takes away is a line of
its diff. A test holds that the file is current.
"""

import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import typer

from streamer import cli
from streamer.cli.app import app, every_command, plugged
from streamer.cli.help import term
from streamer.events.codes import MEANINGS
from streamer.events.json_schema import json_schema
from streamer.events.topic import types
from streamer.serving.openapi import document
from streamer.settings.settings import Settings
from streamer.settings.sources import entry_type, leaves, setting_name
from streamer.store.db.schema import metadata
from streamer.telemetry.catalogue import CATALOGUE

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_suffix(".json")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PYTHON = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def public_names() -> Iterator[str]:
    """What the pages import of `streamer`, and what the same modules export beside it, with parameters and public members."""
    for module, used in sorted(_imported_by_pages().items()):
        home = import_module(module)
        for name in {*used, *getattr(home, "__all__", ())}:
            yield from _described(f"{module}.{name}", getattr(home, name))


def _imported_by_pages() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {"streamer": set()}
    blocks = (block for page in PAGES for block in PYTHON.findall(page.read_text("utf-8")))
    for node in (node for block in blocks for node in ast.walk(ast.parse(block))):
        module = str(node.module) if isinstance(node, ast.ImportFrom) else ""
        # What is no module yet, a page has its reader write.
        if isinstance(node, ast.ImportFrom) and module.startswith("streamer") and _is_module(module):
            names = {alias.name for alias in node.names if not _is_module(f"{module}.{alias.name}")}
            found.setdefault(module, set()).update(names)
    return found


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _described(name: str, value: Any) -> Iterator[str]:
    yield name + _parameters(value)
    if inspect.isclass(value):
        own = (one for one in value.__mro__ if one.__module__.startswith("streamer"))
        members = {member for one in own for member in vars(one) if member[0] != "_"}
        yield from (f"{name}.{member}{_parameters(getattr(value, member))}" for member in members)


def _parameters(value: Any) -> str:
    if not callable(value):
        return ""
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:
        return "()"
    return f"({', '.join(one.name + '=' * (one.default is not one.empty) for one in parameters)})"


def commands() -> Iterator[str]:
    """Every command, and every argument and option of it."""
    others = ((f"streamer {name}", one.command) for name, one in plugged().items())
    for path, command in (*every_command(typer.main.get_command(app), "streamer"), *others):
        yield path
        yield from (f"{path} {term(one)}" for one in command.params)


def settings() -> Iterator[str]:
    """Every setting with its default; those of a gate's table with the table's name."""
    for group, field, leaf in leaves(Settings):
        name, entry = setting_name(group, field), entry_type(leaf)
        for key, one in (
            {"": leaf} if entry is None else {f".GATE.{k}": v for k, v in entry.model_fields.items()}
        ).items():
            yield f"{name}{key} = {one.default!r}"


def events() -> Iterator[str]:
    """Every field of every event, with its type, and whether it must be there."""
    for name in types():
        yield from _fields(name, json_schema(name)["$defs"])


def _fields(event: str, schemas: dict[str, Any]) -> Iterator[str]:
    for name, schema in schemas.items():
        for field, one in schema["properties"].items():
            required = "required " if field in schema.get("required", ()) else ""
            yield f"{event}: {name}.{field} {required}{json.dumps(_bare(one), sort_keys=True)}"


def _bare(schema: Any) -> Any:
    """Leave out what a schema says to people."""
    if isinstance(schema, dict):
        return {key: _bare(value) for key, value in schema.items() if key != "description"}
    return [_bare(one) for one in schema] if isinstance(schema, list) else schema


def http() -> Iterator[str]:
    """Every operation of the HTTP service, with its parameters and statuses."""
    for path, operations in json.loads(document())["paths"].items():
        for method, one in operations.items():
            yield f"{method.upper()} {path}"
            yield from (f"{method.upper()} {path} {p['in']} {p['name']}" for p in one.get("parameters", ()))
            yield from (f"{method.upper()} {path} {status}" for status in one["responses"])


def tables() -> Iterator[str]:
    """Every column of every table, with its type on PostgreSQL."""
    from sqlalchemy.dialects import postgresql

    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    for table in metadata.tables.values():
        for column in table.columns:
            assert isinstance(column, sa.Column)
            null = "" if column.nullable else " not null"
            key = " primary key" if column.primary_key else ""
            yield f"{table.name}.{column.name} {column.type.compile(dialect)}{null}{key}"


def metrics() -> Iterator[str]:
    """Every metric with type, labels and the services that serve it."""
    for one in CATALOGUE:
        yield f"{one.name} {one.type} {{{', '.join(one.labels)}}} {', '.join(one.services)}"


def codes() -> Iterator[str]:
    """Every code by which a message is refused."""
    yield from MEANINGS


def exit_statuses() -> Iterator[str]:
    """What the command's exit statuses are called."""
    yield from (
        f"{name} {getattr(cli, name)}" for name in ("DONE", "FAILED", "WRONG_USAGE", "FOUND", "INTERRUPTED")
    )


SECTIONS: tuple[Callable[[], Iterator[str]], ...] = (
    public_names,
    commands,
    settings,
    events,
    http,
    tables,
    metrics,
    codes,
    exit_statuses,
)


def inventory() -> dict[str, list[str]]:
    """Return everything, by section, in alphabetical order."""
    return {section.__name__: sorted(section()) for section in SECTIONS}


def main() -> int:
    FILE.write_text(json.dumps(inventory(), indent=1, ensure_ascii=False) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
