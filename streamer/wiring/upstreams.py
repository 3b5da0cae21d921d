"""The models behind gates, from settings and the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from streamer.errors import UsageError
from streamer.settings.sources import file_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamer.serving.chat.upstream import Upstream
    from streamer.settings.settings import Settings


def upstreams(settings: Settings, environment: Mapping[str, str] = os.environ) -> dict[str, Upstream]:
    """Return the upstream of each gate that has one. Raises `UsageError` where a value or a key is missing or wrong."""
    from streamer.labels.llm.record import Price
    from streamer.serving.chat.rungs import check_rungs
    from streamer.serving.chat.upstream import Upstream

    found = {}
    for gate, one in settings.upstreams.items():
        if one.answers > settings.events.max_responses:
            raise UsageError(
                f"the upstream of gate {gate!r} samples {one.answers} answers, and events.max_responses allows "
                f"{settings.events.max_responses}"
            )
        found[gate] = Upstream(
            base_url=one.base_url,
            model=one.model,
            api_key="" if one.key_variable is None else _key(gate, one.key_variable, environment),
            answers=one.answers,
            steps=one.steps,
            stop_above=one.stop_above,
            stop_below=one.stop_below,
            per_request=one.per_request,
            temperature=one.temperature,
            top_p=one.top_p,
            max_tokens=one.max_tokens,
            token_limit_name=one.limit_parameter,
            system_prompt=one.system_prompt,
            timeout=one.timeout_seconds,
            tries=one.tries,
            concurrency=one.concurrency,
            price=Price.of(one.price_per_million_input, one.price_per_million_output),
            hold_message=one.hold_message,
            hold_status=one.hold_status,
            in_shadow=one.in_shadow,
            then=one.then,
            then_from=one.then_from,
            with_earlier=one.with_earlier,
            allow_plaintext=settings.insecure,
        )
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
