"""Options that several commands share, and what their texts mean."""

import getpass
import re
from typing import Annotated

import typer

from streamer.errors import UsageError
from streamer.policy import HOLD_ACTIONS, METHODS, MODES, SCORERS, UNITS

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON on standard output, and nothing else there.")
]
ByOption = Annotated[
    str | None,
    typer.Option("--by", metavar="WHO", help="Who does this, for the record; default: your login name."),
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")]
GateArgument = Annotated[str, typer.Argument(metavar="GATE", help="Name of the gate.")]
GateFilter = Annotated[str | None, typer.Option("--gate", metavar="GATE", help="Only this gate.")]

_POLICY, _AUDIT = "What the gate decides with", "Labelling and deadlines"

UnitOption = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(UNITS), rich_help_panel=_POLICY,
        help="What ships: the best response of a batch, each response on its own, or the whole batch.",
    ),
]  # fmt: skip
AlphaOption = Annotated[
    float | None,
    typer.Option(metavar="A", rich_help_panel=_POLICY, help="Budget on exposure risk, between 0 and 1."),
]
MethodOption = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(METHODS), rich_help_panel=_POLICY,
        help="Calibrator; choose it before anybody looks at labels.",
    ),
]  # fmt: skip
ScorerOption = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(SCORERS), rich_help_panel=_POLICY,
        help="gram: agreement of the responses' embeddings; external: the event brings a score.",
    ),
]  # fmt: skip
EncoderOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", rich_help_panel=_POLICY, help="Encoder of scorer gram; default: the configured one."
    ),
]
SeverityKindOption = Annotated[
    str | None,
    typer.Option(
        metavar="KIND", rich_help_panel=_POLICY, help="Kind of labels that control the gate, like human."
    ),
]
HoldActionOption = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(HOLD_ACTIONS),
        rich_help_panel=_POLICY,
        help="What happens to a response that is not shipped.",
    ),
]
MaxAttemptsOption = Annotated[
    int | None,
    typer.Option(
        metavar="R", rich_help_panel=_POLICY,
        help="Attempts per prompt when held batches are regenerated; calibration then uses alpha / R.",
    ),
]  # fmt: skip
ModeOption = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(MODES), rich_help_panel=_POLICY,
        help="shadow: decide and record, consumers are told not to enforce.",
    ),
]  # fmt: skip
EtaOption = Annotated[
    float | None,
    typer.Option(metavar="E", rich_help_panel=_POLICY, help="Dirichlet concentration of the method rbwa."),
]
DrawsOption = Annotated[
    int | None,
    typer.Option(metavar="K", rich_help_panel=_POLICY, help="Bootstrap draws per group of the method bb."),
]
AuditProbabilityOption = Annotated[
    float | None,
    typer.Option(
        metavar="P", rich_help_panel=_AUDIT, help="Chance in [0, 1] that a batch is drawn for labelling."
    ),
]
AuditDrawsOption = Annotated[
    int | None,
    typer.Option(
        metavar="K",
        rich_help_panel=_AUDIT,
        help="Responses to label of a drawn batch (unit best: always its best).",
    ),
]
LabelDeadlineOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", rich_help_panel=_AUDIT,
        help="Age at which a drawn batch enters calibration, labelled or not: 0, 90s, 30m, 12h, 7d.",
    ),
]  # fmt: skip
DecisionDeadlineOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        rich_help_panel=_AUDIT,
        help="Batches older than this are held: 90s, 30m, 12h; or none.",
    ),
]

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def who(by: str | None) -> str:
    """Name whoever acts: `by`, or the login name. Raises `UsageError` when the system has no name for the user."""
    if by:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        raise UsageError("this system has no name for you; say who you are with --by") from None


def seconds(text: str, option: str) -> float:
    """Turn ``90``, ``90s``, ``30m``, ``12h`` or ``7d`` into seconds. Raises `UsageError` for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip().lower())
    if match is None:
        raise UsageError(f"{option} must be a time like 90s, 30m, 12h or 7d, not {text!r}")
    return float(match[1]) * _SECONDS[match[2]]


def duration(value: float | None) -> str:
    """Write seconds the way that `seconds` reads them; ``none`` for None."""
    if value is None:
        return "none"
    for unit in ("d", "h", "m"):
        if value and value % _SECONDS[unit] == 0:
            return f"{value / _SECONDS[unit]:g}{unit}"
    return f"{value:g}s"
