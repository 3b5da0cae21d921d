"""Numbers of the user's own that come with each answer: what they are called, and in which range they lie. Pure."""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from numbers import Real
from typing import Any

import msgspec

MOST_DECLARED = 20
SIGNAL_NAME = "[a-z][a-z0-9_]{0,39}"
GIVEN: Mapping[str, tuple[float, float]] = {
    "score": (0.0, 1.0), "logprob": (0.0, 1.0), "judge": (0.0, 100.0),
    "token_entropy": (0.0, 1.0), "most_token_entropy": (0.0, 1.0), "low_logprob": (0.0, 1.0), "least_logprob": (0.0, 1.0),
}  # fmt: skip
"""What may come besides, and its range: the publisher's score, the tokens' mean log-probability (Malinin and Gales 2021), a
judge's mark, the mean and the largest entropy of a token in nats, the mean log-probability of the least likely third of the tokens
and of the least likely one. No number of the user's own is called so."""

FIELDS = frozenset({"score", "logprob"})
"""Of `GIVEN`, what is no entry in the `signals` of a response: it has a field of its own there."""

LOGARITHMS: Mapping[str, int] = {
    "logprob": 1, "token_entropy": -1, "most_token_entropy": -1, "low_logprob": 1, "least_logprob": 1,
}  # fmt: skip
"""What is read as exp(x), or exp(-x): the geometric mean of the tokens' probabilities, and what they would be were they
equally likely."""


LEAST_LOGPROB = -10_000
"""Of a response; endpoints write -9999 for a token that they call very unlikely."""
MOST_LOGPROB = 1e-3
"""Of a token: what lies above 0 is an endpoint's rounding error, or no logarithm at all."""


class Top(msgspec.Struct, gc=False):
    """One of the likeliest tokens at a place."""

    logprob: float


class Token(Top, gc=False):
    """A token of an answer, as OpenAI's protocol tells it."""

    top_logprobs: list[Top] | None = None


class TokenLogprobs(msgspec.Struct, gc=False):
    """All tokens of an answer."""

    content: list[Token]


def tokens_of(value: Any) -> dict[str, float]:
    """Return the figures of log-probabilities as files have them: numbers, or OpenAI's `logprobs`.

    Raises `ValueError` for anything else.
    """
    kinds: tuple[Any, ...] = (list[float], list[Token], TokenLogprobs)
    for kind in kinds:
        with suppress(msgspec.ValidationError):
            found = msgspec.convert(value, kind)
            listed = found.content if isinstance(found, TokenLogprobs) else found
            tokens = [Token(one) if isinstance(one, float) else one for one in listed]
            if any(one.logprob > MOST_LOGPROB for one in tokens):
                raise ValueError("a log-probability lies above 0: take natural logarithms of them")
            return token_figures(tokens)
    raise ValueError("log-probabilities must be numbers, or OpenAI's `logprobs` with `content`")


def token_figures(tokens: Sequence[Token]) -> dict[str, float]:
    """Return what an answer's tokens come to, by the names of `GIVEN`; nothing of no token.

    The least likely third is a token at least. What lies above 0 counts as 0.
    With the likeliest of each token also the entropies: at least this, for what is left of its
    probability counts as one token more.
    """
    logprobs = [one.logprob for one in tokens]
    rising = sorted(min(0.0, max(float(LEAST_LOGPROB), one)) for one in logprobs)
    if not rising:
        return {}
    low = rising[: -(-len(rising) // 3)]
    found = {
        "logprob": math.fsum(rising) / len(rising),
        "low_logprob": math.fsum(low) / len(low),
        "least_logprob": rising[0],
    }
    if not all(one.top_logprobs for one in tokens):
        return found
    entropies = [_entropy([top.logprob for top in one.top_logprobs or ()]) for one in tokens]
    mean = max(0.0, math.fsum(entropies) / len(entropies))
    return found | {"token_entropy": mean, "most_token_entropy": max(0.0, *entropies)}


def _entropy(likeliest: list[float]) -> float:
    rest = 1 - math.fsum(math.exp(min(0.0, one)) for one in likeliest)
    known = -math.fsum(math.exp(one) * one for one in likeliest if one < 0)
    return known - (rest * math.log(rest) if rest > 0 else 0.0)


def declared_ranges(declared: Any) -> dict[str, tuple[float, float]]:
    """Return declared numbers, by name the least and the largest value.

    Raises `ValueError` when there are more than 20, or one has no name or no range; the text says
    which.
    """
    found: dict[str, tuple[float, float]] = {}
    if not isinstance(declared, Mapping):
        raise ValueError(
            f'signals must be a dict from names to ranges, like {{"retrieval": (0, 1)}}, not {declared!r}'
        )
    if len(declared) > MOST_DECLARED:
        raise ValueError(f"at most {MOST_DECLARED} signals may be declared, not {len(declared)}")
    for name, bounds in declared.items():
        if not isinstance(name, str) or not re.fullmatch(SIGNAL_NAME, name):
            raise ValueError(
                f"the name of a signal must be 1 to 40 of a-z, 0-9 and '_', the first a letter, not {name!r}"
            )
        if name in GIVEN:
            raise ValueError(
                f"a signal of your own cannot be called {name}, which is read without being declared"
            )
        least: Any = None
        most: Any = None
        if isinstance(bounds, tuple | list) and len(bounds) == 2:
            least, most = bounds
        if not (_is_finite(least) and _is_finite(most) and least < most):
            raise ValueError(
                f"the range of the signal {name} must be two finite numbers, the first less, like (0, 1), not {bounds!r}"
            )
        found[name] = (float(least), float(most))
    return found


def _is_finite(value: Any) -> bool:
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False
