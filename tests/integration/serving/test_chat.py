"""`POST /v1/chat/completions` as the package `openai` sees it: what ships, what is held, and that a repeat costs nothing."""

import asyncio
import json
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime, timedelta
from itertools import islice, product
from typing import Any

import numpy as np
import openai
import pytest

from streamer.cli import main
from streamer.gates.settings import GateSettings
from streamer.serving.chat.openai_chat import as_chat
from streamer.serving.chat.request import read
from streamer.serving.chat.sampler import Sampled, Sampler
from streamer.serving.chat.upstream import Upstream
from streamer.store import prune
from tests.faults.endpoint import GATE, PATIENCE, Endpoint, Site
from tests.faults.site import wait_until
from tests.integration.serving.model_server import (
    AGREED,
    ANSWERS,
    ENCODER,
    GATES,
    KEY,
    Model,
    Plain,
    agreeing,
    differing,
)
from tests.integration.serving.test_keys import asks_for_keys, key
from tests.services.openai_server import ChatReply, ChatRequest, refusal_of_a_parameter
from tests.services.service_forks import FORKS

MODEL = f"gate/{GATE}"
PROMPT: list[Any] = [{"role": "user", "content": "Where is my parcel?"}]
CACHED = 'streamer_upstream_cached_replies_total{gate="cached"}'
HELD = "No answer can be given to this at the moment."


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as started:
        yield started


@pytest.fixture
def site(new_site: Callable[..., Site], migrated_database_url: str) -> Site:
    """A gate that ships the best of `ANSWERS` answers where they agree."""
    return new_site(migrated_database_url, scorer="gram", encoder=ENCODER)


@pytest.fixture
def sqlite_site(new_site: Callable[..., Site], migrated_sqlite_url: str) -> Site:
    return new_site(migrated_sqlite_url, scorer="gram", encoder=ENCODER)


def client(endpoint: Endpoint, **options: Any) -> openai.OpenAI:
    """The client as its users make it: another `base_url`, and nothing else."""
    return openai.OpenAI(
        **{"base_url": f"{endpoint.base}/v1", "api_key": "none", "timeout": PATIENCE} | options
    )


def ask(endpoint: Endpoint, messages: list[Any] = PROMPT, *, gate: str = GATE, **options: Any) -> Any:
    with client(endpoint) as made:
        return made.chat.completions.create(model=f"gate/{gate}", messages=messages, **options)


def post(endpoint: Endpoint, *, headers: dict[str, str] | None = None, **body: Any) -> Any:
    """The same without the package, to see all of the answer."""
    whole = {"model": MODEL, "messages": PROMPT} | body
    return endpoint.client.post("/v1/chat/completions", json=whole, headers=headers)


def kept(site: Site, batch_id: str) -> dict[str, Any]:
    """What is on record of how a batch's answers came about."""
    ((metadata,),) = site.rows(f"SELECT metadata FROM batches WHERE batch_id = '{batch_id}'")
    return json.loads(metadata) if isinstance(metadata, str) else metadata


# -- what ships


def test_the_selected_answer_comes_as_an_ordinary_completion(sqlite_site: Site, model: Model) -> None:
    site = sqlite_site
    endpoint = model.serve(site, temperature=0.7, top_p=0.9, max_tokens=200)
    with client(endpoint) as made:
        raw = made.chat.completions.with_raw_response.create(
            model=MODEL, messages=[{"role": "system", "content": "Be brief."}, *PROMPT],
            temperature=0.7, max_tokens=200, metadata={"shop": "web"}, user="somebody",
        )  # fmt: skip
    completion: Any = raw.parse()
    (choice,) = completion.choices
    wanted = ("assistant", AGREED, "stop")
    assert (choice.message.role, choice.message.content, choice.finish_reason) == wanted
    assert (completion.object, completion.model) == ("chat.completion", MODEL)
    told = completion.streamer
    assert (told["action"], told["reason"], told["enforced"]) == ("ship", "scored", True)
    assert told["shown"] == told["selected"]
    headers = {name: raw.headers[name] for name in raw.headers if name.startswith("x-")}
    assert headers == {
        "x-request-id": told["batch_id"],
        "x-streamer-batch-id": told["batch_id"],
        "x-streamer-action": "ship",
        "x-streamer-enforced": "true",
        "x-streamer-policy-version": str(told["policy_version"]),
        "x-streamer-parameters": "temperature=0.7, top_p=0.9, max_tokens=200",
    }

    (asked,) = model.asked
    assert asked.body == {
        "model": "small", "messages": [{"role": "system", "content": "Be brief."}, *PROMPT],
        "n": ANSWERS, "temperature": 0.7, "top_p": 0.9, "max_tokens": 200,
    }  # fmt: skip
    assert asked.headers["authorization"] == f"Bearer {KEY}"

    decided = json.loads(site.recorded()[told["batch_id"]])
    assert decided["selected"] == told["selected"]
    assert len(decided["responses"]) == ANSWERS
    ((prompt,),) = site.rows("SELECT prompt FROM batches")
    assert prompt == "[system]\nBe brief.\n\n[user]\nWhere is my parcel?"
    metadata = kept(site, told["batch_id"])
    assert metadata["shop"] == "web"
    assert metadata["upstream"] == told["upstream"]
    sampling = metadata["sampling"]
    assert (sampling["settings"]["model"], sampling["settings"]["answers"]) == ("small", ANSWERS)
    (call,) = sampling["calls"]
    wanted = ("small-2026", "fp_1", ANSWERS, None)
    assert (call["model"], call["fingerprint"], call["answers"], call["problem"]) == wanted
    assert call["cost"] == told["cost"] == pytest.approx((400 * 0.5 + 50 * 2) / 1e6)
    assert site.outcomes() == ["decision"]
    site.check()
    everything = endpoint.log_text() + str(site.rows("SELECT * FROM batches")) + str(endpoint.announced)
    assert KEY not in everything


