"""The dashboard `pipeline`: does every event become an action, how fast, and what is in the way."""

from deploy.grafana.expressions import GATE, per_second, quantile, recorded, shown
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

WORKERS, DECIDING = 'job="streamer-worker"', 'job=~"streamer-(worker|serve)"'
LAG = "topic_partition:streamer_consumer_lag_records:max"
OUTBOX = recorded("job:streamer_outbox_pending:max", WORKERS)
DESK_OLDEST = f"streamer_desk_oldest_seconds{{{WORKERS}, {GATE}}}"
REACHABLE = f"min by (instance, part) (streamer_part_reachable{{{DECIDING}}})"

NOW = Row(
    "Now",
    (
        stat(
            "Decisions a second",
            "reqps",
            "Batches decided a second over the last five minutes, by all workers.",
            (Query(f"sum ({recorded('gate:streamer_batches:rate5m')})", "decisions", BLUE),),
            width=4,
        ),
        stat(
            "Waiting",
            "short",
            "Records on the topics after the last one with an outcome.",
            (Query(f"sum ({LAG})", "records", BLUE),),
            width=4,
        ),
        stat(
            "Latency, 99 %",
            "s",
            "99 in 100 actions were published within this time after their event's timestamp, over the last "
            "five minutes.",
            (Query('job:streamer_end_to_end_latency_seconds:p99_rate5m{job="streamer-worker"}', "99 %"),),
            width=4,
            steps=((None, FINE), (10, DOUBTFUL), (30, BAD)),
            no_value="no traffic",
        ),
        stat(
            "Workers",
            "none",
            "Workers that answer Prometheus.",
            (Query(f"sum (up{{{WORKERS}}})", "workers"),),
            steps=((None, BAD), (1, FINE)),
            no_value="none",
        ),
        stat(
            "Parts out of reach",
            "none",
            "Brokers and databases that a worker waits for, counted once for each worker.",
            (Query(f"count ({REACHABLE} == 0) or vector(0)", "parts"),),
            steps=((None, FINE), (1, BAD)),
        ),
        stat(
            "Refused, 24 h",
            "short",
            "Messages that became dead letters in the last 24 hours.",
            (Query("sum (increase(streamer_dead_letters_total[24h]))", "refused"),),
            decimals=0,
            steps=((None, FINE), (1, DOUBTFUL)),
        ),
        stat(
            "Gaps, 24 h",
            "short",
            "Times in the last 24 hours that Kafka had deleted events before they were read.",
            (Query("sum (increase(streamer_data_gaps_total[24h]))", "gaps"),),
            decimals=0,
            steps=((None, FINE), (1, BAD)),
        ),
    ),
    width=3,
    height=4,
)

FLOW = Row(
    "Flow",
    (
        Panel(
            "Decisions by gate and action",
            "reqps",
            "Batches decided a second, over all workers.",
            (Query(per_second("batches_total", "gate", "action", where=GATE), "{{gate}} {{action}}"),),
            stacked=True,
        ),
        Panel(
            "Held without a comparison",
            "reqps",
            "Batches held for another reason than their score, a second. scorer_failed and "
            "encoder_mismatch mean that something is wrong; closed and no_threshold that the gate is closed.",
            (Query(per_second("batches_total", "reason", where=GATE + ', reason!="scored"'), "{{reason}}"),),
            stacked=True,
        ),
        Panel(
            "Not read by the encoder",
            "reqps",
            "Batches, held or not, with an answer that is too long (cut), has characters that the encoder does not "
            "know (unread), or is to it the same as another (twin), a second.",
            (Query(per_second("batches_not_read_total", "gate", "rule", where=GATE), "{{gate}} {{rule}}"),),
        ),
        Panel(
            "Records waiting",
            "short",
            "By topic and partition. A line that stands still above zero is a partition that nobody decides.",
            (Query(LAG, "{{topic}}/{{partition}}"),),
        ),
        Panel(
            "Records with an outcome",
            "cps",
            "Growth of each partition's Merkle log: everything that got an outcome, a second, refused "
            "messages and duplicates too.",
            (
                Query(
                    "deriv(topic_partition:streamer_audit_log_leaves:max[$__rate_interval])",
                    "{{topic}}/{{partition}}",
                ),
            ),
        ),
        Panel(
            "Responses by action",
            "cps",
            "Responses of decided batches a second, by what became of each.",
            (Query(per_second("responses_total", "action", where=GATE), "{{action}}"),),
            width=8,
            stacked=True,
        ),
        Panel(
            "Labels, draws and duplicates",
            "cps",
            "Severities that came by the labels topic, batches drawn for labelling, and batches that were "
            "delivered again, a second.",
            (
                Query(per_second("labels_total", where=GATE), "labels"),
                Query(per_second("audit_sampled_batches_total", where=GATE), "drawn"),
                Query(per_second("duplicates_total", where=GATE), "duplicates"),
            ),
            width=8,
        ),
        Panel(
            "Refused, by code",
            "cps",
            "Dead letters a second, by error code; `streamer dead-letters list` shows them.",
            (Query(per_second("dead_letters_total", "code"), "{{code}}"),),
            width=8,
            stacked=True,
        ),
    ),
)

