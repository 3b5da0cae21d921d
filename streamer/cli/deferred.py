"""Commands whose modules are imported when they are called, so that one command never waits for what another needs."""

from functools import cached_property
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from streamer.cli.help import written_for_help


class DeferredCommand(TyperCommand):
    """A command or a group of commands, of which only its name and its line in the list are known until it is called.

    Parameters
    ----------
    name : as on the command line.
    home : where it is, ``module:attribute``: a function, or a `typer.Typer` with commands of its own.
    line : what `streamer --help` says of it: a group's help, the first paragraph of a command's own.
    extra : the extra of pyproject.toml that has what it imports; None: all is always there.
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
