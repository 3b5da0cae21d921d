"""Every setting of a gate, declared once. Pure: plain values.

From a declaration follow the option, the field of the event `thresholds` with its check, the column with its constraint, what
signatures cover, the verifiers' tables, and the pages: docs/contributing/setting.md.
"""

from dataclasses import dataclass
from typing import Any, Literal

from streamer.calibration import registry
from streamer.calibration.calibrators.mean import Mean
from streamer.calibration.claims import LOSSES
from streamer.calibration.signal_order import OF_TEXTS
from streamer.calibration.specification import (  # hints are read
    Calibrator,
    Number,
)
from streamer.gates import shapes
from streamer.gates.setting import (
    AUDIT,
    BY_ITSELF,
    GATE_NAME,
    NO_VALUE,
    POLICY,
    SHAPING,
    UPSTREAM_ID,
    WATCH,
    setting,
)
from streamer.gates.shapes import INDICATOR_SHAPE, GateShape
from streamer.scoring.claims.answer import LeftOut
from streamer.scoring.judged import FORMS, WHOLE
from streamer.scoring.plugins import LONGEST as LONGEST_MODEL
from streamer.scoring.registry import EVERY as EVERY_SCORER
from streamer.scoring.registry import GRAM

Unit = Literal["best", "response", "batch", "claim"]
Mode = Literal["shadow", "enforce"]
HoldAction = Literal["abstain", "regenerate", "escalate"]
SegmentFallback = Literal["closed", "pooled"]
Embeddings = Literal["refuse", "accept"]
Recalibrate = Literal["manual", "propose", "auto"]
OnAlarm = Literal["report", "close"]
Early = Literal["none", "judge", "drift", "signals"]
Pending = Literal["age", "worst", "labelled-only"]

LEAST_ALPHA = 1e-9
"""The smallest budget that a gate may have; a billion labelled prompts are needed for it."""

DIMENSIONS = (2, 4096)
"""The least and the largest dimension of embeddings that a gate may accept: the default limits of an event."""


FIRST_PARAMETERS = ("eta", "draws", "delta", "rho", "width")
"""The parameters of methods and shapes that have a column and a field of their own."""

