"""The demo's result for a terminal: the sentence, the figures, some decisions."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from streamer.clouds.sentence import sentence
from streamer.report.demo_run import DemoRun, cases, excerpt, figure_rows, verdict

_EXCERPT = 90


def run_summary(run: DemoRun) -> Group:
    """Return all that the demo prints for people; its first line is the sentence."""
    parts: list[RenderableType] = [sentence_line(run), Text(verdict(run), style="dim")]
    if run.simulated:
        parts.append(
            Text("These are simulated data: they say nothing about any language model.", style="yellow")
        )
    parts += [Text(), figures_table(run), Text(), decisions_table(run)]
    return Group(*parts)


def sentence_line(run: DemoRun) -> Text:
    """Return the run in one sentence, alone on its line."""
    return Text(sentence(run.report, run.alpha), style="bold")


def figures_table(run: DemoRun) -> Table:
    """Return the figures with what they mean."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("figure", no_wrap=True)
    table.add_column("value", no_wrap=True, style="bold")
    table.add_column("what it means", style="dim")
    for name, value, meaning in figure_rows(run):
        table.add_row(name.lower(), value, meaning)
    return table


def decisions_table(run: DemoRun) -> Table:
    """Return one decision of each of the four kinds: served or held, right or wrong."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("decision", no_wrap=True)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("prompt and answer", overflow="fold")
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
