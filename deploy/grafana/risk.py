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
)

ALPHA = recorded("gate:streamer_policy_alpha_ratio:max")
BUDGET = recorded("gate:streamer_exposure_budget_ratio:leader")
USED_LOWER, USED, USED_UPPER = (
    recorded(f"gate:streamer_budget_used{part}_ratio:leader") for part in ("_lower", "", "_upper")
)
SERVED = recorded("gate:streamer_batches_shipped:ratio_rate1h")
ALARMS = recorded("gate_alarm:streamer_alarm_raised:leader")

CUT, OPEN = (shown("policy_state", where=f'{GATE}, state="{state}"') for state in ("cut", "open"))
STATE = f"{CUT} + 2 * {OPEN}"
STATES = {0.0: ("closed", DOUBTFUL), 1.0: ("cut", FINE), 2.0: ("open", DOUBTFUL), 3.0: ("changing", GREY)}

VERDICT = recorded("gate:streamer_budget_verdict:leader")
VERDICTS = {-1.0: ("BROKEN", BAD), 0.0: ("not known yet", DOUBTFUL), 1.0: ("kept", FINE)}
(
    OPEN_EXPOSURE_LOWER,
    OPEN_EXPOSURE,
    OPEN_EXPOSURE_UPPER,
    OPEN_SELECTIVE_LOWER,
    OPEN_SELECTIVE,
    OPEN_SELECTIVE_UPPER,
) = (
    f"gate_over:streamer_open_{kind}_risk{part}_ratio:leader"
    for kind in ("exposure", "selective")
    for part in ("_lower", "", "_upper")
)


def over(rule: str, stretch: str) -> str:
    """One stretch of open time: the policy in force, the period, or what was before."""
    return recorded(rule, f'{GATE}, over="{stretch}"')


def side_by_side(stretch: str, title: str) -> Panel:
    """The figures that a verdict rests on, over one stretch of open time."""
    return Panel(
        title=title,
        kind="stat",
        width=8,
        height=6,
        unit="percentunit",
        decimals=2,
        colour_background=False,
        description="Of decisions made while the gate was open: the share of prompts of which something shipped (counted, so "
        "exact), the error rate among shipped answers and the exposure risk, each with bounds that hold at all times at once, "
        "and how many labelled shipped answers they rest on. Closed phases count in none of them.",
        no_value="nothing decided",
        queries=(
            Query(
                expr=led("open_served_ratio", where=f'{GATE}, over="{stretch}"'), legend="served", colour=BLUE
            ),
            Query(expr=over(OPEN_SELECTIVE_LOWER, stretch), legend="errors, lower", colour=SKY),
            Query(expr=over(OPEN_SELECTIVE, stretch), legend="errors among shipped", colour=PURPLE),
            Query(expr=over(OPEN_SELECTIVE_UPPER, stretch), legend="errors, upper", colour=SKY),
            Query(expr=over(OPEN_EXPOSURE_LOWER, stretch), legend="exposure, lower", colour=SKY),
            Query(expr=over(OPEN_EXPOSURE, stretch), legend="exposure", colour=BLUE),
            Query(expr=over(OPEN_EXPOSURE_UPPER, stretch), legend="exposure, upper", colour=SKY),
            Query(
                expr=led("open_prompts", where=f'{GATE}, over="{stretch}"'),
                legend="prompts",
                colour=GREY,
                unit="none",
            ),
            Query(
                expr=led("open_labelled_answers", where=f'{GATE}, over="{stretch}"'),
                legend="labelled answers",
                colour=GREY,
                unit="none",
            ),
        ),
    )


