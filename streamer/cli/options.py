"""Options that several commands share, and what their texts mean."""

import getpass
import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, cast, get_type_hints

import typer

from streamer.clouds.tables.answers import Reading
from streamer.clouds.tables.columns import ROLES, parse_mapping
from streamer.clouds.tables.formats import FORMATS
from streamer.clouds.tables.marks import ANNOTATORS, Annotators, Marks, parse_scale, parse_words
from streamer.clouds.unlabelled import UNLABELLED
from streamer.errors import UsageError, named_beside
from streamer.gates import free_text
from streamer.gates.policy import PROGRAM, SIGNED_IN
from streamer.gates.setting import GATE_NAME, GATE_NAME_RULE
from streamer.scoring.signals.signal_list import SignalList, signal_list


def option(metavar: str | None, text: str, default: Any = None, *names: str, **more: Any) -> Any:
    """Declare an option by what stands for its value, its help, its default (`...`: required), and its names where they are
    not the parameter's.
    """
    return typer.Option(default, *names, metavar=metavar, help=text, **more)


def flag(name: str, text: str, default: Any = False, **more: Any) -> Any:
    """Declare an option without a value by its name, ``--on/--off`` where both can be said, its help and its default."""
    return typer.Option(default, name, help=text, **more)


def argument(metavar: str, text: str, default: Any = ..., **more: Any) -> Any:
    """Declare an argument by what stands for it, its help, and its default; without one it is required."""
    return typer.Argument(default, metavar=metavar, help=text, **more)


def gate_names(incomplete: str) -> list[str]:
    """List the gates whose names begin so; none when the database is unavailable, since completion must not fail."""
    with suppress(Exception):
        from streamer import wiring
        from streamer.settings.settings import load_settings

        with wiring.open_store(load_settings()) as store:
            return [revision.gate for revision in store.gates.list() if revision.gate.startswith(incomplete)]
    return []


JsonOption = Annotated[bool, flag("--json", "Print JSON on standard output, and nothing else there.", ...)]


def for_the_record(
    name: str, text: str, default: Any = ..., *, metavar: str = "TEXT", hidden: bool = False
) -> Any:
    """An option whose text goes on record: one that no table takes is refused before anything is done."""
    most = free_text.MOST_WHO if metavar == "WHO" else free_text.MOST_WHY

    def checked(given: str | None) -> str | None:
        if given is not None and (wrong := free_text.fault(given, most)) is not None:
            raise typer.BadParameter(f"it {wrong}")
        return given

    return option(metavar, text, default, name, hidden=hidden, callback=checked)


def _by(*, hidden: bool) -> Any:
    text = "Who does this, for the record. Default: your login name."
    made = for_the_record("--by", text, metavar="WHO", hidden=hidden)
    checked = made.callback

    def named(given: str) -> str:
        return who(checked(given) if given else None)

    made.callback = named
    return made


def _reason(*, hidden: bool) -> Any:
    return for_the_record("--reason", "Why, for the record.", hidden=hidden)


ByOption = Annotated[str, _by(hidden=False)]
"""Who acts: the command gets the name as `who` gives it."""
RareByOption = Annotated[str, _by(hidden=True)]
"""Of a command that shows it with `--help-all` only, as the next."""
ReasonOption = Annotated[str, _reason(hidden=False)]
RareReasonOption = Annotated[str, _reason(hidden=True)]
HostOption = Annotated[
    str, option("HOST", "Address to listen on; any but this machine's own needs --insecure.", ...)
]


def port(what: str, default: Any = None) -> Any:
    """Make the option of a port; `what` it is of."""
    return option("PORT", f"{what}; 0: any free port.", default, min=0, max=65535)


def gate_name(given: str) -> str:
    """Check the name of a gate that may be new: the parser of options."""
    if GATE_NAME.fullmatch(given) is None:
        raise typer.BadParameter(f"{given!r} is not a valid gate name: {GATE_NAME_RULE}")
    return given


GateArgument = Annotated[str, argument("GATE", "Name of the gate.", autocompletion=gate_names)]
OnlyGate = Annotated[str | None, argument("GATE", "Only this gate.", autocompletion=gate_names)]
GateFilter = Annotated[
    str | None, option("GATE", "Only this gate.", ..., "--gate", autocompletion=gate_names)
]

