"""The list of signals of a gate: which columns the row of an answer has, and the row. Pure.

A list is frozen with a policy. Rows are scaled by constants of this package, never by a gate's own data, so the row of an
answer depends on its batch alone.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.signal_order import SIGNALS
from streamer.scoring.gram import DECIMALS
from streamer.scoring.judged import FORMS, form
from streamer.scoring.scorer import AnswerBatch, finished
from streamer.scoring.signals import alone, embeddings, unread, words
from streamer.scoring.signals.declared import GIVEN, LOGARITHMS, declared_ranges
from streamer.scoring.signals.measured import Measured
from streamer.scoring.signals.signal import Signal

Floats = NDArray[np.float64]
Rows = NDArray[np.float32]

_FOUND = {
    one.name: one
    for module in (alone, embeddings, unread, words)
    for one in vars(module).values()
    if isinstance(one, Signal)
}
if _FOUND.keys() != set(SIGNALS):
    raise TypeError(f"measured or listed alone: {', '.join(sorted(_FOUND.keys() ^ set(SIGNALS)))}")
MEASURED = tuple(_FOUND[name] for name in SIGNALS)
"""What is measured of every answer, in the order of a row's columns."""

VERSION = 2
"""Of `MEASURED`. A published version never changes."""

CLIP = 4.0
"""Scaled signals lie within this of 0."""

MOST_MODELS = 20


