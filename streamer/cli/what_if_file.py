"""`streamer what-if FILE`: what a gate would have made of a labelled file of your own."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from streamer import wiring
from streamer.cli.console import note, print_table, say, warn
from streamer.cli.policies import cut_json
from streamer.clouds.tables.answers import Reading
from streamer.clouds.unlabelled import Unlabelled, check_unlabelled, counts, unlabelled_note
from streamer.errors import UsageError
from streamer.frames.held_out import HeldOut
from streamer.gates.rule import Cut, rule_to_json
from streamer.gates.settings import NO_ENCODER, PARAMETERS
from streamer.settings.settings import Settings
from streamer.wording.numbers import percent
from streamer.wording.policies import cut_text, guarantee_text

_DELTA = 0.1
_OF_GATE = ("alpha", "unit", "method", "label_floor", "segment_by", "segment_fallback", "scorer")
"""The settings that a file can be asked about, beside the encoder and the parameters of methods."""


def is_file(name: str) -> bool:
    """Whether the argument is a file rather than a gate: `-`, a path, an ending of a table, or a file that is there."""
    from streamer.clouds.tables.rows import SUFFIXES

    endings = Path(name.removesuffix(".gz")).suffix.lower()
    return name == "-" or "/" in name or endings in SUFFIXES or Path(name).is_file()


@dataclass(frozen=True, slots=True)
class FileQuestion:
    """What is asked of a file; see the options of `streamer what-if`."""

    file: str
    given: Mapping[str, Any]
    cut: Cut | None
    reading: Reading
    unlabelled: str
    seed: int
    in_sample: bool
    delta: float | None


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """What a gate would have made of a file."""

    question: FileQuestion
    alpha: float
    found: HeldOut

    def show(self, *, explain: bool) -> None:
        """Print it for people."""
        found = self.found
        say(f"{self.question.file} {self._asked()}: {found.sentence}.")
        say(found.basis)
        if found.why_closed:
            say(found.why_closed)
        print_table(["of the same prompts", "everything shipped", "what if"], found.comparison())
        if explain and found.threshold is not None:
            say(guarantee_text(found.threshold.guarantee))
        note(
            f"Each interval is wrong with a chance of at most {percent(found.delta)} (--monitor-delta), for other prompts that are "
            "drawn as these were: not for other times or other users. Another --seed halves the file otherwise; "
            "`streamer evaluate` does it 50 times."
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values; a `lambda` is null unless its state is cut."""
        found = self.found
        return {
            "file": self.question.file,
            "asked": {"settings": dict(self.question.given), "seed": self.question.seed},
            "threshold": cut_json(found.cut),
            "rule": rule_to_json(found.rule) | {"curve": None},
            "basis": {
                "source": "calibrated" if found.threshold is not None else "given",
                "prompts": found.calibrated,
                "in_sample": found.in_sample,
                "in_order": found.in_order,
                "guarantee": None if found.threshold is None else found.threshold.guarantee,
                "why_closed": found.why_closed or None,
            },
            "judged": found.judged,
            "unit": found.unit,
            "budget": self.alpha,
            "delta": found.delta,
            "everything_shipped": asdict(found.everything),
            "what_if": asdict(found.asked),
        }

    def _asked(self) -> str:
        named = [f"a budget of {percent(self.alpha)}"] if self.found.threshold is not None else []
        named += [
            f"{name.replace('_', ' ')} {value}"
            for name, value in self.question.given.items()
            if name != "alpha"
        ]
        if self.found.threshold is None:
            text = cut_text(self.found.cut, self.found.rule)
            named.append(f"the gate {text}" if self.found.cut.threshold is None else f"the threshold {text}")
        return "with " + ", ".join(named)


def ask_file(question: FileQuestion, settings: Settings) -> FileAnswer:
    """Answer a question about a file.

    Raises
    ------
    UsageError
        For a file that cannot be read or has no severities, and for what a table cannot be asked.
    """
    from streamer.frames.answers import read
    from streamer.frames.gate import Gate

    given = dict(question.given)
    if other := sorted(given.keys() - {*_OF_GATE, "encoder", *PARAMETERS}):
        raise UsageError(
            f"--{other[0].replace('_', '-')} is nothing that a file can be asked about; it is asked about "
            f"{', '.join((*_OF_GATE, 'encoder'))} and the parameters of methods"
        )
    unlabelled: Unlabelled = check_unlabelled(question.unlabelled)
    with ExitStack() as until:
        encode = _Encode(settings, given.pop("encoder", None), until)
        gate = Gate(
            encoder=encode,
            unlabelled=unlabelled,
            seed=question.seed,
            signals=question.reading.signals,
            models=question.reading.models,
            parameters={name: given.pop(name) for name in PARAMETERS if name in given},
            **given,
        )
        table = read(question.file, question.reading, gate.kept_columns, advice=lambda text: text)
        for said in (f"{question.file}: {table.recognised}", *table.notes):
            note(said)
        missing, answers = counts(table.clouds)
        if missing == answers:
            raise UsageError(
                f"{question.file}: no answer has a severity, so there is nothing to judge by; say which column has them: "
                "--column severity=NAME, or --column correct=NAME where 1 means right"
            )
        if said := unlabelled_note(missing, answers, unlabelled):
            warn(said)
        try:
            found = gate.held_out(
                table,
                cut=question.cut,
                in_sample=question.in_sample,
                delta=_DELTA if question.delta is None else question.delta,
            )
        except ValueError as error:
            raise UsageError(str(error)) from None
    return FileAnswer(question, gate.alpha, found)


class _Encode:
    """The configured encoder, or the named one, loaded when the first text needs it."""

    def __init__(self, settings: Settings, name: str | None, until: ExitStack) -> None:
        self._settings, self._name, self._until = settings, name or settings.encoder.name, until
        self._loaded: Any = None

    def __call__(self, texts: list[str]) -> ArrayLike:
        from streamer.scoring.encoders.registry import load_encoder

        if self._name == NO_ENCODER:
            raise UsageError("answers are scored by their embeddings, and encoder.name is none: set one")
        if self._loaded is None:
            asked = wiring.endpoint_encoder(self._settings, self._name)
            if asked is not None:
                self._until.callback(asked.close)
            chosen = self._settings.encoder
            self._loaded = asked or load_encoder(self._name, device=chosen.device, threads=chosen.threads)
        found: ArrayLike = self._loaded.encode(texts)
        return found
