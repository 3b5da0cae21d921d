"""GPSO, the paper's classifier of response batches: projectors, prototypes, diagnostics, pipelines A to D. Pure.

It learns from labelled responses what the good and the bad ones look like, unlike the gate's score, which needs no
labels; nothing of the gate depends on it.
"""

from streamer_research.gpso.classifier import Classification, Classifier, fit_batches, fit_rows
from streamer_research.gpso.diagnostics import Diagnostics, diagnose
from streamer_research.gpso.figures import Estimate, TaskFigures, figures
from streamer_research.gpso.methods import Gpso, NearestMean, Tightness
from streamer_research.gpso.protocols import Outcomes, judge_across, judge_within
from streamer_research.gpso.questions import Question
from streamer_research.gpso.scatter import PIPELINES, Pipeline

__all__ = [
    "PIPELINES",
    "Classification",
    "Classifier",
    "Diagnostics",
    "Estimate",
    "Gpso",
    "NearestMean",
    "Outcomes",
    "Pipeline",
    "Question",
    "TaskFigures",
    "Tightness",
    "diagnose",
    "figures",
    "fit_batches",
    "fit_rows",
    "judge_across",
    "judge_within",
]
