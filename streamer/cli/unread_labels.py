"""How labels that are recorded and not read look in a terminal and in JSON."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamer.store.read_labels import UnreadLabels


def unread_text(unread: "UnreadLabels") -> str:
    """Say how many labels are not read, and why."""
    from streamer.cli.console import counted

    reasons = [
        text
        for count, text in (
            (unread.others, f"{unread.others} by labellers that the gate does not name"),
            (unread.unsigned, f"{unread.unsigned} without a signature that is valid here"),
        )
        if count
    ]
    return f"{counted(unread.total, 'label is', 'labels are')} not read: {', '.join(reasons)}"


def unread_json(unread: "Mapping[str, UnreadLabels]") -> dict[str, dict[str, int]]:
    """Return the same as JSON values, by gate."""
    return {gate: {"other_labellers": one.others, "unsigned": one.unsigned} for gate, one in unread.items()}
