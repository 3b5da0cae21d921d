"""placeholder"""

from __future__ import annotations

from typing import Literal, get_args

Outcome = Literal["applied", "proposed", "unchanged"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
