"""Which parameter a model does not take, read from an endpoint's refusal. Pure.

Models differ in what they take: some have one temperature only, some know no seed, some want the bound on tokens
under its newer name. An endpoint says so with status 400 or 422 and, if we are lucky, a machine-readable `param`;
otherwise its sentence has to be read.
"""

import re
from collections.abc import Mapping, Set

_STATUSES = frozenset({400, 422})
_CODES = frozenset({"unsupported_parameter", "unsupported_value", "unknown_parameter"})
_DISPENSABLE = ("seed", "top_p", "n", "response_format", "temperature")
"""What a request can do without, the least important first: where a sentence names two, the first one goes."""
_LIMITS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""The bound on a reply's tokens has two names, and a request never goes without it."""
_NOT_TAKEN = re.compile(
    r"not\s+(?:\w+\s+)?support|unsupported|unknown|unrecogni[sz]ed|unexpected|extra|not permitted|forbidden"
    r"|not allowed|deprecated|only the default|cannot find|cannot both|not a valid parameter|no such",
    re.IGNORECASE,
)
_ONE_ONLY = re.compile(
    r"at most 1\b|must be 1\b|(?:<=|equal to) 1\b|greater than 1\b|n ?[=>] ?1\b", re.IGNORECASE
)


def refused_parameter(
    *, status: int, code: object, param: object, message: str, sent: Set[str]
) -> str | None:
    """Return the parameter that this refusal is about, if the request can do without it.

    A value out of its range is no such case: the caller asked for something that the endpoint does
    not have. `code` and `param` are the error's, where the endpoint gives them, and `message` its
    text; `sent` are the names of the parameters that were sent.
    """
    if status not in _STATUSES:
        return None
    candidates = [name for name in (*_DISPENSABLE, *_LIMITS) if name in sent]
    if isinstance(param, str) and param in candidates:
        return param if code in _CODES or _says_so(param, message) else None
    return next((name for name in candidates if _named(name, message) and _says_so(name, message)), None)


def fitted(parameters: Mapping[str, object], not_taken: Set[str]) -> dict[str, object]:
    """Return `parameters` without those in `not_taken`; the bound on tokens goes under its other name instead.

    A bound that is taken under neither name is sent as it was given.
    """
    sent: dict[str, object] = {}
    for name, value in parameters.items():
        if name not in not_taken:
            sent[name] = value
        elif name in _LIMITS:
            other = _LIMITS[name]
            sent[name if other in not_taken else other] = value
    return sent


def _says_so(name: str, message: str) -> bool:
    return _NOT_TAKEN.search(message) is not None or (name == "n" and _ONE_ONLY.search(message) is not None)


def _named(name: str, message: str) -> bool:
    quoted = rf"['\"`]{name}['\"`]"
    return re.search(quoted if name == "n" else rf"{quoted}|\b{name}\b", message) is not None or (
        name == "n" and re.search(r"\bn ?[=>] ?1\b", message) is not None
    )
