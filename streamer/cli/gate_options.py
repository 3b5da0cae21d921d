"""The options of `streamer gate create` and `gate set`: one for each setting of a gate, made from its specification."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from streamer.calibration import registry
from streamer.cli import options as opt
from streamer.errors import UsageError
from streamer.gates import shapes
from streamer.gates.labeller_names import normalised
from streamer.gates.settings import (
    EMBEDDINGS,
    HOLD_ACTIONS,
    METHODS,
    MODES,
    ON_ALARM,
    PARAMETERS,
    PENDING,
    RECALIBRATE,
    SCORERS,
    SEGMENT_FALLBACKS,
    SHAPES,
    UNITS,
    GateSettings,
)
from streamer.scoring.judged import FORMS
from streamer.scoring.signals.signal_list import signal_list

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_POLICY, _METHODS, _AUDIT, _BY_ITSELF, _WATCH = (
    "What and how the gate decides",
    "Methods, shapes and segments",
    "Labelling and deadlines",
    "Automatic recalibration",
    "Monitoring",
)

SHOWN = (
    "unit", "alpha", "method", "severity_kind", "hold_action", "mode", "audit_probability", "recalibrate",
)  # fmt: skip
"""What `--help` shows; `--help-all` shows everything."""


ASKED_FIRST = ("alpha", "method", "scorer", "shape")
"""The same for a command that only asks about settings."""

_SILENT: Any = object()
"""The help says nothing of what new gates have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingOption:
    """One option.

    Attributes
    ----------
    kind : the type that the command line reads; `str` with a `read` where the text means something else.
    none : whether the word ``none`` removes the setting.
    flag : the two forms of a switch.
    default : what the help says that new gates have.
    """

    field: str
    metavar: str
    help: str
    panel: str
    kind: type = str
    read: Callable[[str, str], Any] | None = None
    none: bool = False
    flag: str | None = None
    default: Any = _SILENT

    @property
    def name(self) -> str:
        """The option without its dashes, as a parameter of Python."""
        return self.field.removesuffix("_seconds")

    @property
    def option(self) -> str:
        """The option as it is typed."""
        return "--" + self.name.replace("_", "-")

    def value(self, given: Any) -> Any:
        """Turn what was given into the setting. Raises `UsageError` for what cannot be one."""
        if isinstance(given, str) and self.none and given.lower() == "none":
            return None
        return given if self.read is None else self.read(given, self.option)

    def annotation(self, *, of_new_gates: bool = True) -> Any:
        """What Typer makes the option from; the help says what new gates have, or nothing of it."""
        text = self.help
        if of_new_gates and self.default is not _SILENT:
            said = opt.duration(self.default) if self.field.endswith("_seconds") else self.default
            text += f" New gates: {'none' if self.default is None else said}."
        return Annotated[
            self.kind | None,
            typer.Option(
                self.flag or self.option,
                metavar=None if self.kind is bool else self.metavar,
                rich_help_panel=self.panel,
                help=text,
                hidden=self.field not in (SHOWN if of_new_gates else ASKED_FIRST),
                show_default=False,
                parser=opt.share if self.kind is float else None,
            ),
        ]


def _signals(given: Any, option: str) -> str:
    """Read a list of signals. Raises `UsageError` for what cannot be one."""
    try:
        return signal_list([] if given == ["none"] else given).text
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _texts(text: str, _option: str) -> str:
    return text


_DEFAULTS = {field.name: field.default for field in fields(GateSettings)}

DEFAULT_METHOD: str = _DEFAULTS["calibrator"].name


def _of(field: str, metavar: str, text: str, panel: str, **more: Any) -> SettingOption:
    more.setdefault("default", _DEFAULTS[field])
    return SettingOption(field=field, metavar=metavar, help=text, panel=panel, **more)


def _parameters() -> list[SettingOption]:
    """The parameters of all methods and shapes."""
    made = []
    for name, (about, default, who) in PARAMETERS.items():
        kind = "Method" if name in registry.ranges() else "Shape"
        text = f"{kind}{'s' if len(who) > 1 else ''} {', '.join(who)}: {about.help}."
        made.append(
            SettingOption(
                field=name,
                metavar=about.metavar,
                help=text,
                panel=_METHODS,
                kind=int if about.whole else float,
                default=default,
            )
        )
    return made