_GROUPS: Any = {"least": 1, "most": 1_000_000_000}
_STEP: Any = {"most": 1.0, "open_least": True}
_CHANCE: Any = {"most": 1.0, "open": True}
_KIND_NAME: Any = {"most": 64, "matching": GATE_NAME}


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The fields of `streamer.gates.settings.GateSettings`, which holds and checks them.

    `calibrator` and `shape` hold the parameters of the method and the shape; `unread` those of others, where they are not the
    default: they have no effect until method or shape changes, and signatures cover them.
    """

    unit: Unit = setting(
        "best",
        "What ships: the best response of a batch, each response separately, the whole batch, or "
        "of the first response the claims that the others support.",
        POLICY,
        before=NO_VALUE,
        calibrated=True,
    )
    loss: str = setting(
        "any",
        "Of claims: what a prompt loses by those that ship.",
        POLICY,
        "LOSS",
        typed=f"{', '.join(LOSSES)}: docs/claims.md says what each promises.",
        most=64,
        calibrated=True,
        asked=True,
    )
    least_kept: float = setting(
        0.0,
        "Of claims: the share that must be left of a response, or nothing of it ships.",
        POLICY,
        "SHARE",
        most=1.0,
        calibrated=True,
        asked=True,
    )
    left_out: LeftOut = setting(
        "drop",
        "Claims that do not ship are left out of the text, or stay in it between marks.",
        POLICY,
    )
    scorer: str = setting(
        GRAM,
        f"Where scores come from: {', '.join(EVERY_SCORER)}.",
        POLICY,
        "SCORER",
        typed="gram is the agreement of the responses' embeddings, likelihood their log-probability (one response is enough), external "
        "a score in the event, judge the mark of the configured language model; "
        "of claims support, the default, and support-learned; the others are what `streamer evaluate` compares.",
        most=64,
        before=NO_VALUE,
        calibrated=True,
        asked=True,
    )
    model: str | None = setting(
        None,
        "What is frozen of another package's scorer (NAME@HASH), as JSON.",
        "",
        least=2,
        most=LONGEST_MODEL,
    )
    signals: str | None = setting(
        None,
        "The signals that a gate of method full reads of each answer.",
        POLICY,
        "NAME=LOW..HIGH",
        typed=f"{len(OF_TEXTS)} of the texts always, and these besides; give it once for each. score, logprob, token_entropy, "
        "most_token_entropy, low_logprob, least_logprob, judge (0 to 100): as they come with an event. "
        "final, number, json, call: how far answers agree in that part (see --judged). NAME=LOW..HIGH: a number of your own in the event's "
        "signals, with its range. model=NAME: whether this model gave the answer. none: nothing besides. The whole list is set "
        "anew, and its labels count from then on.",
        flag="--signal",
        least=2,
        most=20_000,
        calibrated=True,
    )
    judged: str = setting(
        WHOLE.text,
        "What of an answer is scored and labelled, with its version.",
        POLICY,
        "FORM",
        typed=f"{', '.join(f'{name}: {one.says}' for name, one in FORMS.items())}. Reasoning never goes out, but with raw. After json or "
        "call fields that are compared as free text: 'json /notes'.",
        most=2_000,
        calibrated=True,
    )
    encoder: str = setting(
        NO_VALUE,
        "Encoder of the scorer gram, or what the scorer has in its place.",
        POLICY,
        "NAME",
        typed="openai:MODEL: one at an endpoint; external:NAME: events bring the embeddings. New gates: the configured one.",
        most=200,
        before=NO_VALUE,
        calibrated=True,
        asked=True,
    )
    embeddings: Embeddings = setting(
        "refuse",
        "Batches that bring their own embeddings: hold them, or decide by them if their embedding_encoder is the gate's.",
        POLICY,
        typed="New gates: refuse; accept with an external encoder, or where encoder.name is none.",
    )
    dimension: int | None = setting(
        None,
        "Dimension of accepted embeddings.",
        POLICY,
        "D",
        typed="Needed if the encoder is unknown here. New gates: the encoder's.",
        least=DIMENSIONS[0],
        most=DIMENSIONS[1],
    )
    upstream: str | None = setting(
        None,
        "The upstream whose answers the gate decides about: model, parameters, and the rule that says when sampling stops. Batches "
        "of any other are held.",
        POLICY,
        "NAME|MODEL@HASH",
        typed="By its table [upstreams.NAME] or as batches name it. none: answers of any origin.",
        least=10,
        most=200,
        matching=UPSTREAM_ID,
        in_words="MODEL@ and the 8 hexadecimal digits of an upstream's settings",
        calibrated=True,
    )
    severity_kind: str = setting(
        "human",
        "Kind of label that the gate is calibrated on.",
        POLICY,
        "KIND",
        **_KIND_NAME,
        in_words="like 'human'",
        before=NO_VALUE,
        calibrated=True,
    )
    labellers: tuple[str, ...] | None = setting(
        None,
        "Whose labels are read.",
        POLICY,
        "WHO,...",
        typed="Names, separated by commas; `none`: everybody's.",
        least=5,
        most=1_000_000,
    )
    signed_labels: bool = setting(
        False,
        "Read only labels that their labeller has signed (`streamer label keygen`), or all.",
        POLICY,
        flag="--signed-labels/--no-signed-labels",
    )
    alpha: float = setting(
        0.05,
        "Risk budget, between 0 and 1 (0.05 or 5%).",
        POLICY,
        "A",
        least=LEAST_ALPHA,
        most=1.0,
        open_most=True,
        before=NO_VALUE,
        calibrated=True,
        asked=True,
    )
    calibrator: Calibrator = setting(
        Mean(),
        f"Calibrator: {', '.join(registry.offered())}.",
        POLICY,
        "METHOD",
        typed="Choose it before anyone sees labels (docs/guarantees.md says what each promises). New gates: full for the units best "
        "and batch; mean for response, and where another --scorer than likelihood is named.",
        most=64,
        before=NO_VALUE,
        calibrated=True,
        asked=True,
    )
    shape: GateShape = setting(
        INDICATOR_SHAPE,
        f"How score and threshold become a decision. {'; '.join(f'{name}: {kind.summary}' for name, kind in shapes.EVERY.items())}.",
        SHAPING,
        "|".join(shapes.EVERY),
        most=64,
        calibrated=True,
        asked=True,
    )
    unread: tuple[tuple[str, Number], ...] = setting(
        (), "Parameters of methods and shapes that have no field of their own.", "", least=2, most=10_000
    )
    segment_by: str | None = setting(
        None,
        "Metadata key that divides prompts into segments, each with a threshold of its own.",
        SHAPING,
        "KEY",
        typed="none removes it.",
        most=200,
        in_words="a metadata key of 1 to 200 characters",
        calibrated=True,
        asked=True,
    )
    group_by: str | None = setting(
        None,
        "Metadata key that names bursts of batches, or prompt: batches with the same question. Calibration counts a burst once, and "
        "method full holds one with a bad label.",
        SHAPING,
        "KEY|prompt",
        typed="none: each batch.",
        most=200,
        in_words="a metadata key of 1 to 200 characters, or prompt",
        calibrated=True,
    )
    segment_fallback: SegmentFallback = setting(
        "closed",
        "A segment with too few prompts: ship nothing, or use the threshold of all prompts (without a promise).",
        SHAPING,
        calibrated=True,
        asked=True,
    )
    label_floor: float | None = setting(
        None,
        "Label only what scores above this; nothing below it ever ships.",
        AUDIT,
        "Q",
        typed="none removes it.",
        most=1.0,
        calibrated=True,
        asked=True,
    )
    hold_action: HoldAction = setting(
        "abstain", "What happens to a batch that does not ship.", POLICY, before=NO_VALUE
    )
    desk_deadline_seconds: float | None = setting(
        None,
        "With the hold action escalate: how long a held batch waits for a person at the console's desk before it is rejected.",
        POLICY,
        "TIME",
        typed="Like 15m; none: there is no desk.",
        least=1,
        most=30 * 86_400,
        in_words="from 1 second to 30 days",
    )
    max_attempts: int = setting(
        1,
        "Attempts per prompt when held batches are regenerated; calibration then uses alpha / R.",
        POLICY,
        "R",
        least=1,
        most=1000,
        before=NO_VALUE,
        calibrated=True,
        asked=True,
    )
    mode: Mode = setting(
        "shadow", "shadow: decide and record, but mark actions as not enforced.", POLICY, before=NO_VALUE
    )
    audit_probability: float = setting(
        0.05, "Chance in [0, 1] that a batch is drawn for labelling.", AUDIT, "P", most=1.0, before=NO_VALUE
    )
    audit_draws: int = setting(
        1,
        "Responses to label in a drawn batch; the unit best always draws its best one, the unit claim all.",
        AUDIT,
        "K",
        least=1,
        most=256,
        before=NO_VALUE,
    )
    audit_boost: float | None = setting(
        4.0,
        "Factor on the audit probability while the risk alarm gathers evidence.",
        AUDIT,
        "FACTOR",
        typed="none: never raise it.",
        least=1,
        most=1000,
        open_least=True,
        before=None,
    )
    audit_boost_most: int = setting(
        400, "Labels a day (UTC) that audit_boost may add.", AUDIT, "N", **_GROUPS
    )
    label_deadline_seconds: float = setting(
        0.0,
        "Age at which a drawn batch enters calibration, labelled or not.",
        AUDIT,
        "TIME",
        typed="Like 90s, 30m, 12h, 7d.",
        before=NO_VALUE,
    )
    pending: Pending = setting(
        "age",
        "Draws without a label in calibration: younger draws wait and older ones count as wrong (age), all count as wrong (worst), "
        "or none is read (labelled-only: exact only if bad answers are labelled as soon as good ones).",
        AUDIT,
        asked=True,
    )
    window: int | None = setting(
        None,
        "Calibrate on the newest N groups alone, which follows changes faster and is noisier.",
        AUDIT,
        "N",
        typed="none: on all.",
        **_GROUPS,
        asked=True,
    )
    decision_deadline_seconds: float | None = setting(
        None,
        "Hold batches older than this, by created_at or else the timestamp of their record.",
        AUDIT,
        "TIME",
        typed="Like 90s, 30m, 12h; or none.",
        open_least=True,
        before=NO_VALUE,
    )
    keep_texts: bool = setting(
        True,
        "Keep prompts, responses, references and metadata in the database, or their hash only: labels must then come by the labels "
        "topic or by file.",
        AUDIT,
        flag="--keep-texts/--hashes-only",
    )
    two_people: bool = setting(
        False,
        "A threshold that a person's run proposes needs the approval of another person, signed in at `streamer console`.",
        BY_ITSELF,
        flag="--two-people/--one-person",
    )
    recalibrate: Recalibrate = setting(
        "propose",
        "What `streamer recalibrator` does: nothing, runs that wait for `threshold activate`, or new thresholds within the limits "
        "below.",
        BY_ITSELF,
    )
    recalibrate_every_seconds: float | None = setting(
        86_400.0,
        "Time between two runs.",
        BY_ITSELF,
        "TIME",
        typed="Like 90s, 30m, 12h, 7d; none: no schedule.",
        open_least=True,
    )
    recalibrate_after_groups: int | None = setting(
        100,
        "Newly labelled prompts that trigger a run.",
        BY_ITSELF,
        "K",
        typed="none: labels trigger none.",
        **_GROUPS,
    )
    max_lambda_step: float = setting(
        0.1,
        "Rule auto: the most by which one run may lower the threshold. A rise acts at once; a larger one is also reported.",
        BY_ITSELF,
        "D",
        **_STEP,
    )
    max_ship_rate_step: float = setting(
        0.1, "Rule auto: the same for the predicted ship rate.", BY_ITSELF, "D", **_STEP
    )
    least_groups: int = setting(
        100,
        "Rule auto: fewest prompts for a lower threshold, half as many of them new.",
        BY_ITSELF,
        "N",
        **_GROUPS,
    )
    on_alarm: OnAlarm = setting(
        "close", "When the risk alarm is raised: close the gate, or only report it.", WATCH
    )
    on_selective_alarm: OnAlarm = setting(
        "report",
        "When what ships is no better than if everything shipped: close the gate, or only report it.",
        WATCH,
    )
    on_missing: OnAlarm = setting(
        "report",
        "When so many labels stay missing that the budget may be broken by them: close the gate, or only report it.",
        WATCH,
    )
    early: Early = setting(
        "none",
        "What holds the gate early, until people's labels of the newest answers clear it: more marks of wrong by the judge_kind, a "
        "drift alarm, or with the method full more answers that use over half of the budget (signals).",
        WATCH,
    )
    monitor_delta: float = setting(0.1, "Chance that the risk interval is ever wrong.", WATCH, "D", **_CHANCE)
    alarm_delta: float = setting(
        0.05,
        "Chance that the risk alarm is ever false, plus what alarm_false_every adds; likewise for the selective-risk alarm and the "
        "draw alarm.",
        WATCH,
        "D",
        **_CHANCE,
    )
    alarm_false_every: int | None = setting(
        100_000,
        "Accept one more false alarm per this many draws, so that a late change is seen as soon as an early one.",
        WATCH,
        "N",
        typed="never: accept none.",
        nothing="never",
        **_GROUPS,
        before=None,
    )
    alarm_tolerance: float = setting(
        0.2,
        "Share of alpha by which the expected loss must exceed alpha for the alarm to be true.",
        WATCH,
        "SHARE",
        most=10,
    )
    monitor_deadline_seconds: float = setting(
        86_400.0,
        "Age at which a drawn decision without a label counts as overdue for monitoring.",
        WATCH,
        "TIME",
        typed="Like 12h, 7d.",
    )
    budget_period_days: float = setting(
        30.0, "Period over which use of the budget is counted.", WATCH, "DAYS", most=3660, open_least=True
    )
    drift_delta: float = setting(0.05, "Chance that the drift alarm is ever false.", WATCH, "D", **_CHANCE)
    judge_kind: str | None = setting(
        None,
        "Kind of label that predicts the loss of every decision, for narrower intervals.",
        WATCH,
        "KIND",
        typed="none removes it.",
        **_KIND_NAME,
        in_words="like 'judge'",
    )
