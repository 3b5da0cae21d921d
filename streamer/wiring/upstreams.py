"""The models behind gates, from settings and the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from streamer.errors import UsageError
from streamer.gates.setting import GATE_NAME, GATE_NAME_RULE
from streamer.gates.settings import GateSettings
from streamer.settings.settings import Settings
from streamer.settings.sources import file_text

if TYPE_CHECKING:
    from streamer.serving.chat.upstream import Upstream

_NAMED_OTHERWISE = {
    "key_variable",
    "limit_parameter",
    "timeout_seconds",
    "price_per_million_input",
    "price_per_million_output",
}


def upstream_id(settings: Settings, name: str, settings_of: Callable[[str], GateSettings]) -> str:
    """Return what batches of the gate `name` will say of their upstream. Needs no key.

    `settings_of` : the settings of a gate in front of it. Raises `UsageError` where there is no
    such upstream in the settings, or one of them is wrong.
    """
    from streamer.serving.chat.rungs import as_reached

    if name not in settings.upstreams:
        there = ", ".join(settings.upstreams) or "none"
        raise UsageError(
            f"--upstream must be MODEL@ and 8 hexadecimal digits, as batches name it, or the name of a table "
            f"[upstreams.NAME] of the settings here ({there}), not {name!r}"
        )
    return as_reached(name, upstreams(settings, with_keys=False), settings_of).id


def unsuited_gate(settings: Settings, gate: str, wanted: GateSettings) -> str | None:
    """Say why a gate with these settings could ship no answer of its upstream, and what to do.

    None: it can, its threshold is for answers of any origin, or it has no upstream in the settings here. Raises `UsageError`
    where those are wrong.
    """
    from streamer.serving.chat.suitable import of_one_origin, unsuited

    if gate not in settings.upstreams or not of_one_origin(wanted):
        return None
    return unsuited(wanted, upstreams(settings, with_keys=False)[gate])


def upstreams(
    settings: Settings, environment: Mapping[str, str] = os.environ, *, with_keys: bool = True
) -> dict[str, Upstream]:
    """Return the upstream of each gate that has one. Raises `UsageError` where a value or a key is missing or wrong.

    `with_keys` : False where nothing will be asked of them.
    """
    from streamer.labels.llm.record import Price
    from streamer.serving.chat.rungs import check_rungs
    from streamer.serving.chat.upstream import Upstream

    found = {}
    for gate, one in settings.upstreams.items():
        if GATE_NAME.fullmatch(gate) is None:
            raise UsageError(
                f"there can be no gate {gate!r} for [upstreams.{gate}]: a name has {GATE_NAME_RULE}"
            )
        if one.answers > settings.events.max_responses:
            raise UsageError(
                f"the upstream of gate {gate!r} samples {one.answers} answers, and events.max_responses allows "
                f"{settings.events.max_responses}"
            )
        key = _key(gate, one.key_variable, environment) if one.key_variable and with_keys else ""
        try:
            found[gate] = Upstream(
                **one.model_dump(exclude=_NAMED_OTHERWISE),
                api_key=key,
                token_limit_name=one.limit_parameter,
                timeout=one.timeout_seconds,
                price=Price.of(one.price_per_million_input, one.price_per_million_output),
                allow_plaintext=settings.insecure,
            )
        except UsageError as error:
            raise UsageError(f"[upstreams.{gate}]: {error}") from None
    check_rungs(found, max_responses=settings.events.max_responses)
    return found


def _key(gate: str, variable: str, environment: Mapping[str, str]) -> str:
    if environment.get(variable):
        return environment[variable]
    file = environment.get(f"{variable}_FILE")
    if not file:
        raise UsageError(
            f"the upstream of gate {gate!r} takes its key from {variable} or from the file that {variable}_FILE names, and "
            "neither is set"
        )
    return file_text(file, f"{variable}_FILE")
