"""The AI Risk Management Framework 1.0 of NIST: the subcategories that a record of decisions can speak to."""

from streamer.audit.evidence.framework import Framework, clause

NIST_AI_RMF = Framework(
    name="nist-ai-rmf",
    title="NIST AI RMF",
    edition="AI Risk Management Framework 1.0 (NIST AI 100-1, January 2023), subcategories",
    applies="The framework is voluntary; which outcomes an organisation has chosen, the record does not say.",
    clauses=(
        clause(
            "GOVERN 1.5",
            "review is planned",
            "Monitoring and periodic review of risk management are planned, with roles and how often.",
            ("settings", "runs", "people"),
            "The plan, and reviews outside the record.",
        ),
        clause(
            "MAP 3.5",
            "human oversight",
            "Processes for human oversight are defined, assessed and documented.",
            ("desk", "policies", "alerts", "people"),
            "The process as it was defined, and oversight of single answers outside the gate and its desk.",
            "What people weighed before they released or rejected an answer at the desk, and whether they read it.",
        ),
        clause(
            "MEASURE 2.3",
            "performance is measured",
            "Performance or assurance criteria are measured under conditions like those of deployment, and documented.",
            ("exposure", "selective", "draws"),
            "Criteria other than the severity that labels measure.",
            "Severity of answers that were not drawn for labelling, except through the interval.",
        ),
        clause(
            "MEASURE 2.4",
            "monitored in production",
            "Functionality and behaviour of the system and its components are monitored in production.",
            ("over_time", "exposure", "selective", "alerts", "refused"),
            "Components that no gate decides about.",
            "Completeness upstream of Kafka: not established.",
        ),
        clause(
            "MEASURE 2.5",
            "valid and reliable",
            "The system is shown to be valid and reliable, and limits of generalisation are documented.",
            ("exposure", "selective", "runs", "settings"),
            "How it would do on prompts unlike those of the period.",
        ),
        clause(
            "MEASURE 2.7",
            "security and resilience",
            "Security and resilience are evaluated and documented.",
            ("verification", "checkpoints", "people"),
            "Attacks on the language model.",
            "That keys were kept away from the database.",
        ),
        clause(
            "MEASURE 2.8",
            "transparency, accountability",
            "Risks of transparency and accountability are examined and documented.",
            ("record", "policies", "unchecked"),
            "That an examination took place.",
        ),
        clause(
            "MEASURE 3.1",
            "risks are tracked",
            "There are ways to identify and track existing, unanticipated and emergent risks regularly.",
            ("alerts", "exposure", "selective"),
            "Risks other than the severity that labels measure.",
        ),
        clause(
            "MEASURE 4.2",
            "results are validated",
            "Results on trustworthiness in deployment are informed by people who know the domain.",
            ("labels", "draws"),
            "Who labellers are and what they know.",
        ),
        clause(
            "MANAGE 2.4",
            "disengage",
            "Mechanisms and responsibilities exist to supersede, disengage or deactivate a system that goes wrong.",
            ("policies", "alerts"),
            "Mechanisms beyond closing a gate and changing its threshold.",
        ),
        clause(
            "MANAGE 4.1",
            "post-deployment monitoring",
            "Plans for monitoring after deployment are put into practice, with input of users, appeal and override, incident"
            " response and change management.",
            ("exposure", "selective", "desk", "alerts", "policies", "labels"),
            "The plans, appeals, and input of users other than labels.",
            "What people weighed before they released an answer at the desk.",
        ),
        clause(
            "MANAGE 4.3",
            "incidents are communicated",
            "Incidents and errors are communicated to those concerned; tracking, response and recovery are followed and documented.",
            ("alerts", "policies"),
            "That anybody was told.",
            "Whether an alert is an incident.",
        ),
    ),
)
