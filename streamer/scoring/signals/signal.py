"""What a signal is: one number for each answer of a batch, without a label. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.signals.measured import Measured

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Signal:
    """One signal. A signal never changes what it measures: a better one has another name.

    Attributes
    ----------
    name : 1 to 40 of a-z, 0-9 and ``_``.
    title : for tables, in a few words.
    says : what a high value means, as the rest of a sentence that begins "The answer".
    mean, deviation : its scale, frozen: of all answers of public response clouds, two digits. `streamer_research.studies.signal_scales
        --scales` computes them.
    measure : of a batch: n numbers, or one that holds for all answers.
    of_embeddings : whether it is made of them.
    of_others : whether it compares the answer with the others.
    """

    name: str
    title: str
    says: str
    mean: float
    deviation: float
    measure: Callable[[Measured], Floats | float]
    of_embeddings: bool = False
    of_others: bool = False

    def of(self, batch: Measured) -> Floats:
        """Return shape (n,), as measured, not scaled; computed once a batch. The mean, where what it needs is not there: other
        answers, or embeddings of what the encoder has read.
        """
        if (self.of_others and batch.size < 2) or (self.of_embeddings and not batch.batch.embedded):
            return np.full(batch.size, self.mean)
        return batch.once(self.name, lambda: np.zeros(batch.size) + self.measure(batch))


def signal(
    name: str,
    title: str,
    says: str,
    *,
    mean: float,
    deviation: float,
    of_embeddings: bool = False,
    of_others: bool = False,
) -> Callable[[Callable[[Measured], Floats | float]], Signal]:
    """Make a signal of the function that measures it."""
    return lambda measure: Signal(name, title, says, mean, deviation, measure, of_embeddings, of_others)
