"""What a setting of a gate says of itself, once: everything else is made from it. Pure."""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, field, replace
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from streamer.calibration.specification import Range

EXTERNAL_PREFIX = "external:"
"""Begins the encoder of a gate whose embeddings no worker makes: ``external:text-embedding-3-small``."""

UPSTREAM_ID = re.compile(r".{1,191}@[0-9a-f]{8}")
"""What an upstream's id looks like: see `streamer.serving.chat.upstream`."""

GATE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
GATE_NAME_RULE = "1 to 64 of a-z, 0-9, '.', '_', '-', the first a letter or digit"
"""`GATE_NAME` in words, for error messages."""

NO_VALUE: Any = object()
"""As a default: a gate must be given the setting. As what was before: every gate has always had it."""

_DEFAULT: Any = object()
_KINDS: dict[type, tuple[Any, str]] = {
    float: (Real, "a number, like 0.05"),
    int: (Integral, "a whole number"),
    str: (str, "a text"),
    bool: (bool, "true or false"),
    tuple: (tuple, "a list of texts"),
    dict: (dict, "numbers by name"),
}

PANELS = POLICY, SHAPING, AUDIT, BY_ITSELF, WATCH = (
    "What and how the gate decides",
    "Methods, shapes and segments",
    "Labelling and deadlines",
    "Automatic recalibration",
    "Monitoring",
)
"""Under what the command line's help shows settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Range):
    """One setting. Its range is that of its number, or of the length of its text.

    Attributes
    ----------
    help : what it is, for the command line, the event's schema and the column's comment.
    typed : what the command line's help adds.
    panel : one of `PANELS`; empty: no option sets it.
    flag : the option where it is not the name: both forms of a switch.
    nothing : what the command line calls None.
    before : what gates had before there was the setting, if that is not what new ones have: the default of column and event.
        Signatures of policies leave the setting out while it has this value. `NO_VALUE`: none was ever without it.
    calibrated : a threshold is calibrated for it: a change closes the gate.
    asked : `streamer what-if` and candidates may ask about another value.
    matching : what the whole text looks like.
    in_words : the range in words, for errors; empty: made of the range.
    name, kind, choices, optional, default : of the field that it declares; `kind` without None.
    """

    typed: str = ""
    panel: str = ""
    flag: str | None = None
    nothing: str = "none"
    before: Any = _DEFAULT
    calibrated: bool = False
    asked: bool = False
    matching: re.Pattern[str] | None = None
    in_words: str = ""
    name: str = ""
    kind: type = str
    choices: tuple[str, ...] = ()
    optional: bool = False
    default: Any = NO_VALUE

    @property
    def option(self) -> str:
        """The option as it is typed."""
        return "--" + self.name.removesuffix("_seconds").replace("_", "-")

    @property
    def numeric(self) -> bool:
        """Whether it is a number."""
        return self.kind in (int, float)

    @property
    def sized(self) -> bool:
        """Whether it is a text that has a length, and no word of a list."""
        return self.kind is str and not self.choices

    def of(self, name: str, hint: Any, default: Any) -> Setting:
        """The same for a field of this name, type and default."""
        parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        (plain,) = (one for one in parts if one is not NoneType)
        choices = get_args(plain) if get_origin(plain) is Literal else ()
        kind = str if choices else get_origin(plain) or plain
        if kind not in _KINDS:
            raise TypeError(f"the setting {name} must be a number, a text, a switch or a list, not {hint}")
        return replace(
            self,
            name=name,
            kind=kind,
            choices=choices,
            optional=NoneType in parts,
            default=NO_VALUE if default is MISSING else default,
            whole=kind is int,
            least=max(self.least, 1) if kind is str else int(self.least) if kind is int else self.least,
            metavar=self.metavar or "|".join(choices),
            before=default if self.before is _DEFAULT else self.before,
        )

    def fault(self, value: Any) -> str | None:
        """Say what a value must be; None for one that may be, by itself."""
        if value is None and self.optional:
            return None
        kind, want = _KINDS[self.kind]
        if self.choices:
            good, want = value in self.choices, f"one of {', '.join(self.choices)}"
        elif good := isinstance(value, kind):
            if self.numeric:
                good, want = self.has(value), self.in_words or self.words
            elif self.sized:
                good = self.has(len(value)) and (
                    self.matching is None or bool(self.matching.fullmatch(value))
                )
                want = self.in_words or f"{self.least:.0f} to {self.most:.0f} characters"
        return None if good else want + (", or absent" if self.optional else "")


def setting(default: Any, help: str, panel: str, metavar: str = "", **about: Any) -> Any:  # noqa: A002  # every command line's word
    """Declare a field of `GateSettings`; `about` is the rest of its `Setting`. `NO_VALUE`: it has no default."""
    said = {"setting": Setting(help=help, panel=panel, metavar=metavar, **about)}
    return field(metadata=said) if default is NO_VALUE else field(default=default, metadata=said)
