"""How gates and policies look in a terminal and in JSON."""

from typing import TYPE_CHECKING, Any

from streamer.gates.rule import rule_to_json
from streamer.wording.policies import guarantee_text, own_cuts, threshold_text

if TYPE_CHECKING:
    from rich.text import Text

    from streamer.gates.policy import GateRevision, Policy
    from streamer.gates.rule import Cut

_STYLES = {"closed": "red", "cut": "green", "open": "yellow"}


def styled_threshold(policy: "Policy") -> "Text":
    """`threshold_text`, coloured by how much ships."""
    from rich.text import Text

    state = "cut" if own_cuts(policy.rule) else policy.state
    return Text(threshold_text(policy), style=_STYLES[state])


EXPLAIN = "--explain says on what basis, under which assumptions, and what is not promised"


def promise_text(guarantee: str, *, explain: bool) -> str:
    """Return a guarantee in full, or what holds and a word on how to read the rest."""
    parts = guarantee_text(guarantee)
    if explain or "\n" not in parts:
        return parts
    return f"{parts.partition(chr(10))[0]}\n{EXPLAIN}."


def cut_json(cut: "Cut") -> dict[str, Any]:
    """Return a threshold as JSON values; `lambda` is null unless the state is cut."""
    return {"state": cut.state, "lambda": cut.threshold}


def policy_json(policy: "Policy") -> dict[str, Any]:
    """Return a policy as JSON values; `lambda` is null unless the state is cut."""
    return {
        "gate": policy.gate,
        "version": policy.version,
        "gate_revision": policy.gate_revision,
        "state": policy.state,
        "lambda": policy.threshold,
        "rule": rule_to_json(policy.rule) | {"curve": None},
        "calibrated": policy.calibrated,
        "calibration_run": policy.calibration_run,
        "guarantee": policy.guarantee,
        "valid_from": policy.valid_from,
        "by": policy.created_by,
        "reason": policy.reason,
        **policy.settings.flat(),
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
        **revision.settings.flat(),
        "policy": {
            "version": policy.version,
            "state": policy.state,
            "lambda": policy.threshold,
            "calibrated": policy.calibrated,
            "guarantee": policy.guarantee,
            "valid_from": policy.valid_from,
        },
    }
