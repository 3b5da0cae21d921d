"""Which labelled prompts may fit a learned score, and which calibrate it. Pure.

A keyed hash of the batch puts it into one of two folds for ever. It is the batch that is hashed, and not the prompt's text:
each batch then goes to either fold by a coin of its own, so that those which calibrate are as good a sample of what comes as
all of them. A hash of the text would leave a prompt that is asked often to one fold, and calibrate without it.
"""

from __future__ import annotations

from typing import Literal

from streamer.gates.keyed_hash import keyed_bits

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
