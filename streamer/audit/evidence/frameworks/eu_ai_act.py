"""Regulation (EU) 2024/1689, the AI Act: what it asks of high-risk systems that a record of decisions can speak to."""

from streamer.audit.evidence.framework import Framework, clause

EU_AI_ACT = Framework(
    name="eu-ai-act",
    title="EU AI Act",
    edition="Regulation (EU) 2024/1689, articles and paragraphs as published on 12 July 2024",
    applies=(
        "These articles bind providers and deployers of high-risk systems. Whether the system behind these gates is one, and who is"
        " its provider, the record does not say."
    ),
    clauses=(
        clause(
            "Article 9(2)(c)",
            "risks from monitoring",
            "The risk management system evaluates risks that come up in the data of post-market monitoring.",
            ("exposure", "selective", "alerts"),
            "That anybody evaluated these figures as risks, or that a risk management system exists.",
            "Risks other than the severity that labels measure.",
        ),
        clause(
            "Article 9(8)",
            "tests against thresholds",
            "Tests are made against metrics and probabilistic thresholds that were set beforehand and suit the purpose.",
            ("settings", "runs", "policies"),
            "Tests before the first gate was created.",
            "That budget and severity suit the intended purpose.",
        ),
        clause(
            "Article 12(1)",
            "automatic logs",
            "The system can record events automatically over its lifetime.",
            ("record", "decisions", "refused"),
            "Completeness upstream of Kafka: not established.",
            "Events of parts of the system that no gate decides about.",
        ),
        clause(
            "Article 12(2)",
            "what logs are good for",
            "Recorded events help to find situations of risk and substantial modifications, to monitor after the market, and to"
            " monitor operation.",
            ("over_time", "alerts", "settings", "policies"),
            "Whether a change of settings is a substantial modification.",
        ),
        clause(
            "Article 13(3)(b)",
            "stated performance",
            "Instructions for use state the level of accuracy with its metrics, and what is known to affect it.",
            ("settings", "exposure", "selective", "decisions"),
            "What the instructions for use say.",
            "Performance for particular groups of persons.",
        ),
        clause(
            "Article 13(3)(f)",
            "how logs are read",
            "Where relevant, instructions describe how deployers collect, store and interpret the logs.",
            ("record", "verification"),
            "Whether deployers were given that description.",
        ),
        clause(
            "Article 14(4)",
            "human oversight",
            "Persons who oversee the system can monitor it and notice anomalies, decide not to use its output, and stop it.",
            ("desk", "alerts", "policies", "runs", "people"),
            "That these persons were competent, trained and free to act.",
            "Whether an alert was understood: an acknowledgement says who took note of it, when and why.",
            "What people weighed before they released or rejected an answer at the desk, and whether they read it.",
            "What people decided about single answers outside the gate and its desk.",
        ),
        clause(
            "Article 15(1) and (3)",
            "accuracy",
            "Accuracy is appropriate and consistent over the lifecycle, and its levels are declared.",
            ("exposure", "selective", "draws", "labels"),
            "Accuracy of the language model itself: both risks are of what the gate shipped.",
            "Severity of answers that were not drawn for labelling, except through the interval.",
        ),
        clause(
            "Article 15(5)",
            "resilience to tampering",
            "The system resists attempts of unauthorised parties to alter its use, outputs or performance.",
            ("verification", "checkpoints", "people"),
            "Attacks on the language model, such as prompt injection and poisoned training data.",
            "That keys and checkpoints were kept away from whoever can write the database.",
        ),
        clause(
            "Article 19(1)",
            "providers keep logs",
            "Providers keep the automatic logs that they control, at least six months unless other law says otherwise.",
            ("record", "erasures", "checkpoints"),
            "Logs outside this record, such as those of the model and of applications.",
            "That the record goes on being kept from now on.",
        ),
        clause(
            "Article 20(1)",
            "corrective action",
            "A provider that has reason to think the system is not in order corrects, withdraws or disables it without delay.",
            ("policies", "alerts"),
            "Whether a closing or a new threshold was enough of a correction.",
            "Notices to distributors, deployers and authorities.",
        ),
        clause(
            "Article 26(5)",
            "deployers monitor",
            "Deployers monitor operation by the instructions, and inform the provider of risks and serious incidents.",
            ("over_time", "exposure", "selective", "alerts"),
            "That anybody was informed.",
        ),
        clause(
            "Article 26(6)",
            "deployers keep logs",
            "Deployers keep the automatic logs that they control, at least six months unless other law says otherwise.",
            ("record", "erasures"),
            "Logs outside this record.",
        ),
        clause(
            "Article 72(2)",
            "post-market monitoring",
            "Data on performance is collected, documented and analysed actively and systematically over the lifetime.",
            ("exposure", "selective", "draws", "labels", "desk", "alerts", "runs"),
            "The post-market monitoring plan of Article 72(3).",
            "Data that deployers or users gave elsewhere.",
        ),
        clause(
            "Article 73(2)",
            "serious incidents",
            "A serious incident is reported once a causal link is likely, and no later than 15 days after becoming aware of it.",
            ("alerts",),
            "Whether an alert is a serious incident, and whether one happened without an alert.",
            "That anything was reported to an authority.",
        ),
    ),
)
