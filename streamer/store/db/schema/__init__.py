"""Every table, split by subject. The migrations create them; a test holds that both say the same."""

import pkgutil
from importlib import import_module

from streamer.store.db.schema.accounts import accounts, api_key_revocations, api_keys
from streamer.store.db.schema.alerts import (
    alert_acknowledgements,
    alert_assignments,
    alert_deliveries,
    alerts,
)
from streamer.store.db.schema.calibration import (
    calibration_candidates,
    calibration_inputs,
    calibration_runs,
    encoders,
    proposal_rejections,
)
from streamer.store.db.schema.candidates import candidate_decisions, candidate_policies, candidate_prompts
from streamer.store.db.schema.control import (
    control_head,
    control_log,
    control_queue,
    cosignatures,
    erasures,
    give_outs,
    heads,
    restorations,
    signed_head,
)
from streamer.store.db.schema.decisions import batches, carried_scores, carried_signals, decisions, responses
from streamer.store.db.schema.desk import desk_items, desk_outcomes, desk_texts
from streamer.store.db.schema.gates import gate_revisions, gates, policies, policy_events
from streamer.store.db.schema.judgements import judgements
from streamer.store.db.schema.labels import label_revisions, label_signatures
from streamer.store.db.schema.log import (
    data_gaps,
    dead_letter_replays,
    dead_letters,
    leases,
    outbox,
    outcomes,
    pending_messages,
    progress,
)
from streamer.store.db.schema.monitoring import audit_rates, monitor_alarms, monitor_gates, monitor_sequences
from streamer.store.db.schema.review import review_claims, review_offers
from streamer.store.db.schema.types import metadata

for _one in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_one.name}")  # a table in a file of its own is one of `metadata`
