"""The judged part of an answer: what scores, labels and heads read, and what of the answer goes out. Pure.

Reasoning is judged nowhere and shipped nowhere, but by a gate that reads answers `raw`. A form never changes what it makes of an
answer: a better one has another version, and a threshold is calibrated for one version.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.answer_head import FIELD, WHITE, answer_head, rest_of_line, whole
from streamer.scoring.blank import is_blank
from streamer.scoring.scorer import AnswerBatch
from streamer.scoring.signals.measured import Measured, last_number, words_of

Floats = NDArray[np.float64]
Leaves = Mapping[str, str]
"""What a JSON value holds: to the JSON Pointer (RFC 6901) of each scalar and each empty array or object its kind and comparable form."""

DEEPEST, MOST_LEAVES, MOST_DIGITS = 32, 1000, 400
"""Bounds of a value: nested arrays and objects, leaves, and digits of a number written without exponent. What passes one does not
parse."""

MOST_DISPUTED = 8
_LONGEST_PATH = 200

_FENCED = re.compile(r"```[\w-]*[ \t]*\n(.*)\n[ \t]*```", re.DOTALL)
_BOXED = "\\boxed{"
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_APART = re.compile("(?<=\\d)['’\u00a0\u2009\u202f](?=\\d{3}(?!\\d))")
_SPACED = re.compile(r"(?<=\d) (?=\d{3}(?!\d))")
"""What stands between thousands besides a comma or a point: a space does where decimals stand behind a comma."""
_CALLS = frozenset({"name", "arguments", "id", "type", "index"})


class _Number(str):
    """A number of JSON as its canonical decimal, told apart from a text."""

    __slots__ = ()


def final(text: str) -> str:
    r"""What follows the last ``####``, ``Final:``, ``Final answer:`` or ``Answer:`` on its line, or the next that is not blank, or stands
    in the last ``\boxed{}``: whichever comes last; else the head. Nothing, where the answer is cut off there.
    """
    said = whole(text)
    marked = _marked(said)
    return answer_head(said) if marked is None else marked


def number(text: str, *, comma: bool = False) -> str:
    """The last number of what `final` finds behind a mark, else of `whole`, as a canonical decimal: ``1,250.50`` is ``1250.5``. Nothing,
    where there is none, or it is part of 12/11/2026 or the like. With `comma` decimals stand behind a comma: ``1.250,50`` is that.
    """
    said = whole(text)
    found = _number_in(_marked(said) or "", comma)
    if found is None:
        found = _number_in(said, comma)
    try:
        return "" if found is None else decimal_form(found)
    except ValueError:
        return ""


_with_comma = partial(number, comma=True)


def _number_in(said: str, comma: bool) -> Decimal | None:
    if comma:
        said = _SPACED.sub(".", said).translate({ord("."): ",", ord(","): "."})
    return last_number(_APART.sub(",", said), alone=True)


def _marked(said: str) -> str | None:
    """What stands behind the last mark of a final answer; None where there is no mark."""
    fields = [one.end() for one in FIELD.finditer(said)]
    hashes, boxed = said.rfind("####"), said.rfind(_BOXED)
    after = max(fields[-1] if fields else -1, hashes + 4 if hashes >= 0 else -1)
    if boxed >= 0 and boxed + len(_BOXED) > after:
        found = _balanced(said, boxed + len(_BOXED))
    elif after >= 0:
        found = rest_of_line(said[after:]).strip().strip("*").strip()
    else:
        return None
    return "" if is_blank(found) else found


def json_text(text: str) -> str:
    """The one JSON value that `whole` is, alone or in one fence, as text that is the same for the same value. Nothing, where it is none.

    Keys are sorted, numbers canonical decimals, strings as they were written. No value: a key twice, NaN, half a surrogate pair, or what
    passes a bound.
    """
    try:
        value = _parsed(whole(text))
        leaves_of(value)
        return _again(_written(value))
    except (ValueError, RecursionError, ArithmeticError):
        return ""


def call_text(text: str) -> str:
    """The tool calls that `whole` is, as the text that is executed: ``{"arguments":{...},"name":"..."}``, of several an array.

    A call is a JSON object with `name` and `arguments` (an object, or its JSON in a string as in OpenAI's protocol), alone, under
    ``function``, or in an array, also of the key ``tool_calls``. Several have no order: they stand in that of their comparable forms.
    Their `id`, `type` and `index` are left out. Nothing, where an answer is anything else.
    """
    try:
        value = _parsed(whole(text))
        if isinstance(value, dict) and value.keys() == {"tool_calls"}:
            value = value["tool_calls"]
        calls = [_call(one) for one in (value if isinstance(value, list) else [value])]
        calls.sort(key=lambda one: (sorted(leaves_of(one).items()), _written(one)))
        made: Any = calls[0] if len(calls) == 1 else calls
        leaves_of(made)
        return _again(_written(made)) if calls else ""
    except (ValueError, RecursionError, ArithmeticError):
        return ""


def decimal_form(value: str | Decimal) -> str:
    """Return a number without exponent, plus sign, or zeros that change nothing; equal numbers have one form.

    Raises `ValueError` (or `ArithmeticError`, for what no `Decimal` holds) where it is no number, or has more than 400 digits.
    """
    made = Decimal(value)
    if not made.is_finite() or (
        made and (len(made.as_tuple().digits) > MOST_DIGITS or abs(made.adjusted()) > MOST_DIGITS)
    ):
        raise ValueError(f"a number has at most {MOST_DIGITS} digits")
    written = format(made, "f") if made else "0"
    return written.rstrip("0").rstrip(".") if "." in written else written


def leaves_of(value: Any, said: Callable[[Any], str] | None = None) -> dict[str, str]:
    """Return the leaves of what `_parsed` returns, by `said` what each is; None: its comparable form. Raises `ValueError` where there are too many, or they lie too deep."""
    found: dict[str, str] = {}
    waiting: list[tuple[str, Any, int]] = [("", value, 0)]
    while waiting:
        path, one, depth = waiting.pop()
        if depth + isinstance(one, dict | list) > DEEPEST or len(found) + len(waiting) >= MOST_LEAVES:
            raise ValueError(f"a JSON value has at most {MOST_LEAVES} leaves, {DEEPEST} deep")
        if one and isinstance(one, dict | list):
            inside = one.items() if isinstance(one, dict) else enumerate(one)
            waiting += [
                (f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}", each, depth + 1)
                for key, each in inside
            ]
        else:
            found[path] = (said or _comparable)(one)
    return found


@dataclass(frozen=True, slots=True)
class Form:
    """What of an answer is judged; see `form`.

    Attributes
    ----------
    name : with its version, as decisions name it: ``number@1``.
    part : makes the judged part of an answer; empty where there is none, and the answer then counts as blank.
    agrees : how far each judged part agrees with the others; None: no more is known of it than of any text.
    ships : makes what goes out of an answer that ships.
    structured : whether the part is JSON, with leaves.
    free : JSON Pointers of leaves that are compared by chrF, ``*`` for any one step; of a number ``comma``.
    """

    name: str
    says: str
    part: Callable[[str], str]
    agrees: Callable[[Sequence[str], "Form"], Floats] | None = None
    ships: Callable[[str], str] = whole
    structured: bool = False
    free: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What a setting holds: the name, and `free`."""
        return " ".join((self.name, *self.free))

    @property
    def signal(self) -> tuple[str, ...]:
        """The signal of a gate that judges so: how far answers agree in this part."""
        return (self.text,) if self.agrees else ()

    def parts(self, texts: Sequence[str]) -> list[str]:
        """Return the judged part of each answer."""
        return [self.part(text) for text in texts]

    def head(self, text: str) -> str:
        """Return what a program reads of an answer that it labels: the judged part, of a whole answer the head."""
        return self.part(text) if self.agrees else answer_head(text)

    def blank(self, texts: Sequence[str]) -> tuple[bool, ...]:
        """Mark the answers in whose judged part is nothing to see."""
        return tuple(map(is_blank, self.parts(texts)))

    def agreement(self, parts: Sequence[str]) -> Floats:
        """Return shape (n,), in [0, 1]: how far each of n >= 2 judged parts agrees with the others; 0 for an empty one.

        The share of the others that say the same; of leaves the least over all paths that any answer has.
        """
        if self.agrees is None:
            raise ValueError(f"{self.name} has no agreement of its own")
        return self.agrees(parts, self)

    def span(self, text: str) -> tuple[int, int] | None:
        """Return which characters go out of a text that ships, from and up to; None: all, or another text than what stands there."""
        if self.ships is not whole or (out := whole(text)) == text:
            return None
        end = len(text.rstrip(WHITE))
        return end - len(out), end

    def shown(self, text: str) -> list[tuple[str, str]]:
        """Return what a person sees of the judged part: the JSON Pointer and the value of each field, the pointer of what is none being
        empty; nothing where all that ships is judged.
        """
        part = self.part(text)
        if self.structured and part:
            return sorted(leaves_of(_parsed(part), _written).items())
        return [("", part)] if part and part != self.ships(text) else []

    def disputed(self, parts: Sequence[str], place: int) -> dict[str, float]:
        """Return the fields in which others differ from one answer, the least shared first, at most 8: JSON Pointer, cut at 200 characters,
        -> share of the others with the same value.
        """
        if not self.structured or not parts[place] or len(parts) < 2:
            return {}
        paths, shares = _Fields(parts, self).shares
        found = sorted(
            (share, path) for path, share in zip(paths, shares[place].tolist(), strict=True) if share < 1
        )
        return {path[:_LONGEST_PATH]: share for share, path in found[:MOST_DISPUTED]}


def _votes(parts: Sequence[str], form: Form) -> Floats:
    claims = [
        part if form.name.startswith("number") else " ".join(words_of(part)) or part.strip() for part in parts
    ]
    votes = Counter(claims)
    shares: Floats = np.array([votes[one] - 1 if one else 0 for one in claims]) / (len(claims) - 1)
    return shares


def _weakest(parts: Sequence[str], form: Form) -> Floats:
    fields = _Fields(parts, form)
    least: Floats = np.where(fields.parsed, fields.shares[1].min(axis=1, initial=1.0), 0.0)
    return least


class _Fields:
    """The leaves of n answers, beside each other."""

    def __init__(self, parts: Sequence[str], form: Form) -> None:
        self.parsed = np.array([bool(part) for part in parts])
        self._leaves = [_leaves_of_text(part) if part else {} for part in parts]
        self._free = [
            re.compile("/".join("[^/]+" if step == "*" else re.escape(step) for step in one.split("/")))
            for one in form.free
        ]

    @cached_property
    def shares(self) -> tuple[list[str], Floats]:
        """All paths, and shape (n, paths): the share of the others with the same value there, missing being one; those that do not parse
        agree with none.
        """
        paths = sorted({path for leaves in self._leaves for path in leaves})
        n = len(self._leaves)
        found = np.zeros((n, len(paths)))
        parsed = np.flatnonzero(self.parsed).tolist()
        for column, path in enumerate(paths):
            values = [self._leaves[i].get(path, "") for i in parsed]
            if any(one.fullmatch(path) for one in self._free):
                alike = _alike(values)
                found[parsed, column] = (alike.sum(axis=1) - alike.diagonal()) / (n - 1)
            else:
                votes = Counter(values)
                found[parsed, column] = [(votes[one] - 1) / (n - 1) for one in values]
        return paths, found


def _alike(values: Sequence[str]) -> Floats:
    """ChrF of each two texts; what is missing is like what is missing alone."""
    n = len(values)
    pairs: Floats = np.equal.outer(np.array(values, dtype=object), np.array(values, dtype=object)).astype(
        np.float64
    )
    written = [i for i in range(n) if values[i]]
    if len(written) > 1:
        texts = [values[i] for i in written]
        between = Measured(AnswerBatch(texts, texts, np.zeros((len(texts), 1)), [False] * len(texts))).chrf
        pairs[np.ix_(written, written)] = np.maximum(between, pairs[np.ix_(written, written)])
    return pairs


FORMS: Mapping[str, Form] = {
    one.name.partition("@")[0]: one
    for one in (
        Form("whole@1", "the answer without its reasoning", whole),
        Form("final@1", "what it says last, after Answer: or the like, else its head", final, _votes),
        Form("number@1", "its last number", number, _votes),
        Form("json@1", "its JSON value, field by field", json_text, _weakest, structured=True),
        Form(
            "call@1",
            "the tools that it calls, argument by argument",
            call_text,
            _weakest,
            ships=call_text,
            structured=True,
        ),
        Form("raw@1", "the answer as it came, reasoning and all", str, ships=str),
    )
}
"""Every form, by its name without version."""

WHOLE = FORMS["whole"]


@lru_cache(maxsize=64)
def form(written: str) -> Form:
    """Return the form that a setting names: ``number`` or ``number@1``; ``number comma`` where decimals stand behind a comma; after
    ``json`` or ``call`` JSON Pointers of leaves that are free text, ``json /notes /items/*/remark``.

    Raises `ValueError` for anything else.
    """
    name, *free = written.split(" ")
    known = FORMS.get(name) or next((one for one in FORMS.values() if one.name == name), None)
    if known is None:
        raise ValueError(f"judged must be one of {', '.join(FORMS)}, not {written!r}")
    if not free:
        return known
    if known is FORMS["number"] and free == ["comma"]:
        return replace(known, part=_with_comma, free=("comma",))
    if not known.structured or not all(one.startswith("/") for one in free) or len(free) > MOST_LEAVES:
        raise ValueError(
            f"judged may be 'number comma', or name fields of free text as in 'json /notes' or 'call /notes', not {written!r}"
        )
    return replace(known, free=tuple(sorted(set(free))))


def _balanced(text: str, start: int) -> str:
    """What stands between a brace and the one that closes it; nothing, where none does."""
    depth = 1
    for one in _BRACES.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(one[0], 0)
        if not depth:
            return text[start : one.start()].strip()
    return ""


def _parsed(text: str) -> Any:
    """Read one JSON value strictly. Raises `ValueError`, `ArithmeticError` or `RecursionError` for anything else."""
    bare = text.strip()
    fenced = _FENCED.fullmatch(bare)
    return json.loads(
        fenced[1] if fenced else bare,
        parse_float=lambda one: _Number(decimal_form(one)),
        parse_int=lambda one: _Number(decimal_form(one)),
        parse_constant=_refused,
        object_pairs_hook=_object,
    )


def _refused(constant: str) -> None:
    raise ValueError(f"JSON has no {constant}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("an object has a key twice")
    return made


def _call(value: Any) -> dict[str, Any]:
    """Read one call, in either of its forms."""
    if (
        isinstance(value, dict)
        and isinstance(value.get("function"), dict)
        and value.keys() <= {"function", "id", "type", "index"}
    ):
        value = value["function"]
    if not isinstance(value, dict) or not value.keys() <= _CALLS:
        raise ValueError("a call has a name and arguments")
    name, arguments = value.get("name"), value.get("arguments", {})
    if isinstance(arguments, str) and not isinstance(arguments, _Number):
        arguments = _parsed(arguments) if arguments.strip() else {}
    if (
        not isinstance(name, str)
        or isinstance(name, _Number)
        or is_blank(name)
        or not isinstance(arguments, dict)
    ):
        raise ValueError("a call has a name and arguments")
    return {"name": name, "arguments": arguments}


def _written(value: Any) -> str:
    """The JSON of what `_parsed` returns, its keys sorted; raises `ValueError` for half a surrogate pair."""
    if isinstance(value, dict):
        made = "{" + ",".join(f"{_written(key)}:{_written(value[key])}" for key in sorted(value)) + "}"
    elif isinstance(value, list):
        made = "[" + ",".join(map(_written, value)) + "]"
    else:
        made = str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)
    made.encode()
    return made


def _again(made: str) -> str:
    """A text that is read as it was written; nothing, where a string in it would be taken for the end of reasoning."""
    return made if whole(made) == made else ""


def _comparable(leaf: Any) -> str:
    """The form in which leaves are compared; its first character is the kind, so that 1 is not "1"."""
    if isinstance(leaf, _Number):
        return f"#{leaf}"
    if isinstance(leaf, str):
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", leaf).casefold())
        return f'"{" ".join(folded.split())}'
    return json.dumps(leaf)


@lru_cache(maxsize=1024)
def _leaves_of_text(part: str) -> Leaves:
    return leaves_of(_parsed(part))
