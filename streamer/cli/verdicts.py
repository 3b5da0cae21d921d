"""A gate's verdict in a terminal and in JSON."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from streamer.cli.console import print_table
from streamer.wording.verdicts import figures

if TYPE_CHECKING:
    from streamer.risk.rounds.report import RiskReport


def verdict_json(report: "RiskReport | None") -> dict[str, Any]:
    """Return the verdict, and what it rests on, as fields for the JSON of other commands."""
    if report is None or report.service is None:
        return {"verdict": None, "service": None}
    return {"verdict": report.verdict, "service": asdict(report.service)}


def print_figures(report: "RiskReport") -> None:
    """Print the policy in force, the period and what was before side by side."""
    found = figures(report)
    if found is not None:
        print_table(["while the gate was open", *found.columns], found.rows)
