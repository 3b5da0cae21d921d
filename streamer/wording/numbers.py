"""Shares, counts and moments, as people read them."""

import math
from collections.abc import Iterable
from datetime import datetime
from statistics import fmean

SERVED = {"best": "prompts", "response": "responses", "batch": "batches", "claim": "prompts"}
"""What a gate of each unit serves."""


def percent(share: float, decimals: int | None = None) -> str:
    """Write a share as a percentage, ``11.6 %``: with so many decimals, or three significant digits, and never an exponent.

    What is nearly nothing is ``under 0.001 %``, and only what is nothing is 0.
    """
    value = 100 * share
    if 0 < value < 0.001:
        return "under 0.001 %"
    if decimals is not None:
        return f"{value:.{decimals}f} %"
    places = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    said = f"{value:.{places}f}"
    return f"{said.rstrip('0').rstrip('.') if '.' in said else said} %"


def unbroken(text: str) -> str:
    """Return a text whose percent signs stay with their numbers where its lines break."""
    return text.replace(" %", "\u00a0%")


def counted(number: int, one: str, many: str) -> str:
    """Write a number with its noun: ``1 batch``, ``2 batches``."""
    return f"{number} {one if number == 1 else many}"


def items(*units: str, plain: str = "answer") -> tuple[str, str]:
    """What gates of these units decide, one and many of it: claims with the unit `claim`."""
    claims = {unit == "claim" for unit in units}
    one = f"{plain} or claim" if len(claims) > 1 else "claim" if True in claims else plain
    return one, f"{one}s"


def waiting_items(*units: str) -> tuple[str, str]:
    """The same for what waits for a label: ``response waits``, ``responses wait``."""
    one, many = items(*units, plain="response")
    return f"{one} waits", f"{many} wait"


def duration(seconds: float) -> str:
    """Write seconds the way that commands read them: ``90s``, ``30m``, ``12h``, ``7d``."""
    for unit, length in (("d", 86_400.0), ("h", 3600.0), ("m", 60.0)):
        if seconds and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s"


def when(moment: datetime) -> str:
    """Write a moment to the second, in UTC."""
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")


def younger_labels(young: Iterable[float | None], old: Iterable[float | None], *, unit: str) -> str:
    """Say how wrong labelled answers, or claims, of prompts too young to count are, beside those that count; None and NaN: not labelled."""
    known, others = ([one for one in some if one is not None and one == one] for some in (young, old))
    if not known:
        return ""
    beside = f", against {percent(fmean(others))} among those that count" if others else ""
    one, many = items(unit)
    said = counted(len(known), f"labelled {one}", f"labelled {many}")
    return f" The {said} among the younger average {percent(fmean(known))} wrong{beside}."
