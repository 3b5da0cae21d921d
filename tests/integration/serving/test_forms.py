"""Structured output and tools as the package `openai` asks for them: judged, shipped in canonical form, or held."""

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from streamer.gates.batch_key import BatchKey
from streamer.store.desk.release_desk import Release
from tests.integration.serving.model_server import AGREED, ANSWERS, Plain
from tests.integration.serving.test_chat import HELD, client, kept, post
from tests.services.openai_server import ChatReply, ChatRequest

PROMPT: list[Any] = [{"role": "user", "content": "Where is my parcel?"}]


class Parcel(BaseModel):
    """What is asked for."""

    place: str
    days: int


JSON = [
    '{"place": "depot", "days": 1}',
    '```json\n{"days": 1.0,\n "place": "depot"}\n```',
    '<think>Where?</think>{"days":1,"place":"depot"}',
]
CANONICAL = '{"days":1,"place":"depot"}'
FUNCTION = {
    "name": "look",
    "description": "Looks it up.",
    "parameters": {"type": "object", "properties": {"parcel": {"type": "number"}}},
}
TOOLS: list[Any] = [{"type": "function", "function": FUNCTION}]
FLAT: list[Any] = [{"type": "function", **FUNCTION}]


def call(name: str, arguments: str) -> dict[str, Any]:
    """A choice that is a call, and says something besides."""
    function = {"name": name, "arguments": arguments}
    return {"content": "Let me see.", "tool_calls": [{"id": "c", "type": "function", "function": function}]}


CALLS = [call("look", '{"parcel": 4711, "how": "fast"}'), call("look", '{"how":"fast","parcel":4711.0}')]
ARGUMENTS = '{"how":"fast","parcel":4711}'


def cycling(*contents: str | dict[str, Any]) -> Callable[[ChatRequest], ChatReply]:
    """Choices with these contents, or messages, one after the other, over all requests."""
    given = 0

    def reply(request: ChatRequest) -> ChatReply:
        nonlocal given
        choices = []
        for _ in range(request.body.get("n", 1)):
            one = contents[given % len(contents)]
            given += 1
            message = {"content": one} if isinstance(one, str) else one
            choices.append({"message": {"role": "assistant", **message}, "finish_reason": "stop"})
        return ChatReply(raw=json.dumps({"id": f"c-{given}", "model": "m", "choices": choices}).encode())

    return reply


def test_a_schema_is_answered_with_json_that_parses(plain: Plain) -> None:
    site, model, endpoint = plain
    model.reply = cycling(*JSON)
    with client(endpoint) as made:
        parsed: Any = made.chat.completions.parse(model="json", messages=PROMPT, response_format=Parcel)
        other: Any = made.responses.parse(model="json", input="Where is my parcel?", text_format=Parcel)
        with made.responses.stream(model="json", input="Where?", text_format=Parcel) as stream:
            streamed: Any = stream.get_final_response()
    (choice,) = parsed.choices
    assert (choice.message.parsed, choice.message.content) == (Parcel(place="depot", days=1), CANONICAL)
    assert other.output_parsed == streamed.output_parsed == choice.message.parsed
    first, second, _ = (one.body["response_format"] for one in model.asked)
    assert first["json_schema"]["schema"] == second["json_schema"]["schema"]
    sampling = kept(site, parsed.streamer["batch_id"])["sampling"]
    assert len(sampling["schema"]) == 16
    assert sampling["schema"] == kept(site, other.streamer["batch_id"])["sampling"]["schema"]
    assert sampling["form"] == {"response_format": first}
    assert sampling["settings"]["schemas"] == ["any"]
    assert texts(plain, parsed) == {CANONICAL}, "what is judged is what goes out"


def texts(plain: Plain, answer: Any) -> set[str]:
    """The answers of a batch, as they were judged."""
    rows = plain.site.rows(
        "SELECT text FROM responses r JOIN batches b ON b.id = r.batch "
        f"WHERE b.batch_id = '{answer.streamer['batch_id']}'"
    )
    return {text for (text,) in rows}