@dataclass(frozen=True)
class SignalList:
    """The signals of a gate.

    `version`: of what is measured of every answer, `VERSION`. `given`: which of `GIVEN`
    come with an answer, and forms (`number@1`), for the agreement in that part of the answer.
    `models`: names of at most 20 language models; each is a column, 1 for its answers. `declared`:
    at most 20 numbers of the user's own: name (1 to 40 of a-z, 0-9 and ``_``), least and largest
    value. Raises `ValueError` when a part is none of these.
    """

    version: int = VERSION
    given: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    declared: tuple[tuple[str, float, float], ...] = ()

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise ValueError(f"the version of the signals must be {VERSION}, not {self.version!r}")
        if unknown := [one for one in sorted(set(self.given) - set(GIVEN)) if not _is_form(one)]:
            raise ValueError(
                f"signals given with an answer must be among {', '.join(GIVEN)}, not {unknown[0]!r}; a signal of your own needs its "
                "range, like retrieval=0..1"
            )
        if len(self.models) > MOST_MODELS:
            raise ValueError(f"models must be at most {MOST_MODELS}, not {len(self.models)}")
        if not all(self.models):
            raise ValueError("models must have names")
        declared_ranges({name: (least, most) for name, least, most in self.declared})
        if repeated := sorted({one for one in self.columns if self.columns.count(one) > 1}):
            raise ValueError(f"a signal has one name and one column, and {repeated[0]!r} stands twice")

    @cached_property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The least and largest value of what comes with an answer, by name, in the order of the columns."""
        return {name: GIVEN.get(name, (0.0, 1.0)) for name in self.given} | {
            name: (least, most) for name, least, most in self.declared
        }

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the signals, without models."""
        return (*SIGNALS, *self.ranges)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of a row's d columns: what comes with an answer has a second one, 1 where it is missing."""
        given = (*self.given, *(name for name, _, _ in self.declared))
        return (
            *SIGNALS,
            *(column for name in given for column in (name, f"{name}:missing")),
            *(f"model={name}" for name in self.models),
        )

    @cached_property
    def titles(self) -> tuple[str, ...]:
        """What a row's d columns are called for people."""
        said = {one.name: one.title for one in MEASURED}
        missing = {f"{name}:missing": f"no {name.replace('_', ' ')}" for name in self.ranges}
        models = {f"model={name}": f"model {name}" for name in self.models}
        return tuple((said | missing | models).get(name, name.replace("_", " ")) for name in self.columns)

    @cached_property
    def text(self) -> str:
        """The list as JSON, the same characters for the same list."""
        declared = [[name, float(least), float(most)] for name, least, most in self.declared]
        values = {"version": self.version, "given": self.given, "models": self.models, "declared": declared}
        return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def written(self) -> list[str]:
        """What `signal_list` makes it of."""
        declared = [f"{name}={float(least)!r}..{float(most)!r}" for name, least, most in self.declared]
        return [*self.given, *(f"model={name}" for name in self.models), *declared]

    @cached_property
    def hash(self) -> str:
        """SHA-256 of `text`, in hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @classmethod
    def of_text(cls, text: str) -> "SignalList":
        """Read a list from `text`. Raises `ValueError` for anything that it would not write."""
        try:
            values = json.loads(text)
            made = cls(
                values["version"],
                tuple(values["given"]),
                tuple(values["models"]),
                tuple((name, least, most) for name, least, most in values["declared"]),
            )
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(
                f"a list of signals must have version, given, models and declared: {error}"
            ) from None
        if made.text != text:
            raise ValueError("a list of signals must be written as this program writes it")
        return made

    def rows(
        self,
        batch: AnswerBatch,
        question: str | None = None,
        given: Mapping[str, Sequence[float | None]] | None = None,
    ) -> Rows:
        """Measure the n answers of a batch.

        `question`: the prompt; None or empty where it is not known. `given`: by name n numbers that
        came with the answers, None where one is missing: ``score`` in [0, 1], ``logprob`` at most
        0, ``judge`` in [0, 100], token entropies at least 0, and declared ones. Names that the list
        does not have are passed over. Returns float32, shape (n, d): scaled, in [-4, 4], without
        intercept; zeros for blank answers. Raises `ValueError` when a number lies outside its
        range, or embeddings cannot be compared.
        """
        return self.of_measured(Measured(batch, question), given)

    def check(self, given: Mapping[str, Sequence[float | None]]) -> None:
        """Raise `ValueError`, as `rows` does, where a number that came with an answer lies outside its range."""
        for name, (least, most) in self.ranges.items():
            _given(name, given.get(name) or (), least, most)

    def of_measured(
        self, measured: Measured, given: Mapping[str, Sequence[float | None]] | None = None
    ) -> Rows:
        """Return `rows` of what may have been measured already."""
        n = measured.size
        columns = [(one.of(measured) - one.mean) / one.deviation for one in MEASURED]
        for name, (least, most) in self.ranges.items():
            values = _agreement(name, measured) if "@" in name else (given or {}).get(name) or [None] * n
            if len(values) != n:
                raise ValueError(f"the signal {name} has {len(values)} values, and the batch {n} answers")
            columns += _given(name, values, least, most)
        models = measured.batch.models or [""] * n
        columns += [np.array([float(one == name) for one in models]) for name in self.models]
        found = np.stack(columns, axis=1).clip(-CLIP, CLIP).astype(np.float32)
        found[~measured.written] = 0.0
        return found + np.float32(0.0)  # -0.0 is 0.0 in every record


def signal_list(written: Sequence[str]) -> SignalList:
    """Make a list from what is written on a command line: ``score``, ``retrieval=0..1``, ``model=NAME``.

    Raises `ValueError` for anything else.
    """
    given, models, declared = [], [], []
    for one in written:
        name, said, rest = one.partition("=")
        if not said:
            given.append(form(name).text if name.partition(" ")[0] in FORMS else name)
        elif name == "model":
            models.append(rest)
        else:
            try:
                least, most = map(float, rest.split(".."))
            except ValueError:
                raise ValueError(
                    f"a signal of your own needs its range, like {name or 'retrieval'}=0..1, not {one!r}"
                ) from None
            declared.append((name, least, most))
    return SignalList(given=tuple(given), models=tuple(models), declared=tuple(declared))


def choice_scores(batch: AnswerBatch | Measured) -> Floats:
    """Return the scores of `scored_for_choice`."""
    return scored_for_choice(batch)[0]


def scored_for_choice(batch: AnswerBatch | Measured) -> tuple[Floats, Floats | None]:
    """Score n answers for the choice of the one that may ship: the highest, of equal ones the first.

    Returns `scores`, float64, shape (n,), in [0, 1], rounded to 1e-6; 0 for a blank answer. (Gram
    energy + chrF) / 2; where what is judged has an agreement of its own (`streamer.scoring.judged`)
    that: of JSON and calls as it is, else .9 of it + .1 ROUGE-1 of the answers without reasoning;
    `agreement`, shape (n,), rounded to 1e-6, not a number for a blank answer; None where what is
    judged has none of its own.
    """
    measured = batch if isinstance(batch, Measured) else Measured(batch)
    judged, blank = measured.batch.form, measured.batch.blank
    if judged is None or not judged.agrees:
        return finished((embeddings.gram.of(measured) + words.chrf.of(measured)) / 2, blank), None
    agreement = judged.agreement(measured.batch.texts)
    rest = 0 if judged.structured else 0.1
    scores = finished((1 - rest) * agreement + rest * words.rouge_1.of(measured), blank)
    return scores, np.where(blank, np.nan, agreement.round(DECIMALS))


def batch_row(rows: Rows, blank: Sequence[bool]) -> Rows:
    """Return the row of a whole batch, shape (d,): the mean over the answers that are not blank.

    Raises `ValueError` where all are.
    """
    written = ~np.asarray(blank, dtype=np.bool_)
    if not written.any():
        raise ValueError("a batch of blank answers has no row")
    row: Rows = rows[written].mean(axis=0, dtype=np.float64).astype(np.float32)
    return row


def _is_form(name: str) -> bool:
    try:
        return isinstance(name, str) and form(name).text == name and form(name).agrees is not None
    except ValueError:
        return False


def _agreement(name: str, measured: Measured) -> list[float | None]:
    """How far each answer agrees in a part of it, None where it has none, or is the only one."""
    if measured.size < 2:
        return [None]
    parts = form(name).parts(measured.texts)
    return [
        share if part else None
        for part, share in zip(parts, form(name).agreement(parts).tolist(), strict=True)
    ]


def _given(name: str, values: Sequence[float | None], least: float, most: float) -> list[Floats]:
    """The column of a number that comes with an answer, and that of where it is missing."""
    middle, half = (least + most) / 2, (most - least) / 2
    scaled = np.zeros(len(values))
    for place, value in enumerate(values):
        if value is None:
            continue
        number = float(value)
        if sign := LOGARITHMS.get(name):
            if sign * number > 0:
                raise ValueError(
                    f"the {name} of answer {place + 1} is {value!r}: it is at {'most' if sign > 0 else 'least'} 0"
                )
            number = math.exp(sign * number)
        if not least <= number <= most:  # so is NaN refused
            raise ValueError(
                f"the signal {name} of answer {place + 1} is {value!r}, outside its range of {least:g} to {most:g}; "
                "declare the range that it has, and the gate collects prompts with it anew"
            )
        scaled[place] = (number - middle) / half
    return [scaled, np.array([float(value is None) for value in values])]
