"""What a calibration found: the threshold, how it was found, and what it promises."""

from __future__ import annotations

import json
import math
import pkgutil
from dataclasses import dataclass
from functools import cache
from typing import Literal, NoReturn, get_args

from streamer.calibration import calibrators

ThresholdState = Literal["closed", "cut", "open", "full"]
THRESHOLD_STATES: tuple[ThresholdState, ...] = get_args(ThresholdState)


@cache
def names() -> tuple[str, ...]:
    """Return the names of all calibrators, which are those of their files."""
    return tuple(file.name.replace("_", "-") for file in pkgutil.iter_modules(calibrators.__path__))


def state_at(value: float) -> ThresholdState:
    """Return the state of a threshold lambda: +inf is closed, -inf is open, NaN full, anything else a cut."""
    if math.isnan(value):
        return "full"
    return "closed" if value == math.inf else "open" if value == -math.inf else "cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Ship iff the score is strictly greater than `value`.

    Attributes
    ----------
    state : `closed` (ship nothing), `cut` (ship iff Q > lambda), `open` (ship all) or `full` (no score decides alone: see
        `streamer.calibration.full_fit`).
    value : lambda; +inf when closed, -inf when open, NaN when full, finite when cut.
    alpha : the budget that was asked for, in (0, 1): on selective risk for the method `selective`, on exposure risk
        for every other.
    method : the calibrator, a name of `streamer.calibration.registry`.
    groups : number G >= 0 of calibration groups.
    guarantee : what is promised, on which basis and under which assumptions, in words.

    Raises
    ------
    ValueError
        If the fields contradict one another.
    """

    state: ThresholdState
    value: float
    alpha: float
    method: str
    groups: int
    guarantee: str

    def __post_init__(self) -> None:
        if self.state not in THRESHOLD_STATES:
            raise ValueError(f"state must be one of {', '.join(THRESHOLD_STATES)}, not {self.state!r}")
        expected = {
            "closed": self.value == math.inf,
            "open": self.value == -math.inf,
            "full": math.isnan(self.value),
        }
        if not expected.get(self.state, math.isfinite(self.value)):
            raise ValueError(f"a threshold in state {self.state!r} cannot have the value {self.value!r}")
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha must lie between 0 and 1, both excluded, not {self.alpha!r}")
        if self.method not in names():
            raise ValueError(f"method must be one of {', '.join(names())}, not {self.method!r}")
        if self.groups < 0:
            raise ValueError(f"groups must be 0 or more, not {self.groups!r}")

    def to_json(self) -> str:
        """Write one JSON object; `lambda` is null unless there is a cut, because JSON has no infinity."""
        return json.dumps(
            {
                "state": self.state,
                "lambda": self.value if self.state == "cut" else None,
                "alpha": self.alpha,
                "method": self.method,
                "groups": self.groups,
                "guarantee": self.guarantee,
            },
            allow_nan=False,
        )

    @classmethod
    def at(cls, value: float, *, alpha: float, method: str, groups: int, guarantee: str) -> Threshold:
        """Make the threshold whose state follows from `value`: +inf closed, -inf open, else a cut."""
        return cls(
            state=state_at(value), value=value, alpha=alpha, method=method, groups=groups, guarantee=guarantee
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Threshold:
        """Read what `to_json` wrote, exactly; unknown fields are passed over.

        Raises `ValueError` if `text` is not such an object.
        """
        try:
            fields = json.loads(text, parse_constant=_refuse_constant)
        except RecursionError:
            raise ValueError("a threshold in JSON is one flat object") from None
        if not isinstance(fields, dict):
            raise ValueError(f"a threshold in JSON is an object, not {type(fields).__name__}")
        missing = {"state", "lambda", "alpha", "method", "groups", "guarantee"} - fields.keys()
        if missing:
            raise ValueError(f"a threshold in JSON needs {', '.join(sorted(missing))}")
        for name in ("state", "method", "guarantee"):
            if not isinstance(fields[name], str):
                raise ValueError(f"{name} must be a text, not {fields[name]!r}")
        if type(fields["groups"]) is not int:
            raise ValueError(f"groups must be a whole number, not {fields['groups']!r}")
        state, cut = fields["state"], fields["lambda"]
        if (state == "cut") != (cut is not None):
            raise ValueError(f"a threshold in state {state!r} cannot have lambda {cut!r}")
        return cls(
            state=state,
            value=_number("lambda", cut) if state == "cut" else _VALUES.get(state, math.nan),
            alpha=_number("alpha", fields["alpha"]),
            method=fields["method"],
            groups=fields["groups"],
            guarantee=fields["guarantee"],
        )


_VALUES = {"closed": math.inf, "open": -math.inf}


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, not {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