def test_a_gate_answers_in_the_forms_that_its_upstream_names(plain: Plain) -> None:
    with client(plain.endpoint) as made:
        with pytest.raises(openai.BadRequestError, match=r"add '([0-9a-f]{16})' to `schemas`") as raised:
            made.chat.completions.parse(model="one-form", messages=PROMPT, response_format=Parcel)
        assert raised.value.param == "response_format"
        with pytest.raises(openai.BadRequestError, match="forms any, and this asks for text"):
            made.chat.completions.create(model="json", messages=PROMPT)
        assert plain.model.asked == []
        assert made.chat.completions.create(model="one-form", messages=PROMPT).choices[0].message.content


def test_a_call_is_judged_and_goes_out_in_canonical_form(plain: Plain) -> None:
    _, model, endpoint = plain
    model.reply = cycling(*CALLS)
    with client(endpoint) as made:
        completion: Any = made.chat.completions.create(model="tools", messages=PROMPT, tools=TOOLS)
        with made.chat.completions.stream(model="tools", messages=PROMPT, tools=TOOLS) as stream:
            streamed: Any = stream.get_final_completion().choices[0]
        response: Any = made.responses.create(
            model="tools", input="Where?", tools=FLAT, tool_choice="required"
        )
        with made.responses.stream(model="tools", input="Where?", tools=FLAT) as events:
            last: Any = events.get_final_response().output[0]
    (choice,) = completion.choices
    wanted = ("tool_calls", None, None)
    assert (choice.finish_reason, choice.message.content, choice.message.refusal) == wanted
    (made_call,) = choice.message.tool_calls
    assert (made_call.function.name, made_call.function.arguments) == ("look", ARGUMENTS)
    assert streamed.finish_reason == "tool_calls"
    assert streamed.message.tool_calls[0].function.arguments == ARGUMENTS
    for item in (response.output[0], last):
        assert (item.type, item.name, item.arguments) == ("function_call", "look", ARGUMENTS)
    assert [one.body["tools"] for one in model.asked] == [TOOLS] * 4
    assert model.asked[2].body["tool_choice"] == "required"
    assert (completion.streamer["action"], completion.streamer["passed_through"]) == ("ship", False)
    assert texts(plain, completion) == {'{"arguments":' + ARGUMENTS + ',"name":"look"}'}

    item = response.output[0]
    result = {"role": "tool", "tool_call_id": made_call.id, "content": "In the depot."}
    history: list[Any] = [*PROMPT, choice.message.model_dump(), result]
    output = {"type": "function_call_output", "call_id": item.call_id, "output": "In the depot."}
    items: list[Any] = [{"role": "user", "content": "Where?"}, item, output]
    model.reply = cycling(AGREED)
    with client(endpoint) as made:
        final: Any = made.chat.completions.create(model="tools", messages=history, tools=TOOLS)
        assert final.choices[0].message.content == AGREED
        assert made.responses.create(model="tools", input=items, tools=FLAT).output_text == AGREED
    for one in model.asked[-2:]:
        _, asked, answered = one.body["messages"]
        assert asked["content"] is None
        assert asked["tool_calls"][0]["function"] == {"name": "look", "arguments": ARGUMENTS}
        assert answered["tool_call_id"] == asked["tool_calls"][0]["id"]


def test_calls_that_differ_are_held(plain: Plain) -> None:
    _, model, endpoint = plain
    model.reply = cycling(*(call("look", f'{{"parcel": {number}}}') for number in range(ANSWERS)))
    answer = post(endpoint, model="tools", tools=TOOLS).json()
    (choice,) = answer["choices"]
    assert (choice["finish_reason"], choice["message"]["refusal"]) == ("content_filter", HELD)
    assert "tool_calls" not in choice["message"]
    assert (answer["streamer"]["action"], answer["streamer"]["problem"]) == ("abstain", None)


STRICT = {
    "type": "object",
    "properties": {"place": {"type": "string"}, "days": {"$ref": "#/$defs/days"}},
    "$defs": {"days": {"type": "integer"}},
    "required": ["place", "days"],
}
B = {"name": "b", "parameters": STRICT, "strict": True}
TWO, FLAT_TWO = [*TOOLS, {"type": "function", "function": B}], [*FLAT, {"type": "function", **B}]
SCHEMA = {"type": "json_schema", "schema": STRICT}
CLAUDES = [{"name": "look", "input_schema": {}}, {"name": "b", "input_schema": STRICT, "strict": True}]
A, OTHER, WRONG = CALLS[0], call("b", CANONICAL), '{"place":7,"jours":"one"}'
BOTH = {"tool_calls": A["tool_calls"] + OTHER["tool_calls"]}
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


