"""Regulation (EU) 2024/1689, the AI Act: what it asks of high-risk systems that a record of decisions can speak to."""

from streamer.audit.evidence.framework import Clause, Framework

EU_AI_ACT = Framework(
    name="eu-ai-act",
    title="EU AI Act",
    edition="Regulation (EU) 2024/1689, articles and paragraphs as published on 12 July 2024",
    applies=(
        "These articles bind providers and deployers of high-risk systems. Whether the system behind these gates is one, and who is"
        " its provider, the record does not say."
    ),
    clauses=(
        Clause(
            number="Article 9(2)(c)",
            title="risks from monitoring",
            asks="The risk management system evaluates risks that come up in the data of post-market monitoring.",
            shows=("exposure", "selective", "alerts"),
            does_not_show=(
                "That anybody evaluated these figures as risks, or that a risk management system exists.",
                "Risks other than the severity that labels measure.",
            ),
        ),
        Clause(
            number="Article 9(8)",
            title="tests against thresholds",
            asks="Tests are made against metrics and probabilistic thresholds that were set beforehand and suit the purpose.",
            shows=("settings", "runs", "policies"),
            does_not_show=(
                "Tests before the first gate was created.",
                "That budget and severity suit the intended purpose.",
            ),
        ),
        Clause(
            number="Article 12(1)",
            title="automatic logs",
            asks="The system can record events automatically over its lifetime.",
            shows=("record", "decisions", "refused"),
            does_not_show=(
                "Completeness upstream of Kafka: not established.",
                "Events of parts of the system that no gate decides about.",
            ),
        ),
        Clause(
            number="Article 12(2)",
            title="what logs are good for",
            asks=(
                "Recorded events help to find situations of risk and substantial modifications, to monitor after the market, and to"
                " monitor operation."
            ),
            shows=("over_time", "alerts", "settings", "policies"),
            does_not_show=("Whether a change of settings is a substantial modification.",),
        ),
        Clause(
            number="Article 13(3)(b)",
            title="stated performance",
            asks="Instructions for use state the level of accuracy with its metrics, and what is known to affect it.",
            shows=("settings", "exposure", "selective", "decisions"),
            does_not_show=(
                "What the instructions for use say.",
                "Performance for particular groups of persons.",
            ),
        ),
        Clause(
            number="Article 13(3)(f)",
            title="how logs are read",
            asks="Where relevant, instructions describe how deployers collect, store and interpret the logs.",
            shows=("record", "verification"),
            does_not_show=("Whether deployers were given that description.",),
        ),
        Clause(
            number="Article 14(4)",
            title="human oversight",
            asks=(
                "Persons who oversee the system can monitor it and notice anomalies, decide not to use its output, and stop it."
            ),
            shows=("desk", "alerts", "policies", "runs", "people"),
            does_not_show=(
                "That these persons were competent, trained and free to act.",
                "Whether an alert was understood: an acknowledgement says who took note of it, when and why.",
                "What people weighed before they released or rejected an answer at the desk, and whether they read it.",
                "What people decided about single answers outside the gate and its desk.",
            ),
        ),
        Clause(
            number="Article 15(1) and (3)",
            title="accuracy",
            asks="Accuracy is appropriate and consistent over the lifecycle, and its levels are declared.",
            shows=("exposure", "selective", "draws", "labels"),
            does_not_show=(
                "Accuracy of the language model itself: both risks are of what the gate shipped.",
                "Severity of answers that were not drawn for labelling, except through the interval.",
            ),
        ),
        Clause(
            number="Article 15(5)",
            title="resilience to tampering",
            asks="The system resists attempts of unauthorised parties to alter its use, outputs or performance.",
            shows=("verification", "checkpoints", "people"),
            does_not_show=(
                "Attacks on the language model, such as prompt injection and poisoned training data.",
                "That keys and checkpoints were kept away from whoever can write the database.",
            ),
        ),
        Clause(
            number="Article 19(1)",
            title="providers keep logs",
            asks="Providers keep the automatic logs that they control, at least six months unless other law says otherwise.",
            shows=("record", "erasures", "checkpoints"),
            does_not_show=(
                "Logs outside this record, such as those of the model and of applications.",
                "That the record goes on being kept from now on.",
            ),
        ),
        Clause(
            number="Article 20(1)",
            title="corrective action",
            asks="A provider that has reason to think the system is not in order corrects, withdraws or disables it without delay.",
            shows=("policies", "alerts"),
            does_not_show=(
                "Whether a closing or a new threshold was enough of a correction.",
                "Notices to distributors, deployers and authorities.",
            ),
        ),
        Clause(
            number="Article 26(5)",
            title="deployers monitor",
            asks="Deployers monitor operation by the instructions, and inform the provider of risks and serious incidents.",
            shows=("over_time", "exposure", "selective", "alerts"),
            does_not_show=("That anybody was informed.",),
        ),
        Clause(
            number="Article 26(6)",
            title="deployers keep logs",
            asks="Deployers keep the automatic logs that they control, at least six months unless other law says otherwise.",
            shows=("record", "erasures"),
            does_not_show=("Logs outside this record.",),
        ),
        Clause(
            number="Article 72(2)",
            title="post-market monitoring",
            asks="Data on performance is collected, documented and analysed actively and systematically over the lifetime.",
            shows=("exposure", "selective", "draws", "labels", "desk", "alerts", "runs"),
            does_not_show=(
                "The post-market monitoring plan of Article 72(3).",
                "Data that deployers or users gave elsewhere.",
            ),
        ),
        Clause(
            number="Article 73(2)",
            title="serious incidents",
            asks="A serious incident is reported once a causal link is likely, and no later than 15 days after becoming aware of it.",
            shows=("alerts",),
            does_not_show=(
                "Whether an alert is a serious incident, and whether one happened without an alert.",
                "That anything was reported to an authority.",
            ),
        ),
    ),
)