AT_A_GLANCE = Row(
    title="At a glance",
    panels=(
        Panel(
            title="Verdict",
            kind="stat",
            width=4,
            height=5,
            unit="none",
            description="Over decisions made while the gate was open, under the policy in force and in the period. Kept: the upper "
            "bound of the promised risk is inside the budget in both, reading reaches to within the label lag of now, and no alarm puts "
            "that in doubt. BROKEN: the lower bound of one is above it. Not known yet: anything else; `streamer risk` says which. For each policy and each period wrong at any time with probability at most the gate's monitor delta.",
            names=VERDICTS,
            queries=(Query(expr=VERDICT, legend="{{gate}}"),),
        ),
        Panel(
            title="Exposure risk",
            kind="stat",
            width=6,
            height=5,
            unit="percentunit",
            decimals=2,
            colour_background=False,
            description="Average harm per prompt decided under the policy in force while the gate was open, held prompts "
            "counting 0: estimate, the bounds that hold at all times at once, and the budget, which is alpha over the "
            "attempts that a prompt may have.",
            queries=(
                Query(expr=over(OPEN_EXPOSURE_LOWER, "policy"), legend="lower", colour=SKY),
                Query(expr=over(OPEN_EXPOSURE, "policy"), legend="estimate", colour=BLUE),
                Query(expr=over(OPEN_EXPOSURE_UPPER, "policy"), legend="upper", colour=SKY),
                Query(expr=BUDGET, legend="budget", colour=BAD),
            ),
        ),
        Panel(
            title="Served, last hour",
            kind="stat",
            width=4,
            height=5,
            unit="percentunit",
            decimals=1,
            most=1.0,
            colour_background=False,
            description="Share of the batches of the last hour of which something shipped.",
            no_value="no traffic",
            queries=(Query(expr=SERVED, legend="{{gate}}", colour=BLUE),),
        ),
        Panel(
            title="Policy in force",
            kind="stat",
            width=3,
            height=5,
            unit="none",
            decimals=0,
            colour_background=False,
            description="Version of the newest policy that a worker decides with. Lower in the page: what it is.",
            queries=(Query(expr=shown("policy_version"), legend="{{gate}}", colour=BLUE),),
        ),
        Panel(
            title="Since",
            kind="stat",
            width=3,
            height=5,
            unit="dateTimeFromNow",
            colour_background=False,
            description="When the policy in force became valid.",
            queries=(
                Query(
                    expr=f"1000 * {shown('policy_activated_timestamp_seconds')}",
                    legend="{{gate}}",
                    colour=BLUE,
                ),
            ),
        ),
        Panel(
            title="State",
            kind="stat",
            width=2,
            height=5,
            unit="none",
            description="Closed: everything is held. Cut: what scores above lambda ships. Open: everything ships.",
            names=STATES,
            queries=(Query(expr=STATE, legend="{{gate}}"),),
        ),
        Panel(
            title="Alarms",
            kind="stat",
            width=2,
            height=5,
            unit="none",
            decimals=0,
            description="How many alarms of this gate are raised. A raised one stays raised until somebody opens the "
            "next.",
            steps=((None, FINE), (1, BAD)),
            queries=(Query(expr=f"sum by (gate) ({ALARMS})", legend="{{gate}}"),),
        ),
        side_by_side("policy", "While open: policy in force"),
        side_by_side("period", "While open: this period"),
        side_by_side("before", "While open: before this policy"),
    ),
)