ScaleOption = Annotated[
    str | None,
    option(
        "WORST:BEST", "Scale that marks are on, like 1:5 for stars. Default: severities from 0 to 1.", ...
    ),
]
WordsOption = Annotated[
    list[str] | None,
    option(
        "WORD=SEVERITY",
        "Severity of a word of your own, from 0 (fine) to 1 (worst), like partly=0.5; may be repeated.",
        ...,
        "--map",
    ),
]
AnnotatorsOption = Annotated[
    str,
    option(
        "|".join(ANNOTATORS),
        "What several severities of one answer become: their mean, or the worst of them.",
        ...,
    ),
]
TrustScoreOption = Annotated[
    bool,
    flag("--trust-score", "Take a score in that says just what the severities say, as a mark does.", ...),
]
SignalOption = Annotated[
    list[str] | None,
    option(
        "NAME=LOW..HIGH|model=NAME",
        "A number of your own that each answer has, with its range, like retrieval=0..1: in a column of that name, or the one "
        "that --column retrieval=COLUMN names; or a model that is told apart, by the column model; may be repeated.",
        ...,
    ),
]


def given_marks(scale: str | None, words: Iterable[str] | None) -> Marks:
    """Return what --scale and --map say. Raises `UsageError`."""
    return Marks(None if scale is None else parse_scale(scale), parse_words(words or ()))


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How tables are read."""

    column: list[str] | None = option(
        "ROLE=NAME",
        "Column of a table that is not recognised by name, like answer=text, or a value nested in one, like "
        f"answer=response.output; may be repeated. Roles: {', '.join(ROLES)}.",
    )
    written_by: str | None = option(
        "|".join(FORMATS), "The tool that wrote the file. Default: as its fields tell.", None, "--format"
    )
    witnesses: str | None = option(
        "NAME", "Column with a list of other samples, measured beside a row's answer and never shipped."
    )
    scale: ScaleOption = None
    words: WordsOption = None
    annotators: AnnotatorsOption = "mean"
    trust_score: TrustScoreOption = False
    signal: SignalOption = None

    def signals(self) -> "SignalList":
        """Return the declared signals. Raises `UsageError`."""
        try:
            return signal_list(self.signal or ())
        except ValueError as error:
            raise UsageError(f"--signal: {error}") from None

    def reading(self) -> "Reading":
        """Return how tables are read. Raises `UsageError`."""
        listed = self.signals()
        ranges = {name: (least, most) for name, least, most in listed.declared}
        witnesses = [] if self.witnesses is None else [f"witnesses={self.witnesses}"]
        return Reading(
            columns=parse_mapping([*(self.column or ()), *witnesses], ranges),
            marks=given_marks(self.scale, self.words),
            annotators=cast("Annotators", self.annotators),
            trust_score=self.trust_score,
            signals=ranges,
            models=listed.models,
            written_by=self.written_by,
        )


UnlabelledOption = Annotated[
    str,
    option(
        "|".join(UNLABELLED),
        "What becomes of answers without a severity: each counts as 1, they are left out, or there must be none.",
        ...,
    ),
]
SinceOption = Annotated[
    str, option("TIME", "How far back, like 12h, 30d; at most the newest 100,000 prompts.", ...)
]

SECONDS = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
"""How a time is written."""
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def with_parameters(
    command: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Give a command that takes anything the parameters that Typer makes options from."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def keyword(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    """Make a parameter for `with_parameters`."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def of_group(group: Any) -> list[inspect.Parameter]:
    """Make the parameters of options that stand together in a dataclass."""
    types = get_type_hints(group, include_extras=True)
    made = [keyword(one.name, types[one.name], one.default) for one in fields(group)]
    for one in made:
        (declared,) = getattr(one.annotation, "__metadata__", [one.default])
        declared.rich_help_panel = group.__doc__.removesuffix(".")
    return made


