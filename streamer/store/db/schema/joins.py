"""On what tables are joined that many queries join."""

from __future__ import annotations

from typing import Final

from streamer.store.db.schema.decisions import decisions
from streamer.store.db.schema.gates import gate_revisions, policies

POLICY_OF_DECISION: Final = (policies.c.gate == decisions.c.gate) & (
    policies.c.version == decisions.c.policy_version
)
"""The policy that decided."""

REVISION_OF_POLICY: Final = (gate_revisions.c.gate == policies.c.gate) & (
    gate_revisions.c.revision == policies.c.gate_revision
)
"""The gate's settings as the policy was made for them."""
