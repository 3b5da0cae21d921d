"""The whole command line: every command, in the order of `--help`."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from streamer.cli.help import WIDEST, write_commands, write_options, written_for_help
from streamer.errors import UsageError
from streamer.extras import PackageMissing, needed_by
from streamer.security.visible import visible


class DeferredCommand(TyperCommand):
    """A command or a group of commands, of which only its name and its line in `streamer --help`
    are known until it is called.

    It is at `home`, ``module:attribute``: a function, or a `typer.Typer` with commands of its own.
    What it imports is in `extra` of pyproject.toml; None: always there.
    """

    def __init__(self, name: str, home: str, line: str, extra: str | None) -> None:
        super().__init__(name, help=line, short_help=line)
        self.home, self.extra = home, extra

    @cached_property
    def command(self) -> Any:
        """The command itself."""
        module, attribute = self.home.split(":")
        found = getattr(import_module(module), attribute)
        alone = typer.Typer(add_completion=False)
        if isinstance(found, typer.Typer):
            alone.add_typer(found, name=self.name, help=self.help)
        else:
            alone.command(self.name)(found)
        return written_for_help(typer.main.get_group(alone).commands[self.name or ""])

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read its command line: from here on the command itself is asked."""
        return self.command.make_context(*arguments, **options)


_COMMANDS = {
    "Try it": (
        ("demo", "demo:demo", "demo",
         "Run everything once on an embedded broker: calibrate a gate on one half of the data, stream the other."),
        ("dev", "services:dev", "demo",
         "Run an embedded broker, a worker, the HTTP endpoint, a recalibrator and the console until Ctrl-C, to try things on."),
        ("init", "init:init", "worker",
         "Make a folder to start in: settings, a table of example answers, a gate, and three commands to go on."),
        ("simulate", "simulate:simulate", "service",
         "Publish simulated batches and their severities until Ctrl-C, to try an installation."),
    ),
    "Run it": (
        ("worker", "services:worker", "worker",
         "Run one worker until SIGTERM or Ctrl-C: decide every batch on the responses topic."),
        ("serve", "services:serve", "serve",
         "Serve the gates by HTTP until SIGTERM or Ctrl-C: a request gets its decision once it is on record."),
        ("recalibrator", "services:recalibrator", "service",
         "Run the recalibrator until SIGTERM or Ctrl-C: calibrate each gate when it is due, as the gate's rule says."),
    ),
    "Use it": (
        ("publish", "publish:publish", "service", "Publish response batches to the responses topic."),
        ("tail", "tail:tail", "service", "Follow a topic, one line an event, until Ctrl-C."),
    ),
    "Manage risk": (
        ("console", "console_app:app", "console",
         "Serve the console until Ctrl-C: gates, decisions, proposals, alerts and labelling in a browser."),
        ("try", "try_file:try_", None,
         "Say whether a gate is worth it on your own answers: what it would serve at each budget, what would get through, what it costs."),
        ("plan", "plan:plan", None,
         "Plan a budget before anyone labels: how many labels it needs, how to spend them, how many responses to sample."),
        ("gate", "gate:app", "service", "Create, show and change gates."),
        ("apply", "apply:apply", "service",
         "Bring gates to what files say: a table [gates.NAME] with the options of `gate create`."),
        ("export", "export:exports", "service",
         "Write gates as files, for `streamer apply`; decisions, labels and segments as tables."),
        ("label", "label:app", "service", "Labels: list what waits for one, import files, label by program."),
        ("review", "review:review", "review",
         "Serve a page where people label what waits in the queues, until Ctrl-C. The oldest decision comes first."),
        ("scorer", "scorer:app", "service",
         "Scorers of other packages: list those that are installed, and test one against what every scorer must do."),
        ("recalibrate", "recalibrate:recalibrate", "service",
         "Calibrate from the audit sample and put the new threshold in force, or propose it."),
        ("what-if", "what_if:what_if", "service",
         "Say what another budget, method, scorer or threshold would have shipped of the recorded past, and what that would have cost."),
        ("candidate", "candidate:app", "service",
         "Candidate policies: decide another score, encoder or threshold beside the one in force, and compare them."),
        ("risk", "risk:risk", "service",
         "Show whether gates keep their budgets, how certain that is, and which alarms are raised."),
        ("threshold", "threshold:app", "service",
         "Thresholds: list and show them, activate or reject proposals, roll back, close a gate, sign."),
        ("alert", "alert:app", "service", "Alerts: list and acknowledge them."),
        ("audit", "audit:app", "service",
         "The record: show decisions, verify it, export it, report on it, make checkpoints."),
    ),
    "Operate it": (
        ("doctor", "doctor:doctor", "service",
         "Check everything once: Python, settings, encoder, database, broker, topics, gates, labels, dead letters."),
        ("key", "key:app", "service",
         "API keys: create, list and revoke what programs call the HTTP endpoint with."),
        ("db", "database:app", "service",
         "The database: upgrade its schema, create its roles, erase old texts."),
        ("topics", "topics:app", "service", "Topics on the broker: create and check them."),
        ("dead-letters", "dead_letters:app", "service",
         "Refused messages: list them with the reason, and send them again."),
        ("config", "config:app", None, "Settings: show each value and where it came from."),
    ),
    "Research": (
        ("evaluate", "evaluate:evaluate", "research",
         "Evaluate answers with severities: what a gate would ship, what harm would get through, which score and method do best."),
    ),
}  # fmt: skip
"""Under each heading: a command, where it is, the extra that it needs, and its line in `streamer --help`: all the help of a
group, and the first paragraph of a command's own."""


