"""What the record says of one decision, as watching reads it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import fsum

import numpy as np

from streamer.calibration.claims import claim_loss
from streamer.gates.declared import Unit
from streamer.gates.settings import GateSettings
from streamer.risk.states import AuditedDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedDecision:
    """One decided batch, a first attempt.

    Attributes
    ----------
    number : its place in the order of the record, from 1, without regard to draws and labels.
    batch_id : as the publisher named it.
    policy_version : the policy that decided.
    settings : that policy's.
    run : the calibration run that its threshold came from; None for none.
    can_ship : whether that policy ships anything at all; a closed gate does not.
    decided_at : as the worker's clock said.
    scored : whether there were scores. What was not scored was held, and could not be drawn.
    sampled, probability : the audit draw, and its logged probability; 0 where there was none.
    shipped : share of its responses that shipped, in [0, 1]; of claims whether any did.
    score : the number that the gate cuts: the best of the scores for the unit `best`, else their mean; None where
        it was not scored.
    cloud : what its embeddings amount to; None where nothing is on record.
    drawn : number of its responses that the audit sample took.
    needed : of these the ones that shipped, whose severity is needed.
    severities : of the needed ones, as far as they are there.
    labelled_at : when the last of the needed severities was there, or the first that decides the loss; None while one
        is missing, or none is needed.
    predicted : mean over all its responses of what a judge says of those that shipped, held ones counting 0; None
        while the judge has not seen them all.
    needed_budget : the smallest budget with which it would have shipped; None where its policy does not say.
    """

    number: int
    batch_id: str
    policy_version: int
    settings: GateSettings
    run: int | None
    can_ship: bool
    decided_at: datetime
    scored: bool
    sampled: bool
    probability: float
    shipped: float
    score: float | None = None
    cloud: tuple[float, ...] | None = None
    drawn: int = 0
    needed: int = 0
    severities: tuple[float, ...] = ()
    labelled_at: datetime | None = None
    predicted: float | None = None
    needed_budget: float | None = None

    @property
    def early_mark(self) -> float | None:
        """What an early warning reads of it, 0 or 1, where it shipped something; None while that is not known."""
        if self.settings.early == "judge":
            return None if self.predicted is None else float(2 * self.predicted >= self.shipped)
        budget = self.settings.alpha / self.settings.max_attempts
        return None if self.needed_budget is None else float(2 * self.needed_budget > budget)

    @property
    def watched(self) -> bool:
        """Whether the audit sample could have taken it, or it was held without scores at a gate with such a sample."""
        return self.settings.audit_probability > 0 and (self.probability > 0 or not self.scored)

    @property
    def contradictory(self) -> bool:
        """Whether the record says that its draw was certain, and that it was not taken: only the draw alarm reads it."""
        return self.probability == 1 and not self.sampled

    @property
    def labelled(self) -> bool:
        """Whether its loss is known: every severity that is needed is there, or one decides it."""
        decided = self.settings.until_wrong and 1 in self.severities
        return decided or len(self.severities) == self.needed

    @property
    def overdue(self) -> bool:
        """Whether it was drawn, shipped something of what was drawn, and a severity is missing."""
        return self.sampled and not self.labelled

    @property
    def loss(self) -> float | None:
        """The mean over what was drawn of severity where it shipped and 0 where not, of claims the
        loss of those that shipped; None while that is not known.
        """
        if not self.sampled or not self.labelled or not self.drawn:
            return None
        return self._loss_by(self.severities)

    @property
    def most(self) -> float:
        """The loss if all that shipped of what was drawn were wrong; it was drawn."""
        return self._loss_by((1.0,) * self.needed)

    def _loss_by(self, severities: tuple[float, ...]) -> float:
        if self.settings.unit != "claim":
            return fsum(severities) / self.drawn
        padded = np.array(severities + (0.0,) * (self.drawn - len(severities)))
        return claim_loss(self.settings.loss).at(padded, np.arange(self.drawn) < self.needed)

    def audited(self) -> AuditedDecision:
        """Say it as monitoring reads it, with what is known of its loss now.

        One that was held without scores was not up for the draw: its loss is 0 whatever a draw had said. It is given
        as one that was not drawn, or, where all are, as one that was.
        """
        if not self.scored:
            least = self.settings.audit_probability
            return AuditedDecision(least, sampled=least == 1, loss=0.0 if least == 1 else None, shipped=0.0)
        return AuditedDecision(
            self.probability,
            sampled=self.sampled,
            loss=self.loss,
            shipped=self.shipped,
            predicted=0.0 if self.predicted is None else self.predicted,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a sequence is about; another of any of these is another sequence. `budget` bounds the
    exposure risk of a first attempt: alpha over the attempts that a prompt may have.
    """

    unit: Unit
    loss: str
    scorer: str
    severity_kind: str
    budget: float
    delta: float
    period_days: float
    judge_kind: str | None

    @classmethod
    def of(cls, settings: GateSettings) -> Terms:
        """Return the terms of a gate's settings."""
        return cls(
            unit=settings.unit,
            loss=settings.loss,
            scorer=settings.scorer,
            severity_kind=settings.severity_kind,
            budget=settings.alpha / settings.max_attempts,
            delta=settings.monitor_delta,
            period_days=settings.budget_period_days,
            judge_kind=settings.judge_kind,
        )

    def begin(self, before: datetime, moment: datetime) -> datetime:
        """When the budget period of a moment began, where one began at `before`."""
        period = timedelta(days=self.period_days)
        return before + (moment - before) // period * period
