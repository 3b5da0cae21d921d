"""The whole command line: every command in the order that people meet them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from streamer.cli import (
    alert,
    audit,
    config,
    database,
    dead_letters,
    demo,
    doctor,
    evaluate,
    gate,
    gpso,
    label,
    plan,
    publish,
    recalibrate,
    review,
    risk,
    sample,
    services,
    simulate,
    tail,
    threshold,
    topics,
)
from streamer.security.visible import visible


class VisibleGroup(TyperGroup):
    """Shows usage errors, which quote the command line, without what could steer a terminal."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the command line up to the command."""
        with _visible_errors():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Read the rest and run the command."""
        with _visible_errors():
            return super().invoke(ctx)


@contextmanager
def _visible_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if callable(described := getattr(error, "format_message", None)):
            text = visible(described())
            error.format_message = lambda: text  # type: ignore[attr-defined]
        raise


_INSECURE = "STREAMER_INSECURE"
_TRY, _RUN, _USE, _RISK, _OPERATE = "Try it", "Run it", "Use it", "Own the risk", "Operate it"
_RESEARCH = "Research"

app = typer.Typer(
    name="streamer",
    cls=VisibleGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help=(
        "Ship or hold language-model answers inside a stated risk budget.\n\n"
        "Start with `streamer demo`. Exit status: 0 done, 1 failed, 2 wrong usage, 3 a check found something."
    ),
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"streamer {version('conformal-streamer')}")
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


app.command("demo", rich_help_panel=_TRY)(demo.demo)
app.command("dev", rich_help_panel=_TRY)(services.dev)
app.command("simulate", rich_help_panel=_TRY)(simulate.simulate)
app.command("worker", rich_help_panel=_RUN)(services.worker)
app.command("recalibrator", rich_help_panel=_RUN)(services.recalibrator)
app.command("publish", rich_help_panel=_USE)(publish.publish)
app.command("tail", rich_help_panel=_USE)(tail.tail)
app.command("plan", rich_help_panel=_RISK)(plan.plan)
app.add_typer(gate.app, name="gate", rich_help_panel=_RISK)
app.add_typer(label.app, name="label", rich_help_panel=_RISK)
app.command("review", rich_help_panel=_RISK)(review.review)
app.command("recalibrate", rich_help_panel=_RISK)(recalibrate.recalibrate)
app.command("risk", rich_help_panel=_RISK)(risk.risk)
app.add_typer(threshold.app, name="threshold", rich_help_panel=_RISK)
app.command("doctor", rich_help_panel=_OPERATE)(doctor.doctor)
app.add_typer(alert.app, name="alert", rich_help_panel=_RISK)
app.add_typer(audit.app, name="audit", rich_help_panel=_RISK)
app.add_typer(database.app, name="db", rich_help_panel=_OPERATE)
app.add_typer(topics.app, name="topics", rich_help_panel=_OPERATE)
app.add_typer(dead_letters.app, name="dead-letters", rich_help_panel=_OPERATE)
app.add_typer(config.app, name="config", rich_help_panel=_OPERATE)
app.command("evaluate", rich_help_panel=_RESEARCH)(evaluate.evaluate)
app.command("sample", rich_help_panel=_RESEARCH)(sample.sample)
app.command("gpso", rich_help_panel=_RESEARCH)(gpso.gpso)
