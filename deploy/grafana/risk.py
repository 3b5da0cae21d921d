"""The dashboard `risk`: are we inside the budget, how sure are we, how much do we serve, since when this policy."""

from deploy.grafana.expressions import GATE, led, per_second, recorded, shown
from deploy.grafana.panels import (
    BAD,
    BLUE,
    DOUBTFUL,
    FINE,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    Dashboard,
    Panel,
    Query,
    Row,
    banded,
    stat,
)

ALPHA = recorded("gate:streamer_policy_alpha_ratio:max")
BUDGET = recorded("gate:streamer_exposure_budget_ratio:leader")
SERVED = recorded("gate:streamer_batches_shipped:ratio_rate1h")
ALARMS = recorded("gate_alarm:streamer_alarm_raised:leader")

CUT, OPEN = (shown("policy_state", where=f'{GATE}, state="{state}"') for state in ("cut", "open"))
STATE = f"{CUT} + 2 * {OPEN}"
STATES = {0.0: ("closed", DOUBTFUL), 1.0: ("cut", FINE), 2.0: ("open", DOUBTFUL), 3.0: ("changing", GREY)}

VERDICT = recorded("gate:streamer_budget_verdict:leader")
VERDICTS = {-1.0: ("BROKEN", BAD), 0.0: ("not known yet", DOUBTFUL), 1.0: ("kept", FINE)}
PARTS = ("_lower", "", "_upper")
USED = [recorded(f"gate:streamer_budget_used{part}_ratio:leader") for part in PARTS]


def risk(kind: str, part: str = "") -> str:
    """The rule of a risk over open time, or of a bound of it."""
    return f"gate_over:streamer_open_{kind}_risk{part}_ratio:leader"


def over(kind: str, stretch: str) -> list[str]:
    """Lower bound, estimate and upper bound over the policy in force, the period, or what was before."""
    return [recorded(risk(kind, part), f'{GATE}, over="{stretch}"') for part in PARTS]


def side_by_side(stretch: str, title: str) -> Panel:
    """The figures that a verdict rests on, over one stretch of open time."""
    where = f'{GATE}, over="{stretch}"'
    lower, estimate, upper = over("exposure", stretch)
    errors_lower, errors, errors_upper = over("selective", stretch)
    return stat(
        title,
        "percentunit",
        "Of decisions made while the gate was open: the share of prompts of which something shipped (counted, so "
        "exact), the error rate among shipped answers and the exposure risk, each with bounds that hold at all times at once, "
        "and how many labelled shipped answers they rest on. Closed phases count in none of them.",
        (
            Query(led("open_served_ratio", where=where), "served", BLUE),
            Query(errors_lower, "errors, lower", SKY),
            Query(errors, "errors among shipped", PURPLE),
            Query(errors_upper, "errors, upper", SKY),
            Query(lower, "exposure, lower", SKY),
            Query(estimate, "exposure", BLUE),
            Query(upper, "exposure, upper", SKY),
            Query(led("open_prompts", where=where), "prompts", GREY, unit="none"),
            Query(led("open_labelled_answers", where=where), "labelled answers", GREY, unit="none"),
        ),
        width=8,
        height=6,
        decimals=2,
        no_value="nothing decided",
    )


