"""Where alarms begin a gate's audit sample anew: what was decided before is no longer exchangeable with what comes."""

from typing import Any

import sqlalchemy as sa

from streamer.gates.policy import MONITOR
from streamer.store.db.schema import alert_acknowledgements, alerts, gate_revisions, monitor_alarms, policies
from streamer.store.db.schema.joins import REVISION_OF_POLICY


def closures(gate: str | None = None) -> sa.CompoundSelect[Any]:
    """Select ``gate``, ``version``, ``moment`` and ``closed`` of every closing by an alarm, of one gate or of all.

    An alarm that was to close its gate and could not (no key to sign with, no policy that is trusted) counts as well: from
    the policy after the one that it was to close, which is the one in force when it was raised, or the first one after it
    by whose settings an alarm closes, if nobody had acknowledged the alarm before. What the alarm says of the sample does
    not depend on keys.
    """
    did = sa.select(
        *policies.c["gate", "version"], policies.c.valid_from.label("moment"), sa.literal(1).label("closed")
    ).where(policies.c.created_by == MONITOR, policies.c.state == "closed")
    should_have = (
        sa.select(
            monitor_alarms.c.gate,
            (sa.func.min(policies.c.version) + 1).label("version"),
            monitor_alarms.c.raised_at.label("moment"),
            sa.literal(0).label("closed"),
        )
        .join(alerts, alerts.c.alert_id == monitor_alarms.c.alert_id)
        .join(policies, (policies.c.gate == alerts.c.gate) & (policies.c.version >= alerts.c.policy_version))
        .join(gate_revisions, REVISION_OF_POLICY)
        .outerjoin(alert_acknowledgements, alert_acknowledgements.c.alert == alerts.c.id)
        .where(
            monitor_alarms.c.raised_at.is_not(None),
            monitor_alarms.c.closed_policy.is_(None),
            ((monitor_alarms.c.kind == "risk") & (gate_revisions.c.on_alarm == "close"))
            | ((monitor_alarms.c.kind == "selective") & (gate_revisions.c.on_selective_alarm == "close"))
            | ((monitor_alarms.c.kind == "missing") & (gate_revisions.c.on_missing == "close")),
            (policies.c.version == alerts.c.policy_version)
            | alert_acknowledgements.c.at.is_(None)
            | (policies.c.valid_from < alert_acknowledgements.c.at),
        )
        .group_by(
            monitor_alarms.c.gate, monitor_alarms.c.kind, monitor_alarms.c.number, monitor_alarms.c.raised_at
        )
    )
    if gate is not None:
        did, should_have = (
            did.where(policies.c.gate == gate),
            should_have.where(monitor_alarms.c.gate == gate),
        )
    return sa.union_all(did, should_have)
