"""The dashboard `pipeline`: does every event become an action, how fast, and what is in the way."""

from deploy.grafana.expressions import GATE, per_second, quantile, recorded, shown
from deploy.grafana.panels import BAD, BLUE, DOUBTFUL, FINE, GREY, ORANGE, SKY, Dashboard, Panel, Query, Row

WORKERS, DECIDING = 'job="streamer-worker"', 'job=~"streamer-(worker|serve)"'
LAG = "topic_partition:streamer_consumer_lag_records:max"
OUTBOX = recorded("job:streamer_outbox_pending:max", WORKERS)
DESK_OLDEST = f"streamer_desk_oldest_seconds{{{WORKERS}, {GATE}}}"
REACHABLE = f"min by (instance, part) (streamer_part_reachable{{{DECIDING}}})"

NOW = Row(
    title="Now",
    panels=(
        Panel(
            title="Decisions a second",
            kind="stat",
            width=4,
            height=4,
            unit="reqps",
            colour_background=False,
            description="Batches decided a second over the last five minutes, by all workers.",
            queries=(
                Query(
                    expr=f"sum ({recorded('gate:streamer_batches:rate5m')})",
                    legend="decisions",
                    colour=BLUE,
                ),
            ),
        ),
        Panel(
            title="Waiting",
            kind="stat",
            width=4,
            height=4,
            unit="short",
            colour_background=False,
            description="Records on the topics after the last one with an outcome.",
            queries=(Query(expr=f"sum ({LAG})", legend="records", colour=BLUE),),
        ),
        Panel(
            title="Latency, 99 %",
            kind="stat",
            width=4,
            height=4,
            unit="s",
            description="99 in 100 actions were published within this time after their event's timestamp, over the last "
            "five minutes.",
            steps=((None, FINE), (10, DOUBTFUL), (30, BAD)),
            no_value="no traffic",
            queries=(
                Query(
                    expr='job:streamer_end_to_end_latency_seconds:p99_rate5m{job="streamer-worker"}',
                    legend="99 %",
                ),
            ),
        ),
        Panel(
            title="Workers",
            kind="stat",
            width=3,
            height=4,
            unit="none",
            description="Workers that answer Prometheus.",
            steps=((None, BAD), (1, FINE)),
            no_value="none",
            queries=(Query(expr=f"sum (up{{{WORKERS}}})", legend="workers"),),
        ),
        Panel(
            title="Parts out of reach",
            kind="stat",
            width=3,
            height=4,
            unit="none",
            description="Brokers and databases that a worker waits for, counted once for each worker.",
            steps=((None, FINE), (1, BAD)),
            queries=(Query(expr=f"count ({REACHABLE} == 0) or vector(0)", legend="parts"),),
        ),
        Panel(
            title="Refused, 24 h",
            kind="stat",
            width=3,
            height=4,
            unit="short",
            decimals=0,
            description="Messages that became dead letters in the last 24 hours.",
            steps=((None, FINE), (1, DOUBTFUL)),
            queries=(Query(expr="sum (increase(streamer_dead_letters_total[24h]))", legend="refused"),),
        ),
        Panel(
            title="Gaps, 24 h",
            kind="stat",
            width=3,
            height=4,
            unit="short",
            decimals=0,
            description="Times in the last 24 hours that Kafka had deleted events before they were read.",
            steps=((None, FINE), (1, BAD)),
            queries=(Query(expr="sum (increase(streamer_data_gaps_total[24h]))", legend="gaps"),),
        ),
    ),
)