@pytest.mark.parametrize(
    ("path", "form", "wrong", "right"),
    [
        (CHAT, {"tools": TWO, "tool_choice": {"type": "function", "function": {"name": "b"}}}, A, OTHER),
        (CHAT, {"tools": TWO, "tool_choice": "required"}, AGREED, A),
        (CHAT, {"tools": TWO, "parallel_tool_calls": False}, BOTH, A),
        (CHAT, {"tools": TWO}, call("b", WRONG), BOTH),
        (CHAT, {"tools": TWO}, call("erase", "{}"), AGREED),
        (CHAT, {"tools": TWO}, call("look", '{"parcel": '), A),
        (CHAT, {"response_format": {"type": "json_schema", "json_schema": SCHEMA | {"name": "p"}}}, WRONG, JSON[1]),
        (CHAT, {"response_format": {"type": "json_object"}}, "[1]", WRONG),
        (CHAT, {"response_format": {"type": "json_object"}}, '{"a": 1, "a": 2}', JSON[2]),
        (RESPONSES, {"tools": FLAT_TWO, "tool_choice": {"type": "function", "name": "b"}}, A, OTHER),
        (RESPONSES, {"tools": FLAT_TWO, "tool_choice": "required"}, AGREED, A),
        (RESPONSES, {"tools": FLAT_TWO, "parallel_tool_calls": False}, BOTH, A),
        (RESPONSES, {"tools": FLAT_TWO}, call("b", WRONG), BOTH),
        (RESPONSES, {"text": {"format": SCHEMA | {"name": "p"}}}, WRONG, CANONICAL),
        (MESSAGES, {"tools": CLAUDES, "tool_choice": {"type": "tool", "name": "b"}}, A, OTHER),
        (MESSAGES, {"tools": CLAUDES, "tool_choice": {"type": "any"}}, AGREED, A),
        (MESSAGES, {"tools": CLAUDES, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, BOTH, A),
        (MESSAGES, {"tools": CLAUDES}, call("b", WRONG), BOTH),
        (MESSAGES, {"output_config": {"format": SCHEMA}}, WRONG, CANONICAL),
    ],
)  # fmt: skip
def test_answers_of_another_form_than_was_demanded_are_sampled_again_so_often(
    plain: Plain, path: str, form: dict[str, Any], wrong: Any, right: Any
) -> None:
    site, model, endpoint = plain
    body = {"model": "tools" if "tools" in form else "json", "max_tokens": 9} | form
    body |= {"input": "Where?"} if path == RESPONSES else {"messages": PROMPT}
    rest = [right] * (2 * ANSWERS)
    for contents, wanted, unread in (
        ([wrong, wrong, *rest], ("ship", None, ANSWERS, 2), 2),
        ([wrong, wrong, wrong, *rest], ("abstain", "unreadable", 0, 1), 3),
    ):
        model.reply = cycling(*contents)
        told = endpoint.client.post(path, json=body).json()["streamer"]
        assert (told["action"], told["problem"], told["answers"], told["calls"]) == wanted
        assert kept(site, told["batch_id"])["sampling"]["unread"] == unread


def test_a_form_that_cannot_be_checked_is_refused_before_anything_is_spent(plain: Plain) -> None:
    elsewhere = {"name": "p", "schema": {"$ref": "https://models.example/parcel.json"}}
    tool = {"type": "function", "function": B | {"parameters": {"type": "text"}}}
    for path, form, param in (
        (CHAT, {"response_format": {"type": "json_schema", "json_schema": elsewhere}}, "response_format"),
        (CHAT, {"tools": [tool]}, "tools[0]"),
        (CHAT, {"tool_choice": "required"}, "tool_choice"),
        (MESSAGES, {"tools": CLAUDES, "tool_choice": "b"}, "tool_choice"),
        (MESSAGES, {"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
    ):
        body = {"model": "tools", "messages": PROMPT, "max_tokens": 9} | form
        answer = plain.endpoint.client.post(path, json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert plain.model.asked == []


def test_a_call_that_a_person_releases_goes_out_and_a_text_in_its_place_is_a_text(plain: Plain) -> None:
    site, model, endpoint = plain
    calls = [call("look", f'{{"parcel": {number}}}') for number in range(ANSWERS)]
    for text, sent in ((None, None), ("Ask the depot.", "Ask the depot.")):
        model.reply = cycling(*calls)
        once = {"idempotency-key": f"released {text}"}
        told = post(endpoint, model="tools-desk", tools=TOOLS, headers=once).json()["streamer"]
        assert (told["action"], told["desk"]["action"]) == ("escalate", "waiting")
        key = BatchKey("tools-desk", told["batch_id"], 1)
        site.store.desk.decide(key, Release(response_id="2", text=text), by="ana")
        answer = post(endpoint, model="tools-desk", tools=TOOLS, headers=once | {"prefer": "desk=30"})
        message = answer.json()["choices"][0]["message"]
        assert message["content"] == sent
        made = [one["function"] for one in message.get("tool_calls", [])]
        assert made == ([] if sent else [{"name": "look", "arguments": '{"parcel":1}'}])


def test_a_call_passes_through_where_the_upstream_says_so_and_texts_are_judged(plain: Plain) -> None:
    site, model, endpoint = plain
    model.reply = cycling(*CALLS)
    once = {"idempotency-key": "passing"}
    first = post(endpoint, model="passing", tools=TOOLS, headers=once)
    (choice,) = first.json()["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == ARGUMENTS
    told = first.json()["streamer"]
    assert (told["action"], told["passed_through"], told["calls"]) == ("abstain", True, 1)
    assert kept(site, "passing")["sampling"]["problem"] == "passed_through"
    assert post(endpoint, model="passing", tools=TOOLS, headers=once).content == first.content
    in_shadow = post(endpoint, model="shadow-passing", tools=TOOLS).json()
    assert in_shadow["choices"][0]["message"]["tool_calls"]
    assert (in_shadow["streamer"]["enforced"], in_shadow["streamer"]["passed_through"]) == (False, True)
    model.reply = cycling(AGREED, AGREED, CALLS[0], AGREED)
    told = post(endpoint, model="passing", tools=TOOLS).json()["streamer"]
    assert (told["action"], told["answers"]) == ("ship", ANSWERS)
    assert kept(site, told["batch_id"])["sampling"]["unread"] == 1


def test_a_gate_may_judge_json_and_calls_field_by_field(plain: Plain) -> None:
    site, model, endpoint = plain
    for gate, judged, choices, form in (
        ("fields", "json@1", JSON, {"response_format": {"type": "json_object"}}),
        ("calls", "call@1", CALLS, {"tools": TOOLS}),
    ):
        model.reply = cycling(*choices)
        answer = post(endpoint, model=gate, **form).json()
        message, told = answer["choices"][0]["message"], answer["streamer"]
        assert (told["action"], told["problem"]) == ("ship", None)
        assert json.loads(site.recorded()[told["batch_id"]])["scorer"]["judged"] == judged
        made = message["content"] or message["tool_calls"][0]["function"]["arguments"]
        assert made == (CANONICAL if gate == "fields" else ARGUMENTS)


def test_held_json_names_the_fields_that_differ(plain: Plain) -> None:
    _, model, endpoint = plain
    said = [{"total": one, "<b>": "Ann"} for one in (7, 8, 9)]
    model.reply = cycling(*map(json.dumps, said))
    told = post(endpoint, model="fields", response_format={"type": "json_object"}).json()["streamer"]
    assert told["action"] != "ship"
    assert [*told["disputed"]] == ["/total"]


def test_a_repeat_with_other_tools_is_another_request(plain: Plain) -> None:
    _, model, endpoint = plain
    model.reply = cycling(AGREED)
    once = {"idempotency-key": "with tools"}
    assert post(endpoint, model="tools", tools=TOOLS, headers=once).status_code == 200
    assert post(endpoint, model="tools", headers=once).status_code == 409
