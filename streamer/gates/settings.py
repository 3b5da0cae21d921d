"""What a risk owner decides about a gate. Pure: plain values and their rules.

Settings are given flat, by their names on the command line, on topics and in SQL, and are held as objects: a calibrator and a
shape, each with its own parameters.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

from streamer.calibration import registry
from streamer.calibration.calibrators.mean import Mean
from streamer.calibration.claims import by_steps, claim_loss, first_wrong
from streamer.calibration.specification import Calibrator, Number, Range
from streamer.gates import labeller_names, shapes
from streamer.gates.declared import FIRST_PARAMETERS, Declared, HoldAction, Mode, Unit
from streamer.gates.setting import EXTERNAL_PREFIX, NO_VALUE, SHAPING, Setting
from streamer.gates.shapes import INDICATOR_SHAPE, GateShape
from streamer.scoring.judged import WHOLE, Form, form
from streamer.scoring.registry import CHOICE, CHOOSING, OF_CLAIMS, is_plugin, scorer_named
from streamer.scoring.registry import EVERY as EVERY_SCORER
from streamer.scoring.scorer import Scorer
from streamer.scoring.signals.signal_list import SignalList

UNITS: tuple[Unit, ...] = get_args(Unit)
SHAPES: tuple[str, ...] = tuple(shapes.EVERY)
MODES: tuple[Mode, ...] = get_args(Mode)
HOLD_ACTIONS: tuple[HoldAction, ...] = get_args(HoldAction)
HELD_WORDS: dict[str, str] = {
    "abstain": "held",
    "escalate": "held, for a person",
    "regenerate": "held, to be answered anew",
}
"""What a batch's action is called where nothing of it ships."""
SCORERS: tuple[str, ...] = tuple(EVERY_SCORER)
METHODS: tuple[str, ...] = registry.offered()
"""The calibrators that a gate may name."""

_MOST_LABELLERS = 200

