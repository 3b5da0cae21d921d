"""What if another threshold or policy had decided the recorded past? Pure, but for the ports that it reads by.

    asking = WhatIf(gate, past=store.past, sample=store.calibration, policies=store.policies, since=since, now=now)
    answer = asking.ask(Change(cut=Cut.at(0.7)))  # the past is read once: a slider may ask as often as it likes

`past` holds what is read, `replay` decides it again by `streamer.gates`, `figures` weighs labels by the audit draw, `asking`
puts them together and says what else is read; `answers` has the values. Another budget, method or scorer is tried on halves of the
record, as a file is: `streamer.frames.recorded`.
"""

from streamer.whatif.answers import Basis, Change, Changed, WhatIfAnswer
from streamer.whatif.asking import WhatIf
from streamer.whatif.figures import Figures
from streamer.whatif.past import Past, PastReader
from streamer.whatif.replay import Difference

__all__ = [
    "Basis",
    "Change",
    "Changed",
    "Difference",
    "Figures",
    "Past",
    "PastReader",
    "WhatIf",
    "WhatIfAnswer",
]
