"""Monitoring: what the audit sample says of the risk in service, and alarms. Pure: no I/O, no clock, no randomness.

Every state is immutable, small whatever it has read, and JSON to the last bit, so that it can live in a database.
"""

from streamer.risk.states.alarm import LabelAlarm, RiskAlarm, SelectiveAlarm
from streamer.risk.states.decisions import AuditedDecision, AuditedDecisions, NotSampled
from streamer.risk.states.drawn_bets import Draw, DrawnBets
from streamer.risk.states.draws import DrawAlarm
from streamer.risk.states.drift import DriftAlarm
from streamer.risk.states.early import EarlyWarning
from streamer.risk.states.exposure import ExposurePlan, ExposureSequence, IntervalPath
from streamer.risk.states.interval import BudgetBurn, RiskInterval, budget_burn, with_unread
from streamer.risk.states.open_time import OpenTime
from streamer.risk.states.restarted_bets import RestartedBets

__all__ = [
    "AuditedDecision",
    "AuditedDecisions",
    "BudgetBurn",
    "Draw",
    "DrawAlarm",
    "DrawnBets",
    "DriftAlarm",
    "EarlyWarning",
    "ExposurePlan",
    "ExposureSequence",
    "IntervalPath",
    "LabelAlarm",
    "NotSampled",
    "OpenTime",
    "RestartedBets",
    "RiskAlarm",
    "RiskInterval",
    "SelectiveAlarm",
    "budget_burn",
    "with_unread",
]
