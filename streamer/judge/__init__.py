"""A language model as judge: a rubric, one strict reply, and its mark as a score (Q_J) or a severity (JS).

Asking needs the extra ``judge``; everything else here does not.
"""

from streamer.chat.record import Exchange, Price, TokenUsage
from streamer.judge.client import Judge
from streamer.judge.endpoint import JudgeEndpoint
from streamer.judge.marks import AnsweredQuestion, Marked, judge_scores, judge_severities
from streamer.judge.parsing import MalformedReply, Verdict, parse_verdict
from streamer.judge.record import JudgeFailure, Judgement
from streamer.judge.rubric import JudgeCase

__all__ = [
    "AnsweredQuestion",
    "Exchange",
    "Judge",
    "JudgeCase",
    "JudgeEndpoint",
    "JudgeFailure",
    "Judgement",
    "MalformedReply",
    "Marked",
    "Price",
    "TokenUsage",
    "Verdict",
    "judge_scores",
    "judge_severities",
    "parse_verdict",
]