FLOW = Row(
    title="Flow",
    panels=(
        Panel(
            title="Decisions by gate and action",
            unit="reqps",
            stacked=True,
            description="Batches decided a second, over all workers.",
            queries=(
                Query(
                    expr=per_second("batches_total", "gate", "action", where=GATE),
                    legend="{{gate}} {{action}}",
                ),
            ),
        ),
        Panel(
            title="Held without a comparison",
            unit="reqps",
            stacked=True,
            description="Batches held for another reason than their score, a second. scorer_failed and "
            "encoder_mismatch mean that something is wrong; closed and no_threshold that the gate is closed.",
            queries=(
                Query(
                    expr=per_second("batches_total", "reason", where=GATE + ', reason!="scored"'),
                    legend="{{reason}}",
                ),
            ),
        ),
        Panel(
            title="Not read by the encoder",
            unit="reqps",
            description="Batches, held or not, with an answer that is too long (cut), has characters that the encoder does not "
            "know (unread), or is to it the same as another (twin), a second.",
            queries=(
                Query(
                    expr=per_second("batches_not_read_total", "gate", "rule", where=GATE),
                    legend="{{gate}} {{rule}}",
                ),
            ),
        ),
        Panel(
            title="Records waiting",
            unit="short",
            description="By topic and partition. A line that stands still above zero is a partition that nobody "
            "decides.",
            queries=(Query(expr=LAG, legend="{{topic}}/{{partition}}"),),
        ),
        Panel(
            title="Records with an outcome",
            unit="cps",
            description="Growth of each partition's Merkle log: everything that got an outcome, a second, refused "
            "messages and duplicates too.",
            queries=(
                Query(
                    expr="deriv(topic_partition:streamer_audit_log_leaves:max[$__rate_interval])",
                    legend="{{topic}}/{{partition}}",
                ),
            ),
        ),
        Panel(
            title="Responses by action",
            unit="cps",
            stacked=True,
            width=8,
            description="Responses of decided batches a second, by what became of each.",
            queries=(Query(expr=per_second("responses_total", "action", where=GATE), legend="{{action}}"),),
        ),
        Panel(
            title="Labels, draws and duplicates",
            unit="cps",
            width=8,
            description="Severities that came by the labels topic, batches drawn for labelling, and batches that were "
            "delivered again, a second.",
            queries=(
                Query(expr=per_second("labels_total", where=GATE), legend="labels"),
                Query(expr=per_second("audit_sampled_batches_total", where=GATE), legend="drawn"),
                Query(expr=per_second("duplicates_total", where=GATE), legend="duplicates"),
            ),
        ),
        Panel(
            title="Refused, by code",
            unit="cps",
            stacked=True,
            width=8,
            description="Dead letters a second, by error code; `streamer dead-letters list` shows them.",
            queries=(Query(expr=per_second("dead_letters_total", "code"), legend="{{code}}"),),
        ),
    ),
)

TIME = Row(
    title="Time",
    panels=(
        Panel(
            title="From event to published action",
            unit="s",
            description="Quantiles over all workers, from the record's timestamp until the broker acknowledged the "
            "action.",
            queries=tuple(
                Query(expr=quantile(q, "end_to_end_latency_seconds"), legend=f"{q:.0%}", colour=colour)
                for q, colour in ((0.5, SKY), (0.95, BLUE), (0.99, ORANGE))
            ),
        ),
        Panel(
            title="Stages, 95 %",
            unit="s",
            logarithmic=True,
            least=None,
            description="How long one group of records took in each stage: score (and gate), commit, publish; lease is "
            "the taking of partitions.",
            queries=(Query(expr=quantile(0.95, "stage_duration_seconds", "stage"), legend="{{stage}}"),),
        ),
        Panel(
            title="HTTP requests",
            unit="reqps",
            description="Answered by `streamer serve`, by route and status. 429: too much waits. 503: the database is "
            "unavailable. Beside them replies of upstreams that a cache had answered, which are no samples of their own. Empty where "
            "nothing is served by HTTP.",
            queries=(
                Query(
                    expr=per_second("http_requests_total", "route", "status"), legend="{{route}} {{status}}"
                ),
                Query(
                    expr=per_second("upstream_cached_replies_total", "gate"),
                    legend="{{gate}}: replies of a cache",
                ),
            ),
        ),
        Panel(
            title="HTTP requests, 95 %",
            unit="s",
            logarithmic=True,
            least=None,
            description="From a request's head to the end of its answer, by route, whatever its status.",
            queries=(
                Query(expr=quantile(0.95, "http_request_duration_seconds", "route"), legend="{{route}}"),
            ),
        ),
    ),
)

WAY_OUT = Row(
    title="Way out, and what is in the way",
    panels=(
        Panel(
            title="Outbox",
            unit="short",
            width=8,
            description="Messages that are recorded and not yet published, and those that the broker refused for good "
            "in the last hour.",
            queries=(
                Query(expr=OUTBOX, legend="waiting", colour=BLUE),
                Query(
                    expr="sum (increase(streamer_outbox_parked_total[1h]))",
                    legend="put aside",
                    colour=BAD,
                ),
            ),
        ),
        Panel(
            title="At the desk",
            unit="short",
            width=8,
            description="Held batches that wait for a person, and those that nobody had decided about by their deadline in the "
            "last hour.",
            queries=(
                Query(
                    expr=f"sum ({recorded('gate:streamer_desk_waiting:max')})", legend="waiting", colour=BLUE
                ),
                Query(
                    expr='sum (max by (gate) (increase(streamer_desk_outcomes_total{outcome="expired"}[1h])))',
                    legend="past the deadline",
                    colour=BAD,
                ),
            ),
        ),
        Panel(
            title="Oldest at the desk",
            unit="s",
            width=8,
            description="Since the oldest batch that waits for a person was held.",
            queries=(Query(expr=f"max by (gate) ({DESK_OLDEST})", legend="{{gate}}"),),
        ),
        Panel(
            title="Parts",
            kind="state-timeline",
            unit="none",
            width=8,
            least=None,
            description="Whether each worker reaches the broker and the database.",
            names={0.0: ("AWAY", BAD), 1.0: ("there", FINE)},
            queries=(Query(expr=REACHABLE, legend="{{instance}} {{part}}"),),
        ),
        Panel(
            title="Gaps, resets, rejected announcements",
            unit="short",
            width=8,
            description="In the ten minutes before each moment: events that Kafka deleted before they were read, "
            "readers set back, and messages on the thresholds topic that were no announcements.",
            queries=(
                Query(expr="sum (increase(streamer_data_gaps_total[10m]))", legend="gaps", colour=BAD),
                Query(
                    expr="sum (increase(streamer_reader_resets_total[10m]))", legend="resets", colour=ORANGE
                ),
                Query(
                    expr="sum (increase(streamer_policy_events_rejected_total[10m]))",
                    legend="rejected",
                    colour=GREY,
                ),
            ),
        ),
        Panel(
            title="Signing and witnesses",
            unit="s",
            width=8,
            description="How long the oldest head has waited that is not signed, or that a witness has not cosigned, and how often one "
            "did not cosign in the last hour. No line without a key to sign with.",
            queries=(
                Query(
                    expr="max by (witness) (streamer_audit_unwitnessed_seconds)",
                    legend="{{witness}}",
                ),
                Query(expr="max (streamer_audit_unsigned_seconds)", legend="signed"),
                Query(
                    expr="sum (increase(streamer_audit_witness_failures_total[1h]))",
                    legend="not cosigned",
                    colour=BAD,
                ),
            ),
        ),
    ),
)

