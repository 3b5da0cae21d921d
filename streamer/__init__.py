"""Risk control for language-model output: ship or hold answers inside a stated risk budget."""

from typing import TYPE_CHECKING

from streamer.lazy import lazy_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from streamer.calibration.crc import calibrate, calibrate_groups
    from streamer.calibration.groups import LabelledGroup
    from streamer.calibration.threshold import Threshold
    from streamer.frames.claims import ClaimGate
    from streamer.frames.gate import Gate
    from streamer.gates.gate import decide
    from streamer.scoring.gram import gram_energy
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "streamer.calibration.crc": "calibrate calibrate_groups",
            "streamer.calibration.groups": "LabelledGroup",
            "streamer.calibration.threshold": "Threshold",
            "streamer.frames.claims": "ClaimGate",
            "streamer.frames.gate": "Gate",
            "streamer.gates.gate": "decide",
            "streamer.scoring.gram": "gram_energy",
        },
    )

__all__ = [
    "ClaimGate",
    "Gate",
    "LabelledGroup",
    "Threshold",
    "calibrate",
    "calibrate_groups",
    "decide",
    "gram_energy",
]