INTERVALS = Row(
    title="How sure are we",
    panels=(
        Panel(
            title="Exposure risk and its budget",
            unit="percentunit",
            height=10,
            description="The band holds the mean severity that has reached people in this budget period while the gate was "
            "open, at all times at once. The dashed line is the budget. An estimate above it is no alarm: it happens by chance in most "
            "streams that keep the budget.",
            queries=(
                Query(
                    expr=over(OPEN_EXPOSURE_LOWER, "period"), legend="lower", colour=SKY, look="band-lower"
                ),
                Query(
                    expr=over(OPEN_EXPOSURE_UPPER, "period"), legend="upper", colour=SKY, look="band-upper"
                ),
                Query(expr=over(OPEN_EXPOSURE, "period"), legend="estimate", colour=BLUE),
                Query(expr=BUDGET, legend="budget", colour=BAD, look="limit"),
            ),
        ),
        Panel(
            title="Selective risk: among what shipped",
            unit="percentunit",
            height=10,
            description="What a person who got an answer met on average, with bounds. It is larger than the exposure "
            "risk, and only the method `selective` bounds it.",
            queries=(
                Query(
                    expr=over(OPEN_SELECTIVE_LOWER, "period"), legend="lower", colour=SKY, look="band-lower"
                ),
                Query(
                    expr=over(OPEN_SELECTIVE_UPPER, "period"), legend="upper", colour=SKY, look="band-upper"
                ),
                Query(expr=over(OPEN_SELECTIVE, "period"), legend="estimate", colour=PURPLE),
                Query(expr=ALPHA, legend="alpha, for comparison", colour=GREY, look="limit"),
            ),
        ),
        Panel(
            title="Budget of the period used",
            unit="percentunit",
            width=16,
            description="Share of what this period allows that has reached people, with bounds; 100 % is all of it.",
            queries=(
                Query(expr=USED_LOWER, legend="lower", colour=SKY, look="band-lower"),
                Query(expr=USED_UPPER, legend="upper", colour=SKY, look="band-upper"),
                Query(expr=USED, legend="used", colour=BLUE),
            ),
            steps=((None, FINE), (1, BAD)),
        ),
        Panel(
            title="Budget lasts",
            kind="stat",
            width=4,
            unit="dtdurations",
            colour_background=False,
            description="How long the rest of the budget lasts at the rate so far, and soonest at the upper bound. It "
            "extrapolates, and promises nothing.",
            queries=(
                Query(expr=led("budget_remaining_seconds"), legend="at this rate", colour=BLUE),
                Query(
                    expr=led("budget_remaining_soonest_seconds", how="min"), legend="soonest", colour=ORANGE
                ),
            ),
        ),
        Panel(
            title="Read through",
            kind="stat",
            width=4,
            unit="dateTimeFromNow",
            colour_background=False,
            description="The newest decision that the interval has read. A decision is read when it is older than the "
            "gate's monitor deadline, so that labels have had their time.",
            queries=(
                Query(
                    expr=f"1000 * {led('risk_read_through_timestamp_seconds')}",
                    legend="{{gate}}",
                    colour=BLUE,
                ),
            ),
        ),
        Panel(
            title="What the interval stands on",
            width=24,
            unit="short",
            description="Decisions that monitoring has read, those of them with a label, drawn ones whose label missed "
            "the deadline (each widens both bounds), and labels that came later than it (left out).",
            queries=(
                Query(expr=led("monitored_decisions"), legend="decisions read", colour=GREY, look="faint"),
                Query(expr=led("monitored_labels"), legend="with a label", colour=BLUE),
                Query(expr=led("overdue_labels"), legend="overdue", colour=BAD),
                Query(expr=led("late_labels"), legend="late", colour=ORANGE),
            ),
            logarithmic=True,
            least=None,
        ),
    ),
)

