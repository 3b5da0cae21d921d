"""The dashboard `calibration`: what the thresholds stand on, what the next one waits for, who decides."""

from deploy.grafana.expressions import GATE, led, per_second, shown
from deploy.grafana.panels import BAD, BLUE, DOUBTFUL, FINE, GREY, ORANGE, SKY, Dashboard, Panel, Query, Row

LEADER = "max (streamer_recalibrator_leader)"
SINCE_ROUND = "time() - max (streamer_recalibrator_round_timestamp_seconds and on (job, instance) streamer_recalibrator_leader == 1)"
NEW, WANTED = led("calibration_new_groups"), led("calibration_wanted_groups")

NOW = Row(
    title="Now",
    panels=(
        Panel(
            title="Recalibrator",
            kind="stat",
            width=4,
            height=5,
            unit="none",
            description="Whether one recalibrator leads. Without one nobody watches the risk.",
            names={0.0: ("NONE LEADS", BAD), 1.0: ("leads", FINE)},
            no_value="NONE LEADS",
            queries=(Query(expr=LEADER, legend="leader"),),
        ),
        Panel(
            title="Last round",
            kind="stat",
            width=4,
            height=5,
            unit="s",
            description="Time since the leading recalibrator finished a round over all gates.",
            steps=((None, FINE), (300, DOUBTFUL), (900, BAD)),
            no_value="never",
            queries=(Query(expr=SINCE_ROUND, legend="ago"),),
        ),
        Panel(
            title="Proposals that wait",
            kind="stat",
            width=4,
            height=5,
            unit="none",
            description="Gates with a threshold that was found and not put in force: it waits for a person "
            "(`streamer threshold activate`), or for one label lag.",
            steps=((None, FINE), (1, DOUBTFUL)),
            queries=(
                Query(expr=f"sum ({led('proposal_pending')})", legend="for a person"),
                Query(
                    expr=f"count ({led('proposal_held_until_timestamp_seconds')}) or vector(0)",
                    legend="for their time",
                    colour=BLUE,
                ),
            ),
        ),
        Panel(
            title="Labels pending",
            kind="stat",
            width=4,
            height=5,
            unit="short",
            colour_background=False,
            description="Drawn responses that wait for a severity: `streamer review`, `streamer label queue`.",
            queries=(Query(expr=led("labels_pending"), legend="{{gate}}", colour=BLUE),),
        ),
        Panel(
            title="Last run",
            kind="stat",
            width=4,
            height=5,
            unit="dateTimeFromNow",
            colour_background=False,
            description="When the gate was last calibrated, whatever came of it.",
            no_value="never",
            queries=(
                Query(
                    expr=f"1000 * {led('calibration_last_run_timestamp_seconds')} > 0",
                    legend="{{gate}}",
                    colour=BLUE,
                ),
            ),
        ),
        Panel(
            title="On the way to the next run",
            kind="stat",
            width=4,
            height=5,
            unit="percentunit",
            decimals=0,
            colour_background=False,
            description="Newly labelled groups, as a share of those that bring a run about.",
            no_value="not by labels",
            queries=(Query(expr=f"{NEW} / ({WANTED} > 0)", legend="{{gate}}", colour=BLUE),),
        ),
    ),
)

