"""Calibration: labelled groups in, a threshold with a guarantee out. Pure: no I/O, no clock, no global randomness."""

from streamer.calibration.calibrators.age import calibrate_by_age
from streamer.calibration.calibrators.clt import calibrate_clt
from streamer.calibration.calibrators.pooled import calibrate_pooled
from streamer.calibration.calibrators.selective import calibrate_selective
from streamer.calibration.calibrators.transductive import TransductiveRule, prepare_transductive
from streamer.calibration.crc import calibrate, calibrate_groups
from streamer.calibration.groups import LabelledGroup
from streamer.calibration.guarantee import groups_needed
from streamer.calibration.high_probability import calibrate_high_probability
from streamer.calibration.loss_curve import LossCurve
from streamer.calibration.segments import SegmentedThreshold, calibrate_segments
from streamer.calibration.soft import SoftThreshold, calibrate_soft
from streamer.calibration.threshold import Threshold

__all__ = [
    "LabelledGroup",
    "LossCurve",
    "SegmentedThreshold",
    "SoftThreshold",
    "Threshold",
    "TransductiveRule",
    "calibrate",
    "calibrate_by_age",
    "calibrate_clt",
    "calibrate_groups",
    "calibrate_high_probability",
    "calibrate_pooled",
    "calibrate_segments",
    "calibrate_selective",
    "calibrate_soft",
    "groups_needed",
    "prepare_transductive",
]