def test_a_gate_that_reads_log_probabilities_asks_for_them_and_does_without(plain: Plain) -> None:
    found = []
    for given in ({"logprobs": (-2.0, -0.01, -3.0, -4.0), "top": ([0.5, 0.25, 0.25], [0.9])}, {}):
        plain.model.reply = lambda request, given=given: ChatReply(
            AGREED, further=[AGREED] * (request.body["n"] - 1), **given
        )
        told = ask(plain.endpoint, gate="likely").streamer
        assert told["action"] == "ship"
        asked = plain.model.asked[-1].body
        assert (asked["logprobs"], asked["top_logprobs"]) == (True, 20)
        rows = dict(
            plain.site.rows(
                "SELECT batch_id, signals FROM batches JOIN decisions ON decisions.batch = batches.id"
            )
        )
        row = rows[told["batch_id"]]
        found.append(np.frombuffer(row, "<f4")[-6:].tolist())
    # All four agree, and the first is chosen. What 0.9 leaves of a token's probability counts as one token.
    entropies = [1.5 * math.log(2), -0.9 * math.log(0.9) - 0.1 * math.log(0.1)]
    wanted = [math.exp(-2), math.exp(-sum(entropies) / 2), math.exp(-max(entropies))]
    assert found[0] == pytest.approx([value for one in wanted for value in (2 * one - 1, 0.0)], abs=1e-6)
    assert found[1] == [0.0, 1.0] * 3


def test_one_call_is_enough_for_a_gate_that_reads_its_log_probabilities(plain: Plain) -> None:
    site, model, endpoint = plain
    sure: dict[str, Any] = {"logprobs": (-0.2,), "top": ([0.5, 0.5], [0.9])}
    for given, said, reason in (
        ({**sure, "logprobs": (-2.0,)}, None, "scored"),
        ({}, None, "no_logprob"),
        (sure, AGREED, "scored"),
    ):
        model.requests.clear()
        model.reply = lambda _, given=given: ChatReply(AGREED, **given)
        found = ask(endpoint, gate="one-call")
        decided = json.loads(site.recorded()[found.streamer["batch_id"]])
        assert (found.choices[0].message.content, decided["reason"]) == (said, reason)
        (asked,) = model.requests
        assert ("n" in asked.body, asked.body["top_logprobs"]) == (False, 20)
    with client(endpoint) as made:
        assert made.responses.create(model="one-call", input="Where?").output_text == AGREED
    model.reply = lambda _: refusal_of_a_parameter("logprobs")
    batch_id = ask(endpoint, gate="one-call").streamer["batch_id"]
    assert "'logprobs' is not supported" in kept(site, batch_id)["sampling"]["calls"][0]["detail"]


def test_usage_is_the_sum_of_all_upstream_calls(plain: Plain) -> None:
    _, model, endpoint = plain

    def counting(request: ChatRequest) -> ChatReply:
        tokens = 100 + len(model.asked)
        return ChatReply(
            AGREED, usage={"prompt_tokens": tokens, "completion_tokens": 7, "total_tokens": tokens + 7}
        )

    model.reply = counting
    completion = ask(endpoint, gate="one-by-one")
    assert len(model.asked) == ANSWERS
    assert completion.usage.prompt_tokens == sum(100 + one for one in range(1, ANSWERS + 1))
    assert completion.usage.completion_tokens == 7 * ANSWERS
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + 7 * ANSWERS
    assert completion.streamer["calls"] == ANSWERS
    beyond = {"prompt_tokens": 2**80, "completion_tokens": 7, "total_tokens": 2**80}
    model.reply = lambda request: ChatReply(AGREED, usage=beyond)
    completion = ask(endpoint, gate="one-by-one")
    assert (completion.usage, completion.streamer["action"]) == (None, "ship")


def test_every_answer_is_the_same_whole_or_streamed(plain: Plain) -> None:
    _, model, endpoint = plain
    for ships, stream in product((True, False), repeat=2):
        model.reply = agreeing if ships else differing
        asked = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        with client(endpoint) as made:
            found: Any = made.chat.completions.create(model=MODEL, messages=PROMPT, **asked)
            came: Any = list(found) if stream else [found]
        finished = "stop" if ships else "content_filter"
        text = AGREED if ships else HELD
        assert {one.streamer["action"] for one in came} == {"ship" if ships else "abstain"}
        assert len({one.id for one in came}) == 1
        assert came[-1].usage.total_tokens == 450
        if stream:
            *chunks, last = came
            assert last.choices == []
            deltas = [chunk.choices[0].delta for chunk in chunks]
            assert deltas[0].role == "assistant"
            assert "".join((delta.content or "") + (delta.refusal or "") for delta in deltas) == text
            assert any(delta.content for delta in deltas) == ships
            assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, finished]
        else:
            (choice,) = came[0].choices
            message = choice.message
            assert (message.content if ships else message.refusal, choice.finish_reason) == (text, finished)
            assert None in (message.content, message.refusal)


