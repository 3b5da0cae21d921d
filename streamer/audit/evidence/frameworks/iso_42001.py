"""ISO/IEC 42001:2023, management systems for AI: the clauses and controls that a record of decisions can speak to."""

from streamer.audit.evidence.framework import Clause, Framework

ISO_42001 = Framework(
    name="iso-42001",
    title="ISO/IEC 42001",
    edition="ISO/IEC 42001:2023, clauses of the main text and controls of Annex A",
    applies=(
        "The standard is about an organisation's management system; the statement of applicability says which controls of Annex A"
        " it has chosen. The record knows neither."
    ),
    clauses=(
        Clause(
            number="6.1.2, 8.2",
            title="risk assessment",
            asks="Risks of AI systems are assessed by a process, at planned intervals and when much changes.",
            shows=("exposure", "selective", "runs"),
            does_not_show=(
                "The process, its criteria, and risks other than the severity that labels measure.",
            ),
        ),
        Clause(
            number="6.1.3, 8.3",
            title="risk treatment",
            asks="Risks are treated as planned, and the treatment is checked for effect.",
            shows=("settings", "policies", "decisions"),
            does_not_show=("The plan, and who accepted the residual risk outside the record.",),
        ),
        Clause(
            number="7.5.3",
            title="control of documents",
            asks="Documented information is protected from loss of integrity and its changes are controlled.",
            shows=("record", "verification", "checkpoints", "erasures"),
            does_not_show=("Documents other than this record.", "Backups and their restoration."),
        ),
        Clause(
            number="9.1",
            title="monitoring and measurement",
            asks="The organisation measures, analyses and evaluates performance, by methods that give valid results.",
            shows=("exposure", "selective", "draws", "labels"),
            does_not_show=(
                "That the results were evaluated by management.",
                "Whether labels are right: a severity is what a labeller said.",
            ),
        ),
        Clause(
            number="9.2",
            title="internal audit",
            asks="Internal audits are made at planned intervals.",
            shows=("verification", "unchecked"),
            does_not_show=("That an audit took place: these figures are material for one.",),
        ),
        Clause(
            number="10.2",
            title="nonconformity, correction",
            asks="Nonconformities are reacted to and corrected, and what was done is kept on record.",
            shows=("alerts", "policies"),
            does_not_show=("Causes, and whether the correction was effective.",),
        ),
        Clause(
            number="A.3.2",
            title="roles",
            asks="Roles and responsibilities for AI are defined and assigned.",
            shows=("people", "policies"),
            does_not_show=("Roles outside the console and the API, and whether persons knew their duties.",),
        ),
        Clause(
            number="A.6.2.4",
            title="verification and validation",
            asks="The AI system is verified and validated by documented measures and criteria.",
            shows=("runs", "settings"),
            does_not_show=(
                "Validation before the first gate was created, and of the language model itself.",
            ),
        ),
        Clause(
            number="A.6.2.6",
            title="operation and monitoring",
            asks="What ongoing operation needs is defined: monitoring, repair, updates, support.",
            shows=("over_time", "exposure", "selective", "alerts", "refused"),
            does_not_show=("Availability, repair and support of the machines.",),
        ),
        Clause(
            number="A.6.2.8",
            title="event logs",
            asks="It is determined at which phases event logs are kept, at the least while the system is in use.",
            shows=("record", "decisions", "checkpoints"),
            does_not_show=(
                "Completeness upstream of Kafka: not established.",
                "Logs of other phases and other parts of the system.",
            ),
        ),
        Clause(
            number="A.7.5",
            title="provenance of data",
            asks="There is a process to record where the data came from that is used in the AI system.",
            shows=("labels", "draws"),
            does_not_show=("Where prompts, answers and the model's training data came from.",),
        ),
        Clause(
            number="A.8.4",
            title="communication of incidents",
            asks="There is a plan to communicate incidents to users.",
            shows=("alerts",),
            does_not_show=("The plan, and that anybody was told.", "Whether an alert is an incident."),
        ),
        Clause(
            number="A.9.2, A.9.4",
            title="responsible and intended use",
            asks="The system is used by defined processes and for what it is intended for.",
            shows=("settings", "decisions", "desk"),
            does_not_show=(
                "What the system is intended for.",
                "What people weighed before they released or rejected an answer at the desk.",
            ),
        ),
    ),
)
