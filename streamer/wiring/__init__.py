"""The composition root: the only place that builds real parts from settings. Only the CLI imports it."""

from streamer.wiring.audit import (
    check_witnesses,
    checkpointer,
    compared_with_log,
    outside_checkpoints,
    receipts,
    rescorer,
    trusted_keys,
    witnesses,
)
from streamer.wiring.candidates import adopt_candidate, calibrated_beside, set_candidate
from streamer.wiring.configured_judge import judge, judge_scoring_id
from streamer.wiring.console import run_console
from streamer.wiring.encoders import encoder, encoder_identity, endpoint_encoder
from streamer.wiring.label_keys import key_block, label_keys
from streamer.wiring.learning import adopt_fitted, adopt_proposed, fit_score
from streamer.wiring.parts import (
    check_database,
    check_topics,
    connection,
    create_topics,
    limits,
    migrate,
    now,
    open_store,
    publish_pending,
    publisher,
    recalibrate,
    tail,
    topics,
)
from streamer.wiring.policy_keys import policy_keys
from streamer.wiring.recalibrator import run_recalibrator
from streamer.wiring.review import run_review
from streamer.wiring.serving import run_serving
from streamer.wiring.upstreams import upstream_id
from streamer.wiring.what_if import what_if
from streamer.wiring.worker import run_worker

__all__ = [
    "adopt_candidate",
    "adopt_fitted",
    "adopt_proposed",
    "calibrated_beside",
    "check_database",
    "check_topics",
    "check_witnesses",
    "checkpointer",
    "compared_with_log",
    "connection",
    "create_topics",
    "encoder",
    "encoder_identity",
    "endpoint_encoder",
    "fit_score",
    "judge",
    "judge_scoring_id",
    "key_block",
    "label_keys",
    "limits",
    "migrate",
    "now",
    "open_store",
    "outside_checkpoints",
    "policy_keys",
    "publish_pending",
    "publisher",
    "recalibrate",
    "receipts",
    "rescorer",
    "run_console",
    "run_recalibrator",
    "run_review",
    "run_serving",
    "run_worker",
    "set_candidate",
    "tail",
    "topics",
    "trusted_keys",
    "upstream_id",
    "what_if",
    "witnesses",
]