def test_a_stream_is_server_sent_events_that_end_with_done(plain: Plain) -> None:
    endpoint = plain.endpoint
    answer = post(endpoint, stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert not any("usage" in chunk for chunk in chunks)


def test_an_upstream_that_gives_fewer_at_once_is_asked_for_the_rest(sqlite_site: Site, model: Model) -> None:
    model.reply = lambda request: ChatReply(AGREED)  # whatever `n` is
    endpoint = model.serve(sqlite_site)
    assert ask(endpoint).choices[0].message.content == AGREED
    assert [one.body.get("n", 1) for one in model.asked] == [ANSWERS] + [1] * (ANSWERS - 1)
    model.reply = lambda request: refusal_of_a_parameter("n") if "n" in request.body else ChatReply(AGREED)
    completion = ask(endpoint)
    assert completion.choices[0].message.content == AGREED
    calls = kept(sqlite_site, completion.streamer["batch_id"])["sampling"]["calls"]
    assert [call["problem"] for call in calls] == ["rejected", *[None] * ANSWERS]


def test_an_answer_that_was_cut_off_says_so(plain: Plain) -> None:
    _, model, endpoint = plain
    model.reply = lambda request: ChatReply(AGREED, further=[AGREED] * 3, finish_reason="length")
    assert ask(endpoint).choices[0].finish_reason == "length"


def test_a_system_prompt_of_the_gate_goes_first_and_leaves_no_room_for_the_callers(plain: Plain) -> None:
    site, model, endpoint = plain
    ask(endpoint, gate="prompted")
    assert model.asked[0].body["messages"] == [{"role": "system", "content": "Short answer first."}, *PROMPT]
    assert site.rows("SELECT prompt FROM batches WHERE gate = 'prompted'") == [("Where is my parcel?",)]
    with pytest.raises(openai.BadRequestError, match="the system prompt is the gate's own"):
        ask(endpoint, [{"role": "developer", "content": "Be long."}, *PROMPT], gate="prompted")


# -- sample until sure


def two_of_three(request: ChatRequest) -> ChatReply:
    """Of every three answers one is of its own."""
    texts = [
        f"Perhaps {request.number}.{one}." if one % 3 == 2 else AGREED
        for one in range(request.body.get("n", 1))
    ]
    return ChatReply(texts[0], further=texts[1:])


@pytest.mark.parametrize(
    ("reply", "asked", "action"),
    [(agreeing, [3], "ship"), (differing, [3], "abstain"), (two_of_three, [3, 3, 3], "ship")],
)
def test_sampling_stops_once_the_best_score_is_high_or_low_enough(
    plain: Plain, reply: Callable[[ChatRequest], ChatReply], asked: list[int], action: str
) -> None:
    site, model, endpoint = plain
    model.reply = reply
    completion = ask(endpoint, gate="until-sure")
    told = completion.streamer
    assert [one.body["n"] for one in model.asked] == asked
    assert (told["action"], told["answers"], told["calls"]) == (action, sum(asked), len(asked))
    assert completion.usage.total_tokens == 450 * len(asked)
    sampling = kept(site, told["batch_id"])["sampling"]
    assert sampling["settings"]["steps"] == [3, 6]
    assert [look["answers"] for look in sampling["steps"]] == [3, 6][: len(asked)]
    scores = {
        score
        for (score,) in site.rows(
            "SELECT score FROM responses JOIN batches ON batches.id = responses.batch "
            f"WHERE batch_id = '{told['batch_id']}'"
        )
    }
    last = sampling["steps"][-1]["best_score"]
    if len(asked) == 1:  # what the rule looked at is what the gate decided by
        assert last == pytest.approx(max(scores), abs=1e-6)
        assert not 0.1 < last < 0.9
    else:
        assert 0.1 < last < 0.9
    embedded = [text for one in model.requests if one.path.endswith("/embeddings") for text in one.inputs]
    assert len(embedded) == len(set(embedded)), "no answer is embedded twice"


def test_what_fails_at_a_later_step_is_held_and_keeps_no_answer(plain: Plain) -> None:
    site, model, endpoint = plain
    model.reply = lambda request: ChatReply(status=500) if len(model.asked) > 1 else two_of_three(request)
    told = ask(endpoint, gate="until-sure").streamer
    assert (told["action"], told["problem"], told["answers"]) == ("abstain", "server_error", 0)
    assert [look["answers"] for look in kept(site, told["batch_id"])["sampling"]["steps"]] == [3]


def test_answers_that_cannot_be_scored_on_the_way_are_held(model: Model) -> None:
    upstream = Upstream(base_url=model.url, model="small", api_key=KEY, answers=9, steps=(3,), stop_above=0.9)

    request = read(
        b'{"model": "bot", "messages": [{"role": "user", "content": "Who?"}]}', as_chat, max_depth=9
    )

    async def nothing(texts: Sequence[str]) -> float:
        raise ValueError(f"no score of {len(texts)}")

    async def sampled() -> Sampled:
        sampler = Sampler(upstream, max_text_bytes=1000)
        try:
            until = asyncio.get_running_loop().time() + PATIENCE
            return await sampler.sample(request, until=until, best_score=nothing)
        finally:
            await sampler.close()

    found = asyncio.run(sampled())
    assert (found.answers, found.problem, len(found.calls)) == ((), "not_scored", 1)


@pytest.mark.parametrize(
    "content",
    [
        [
            {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
            {"type": "text", "text": AGREED},
        ],
        [{"type": "text", "text": AGREED[:3]}, {"type": "text", "text": AGREED[3:]}],
    ],
)
def test_the_text_parts_of_an_answer_are_the_answer(plain: Plain, content: list[Any]) -> None:
    _, model, endpoint = plain
    for gate in (GATE, "shadow-first"):
        model.reply = lambda request: ChatReply(None, message={"content": content})
        assert ask(endpoint, gate=gate).choices[0].message.content == AGREED


def test_choices_of_one_reply_are_samples_wherever_it_was_kept(plain: Plain) -> None:
    _, model, endpoint = plain
    model.reply = lambda request: ChatReply(AGREED, further=[AGREED] * 3, id="1", headers={"age": "7"})
    assert ask(endpoint).choices[0].message.content == AGREED


def test_what_a_cache_had_is_taken_where_the_upstream_says_so(plain: Plain) -> None:
    site, model, endpoint = plain
    before = endpoint.metrics()[CACHED]
    model.reply = lambda request: ChatReply(AGREED, id="chatcmpl-1")
    told = ask(endpoint, gate="cached")
    assert told.choices[0].message.content == AGREED
    calls = kept(site, told.streamer["batch_id"])["sampling"]["calls"]
    assert [(call["id"], call["cached"]) for call in calls] == [("chatcmpl-1", True)] * ANSWERS
    assert endpoint.metrics()[CACHED] == before + ANSWERS


def test_tokens_that_nobody_counted_are_not_told(plain: Plain) -> None:
    site, model, endpoint = plain
    model.reply = lambda request: ChatReply(AGREED, further=[AGREED] * 3, usage=None)
    completion = ask(endpoint)
    assert completion.usage is None
    assert kept(site, completion.streamer["batch_id"])["sampling"]["input_tokens"] is None
    streamed = post(endpoint, stream=True, stream_options={"include_usage": True}).text
    assert AGREED in streamed
    assert '"usage"' not in streamed


def test_a_wait_that_passes_the_deadline_is_not_waited_for(plain: Plain) -> None:
    _, model, endpoint = plain
    model.reply = lambda request: ChatReply(status=429, headers={"retry-after": "86400"})
    completion = ask(endpoint)
    told = completion.streamer
    assert (told["action"], told["problem"], told["calls"]) == ("abstain", "rate_limited", 1)
    assert completion.usage is None  # nobody counted anything


# -- what is held


def test_a_hold_may_be_an_http_status(plain: Plain) -> None:
    site, model, endpoint = plain
    model.reply = differing
    for stream in (False, True):
        with pytest.raises(openai.InternalServerError, match="Ask a person") as raised:
            ask(endpoint, gate="status", stream=stream)
        body: Any = raised.value.body
        assert (body["type"], body["code"], body["streamer"]["action"]) == ("held", "scored", "abstain")
        assert raised.value.response.headers["x-streamer-batch-id"] == body["streamer"]["batch_id"]
    # The client asks again on its own after a 503, unless it is told not to: that would be other answers.
    assert len(model.asked) == 2
    assert site.rows("SELECT count(*) FROM batches WHERE gate = 'status'") == [(2,)]


def always(*given: Any, **more: Any) -> Callable[[ChatRequest], ChatReply]:
    return lambda request: ChatReply(*given, **more)


def one_picture_or_thought(kind: str) -> Callable[[ChatRequest], ChatReply]:
    return always(None, message={"content": [{"type": kind, kind: []}]})


MORE = [AGREED] * 3
TROUBLES: dict[str, tuple[Callable[[ChatRequest], ChatReply], str]] = {
    "500": (always(status=500), "server_error"),
    "429": (always(status=429), "rate_limited"),
    "wrong key": (always(status=401), "rejected"),
    "hung up": (always(hang_up=True), "unreachable"),
    "garbage": (always(raw=b"<html>"), "server_error"),
    "no completion": (always(raw=b"{}"), "server_error"),
    "too slow": (always(AGREED, after=300), "timed_out"),
    "filtered": (always(AGREED, further=MORE, finish_reason="content_filter"), "refused"),
    "refused": (always(None, refusal="I will not."), "refused"),
    "no text that can be kept": (always("a\0b", further=MORE), "malformed_reply"),
    "half of a pair": (always(raw=rb'{"choices": [{"message": {"content": "a\ud800b"}}]}'), "malformed_reply"),
    "too long": (always("x" * 70_000, further=MORE), "malformed_reply"),
    "partial": (lambda asked: always(AGREED)(asked) if "n" in asked.body else ChatReply(status=500), "server_error"),
    "only reasoning": (always(None, message={"reasoning_content": "Who?"}, finish_reason="length"), "only_reasoning"),
    "reasoning in parts": (one_picture_or_thought("thinking"), "only_reasoning"),
    "a picture": (one_picture_or_thought("image_url"), "malformed_reply"),
    "nested": (always(raw=b'{"choices": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"), "server_error"),
    "nested error": (always(status=400, raw=b"[" * 20_000), "rejected"),
    "redirected": (always(status=307, headers={"location": "http://127.0.0.1:9/v1"}), "rejected"),
    "one id": (always(AGREED, id="chatcmpl-1"), "cached"),
    "from a cache": (always(AGREED, headers={"x-cache": "Hit from edge"}), "cached"),
    "no temperature": (lambda request: refusal_of_a_parameter("temperature"), "rejected"),
}  # fmt: skip


def test_what_cannot_be_sampled_whole_is_held_and_on_record(sqlite_site: Site, model: Model) -> None:
    patient, hasty = (
        model.serve(sqlite_site, temperature=0.5, timeout_seconds=seconds) for seconds in (240, 1)
    )
    for name, (reply, problem) in TROUBLES.items():
        model.reply = reply
        endpoint = hasty if name == "too slow" else patient
        completion = ask(endpoint)
        assert completion.choices[0].finish_reason == "content_filter", name
        assert completion.choices[0].message.refusal == HELD
        told = completion.streamer
        wanted = ("abstain", "too_few_responses", problem)
        assert (told["action"], told["reason"], told["problem"]) == wanted, name
        decided = json.loads(sqlite_site.recorded()[told["batch_id"]])
        assert (decided["action"], decided["responses"]) == ("abstain", [])
        calls = kept(sqlite_site, told["batch_id"])["sampling"]["calls"]
        assert len(calls) == told["calls"]
        if problem == "cached":
            assert {(call["cached"], call["problem"]) for call in calls} == {(True, None)}, name
        elif name not in ("filtered", "no text that can be kept", "half of a pair", "too long"):
            assert problem in {call["problem"] for call in calls}, name
    model.reply = agreeing
    assert ask(endpoint).choices[0].message.content == AGREED
    sqlite_site.check()
    logged = endpoint.log_text()
    assert "refuses every request for the model small" in logged
    assert "I will not" not in logged, "texts are for the record alone"


def test_answers_that_do_not_fit_into_one_event_are_held(sqlite_site: Site, model: Model) -> None:
    sqlite_site.settings["STREAMER_EVENTS_MAX_VALUE_BYTES"] = "4096"
    model.reply = lambda request: ChatReply("x" * 2000, further=["x" * 2000] * 3)
    told = ask(model.serve(sqlite_site)).streamer
    assert (told["action"], told["problem"], told["calls"]) == ("abstain", "malformed_reply", 1)


def test_an_upstream_that_is_not_there_is_held_and_the_record_says_why(
    plain: Plain, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ask(plain.endpoint, gate="away").streamer
    assert (told["action"], told["problem"]) == ("abstain", "unreachable")
    monkeypatch.setenv("STREAMER_DATABASE_URL", plain.site.url)
    assert main(["audit", "show", told["batch_id"]]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"upstream {told['upstream']}, 1 call, no answers: unreachable (" in said
    assert "published to" not in said, "this service publishes nowhere"
    told = ask(plain.endpoint).streamer
    assert main(["audit", "show", told["batch_id"]]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"upstream {told['upstream']}, 1 call, {ANSWERS} answers" in said


def test_at_its_deadline_a_request_is_held(plain: Plain) -> None:
    site, model, endpoint = plain
    model.reply = lambda request: ChatReply(AGREED, after=300)
    for wait in ("0.5", "4", "32"):
        answer = post(endpoint, headers={"prefer": f"wait={wait}"})
        if model.asked:
            break  # else a busy machine: the model was not asked yet
    assert answer.headers["preference-applied"] == f"wait={wait}"
    told = answer.json()["streamer"]
    assert (told["action"], told["reason"], told["problem"]) == ("abstain", "deadline_passed", "timed_out")
    (call,) = kept(site, told["batch_id"])["sampling"]["calls"]
    assert call["detail"] == "given up before its reply"
    site.check()


def test_in_shadow_nothing_is_shown_unless_the_first_answer_is_wanted(plain: Plain) -> None:
    _, model, endpoint = plain
    completion = ask(endpoint, gate="shadow")
    assert completion.choices[0].message.refusal == HELD
    assert (completion.streamer["action"], completion.streamer["enforced"]) == ("ship", False)
    model.reply = differing
    completion = ask(endpoint, gate="shadow-first")
    assert completion.choices[0].message.content.startswith("Perhaps number")
    assert (completion.streamer["action"], completion.streamer["shown"]) == ("abstain", "1")
    model.reply = agreeing
    headers = post(endpoint, model="gate/shadow-first").headers
    assert (headers["x-streamer-action"], headers["x-streamer-enforced"]) == ("ship", "false")


# -- again


def test_a_repeat_gets_the_recorded_answer_and_samples_nothing(site: Site, model: Model) -> None:
    endpoint = model.serve(site)
    once = {"idempotency-key": "order-4711"}
    first = post(endpoint, headers=once)
    assert first.json()["streamer"]["batch_id"] == "order-4711"
    assert "idempotent-replayed" not in first.headers
    model.reply = differing
    for asked in (endpoint, model.serve(site)):  # a new process knows it, too
        again = post(asked, headers=once)
        assert again.content == first.content
        assert again.headers["idempotent-replayed"] == "true"
    with (
        client(endpoint := site.started[-1]) as made,
        pytest.raises(openai.ConflictError, match="other content"),
    ):
        made.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Who?"}], extra_headers=once
        )
    assert len(model.asked) == 1
    decision = endpoint.client.get(f"/v1/gates/{GATE}/decisions/order-4711").content
    assert decision == site.recorded()["order-4711"]
    site.check()


def test_a_batch_that_came_another_way_is_no_answer_to_a_conversation(plain: Plain) -> None:
    _, model, endpoint = plain
    answers = [{"id": "a", "text": AGREED}, {"id": "b", "text": AGREED}]
    body = {"batch_id": "b-1", "prompt": "Where is my parcel?", "responses": answers}
    assert endpoint.ask(body, gate="segmented").json()["action"] == "ship"
    assert endpoint.ask(body).json()["reason"] == "upstream_mismatch"
    for model_name in ("gate/segmented", MODEL):
        again = post(endpoint, headers={"idempotency-key": "b-1"}, model=model_name)
        assert again.status_code == 409
    assert model.asked == []


def test_repeats_at_the_same_time_share_one_sampling(plain: Plain) -> None:
    _, model, endpoint = plain
    model.reply = lambda request: ChatReply(AGREED, further=[AGREED] * 3, after=1)
    with ThreadPoolExecutor(8) as pool:
        came = list(pool.map(lambda _: post(endpoint, headers={"idempotency-key": "same"}), range(8)))
    assert len({one.content for one in came}) == 1
    assert {one.status_code for one in came} == {200}
    assert len(model.asked) == 1


def test_a_repeat_that_cannot_wait_for_the_first_is_told_to_ask_again(plain: Plain) -> None:
    _, model, endpoint = plain
    asked, enough = threading.Event(), threading.Event()

    def patient(request: ChatRequest) -> ChatReply:
        asked.set()
        enough.wait(PATIENCE)
        return agreeing(request)

    model.reply = patient
    once = {"idempotency-key": "slow"}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, endpoint, headers=once)
        assert asked.wait(PATIENCE)
        second = post(endpoint, headers=once | {"prefer": "wait=0.2"})
        enough.set()
    assert (second.status_code, second.json()["error"]["code"]) == (503, "unavailable")
    assert int(second.headers["retry-after"]) > 0
    assert first.result().json()["streamer"]["action"] == "ship"
    assert post(endpoint, headers=once).content == first.result().content


def test_two_instances_that_sample_for_one_key_give_one_answer(sqlite_site: Site, model: Model) -> None:
    site, both = sqlite_site, threading.Barrier(2)
    model.reply = lambda request: (both.wait(PATIENCE), differing(request))[1]
    endpoints = [model.serve(site, in_shadow="first") for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        came = list(pool.map(lambda one: post(one, headers={"idempotency-key": "same"}), endpoints))
    assert len({one.content for one in came}) == 1
    assert {one.status_code for one in came} == {200}
    assert sorted(site.outcomes()) == ["decision", "duplicate"]
    site.check()


def test_a_stop_waits_for_the_answers_of_a_request(sqlite_site: Site, model: Model) -> None:
    endpoint = model.serve(sqlite_site)
    stopping = threading.Event()
    model.reply = lambda request: agreeing(request) if stopping.wait(PATIENCE) else differing(request)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(post, endpoint)
        wait_until(lambda: len(model.asked) == 1, "the upstream is asked")
        endpoint.process.terminate()
        wait_until(lambda: "stopping" in endpoint.unready(), "it stops")
        stopping.set()
        assert asked.result().json()["streamer"]["action"] == "ship"
    assert endpoint.process.wait(PATIENCE) == 0
    assert len(sqlite_site.recorded()) == 1
    sqlite_site.check()


def test_a_stop_that_cannot_wait_says_hold(sqlite_site: Site, model: Model) -> None:
    soon = "from streamer.cli import main; from streamer.serving import service; service.CUT_OFF_SECONDS = 0; main()"
    sqlite_site.program = ("-c", soon)
    endpoint = model.serve(sqlite_site)
    over = threading.Event()
    model.reply = lambda request: ChatReply(hang_up=over.wait(PATIENCE))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(post, endpoint)
        wait_until(lambda: len(model.asked) == 1, "the upstream is asked")
        assert endpoint.terminate() == 0
        answered = asked.result()
        assert answered.status_code == 503
        assert int(answered.headers["retry-after"]) > 0
        error = answered.json()["error"]
        assert (error["code"], error["streamer"]) == ("unavailable", {"action": "abstain"})
        assert "the service ends" in error["message"]
        over.set()
    assert sqlite_site.recorded() == {}
    sqlite_site.check()


def test_what_was_erased_is_not_answered_again(plain: Plain) -> None:
    site, model, endpoint = plain
    once = {"idempotency-key": "erased"}
    post(endpoint, headers=once)
    later = datetime.now(UTC) + timedelta(days=1)
    prune(site.url, older_than=timedelta(hours=1), now=later, sooner_than_six_months=True)
    answer = post(endpoint, headers=once)
    assert (answer.status_code, answer.json()["error"]["code"]) == (410, "erased")
    assert len(model.asked) == 1


def test_what_was_given_out_is_sampled_no_second_time(sqlite_site: Site, model: Model) -> None:
    endpoint, once = model.serve(sqlite_site), {"idempotency-key": "given-out"}
    post(endpoint, headers=once)
    with sqlite_site.store._database.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM decisions")
    answer = post(endpoint, headers=once)
    assert (answer.status_code, answer.json()["error"]["code"]) == (410, "given_out")
    assert len(model.asked) == 1


# -- what is refused

TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"n": 2}, "n", "one answer is returned"),
    ({"temperature": 1.0}, "temperature", "samples with 0.5; leave temperature out"),
    ({"top_p": 0.5}, "top_p", "sends none; leave top_p out"),
    ({"max_tokens": 5}, "max_tokens", "leave max_tokens out"),
    ({"seed": 1}, "seed", "sends none; leave seed out"),
    ({"logprobs": True}, "logprobs", "log probabilities"),
    ({"tools": [TOOL]}, "tools", "in the settings of its upstream has calls judged as answers are"),
    ({"tools": [{"type": "web_search"}]}, "tools", "a model's own tools are not gated"),
    ({"tools": [TOOL], "tool_choice": "look"}, "tool_choice", "none, auto, required"),
    ({"functions": [{"name": "look"}]}, "functions", "use these"),
    ({"response_format": {"type": "json_object"}}, "response_format", "add 'json_object' to `schemas`"),
    ({"response_format": {"type": "json_schema"}}, "response_format", "with a name and a schema"),
    ({"modalities": ["text", "audio"]}, "modalities", "only text"),
    ({"audio": {"voice": "alloy", "format": "wav"}}, "audio", "only text"),
    ({"presence_penalty": 0.5}, "presence_penalty", "sends none; leave presence_penalty out"),
    ({"reasoning_effort": "low"}, "reasoning_effort", "sends none; leave reasoning_effort out"),
    ({"something_new": 1}, "something_new", "leave it out"),
    ({"messages": []}, "messages", "at least one message"),
    ({"messages": "hello"}, "messages", "at least one message"),
    ({"messages": ["hello"]}, "messages[0]", "an object"),
    ({"messages": [{"role": "nobody", "content": ""}]}, "messages[0].role", "one of system"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "a text"),
    ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0]", "only text"),
    ({"messages": [{"role": "function", "content": "", "name": "look"}]}, "messages[0].role", "use these"),
    ({"messages": [{"role": "tool", "content": ""}]}, "messages[0].tool_call_id", "the id of the call"),
    (
        {"messages": [*PROMPT, {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}]},
        "messages[1].tool_calls",
        "a list of calls",
    ),
    ({"messages": [{"role": "user", "content": "", "name": 1}]}, "messages[0].name", "a text"),
    ({"messages": [{"role": "user", "content": "", "weight": 1}]}, "messages[0].weight", "leave weight out"),
    ({"n": True}, "n", "one answer is returned"),
    ({"presence_penalty": False}, "presence_penalty", "sends none; leave presence_penalty out"),
    ({"logprobs": 0}, "logprobs", "chosen among several"),
    ({"temperature": True}, "temperature", "a number"),
    ({"max_tokens": "9"}, "max_tokens", "a number"),
    ({"metadata": {"upstream": "mine"}}, "metadata.upstream", "use another key"),
    ({"metadata": {"shop": 1}}, "metadata", "an object of texts"),
    ({"stream": "yes"}, "stream", "true or false"),
    ({"stream": True, "stream_options": 1}, "stream_options", "an object"),
]
ASKS_FOR_NOTHING: dict[str, Any] = {
    "n": 1, "temperature": 0.5, "top_p": None, "presence_penalty": 0.0, "frequency_penalty": 0, "logit_bias": {},
    "logprobs": False, "tools": [TOOL], "tool_choice": "none", "response_format": {"type": "text"}, "stop": None,
    "store": False, "user": "somebody", "service_tier": "auto",
}  # fmt: skip


def test_what_a_gate_cannot_answer_for_is_refused_in_openais_form(sqlite_site: Site, model: Model) -> None:
    endpoint = model.serve(sqlite_site, temperature=0.5, parameters="refuse")
    for body, param, says in REFUSED:
        answer = post(endpoint, **body)
        assert answer.status_code == 400, body
        error = answer.json()["error"]
        assert (error["type"], error["param"]) == ("invalid_request_error", param), body
        assert says in error["message"], body
        assert error["streamer"] == {"action": "abstain"}
    with pytest.raises(openai.BadRequestError, match="one answer is returned") as raised:
        ask(endpoint, n=3)
    assert raised.value.param == "n"
    for raw, code in (
        (b"{", "not_json"),
        (b"[]", "bad_request"),
        (b"\xff", "not_json"),
        (b'{"a":' * 100_000, "too_deeply_nested"),
        (b'{"model": "bot", "model": "bot", "messages": []}', "duplicate_keys"),
        (b'{"model": "bot", "metadata": {"a": "1", "a": "2"}}', "duplicate_keys"),
    ):
        answer = endpoint.client.post(
            "/v1/chat/completions", content=raw, headers={"content-type": "application/json"}
        )
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
    nul = post(endpoint, messages=[{"role": "user", "content": "a\0b"}])
    assert (nul.status_code, nul.json()["error"]["code"]) == (422, "nul_or_surrogate")
    long = post(endpoint, headers={"idempotency-key": "x" * 300})
    assert (long.status_code, long.json()["error"]["code"]) == (422, "bad_identifier")
    assert "the header Idempotency-Key has 300 characters" in long.json()["error"]["message"]
    assert model.asked == [], "nothing was paid for"
    assert sqlite_site.recorded() == {}
    named = post(endpoint, headers={"idempotency-key": "日本".encode()})
    assert named.json()["streamer"]["batch_id"] == "日本"
    assert (b"x-streamer-batch-id", "日本".encode()) in named.headers.raw
    assert post(endpoint, **ASKS_FOR_NOTHING).json()["streamer"]["action"] == "ship"
    assert post(endpoint, messages=[PROMPT[0] | {"name": "ana"}]).json()["streamer"]["action"] == "ship"
    assert "name" not in model.asked[-1].body["messages"][0]
    parts = [{"type": "text", "text": "Where is "}, {"type": "text", "text": "my parcel?"}]
    earlier = ask(endpoint).choices[0].message.model_dump()
    assert ask(endpoint, [{"role": "user", "content": parts}, earlier, *PROMPT]).streamer["action"] == "ship"
    assert model.asked[-1].texts == ["Where is my parcel?", AGREED, "Where is my parcel?"]


def test_a_gate_that_cannot_answer_says_why(sqlite_site: Site, model: Model) -> None:
    sqlite_site.gate("parts", scorer="gram", encoder=ENCODER, unit="response")
    sqlite_site.gate("scored")
    sqlite_site.gate("forgetful", scorer="gram", encoder=ENCODER, keep_texts=False)
    upstream = {"base_url": model.url, "model": "small"}
    gates = ("bot", "parts", "scored", "forgetful", "nobody")
    endpoint = sqlite_site.serve(STREAMER_UPSTREAMS=json.dumps(dict.fromkeys(gates, upstream)))
    for name, status, says in (
        ("gate/parts", 400, "its unit is response"),
        ("gate/scored", 400, "come with the batch"),
        ("gate/forgetful", 400, "keeps no texts"),
        ("gate/nobody", 404, "create it"),
        ("gate/other", 404, r"[upstreams.other]"),
        ("gpt-4o-mini", 404, "has no upstream here; GET /v1/models lists those that have"),
        (4711, 400, "must be the name of a gate"),
    ):
        answer = post(endpoint, model=name)
        assert answer.status_code == status, name
        assert says in answer.json()["error"]["message"]
    assert model.asked == []
    with client(endpoint) as made:
        assert [one.id for one in made.models.list()] == [f"gate/{name}" for name in sorted(gates[:-1])]


def test_the_gates_are_listed_as_models(plain: Plain) -> None:
    with client(plain.endpoint) as made:
        listed = list(made.models.list())
        assert [one.id for one in listed] == [f"gate/{name}" for name in sorted(GATES)]
        for name in (MODEL, GATE):
            assert made.models.retrieve(name) in listed
        with pytest.raises(openai.NotFoundError, match=r"no upstream here; GET /v1/models lists"):
            made.models.retrieve("gpt-4o-mini")
        completion = made.chat.completions.create(model=GATE, messages=PROMPT)
    assert completion.choices[0].message.content == AGREED
    for escaped in ("%2F", "%252F"):
        assert plain.endpoint.client.get(f"/v1/models/gate{escaped}{GATE}").json()["id"] == MODEL
    for path in ("/v1/moderations", "/v1/images/generations"):
        error = plain.endpoint.client.post(path, json={}).json()["error"]
        assert (error["code"], error["type"]) == ("not_found", "invalid_request_error")
        assert "a gate answers /v1/chat/completions" in error["message"]
    assert f"{GATE}: small@" in plain.endpoint.announced["upstreams"]


def test_what_to_label_is_named_also_of_what_is_held(plain: Plain) -> None:
    site, model, endpoint = plain
    for model.reply in (agreeing, two_of_three, differing):
        told = ask(endpoint).streamer
        row = site.rows(
            "SELECT r.response_id, r.score FROM responses r JOIN batches b ON b.id = r.batch "
            f"WHERE b.batch_id = '{told['batch_id']}' ORDER BY r.score DESC LIMIT 1"
        )
        assert told["label"] == {"batch_id": told["batch_id"], "response_id": row[0][0]}
        label = told["label"] | {"severity": 0, "kind": "human", "labeller": "ana"}
        assert endpoint.client.post(f"/v1/gates/{GATE}/labels", json=label).json() == {"recorded": 1}


def test_an_address_without_a_gate_says_where_to_ask(plain: Plain) -> None:
    with client(plain.endpoint) as made:
        with pytest.raises(openai.NotFoundError, match="use POST /v1/chat/completions"):
            made.completions.create(model=MODEL, prompt="Where?")
        with pytest.raises(openai.NotFoundError, match="ask the model's own endpoint"):
            made.embeddings.create(model=MODEL, input="Where?")
        with pytest.raises(openai.NotFoundError, match="responses are not kept"):
            made.responses.retrieve("resp_1")
    for answer in (plain.endpoint.client.get("/v1/chat/completions"), plain.endpoint.client.get("/v1/files")):
        assert answer.status_code in (404, 405)
        assert answer.json()["error"]["streamer"] == {"action": "abstain"}


def test_who_may_ask(sqlite_site: Site, model: Model) -> None:
    sqlite_site.gate("other")
    _, decides = key(sqlite_site, "decide")
    _, labels = key(sqlite_site, "label")
    _, others = key(sqlite_site, "decide", gates=["other"])
    endpoint = model.serve(sqlite_site)
    asks_for_keys(endpoint)

    def ask_with(header: dict[str, str]) -> Any:
        token = header["authorization"].removeprefix("Bearer ")
        with client(endpoint, api_key=token) as made:
            return made.chat.completions.create(model=MODEL, messages=PROMPT), made.models.list().data

    with pytest.raises(openai.AuthenticationError, match="a key that is in force"):
        ask_with({"authorization": "Bearer none"})
    for header in (labels, others):
        with pytest.raises(openai.PermissionDeniedError, match="may not decide"):
            ask_with(header)
    assert model.asked == []
    completion, listed = ask_with(decides)
    assert completion.streamer["action"] == "ship"
    assert [one.id for one in listed] == [MODEL]
    anthropics = {"x-api-key": decides["authorization"].removeprefix("Bearer ")}
    message = {"model": GATE, "max_tokens": 9, "messages": PROMPT}
    assert endpoint.client.post("/v1/messages", json=message, headers=anthropics).status_code == 200
    found = endpoint.client.post("/v1/messages", json=message).json()["error"]["type"]
    assert found == "authentication_error"
    token = others["authorization"].removeprefix("Bearer ")
    with client(endpoint, api_key=token) as made:
        assert made.models.list().data == []


def test_past_the_bounds_on_what_waits_it_refuses(sqlite_site: Site, model: Model) -> None:
    enough = threading.Event()

    def patient(request: ChatRequest) -> ChatReply:
        enough.wait(PATIENCE)
        return agreeing(request)

    model.reply = patient
    sqlite_site.settings["STREAMER_ENDPOINT_MAX_WAITING"] = "3"
    sqlite_site.settings["STREAMER_ENDPOINT_MAX_WAITING_BYTES"] = str(2**20)
    endpoint = model.serve(sqlite_site)
    large: list[Any] = [{"role": "user", "content": "Where? " * 100_000}]
    for count, taken, messages in ((8, 3, PROMPT), (2, 1, large)):
        enough.clear()
        with ThreadPoolExecutor(count) as pool:
            asked = [pool.submit(post, endpoint, messages=messages) for _ in range(count)]
            refused = [one.result() for one in islice(as_completed(asked), count - taken)]
            enough.set()
        for one in refused:
            assert (one.status_code, one.json()["error"]["code"]) == (429, "overloaded")
            assert int(one.headers["retry-after"]) > 0
        assert [one.result().status_code for one in asked].count(200) == taken


# -- the upstream's settings


def test_the_upstreams_parameters_are_in_force_whatever_the_caller_sends(plain: Plain) -> None:
    site, model, endpoint = plain
    with client(endpoint) as made:
        raw = made.chat.completions.with_raw_response.create(
            model="gate/tempered", messages=PROMPT, temperature=0.1, max_tokens=200, seed=7,
            stop=["\n"], reasoning_effort="low", presence_penalty=0,
        )  # fmt: skip
    told: Any = raw.parse().streamer  # type: ignore[attr-defined]
    ignored = ["temperature", "reasoning_effort", "seed", "stop"]
    assert (told["action"], told["ignored"]) == ("ship", ignored)
    assert told["parameters"] == {"temperature": 0.7, "max_tokens": 200}
    assert raw.headers["x-streamer-parameters"] == "temperature=0.7, max_tokens=200"
    assert raw.headers["x-streamer-ignored"] == ", ".join(ignored)
    sent = {"model": "small", "messages": PROMPT, "n": ANSWERS, "temperature": 0.7, "max_tokens": 200}
    assert model.asked[-1].body == sent
    sampling = kept(site, told["batch_id"])["sampling"]
    assert sampling["ignored"] == {"temperature": 0.1, "seed": 7, "stop": ["\n"], "reasoning_effort": "low"}
    assert (sampling["settings"]["temperature"], sampling["settings"]["max_tokens"]) == (0.7, 200)
    once = {"idempotency-key": "other temperature"}
    first = post(endpoint, headers=once, temperature=0.1)
    assert post(endpoint, headers=once, temperature=0.2).content == first.content


def test_a_batch_names_its_upstream_as_its_segment_where_the_gate_wants_it(plain: Plain) -> None:
    told = ask(plain.endpoint, gate="segmented").streamer
    assert told["upstream"].startswith("small@")
    rows = plain.site.rows("SELECT segment FROM decisions WHERE gate = 'segmented'")
    assert set(rows) - {("",)} == {(told["upstream"],)}, "other tests send batches that name no upstream"


def test_a_gate_decides_about_the_upstream_that_it_was_calibrated_for_alone(
    sqlite_site: Site, model: Model
) -> None:
    sqlite_site.gate("own", scorer="gram", encoder=ENCODER)
    rule = {"answers": 9, "steps": [3, 6], "stop_above": 0.9, "stop_below": 0.1}
    assert ask(model.serve(sqlite_site, gates={"own": rule}), gate="own").streamer["reason"] == "scored"
    asked = len(model.asked)
    for other in (rule | {"stop_above": 0.8}, {"answers": 2}, {"model": "large"}):
        told = ask(model.serve(sqlite_site, gates={"own": other}), gate="own").streamer
        assert (told["action"], told["reason"]) == ("abstain", "upstream_mismatch")
    assert len(model.asked) == asked  # what cannot ship is not paid for
    told = ask(model.serve(sqlite_site, gates={"own": rule}), gate="own").streamer
    assert told["action"] == "ship"
    sqlite_site.check()


def test_a_gate_for_answers_of_any_origin_is_told_how_to_pin_its_upstream(
    sqlite_site: Site, model: Model
) -> None:
    sqlite_site.gate("own", scorer="gram", encoder=ENCODER)
    endpoint = sqlite_site.serve(
        STREAMER_UPSTREAMS=json.dumps({"own": {"base_url": model.url, "model": "small"}})
    )
    error = post(endpoint, model="gate/own")
    assert (error.status_code, error.json()["error"]["code"]) == (400, "unsuited_gate")
    command = error.json()["error"]["message"].split("`streamer ")[1].split("`")[0]
    assert command.startswith("gate set own --upstream small@")
    done = FORKS.run(
        command.split(),
        environment={**os.environ, "STREAMER_DATABASE_URL": sqlite_site.url},
        folder=sqlite_site.folder,
        seconds=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    told = ask(
        model.serve(sqlite_site, gates={"own": {}}, answers=10, key_variable=None), gate="own"
    ).streamer
    assert (told["reason"], told["upstream"]) == ("no_threshold", command.split()[-1])


def test_other_settings_of_an_upstream_ship_nothing_until_they_are_calibrated(
    sqlite_site: Site, model: Model
) -> None:
    """The whole way: sampled while closed, labelled, calibrated, shipped; then at another temperature."""
    settings = GateSettings(
        encoder=ENCODER, mode="enforce", audit_probability=1.0, segment_by="upstream", alpha=0.2
    )
    sqlite_site.store.gates.create("own", settings, by="ana", reason="test")
    gates = {"own": {"temperature": 0.5}}
    endpoint = model.serve(sqlite_site, gates=gates)
    labels = []
    for number in range(8):
        told = ask(endpoint, [{"role": "user", "content": f"Question {number}?"}], gate="own").streamer
        assert (told["action"], told["reason"]) == ("abstain", "no_threshold")
        decided = json.loads(sqlite_site.recorded()[told["batch_id"]])
        labels += [
            {
                "batch_id": told["batch_id"], "response_id": response, "severity": 0.0,
                "kind": "human", "labeller": "ana",
            }
            for response in decided["audit"]["label"]
        ]  # fmt: skip
    assert len(labels) == 8
    assert endpoint.client.post("/v1/gates/own/labels", json=labels).json() == {"recorded": 8}
    done = FORKS.run(
        ["recalibrate", "own"],
        environment={**os.environ, "STREAMER_DATABASE_URL": sqlite_site.url},
        folder=sqlite_site.folder,
        seconds=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert ask(model.serve(sqlite_site, gates=gates), gate="own").choices[0].message.content == AGREED
    gates = {"own": {"temperature": 0.6}}
    told = ask(model.serve(sqlite_site, gates=gates), gate="own").streamer
    assert (told["action"], told["reason"]) == ("abstain", "closed")
    sqlite_site.check()