TIME = Row(
    "Time",
    (
        Panel(
            "From event to published action",
            "s",
            "Quantiles over all workers, from the record's timestamp until the broker acknowledged the "
            "action.",
            tuple(
                Query(quantile(q, "end_to_end_latency_seconds"), f"{q:.0%}", colour)
                for q, colour in ((0.5, SKY), (0.95, BLUE), (0.99, ORANGE))
            ),
        ),
        Panel(
            "Stages, 95 %",
            "s",
            "How long one group of records took in each stage: score (and gate), commit, publish; lease is "
            "the taking of partitions.",
            (Query(quantile(0.95, "stage_duration_seconds", "stage"), "{{stage}}"),),
            logarithmic=True,
        ),
        Panel(
            "HTTP requests",
            "reqps",
            "Answered by `streamer serve`, by route and status. 429: too much waits. 503: the database is "
            "unavailable. Beside them replies of upstreams that a cache had answered, which are no samples of their own. Empty where "
            "nothing is served by HTTP.",
            (
                Query(per_second("http_requests_total", "route", "status"), "{{route}} {{status}}"),
                Query(per_second("upstream_cached_replies_total", "gate"), "{{gate}}: replies of a cache"),
            ),
        ),
        Panel(
            "HTTP requests, 95 %",
            "s",
            "From a request's head to the end of its answer, by route, whatever its status.",
            (Query(quantile(0.95, "http_request_duration_seconds", "route"), "{{route}}"),),
            logarithmic=True,
        ),
    ),
)

WAY_OUT = Row(
    "Way out, and what is in the way",
    (
        Panel(
            "Outbox",
            "short",
            "Messages that are recorded and not yet published, and those that the broker refused for good "
            "in the last hour.",
            (
                Query(OUTBOX, "waiting", BLUE),
                Query("sum (increase(streamer_outbox_parked_total[1h]))", "put aside", BAD),
            ),
        ),
        Panel(
            "At the desk",
            "short",
            "Held batches that wait for a person, and those that nobody had decided about by their deadline in the "
            "last hour.",
            (
                Query(f"sum ({recorded('gate:streamer_desk_waiting:max')})", "waiting", BLUE),
                Query(
                    'sum (max by (gate) (increase(streamer_desk_outcomes_total{outcome="expired"}[1h])))',
                    "past the deadline",
                    BAD,
                ),
            ),
        ),
        Panel(
            "Oldest at the desk",
            "s",
            "Since the oldest batch that waits for a person was held.",
            (Query(f"max by (gate) ({DESK_OLDEST})"),),
        ),
        Panel(
            "Parts",
            "none",
            "Whether each worker reaches the broker and the database.",
            (Query(REACHABLE, "{{instance}} {{part}}"),),
            kind="state-timeline",
            names={0.0: ("AWAY", BAD), 1.0: ("there", FINE)},
        ),
        Panel(
            "Gaps, resets, rejected announcements",
            "short",
            "In the ten minutes before each moment: events that Kafka deleted before they were read, "
            "readers set back, and messages on the thresholds topic that were no announcements.",
            (
                Query("sum (increase(streamer_data_gaps_total[10m]))", "gaps", BAD),
                Query("sum (increase(streamer_reader_resets_total[10m]))", "resets", ORANGE),
                Query("sum (increase(streamer_policy_events_rejected_total[10m]))", "rejected", GREY),
            ),
        ),
        Panel(
            "Signing and witnesses",
            "s",
            "How long the oldest head has waited that is not signed, or that a witness has not cosigned, and how often one "
            "did not cosign in the last hour. No line without a key to sign with.",
            (
                Query("max by (witness) (streamer_audit_unwitnessed_seconds)", "{{witness}}"),
                Query("max (streamer_audit_unsigned_seconds)", "signed"),
                Query("sum (increase(streamer_audit_witness_failures_total[1h]))", "not cosigned", BAD),
            ),
        ),
    ),
    width=8,
)

