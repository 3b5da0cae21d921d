"""A run in one sentence, for people."""

from collections.abc import Iterable

from streamer.calibration.guarantee import budget
from streamer.clouds.measurement import OfflineRisk
from streamer.gates.declared import Unit

UNIT_WORDS: dict[Unit, tuple[str, str]] = {
    "best": ("prompt", "prompts"),
    "response": ("response", "responses"),
    "batch": ("batch", "batches"),
    "claim": ("prompt", "prompts"),
}
"""What a unit is called, one and many."""


def percent(ratio: float | None, decimals: int = 0) -> str:
    """Write a ratio as a percentage; what would round to 0 or to 100 without being it gets more decimals,
    and what is exactly that gets none."""
    if ratio is None:
        return "not defined"
    value = 100 * ratio
    if value in {0.0, 100.0}:
        decimals = 0
    while decimals < 4 and float(f"{value:.{decimals}f}") in {0.0, 100.0} and value not in {0.0, 100.0}:
        decimals += 1
    return f"{value:.{decimals}f} %"


def graded(severities: Iterable[float | None]) -> str:
    """Say how the figures are to be read where a severity lies between 0 and 1; empty where none does."""
    found = [one for one in severities if one is not None]
    between = sum(0 < severity < 1 for severity in found)
    if not between:
        return ""
    return (
        f"Severities are graded ({percent(between / len(found))} lie between 0 and 1): a share that is wrong, or an error rate, is a "
        "mean severity, to which one with severity 0.4 adds 0.4 of a wrong one."
    )


def served_sentence(
    unit: Unit,
    alpha: float,
    ship_rate: float,
    selective: float | None,
    exposure: float,
    everything: float,
    beside: str = "",
) -> str:
    """Say what a gate serves of prompts that it has not seen; `beside` : what another would."""
    one, many = UNIT_WORDS[unit]
    if selective is None:
        return f"at a budget of {budget(alpha)} none of the {many} is served; {percent(everything)} were wrong if all shipped"
    return (
        f"at a budget of {budget(alpha)} the gate serves {percent(ship_rate)} of {many}{beside}; the error rate among shipped is "
        f"{percent(selective)}, against {percent(everything)} if everything shipped; exposure is {percent(exposure, 1)} per {one}"
    )


def sentence(report: OfflineRisk, alpha: float) -> str:
    """Say how much was served, what came with it, and what was allowed.

    For example: "served 64 % of prompts, error rate among shipped 15 %, exposure 9.8 % per prompt against a budget
    of 10 %".
    """
    one, many = UNIT_WORDS[report.unit]
    if report.ship_rate is None:
        return f"nothing was decided, so there is nothing to measure against the budget of {budget(alpha)}"
    wrong = f" ({percent(report.mean_severity)} of all are wrong)" if report.shipped else ""
    wrong_way = f"the score works the wrong way for {many}{wrong}: " if report.upside_down else ""
    if report.shipped == 0:
        return f"{wrong_way}served none of the {many}, so exposure is 0 % per {one} against a budget of {budget(alpha)}"
    return wrong_way + (
        f"served {percent(report.ship_rate)} of {many}, error rate among shipped {percent(report.selective_risk)}, "
        f"exposure {percent(report.exposure_risk, 1)} per {one} against a budget of {budget(alpha)}"
    )
