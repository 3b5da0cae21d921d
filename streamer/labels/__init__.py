"""Severities from people and programs: which batches and responses are labelled, and with what.

`streamer.labels.bertscore.BertScorer` is the scorer that `factuality_severities` takes; it needs the extra
``bertscore``.
"""

from streamer.labels.kinds.bertscore import ReferencedAnswer, SimilarityScorer, factuality_severities
from streamer.labels.kinds.lexical import lexical_severity
from streamer.labels.severity import Severity, judge_severity
from streamer.scoring.answer_head import answer_head

__all__ = [
    "ReferencedAnswer",
    "Severity",
    "SimilarityScorer",
    "answer_head",
    "factuality_severities",
    "judge_severity",
    "lexical_severity",
]