_EXTERNAL_ENCODER = re.compile(r"external:[!-~]{1,190}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_10000_MS = 253_402_300_800_000

NO_ENCODER = "none"
"""The encoder of a gate whose scorer is `external` or `likelihood`."""

_IN_PLACE = tuple(one.in_place for one in EVERY_SCORER.values() if one.in_place is not None)


def stands_for(wanted: str, encoder: str) -> bool:
    """Whether this is in an encoder's place, in the form of `Scorer.in_place`."""
    return encoder == wanted if not wanted.endswith(":") else encoder.startswith(wanted) and encoder != wanted


def is_in_place(encoder: str) -> bool:
    """Whether this stands in the place of an encoder, for a scorer that reads no embeddings."""
    return any(stands_for(wanted, encoder) for wanted in _IN_PLACE)


PARAMETERS: Mapping[str, tuple[Range, Number, tuple[str, ...]]] = MappingProxyType(
    registry.ranges() | shapes.ranges()
)
"""Every parameter of a method or a shape: its range, its default, and which methods or shapes have it."""

FIRST_METHODS = ("mean", "crc", "bb", "rbwa", "transductive", "hb", "betting", "selective", "age")
"""The methods that have no other parameters. What any other one reads is under `parameters`, whole, so that whoever does
not know the method can still see what a threshold was calibrated for."""


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class GateSettings(Declared):
    """Everything that a risk owner decides about a gate; one append-only revision holds one of these. See `Declared` for each."""

    def __init__(self, **flat: Any) -> None:
        """Take settings by their flat names: `method`, `shape` and every parameter by name, or `calibrator` as it is.

        Raises `ValueError` when a value is out of its range, or no guarantee is known for what was
        put together. Raises `TypeError` when a name is unknown, or the encoder is missing.
        """
        given = {name: value for name, value in flat.items() if name in PARAMETERS}
        common = {name: value for name, value in flat.items() if name not in PARAMETERS}
        parameters: dict[str, Any] = dict(common.pop("unread", ()))
        method = common.pop("calibrator", None)
        shape = common.pop("shape", INDICATOR_SHAPE.name)
        for own in (method, shape):
            if isinstance(own, Calibrator | GateShape):
                parameters |= own.parameters()
        name = common.pop("method", method.name if method is not None else Mean.name)
        others = common.pop("parameters", None) or {}
        for one in others.keys() & set(FIRST_PARAMETERS):
            if name in FIRST_METHODS or others[one] != given.get(one, others[one]):
                raise ValueError(f"parameters must not say another {one} than its own field")
        parameters |= others | given
        if name not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, not {name!r}")
        for one in parameters:
            if one not in PARAMETERS:
                raise ValueError(f"parameters must be those of a method or a shape, not {one!r}")
        parameters = {one: PARAMETERS[one][0].plain(one, value) for one, value in parameters.items()}
        calibrator = registry.calibrator(name, parameters)
        gate_shape = shapes.shape(shape.name if isinstance(shape, GateShape) else shape, parameters)
        own_names = {*calibrator.ranges(), *gate_shape.ranges()}
        unread = sorted(
            (one, value)
            for one, value in parameters.items()
            if one not in own_names and value != PARAMETERS[one][1]
        )
        held = {"calibrator": calibrator, "shape": gate_shape, "unread": tuple(unread)}
        for field in fields(Declared):
            if field.name in held:
                value = held[field.name]
            elif field.name in common:
                value = common.pop(field.name)
            elif field.name in _DEFAULTS:
                value = _DEFAULTS[field.name]
            else:
                raise TypeError(f"settings of a gate need {field.name}")
            object.__setattr__(self, field.name, value)
        if common:
            raise TypeError(f"a gate has no setting {', '.join(sorted(common))}")
        self._check()

    @property
    def method(self) -> str:
        """The calibrator's name."""
        return self.calibrator.name

    def parameter(self, name: str) -> Number:
        """A parameter of any method or shape, whether it has an effect on this gate or not."""
        own = self.calibrator.parameters() | self.shape.parameters()
        return (dict(self.unread) | own).get(name, PARAMETERS[name][1])

    def flat(self) -> dict[str, Any]:
        """The settings by the names that they have on the command line, on topics and in SQL; see `FLAT_NAMES`."""
        own = self.calibrator.parameters() | self.shape.parameters()
        younger = {
            one: value for one, value in (dict(self.unread) | own).items() if one not in FIRST_PARAMETERS
        }
        if self.method not in FIRST_METHODS:
            younger |= self.calibrator.parameters()
        special = {
            "method": self.calibrator.name,
            "shape": self.shape.name,
            "parameters": dict(sorted(younger.items())) or None,
        }
        return {
            name: special[name]
            if name in special
            else self.parameter(name)
            if name in FIRST_PARAMETERS
            else getattr(self, name)
            for name in FLAT_NAMES
        }

    def named(self) -> dict[str, Any]:
        """The settings by their flat names, with every parameter by its own name in place of `parameters`."""
        flat = self.flat()
        del flat["parameters"]
        return flat | {name: self.parameter(name) for name in PARAMETERS}

    def is_late(self, created_at: datetime | None, timestamp_ms: int, now: datetime) -> bool:
        """Whether a batch's decision deadline has passed; never for a gate without one.

        It counts from `created_at`, or where the event names no date from `timestamp_ms`, that of its record in Kafka.
        A date further ahead than the deadline is long counts as none: clocks differ, but such a batch would
        never be late. Without any date it counts as late, since nothing shows that it is not.
        """
        deadline = self.decision_deadline_seconds
        if deadline is None:
            return False
        for moment in (created_at, _moment(timestamp_ms)):
            age = None if moment is None else (now - moment).total_seconds()
            if age is not None and age >= -deadline:
                return age > deadline
        return True

    def _check(self) -> None:
        if self.labellers is not None:
            object.__setattr__(self, "labellers", _labellers(self.labellers))
        for name in _FIELDS:
            if (want := SETTINGS[name].fault(getattr(self, name))) is not None:
                raise ValueError(f"{name} must be {want}, not {getattr(self, name)!r}")
        if self.scorer not in SCORERS and not is_plugin(self.scorer):
            raise ValueError(
                f"scorer must be one of {', '.join(SCORERS)}, not {self.scorer!r}; `streamer scorer list` shows installed ones"
            )
        self._check_model()
        for name, want in _contradictions(self):
            raise ValueError(f"{name} must be {want}, not {getattr(self, name)!r}")
        self._check_encoder()
        self._check_signals()
        try:
            claim_loss(self.loss)
        except ValueError as error:
            raise ValueError(f"loss must be of claims: {error}") from None
        if (reason := unsupported(self)) is not None:
            raise ValueError(reason)

    def _check_encoder(self) -> None:
        """Refuse an encoder that the scorer does not read, and what stands in its place for another scorer."""
        wanted = self.scores_by.in_place
        if wanted is not None and not stands_for(wanted, self.encoder):
            of_judge = (
                ", as `streamer gate set GATE --scorer judge` names the configured judge"
                * wanted.endswith(":")
            )
            raise ValueError(
                f"the scorer {self.scorer} goes with encoder {wanted!r}, and only that{of_judge}"
            )
        if wanted is None and is_in_place(self.encoder):
            raise ValueError(
                f"encoder must be one that makes embeddings, for the scorer {self.scorer}, not {self.encoder!r}"
            )

    def _check_signals(self) -> None:
        try:
            judged = form(self.judged)
        except ValueError as error:
            raise ValueError(str(error)) from None
        object.__setattr__(self, "judged", judged.text)
        if judged.agrees and self.scorer != CHOICE:
            raise ValueError(
                f"judged must be whole or raw with the scorer {self.scorer}, not {self.judged!r}"
            )
        if judged.name == "call@1" and self.unit != "best":
            raise ValueError("judged may be call with the unit best alone: a call is made, or none is")
        if self.signals is None:
            if self.calibrator.of_signals:
                raise ValueError(f"signals must be a list of signals with the method {self.method}")
            return
        try:
            given = SignalList.of_text(self.signals).given
        except ValueError as error:
            raise ValueError(f"signals must be a list of signals: {error}") from None
        if missing := set(judged.signal) - set(given):
            raise ValueError(f"signals must have {missing.pop()}, the agreement in what is judged")
        if self.scorer not in CHOOSING:
            raise ValueError(
                f"scorer must be {' or '.join(CHOOSING)} with a list of signals, not {self.scorer!r}: it chooses the answer that the "
                "signals are of"
            )
        if self.of_event not in (None, *given):
            raise ValueError(f"signals must have {self.of_event} with the scorer {self.scorer}")

    def _check_model(self) -> None:
        if is_plugin(self.scorer):
            try:
                scorer_named(self.scorer, self.model)
            except ValueError as error:
                raise ValueError(f"model must be the specification of {self.scorer}: {error}") from None
            return
        if self.model is not None:
            raise ValueError(
                f"model must be absent with the scorer {self.scorer}: it is not of another package"
            )

    @property
    def until_wrong(self) -> bool:
        """Whether labels of a batch are asked for from the highest score to the first wrong one.

        So of claims whose loss is `any`: what scores no more changes it at no threshold.
        """
        return self.unit == "claim" and self.loss == "any"

    def asked_above(self, labelled: Iterable[tuple[float, float | None]]) -> float:
        """Return the score above which labels of a batch are asked for.

        `labelled` : score and severity of each of its drawn responses or claims.
        """
        floor = -math.inf if self.label_floor is None else self.label_floor
        return max(floor, first_wrong(labelled)) if self.until_wrong else floor

    def at_desk_until(self, outcome: str, answers: int, decided_at: datetime) -> datetime | None:
        """Until when a batch of n answers or claims with this outcome waits for a person; None where nobody is waited for.

        Nobody waits for what a gate in shadow mode holds, nor for a batch without an answer, nor for one that shipped in part,
        unless claims may be put back into its answer.
        """
        seconds = self.desk_deadline_seconds if answers else None
        waits = outcome == "escalate" or (outcome == "mixed" and self.unit == "claim")
        if seconds is None or not waits or self.mode != "enforce":
            return None
        return decided_at + timedelta(seconds=seconds)

    @property
    def of_event(self) -> str | None:
        """The field of an event's responses that scores are made of; None: events do not bring them."""
        return self.scores_by.of_event

    @property
    def asks(self) -> bool:
        """Whether a language model is asked for the scores."""
        return self.scores_by.asks

    @property
    def embeds(self) -> bool:
        """Whether scores are made of embeddings."""
        return self.scores_by.in_place is None

    @property
    def least_answers(self) -> int:
        """How many answers a batch needs: two, where they are compared."""
        return 2 if self.embeds else 1

    @property
    def signal_list(self) -> SignalList | None:
        """The signals that decisions keep; None: none."""
        return None if self.signals is None else _list_of(self.signals)

    @property
    def form(self) -> Form:
        """What of an answer is judged."""
        return form(self.judged)

    @property
    def floor(self) -> float | None:
        """The score, fixed in advance, above which something may ship; None: there is none."""
        fixed = self.calibrator.parameters().get("ship_above")
        return self.label_floor if self.label_floor is not None else (fixed or None)

    @property
    def scored_by(self) -> tuple[str, str, str | None, str]:
        """What scores and rows of batches are made by: they can be compared where this is the same."""
        return self.scorer, self.encoder, self.signals, self.judged

    @property
    def scores_by(self) -> Scorer:
        """What scores this gate's batches."""
        return scorer_named(self.scorer, self.model)

    @property
    def boosted_probability(self) -> float:
        """The audit probability while it is raised; the gate's own where it never is."""
        return min(1.0, (self.audit_boost or 1.0) * self.audit_probability)

    @property
    def external_encoder(self) -> bool:
        """Whether no worker can make the embeddings of this gate."""
        return self.encoder.startswith(EXTERNAL_PREFIX)

    def accepts(self, encoder: str | None, dimension: int) -> bool:
        """Whether a batch is decided by its own embeddings, which the publisher says are of `encoder`.

        The encoder must be the gate's; an external one may be named without its prefix.
        """
        return (
            self.embeddings == "accept"
            and encoder in (self.encoder, self.encoder.removeprefix(EXTERNAL_PREFIX))
            and dimension == self.dimension
        )


_list_of = lru_cache(maxsize=64)(SignalList.of_text)


def _declared() -> dict[str, Setting]:
    """Every setting by its flat name."""
    hints = get_type_hints(Declared)
    flat: dict[str, tuple[str, Any, Any]] = {
        "calibrator": ("method", str, Mean.name),
        "shape": ("shape", str, INDICATOR_SHAPE.name),
        "unread": ("parameters", dict[str, Number] | None, None),
    }
    found: dict[str, Setting] = {}
    for field in fields(Declared):
        if "setting" not in field.metadata:
            raise TypeError(f"write {field.name} as setting(...): see docs/contributing/setting.md")
        name, hint, default = flat.get(field.name, (field.name, hints[field.name], field.default))
        found[name] = field.metadata["setting"].of(name, hint, default)
        for one in _OF_PARTS.get(name, ()):
            found[one] = parameter_setting(one)
    return found


def parameter_setting(name: str) -> Setting:
    """A parameter of methods or shapes as a setting."""
    about, default, who = PARAMETERS[name]
    kind = "Method" if name in registry.ranges() else "Shape"
    return Setting(
        help=f"{kind}{'s' if len(who) > 1 else ''} {', '.join(who)}: {about.help}.",
        panel=SHAPING,
        before=NO_VALUE if name in ("eta", "draws") else default,
        **{one: getattr(about, one) for one in _OF_RANGE},
    ).of(name, int if about.whole else float, default)


_OF_PARTS = {"method": FIRST_PARAMETERS[:-1], "shape": FIRST_PARAMETERS[-1:]}
_OF_RANGE = [one.name for one in fields(Range) if one.name != "help"]
SETTINGS: Mapping[str, Setting] = MappingProxyType(_declared())
"""Every setting by its name on the command line, on topics and in SQL; `parameters` holds those without a name of their own."""

FLAT_NAMES = tuple(SETTINGS)
_FIELDS = tuple(field.name for field in fields(Declared) if field.name in SETTINGS and field.name != "shape")

_DEFAULTS = {field.name: field.default for field in fields(Declared) if field.default is not MISSING}


def _moment(timestamp_ms: int) -> datetime | None:
    """What a record's timestamp says; None for none (-1), or one that no calendar has."""
    if not 0 <= timestamp_ms < _YEAR_10000_MS:
        return None
    return _EPOCH + timedelta(milliseconds=timestamp_ms)


def _labellers(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names as they are recorded, each once, sorted. Raises `ValueError` for what cannot be one."""
    found = sorted({labeller_names.normalised(name) for name in names})
    if not 1 <= len(found) <= _MOST_LABELLERS:
        raise ValueError(f"labellers must be 1 to {_MOST_LABELLERS} names, or absent, not {len(found)}")
    for name in found:
        if (wrong := labeller_names.fault(name)) is not None:
            raise ValueError(f"labellers must be names that people can read: {name!r} {wrong}")
    return tuple(found)


def _contradictions(settings: GateSettings) -> Iterator[tuple[str, str]]:
    """Name settings that do not go with others, and what they must be."""
    if settings.desk_deadline_seconds is not None:
        if settings.hold_action != "escalate":
            yield (
                "desk_deadline_seconds",
                f"absent with the hold action {settings.hold_action}: only what is held by escalate waits for a person",
            )
        if not settings.keep_texts:
            yield (
                "desk_deadline_seconds",
                "absent with a gate that keeps no texts: nobody could read what waits",
            )
    if settings.judge_kind == settings.severity_kind:
        yield (
            "judge_kind",
            f"another kind of label than the gate's own, {settings.severity_kind}: it predicts that one",
        )
    if settings.early == "judge" and settings.judge_kind is None:
        yield "early", "another than judge without a judge_kind: nobody marks what ships"
    if settings.early == "signals" and not settings.calibrator.of_signals:
        yield "early", f"another than signals with the method {settings.method}, which reads none"
    if settings.external_encoder and not _EXTERNAL_ENCODER.fullmatch(settings.encoder):
        yield "encoder", "external: and a name of 1 to 190 visible ASCII characters"
    if settings.external_encoder and settings.embeddings != "accept":
        yield "embeddings", f"accept with the encoder {settings.encoder}: no worker makes embeddings of it"
    if settings.embeddings == "accept" and not settings.embeds:
        yield "embeddings", f"refuse with the scorer {settings.scorer}, which reads none"
    if settings.embeddings == "accept" and settings.dimension is None:
        yield "dimension", f"that of the embeddings of {settings.encoder}, for a gate that accepts them"


def _of_claims(settings: GateSettings) -> str | None:
    """Say what a gate of claims cannot have; None: it has none of it."""
    for name, given, possible in (
        ("shape", settings.shape.name, INDICATOR_SHAPE.name),
        ("judged", settings.judged, WHOLE.text),
        ("judge_kind", settings.judge_kind, None),
    ):
        if given != possible:
            return f"{name} must be {possible or 'absent'} with the unit claim, not {given!r}"
    try:
        by_steps(settings.calibrator)
    except ValueError as error:
        return str(error)
    if not settings.scores_by.of_claims:
        return f"scorer must be {' or '.join(OF_CLAIMS)} with the unit claim, not {settings.scorer!r}"
    return None


def unsupported(settings: GateSettings) -> str | None:
    """Say why no guarantee is known for this mixture of method, shape, unit and options; None if one is.

    The table of what works with what is in docs/guarantees.md.
    """
    method, shape, unit = settings.calibrator, settings.shape, settings.unit
    if unit == "claim":
        if (refusal := _of_claims(settings)) is not None:
            return refusal
    elif settings.scores_by.of_claims:
        return f"scorer {settings.scorer} goes with the unit claim"
    elif (settings.loss, settings.least_kept, settings.left_out) != ("any", 0.0, "drop"):
        return "loss, least_kept and left_out go with the unit claim"
    if (refusal := shape.refusal(type(method), unit)) is not None:
        return refusal
    if settings.segment_by is not None and not (method.by_segment and shape.floors):
        able = {name: one for name, one in registry.every().items() if one.by_segment and one.offered}
        schemes = ", ".join(name for name, one in able.items() if one.by_sum or unit != "claim")
        return f"segment_by goes with the methods {schemes} and the shape {INDICATOR_SHAPE.name}"
    if settings.group_by is not None and not settings.keep_texts:
        return "group_by goes with keep_texts: bursts are told apart by questions and metadata"
    if settings.label_floor is not None:
        if not shape.floors:
            return f"label_floor goes with the shape {INDICATOR_SHAPE.name}, not {shape.name!r}"
        if method.of_signals:
            return f"label_floor does not go with method {method.name}: it fits the labels of all prompts. ship_above holds what scores low, and mean takes a label floor"
        if method.refuses_floor():
            return (
                f"label_floor does not go with method {method.name}, whose risk may rise with the threshold"
            )
        if unit == "batch":
            return "label_floor goes with the units best, response and claim: a batch is shipped by its mean"
    if method.of_signals:
        if unit == "response":
            return f"method {method.name} goes with the units best and batch: it decides about one answer of a prompt, or about all. mean goes with every unit"
        if settings.pending == "labelled-only":
            return f"pending must be age or worst with method {method.name}: prompts must calibrate whether they have a label or not"
    if not method.attempts and settings.max_attempts > 1:
        return f"max_attempts must be 1 with method {method.name}: its risk is of what ships, which attempts change"
    return None