AT_A_GLANCE = Row(
    "At a glance",
    (
        stat(
            "Verdict",
            "none",
            "Over decisions made while the gate was open, under the policy in force and in the period. Kept: the upper "
            "bound of the promised risk is inside the budget in both, reading reaches to within the label lag of now, and no alarm puts "
            "that in doubt. BROKEN: the lower bound of one is above it. Not known yet: anything else; `streamer risk` says which. For each policy and each period wrong at any time with probability at most the gate's monitor delta.",
            (Query(VERDICT),),
            names=VERDICTS,
        ),
        stat(
            "Exposure risk",
            "percentunit",
            "Average harm per prompt decided under the policy in force while the gate was open, held prompts "
            "counting 0: estimate, the bounds that hold at all times at once, and the budget, which is alpha over the "
            "attempts that a prompt may have.",
            (
                *map(Query, over("exposure", "policy"), ("lower", "estimate", "upper"), (SKY, BLUE, SKY)),
                Query(BUDGET, "budget", BAD),
            ),
            width=6,
            decimals=2,
        ),
        stat(
            "Served, last hour",
            "percentunit",
            "Share of the batches of the last hour of which something shipped.",
            (Query(SERVED, colour=BLUE),),
            decimals=1,
            most=1.0,
            no_value="no traffic",
        ),
        stat(
            "Policy in force",
            "none",
            "Version of the newest policy that a worker decides with. Lower in the page: what it is.",
            (Query(shown("policy_version"), colour=BLUE),),
            width=3,
            decimals=0,
        ),
        stat(
            "Since",
            "dateTimeFromNow",
            "When the policy in force became valid.",
            (Query(f"1000 * {shown('policy_activated_timestamp_seconds')}", colour=BLUE),),
            width=3,
        ),
        stat(
            "State",
            "none",
            "Closed: everything is held. Cut: what scores above lambda ships. Open: everything ships.",
            (Query(STATE),),
            width=2,
            names=STATES,
        ),
        stat(
            "Alarms",
            "none",
            "How many alarms of this gate are raised. A raised one stays raised until somebody opens the "
            "next.",
            (Query(f"sum by (gate) ({ALARMS})"),),
            width=2,
            decimals=0,
            steps=((None, FINE), (1, BAD)),
        ),
        side_by_side("policy", "While open: policy in force"),
        side_by_side("period", "While open: this period"),
        side_by_side("before", "While open: before this policy"),
    ),
    width=4,
    height=5,
)

INTERVALS = Row(
    "How sure are we",
    (
        Panel(
            "Exposure risk and its budget",
            "percentunit",
            "The band holds the mean severity that has reached people in this budget period while the gate was "
            "open, at all times at once. The dashed line is the budget. An estimate above it is no alarm: it happens by chance in most "
            "streams that keep the budget.",
            (
                *banded(over("exposure", "period"), "estimate", BLUE),
                Query(BUDGET, "budget", BAD, look="limit"),
            ),
            height=10,
        ),
        Panel(
            "Selective risk: among what shipped",
            "percentunit",
            "What a person who got an answer met on average, with bounds. It is larger than the exposure "
            "risk, and only the method `selective` bounds it.",
            (
                *banded(over("selective", "period"), "estimate", PURPLE),
                Query(ALPHA, "alpha, for comparison", GREY, look="limit"),
            ),
            height=10,
        ),
        Panel(
            "Budget of the period used",
            "percentunit",
            "Share of what this period allows that has reached people, with bounds; 100 % is all of it.",
            banded(USED, "used", BLUE),
            width=16,
            steps=((None, FINE), (1, BAD)),
        ),
        stat(
            "Budget lasts",
            "dtdurations",
            "How long the rest of the budget lasts at the rate so far, and soonest at the upper bound. It "
            "extrapolates, and promises nothing.",
            (
                Query(led("budget_remaining_seconds"), "at this rate", BLUE),
                Query(led("budget_remaining_soonest_seconds", how="min"), "soonest", ORANGE),
            ),
            width=4,
        ),
        stat(
            "Read through",
            "dateTimeFromNow",
            "The newest decision that the interval has read. A decision is read when it is older than the "
            "gate's monitor deadline, so that labels have had their time.",
            (Query(f"1000 * {led('risk_read_through_timestamp_seconds')}", colour=BLUE),),
            width=4,
        ),
        Panel(
            "What the interval stands on",
            "short",
            "Decisions that monitoring has read, those of them with a label, drawn ones whose label missed "
            "the deadline (each widens both bounds), and labels that came later than it (left out).",
            (
                Query(led("monitored_decisions"), "decisions read", GREY, look="faint"),
                Query(led("monitored_labels"), "with a label", BLUE),
                Query(led("overdue_labels"), "overdue", BAD),
                Query(led("late_labels"), "late", ORANGE),
            ),
            width=24,
            logarithmic=True,
        ),
    ),
)

