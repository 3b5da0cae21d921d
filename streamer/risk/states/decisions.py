"""What monitoring reads: decisions whose label deadline has passed, in an order that no label had a say in."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamer.calibration.arguments import unit_interval

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class AuditedDecision(NamedTuple):
    """One decided batch, older than the label deadline.

    `probability`: the chance, logged with the decision, that the audit sample would take it; in (0,
    1]. `sampled`: whether it was taken. `loss`: severity that it shipped, in [0, 1], 0 if nothing
    shipped: the mean over its drawn responses of severity where shipped and 0 where held. None
    where it was not sampled, and where the label had not come at the deadline. `shipped`: share of
    its responses (for the units `best` and `batch`: 0 or 1) that shipped, in [0, 1]. `predicted`:
    the loss that a judge predicts for it, in [0, 1], made without knowing `sampled`. Only sequences
    with a judge read it.
    """

    probability: float
    sampled: bool
    loss: float | None = None
    shipped: float = 1.0
    predicted: float = 0.0


class NotSampled(NamedTuple):
    """Consecutive decisions that the audit sample could have taken with one `probability`, and did
    not; `shipped` of each, as in `AuditedDecision`.
    """

    probability: float
    shipped: list[float]


@dataclass(frozen=True, slots=True, eq=False)
class AuditedDecisions:
    """Decisions in columns, one row each, shape (n,), in the order in which they were made.

    The order must be fixed without regard to draws and labels; the order of decisions is, the order
    in which labels arrive is not (severities that arrive early differ from those that arrive late).
    Labels that somebody's complaint brought about are no audit labels: a loss without a draw is
    refused. `labelled`: sampled, and the loss was known at the deadline. Probabilities lie in (0,
    1], the other numbers in [0, 1]; `loss` is 0 where not labelled, `predicted` where nothing
    shipped.
    """

    probability: Floats
    sampled: Flags
    labelled: Flags
    loss: Floats
    shipped: Floats
    predicted: Floats

    @classmethod
    def of(
        cls,
        *,
        probability: ArrayLike,
        sampled: ArrayLike,
        labelled: ArrayLike,
        loss: ArrayLike,
        shipped: ArrayLike = 1.0,
        predicted: ArrayLike = 0.0,
    ) -> "AuditedDecisions":
        """Make decisions from columns; `probability`, `shipped` and `predicted` may be one number for all.

        Raises `ValueError` if a column is not of the others' length or holds NaN or a number out of
        range; if a probability is 0; if a decision with probability 1 was not sampled; if a loss
        has no draw or no label; if something that shipped nothing has a loss.
        """
        drawn = _flags("sampled", sampled)
        size = drawn.size
        columns = cls(
            probability=_column("probability", probability, size),
            sampled=drawn,
            labelled=_flags("labelled", labelled),
            loss=_column("loss", loss, size),
            shipped=_column("shipped", shipped, size),
            predicted=_column("predicted", predicted, size),
        )
        if columns.labelled.size != size:
            raise ValueError(f"labelled must have {size} rows like sampled, not {columns.labelled.size}")
        _refuse("probability must be above 0 and at most 1", columns.probability == 0)
        _refuse(
            "a probability of 1 was logged for a decision that was not sampled",
            (columns.probability == 1) & ~drawn,
        )
        _refuse("only decisions of the audit sample may bring a label", columns.labelled & ~drawn)
        _refuse("a loss needs a label", (columns.loss > 0) & ~columns.labelled)
        _refuse("a decision that shipped nothing has no loss", (columns.loss > 0) & (columns.shipped == 0))
        columns.predicted[columns.shipped == 0] = 0.0
        return columns

    @classmethod
    def of_pieces(cls, pieces: Iterable[AuditedDecision | NotSampled]) -> "AuditedDecisions":
        """Make decisions from single ones and runs of them, in their order; there may be none.

        Raises `ValueError` as `of` does.
        """
        rows: list[tuple[float, bool, bool, float, float, float]] = []
        for one in pieces:
            if isinstance(one, NotSampled):
                rows += [(one.probability, False, False, 0.0, shipped, 0.0) for shipped in one.shipped]
                continue
            if type(one.sampled) is not bool:
                raise ValueError(f"sampled must be true or false; position {len(rows)} holds {one.sampled!r}")
            known, loss = one.loss is not None, one.loss or 0.0
            rows.append((one.probability, one.sampled, known, loss, one.shipped, one.predicted))
        columns = zip(*rows, strict=True) if rows else [()] * 6
        return cls.of(**dict(zip(cls.__dataclass_fields__, columns, strict=True)))

    def __len__(self) -> int:
        return int(self.sampled.size)

    def where(self, rows: Flags) -> "AuditedDecisions":
        """Return the marked ones, in their order."""
        return replace(self, **{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})

    @property
    def weight(self) -> Floats:
        """1/probability where sampled, else 0: shape (n,)."""
        return np.where(self.sampled, 1 / self.probability, 0.0)

    @property
    def overdue(self) -> Flags:
        """Sampled, shipped something, and no label at the deadline: shape (n,)."""
        flags: Flags = self.sampled & ~self.labelled & (self.shipped > 0)
        return flags

    @property
    def least_loss(self) -> Floats:
        """The loss where it is known, 0 where its label is overdue: shape (n,)."""
        return self.loss

    @property
    def most_loss(self) -> Floats:
        """The loss where it is known, 1 where its label is overdue: shape (n,)."""
        return np.where(self.overdue, 1.0, self.loss)


def _column(name: str, values: ArrayLike, size: int) -> Floats:
    array = np.asarray(values)
    if array.ndim == 0:
        array = np.repeat(array, size)
    if array.shape != (size,):
        raise ValueError(f"{name} must have {size} rows like sampled, not the shape {array.shape}")
    return unit_interval(name, array).copy() if size else np.empty(0)


def _flags(name: str, values: ArrayLike) -> Flags:
    array = np.asarray(values) if np.size(values) else np.empty(0, dtype=np.bool_)
    if array.dtype != np.bool_ or array.ndim != 1:
        raise ValueError(f"{name} must be a column of true and false")
    return array


def _refuse(why: str, rows: Flags) -> None:
    if rows.any():
        raise ValueError(f"{why}; see position {int(rows.argmax())}")
