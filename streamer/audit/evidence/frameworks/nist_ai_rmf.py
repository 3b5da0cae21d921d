"""The AI Risk Management Framework 1.0 of NIST: the subcategories that a record of decisions can speak to."""

from streamer.audit.evidence.framework import Clause, Framework

NIST_AI_RMF = Framework(
    name="nist-ai-rmf",
    title="NIST AI RMF",
    edition="AI Risk Management Framework 1.0 (NIST AI 100-1, January 2023), subcategories",
    applies="The framework is voluntary; which outcomes an organisation has chosen, the record does not say.",
    clauses=(
        Clause(
            number="GOVERN 1.5",
            title="review is planned",
            asks="Monitoring and periodic review of risk management are planned, with roles and how often.",
            shows=("settings", "runs", "people"),
            does_not_show=("The plan, and reviews outside the record.",),
        ),
        Clause(
            number="MAP 3.5",
            title="human oversight",
            asks="Processes for human oversight are defined, assessed and documented.",
            shows=("desk", "policies", "alerts", "people"),
            does_not_show=(
                "The process as it was defined, and oversight of single answers outside the gate and its desk.",
                "What people weighed before they released or rejected an answer at the desk, and whether they read it.",
            ),
        ),
        Clause(
            number="MEASURE 2.3",
            title="performance is measured",
            asks="Performance or assurance criteria are measured under conditions like those of deployment, and documented.",
            shows=("exposure", "selective", "draws"),
            does_not_show=(
                "Criteria other than the severity that labels measure.",
                "Severity of answers that were not drawn for labelling, except through the interval.",
            ),
        ),
        Clause(
            number="MEASURE 2.4",
            title="monitored in production",
            asks="Functionality and behaviour of the system and its components are monitored in production.",
            shows=("over_time", "exposure", "selective", "alerts", "refused"),
            does_not_show=(
                "Components that no gate decides about.",
                "Completeness upstream of Kafka: not established.",
            ),
        ),
        Clause(
            number="MEASURE 2.5",
            title="valid and reliable",
            asks="The system is shown to be valid and reliable, and limits of generalisation are documented.",
            shows=("exposure", "selective", "runs", "settings"),
            does_not_show=("How it would do on prompts unlike those of the period.",),
        ),
        Clause(
            number="MEASURE 2.7",
            title="security and resilience",
            asks="Security and resilience are evaluated and documented.",
            shows=("verification", "checkpoints", "people"),
            does_not_show=(
                "Attacks on the language model.",
                "That keys were kept away from the database.",
            ),
        ),
        Clause(
            number="MEASURE 2.8",
            title="transparency, accountability",
            asks="Risks of transparency and accountability are examined and documented.",
            shows=("record", "policies", "unchecked"),
            does_not_show=("That an examination took place.",),
        ),
        Clause(
            number="MEASURE 3.1",
            title="risks are tracked",
            asks="There are ways to identify and track existing, unanticipated and emergent risks regularly.",
            shows=("alerts", "exposure", "selective"),
            does_not_show=("Risks other than the severity that labels measure.",),
        ),
        Clause(
            number="MEASURE 4.2",
            title="results are validated",
            asks="Results on trustworthiness in deployment are informed by people who know the domain.",
            shows=("labels", "draws"),
            does_not_show=("Who labellers are and what they know.",),
        ),
        Clause(
            number="MANAGE 2.4",
            title="disengage",
            asks="Mechanisms and responsibilities exist to supersede, disengage or deactivate a system that goes wrong.",
            shows=("policies", "alerts"),
            does_not_show=("Mechanisms beyond closing a gate and changing its threshold.",),
        ),
        Clause(
            number="MANAGE 4.1",
            title="post-deployment monitoring",
            asks=(
                "Plans for monitoring after deployment are put into practice, with input of users, appeal and override, incident"
                " response and change management."
            ),
            shows=("exposure", "selective", "desk", "alerts", "policies", "labels"),
            does_not_show=(
                "The plans, appeals, and input of users other than labels.",
                "What people weighed before they released an answer at the desk.",
            ),
        ),
        Clause(
            number="MANAGE 4.3",
            title="incidents are communicated",
            asks="Incidents and errors are communicated to those concerned; tracking, response and recovery are followed and documented.",
            shows=("alerts", "policies"),
            does_not_show=("That anybody was told.", "Whether an alert is an incident."),
        ),
    ),
)