ENCODER = Row(
    title="Encoder and record",
    panels=(
        Panel(
            title="Texts",
            unit="cps",
            width=6,
            stacked=True,
            description="Texts a second that went through the encoder, and that were still in its cache.",
            queries=(
                Query(expr=per_second("encoded_texts_total"), legend="encoded", colour=BLUE),
                Query(expr=per_second("encoder_cache_hits_total"), legend="from the cache", colour=SKY),
            ),
        ),
        Panel(
            title="Cache hits",
            unit="percentunit",
            most=1.0,
            width=6,
            description="Share of texts whose vector was still in the encoder's cache. No line without texts.",
            queries=(
                Query(
                    expr=f"{per_second('encoder_cache_hits_total')} / ("
                    f"({per_second('encoder_cache_hits_total')} + {per_second('encoded_texts_total')}) > 0)",
                    legend="hits",
                    colour=BLUE,
                ),
            ),
        ),
        Panel(
            title="Asked of the encoder's endpoint",
            unit="short",
            width=6,
            description="Tokens a minute that the endpoint of an encoder openai:MODEL counted, and what they cost a day by "
            "encoder.price_per_million. 0 where the encoder runs in the workers.",
            queries=(
                Query(
                    expr=f"60 * {per_second('encoder_tokens_total')}", legend="tokens a minute", colour=BLUE
                ),
                Query(expr=f"86400 * {per_second('encoder_cost_total')}", legend="cost a day", colour=SKY),
            ),
        ),
        Panel(
            title="Asked of the judge",
            unit="short",
            width=6,
            description="Answers a minute that gates with the scorer judge wanted a mark for, by what became of it. 0 without such gates.",
            queries=(
                Query(
                    expr="60 * sum by (result) (rate(streamer_judge_answers_total[$__rate_interval]))",
                    legend="{{result}}",
                ),
            ),
        ),
        Panel(
            title="What the judge costs",
            unit="short",
            width=6,
            description="Tokens a minute that the judge counted, and what they cost a day by judge.price_per_million_input and _output.",
            queries=(
                Query(expr=f"60 * {per_second('judge_tokens_total')}", legend="tokens a minute", colour=BLUE),
                Query(expr=f"86400 * {per_second('judge_cost_total')}", legend="cost a day", colour=SKY),
            ),
        ),
        Panel(
            title="Height of the record",
            unit="short",
            width=6,
            description="Entries in each partition's Merkle log. It never falls; if it does, the database was "
            "restored.",
            queries=(
                Query(expr="topic_partition:streamer_audit_log_leaves:max", legend="{{topic}}/{{partition}}"),
            ),
        ),
        Panel(
            title="Versions that run",
            kind="table",
            width=24,
            height=6,
            unit="none",
            least=None,
            colour_background=False,
            description="Program, Python and encoder of each service.",
            queries=(
                Query(
                    expr="max by (job, instance, version, python, encoder) (streamer_build_info)",
                    legend="runs",
                ),
            ),
        ),
        Panel(
            title="Policy each worker decides with",
            kind="state-timeline",
            width=24,
            height=6,
            unit="none",
            least=None,
            description="They differ for seconds when a policy changes; for longer only when a worker cannot read the "
            "database, or refuses the policy.",
            queries=(
                Query(
                    expr=shown("policy_version", "gate", "instance", where=f"{GATE}, {DECIDING}"),
                    legend="{{gate}} {{instance}}",
                ),
            ),
        ),
    ),
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
