"""What the options of `streamer sample` mean: texts into values, with errors that name the option."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from streamer.clouds.noise import NOISE_FAMILIES
from streamer.errors import UsageError
from streamer.labels.llm.record import Price
from streamer.research.sampling.recipe import Mix

if TYPE_CHECKING:
    from pathlib import Path


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def families(names: list[str] | None) -> tuple[str, ...] | None:
    """Families of noise as they are called elsewhere; what is none is passed on, and refused by the recipe."""
    if names is None:
        return None
    by_slug = {family.replace(" ", "-"): family for family in NOISE_FAMILIES}
    return tuple(dict.fromkeys(by_slug.get(name.lower().replace(" ", "-"), name) for name in names))


def mix_of(text: str | None) -> Mix | None:
    """Shares from ``.75/0/.25``. Raises `UsageError` for anything else."""
    if text is None:
        return None
    try:
        normal, enforced, noise = (float(part) for part in text.split("/"))
    except ValueError:
        raise UsageError(f"--mix is 3 numbers like .75/0/.25, not {text!r}") from None
    return Mix(normal, enforced, noise)


def amount(text: str, option: str) -> Decimal:
    """A sum of money from a text. Raises `UsageError` for what is none, or negative."""
    try:
        found = Decimal(text)
    except InvalidOperation:
        found = Decimal(-1)
    if not found.is_finite() or found < 0:
        raise UsageError(f"{option} is an amount of 0 or more, not {text!r}")
    return found


def prices_of(texts: list[str], count: int) -> list[Price | None]:
    """The price of each of `count` models, from one text for all or one each. Raises `UsageError` otherwise."""
    prices = []
    for text in texts:
        parts = text.split("/")
        if len(parts) != 2:
            raise UsageError(f"--price is two amounts like 0.15/0.60, not {text!r}")
        prices.append(Price(amount(parts[0], "--price"), amount(parts[1], "--price")))
    if len(prices) not in (0, 1, count):
        raise UsageError(
            f"{count} models and {len(prices)} prices: give one --price for all, or one for each --model"
        )
    if not prices:
        return [None] * count
    return [*prices] * count if len(prices) == 1 else [*prices]


def text_of(path: Path) -> str:
    """The text of a file, without space around it. Raises `UsageError` where it cannot be read."""
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
