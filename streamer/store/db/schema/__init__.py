"""Every table, split by subject. The migrations create them; a test holds that both say the same."""

import pkgutil
from importlib import import_module

from streamer.store.db.schema.accounts import accounts
from streamer.store.db.schema.alerts import (
    alert_acknowledgements,
    alert_assignments,
    alert_deliveries,
    alerts,
)
from streamer.store.db.schema.api_keys import api_key_revocations, api_keys
from streamer.store.db.schema.audit_rates import audit_rates
from streamer.store.db.schema.calibration import (
    calibration_candidates,
    calibration_inputs,
    calibration_runs,
    proposal_rejections,
)
from streamer.store.db.schema.candidates import candidate_decisions, candidate_policies, candidate_prompts
from streamer.store.db.schema.control import (
    control_head,
    control_log,
    control_queue,
    cosignatures,
    heads,
    restorations,
    signed_head,
)
from streamer.store.db.schema.decisions import batches, carried_scores, carried_signals, decisions, responses
from streamer.store.db.schema.desk import desk_items, desk_outcomes, desk_texts
from streamer.store.db.schema.encoders import encoders
from streamer.store.db.schema.erasures import erasures
from streamer.store.db.schema.gates import gate_revisions, gates, policies, policy_events
from streamer.store.db.schema.judgements import judgements
from streamer.store.db.schema.labels import label_revisions, label_signatures
from streamer.store.db.schema.leases import leases
from streamer.store.db.schema.log import (
    data_gaps,
    dead_letter_replays,
    dead_letters,
    outbox,
    outcomes,
    pending_messages,
    progress,
)
from streamer.store.db.schema.monitoring import monitor_alarms, monitor_gates, monitor_sequences
from streamer.store.db.schema.review import review_claims, review_offers
from streamer.store.db.schema.types import metadata

__all__ = [
    "accounts",
    "alert_acknowledgements",
    "alert_assignments",
    "alert_deliveries",
    "alerts",
    "api_key_revocations",
    "api_keys",
    "audit_rates",
    "batches",
    "calibration_candidates",
    "calibration_inputs",
    "calibration_runs",
    "candidate_decisions",
    "candidate_policies",
    "candidate_prompts",
    "carried_scores",
    "carried_signals",
    "control_head",
    "control_log",
    "control_queue",
    "cosignatures",
    "data_gaps",
    "dead_letter_replays",
    "dead_letters",
    "decisions",
    "desk_items",
    "desk_outcomes",
    "desk_texts",
    "encoders",
    "erasures",
    "gate_revisions",
    "gates",
    "heads",
    "judgements",
    "label_revisions",
    "label_signatures",
    "leases",
    "metadata",
    "monitor_alarms",
    "monitor_gates",
    "monitor_sequences",
    "outbox",
    "outcomes",
    "pending_messages",
    "policies",
    "policy_events",
    "progress",
    "proposal_rejections",
    "responses",
    "restorations",
    "review_claims",
    "review_offers",
    "signed_head",
]

for _one in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_one.name}")  # a table in a file of its own is one of `metadata`
