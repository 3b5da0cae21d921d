"""A language model as judge: a rubric, one strict reply, and its rating as a score (Q_J) or a severity (JS).

Asking needs the extra ``judge``; everything else here does not.
"""

from streamer.labels.judge.client import JudgeClient
from streamer.labels.judge.endpoint import JudgeEndpoint
from streamer.labels.judge.marks import AnsweredQuestion, Marked, judge_scores, judge_severities
from streamer.labels.judge.parsing import JudgeVerdict, MalformedReply, parse_verdict
from streamer.labels.judge.record import JudgeFailure, Judgement
from streamer.labels.judge.rubric import JudgeCase
from streamer.labels.llm.record import Exchange, Price, TokenUsage

__all__ = [
    "AnsweredQuestion",
    "Exchange",
    "JudgeCase",
    "JudgeClient",
    "JudgeEndpoint",
    "JudgeFailure",
    "JudgeVerdict",
    "Judgement",
    "MalformedReply",
    "Marked",
    "Price",
    "TokenUsage",
    "judge_scores",
    "judge_severities",
    "parse_verdict",
]
