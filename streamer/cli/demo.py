"""`streamer demo`: everything once, with all services inside this process."""

import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column, Table
from rich.text import Text

from streamer import wiring
from streamer.calibration.registry import every
from streamer.cli.console import errors, note, output, print_json, say
from streamer.cli.options import JsonOption, option, share
from streamer.cli.services import end_on_sigterm
from streamer.clouds.offline import summary
from streamer.clouds.sentence import sentence
from streamer.errors import UsageError
from streamer.gates.settings import METHODS
from streamer.report.demo_run import DemoRun, cases, excerpt, figure_rows, verdict

_EXCERPT = 90


def run_summary(run: DemoRun) -> Group:
    """Return all that the demo prints for people; its first line is the sentence."""
    parts: list[RenderableType] = [
        Text(sentence(run.report, run.alpha), style="bold"),
        Text(verdict(run), style="dim"),
    ]
    if run.simulated:
        parts.append(
            Text("These are simulated data: they say nothing about any language model.", style="yellow")
        )
    parts += [Text(), figures_table(run), Text(), decisions_table(run)]
    return Group(*parts)


def _table(*columns: Column) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))


def figures_table(run: DemoRun) -> Table:
    """Return the figures with what they mean."""
    table = _table(
        Column("figure", no_wrap=True),
        Column("value", no_wrap=True, style="bold"),
        Column("what it means", style="dim"),
    )
    for name, value, meaning in figure_rows(run):
        table.add_row(name.lower(), value, meaning)
    return table


def decisions_table(run: DemoRun) -> Table:
    """Return one decision of each of the four kinds: served or held, right or wrong."""
    table = _table(
        Column("decision", no_wrap=True),
        Column("score", justify="right", no_wrap=True),
        Column("prompt and answer", overflow="fold"),
    )
    for shipped in (True, False):
        for wrong in (False, True):
            for case in cases(run, shipped=shipped, wrong=wrong, limit=1):
                name = f"{'served' if shipped else 'held'}, {'wrong' if wrong else 'right'}"
                score = "-" if case.score is None else f"{case.score:.3f}"
                style = "red" if shipped and wrong else "green" if shipped else ""
                # Text, never markup: prompts and answers are untrusted.
                table.add_row(
                    Text(name, style=style),
                    Text(score),
                    Group(
                        Text(excerpt(case.prompt, _EXCERPT), style="dim"),
                        Padding(Text(excerpt(case.answer, _EXCERPT) or "(blank)"), (0, 0, 0, 2)),
                    ),
                )
    return table


_WIDTH_FOR_BARS = 120
_METHODS = tuple(name for name in METHODS if every()[name].risk == "exposure")


def demo(
    data: Path | None = option("FILE", "Response clouds, .jsonl or .jsonl.gz. Default: simulated answers."),
    gate_unit: Literal["best", "response"] = option(
        None, "What ships: the best of a batch, or each response on its own.", "best"
    ),
    alpha: float = option("A", "Budget on exposure risk, between 0 and 1.", 0.1, parser=share),
    method: str = option("|".join(_METHODS), "Calibrator.", "mean"),
    seed: int = option(
        "S", "Seed of the split, of the simulation and of the calibrator.", 0, min=0, max=2**63 - 1
    ),
    json: JsonOption = False,
) -> None:
    """Run everything once on an embedded broker: calibrate a gate on one half of the data, stream the other.

    The first half is published to a closed gate, its labels come back by the labels topic, a recalibration opens
    the gate, and the second half streams through it. What is reported is measured on the second half. The gate cuts
    Gram energy, whose threshold the pictures show; `--method full` reads all signals, as a gate of `streamer gate create` does.
    """
    from streamer.cli.dev.demonstration import Asked
    from streamer.cli.dev.embedded_step import run_demo

    if not 0 < alpha < 1:
        raise UsageError(f"--alpha must be between 0 and 1, both excluded, not {alpha:g}")
    if method not in _METHODS:
        raise UsageError(
            f"--method must be one of {', '.join(_METHODS)}, not {method!r}"
            + (": that one bounds another risk than the demo reports" if method in METHODS else "")
        )
    if every()[method].of_signals and gate_unit == "response":
        raise UsageError(
            f"--method {method} goes with --gate-unit best: it decides about one answer of a prompt"
        )
    end_on_sigterm()
    with DemoProgress() as watch:
        asked = Asked(unit=gate_unit, alpha=alpha, method=method, seed=seed)
        run, page = run_demo(wiring.load_settings(http={"port": 0}), asked, data=data, watch=watch)
    if json:
        print_json(demo_json(run, page))
        return
    output().print(run_summary(run))
    say(f"\nreport    {page}\ndatabase  {run.database}")


def demo_json(run: DemoRun, page: Path) -> dict[str, Any]:
    """Return a run's figures as JSON values; null where a figure is not defined."""
    figures = summary(
        run.report,
        alpha=run.alpha,
        method=run.method,
        state=run.state,
        threshold=run.threshold,
        calibration_groups=len(run.calibration),
    )
    return {
        **figures,
        "seconds": run.seconds,
        "batches_per_second": run.batches_per_second,
        "database": run.database,
        "report": str(page),
    }


class DemoProgress:
    """Shows the demo's phases on standard error: bars on a terminal, one line a phase elsewhere."""

    def __init__(self) -> None:
        self._bars: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> "DemoProgress":
        if sys.stderr.isatty():
            # Where space is short the bar is dropped first and names are wrapped; figures are never cut.
            console = errors()
            self._bars = Progress(
                SpinnerColumn(finished_text="[green]✓"),
                TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=False)),
                *([BarColumn(bar_width=24)] if console.width >= _WIDTH_FOR_BARS else []),
                MofNCompleteColumn(table_column=Column(no_wrap=True)),
                TimeElapsedColumn(table_column=Column(no_wrap=True)),
                TextColumn("{task.fields[aside]}", markup=False, style="dim"),
                console=console,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            if kind is None:
                self._finish()
            self._bars.stop()

    def phase(self, name: str, total: int | None = None) -> None:
        """Begin a part of the story in which `total` things will be done; None: one thing of unknown length."""
        if self._bars is None:
            note(name + (f" ({total})" if total else ""))
            return
        self._finish()
        self._bars.start()  # not before: until then somebody may be asked something
        self._task = self._bars.add_task(name, total=total, aside="")

    def done(self, count: int, *, shipped: int | None = None) -> None:
        """Show how many things of this part are done, and how many units were shipped so far."""
        if self._bars is not None and self._task is not None:
            aside = "" if shipped is None else f"{shipped} shipped"
            self._bars.update(self._task, completed=count, aside=aside)

    def _finish(self) -> None:
        if self._bars is None or self._task is None:
            return
        task = next(one for one in self._bars.tasks if one.id == self._task)
        if task.total is None:
            self._bars.update(self._task, total=1, completed=1)
