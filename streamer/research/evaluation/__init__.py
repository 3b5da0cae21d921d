"""The paper's tables on response clouds, and what they mean: functions, and plain results.

`evaluate` does it all; `scored_data_sets`, `judged_data_sets` and `evaluated` are its steps.
"""

from streamer.clouds.spreads import Spread
from streamer.research.evaluation.data_sets import DataSet, read_data_set
from streamer.research.evaluation.results import (
    CoverageRisk,
    DataSetResult,
    Evaluation,
    FigureInterval,
    GateRow,
    Options,
    RankingRow,
    ScorerRow,
    StabilityRow,
)
from streamer.research.evaluation.steps import (
    Encoding,
    evaluate,
    evaluated,
    judged_data_sets,
    scored_data_sets,
)

__all__ = [
    "CoverageRisk",
    "DataSet",
    "DataSetResult",
    "Encoding",
    "Evaluation",
    "FigureInterval",
    "GateRow",
    "Options",
    "RankingRow",
    "ScorerRow",
    "Spread",
    "StabilityRow",
    "evaluate",
    "evaluated",
    "judged_data_sets",
    "read_data_set",
    "scored_data_sets",
]
