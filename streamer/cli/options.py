"""Options that several commands share, and what their texts mean."""

import getpass
import math
import re
from dataclasses import MISSING, fields
from typing import Annotated, Any

import typer

from streamer.errors import UsageError
from streamer.policy import (
    EMBEDDINGS,
    HOLD_ACTIONS,
    METHODS,
    MODES,
    MONITOR,
    ON_ALARM,
    RECALIBRATE,
    RECALIBRATOR,
    SCORERS,
    SEGMENT_FALLBACKS,
    SHAPES,
    UNITS,
    GateSettings,
)

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

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def who(by: str | None) -> str:
    """Name whoever acts: `by`, or the login name.

    Raises `UsageError` when the system has no name for the user, or the name is one that the program itself acts under:
    what an alarm did is told apart from what a person did by it.
    """
    try:
        name = by or getpass.getuser()
    except (KeyError, OSError, ImportError):
        raise UsageError("this system has no name for you; say who you are with --by") from None
    if name in (RECALIBRATOR, MONITOR):
        raise UsageError(f"the program itself acts as {name!r}; say who you are with --by")
    return name


def seconds(text: str, option: str) -> float:
    """Turn ``90``, ``90s``, ``30m``, ``12h`` or ``7d`` into seconds. Raises `UsageError` for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip().lower())
    if match is None:
        raise UsageError(f"{option} must be a time like 90s, 30m, 12h or 7d, not {text!r}")
    return float(match[1]) * _SECONDS[match[2]]


def number(text: str, option: str) -> float:
    """Turn a text into a finite number. Raises `UsageError` for anything else."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{option} must be a number, or none, not {text!r}")
    return value


def whole_number(text: str, option: str) -> int:
    """Turn a text into a whole number. Raises `UsageError` for anything else."""
    if re.fullmatch(r"\d{1,18}", text.strip()) is None:
        raise UsageError(f"{option} must be a whole number, or none, not {text!r}")
    return int(text)


def duration(value: float | None) -> str:
    """Write seconds the way that `seconds` reads them; ``none`` for None."""
    if value is None:
        return "none"
    for unit in ("d", "h", "m"):
        if value and value % _SECONDS[unit] == 0:
            return f"{value / _SECONDS[unit]:g}{unit}"
    return f"{value:g}s"


_POLICY, _METHODS, _AUDIT, _BY_ITSELF, _WATCH = (
    "What the gate decides with",
    "Methods, shapes and segments",
    "Labelling and deadlines",
    "Recalibration by the service",
    "Watching the risk in service",
)
_DEFAULTS = {field.name: field.default for field in fields(GateSettings)}


def _gate_option(field: str, metavar: str, text: str, panel: str) -> Any:
    """Make the option of a gate's setting; its help ends with what a new gate has."""
    default = _DEFAULTS[field]
    if default is not MISSING:
        text += f" New gates: {duration(default) if field.endswith('_seconds') else default}."
    name = "--" + field.removesuffix("_seconds").replace("_", "-")
    return typer.Option(name, metavar=metavar, rich_help_panel=panel, help=text)


