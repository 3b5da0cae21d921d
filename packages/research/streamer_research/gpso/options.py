"""What a study of GPSO depends on besides its clouds and their embeddings."""

from dataclasses import dataclass

from streamer.errors import UsageError
from streamer_research.gpso.classifier import DEFAULT_RANK_CAP
from streamer_research.gpso.logistic import LogisticRegression
from streamer_research.gpso.methods import Gpso, Method, NearestMean, Tightness
from streamer_research.gpso.protocols import DEFAULT_FOLDS, DEFAULT_SPLITS
from streamer_research.gpso.prototypes import DEFAULT_REPLICATES
from streamer_research.gpso.questions import DEFAULT_MIN_PER_CLASS, DEFAULT_TRAIN_SHARE
from streamer_research.gpso.scatter import PIPELINES

DEFAULT_CUT = 0.5
MOST = 10_000
"""Splits, and replicates: more would not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """Everything that a study depends on besides its clouds and their embeddings.

    Attributes
    ----------
    cut : a response is good if its severity is at most this, in [0, 1); else bad.
    pipelines : keys out of ``A`` to ``D``, at least one.
    splits : of each question, within questions; at most `MOST`.
    loo : whether questions are left out as well.
    folds : groups of questions that are left out together; None: one by one.
    equal_sizes : whether judged batches are of one size; the paper's are not, and then sizes distinguish classes.
    distinct : of responses to one question with the same text only the first is used.
    min_per_class : responses that a question needs in a class for that class to be used, >= 2.
    train_share : of each class's responses, within questions; in (0, 1).
    replicates : the paper's B; at most `MOST`.
    rank_cap : the paper's r_max.
    seed : of splits, folds and bootstrap.
    """

    cut: float = DEFAULT_CUT
    pipelines: tuple[str, ...] = tuple(PIPELINES)
    splits: int = DEFAULT_SPLITS
    loo: bool = True
    folds: int | None = DEFAULT_FOLDS
    equal_sizes: bool = True
    distinct: bool = False
    min_per_class: int = DEFAULT_MIN_PER_CLASS
    train_share: float = DEFAULT_TRAIN_SHARE
    replicates: int = DEFAULT_REPLICATES
    rank_cap: int = DEFAULT_RANK_CAP
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = [key for key in self.pipelines if key not in PIPELINES]
        for wrong, message in (
            (not 0 <= self.cut < 1, f"the cut must be in [0, 1), not {self.cut:g}"),
            (not self.pipelines or bool(unknown), f"pipelines are A, B, C and D, not {', '.join(unknown)}"),
            (
                not 1 <= self.splits <= MOST,
                f"questions must be split at least once and at most {MOST:,} times, not {self.splits} times",
            ),
            (self.folds is not None and self.folds < 2, f"there must be at least 2 folds, not {self.folds}"),
            (
                self.min_per_class < 2,
                f"a class needs at least 2 responses to be split, not {self.min_per_class}",
            ),
            (
                not 0 < self.train_share < 1,
                f"the share to train on must be in (0, 1), not {self.train_share}",
            ),
            (
                not 1 <= self.replicates <= MOST,
                f"a prototype needs at least 1 replicate and takes at most {MOST:,}, not {self.replicates}",
            ),
            (self.rank_cap < 1, f"the largest rank must be at least 1, not {self.rank_cap}"),
        ):
            if wrong:
                raise UsageError(message)

    @property
    def methods(self) -> list[Method]:
        """The pipelines, then what they are compared with."""
        chosen: list[Method] = [
            Gpso(PIPELINES[key], replicates=self.replicates, rank_cap=self.rank_cap) for key in self.pipelines
        ]
        return [*chosen, LogisticRegression(), NearestMean(), Tightness()]


RIVALS = (LogisticRegression().name, NearestMean().name)
"""What GPSO is compared with by differences."""
