"""GPSO, the paper's classifier of response batches: projectors, prototypes, diagnostics, pipelines A to D. Pure.

It learns from labelled responses what the good and the bad ones look like, unlike the gate's score, which needs no
labels; nothing of the gate depends on it.
"""

from streamer.gpso.classifier import Classifier, Verdict, fit_batches, fit_rows
from streamer.gpso.diagnostics import Diagnostics, diagnose
from streamer.gpso.figures import Estimate, Figures, figures
from streamer.gpso.methods import Gpso, NearestMean, Tightness
from streamer.gpso.protocols import Outcomes, judge_across, judge_within
from streamer.gpso.questions import Question
from streamer.gpso.scatter import PIPELINES, Pipeline

__all__ = [
    "PIPELINES",
    "Classifier",
    "Diagnostics",
    "Estimate",
    "Figures",
    "Gpso",
    "NearestMean",
    "Outcomes",
    "Pipeline",
    "Question",
    "Tightness",
    "Verdict",
    "diagnose",
    "figures",
    "fit_batches",
    "fit_rows",
    "judge_across",
    "judge_within",
]