WARNINGS = Row(
    title="Alarms and early warnings",
    panels=(
        Panel(
            title="Evidence",
            unit="percentunit",
            description="How far each alarm is on its way: at 100 % it is raised. Evidence may fall again; without "
            "anything wrong it passes 100 % at any time with probability at most the alarm's delta.",
            logarithmic=True,
            least=None,
            steps=((None, FINE), (1, BAD)),
            queries=(Query(expr=led("alarm_evidence_ratio", "alarm"), legend="{{alarm}}"),),
        ),
        Panel(
            title="Raised",
            kind="state-timeline",
            unit="none",
            width=8,
            description="risk: expected severity passed budget and tolerance. selective: what ships is no better than if "
            "everything shipped. draws: the audit sample is not drawn as "
            "logged, so no figure holds. drift: scores or embeddings are not those of calibration.",
            names={0.0: ("quiet", FINE), 1.0: ("RAISED", BAD)},
            least=None,
            queries=(Query(expr=f"max by (alarm) ({ALARMS})", legend="{{alarm}}"),),
        ),
        Panel(
            title="Raised since",
            kind="stat",
            width=4,
            unit="dateTimeFromNow",
            description="When each alarm that stands was raised; `streamer alert list` has the words to it.",
            no_value="none stands",
            steps=((None, BAD),),
            queries=(
                Query(expr=f"1000 * {led('alarm_raised_timestamp_seconds', 'alarm')}", legend="{{alarm}}"),
            ),
        ),
        Panel(
            title="Decisions drawn for labelling",
            width=24,
            unit="percentunit",
            description="Probability with which a decision is drawn at present: raised while the risk alarm gathers evidence, "
            "until the day's extra labels (right axis) reach the gate's cap.",
            queries=(
                Query(expr=led("audit_probability_ratio"), legend="probability", colour=BLUE),
                Query(
                    expr=led("extra_labels_today"), legend="extra labels today", colour=ORANGE, unit="short"
                ),
            ),
        ),
    ),
)

SERVICE = Row(
    title="How much we serve, and how",
    panels=(
        Panel(
            title="Served share",
            unit="percentunit",
            most=1.0,
            description="Share of batches of which something shipped, over the last hour of each moment.",
            queries=(Query(expr=SERVED, legend="served", colour=BLUE),),
        ),
        Panel(
            title="Decisions by action",
            unit="reqps",
            stacked=True,
            description="Batches decided a second, by what was decided: ship, mixed (some responses), or the gate's "
            "way to hold.",
            queries=(Query(expr=per_second("batches_total", "action", where=GATE), legend="{{action}}"),),
        ),
        Panel(
            title="Scores",
            kind="heatmap",
            unit="short",
            description="Scores of responses over time; darker cells have fewer. A shift here is what the drift alarm "
            "watches.",
            queries=(
                Query(
                    expr=f"sum by (le) (increase(streamer_response_score_bucket{{{GATE}}}[$__rate_interval]))",
                    legend="{{le}}",
                ),
            ),
        ),
        Panel(
            title="Threshold in force",
            unit="percentunit",
            most=1.0,
            description="Lambda: what scores above it ships. No line while the gate is closed or open.",
            queries=(Query(expr=shown("policy_lambda_ratio"), legend="lambda", colour=BLUE),),
        ),
    ),
)

EVERY_GATE = Row(
    title="Every gate",
    panels=(
        Panel(
            title="Every gate",
            kind="table",
            width=24,
            unit="none",
            least=None,
            colour_background=False,
            description="The same figures of every gate, not only the chosen one.",
            queries=tuple(
                Query(expr=expr, legend=legend, unit=unit)
                for expr, legend, unit in (
                    (shown("policy_version", where=""), "policy", "none"),
                    ("gate:streamer_budget_verdict:leader", "verdict (1 kept, -1 broken)", "none"),
                    ("gate:streamer_exposure_budget_ratio:leader", "budget", "percentunit"),
                    (f'max by (gate) ({OPEN_EXPOSURE_LOWER}{{over="policy"}})', "risk, lower", "percentunit"),
                    (f'max by (gate) ({OPEN_EXPOSURE}{{over="policy"}})', "risk", "percentunit"),
                    (f'max by (gate) ({OPEN_EXPOSURE_UPPER}{{over="policy"}})', "risk, upper", "percentunit"),
                    (f'max by (gate) ({OPEN_SELECTIVE}{{over="policy"}})', "selective risk", "percentunit"),
                    ("gate:streamer_batches_shipped:ratio_rate1h", "served, 1 h", "percentunit"),
                    ("gate:streamer_budget_used_ratio:leader", "budget used", "percentunit"),
                    ("sum by (gate) (gate_alarm:streamer_alarm_raised:leader)", "alarms", "none"),
                )
            ),
        ),
    ),
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
