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
            "streamer.calibration.batch_rule": "TransductiveRule",
            "streamer.calibration.calibrators.age": "calibrate_by_age",
            "streamer.calibration.calibrators.clt": "calibrate_clt",
            "streamer.calibration.calibrators.pooled": "calibrate_pooled",
            "streamer.calibration.calibrators.selective": "calibrate_selective",
            "streamer.calibration.calibrators.selective_mean": "calibrate_selective_mean",
            "streamer.calibration.calibrators.transductive": "prepare_transductive",
            "streamer.calibration.crc": "calibrate calibrate_groups",
            "streamer.calibration.groups": "LabelledGroup",
            "streamer.calibration.guarantee": "groups_needed",
            "streamer.calibration.high_probability": "calibrate_high_probability",
            "streamer.calibration.history": "History",
            "streamer.calibration.loss_curve": "LossCurve",
            "streamer.calibration.segments": "SegmentedThreshold calibrate_segments",
            "streamer.calibration.soft": "SoftThreshold calibrate_soft",
            "streamer.calibration.threshold": "Threshold",
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
