"""How gates and policies look in a terminal and in JSON."""

import re
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.text import Text

    from streamer.policy import GateRevision, Policy

_STYLES = {"closed": "red", "cut": "green", "open": "yellow"}


def threshold_text(policy: "Policy") -> str:
    """Write the threshold: ``closed``, ``open``, or ``Q > 0.83``."""
    if policy.threshold is not None:
        return f"Q > {policy.threshold:.6g}"
    return policy.state if policy.calibrated else "closed, not calibrated"


def styled_threshold(policy: "Policy") -> "Text":
    """`threshold_text`, coloured by how much ships."""
    from rich.text import Text

    return Text(threshold_text(policy), style=_STYLES[policy.state])


def standing(policy: "Policy") -> str:
    """Say in one sentence whether the gate ships, and if not, why and what opens it."""
    shadow = "" if policy.settings.mode == "enforce" else " (shadow: consumers are told not to enforce)"
    if not policy.calibrated:
        return (
            f"closed, holds everything: not calibrated for these settings; see `streamer recalibrate`{shadow}"
        )
    if policy.state == "closed":
        return (
            "closed, holds everything: no threshold keeps the budget "
            f"{policy.settings.alpha:g} on the labels there are; more labels or a larger budget open it{shadow}"
        )
    if policy.state == "open":
        return (
            f"open, ships everything: the labels allow it within the budget {policy.settings.alpha:g}{shadow}"
        )
    return f"ships what scores above {policy.threshold:.6g}, budget {policy.settings.alpha:g}{shadow}"


def guarantee_text(guarantee: str) -> str:
    """Break a guarantee into its parts, one a line: what holds, on what basis, if what, and what is not promised."""
    return re.sub(r" (?=(?:Basis|Assumptions|Not promised): )", "\n", guarantee)


def when(moment: datetime) -> str:
    """Write a moment to the second, in UTC."""
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")


def policy_json(policy: "Policy") -> dict[str, Any]:
    """Return a policy as JSON values; `lambda` is null unless the state is cut."""
    return {
        "gate": policy.gate,
        "version": policy.version,
        "gate_revision": policy.gate_revision,
        "state": policy.state,
        "lambda": policy.threshold,
        "calibrated": policy.calibrated,
        "calibration_run": policy.calibration_run,
        "guarantee": policy.guarantee,
        "valid_from": policy.valid_from,
        "by": policy.created_by,
        "reason": policy.reason,
        **asdict(policy.settings),
    }


def gate_json(revision: "GateRevision", policy: "Policy") -> dict[str, Any]:
    """Return a gate as JSON values: its settings, and its newest policy under `policy`. The audit salt stays secret."""
    return {
        "gate": revision.gate,
        "revision": revision.revision,
        "seed": revision.seed,
        "created_at": revision.created_at,
        "by": revision.created_by,
        "reason": revision.reason,
        **asdict(revision.settings),
        "policy": {
            "version": policy.version,
            "state": policy.state,
            "lambda": policy.threshold,
            "calibrated": policy.calibrated,
            "guarantee": policy.guarantee,
            "valid_from": policy.valid_from,
        },
    }
