"""`streamer config`: what is configured, and where each value came from."""

from typing import Any

import typer

from streamer import wiring
from streamer.cli.console import print_json, print_table, warn
from streamer.cli.options import JsonOption
from streamer.security.visible import redact
from streamer.settings.settings import Settings
from streamer.settings.sources import (
    entry_type,
    is_table,
    leaves,
    misspelt_variables,
    setting_name,
    variable_name,
)

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep `show` a subcommand although it is the only one."""


@app.command()
def show(json: JsonOption = False) -> None:
    """Show every setting, its value without secrets, and where the value came from.

    A setting group.field is read from the environment (STREAMER_GROUP_FIELD, or the file that
    STREAMER_GROUP_FIELD_FILE names), from .env, from streamer.toml (or the file that STREAMER_CONFIG names), from
    a running `streamer dev`, or is its default.
    """
    settings = wiring.load_settings()
    rows = setting_rows(settings)
    unknown = misspelt_variables(Settings)
    if json:
        print_json({"settings": rows, "unknown_variables": unknown})
        return
    print_table(["setting", "value", "from"], [[row["setting"], row["value"], row["origin"]] for row in rows])
    for name in unknown:
        warn(f"{name} is set but is not a setting; is it misspelt?")


def setting_rows(settings: Any) -> list[dict[str, object]]:
    """Return setting, variable, value (secrets hidden) and origin of everything in `settings`, in order."""
    rows: list[dict[str, object]] = []

    def add(setting: str, variable: str, value: object, origin: str | None = None) -> None:
        origin = origin or settings.origins.get(setting, "default")
        rows.append(
            {"setting": setting, "variable": variable, "value": redact(setting, value), "origin": origin}
        )

    for group, field, leaf in leaves(type(settings)):
        value = getattr(getattr(settings, group) if group else settings, field)
        if is_table(leaf):
            for name in sorted(value):
                add(
                    f"{group}.{field}.{name}",
                    f"{variable_name(group, field)}_{name.replace('.', '_').upper()}",
                    value[name],
                )
        elif entry_type(leaf) is not None:
            for name in sorted(value):
                for one, held in value[name]:
                    origin = settings.origins.get(field) if one in value[name].model_fields_set else None
                    add(f"{field}.{name}.{one}", variable_name(group, field), held, origin)
        else:
            add(setting_name(group, field), variable_name(group, field), value)
    return rows
