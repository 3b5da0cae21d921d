"""Calibration: labelled groups in, a threshold with a guarantee out. Pure: no I/O, no clock, no global randomness."""

from typing import TYPE_CHECKING

from streamer.lazy import lazy_names

if TYPE_CHECKING:
    from streamer.calibration.batch_rule import TransductiveRule
    from streamer.calibration.calibrators.age import calibrate_by_age
    from streamer.calibration.calibrators.clt import calibrate_clt
    from streamer.calibration.calibrators.pooled import calibrate_pooled
    from streamer.calibration.calibrators.selective import calibrate_selective
    from streamer.calibration.calibrators.selective_mean import calibrate_selective_mean
    from streamer.calibration.calibrators.transductive import prepare_transductive
    from streamer.calibration.crc import calibrate, calibrate_groups
    from streamer.calibration.groups import LabelledGroup
    from streamer.calibration.guarantee import groups_needed
    from streamer.calibration.high_probability import calibrate_high_probability
    from streamer.calibration.history import History
    from streamer.calibration.loss_curve import LossCurve
    from streamer.calibration.segments import SegmentedThreshold, calibrate_segments
    from streamer.calibration.soft import SoftThreshold, calibrate_soft
    from streamer.calibration.threshold import Threshold
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "History": "streamer.calibration.history",
            "LabelledGroup": "streamer.calibration.groups",
            "LossCurve": "streamer.calibration.loss_curve",
            "SegmentedThreshold": "streamer.calibration.segments",
            "SoftThreshold": "streamer.calibration.soft",
            "Threshold": "streamer.calibration.threshold",
            "TransductiveRule": "streamer.calibration.batch_rule",
            "calibrate": "streamer.calibration.crc",
            "calibrate_by_age": "streamer.calibration.calibrators.age",
            "calibrate_clt": "streamer.calibration.calibrators.clt",
            "calibrate_groups": "streamer.calibration.crc",
            "calibrate_high_probability": "streamer.calibration.high_probability",
            "calibrate_pooled": "streamer.calibration.calibrators.pooled",
            "calibrate_segments": "streamer.calibration.segments",
            "calibrate_selective": "streamer.calibration.calibrators.selective",
            "calibrate_selective_mean": "streamer.calibration.calibrators.selective_mean",
            "calibrate_soft": "streamer.calibration.soft",
            "groups_needed": "streamer.calibration.guarantee",
            "prepare_transductive": "streamer.calibration.calibrators.transductive",
        },
    )

__all__ = [
    "History",
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
    "calibrate_selective_mean",
    "calibrate_soft",
    "groups_needed",
    "prepare_transductive",
]
