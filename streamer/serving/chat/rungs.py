"""Which gate comes next: what one gate hands on is read from its record, so that a repeat takes the same way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from streamer.errors import UsageError
from streamer.events.actions import decode_action
from streamer.gates.rungs import hands_on
from streamer.gates.settings import GateSettings
from streamer.journal import RecordedBatch
from streamer.labels.llm.record import Choice
from streamer.serving.chat.request import OWN_METADATA
from streamer.serving.chat.upstream import After, Upstream

_UPSTREAM, _SAMPLING = OWN_METADATA


@dataclass(frozen=True, slots=True)
class HandsOn:
    """What a batch says of the next gate before it is decided: it is `to`, if the best answer scores in [`at_least`, `at_most`]."""

    to: str
    at_least: float
    at_most: float


@dataclass(frozen=True, slots=True)
class Handed:
    """A request that was handed on to the gate `to`: where from, and the answers that it had there."""

    to: str
    after: After
    answers: tuple[Choice, ...]


def handed(batch: RecordedBatch) -> Handed | None:
    """Return what a recorded decision hands on; None where it is the last word.

    Only what was scored and held, and waits for nobody at a desk, is handed on, and only as far as the batch said before it was decided. So nobody who was told
    a hold can be told otherwise by settings that have changed since.
    """
    if batch.metadata is None:
        return None
    sampling: Any = batch.metadata.get(_SAMPLING)
    rule = sampling.get("hands_on") if isinstance(sampling, dict) else None
    if rule is None:
        return None
    action = decode_action(batch.action)
    scores = [one.score for one in action.responses if one.score is not None]
    if (
        action.action == "ship"
        or action.desk_until is not msgspec.UNSET
        or not scores
        or not hands_on(max(scores), at_least=rule["at_least"], floor=rule["at_most"])
    ):
        return None
    return Handed(
        rule["to"],
        After(
            gate=action.gate,
            upstream=str(batch.metadata[_UPSTREAM]),
            scorer=action.scorer.name,
            encoder=action.scorer.encoder,
            at_least=rule["at_least"],
            at_most=rule["at_most"],
        ),
        tuple(
            Choice(batch.texts[one.id] or "", reason)
            for one, reason in zip(action.responses, sampling["finish_reasons"], strict=True)
        ),
    )


def handed_on(upstream: Upstream, then: Upstream, gate: str, settings: GateSettings) -> Upstream:
    """Return the upstream `then` as it is reached by what `gate`, with these settings and this upstream, hands on.

    What hands prompts on to an upstream is part of how its answers are made; see `handed`.
    """
    assert settings.floor is not None
    return replace(
        then,
        after=After(
            gate=gate,
            upstream=upstream.id,
            scorer=settings.scorer,
            encoder=settings.encoder,
            at_least=upstream.then_from,
            at_most=settings.floor,
        ),
    )


def as_reached(
    gate: str, upstreams: Mapping[str, Upstream], settings_of: Callable[[str], GateSettings]
) -> Upstream:
    """Return a gate's upstream with what hands requests on to it, as the batches of that gate
    will name it. Raises `UsageError` where a gate in front has no floor, and so hands nothing
    on."""
    front = next((name for name, one in upstreams.items() if one.then == gate), None)
    if front is None:
        return upstreams[gate]
    settings = settings_of(front)
    if settings.floor is None:
        option = "--ship-above" if settings.calibrator.of_signals else "--label-floor"
        raise UsageError(
            f"gate {front!r} hands on to {gate!r} what scores at most a number that is fixed in advance: set it first, with "
            f"`streamer gate set {front} {option}`"
        )
    return handed_on(as_reached(front, upstreams, settings_of), upstreams[gate], front, settings)


def check_rungs(upstreams: Mapping[str, Upstream], *, max_responses: int) -> None:
    """Raise `UsageError` where a gate is asked twice, or by two, or has no upstream, or would get too many answers."""
    before: dict[str, str] = {}
    for gate, one in upstreams.items():
        if one.then is None:
            continue
        if one.then not in upstreams:
            raise UsageError(
                f"upstreams.{gate}.then is {one.then!r}, which has no upstream; give it one in [upstreams.{one.then}]"
            )
        if one.then in before:
            raise UsageError(
                f"gate {one.then!r} is `then` of {before[one.then]!r} and of {gate!r}: make a gate for each, whose labels are "
                "of the prompts that come from there"
            )
        before[one.then] = gate
    for gate, one in upstreams.items():
        if one.with_earlier and gate not in before:
            raise UsageError(f"upstreams.{gate}.with_earlier is for a gate that is `then` of another one")
        path, answers, adds = [gate], one.answers, one.with_earlier
        while path[-1] in before:
            path.append(before[path[-1]])
            if path[-1] == gate:
                raise UsageError(f"upstreams.*.then goes in a circle: {' -> '.join(reversed(path))}")
            if adds:
                answers += upstreams[path[-1]].answers
                adds = upstreams[path[-1]].with_earlier
        if answers > max_responses:
            raise UsageError(
                f"gate {gate!r} decides about {answers} answers, its own and earlier ones, and events.max_responses allows "
                f"{max_responses}"
            )
