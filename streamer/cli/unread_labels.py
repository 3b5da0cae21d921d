"""How labels that are recorded and not read look in a terminal and in JSON."""

from typing import TYPE_CHECKING

from streamer.cli.console import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamer.gates.settings import GateSettings
    from streamer.store.labels.read_labels import UnreadLabels


def unread_text(unread: "UnreadLabels") -> str:
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


def labels_fields(settings: "GateSettings", unread: "UnreadLabels | None") -> dict[str, str]:
    """Return fields that say whose labels a gate reads, where it does not read everybody's, and how many it does not."""
    fields = {}
    if settings.labellers is not None or settings.signed_labels:
        whose = "everybody" if settings.labellers is None else ", ".join(settings.labellers)
        fields["labels by"] = whose + (", signed" if settings.signed_labels else "")
    if unread is not None:
        fields["not read"] = unread_text(unread)
    return fields


def unread_json(unread: "Mapping[str, UnreadLabels]") -> dict[str, dict[str, int]]:
    """Return the same as JSON values, by gate."""
    return {gate: {"other_labellers": one.others, "unsigned": one.unsigned} for gate, one in unread.items()}