_SHAPES_SAID = "; ".join(f"{name}: {kind.summary}" for name, kind in shapes.EVERY.items())

SETTINGS: tuple[SettingOption, ...] = (
    _of(
        "unit",
        "|".join(UNITS),
        "What ships: the best response of a batch, each response separately, or the whole batch.",
        _POLICY,
    ),
    _of("alpha", "A", "Risk budget, between 0 and 1 (0.05 or 5%).", _POLICY, kind=float),
    SettingOption(
        field="method",
        metavar="METHOD",
        help=f"Calibrator: {', '.join(METHODS)}. Choose it before anyone sees labels (docs/guarantees.md says what each "
        "promises). New gates: full for the units best and batch; mean for response, and where a --scorer is named.",
        panel=_POLICY,
    ),
    _of(
        "scorer",
        "SCORER",
        f"Where scores come from: {', '.join(SCORERS)}. gram is the agreement of the responses' embeddings, external a score "
        "in the event, judge the mark of the configured language model; the others are what `streamer evaluate` compares.",
        _POLICY,
    ),
    SettingOption(
        field="signals",
        metavar="NAME=LOW..HIGH",
        help="What a gate of method full reads besides the 26 signals of the texts; give it once for each. score, logprob, token_entropy, most_token_entropy, judge (0 to 100): as they "
        "come with an event. final, number, json, call: how far answers agree in that part (see --judged). NAME=LOW..HIGH: a number of your own in the event's signals, with its range. model=NAME: whether "
        "this model gave the answer. none: nothing besides. The whole list is set anew, and its labels count from then on.",
        panel=_POLICY,
        kind=list[str],
        flag="--signal",
        read=_signals,
        default=None,
    ),
    SettingOption(
        field="encoder",
        metavar="NAME",
        help="Encoder of the scorer gram; openai:MODEL for one at an endpoint; external:NAME where events bring the embeddings. "
        "New gates: the configured one.",
        panel=_POLICY,
    ),
    _of(
        "embeddings",
        "|".join(EMBEDDINGS),
        "Batches that bring their own embeddings: hold them, or decide by them if their embedding_encoder is the "
        "gate's. New gates: refuse; accept with an external encoder, or where encoder.name is none.",
        _POLICY,
        default=_SILENT,
    ),
    _of(
        "dimension",
        "D",
        "Dimension of accepted embeddings; needed if the encoder is unknown here.",
        _POLICY,
        kind=int,
        default=_SILENT,
    ),
    _of(
        "upstream",
        "NAME|MODEL@HASH",
        "The upstream whose answers the gate decides about, by its table [upstreams.NAME] or as batches name it: model, "
        "parameters, and the rule that says when sampling stops. Batches of any other are held. none: answers of any origin.",
        _POLICY,
        none=True,
    ),
    _of("severity_kind", "KIND", "Kind of label that the gate is calibrated on.", _POLICY),
    _of(
        "labellers",
        "WHO,...",
        "Read only labels by these labellers, separated by commas; `none`: everybody's.",
        _POLICY,
        none=True,
        read=lambda text, option: opt.names(text, option, spelt=_spelt),
    ),
    _of(
        "signed_labels",
        "",
        "Read only labels that their labeller has signed (`streamer label keygen`), or all. New gates: all.",
        _POLICY,
        kind=bool,
        flag="--signed-labels/--no-signed-labels",
        default=_SILENT,
    ),
    _of(
        "hold_action",
        "ACTION",
        f"What happens to a batch that does not ship: {', '.join(HOLD_ACTIONS)}.",
        _POLICY,
    ),
    _of(
        "desk_deadline_seconds",
        "TIME",
        "With --hold-action escalate: how long a held batch waits for a person at the console's desk, like 15m, before it is "
        "rejected; none: there is no desk.",
        _POLICY,
        none=True,
        read=opt.seconds,
    ),
    _of(
        "max_attempts",
        "R",
        "Attempts per prompt when held batches are regenerated; calibration then uses alpha / R.",
        _POLICY,
        kind=int,
    ),
    _of("mode", "|".join(MODES), "shadow: decide and record, but mark actions as not enforced.", _POLICY),
    SettingOption(
        field="shape",
        metavar="|".join(SHAPES),
        help=f"How score and threshold become a decision. {_SHAPES_SAID}.",
        panel=_METHODS,
        default=_DEFAULTS["shape"].name,
    ),
    *_parameters(),
    _of(
        "segment_by",
        "KEY",
        "Metadata key that divides prompts into segments, each with a threshold of its own; none removes it.",
        _METHODS,
        none=True,
    ),
    _of(
        "judged",
        "FORM",
        f"What of an answer is scored and labelled: {', '.join(FORMS)}. Reasoning never is, and never goes out, but with raw. After json or call "
        "fields that are compared as free text: 'json /notes'.",
        _POLICY,
    ),
    _of(
        "group_by",
        "KEY|prompt",
        "Metadata key that names bursts of batches, or prompt: batches with the same question. Calibration counts a burst once, and method "
        "full holds one with a bad label; none: each batch.",
        _METHODS,
        none=True,
    ),
    _of(
        "segment_fallback",
        "|".join(SEGMENT_FALLBACKS),
        "A segment with too few prompts: ship nothing, or use the threshold of all prompts (without a promise).",
        _METHODS,
    ),
    _of(
        "label_floor",
        "Q",
        "Label only what scores above this; nothing below it ever ships. none removes it.",
        _AUDIT,
        none=True,
        read=opt.number,
    ),
    _of(
        "keep_texts",
        "",
        "Keep prompts, responses, references and metadata in the database, or their hash only: labels must then "
        "come by the labels topic or by file. New gates: keep them.",
        _AUDIT,
        kind=bool,
        flag="--keep-texts/--hashes-only",
        default=_SILENT,
    ),
    _of(
        "audit_probability", "P", "Chance in [0, 1] that a batch is drawn for labelling.", _AUDIT, kind=float
    ),
    _of(
        "audit_draws",
        "K",
        "Responses to label in a drawn batch; the unit best always draws its best one.",
        _AUDIT,
        kind=int,
    ),
    _of(
        "audit_boost",
        "FACTOR",
        "Factor on the audit probability while the risk alarm gathers evidence; none: never raise it.",
        _AUDIT,
        none=True,
        read=opt.number,
    ),
    _of(
        "audit_boost_most",
        "N",
        "Labels a day (UTC) that --audit-boost may add.",
        _AUDIT,
        kind=int,
    ),
    _of(
        "label_deadline_seconds",
        "TIME",
        "Age at which a drawn batch enters calibration, labelled or not, like 90s, 30m, 12h, 7d.",
        _AUDIT,
        read=opt.seconds,
    ),
    _of(
        "pending",
        "|".join(PENDING),
        "Draws without a label in calibration: younger draws wait and older ones count as wrong (age), all count as wrong "
        "(worst), or none is read (labelled-only: exact only if bad answers are labelled as soon as good ones).",
        _AUDIT,
    ),
    _of(
        "window",
        "N",
        "Calibrate on the newest N groups alone, which follows changes faster and is noisier; none: on all.",
        _AUDIT,
        none=True,
        read=opt.whole_number,
    ),
    _of(
        "decision_deadline_seconds",
        "TIME",
        "Hold batches older than this, by created_at or else the timestamp of their record, like 90s, 30m, 12h; "
        "or none.",
        _AUDIT,
        none=True,
        read=opt.seconds,
    ),
    _of(
        "two_people",
        "",
        "A threshold that a person's run proposes needs the approval of another person, signed in at `streamer console`. New "
        "gates: one person.",
        _BY_ITSELF,
        kind=bool,
        flag="--two-people/--one-person",
        default=_SILENT,
    ),
    _of(
        "recalibrate",
        "|".join(RECALIBRATE),
        "What `streamer recalibrator` does: nothing, runs that wait for `threshold activate`, or new thresholds within "
        "the limits below.",
        _BY_ITSELF,
    ),
    _of(
        "recalibrate_every_seconds",
        "TIME",
        "Time between two runs, like 90s, 30m, 12h, 7d; none: no schedule.",
        _BY_ITSELF,
        none=True,
        read=opt.seconds,
    ),
    _of(
        "recalibrate_after_groups",
        "K",
        "Newly labelled prompts that trigger a run; none: labels trigger none.",
        _BY_ITSELF,
        none=True,
        read=opt.whole_number,
    ),
    _of(
        "max_lambda_step",
        "D",
        "Rule auto: the most by which one run may lower the threshold. A rise acts at once; a larger one is also reported.",
        _BY_ITSELF,
        kind=float,
    ),
    _of(
        "max_ship_rate_step",
        "D",
        "Rule auto: the same for the predicted ship rate.",
        _BY_ITSELF,
        kind=float,
    ),
    _of(
        "least_groups",
        "N",
        "Rule auto: fewest prompts for a lower threshold, half as many of them new.",
        _BY_ITSELF,
        kind=int,
    ),
    _of(
        "on_alarm",
        "|".join(ON_ALARM),
        "When the risk alarm is raised: close the gate, or only report it.",
        _WATCH,
    ),
    _of(
        "on_selective_alarm",
        "|".join(ON_ALARM),
        "When what ships is no better than if everything shipped: close the gate, or only report it.",
        _WATCH,
    ),
    _of(
        "monitor_delta",
        "D",
        "Chance that the risk interval is ever wrong.",
        _WATCH,
        kind=float,
    ),
    _of(
        "alarm_delta",
        "D",
        "Chance that the risk alarm is ever false, plus what --alarm-false-every adds; likewise for the "
        "selective-risk alarm and the draw alarm.",
        _WATCH,
        kind=float,
    ),
    _of(
        "alarm_false_every",
        "N",
        "Accept one more false alarm per this many labelled draws, so that a late change is seen as soon as an early one; "
        "never: accept none.",
        _WATCH,
        read=opt.whole_number_or_never,
    ),
    _of(
        "alarm_tolerance",
        "SHARE",
        "Share of alpha by which the expected loss must exceed alpha for the alarm to be true.",
        _WATCH,
        kind=float,
    ),
    _of(
        "monitor_deadline_seconds",
        "TIME",
        "Age at which a drawn decision without a label counts as overdue for monitoring, like 12h, 7d.",
        _WATCH,
        read=opt.seconds,
    ),
    _of("budget_period_days", "DAYS", "Period over which use of the budget is counted.", _WATCH, kind=float),
    _of("drift_delta", "D", "Chance that the drift alarm is ever false.", _WATCH, kind=float),
    _of(
        "judge_kind",
        "KIND",
        "Kind of label that predicts the loss of every decision, for narrower intervals; none removes it.",
        _WATCH,
        none=True,
    ),
)


