"""Risk control for language-model output: ship or hold answers inside a stated risk budget."""

from streamer.calibration import LabelledGroup, Threshold, calibrate, calibrate_groups
from streamer.gates.gate import decide
from streamer.scoring.gram import gram_energy

__all__ = ["LabelledGroup", "Threshold", "calibrate", "calibrate_groups", "decide", "gram_energy"]
