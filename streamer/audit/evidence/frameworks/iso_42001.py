"""ISO/IEC 42001:2023, management systems for AI: the clauses and controls that a record of decisions can speak to."""

from streamer.audit.evidence.framework import Framework, clause

ISO_42001 = Framework(
    name="iso-42001",
    title="ISO/IEC 42001",
    edition="ISO/IEC 42001:2023, clauses of the main text and controls of Annex A",
    applies="The standard is about an organisation's management system; the statement of applicability says which controls of Annex A"
    " it has chosen. The record knows neither.",
    clauses=(
        clause(
            "6.1.2, 8.2",
            "risk assessment",
            "Risks of AI systems are assessed by a process, at planned intervals and when much changes.",
            ("exposure", "selective", "runs"),
            "The process, its criteria, and risks other than the severity that labels measure.",
        ),
        clause(
            "6.1.3, 8.3",
            "risk treatment",
            "Risks are treated as planned, and the treatment is checked for effect.",
            ("settings", "policies", "decisions"),
            "The plan, and who accepted the residual risk outside the record.",
        ),
        clause(
            "7.5.3",
            "control of documents",
            "Documented information is protected from loss of integrity and its changes are controlled.",
            ("record", "verification", "checkpoints", "erasures"),
            "Documents other than this record.",
            "Backups and their restoration.",
        ),
        clause(
            "9.1",
            "monitoring and measurement",
            "The organisation measures, analyses and evaluates performance, by methods that give valid results.",
            ("exposure", "selective", "draws", "labels"),
            "That the results were evaluated by management.",
            "Whether labels are right: a severity is what a labeller said.",
        ),
        clause(
            "9.2",
            "internal audit",
            "Internal audits are made at planned intervals.",
            ("verification", "unchecked"),
            "That an audit took place: these figures are material for one.",
        ),
        clause(
            "10.2",
            "nonconformity, correction",
            "Nonconformities are reacted to and corrected, and what was done is kept on record.",
            ("alerts", "policies"),
            "Causes, and whether the correction was effective.",
        ),
        clause(
            "A.3.2",
            "roles",
            "Roles and responsibilities for AI are defined and assigned.",
            ("people", "policies"),
            "Roles outside the console and the API, and whether persons knew their duties.",
        ),
        clause(
            "A.6.2.4",
            "verification and validation",
            "The AI system is verified and validated by documented measures and criteria.",
            ("runs", "settings"),
            "Validation before the first gate was created, and of the language model itself.",
        ),
        clause(
            "A.6.2.6",
            "operation and monitoring",
            "What ongoing operation needs is defined: monitoring, repair, updates, support.",
            ("over_time", "exposure", "selective", "alerts", "refused"),
            "Availability, repair and support of the machines.",
        ),
        clause(
            "A.6.2.8",
            "event logs",
            "It is determined at which phases event logs are kept, at the least while the system is in use.",
            ("record", "decisions", "checkpoints"),
            "Completeness upstream of Kafka: not established.",
            "Logs of other phases and other parts of the system.",
        ),
        clause(
            "A.7.5",
            "provenance of data",
            "There is a process to record where the data came from that is used in the AI system.",
            ("labels", "draws"),
            "Where prompts, answers and the model's training data came from.",
        ),
        clause(
            "A.8.4",
            "communication of incidents",
            "There is a plan to communicate incidents to users.",
            ("alerts",),
            "The plan, and that anybody was told.",
            "Whether an alert is an incident.",
        ),
        clause(
            "A.9.2, A.9.4",
            "responsible and intended use",
            "The system is used by defined processes and for what it is intended for.",
            ("settings", "decisions", "desk"),
            "What the system is intended for.",
            "What people weighed before they released or rejected an answer at the desk.",
        ),
    ),
)
