"""Monitoring: what the audit sample says of the risk in service, and alarms. Pure: no I/O, no clock, no randomness.

Every state is immutable, small whatever it has read, and JSON to the last bit, so that it can live in a database.
"""

from streamer.monitoring.alarm import RiskAlarm
from streamer.monitoring.cloud import cloud_centre, cosine_to_centre, mean_pairwise_cosine
from streamer.monitoring.decisions import AuditedDecision, AuditedDecisions
from streamer.monitoring.draws import DrawAlarm
from streamer.monitoring.drift import DriftAlarm
from streamer.monitoring.exposure import ExposurePlan, ExposureSequence, IntervalPath
from streamer.monitoring.interval import BudgetBurn, RiskInterval, budget_burn
from streamer.monitoring.restarted_bets import RestartedBets

__all__ = [
    "AuditedDecision",
    "AuditedDecisions",
    "BudgetBurn",
    "DrawAlarm",
    "DriftAlarm",
    "ExposurePlan",
    "ExposureSequence",
    "IntervalPath",
    "RestartedBets",
    "RiskAlarm",
    "RiskInterval",
    "budget_burn",
    "cloud_centre",
    "cosine_to_centre",
    "mean_pairwise_cosine",
]
