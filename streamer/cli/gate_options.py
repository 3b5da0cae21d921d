"""The options of `streamer gate create` and `gate set`: one for each setting of a gate, made from its declaration."""

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from streamer.calibration.calibrators.mean import Mean
from streamer.cli import options as opt
from streamer.cli.console import output
from streamer.errors import UsageError
from streamer.gates import settings as declared
from streamer.gates.declared import FIRST_PARAMETERS
from streamer.gates.labeller_names import normalised
from streamer.gates.setting import NO_VALUE, PANELS, Setting
from streamer.gates.settings import PARAMETERS, parameter_setting
from streamer.scoring.signals.signal_list import signal_list
from streamer.wording.numbers import duration

SHOWN = (
    "unit", "alpha", "method", "severity_kind", "hold_action", "mode", "audit_probability", "recalibrate",
)  # fmt: skip
"""What `--help` shows, first under its heading; `--help-all` shows everything."""

ASKED_FIRST = ("alpha", "method", "scorer", "shape")
"""The same for a command that only asks about settings."""

DEFAULT_METHOD = Mean.name


def _every() -> tuple[Setting, ...]:
    """Every setting that has an option, in the order of the help."""
    found = [one for one in declared.SETTINGS.values() if one.panel and one.name not in FIRST_PARAMETERS]
    place = next(place for place, one in enumerate(found) if one.name == "shape") + 1
    found[place:place] = map(parameter_setting, PARAMETERS)
    return tuple(sorted(found, key=lambda one: (PANELS.index(one.panel), (*SHOWN, one.name).index(one.name))))


SETTINGS = _every()


def name_of(one: Setting) -> str:
    """The option without its dashes, as a parameter of Python."""
    return one.option[2:].replace("-", "_")


def _kind(one: Setting) -> Any:
    """The type that the command line reads; a text where it may be none, or means something else."""
    if one.name == "signals":
        return list[str]
    plain = one.kind in (int, float, bool) and not one.optional and not one.name.endswith("_seconds")
    return one.kind if plain else str


def value_of(one: Setting, given: Any) -> Any:
    """Turn what was given into the setting. Raises `UsageError` for what cannot be one."""
    if one.name == "signals":
        try:
            return signal_list([] if given == ["none"] else given).text
        except ValueError as error:
            raise UsageError(f"{one.option}: {error}") from None
    if one.optional and isinstance(given, str) and given.lower() == one.nothing:
        return None
    if one.name.endswith("_seconds"):
        return opt.seconds(given, one.option)
    if one.kind is tuple:
        return opt.names(given, one.option, spelt=normalised)
    if one.optional and one.kind is float:
        return opt.number(given, one.option)
    return opt.whole_number(given, one.option, one.nothing) if one.optional and one.kind is int else given


def _annotation(one: Setting, *, of_new_gates: bool) -> Any:
    """What Typer makes the option from; the help says what new gates have, or nothing of it."""
    text, kind, new = f"{one.help} {one.typed}".strip(), _kind(one), one.default
    if of_new_gates and new is not NO_VALUE and "New gates:" not in text:
        if one.kind is bool:
            new = (one.flag or "").split("/")[not new]
        elif new is None:
            new = one.nothing
        elif one.name.endswith("_seconds"):
            new = duration(new)
        text += f" New gates: {new}."
    return Annotated[
        kind | None,
        opt.option(
            None if kind is bool else one.metavar,
            text,
            ...,
            one.flag or one.option,
            rich_help_panel=one.panel,
            hidden=one.name not in (SHOWN if of_new_gates else ASKED_FIRST),
            show_default=False,
            parser=opt.share if kind is float else None,
        ),
    ]


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        for one in context.command.params:
            one.hidden = False  # type: ignore[attr-defined]
        if text := context.get_help():  # Typer may have printed it already
            output().print(text)
        raise typer.Exit


def with_settings(
    command: Callable[..., None], *, only: Collection[str] | None = None
) -> Callable[..., None]:
    """Give a command an option for each setting; it gets the given ones as `given`, by the names of `GateSettings`.

    `only` : the settings that a command asks about which changes no gate; None: all of one that makes or changes gates.
    """
    offered = [one for one in SETTINGS if only is None or one.name in only]

    @wraps(command)
    def run(**values: Any) -> None:
        values.pop("help_all", None)
        given = {
            one.name: value_of(one, value)
            for one in offered
            if (value := values.pop(name_of(one))) is not None and value != []
        }
        command(given=given, **values)

    hints = get_type_hints(command, include_extras=True)
    own = [
        one.replace(annotation=hints[one.name])
        for one in inspect.signature(command).parameters.values()
        if one.name != "given"
    ]
    options = [
        opt.keyword(name_of(one), _annotation(one, of_new_gates=only is None), None) for one in offered
    ]
    shows: Any = {"callback": _show_all, "is_eager": True, "expose_value": False}
    everything = opt.flag("--help-all", "Show every option and exit.", ..., **shows)
    first, rest = own[:1], [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own[1:]]
    parameters = [*first, *options, *rest, opt.keyword("help_all", Annotated[bool, everything], False)]
    del run.__wrapped__
    return opt.with_parameters(run, parameters)
