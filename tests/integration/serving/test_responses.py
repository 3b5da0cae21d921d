"""`POST /v1/responses` as the package `openai` sees it: the same decisions, in the form of OpenAI's Responses."""

from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from tests.integration.serving.model_server import AGREED, ANSWERS, Plain, agreeing, differing
from tests.integration.serving.test_chat import HELD, MODEL, client, kept
from tests.services.openai_server import ChatReply

PROMPT = "Where is my parcel?"
CALLS = ("function_call", "function_call_output")


def respond(plain: Plain, **options: Any) -> Any:
    with client(plain.endpoint) as made:
        return made.responses.create(**{"model": MODEL, "input": PROMPT} | options)


def test_what_ships_is_an_ordinary_response(plain: Plain) -> None:
    response = respond(
        plain, model="tempered", instructions="Be brief.", temperature=0.1, max_output_tokens=9,
        metadata={"shop": "web"}, include=["reasoning.encrypted_content"], store=False, truncation="disabled",
        prompt_cache_key="k", extra_body={"client_metadata": {"thread_id": "t"}}, reasoning={"effort": "low"},
        text={"format": {"type": "text"}, "verbosity": "low"}, parallel_tool_calls=True,
    )  # fmt: skip
    Response.model_validate(response.model_dump())
    assert (response.output_text, response.status, response.model) == (AGREED, "completed", "gate/tempered")
    assert (response.usage.input_tokens, response.usage.output_tokens) == (400, 50)
    told = response.streamer
    expected = ("ship", ["temperature", "max_output_tokens", "reasoning", "verbosity"])
    assert (told["action"], told["ignored"]) == expected
    wanted = (0.7, 200, {"shop": "web"})
    assert (response.temperature, response.max_output_tokens, response.metadata) == wanted
    body = plain.model.asked[-1].body
    expected = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROMPT}]
    assert body["messages"] == expected
    assert (body["n"], body["max_tokens"]) == (ANSWERS, 200)
    assert kept(plain.site, told["batch_id"])["shop"] == "web"


def test_what_is_held_is_a_refusal(plain: Plain) -> None:
    plain.model.reply = differing
    response = respond(plain)
    assert (response.output_text, response.status, response.incomplete_details) == ("", "completed", None)
    (item,) = response.output
    assert [part.refusal for part in item.content] == [HELD]
    assert response.streamer["action"] == "abstain"
    plain.model.reply = lambda request: ChatReply(AGREED, further=[AGREED] * 3, finish_reason="length")
    cut_off = respond(plain)
    assert (cut_off.output_text, cut_off.incomplete_details.reason) == (AGREED, "max_output_tokens")
    plain.model.reply = differing
    with pytest.raises(openai.InternalServerError, match="Ask a person"):
        respond(plain, model="gate/status")


@pytest.mark.parametrize(("reply", "kind"), [(agreeing, "output_text"), (differing, "refusal")])
def test_a_stream_brings_the_same_response(plain: Plain, reply: Callable[..., ChatReply], kind: str) -> None:
    plain.model.reply = reply
    once = {"idempotency-key": f"streamed-{kind}"}
    whole = respond(plain, extra_headers=once)
    with client(plain.endpoint) as made:
        with made.responses.stream(model=MODEL, input=PROMPT, extra_headers=once) as stream:
            events = list(stream)
        raw: Any = list(made.responses.create(model=MODEL, input=PROMPT, stream=True, extra_headers=once))
    assert [event.sequence_number for event in raw] == list(range(len(raw)))
    assert raw[0].type == "response.created"
    assert raw[-1].type == "response.completed"
    assert raw[-1].response == whole
    deltas = "".join(event.delta for event in events if event.type == f"response.{kind}.delta")
    assert deltas == (AGREED if kind == "output_text" else HELD)
    assert len(plain.model.asked) == 1, "a repeat samples nothing, in whatever form"


def test_earlier_turns_come_as_items(plain: Plain) -> None:
    plain.model.reply = differing
    held = respond(plain).output
    plain.model.reply = agreeing
    said = respond(plain).output
    parts = [{"type": "input_text", "text": "Where is "}, {"type": "input_text", "text": "it?"}]
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    items = [{"role": "user", "content": PROMPT}, *held, reasoning, *said, {"role": "user", "content": parts}]
    assert respond(plain, input=items).output_text == AGREED
    assert plain.model.asked[-1].texts == [PROMPT, HELD, AGREED, "Where is it?"]


def test_what_a_gate_cannot_answer_for_is_refused(plain: Plain) -> None:
    image = {"type": "input_image", "image_url": "data:,", "detail": "auto"}
    call, output = ({"type": one, "call_id": "1", "output": [image]} for one in CALLS)
    asked = {"role": "user", "content": PROMPT}
    for options, param, says in (
        ({"previous_response_id": "resp_1"}, "previous_response_id", "send the earlier items in input"),
        ({"conversation": "conv_1"}, "conversation", "keeps no conversations"),
        ({"prompt": {"id": "p"}}, "prompt", "in instructions"),
        ({"background": True}, "background", "Prefer: wait="),
        ({"include": ["message.output_text.logprobs"]}, "include", "chosen among several"),
        ({"input": []}, "input", "at least one item"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]", "not item_reference"),
        ({"input": ["Where?"]}, "input[0]", "must be a message"),
        ({"input": [{"role": "user", "content": [{"type": []}]}]}, "input[0].content[0]", "only text"),
        ({"input": [{"role": "user", "content": [image]}]}, "input[0].content[0]", "only text"),
        ({"instructions": "", "input": [asked, asked | {"role": "nobody"}]}, "input[1].role", "one of"),
        ({"instructions": [PROMPT]}, "instructions", "a text"),
        ({"model": "gate/prompted", "instructions": "Be rude."}, "instructions", "the gate's own"),
        ({"input": [call]}, "input[0]", "as texts"),
        ({"input": [output]}, "input[0].output[0]", "only text"),
        ({"text": "short"}, "text", "an object"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format", "^(?!.*response_format).*t: the"),
        ({"tools": [{"type": "web_search"}]}, "tools", "a model's own tools are not gated"),
        ({"something_new": 1}, "something_new", "leave it out"),
    ):
        own = {one: options.pop(one) for one in ("input", "model") if one in options}
        with pytest.raises(openai.BadRequestError, match=says) as raised:
            respond(plain, **own, extra_body=options)
        assert raised.value.param == param
    assert plain.model.asked == []
