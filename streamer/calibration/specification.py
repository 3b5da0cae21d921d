"""What a calibrator says of itself: one class, one file, and everything else follows from it.

Options, the form on topics and in SQL, checks of what goes together, tables in docs and the generic tests are made from
these specifications. A new calibrator is one file in `streamer.calibration.calibrators`.
"""

import math
import operator
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.batch_rule import TransductiveRule
from streamer.calibration.full_fit import Prompts
from streamer.calibration.groups import LabelledGroup
from streamer.calibration.guarantee import budget, groups_needed
from streamer.calibration.history import NO_HISTORY, History
from streamer.calibration.threshold import Threshold

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Indices = NDArray[np.intp]


Number = float | int
Risk = Literal["exposure", "selective"]
Family = Literal["on average", "with high probability", "no promise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What values a parameter may have, and what it is for.

    `help`: one sentence for the command line. `metavar`: what stands for the value there. `least`,
    `most`: the ends of the range; for a text, of its length. `open`: the ends themselves are
    excluded; `open_least`, `open_most`: the lower or the upper one alone. `whole`: whole numbers
    only.
    """

    help: str
    metavar: str
    least: float = 0.0
    most: float = math.inf
    open: bool = False
    open_least: bool = False
    open_most: bool = False
    whole: bool = False

    def plain(self, name: str, value: Any) -> Number:
        """Return a value of this range as Python's own number, or raise `ValueError` that names the parameter."""
        try:
            number = (
                math.nan
                if isinstance(value, bool | str | bytes)
                else (operator.index if self.whole else float)(value)
            )
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not self.has(number):
            raise ValueError(f"{name} must be {self.words}, not {value!r}")
        return number

    def has(self, number: float) -> bool:
        """Whether a number is in the range; NaN and infinity never are."""
        return all(_HOLDS[bound](number, end) for bound, end in self.bounds(math.inf).items())

    def bounds(self, infinite: float | None = None) -> dict[str, float]:
        """The ends by `ge`, `gt`, `le` and `lt`; no end is `infinite`, excluded, or left out."""
        low, high = self.open or self.open_least, self.open or self.open_most
        found: dict[str, float] = {"gt" if low else "ge": self.least}
        if self.most != math.inf:
            found["lt" if high else "le"] = self.most
        elif infinite is not None:
            found["lt"] = infinite
        return found

    @property
    def words(self) -> str:
        """The range in words, for errors."""
        infinite = self.most == math.inf
        if self.whole:
            return f"at least {self.least:.0f}" if infinite else f"in {self.least:.0f}..{self.most:.0f}"
        if self.open:
            if infinite:
                return "positive and finite" if not self.least else f"above {self.least:g} and finite"
            return f"between {self.least:g} and {self.most:g}, both excluded"
        most = "finite" if infinite else f"{'less than' if self.open_most else 'at most'} {self.most:g}"
        return f"{'above' if self.open_least else 'at least'} {self.least:g} and {most}"


_HOLDS = {"ge": operator.ge, "gt": operator.gt, "le": operator.le, "lt": operator.lt}


def parameter(default: Number, help: str, *, metavar: str, **about: Any) -> Any:  # noqa: A002  # every command line's word
    """Declare a parameter as a field of a specification; `about` is the rest of its `Range`."""
    return field(default=default, metadata={"range": Range(help=help, metavar=metavar, **about)})


class Specification:
    """What one of several says of itself: a calibrator, a shape, a scorer, a kind of severity."""

    __slots__ = ()

    name: ClassVar[str]
    """How it is named on the command line, on topics and in SQL."""
    place: ClassVar[int] = 1000
    """Where it stands in lists; those of the same place stand by name."""


S = TypeVar("S", bound=Specification)


class Parametrised(Specification):
    """A specification whose parameters are its dataclass fields, made by `parameter`. Raises `ValueError` beyond a range."""

    __slots__ = ()

    @classmethod
    @cache
    def ranges(cls) -> Mapping[str, Range]:
        """The parameters by name."""
        return MappingProxyType({one.name: one.metadata["range"] for one in fields(cls)})  # type: ignore[arg-type]

    @classmethod
    def defaults(cls) -> dict[str, Number]:
        """What they are unless they are given."""
        return {one.name: one.default for one in fields(cls)}  # type: ignore[arg-type, misc]

    def parameters(self) -> dict[str, Number]:
        """What they are."""
        return {name: getattr(self, name) for name in self.ranges()}

    def __post_init__(self) -> None:
        for name, about in self.ranges().items():
            object.__setattr__(self, name, about.plain(name, getattr(self, name)))


P = TypeVar("P", bound=Parametrised)


def made(kinds: Mapping[str, type[P]], name: str, parameters: Mapping[str, Number], *, what: str) -> P:
    """Make one of several; parameters that it does not have are passed over.

    Raises `ValueError` when there is none of this name, or a parameter is out of its range.
    """
    kind = kinds.get(name)
    if kind is None:
        raise ValueError(f"{what} must be one of {', '.join(kinds)}, not {name!r}")
    return kind(**{one: parameters[one] for one in kind.ranges() if one in parameters})


def all_ranges(kinds: Iterable[type[Parametrised]]) -> dict[str, tuple[Range, Number, tuple[str, ...]]]:
    """Return every parameter of several by name: its range, its default, and the names of those that have it."""
    found: dict[str, tuple[Range, Number, tuple[str, ...]]] = {}
    for kind in kinds:
        for name, about in kind.ranges().items():
            first, default, who = found.get(name, (about, kind.defaults()[name], ()))
            found[name] = (first, default, (*who, kind.name))
    return found


def discovered(package: ModuleType, base: type[S]) -> dict[str, type[S]]:
    """Return the specifications of a kind in a package, by name, in the order of their places.

    Raises `TypeError` when two have the same name.
    """
    found: dict[str, type[S]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        content = vars(import_module(f"{package.__name__}.{module.name}"))
        for one in content.values():
            if not (
                isinstance(one, type) and issubclass(one, base) and one.__module__ == content["__name__"]
            ):
                continue
            if "name" not in vars(one):
                continue
            if one.name in found:
                raise TypeError(
                    f"{one.__module__} and {found[one.name].__module__} both name themselves {one.name!r}"
                )
            found[one.name] = one
    return dict(sorted(found.items(), key=lambda pair: (pair[1].place, pair[0])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a calibrator works on.

    Attributes
    ----------
    groups : unique by id, in order of decision, the oldest first; missing severities are 1.
    alpha : the budget of one attempt, in (0, 1).
    seed : the gate's, fixed before labels were read.
    drawn : the most items that a group has labels of, >= 1; fewer may have been drawn from one. Of a run the fewest that the
        audit draw took from any group that had more.
    largest : the most items that a group may ever have.
    floor : only items that score above it were to be labelled, and the threshold will be no less; None: all were.
    history : the cuts that other prompts fix, which nobody was to label.
    prompts : the same groups with their signals; None: they have none.
    segments : by group id; empty unless the gate has segments.
    budget, attempts : what `alpha` is the share of one attempt of, for comparisons in whole numbers; None: alpha itself.
    """

    groups: Sequence[LabelledGroup]
    alpha: float
    seed: int
    drawn: int = 1
    largest: int = 1
    floor: float | None = None
    history: History = NO_HISTORY
    prompts: Prompts | None = None
    segments: Mapping[str, str] = field(default_factory=dict)
    budget: float | None = None
    attempts: int = 1

    @property
    def levels(self) -> int:
        """How many scores there are."""
        return sum([len(group.item_ids) for group in self.groups])


class Calibrated(NamedTuple):
    """What a calibrator found.

    `threshold`: for every batch, or the strictest that one may get. `window`: from which each batch
    gets a threshold of its own; None: all share one. `prompts`: which each batch is compared with,
    by all signals; None: it is not.
    """

    threshold: Threshold
    window: TransductiveRule | None = None
    prompts: Prompts | None = None


class Calibrator(Parametrised, ABC):
    """A way from labelled groups to a threshold, with its promise.

    A subclass is a frozen dataclass with slots in a file of its own in `streamer.calibration.calibrators`.
    """

    __slots__ = ()

    summary: ClassVar[str]
    """What it is, for lists: a few words."""
    promise: ClassVar[str]
    """What is promised, as a formula with words; see docs/guarantees.md."""
    asked_as: ClassVar[str] = ""
    """What `--promise` calls it; empty: it is asked for by its name alone."""
    family: ClassVar[Family] = "on average"
    risk: ClassVar[Risk] = "exposure"
    """What the budget bounds."""
    offered: ClassVar[bool] = True
    """Whether a gate may name it. The others are diagnostics, or for Python alone."""
    diagnostic: ClassVar[bool] = True
    """Whether every run shows it beside the gate's own."""
    arrays: ClassVar[bool] = False
    """Whether `streamer.calibrate` takes it: it needs nothing but scores, severities and groups."""

    by_chance: ClassVar[bool] = False
    """Whether its promise holds for a gate that ships by a chance which falls with the level (smooth, ramp)."""
    by_quantile: ClassVar[bool] = True
    """Whether it holds for any stricter level: quantiles of the calibration's own scores may only raise it."""
    by_rank: ClassVar[bool] = True
    """Whether it holds for ranks within the batch."""
    by_sum: ClassVar[bool] = False
    """Whether it reads any loss of a group that falls with the level: see `LabelledGroup.summed`."""
    seeded: ClassVar[bool] = False
    """Whether it reads the groups in an order that follows from the seed."""
    by_segment: ClassVar[bool] = False
    """Whether each segment may be calibrated on its own, with a fallback for small ones."""
    label_floor: ClassVar[bool] = True
    """Whether the threshold may be raised to a floor below which nothing is labelled."""
    attempts: ClassVar[bool] = True
    """Whether several attempts may share the budget."""
    only_stricter: ClassVar[bool] = True
    """Whether a severity that counts as more than it is can only make the threshold stricter."""

    reads_history: ClassVar[bool] = False
    """Whether it cuts where unlabelled prompts say."""
    by_order: ClassVar[bool] = False
    """Whether it matters which prompts are older."""
    of_signals: ClassVar[bool] = False
    """Whether it reads signals besides scores."""
    per_batch: ClassVar[bool] = False
    """Whether each batch gets a threshold of its own."""
    against_mean: ClassVar[str] = ""
    """How its threshold compares with that of `mean`: the end of a sentence that begins with its name; empty for `mean` itself."""

    @abstractmethod
    def calibrate(self, sample: Sample) -> Calibrated:
        """Find the threshold. Raises `ValueError` if a group id repeats or an argument is not valid."""

    def promised(self, risk: str, alpha: float) -> str:
        """Say what it promises of a risk that is not exposure, with `by_sum`; a clause."""
        mean = "On average, over calibrations and future prompts,"
        return f"{mean} {risk} is at most {budget(alpha)}"

    def groups_needed(self, alpha: float) -> int:
        """The fewest groups with which anything could ship at this budget, if none of them lost anything."""
        return groups_needed(alpha)

    def cost(self, sample: Sample) -> int:
        """Steps that grow with both levels and groups; 0 where sorting is the most."""
        return 0

    def refuses_floor(self) -> bool:
        """Whether it cannot have a label floor with these parameters."""
        return not self.label_floor

    def why_closed(self, sample: Sample) -> str | None:
        """Say in a clause with its remedy why nothing ships although there are groups enough; None: nothing special."""
        return None
