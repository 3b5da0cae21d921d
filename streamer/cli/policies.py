"""How gates, policies, their signatures, verdicts and labels that are not read look in a terminal and in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from streamer.cli.console import counted, picked, print_table
from streamer.gates.policy import GateRevision, Policy
from streamer.gates.rule import Cut, rule_to_json
from streamer.gates.settings import GateSettings
from streamer.risk.rounds.report import RiskReport
from streamer.signing.policies import PolicyKeys, PolicyVersion
from streamer.wording.policies import NOTHING_PROMISED, guarantee_text, own_cuts, threshold_text
from streamer.wording.verdicts import figures

if TYPE_CHECKING:
    from rich.text import Text

    from streamer.store.labels.read_labels import UnreadLabels

NO_GATE = "There is no gate yet; create one with `streamer gate create NAME`."

_STYLES = {"closed": "red", "cut": "green", "open": "yellow", "full": "green"}

EXPLAIN = "--explain says on what basis, under which assumptions, and what is not promised"

_SHORT_ID = 12
"""This much of a key's id is unique within one installation."""


def styled_threshold(policy: Policy) -> Text:
    """`threshold_text`, coloured by how much ships."""
    from rich.text import Text

    state = "cut" if own_cuts(policy.rule) else policy.state
    return Text(threshold_text(policy), style=_STYLES[state])


def promise_text(guarantee: str, *, explain: bool) -> str:
    """Return a guarantee in full, or what holds and a word on how to read the rest; or that there is none."""
    parts = guarantee_text(guarantee) or NOTHING_PROMISED
    if explain or "\n" not in parts:
        return parts
    return f"{parts.partition(chr(10))[0]}\n{EXPLAIN}."


def cut_json(cut: Cut) -> dict[str, Any]:
    """Return a threshold as JSON values; `lambda` is null unless the state is cut."""
    return {"state": cut.state, "lambda": cut.threshold}


def policy_json(policy: Policy) -> dict[str, Any]:
    """Return a policy as JSON values; `lambda` is null unless the state is cut."""
    return {
        **picked(policy, "gate gate_revision calibration_run reason"),
        **_state_json(policy),
        "rule": rule_to_json(policy.rule) | {"curve": None},
        "by": policy.created_by,
        **policy.settings.flat(),
    }


def _state_json(policy: Policy) -> dict[str, Any]:
    return picked(policy, "version state calibrated guarantee valid_from") | {"lambda": policy.threshold}


def gate_json(revision: GateRevision, policy: Policy) -> dict[str, Any]:
    """Return a gate as JSON values: its settings, and its newest policy under `policy`. The audit salt stays secret."""
    return {
        **picked(revision, "gate revision seed created_at reason"),
        "by": revision.created_by,
        **revision.settings.flat(),
        "policy": _state_json(policy),
    }


def signature_state(found: PolicyVersion, keys: PolicyKeys) -> str:
    """Return `good`, `unchecked` (no public key is configured here), `unsigned`, or why the policy is refused."""
    refusal = keys.refusal(found)
    if refusal is not None:
        return refusal
    if found.signature is None:
        return "unsigned"
    return "good" if keys.demanded else "unchecked"


def signature_text(found: PolicyVersion, keys: PolicyKeys) -> str:
    """Say who signed a policy, in a few words."""
    by = f"key {(found.key_id or 'unknown')[:_SHORT_ID]}"
    return {
        "good": f"signed, {by}",
        "unchecked": f"signed, {by}, not checked",
        "unsigned": "not signed",
        "unknown_key": f"UNKNOWN {by}",
        "bad_signature": "BAD SIGNATURE",
        "unreadable": "UNREADABLE",
    }[signature_state(found, keys)]


def styled_signature(found: PolicyVersion, keys: PolicyKeys) -> Text:
    """`signature_text`, red where a worker with the same keys refuses the policy."""
    from rich.text import Text

    style = "bold red" if keys.refusal(found) is not None else ""
    return Text(signature_text(found, keys), style=style)


def signature_json(found: PolicyVersion, keys: PolicyKeys) -> dict[str, object]:
    """Return the same as JSON values."""
    return {"signature": {"state": signature_state(found, keys), "key_id": found.key_id}}


def verdict_json(report: RiskReport | None) -> dict[str, Any]:
    """Return the verdict, and what it rests on, as fields for the JSON of other commands."""
    if report is None or report.service is None:
        return {"verdict": None, "service": None}
    return {"verdict": report.verdict, "service": asdict(report.service)}


def print_figures(report: RiskReport) -> None:
    """Print the policy in force, the period and what was before side by side."""
    found = figures(report)
    if found is not None:
        print_table(["while the gate was open", *found.columns], found.rows)


def unread_text(unread: UnreadLabels) -> str:
    """Say how many labels are not read, and why."""
    reasons = [
        text
        for count, text in (
            (unread.others, f"{unread.others} by labellers that the gate does not read"),
            (unread.unsigned, f"{unread.unsigned} without a signature that a key here verifies"),
        )
        if count
    ]
    return f"{counted(unread.total, 'label is', 'labels are')} not read: {', '.join(reasons)}"


def labels_fields(settings: GateSettings, unread: UnreadLabels | None) -> dict[str, str]:
    """Return fields that say whose labels a gate reads, where it does not read everybody's, and how many it does not."""
    fields = {}
    if settings.labellers is not None or settings.signed_labels:
        whose = "everybody" if settings.labellers is None else ", ".join(settings.labellers)
        fields["labels by"] = whose + (", signed" if settings.signed_labels else "")
    if unread is not None:
        fields["not read"] = unread_text(unread)
    return fields


def unread_json(unread: Mapping[str, UnreadLabels]) -> dict[str, dict[str, int]]:
    """Return the same as JSON values, by gate."""
    return {gate: {"other_labellers": one.others, "unsigned": one.unsigned} for gate, one in unread.items()}