THRESHOLDS = Row(
    title="Thresholds",
    panels=(
        Panel(
            title="Lambda by method, and the one in force",
            unit="percentunit",
            most=1.0,
            height=10,
            description="What each calibrator found at the last run. Only the gate's own method decides; choosing "
            "among the others after looking at labels would void the guarantee. A method that found no cut has no line.",
            queries=(
                Query(
                    expr=led("calibration_lambda_ratio", "gate", "method"),
                    legend="{{gate}} {{method}}",
                    look="faint",
                ),
                Query(
                    expr=shown("policy_lambda_ratio"),
                    legend="{{gate}} in force",
                    colour=BAD,
                    look="limit",
                ),
            ),
        ),
        Panel(
            title="Labelled groups",
            unit="short",
            height=10,
            description="Groups (prompts) that the last calibration stood on, those labelled since, and how many of "
            "those bring the next run about.",
            queries=(
                Query(expr=led("calibration_groups"), legend="{{gate}} calibrated on", colour=BLUE),
                Query(expr=NEW, legend="{{gate}} new", colour=SKY),
                Query(expr=WANTED, legend="{{gate}} wanted", colour=GREY, look="limit"),
            ),
        ),
        Panel(
            title="Policy versions",
            unit="none",
            decimals=0,
            description="Version of the policy in force; every step is a new policy.",
            queries=(Query(expr=shown("policy_version"), legend="{{gate}}"),),
        ),
        Panel(
            title="Refused policies",
            unit="short",
            description="Policies that workers refused in the ten minutes before each moment, by gate and reason. They "
            "go on with the last good one.",
            queries=(
                Query(
                    expr=f"sum by (gate, reason) (increase(streamer_policies_refused_total{{{GATE}}}[10m]))",
                    legend="{{gate}} {{reason}}",
                ),
            ),
        ),
    ),
)

RUNS = Row(
    title="Runs",
    panels=(
        Panel(
            title="Runs by outcome",
            unit="short",
            width=8,
            description="Calibration runs of the service in the hour before each moment, by what came of them.",
            queries=(
                Query(
                    expr=f"sum by (gate, outcome) (increase(streamer_calibration_runs_total{{{GATE}}}[1h]))",
                    legend="{{gate}} {{outcome}}",
                    look="bar",
                ),
            ),
        ),
        Panel(
            title="Duration of a run, 95 %",
            unit="s",
            width=8,
            description="From the reading of labels to the record of the run, over the last six hours of each moment.",
            queries=(
                Query(
                    expr="histogram_quantile(0.95, sum by (le) (increase(streamer_calibration_duration_seconds_bucket[6h])))",
                    legend="95 %",
                    colour=BLUE,
                ),
            ),
        ),
        Panel(
            title="Alerts in the record",
            unit="short",
            width=8,
            decimals=0,
            description="Alerts that the product raised, ever, by kind: each step is one. `streamer alert list` "
            "shows them.",
            queries=(Query(expr=led("alerts_total", "gate", "kind"), legend="{{gate}} {{kind}}"),),
        ),
    ),
)

LABELS = Row(
    title="Labels",
    panels=(
        Panel(
            title="Labels pending over time",
            unit="short",
            description="Drawn responses that wait for a severity. A line that only rises means that nobody labels.",
            queries=(Query(expr=led("labels_pending"), legend="{{gate}}", colour=None),),
        ),
        Panel(
            title="Labels that are not read",
            unit="short",
            description="Labels by labellers that the gate does not read, or without a valid signature. `streamer gate show` "
            "says how many of each.",
            queries=(Query(expr=led("labels_unread"), legend="{{gate}}", colour=None),),
        ),
        Panel(
            title="Drawn, and labelled by the topic",
            unit="cps",
            description="Batches drawn for labelling and severities that came by the labels topic, a second. Labels "
            "by file and by `streamer review` are not in it.",
            queries=(
                Query(
                    expr=per_second("audit_sampled_batches_total", "gate", where=GATE),
                    legend="{{gate}} drawn",
                ),
                Query(
                    expr=per_second("labels_total", "gate", "kind", where=GATE),
                    legend="{{gate}} {{kind}}",
                    colour=None,
                ),
            ),
        ),
        Panel(
            title="Overdue share",
            unit="percentunit",
            width=24,
            height=6,
            most=1.0,
            description="Of the drawn decisions that monitoring has read, the share whose label missed the deadline.",
            steps=((None, FINE), (0.2, DOUBTFUL)),
            queries=(
                Query(expr=f"gate:streamer_overdue_labels:ratio{{{GATE}}}", legend="{{gate}}", colour=ORANGE),
            ),
        ),
    ),
)

CALIBRATION = Dashboard(
    uid="streamer-calibration",
    title="streamer: calibration",
    description="What the thresholds stand on, what the next one waits for, and who decides.",
    several_gates=True,
    start="now-7d",
    links=(("streamer-risk", "Risk"), ("streamer-pipeline", "Pipeline")),
    rows=(NOW, THRESHOLDS, RUNS, LABELS),
)