ENCODER = Row(
    "Encoder and record",
    (
        Panel(
            "Texts",
            "cps",
            "Texts a second that went through the encoder, and that were still in its cache.",
            (
                Query(per_second("encoded_texts_total"), "encoded", BLUE),
                Query(per_second("encoder_cache_hits_total"), "from the cache", SKY),
            ),
            stacked=True,
        ),
        Panel(
            "Cache hits",
            "percentunit",
            "Share of texts whose vector was still in the encoder's cache. No line without texts.",
            (
                Query(
                    (
                        f"{per_second('encoder_cache_hits_total')} / ("
                        f"({per_second('encoder_cache_hits_total')} + {per_second('encoded_texts_total')}) > 0)"
                    ),
                    "hits",
                    BLUE,
                ),
            ),
            most=1.0,
        ),
        Panel(
            "Asked of the encoder's endpoint",
            "short",
            "Tokens a minute that the endpoint of an encoder openai:MODEL counted, and what they cost a day by "
            "encoder.price_per_million. 0 where the encoder runs in the workers.",
            (
                Query(f"60 * {per_second('encoder_tokens_total')}", "tokens a minute", BLUE),
                Query(f"86400 * {per_second('encoder_cost_total')}", "cost a day", SKY),
            ),
        ),
        Panel(
            "Asked of the judge",
            "short",
            "Answers a minute that gates with the scorer judge wanted a mark for, by what became of it. 0 without such gates.",
            (
                Query(
                    "60 * sum by (result) (rate(streamer_judge_answers_total[$__rate_interval]))",
                    "{{result}}",
                ),
            ),
        ),
        Panel(
            "What the judge costs",
            "short",
            "Tokens a minute that the judge counted, and what they cost a day by judge.price_per_million_input and _output.",
            (
                Query(f"60 * {per_second('judge_tokens_total')}", "tokens a minute", BLUE),
                Query(f"86400 * {per_second('judge_cost_total')}", "cost a day", SKY),
            ),
        ),
        Panel(
            "Height of the record",
            "short",
            "Entries in each partition's Merkle log. It never falls; if it does, the database was restored.",
            (Query("topic_partition:streamer_audit_log_leaves:max", "{{topic}}/{{partition}}"),),
        ),
        Panel(
            "Versions that run",
            "none",
            "Program, Python and encoder of each service.",
            (Query("max by (job, instance, version, python, encoder) (streamer_build_info)", "runs"),),
            kind="table",
            width=24,
            height=6,
        ),
        Panel(
            "Policy each worker decides with",
            "none",
            "They differ for seconds when a policy changes; for longer only when a worker cannot read the "
            "database, or refuses the policy.",
            (
                Query(
                    shown("policy_version", "gate", "instance", where=f"{GATE}, {DECIDING}"),
                    "{{gate}} {{instance}}",
                ),
            ),
            kind="state-timeline",
            width=24,
            height=6,
        ),
    ),
    width=6,
)

PIPELINE = Dashboard(
    uid="streamer-pipeline",
    title="streamer: pipeline",
    description="Does every event become an action, how fast, and what is in the way.",
    several_gates=True,
    start="now-6h",
    links=(("streamer-risk", "Risk"), ("streamer-calibration", "Calibration")),
    rows=(NOW, FLOW, TIME, WAY_OUT, ENCODER),
)
