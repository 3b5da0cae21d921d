"""The composition root: the only place that builds real parts from settings. Only the CLI imports it.

A name is imported at its first use, for `streamer COMMAND --help` needs none.
"""

from typing import TYPE_CHECKING

from streamer.lazy import lazy_names

if TYPE_CHECKING:
    from streamer.settings.settings import load_settings
    from streamer.wiring.asking import tried_gate, tried_gate_of_claims, what_if
    from streamer.wiring.audit import (
        beside,
        checkpointer,
        compared_with_log,
        known_checkpoints,
        outside_checkpoints,
        receipts,
        rescorer,
        segments,
        signer,
        signing,
        trusted_keys,
        witnesses,
    )
    from streamer.wiring.candidates import adopt_candidate, set_candidate
    from streamer.wiring.configured_judge import judge, judge_scoring_id
    from streamer.wiring.console import run_console
    from streamer.wiring.encoders import encoder, encoder_identity, endpoint_encoder, what_it_reads
    from streamer.wiring.keys import key_block, label_keys, policy_keys
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
        record,
        tail,
        topics,
    )
    from streamer.wiring.recalibrator import run_recalibrator, run_signer
    from streamer.wiring.review import run_review
    from streamer.wiring.serving import run_serving
    from streamer.wiring.upstreams import unsuited_gate, upstream_id
    from streamer.wiring.worker import run_worker
else:
    _NAMES = {
        "streamer.settings.settings": "load_settings",
        "streamer.wiring.asking": "tried_gate tried_gate_of_claims what_if",
        "streamer.wiring.audit": "beside checkpointer compared_with_log known_checkpoints outside_checkpoints receipts "
        "rescorer segments signer signing trusted_keys witnesses",
        "streamer.wiring.candidates": "adopt_candidate set_candidate",
        "streamer.wiring.configured_judge": "judge judge_scoring_id",
        "streamer.wiring.console": "run_console",
        "streamer.wiring.encoders": "encoder encoder_identity endpoint_encoder what_it_reads",
        "streamer.wiring.keys": "key_block label_keys policy_keys",
        "streamer.wiring.parts": "check_database check_topics connection create_topics limits migrate now open_store "
        "publish_pending publisher recalibrate record tail topics",
        "streamer.wiring.recalibrator": "run_recalibrator run_signer",
        "streamer.wiring.review": "run_review",
        "streamer.wiring.serving": "run_serving",
        "streamer.wiring.upstreams": "unsuited_gate upstream_id",
        "streamer.wiring.worker": "run_worker",
    }
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)