UnitOption = Annotated[
    str | None,
    _gate_option(
        "unit",
        "|".join(UNITS),
        "What ships: the best response of a batch, each response on its own, or the whole batch.",
        _POLICY,
    ),
]
AlphaOption = Annotated[
    float | None,
    _gate_option("alpha", "A", "Budget on exposure risk, between 0 and 1.", _POLICY),
]
MethodOption = Annotated[
    str | None,
    _gate_option(
        "method", "|".join(METHODS), "Calibrator; choose it before anybody looks at labels.", _POLICY
    ),
]
ScorerOption = Annotated[
    str | None,
    _gate_option(
        "scorer",
        "|".join(SCORERS),
        "gram: agreement of the responses' embeddings; external: the event brings a score.",
        _POLICY,
    ),
]
EncoderOption = Annotated[
    str | None,
    _gate_option(
        "encoder",
        "NAME",
        "Encoder of the scorer gram; external:NAME for one that no worker runs: events bring its embeddings. "
        "New gates: the configured one.",
        _POLICY,
    ),
]
EmbeddingsOption = Annotated[
    str | None,
    typer.Option(
        "--embeddings",
        metavar="|".join(EMBEDDINGS),
        rich_help_panel=_POLICY,
        help="Batches that bring their own embeddings: hold them, or decide by them if their embedding_encoder is the "
        "gate's. New gates: refuse; accept with an external encoder, or where encoder.name is none.",
    ),
]
DimensionOption = Annotated[
    int | None,
    typer.Option(
        "--dimension",
        metavar="D",
        rich_help_panel=_POLICY,
        help="Dimension of the embeddings that are accepted; needed where the encoder is not known.",
    ),
]
SeverityKindOption = Annotated[
    str | None,
    _gate_option("severity_kind", "KIND", "Kind of label that controls the gate.", _POLICY),
]
LabellersOption = Annotated[
    str | None,
    _gate_option(
        "labellers",
        "WHO,...",
        "Read labels by these labellers alone, separated by commas; `none`: by everybody.",
        _POLICY,
    ),
]
SignedLabelsOption = Annotated[
    bool | None,
    typer.Option(
        "--signed-labels/--no-signed-labels",
        rich_help_panel=_POLICY,
        help="Read only labels that their labeller has signed (`streamer label keygen`), or all. New gates: all.",
        show_default=False,
    ),
]
HoldActionOption = Annotated[
    str | None,
    _gate_option(
        "hold_action", "ACTION", f"What happens to what is not shipped: {', '.join(HOLD_ACTIONS)}.", _POLICY
    ),
]
MaxAttemptsOption = Annotated[
    int | None,
    _gate_option(
        "max_attempts",
        "R",
        "Attempts per prompt when held batches are regenerated; calibration then uses alpha / R.",
        _POLICY,
    ),
]
ModeOption = Annotated[
    str | None,
    _gate_option(
        "mode", "|".join(MODES), "shadow: decide and record, but tell consumers not to enforce.", _POLICY
    ),
]
EtaOption = Annotated[
    float | None,
    _gate_option("eta", "E", "Dirichlet concentration of the method rbwa.", _POLICY),
]
DrawsOption = Annotated[
    int | None,
    _gate_option("draws", "K", "Bootstrap draws per group of the method bb.", _POLICY),
]
DeltaOption = Annotated[
    float | None,
    _gate_option(
        "delta", "D", "Chance that a bound by the methods hb, betting or selective may fail.", _METHODS
    ),
]
RhoOption = Annotated[
    float | None,
    _gate_option(
        "rho", "R", "Method age: what each newer group multiplies a group's weight by, up to 1.", _METHODS
    ),
]
GridOption = Annotated[
    int | None,
    _gate_option("grid", "N", "Method selective: evenly spaced levels that are tested.", _METHODS),
]
StartsOption = Annotated[
    int | None,
    _gate_option("starts", "N", "Method selective: levels of the grid from which tests begin.", _METHODS),
]
ShapeOption = Annotated[
    str | None,
    _gate_option(
        "shape",
        "|".join(SHAPES),
        "How the threshold is read: a plain cut, a chance to ship that rises with the score (smooth, ramp), "
        "a quantile of the calibration scores, or a rank within the batch.",
        _METHODS,
    ),
]
WidthOption = Annotated[
    float | None,
    _gate_option("width", "W", "Width of the shapes smooth and ramp, on the scale of scores.", _METHODS),
]
SegmentByOption = Annotated[
    str | None,
    _gate_option(
        "segment_by",
        "KEY",
        "Metadata key that tells kinds of prompts apart, each with a threshold of its own; none takes it away.",
        _METHODS,
    ),
]
SegmentFallbackOption = Annotated[
    str | None,
    _gate_option(
        "segment_fallback",
        "|".join(SEGMENT_FALLBACKS),
        "What serves a kind with too few groups: nothing ships, or the threshold of all (which then promises nothing).",
        _METHODS,
    ),
]
LabelFloorOption = Annotated[
    str | None,
    _gate_option(
        "label_floor",
        "Q",
        "Label only what scores above this; nothing below it ever ships. none takes it away.",
        _AUDIT,
    ),
]
AuditProbabilityOption = Annotated[
    float | None,
    _gate_option("audit_probability", "P", "Chance in [0, 1] that a batch is drawn for labelling.", _AUDIT),
]
AuditDrawsOption = Annotated[
    int | None,
    _gate_option(
        "audit_draws",
        "K",
        "Responses to label of a drawn batch; the unit best always draws its best one.",
        _AUDIT,
    ),
]
LabelDeadlineOption = Annotated[
    str | None,
    _gate_option(
        "label_deadline_seconds",
        "TIME",
        "Age at which a drawn batch enters calibration, labelled or not, like 90s, 30m, 12h, 7d.",
        _AUDIT,
    ),
]
DecisionDeadlineOption = Annotated[
    str | None,
    _gate_option(
        "decision_deadline_seconds",
        "TIME",
        "Batches older than this are held, by created_at or else the timestamp of their record, like 90s, 30m, 12h; or"
        " none.",
        _AUDIT,
    ),
]
KeepTextsOption = Annotated[
    bool | None,
    typer.Option(
        "--keep-texts/--hashes-only",
        rich_help_panel=_AUDIT,
        help="Keep prompts, responses, references and metadata in the database, or their hash only: labels must then "
        "come by the labels topic or by file. New gates: keep them.",
        show_default=False,
    ),
]
RecalibrateOption = Annotated[
    str | None,
    _gate_option(
        "recalibrate",
        "|".join(RECALIBRATE),
        "What `streamer recalibrator` does: nothing, runs that wait for `threshold activate`, or new thresholds within "
        "the limits below.",
        _BY_ITSELF,
    ),
]
RecalibrateEveryOption = Annotated[
    str | None,
    _gate_option(
        "recalibrate_every_seconds",
        "TIME",
        "Time between two runs, like 90s, 30m, 12h, 7d; none: not by time.",
        _BY_ITSELF,
    ),
]
RecalibrateAfterGroupsOption = Annotated[
    str | None,
    _gate_option(
        "recalibrate_after_groups",
        "K",
        "Newly labelled groups that bring a run about; none: not by labels.",
        _BY_ITSELF,
    ),
]
MaxLambdaStepOption = Annotated[
    float | None,
    _gate_option(
        "max_lambda_step",
        "D",
        "Rule auto: the most by which one run may loosen lambda; what tightens acts at once, and is reported beyond it.",
        _BY_ITSELF,
    ),
]
MaxShipRateStepOption = Annotated[
    float | None,
    _gate_option(
        "max_ship_rate_step", "D", "Rule auto: the same for the predicted share that ships.", _BY_ITSELF
    ),
]
LeastGroupsOption = Annotated[
    int | None,
    _gate_option(
        "least_groups",
        "N",
        "Rule auto: groups that a looser threshold must be calibrated on, half as many of them new.",
        _BY_ITSELF,
    ),
]
OnAlarmOption = Annotated[
    str | None,
    _gate_option(
        "on_alarm",
        "|".join(ON_ALARM),
        "When the risk in service has left the budget: close the gate, or only tell.",
        _WATCH,
    ),
]
MonitorDeltaOption = Annotated[
    float | None,
    _gate_option("monitor_delta", "D", "Chance that the interval of the risk in service ever fails.", _WATCH),
]
AlarmDeltaOption = Annotated[
    float | None,
    _gate_option("alarm_delta", "D", "Chance that the risk alarm is ever false.", _WATCH),
]
AlarmToleranceOption = Annotated[
    float | None,
    _gate_option(
        "alarm_tolerance",
        "SHARE",
        "Share of alpha by which the expected loss must pass alpha for the alarm to be true.",
        _WATCH,
    ),
]
MonitorDeadlineOption = Annotated[
    str | None,
    _gate_option(
        "monitor_deadline_seconds",
        "TIME",
        "Age at which a drawn decision without a label counts as overdue for monitoring, like 12h, 7d.",
        _WATCH,
    ),
]
BudgetPeriodDaysOption = Annotated[
    float | None,
    _gate_option("budget_period_days", "DAYS", "The period that the budget is reckoned over.", _WATCH),
]
DriftDeltaOption = Annotated[
    float | None,
    _gate_option("drift_delta", "D", "Chance that the drift alarm is ever false.", _WATCH),
]
JudgeKindOption = Annotated[
    str | None,
    _gate_option(
        "judge_kind",
        "KIND",
        "Kind of label that predicts the loss of every decision, for narrower intervals; none takes it away.",
        _WATCH,
    ),
]