def _spelt(name: str) -> str:
    return normalised(name)


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        from streamer.cli.console import output

        for one in context.command.params:
            one.hidden = False  # type: ignore[attr-defined]
        if text := context.get_help():  # Typer may have printed it already
            output().print(text)
        raise typer.Exit


HelpAllOption = Annotated[
    bool,
    typer.Option(
        "--help-all",
        callback=_show_all,
        is_eager=True,
        expose_value=False,
        help="Show every option and exit.",
    ),
]


def with_settings(
    command: Callable[..., None], *, only: Collection[str] | None = None
) -> Callable[..., None]:
    """Give a command an option for each setting; it gets the given ones as `given`, by the names of `GateSettings`.

    `only` : the settings that a command asks about which changes no gate; None: all of one that makes or changes gates.
    """
    offered = [one for one in SETTINGS if only is None or one.field in only]

    @wraps(command)
    def run(**values: Any) -> None:
        values.pop("help_all", None)
        given = {
            one.field: one.value(value)
            for one in offered
            if (value := values.pop(one.name)) is not None and value != []
        }
        command(given=given, **values)

    hints = get_type_hints(command, include_extras=True)
    own = [
        one.replace(annotation=hints[one.name])
        for one in inspect.signature(command).parameters.values()
        if one.name != "given"
    ]
    options = [opt.keyword(one.name, one.annotation(of_new_gates=only is None), None) for one in offered]
    everything = opt.keyword("help_all", HelpAllOption, False)
    first, rest = own[:1], [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own[1:]]
    parameters = [*first, *options, *rest, everything]
    del run.__wrapped__
    return opt.with_parameters(run, parameters)
