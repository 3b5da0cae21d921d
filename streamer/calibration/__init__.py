"""Calibration: labelled groups in, a threshold with a guarantee out. Pure: no I/O, no clock, no global randomness."""

from streamer.calibration.crc import calibrate, calibrate_groups
from streamer.calibration.groups import LabelledGroup
from streamer.calibration.guarantee import groups_needed
from streamer.calibration.loss_curve import LossCurve
from streamer.calibration.threshold import Threshold

__all__ = [
    "LabelledGroup",
    "LossCurve",
    "Threshold",
    "calibrate",
    "calibrate_groups",
    "groups_needed",
]
