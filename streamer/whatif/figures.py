"""What a way of deciding would have shipped, and what that would have cost, by inverse propensity of the audit draw.

The audit draws batches before anyone knows what becomes of them, held ones too, each with a probability that is on record.
So the labels of the drawn ones, each with weight 1/p, estimate without bias what *any* way of deciding the same batches
costs. The interval is that of the risk in service (`streamer.risk.states.open_time`): over what ships, valid at all times at
once, also where the audit was raised while labels looked bad. A label that is missing counts 0 in its lower and 1 in its upper bound.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.claims import claim_loss
from streamer.gates.declared import Unit
from streamer.risk.states import AuditedDecisions, ExposurePlan, OpenTime, RiskInterval
from streamer.whatif.past import Past

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One way of deciding the prompts of a past.

    `served` : share of prompts of which something ships, in [0, 1]: counted, so exact. `shipped` :
    share of the responses that ships, in [0, 1], each prompt counting once; with the units `best`
    and `batch` it is `served`. `answers` : responses that ship, of which drawn ones with a label
    are `labelled`. `exposure` : average harm per prompt, held ones counting 0. `selective` : error
    rate among what ships. Both intervals hold together.
    """

    prompts: int
    served: float
    shipped: float
    answers: int
    labelled: int
    exposure: RiskInterval
    selective: RiskInterval


def figures(
    past: Past, ships: Flags, *, unit: Unit, alpha: float, delta: float, loss: str = "any"
) -> Figures:
    """Say what shipping these responses of the past, marked in shape (m,), would have meant.

    `unit` : what ships as one; it says which responses of a batch the audit asks labels for. `loss`
    : what a prompt loses by the claims that ship, with the unit `claim`. `alpha` : the budget of
    one attempt, in (0, 1): where the interval is to be narrow, nothing else. `delta` : chance that
    an interval is wrong, in (0, 1).
    """
    shares = shares_shipped(past, ships, unit)
    open_time = risk(past, ships, unit=unit, alpha=alpha, delta=delta, loss=loss)
    return Figures(
        prompts=len(past),
        served=float((shares > 0).mean()) if len(past) else 0.0,
        shipped=float(shares.mean()) if len(past) else 0.0,
        answers=int(ships.sum()),
        labelled=open_time.answers,
        exposure=open_time.exposure(),
        selective=open_time.selective(),
    )


def shares_shipped(past: Past, ships: Flags, unit: Unit) -> NDArray[np.float64]:
    """The share of each batch that ships: shape (n,); 0 or 1 with the units `best` and `batch`."""
    counts = past.by_batch(ships)
    return counts / np.maximum(1, past.sizes) if unit == "response" else (counts > 0).astype(np.float64)


def risk(past: Past, ships: Flags, *, unit: Unit, alpha: float, delta: float, loss: str = "any") -> OpenTime:
    """Read the past into an interval; parameters as for `figures`."""
    rows = watched(past)
    decisions = audited(past, ships, unit, loss).where(rows)
    # By the gate's own probability, which knows no label: a raised one is higher and follows the labels.
    base = np.where(past.scored, np.minimum(past.base_probability, past.probability), past.base_probability)[
        rows
    ]
    plan = ExposurePlan(
        delta=delta,
        least_probability=float(base.min()) if len(base) else 1.0,
        planned_labels=max(1, round(float(base[decisions.shipped > 0].sum()))),
        prior_mean=alpha,
    )
    labelled = ships & past.drawn & ~np.isnan(past.severities) & np.repeat(rows, past.sizes)
    return OpenTime.begin(plan).observe(decisions, answers=int(labelled.sum()))


def watched(past: Past) -> Flags:
    """Which prompts the audit could have drawn, or were held without scores while there was an audit: shape (n,).

    Nothing is known of the others. One that was certain to be drawn and was not is left out as well, as monitoring does.
    """
    certain = (past.probability == 1) & ~past.sampled
    found: Flags = (past.base_probability > 0) & ~certain & (~past.scored | (past.probability > 0))
    return found


def audited(past: Past, ships: Flags, unit: Unit, loss: str = "any") -> AuditedDecisions:
    """The past as monitoring reads decisions, had these responses shipped: n rows.

    A loss is the mean over the drawn responses of severity where they ship and 0 where not, or that
    of the claims that ship. It is unknown where it rests on a label that is missing, and with the
    unit `best` where what ships is not what was drawn.
    """
    needed = ships & past.drawn
    missing = needed & np.isnan(past.severities)
    if unit == "best":
        missing |= ships & ~past.drawn
    unknown = past.by_batch(missing) > 0
    harm = np.where(needed & ~np.isnan(past.severities), past.severities, 0.0)
    drawn = past.by_batch(past.drawn)
    losses = np.bincount(past.batch_of, weights=harm, minlength=len(past)) / np.maximum(1, drawn)
    if unit == "claim":
        losses, highest = (_of_claims(past, needed, loss, missing=one) for one in (0.0, 1.0))
        unknown = losses < highest
    shares = shares_shipped(past, ships, unit)
    known = past.sampled & ~unknown & ((drawn > 0) | (shares == 0))
    # Not up for the draw and held: as monitoring has it, one that was not drawn, or where all are, one that was.
    always = ~past.scored & (past.base_probability == 1)
    probability = np.where(past.scored, past.probability, past.base_probability)
    return AuditedDecisions.of(
        probability=np.where(probability > 0, probability, 0.5),  # of rows that `watched` leaves out
        sampled=(past.sampled & past.scored) | always | (probability == 1),
        labelled=(known & past.scored) | always,
        loss=np.where(known & past.scored, np.minimum(1.0, losses), 0.0),
        shipped=shares,
    )


def _of_claims(past: Past, ships: Flags, loss: str, *, missing: float) -> NDArray[np.float64]:
    """What each batch loses where these drawn claims ship, shape (n,); `missing`: without a label."""
    severities = np.where(np.isnan(past.severities), missing, past.severities)
    found, sizes, drawn = np.zeros(len(past)), past.by_batch(past.drawn), past.drawn
    if drawn.any():
        starts = (np.cumsum(sizes) - sizes)[sizes > 0]
        found[sizes > 0] = claim_loss(loss).of_each(severities[drawn], ships[drawn], starts)
    return found
