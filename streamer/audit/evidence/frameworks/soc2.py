"""The trust services criteria behind SOC 2 reports: those that a record of decisions can speak to."""

from streamer.audit.evidence.framework import Clause, Framework

SOC2 = Framework(
    name="soc2",
    title="SOC 2",
    edition="Trust Services Criteria of 2017, with the points of focus as revised in 2022",
    applies=(
        "A practitioner examines controls of a service organisation against the criteria in scope. Which categories are in scope,"
        " and the description of the system, are not on record."
    ),
    clauses=(
        Clause(
            number="CC4.1",
            title="ongoing evaluation",
            asks="Evaluations, ongoing or separate, ascertain whether controls are present and functioning.",
            shows=("verification", "exposure", "selective", "alerts"),
            does_not_show=("Evaluations outside the record.",),
        ),
        Clause(
            number="CC6.1, CC6.2",
            title="logical access",
            asks="Access to protected information is restricted; users are registered and authorised before they get credentials.",
            shows=("people",),
            does_not_show=(
                "Access to the database, to Kafka, to keys and to machines.",
                "Whether access was authorised outside the record.",
            ),
        ),
        Clause(
            number="CC6.3",
            title="roles are changed and removed",
            asks="Access is given, changed and removed by roles and duties, with least privilege and segregation of duties.",
            shows=("people", "policies"),
            does_not_show=("Whether rights fit a person's duties.",),
        ),
        Clause(
            number="CC7.2",
            title="anomalies are monitored",
            asks="Components are monitored for anomalies that point to malicious acts, disasters and errors.",
            shows=("alerts", "refused", "verification"),
            does_not_show=("Monitoring of machines and networks.",),
        ),
        Clause(
            number="CC7.3, CC7.4",
            title="events are evaluated and answered",
            asks="Security events are evaluated, and incidents answered by a defined programme.",
            shows=("alerts", "desk", "policies"),
            does_not_show=(
                "The programme, and whether an alert, or an answer that waited at the desk, is a security event.",
                "What people weighed before they released or rejected an answer at the desk.",
            ),
        ),
        Clause(
            number="CC8.1",
            title="change management",
            asks="Changes are authorised, documented, tested, approved and implemented.",
            shows=("settings", "runs", "policies"),
            does_not_show=("Changes of the program, of its infrastructure and of the language model.",),
        ),
        Clause(
            number="PI1.2",
            title="inputs",
            asks="Inputs are controlled for completeness and accuracy.",
            shows=("refused", "decisions"),
            does_not_show=("Completeness upstream of Kafka: not established.",),
        ),
        Clause(
            number="PI1.3",
            title="processing",
            asks="Processing is controlled so that it meets its specification.",
            shows=("verification", "decisions", "policies"),
            does_not_show=("Whether the specification is what users need.",),
        ),
        Clause(
            number="PI1.4",
            title="outputs",
            asks="Output is delivered complete, accurate and in time, as specified.",
            shows=("decisions", "over_time", "exposure", "selective", "desk"),
            does_not_show=(
                "Severity of answers that were not drawn for labelling, except through the interval.",
                "What people saw: the record has what was published, not what consumers did with it.",
            ),
        ),
        Clause(
            number="PI1.5",
            title="storage",
            asks="Inputs, items in process and outputs are stored complete and accurate, as specified.",
            shows=("record", "checkpoints", "verification", "erasures"),
            does_not_show=("Backups and their restoration.",),
        ),
        Clause(
            number="C1.2",
            title="disposal",
            asks="Confidential information is disposed of as the objectives say.",
            shows=("erasures",),
            does_not_show=(
                "Copies outside the database: topics, backups, logs and consumers.",
                "Whether the rule of age is the one that was promised.",
            ),
        ),
    ),
)