WARNINGS = Row(
    "Alarms and early warnings",
    (
        Panel(
            "Evidence",
            "percentunit",
            "How far each alarm is on its way: at 100 % it is raised. Evidence may fall again; without "
            "anything wrong it passes 100 % at any time with probability at most the alarm's delta.",
            (Query(led("alarm_evidence_ratio", "alarm"), "{{alarm}}"),),
            logarithmic=True,
            steps=((None, FINE), (1, BAD)),
        ),
        Panel(
            "Raised",
            "none",
            "risk: expected severity passed budget and tolerance. selective: what ships is no better than if "
            "everything shipped. draws: the audit sample is not drawn as "
            "logged, so no figure holds. drift: scores or embeddings are not those of calibration.",
            (Query(f"max by (alarm) ({ALARMS})", "{{alarm}}"),),
            kind="state-timeline",
            width=8,
            names={0.0: ("quiet", FINE), 1.0: ("RAISED", BAD)},
        ),
        stat(
            "Raised since",
            "dateTimeFromNow",
            "When each alarm that stands was raised; `streamer alert list` has the words to it.",
            (Query(f"1000 * {led('alarm_raised_timestamp_seconds', 'alarm')}", "{{alarm}}"),),
            width=4,
            no_value="none stands",
            steps=((None, BAD),),
        ),
        Panel(
            "Decisions drawn for labelling",
            "percentunit",
            "Probability with which a decision is drawn at present: raised while the risk alarm gathers evidence, "
            "until the day's extra labels (right axis) reach the gate's cap.",
            (
                Query(led("audit_probability_ratio"), "probability", BLUE),
                Query(led("extra_labels_today"), "extra labels today", ORANGE, unit="short"),
            ),
            width=24,
        ),
    ),
)

SERVICE = Row(
    "How much we serve, and how",
    (
        Panel(
            "Served share",
            "percentunit",
            "Share of batches of which something shipped, over the last hour of each moment.",
            (Query(SERVED, "served", BLUE),),
            most=1.0,
        ),
        Panel(
            "Decisions by action",
            "reqps",
            "Batches decided a second, by what was decided: ship, mixed (some responses), or the gate's "
            "way to hold.",
            (Query(per_second("batches_total", "action", where=GATE), "{{action}}"),),
            stacked=True,
        ),
        Panel(
            "Scores",
            "short",
            "Scores of responses over time; darker cells have fewer. A shift here is what the drift alarm "
            "watches.",
            (
                Query(
                    f"sum by (le) (increase(streamer_response_score_bucket{{{GATE}}}[$__rate_interval]))",
                    "{{le}}",
                ),
            ),
            kind="heatmap",
        ),
        Panel(
            "Threshold in force",
            "percentunit",
            "Lambda: what scores above it ships. No line while the gate is closed or open.",
            (Query(shown("policy_lambda_ratio"), "lambda", BLUE),),
            most=1.0,
        ),
    ),
)

EVERY_GATE = Row(
    "Every gate",
    (
        Panel(
            "Every gate",
            "none",
            "The same figures of every gate, not only the chosen one.",
            tuple(
                Query(expr, legend, unit=unit)
                for expr, legend, unit in (
                    (shown("policy_version", where=""), "policy", "none"),
                    ("gate:streamer_budget_verdict:leader", "verdict (1 kept, -1 broken)", "none"),
                    ("gate:streamer_exposure_budget_ratio:leader", "budget", "percentunit"),
                    (
                        f'max by (gate) ({risk("exposure", "_lower")}{{over="policy"}})',
                        "risk, lower",
                        "percentunit",
                    ),
                    (f'max by (gate) ({risk("exposure")}{{over="policy"}})', "risk", "percentunit"),
                    (
                        f'max by (gate) ({risk("exposure", "_upper")}{{over="policy"}})',
                        "risk, upper",
                        "percentunit",
                    ),
                    (
                        f'max by (gate) ({risk("selective")}{{over="policy"}})',
                        "selective risk",
                        "percentunit",
                    ),
                    ("gate:streamer_batches_shipped:ratio_rate1h", "served, 1 h", "percentunit"),
                    ("gate:streamer_budget_used_ratio:leader", "budget used", "percentunit"),
                    ("sum by (gate) (gate_alarm:streamer_alarm_raised:leader)", "alarms", "none"),
                )
            ),
            kind="table",
        ),
    ),
    width=24,
)

RISK = Dashboard(
    uid="streamer-risk",
    title="streamer: risk",
    description="Are we inside the budget, how sure are we, how much do we serve, and since when this policy.",
    several_gates=False,
    start="now-7d",
    links=(("streamer-calibration", "Calibration"), ("streamer-pipeline", "Pipeline")),
    rows=(AT_A_GLANCE, INTERVALS, WARNINGS, SERVICE, EVERY_GATE),
)
