"""The range of each setting of a gate, and of what goes with it. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from functools import cache
from numbers import Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamer.gates.settings import GateSettings

LEAST_ALPHA = 1e-9
"""The smallest budget that a gate may have; a billion labelled prompts are needed for it."""

MOST_BOOST = 1000.0
"""The largest factor by which a gate's audit probability may be raised."""

_MOST_GROUPS = 1_000_000_000
MOST_DESK_SECONDS = 30 * 86_400.0

EXTERNAL_PREFIX = "external:"
"""Begins the encoder of a gate whose embeddings no worker makes: ``external:text-embedding-3-small``."""

DIMENSIONS = (2, 4096)
"""The least and the largest dimension of embeddings that a gate may accept: the default limits of an event."""

_EXTERNAL_ENCODER = re.compile(r"external:[!-~]{1,190}")

UPSTREAM_ID = re.compile(r"(?=.{10,200}\Z).+@[0-9a-f]{8}")
"""What an upstream's id looks like: see `streamer.serving.chat.upstream`."""

GATE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
GATE_NAME_RULE = "1 to 64 of a-z, 0-9, '.', '_', '-', the first a letter or digit"
"""`GATE_NAME` in words, for error messages."""


def of_another_type(settings: GateSettings) -> Iterator[tuple[str, str]]:
    """Name what is a text where a number should be, or the reverse, and what it should be."""
    for name, kind, optional, want in _types(type(settings)):  # type: ignore[arg-type]  # taken for an instance
        value = getattr(settings, name)
        if not isinstance(value, kind) and not (optional and value is None):
            yield name, want + (", or absent" if optional else "")


@cache
def _types(settings: type[GateSettings]) -> tuple[tuple[str, type, bool, str], ...]:
    kinds = {"float": (Real, "a number, like 0.05"), "int": (Real, "a whole number"), "str": (str, "a text")}
    found = []
    for field in fields(settings):
        plain, _, none = str(field.type).partition(" | ")
        if plain in kinds and none in ("", "None"):
            kind, want = kinds[plain]
            found.append((field.name, kind, bool(none), want))
    return tuple(found)


def _between(least: float, most: float, *, excluded: tuple[float, ...] = ()) -> Callable[[float], bool]:
    return lambda value: least <= value <= most and value not in excluded


_UNIT_INTERVAL = _between(0, 1)
_GROUPS = _between(1, _MOST_GROUPS), f"in 1..{_MOST_GROUPS}"
_SECONDS = _between(0, math.inf, excluded=(math.inf,)), "0 or more"
_POSITIVE_SECONDS = _between(0, math.inf, excluded=(0, math.inf)), "positive"
_STEP = _between(0, 1, excluded=(0,)), "above 0 and at most 1"
_CHANCE = _between(0, 1, excluded=(0, 1)), "between 0 and 1, both excluded"

_NUMBERS: tuple[tuple[str, Callable[[Any], object], str], ...] = (
    ("alpha", _between(LEAST_ALPHA, 1, excluded=(1,)), f"at least {LEAST_ALPHA:g} and less than 1"),
    ("audit_probability", _UNIT_INTERVAL, "in [0, 1]"),
    ("segment_by", lambda key: 0 < len(key) <= 200, "a metadata key of 1 to 200 characters"),
    ("group_by", lambda key: 0 < len(key) <= 200, "a metadata key of 1 to 200 characters, or prompt"),
    ("upstream", UPSTREAM_ID.fullmatch, "MODEL@ and the 8 hexadecimal digits of an upstream's settings"),
    ("label_floor", _UNIT_INTERVAL, "in [0, 1]"),
    ("max_attempts", _between(1, 1000), "in 1..1000"),
    ("audit_draws", _between(1, 256), "in 1..256"),
    ("audit_boost", _between(1, MOST_BOOST, excluded=(1,)), f"above 1 and at most {MOST_BOOST:g}"),
    ("audit_boost_most", *_GROUPS),
    ("label_deadline_seconds", *_SECONDS),
    ("window", *_GROUPS),
    ("decision_deadline_seconds", *_POSITIVE_SECONDS),
    ("desk_deadline_seconds", _between(1, MOST_DESK_SECONDS), "from 1 second to 30 days"),
    ("recalibrate_every_seconds", *_POSITIVE_SECONDS),
    ("recalibrate_after_groups", *_GROUPS),
    ("max_lambda_step", *_STEP),
    ("max_ship_rate_step", *_STEP),
    ("least_groups", *_GROUPS),
    ("monitor_delta", *_CHANCE),
    ("alarm_delta", *_CHANCE),
    ("drift_delta", *_CHANCE),
    ("alarm_false_every", *_GROUPS),
    ("alarm_tolerance", _between(0, 10), "in [0, 10], a share of alpha"),
    ("monitor_deadline_seconds", *_SECONDS),
    ("budget_period_days", _between(0, 3660, excluded=(0,)), "above 0 and at most 3660"),
)
"""Each setting, what its value must be, and that in words."""


def numbers(settings: GateSettings) -> Iterator[tuple[str, object, str]]:
    """Name, whether it is in its range, and the range in words."""
    for name, good, want in _NUMBERS:
        value = getattr(settings, name)
        optional = name in _optional(type(settings))  # type: ignore[arg-type]  # taken for an instance
        yield name, (optional and value is None) or good(value), want + (", or absent" if optional else "")
    no_desk = settings.desk_deadline_seconds is None
    yield (
        "desk_deadline_seconds",
        no_desk or settings.hold_action == "escalate",
        f"absent with the hold action {settings.hold_action}: only what is held by escalate waits for a person",
    )
    yield (
        "desk_deadline_seconds",
        no_desk or settings.keep_texts,
        "absent with a gate that keeps no texts: nobody could read what waits",
    )


@cache
def _optional(settings: type[GateSettings]) -> frozenset[str]:
    return frozenset(field.name for field in fields(settings) if str(field.type).endswith(" | None"))


def names(settings: GateSettings) -> tuple[tuple[str, object, str], ...]:
    """The same of names, and of what goes with the encoder's."""
    return (
        (
            "judge_kind",
            settings.judge_kind is None or GATE_NAME.fullmatch(settings.judge_kind),
            "like 'judge', or absent",
        ),
        (
            "judge_kind",
            settings.judge_kind != settings.severity_kind,
            f"another kind of label than the gate's own, {settings.severity_kind}: it predicts that one",
        ),
        ("severity_kind", GATE_NAME.fullmatch(settings.severity_kind), "like 'human'"),
        ("encoder", 0 < len(settings.encoder) <= 200, "1 to 200 characters"),
        (
            "encoder",
            not settings.external_encoder or _EXTERNAL_ENCODER.fullmatch(settings.encoder),
            "external: and a name of 1 to 190 visible ASCII characters",
        ),
        (
            "embeddings",
            settings.embeddings == "accept" or not settings.external_encoder,
            f"accept with the encoder {settings.encoder}: no worker makes embeddings of it",
        ),
        (
            "embeddings",
            settings.embeddings == "refuse" or settings.embeds,
            f"refuse with the scorer {settings.scorer}, which reads none",
        ),
        (
            "dimension",
            settings.dimension is None or DIMENSIONS[0] <= settings.dimension <= DIMENSIONS[1],
            f"in {DIMENSIONS[0]}..{DIMENSIONS[1]}, or absent",
        ),
        (
            "dimension",
            settings.embeddings == "refuse" or settings.dimension is not None,
            f"that of the embeddings of {settings.encoder}, for a gate that accepts them",
        ),
    )
