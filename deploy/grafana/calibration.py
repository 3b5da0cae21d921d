"""The dashboard `calibration`: what the thresholds stand on, what the next one waits for, who decides."""

from deploy.grafana.expressions import GATE, led, per_second, shown
from deploy.grafana.panels import (
    BAD,
    BLUE,
    DOUBTFUL,
    FINE,
    GREY,
    ORANGE,
    SKY,
    Dashboard,
    Panel,
    Query,
    Row,
    stat,
)

LEADER = "max (streamer_recalibrator_leader)"
SINCE_ROUND = "time() - max (streamer_recalibrator_round_timestamp_seconds and on (job, instance) streamer_recalibrator_leader == 1)"
NEW, WANTED = led("calibration_new_groups"), led("calibration_wanted_groups")

NOW = Row(
    "Now",
    (
        stat(
            "Recalibrator",
            "none",
            "Whether one recalibrator leads. Without one nobody watches the risk.",
            (Query(LEADER, "leader"),),
            names={0.0: ("NONE LEADS", BAD), 1.0: ("leads", FINE)},
            no_value="NONE LEADS",
        ),
        stat(
            "Last round",
            "s",
            "Time since the leading recalibrator finished a round over all gates.",
            (Query(SINCE_ROUND, "ago"),),
            steps=((None, FINE), (300, DOUBTFUL), (900, BAD)),
            no_value="never",
        ),
        stat(
            "Proposals that wait",
            "none",
            "Gates with a threshold that was found and not put in force: it waits for a person "
            "(`streamer threshold activate`), or for one label lag.",
            (
                Query(f"sum ({led('proposal_pending')})", "for a person"),
                Query(
                    f"count ({led('proposal_held_until_timestamp_seconds')}) or vector(0)",
                    "for their time",
                    BLUE,
                ),
            ),
            steps=((None, FINE), (1, DOUBTFUL)),
        ),
        stat(
            "Labels pending",
            "short",
            "Drawn responses that wait for a severity: `streamer review`, `streamer label queue`.",
            (Query(led("labels_pending"), colour=BLUE),),
        ),
        stat(
            "Last run",
            "dateTimeFromNow",
            "When the gate was last calibrated, whatever came of it.",
            (Query(f"1000 * {led('calibration_last_run_timestamp_seconds')} > 0", colour=BLUE),),
            no_value="never",
        ),
        stat(
            "On the way to the next run",
            "percentunit",
            "Newly labelled groups, as a share of those that bring a run about.",
            (Query(f"{NEW} / ({WANTED} > 0)", colour=BLUE),),
            decimals=0,
            no_value="not by labels",
        ),
    ),
    width=4,
    height=5,
)

THRESHOLDS = Row(
    "Thresholds",
    (
        Panel(
            "Lambda by method, and the one in force",
            "percentunit",
            "What each calibrator found at the last run. Only the gate's own method decides; choosing "
            "among the others after looking at labels would void the guarantee. A method that found no cut has no line.",
            (
                Query(led("calibration_lambda_ratio", "gate", "method"), "{{gate}} {{method}}", look="faint"),
                Query(shown("policy_lambda_ratio"), "{{gate}} in force", BAD, look="limit"),
            ),
            height=10,
            most=1.0,
        ),
        Panel(
            "Labelled groups",
            "short",
            "Groups (prompts) that the last calibration stood on, those labelled since, and how many of "
            "those bring the next run about.",
            (
                Query(led("calibration_groups"), "{{gate}} calibrated on", BLUE),
                Query(NEW, "{{gate}} new", SKY),
                Query(WANTED, "{{gate}} wanted", GREY, look="limit"),
            ),
            height=10,
        ),
        Panel(
            "Policy versions",
            "none",
            "Version of the policy in force; every step is a new policy.",
            (Query(shown("policy_version")),),
            decimals=0,
        ),
        Panel(
            "Refused policies",
            "short",
            "Policies that workers refused in the ten minutes before each moment, by gate and reason. They "
            "go on with the last good one.",
            (
                Query(
                    f"sum by (gate, reason) (increase(streamer_policies_refused_total{{{GATE}}}[10m]))",
                    "{{gate}} {{reason}}",
                ),
            ),
        ),
    ),
)

RUNS = Row(
    "Runs",
    (
        Panel(
            "Runs by outcome",
            "short",
            "Calibration runs of the service in the hour before each moment, by what came of them.",
            (
                Query(
                    f"sum by (gate, outcome) (increase(streamer_calibration_runs_total{{{GATE}}}[1h]))",
                    "{{gate}} {{outcome}}",
                    look="bar",
                ),
            ),
        ),
        Panel(
            "Duration of a run, 95 %",
            "s",
            "From the reading of labels to the record of the run, over the last six hours of each moment.",
            (
                Query(
                    "histogram_quantile(0.95, sum by (le) (increase(streamer_calibration_duration_seconds_bucket[6h])))",
                    "95 %",
                    BLUE,
                ),
            ),
        ),
        Panel(
            "Alerts in the record",
            "short",
            "Alerts that the product raised, ever, by kind: each step is one. `streamer alert list` "
            "shows them.",
            (Query(led("alerts_total", "gate", "kind"), "{{gate}} {{kind}}"),),
            decimals=0,
        ),
    ),
    width=8,
)

LABELS = Row(
    "Labels",
    (
        Panel(
            "Labels pending over time",
            "short",
            "Drawn responses that wait for a severity. A line that only rises means that nobody labels.",
            (Query(led("labels_pending")),),
        ),
        Panel(
            "Labels that are not read",
            "short",
            "Labels by labellers that the gate does not read, or without a valid signature. `streamer gate show` "
            "says how many of each.",
            (Query(led("labels_unread")),),
        ),
        Panel(
            "Drawn, and labelled by the topic",
            "cps",
            "Batches drawn for labelling and severities that came by the labels topic, a second. Labels "
            "by file and by `streamer review` are not in it.",
            (
                Query(per_second("audit_sampled_batches_total", "gate", where=GATE), "{{gate}} drawn"),
                Query(per_second("labels_total", "gate", "kind", where=GATE), "{{gate}} {{kind}}"),
            ),
        ),
        Panel(
            "Overdue share",
            "percentunit",
            "Of the drawn decisions that monitoring has read, the share whose label missed the deadline.",
            (Query(f"gate:streamer_overdue_labels:ratio{{{GATE}}}", colour=ORANGE),),
            width=24,
            height=6,
            most=1.0,
            steps=((None, FINE), (0.2, DOUBTFUL)),
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
