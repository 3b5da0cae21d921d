"""Which labelled prompts may fit a learned score, and which calibrate it. Pure.

A keyed hash of the batch puts it into one of two folds permanently. It is the batch that is hashed, and not the prompt's text:
each batch then goes to either fold by a coin of its own, so that those which calibrate are as good a sample of what comes as
all of them. A hash of the text would leave a prompt that is asked often to one fold, and calibrate without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from streamer.gates.keyed_hash import keyed_bits
from streamer.scoring.registry import GRAM, is_learned

if TYPE_CHECKING:
    from streamer.gates.settings import GateSettings

Fold = Literal["fit", "calibrate"]

_FIT_BELOW = 2**63


def fold_of(salt: bytes, gate: str, batch_id: str) -> Fold:
    """Return the fold of a batch: `fit` or `calibrate`, half of all each.

    Parameters
    ----------
    salt : of the gate's audit, which nobody else knows.
    batch_id : every attempt at it has the same fold.
    """
    return "fit" if keyed_bits(salt, "fold", gate, batch_id) < _FIT_BELOW else "calibrate"


def cannot_learn(settings: GateSettings) -> str | None:
    """Say why a gate of these settings cannot have a learned score; None when it can."""
    if settings.unit == "batch":
        return "a learned score goes with the units best and response: a batch is shipped by its mean"
    if settings.scorer != GRAM and not is_learned(settings.scorer):
        return f"a gate begins with the scorer {GRAM} and changes to a learned score from there; this one has {settings.scorer}"
    if settings.label_floor is not None:
        return (
            f"its label floor {settings.label_floor:g} is of the scores that it has, and a learned score has others: remove it with "
            "`streamer gate set GATE --label-floor none`, label what was below it, and fit then"
        )
    if settings.external_encoder:
        return f"the embeddings of {settings.encoder} come with events and are not kept: nothing can be learned from them"
    return None
