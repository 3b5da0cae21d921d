"""The trust services criteria behind SOC 2 reports: those that a record of decisions can speak to."""

from streamer.audit.evidence.framework import Framework, clause

SOC2 = Framework(
    name="soc2",
    title="SOC 2",
    edition="Trust Services Criteria of 2017, with the points of focus as revised in 2022",
    applies="A practitioner examines controls of a service organisation against the criteria in scope. Which categories are in scope,"
    " and the description of the system, are not on record.",
    clauses=(
        clause(
            "CC4.1",
            "ongoing evaluation",
            "Evaluations, ongoing or separate, ascertain whether controls are present and functioning.",
            ("verification", "exposure", "selective", "alerts"),
            "Evaluations outside the record.",
        ),
        clause(
            "CC6.1, CC6.2",
            "logical access",
            "Access to protected information is restricted; users are registered and authorised before they get credentials.",
            ("people",),
            "Access to the database, to Kafka, to keys and to machines.",
            "Whether access was authorised outside the record.",
        ),
        clause(
            "CC6.3",
            "roles are changed and removed",
            "Access is given, changed and removed by roles and duties, with least privilege and segregation of duties.",
            ("people", "policies"),
            "Whether rights fit a person's duties.",
        ),
        clause(
            "CC7.2",
            "anomalies are monitored",
            "Components are monitored for anomalies that point to malicious acts, disasters and errors.",
            ("alerts", "refused", "verification"),
            "Monitoring of machines and networks.",
        ),
        clause(
            "CC7.3, CC7.4",
            "events are evaluated and answered",
            "Security events are evaluated, and incidents answered by a defined programme.",
            ("alerts", "desk", "policies"),
            "The programme, and whether an alert, or an answer that waited at the desk, is a security event.",
            "What people weighed before they released or rejected an answer at the desk.",
        ),
        clause(
            "CC8.1",
            "change management",
            "Changes are authorised, documented, tested, approved and implemented.",
            ("settings", "runs", "policies"),
            "Changes of the program, of its infrastructure and of the language model.",
        ),
        clause(
            "PI1.2",
            "inputs",
            "Inputs are controlled for completeness and accuracy.",
            ("refused", "decisions"),
            "Completeness upstream of Kafka: not established.",
        ),
        clause(
            "PI1.3",
            "processing",
            "Processing is controlled so that it meets its specification.",
            ("verification", "decisions", "policies"),
            "Whether the specification is what users need.",
        ),
        clause(
            "PI1.4",
            "outputs",
            "Output is delivered complete, accurate and in time, as specified.",
            ("decisions", "over_time", "exposure", "selective", "desk"),
            "Severity of answers that were not drawn for labelling, except through the interval.",
            "What people saw: the record has what was published, not what consumers did with it.",
        ),
        clause(
            "PI1.5",
            "storage",
            "Inputs, items in process and outputs are stored complete and accurate, as specified.",
            ("record", "checkpoints", "verification", "erasures"),
            "Backups and their restoration.",
        ),
        clause(
            "C1.2",
            "disposal",
            "Confidential information is disposed of as the objectives say.",
            ("erasures",),
            "Copies outside the database: topics, backups, logs and consumers.",
            "Whether the rule of age is the one that was promised.",
        ),
    ),
)