def in_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that stand together in dataclasses, each of which is one of its parameters.

    A dataclass has the options as fields, and their heading in the help as its docstring.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters = []
    for one in inspect.signature(command).parameters.values():
        if (group := groups.get(one.name)) is None:
            parameters.append(keyword(one.name, hints[one.name], one.default))
            continue
        parameters += of_group(group)

    def run(**values: Any) -> None:
        held = {
            name: kind(**{option.name: values.pop(option.name) for option in fields(kind)})
            for name, kind in groups.items()
        }
        command(**held, **values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return with_parameters(run, parameters)


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


ExplainOption = Annotated[
    bool, flag("--explain", "Print the guarantee in full: basis, assumptions, and what is not promised.", ...)
]


def who(by: str | None, option: str = "--by") -> str:
    """Name the person who acts: `by`, which `option` gives, or the login name.

    Raises `UsageError` when the system has no name for the user, or the name is one that the program itself acts under:
    so that what an alarm did differs from what a person did, and what somebody who signed in did from a claim.
    """
    try:
        name = by or getpass.getuser()
    except (KeyError, OSError, ImportError):
        raise UsageError(f"your login name is unknown; say who you are with {option}") from None
    if name in PROGRAM:
        raise UsageError(f"the program itself acts as {name!r}; say who you are with {option}")
    if name.startswith(SIGNED_IN):
        raise UsageError(
            f"names that begin with {SIGNED_IN!r} are of people who signed in at the console; say who you are without it"
        )
    return name


def share(text: str | float) -> float:
    """Turn ``0.05`` or ``5%`` into a number: the parser of options."""
    written = str(text).strip()
    try:
        return float(Decimal(written.removesuffix("%")) / 100) if written.endswith("%") else float(written)
    except (ValueError, ArithmeticError):
        raise typer.BadParameter(f"{text!r} is no number; write a share like 0.05 or 5%") from None


def share_from(low: float) -> Callable[[str | float], float]:
    """Make a parser that does the same for a share from `low` to 1."""

    def parse(text: str | float) -> float:
        if not low <= (value := share(text)) <= 1:
            raise typer.BadParameter(f"{text!r} is not from {low:g} (or {low:.0%}) to 1")
        return value

    return parse


def seconds(text: str, option: str) -> float:
    """Turn ``90``, ``90s``, ``30m``, ``12h`` or ``7d`` into seconds. Raises `UsageError` for anything else."""
    match = SECONDS.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"{option} must be a time like 90s, 30m, 12h or 7d, not {text!r}")
    return float(match[1]) * _SECONDS[match[2]]


def number(text: str, option: str) -> float:
    """Turn a text into a finite number. Raises `UsageError` for anything else."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{option} must be a number, or none, not {text!r}")
    return value


def whole_number(text: str, option: str, nothing: str = "none") -> int:
    """Turn a text into a whole number. Raises `UsageError` for anything else."""
    if re.fullmatch(r"\d{1,18}", text.strip()) is None:
        raise UsageError(f"{option} must be a whole number, or {nothing}, not {text!r}")
    return int(text)


def names(text: str, option: str, *, spelt: Callable[[str], str] = str.strip) -> tuple[str, ...]:
    """Split a text at its commas; `spelt` gives each name its one spelling.

    Raises `UsageError` when a name is empty or given twice.
    """
    found = [spelt(part) for part in text.split(",")]
    for name in found:
        if not name:
            raise UsageError(f"{option} has an empty name; give names separated by commas, not {text!r}")
        if found.count(name) > 1:
            raise UsageError(f"{option} names {name!r} twice")
    return tuple(found)


def promised_method(promise: str, named: str | None) -> str:
    """Return the method that a promise asks for; `named` is the one that was named beside it, None for none.

    Raises `UsageError` where there is no such promise, or the two differ.
    """
    from streamer.calibration.registry import promises as known  # most commands need no calibrators

    promises = known()
    method = promises.get(promise)
    if method is None:
        raise UsageError(f"--promise must be one of {', '.join(promises)}, not {promise!r}")
    if named not in (None, method):
        raise UsageError(f"--promise {promise} is --method {method}: leave --method {named} out")
    return method


def write_key_files(out: Path, private: str, public: str) -> Path:
    """Write both keys; returns the file of the public one, FILE.pub. Raises `UsageError`: no file is overwritten."""
    beside = named_beside(out, ".pub")
    made: list[Path] = []
    try:
        for path, text, mode in ((out, private, 0o600), (beside, public, 0o644)):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            made.append(path)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        # Half a key, or one without the other, is of no use and would stand in the way of the next attempt.
        for path in made:
            path.unlink(missing_ok=True)
        where = error.filename or (made[-1] if made else out)
        raise UsageError(f"cannot write {where}: {error.strerror or error}") from error
    return beside