def plugged(name: str | None = None) -> dict[str, DeferredCommand]:
    """Return the commands that other packages add, or the one of this name.

    Each is an entry point of the group ``streamer.commands``, called as the command, and is where the command is and its line
    in `streamer --help`: ``("module:attribute", "What it does.")``. A name of a command of ours is ours.
    """
    from importlib.metadata import entry_points

    found = {}
    for one in entry_points(group="streamer.commands"):
        if name in (None, one.name):
            try:
                home, line = one.load()
            except (ImportError, AttributeError) as error:
                if name is not None:
                    raise UsageError(f"`streamer {name}` ({one.value}) cannot be loaded: {error}") from error
                home, line = one.value, f"Cannot be loaded: {error}."
            found[one.name] = DeferredCommand(one.name, home, line, None)
    return found


class StreamerGroup(TyperGroup):
    """All commands. Usage errors, which quote the command line, are shown without what could steer a terminal."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for commands in _COMMANDS.values():
            for name, home, extra, line in commands:
                self.add_command(DeferredCommand(name, f"streamer.cli.{home}", line, extra))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands under their headings."""
        listed: dict[str, Sequence[tuple[str, str]]] = {
            heading: [(name, line) for name, _home, _extra, line in commands]
            for heading, commands in _COMMANDS.items()
        }
        if others := [(name, str(one.help)) for name, one in plugged().items() if name not in self.commands]:
            listed["Of other packages"] = others
        write_commands(listed, formatter)

    def list_commands(self, ctx: Any) -> list[str]:
        """List the names of all, for shells that complete them."""
        return list({**self.commands, **plugged()})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Find one of ours, or of another package."""
        return super().get_command(ctx, cmd_name) or plugged(cmd_name).get(cmd_name)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, as those of every command, and the commands."""
        write_options(self, ctx, formatter)

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the command line up to the command."""
        with _visible_errors():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Read the rest and run the command."""
        with _visible_errors(), _extra_named(ctx):
            return super().invoke(ctx)


@contextmanager
def _visible_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if callable(described := getattr(error, "format_message", None)):
            text = visible(described()).replace(": Value error, ", ": ")  # which library said so helps nobody
            error.format_message = lambda: text  # type: ignore[attr-defined]
        raise


@contextmanager
def _extra_named(ctx: Any) -> Iterator[None]:
    """Say which extra the command needs where one of its packages is missing."""
    try:
        yield
    except (ModuleNotFoundError, PackageMissing):
        name = ctx.invoked_subcommand
        with needed_by(f"`streamer {name}`", ctx.command.get_command(ctx, name).extra):
            raise


_INSECURE = "STREAMER_INSECURE"

app = typer.Typer(
    name="streamer",
    cls=StreamerGroup,
    no_args_is_help=True,
    rich_markup_mode=None,  # Rich takes longer than all else together; streamer/cli/help.py says what stands in its place
    context_settings={"max_content_width": WIDEST},
    pretty_exceptions_enable=False,
    help=(
        "Ship or hold language-model answers inside a stated risk budget.\n\n"
        "Start with `streamer demo`. Exit status: 0 done, 1 failed, 2 usage error, 3 a check found something."
    ),
)


def _version(wanted: bool) -> None:
    if wanted:
        from streamer import __version__

        typer.echo(f"streamer {__version__}")
        raise typer.Exit


@app.callback()
def _streamer(
    context: typer.Context,
    _show_version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
    insecure: bool = typer.Option(
        False,
        "--insecure",
        help="Permit connections to other machines without TLS (before the command; or STREAMER_INSECURE=true).",
    ),
) -> None:
    if insecure:
        # By the environment it reaches the settings wherever they are read, and the processes that `dev` starts.
        before = os.environ.get(_INSECURE)
        os.environ[_INSECURE] = "true"
        context.call_on_close(lambda: _restore(before))


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(_INSECURE, None)
    else:
        os.environ[_INSECURE] = before


def every_command(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Each command below this one that does something, with its words, in the order of `--help`."""
    for name, listed in command.commands.items():
        child = listed.command if isinstance(listed, DeferredCommand) else listed
        if not hasattr(child, "commands") or child.invoke_without_command:
            yield f"{path} {name}", child
        if hasattr(child, "commands"):
            yield from every_command(child, f"{path} {name}")
