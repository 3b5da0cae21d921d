"""How the signature of a policy looks in a terminal and in JSON."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

    from streamer.signing.policies import PolicyKeys, PolicyVersion

_SHORT = 12
"""This much of a key's id is unique within one installation."""


def signature_state(found: "PolicyVersion", keys: "PolicyKeys") -> str:
    """Return `good`, `unchecked` (no public key is configured here), `unsigned`, or why the policy is refused."""
    refusal = keys.refusal(found)
    if refusal is not None:
        return refusal
    if found.signature is None:
        return "unsigned"
    return "good" if keys.demanded else "unchecked"


def signature_text(found: "PolicyVersion", keys: "PolicyKeys") -> str:
    """Say who signed a policy, in a few words."""
    by = f"key {(found.key_id or 'unknown')[:_SHORT]}"
    return {
        "good": f"signed, {by}",
        "unchecked": f"signed, {by}, not checked",
        "unsigned": "not signed",
        "unknown_key": f"UNKNOWN {by}",
        "bad_signature": "BAD SIGNATURE",
        "unreadable": "UNREADABLE",
    }[signature_state(found, keys)]


def styled_signature(found: "PolicyVersion", keys: "PolicyKeys") -> "Text":
    """`signature_text`, red where a worker with the same keys refuses the policy."""
    from rich.text import Text

    style = "bold red" if keys.refusal(found) is not None else ""
    return Text(signature_text(found, keys), style=style)


def signature_json(found: "PolicyVersion", keys: "PolicyKeys") -> dict[str, object]:
    """Return the same as JSON values."""
    return {"signature": {"state": signature_state(found, keys), "key_id": found.key_id}}
