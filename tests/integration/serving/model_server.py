"""A model on loopback that the endpoint samples from and embeds with: agreeing answers ship, differing ones are held."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple

from streamer.calibration.threshold import Threshold
from streamer.errors import UsageError
from streamer.settings.settings import load_settings
from streamer.wiring import upstream_id
from tests.faults import forms
from tests.faults.endpoint import GATE, Endpoint, Site
from tests.faults.site import record_threshold
from tests.services.openai_server import ChatReply, ChatRequest, OpenAIServer, embeddings

ENCODER = "openai:small@64"
ANSWERS = 4
KEY = "sk-nobody-may-read-this"
AGREED = "It left the depot this morning."


GATES: dict[str, dict[str, Any]] = {
    GATE: {},
    "likely": {},
    "one-call": {"answers": 1},
    "away": {"base_url": "http://127.0.0.1:9/v1"},
    "one-by-one": {"per_request": 1, "concurrency": 1},
    "cached": {"per_request": 1, "cached": "accept"},
    "prompted": {"system_prompt": "Short answer first."},
    "segmented": {},
    "json": {"schemas": ["any"]},
    "fields": {"schemas": ["any"]},
    "calls": {"tools": "judge"},
    "one-form": {"schemas": ["text", "0123456789abcdef"]},
    "tools": {"tools": "judge"},
    "tools-desk": {"tools": "judge"},
    "passing": {"tools": "pass-through"},
    "strict": {"parameters": "refuse"},
    "tempered": {"temperature": 0.7, "max_tokens": 200},
    "shadow": {},
    "shadow-first": {"in_shadow": "first"},
    "shadow-passing": {"tools": "pass-through"},
    "status": {"hold_status": 503, "hold_message": "Ask a person."},
    "until-sure": {"answers": 9, "steps": [3, 6], "stop_above": 0.9, "stop_below": 0.1},
}
"""Gates and what is special about their upstreams."""


class Plain(NamedTuple):
    """Gates of `GATES`, their model, and one endpoint, for tests that need no process of their own."""

    site: Site
    model: Model
    endpoint: Endpoint


def agreeing(request: ChatRequest) -> ChatReply:
    """As many answers as were asked for, all alike."""
    return ChatReply(AGREED, further=[AGREED] * (request.body.get("n", 1) - 1))


def differing(request: ChatRequest) -> ChatReply:
    """As many, no two alike."""
    first, *others = (f"Perhaps number {request.number}.{one}." for one in range(request.body.get("n", 1)))
    return ChatReply(first, further=others)


def in_the_form_asked_for(request: ChatRequest) -> ChatReply:
    """Answers that agree, but to questions whose numbers are multiples of three; a call where one is offered and the number is odd."""
    asked = json.dumps(request.body["messages"])
    number = int(re.findall(r"uestion (\d+)", asked)[-1])
    tools = [] if '"tool_call_id"' in asked else request.body.get("tools", [])
    messages: list[dict[str, Any]] = []
    for one in range(request.body.get("n", 1)):
        text = f"The {forms.SHOWN} is here." if number % 3 else f"The {forms.SHOWN}? {request.number}.{one}"
        as_json = json.dumps({"said": text})
        if tools and number % 2:
            function = {"name": tools[0]["function"]["name"], "arguments": as_json}
            call = {"id": "c", "type": "function", "function": function}
            messages.append({"content": None, "tool_calls": [call]})
        else:
            content = as_json if "response_format" in request.body or "a JSON object" in asked else text
            messages.append(
                {"content": f"[[ ## said ## ]]\n{text}" if "[[ ##" in asked and content == text else content}
            )
    choices = [{"message": one, "finish_reason": "stop"} for one in messages]
    return ChatReply(raw=json.dumps({"id": str(request.number), "choices": choices}).encode())


class Model(OpenAIServer):
    """Answers `reply`, and embeds: texts that differ are nearly orthogonal."""

    def __init__(self) -> None:
        super().__init__(self._answer_or_embed)
        self.reply: Callable[[ChatRequest], ChatReply] = agreeing

    def _answer_or_embed(self, request: ChatRequest) -> ChatReply:
        if request.path.endswith("/chat/completions"):
            return self.reply(request)
        return embeddings(request, [_vector(text) for text in request.inputs])

    @property
    def asked(self) -> list[ChatRequest]:
        """The requests for answers."""
        return [one for one in self.requests if one.path.endswith("/chat/completions")]

    def serve(
        self,
        site: Site,
        *arguments: str,
        gates: Mapping[str, Mapping[str, Any]] | None = None,
        failpoints: str = "",
        ready: bool = True,
        unpinned: Container[str] = (),
        **settings: Any,
    ) -> Endpoint:
        """An endpoint whose gate `bot` has this upstream, or where each of these gates has, with settings of its own."""
        own = self.environment(site, gates=gates, unpinned=unpinned, **settings)
        return site.serve(*arguments, ready=ready, STREAMER_FAILPOINTS=failpoints, **own)

    def answer_forms(self, site: Site) -> None:
        """Have all that `site` serves from now on answer in every form of `tests.faults.forms`."""
        self.reply = in_the_form_asked_for
        for gate in forms.GATES:
            site.gate(gate, scorer="gram", encoder=ENCODER)
        site.settings |= self.environment(site, gates=forms.GATES, timeout_seconds=5)

    def environment(
        self,
        site: Site,
        *,
        gates: Mapping[str, Mapping[str, Any]] | None = None,
        unpinned: Container[str] = (),
        **settings: Any,
    ) -> dict[str, str]:
        """The environment of such an endpoint, whose gates are pinned to it."""
        upstream = {
            "base_url": self.url, "model": "small", "key_variable": "MODEL_KEY", "answers": ANSWERS,
            "tries": 1, "price_per_million_input": "0.5", "price_per_million_output": "2",
        } | settings  # fmt: skip
        upstreams = {gate: {**upstream, **own} for gate, own in (gates or {"bot": {}}).items()}
        pin(site, upstreams, but=unpinned)
        return {
            "STREAMER_UPSTREAMS": json.dumps(upstreams),
            "STREAMER_ENCODER_NAME": "openai:small",
            "STREAMER_ENCODER_BASE_URL": self.url,
            "MODEL_KEY": KEY,
        }


def pin(site: Site, upstreams: Mapping[str, Any], *, but: Container[str] = ()) -> None:
    """Give every gate, `but` these, that was never pinned, and has no segments, its upstream as it is set now, and its threshold again."""
    settings = load_settings(upstreams=upstreams)
    there = {one.gate: one for one in site.store.gates.list()}
    for gate in upstreams:
        own = there.get(gate)
        if (
            gate in but
            or own is None
            or own.settings.upstream is not None
            or own.settings.segment_by is not None
        ):
            continue
        before = site.store.policies.newest(gate)
        try:
            upstream = upstream_id(settings, gate, lambda name: site.store.gates.get(name).settings)
        except UsageError:  # behind a gate without a label floor
            continue
        site.store.gates.revise(gate, {"upstream": upstream}, by="ana", reason="test")
        if before.threshold is not None:
            cut = Threshold(
                state="cut", value=before.threshold, alpha=0.05, method="mean", groups=0, guarantee=""
            )
            record_threshold(site.store, gate, cut)


def _vector(text: str) -> list[float]:
    return [one - 127.5 for one in hashlib.shake_256(text.encode()).digest(64)]
