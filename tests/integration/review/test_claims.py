"""The review page of a gate of claims: the whole answer is read, and one claim of it is judged."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from selenium.webdriver.common.by import By

from streamer.cli import main
from streamer.events.claims import CLAIMS, RecordedClaims
from streamer.store.labels.revisions import QueuedResponse
from tests.integration.review.conftest import SCORE, Site, answers, fill, severities, unsealed
from tests.integration.review.person import Person
from tests.integration.store.conftest import World
from tests.services.browser import Browser
from tests.services.openai_server import ChatReply, ChatRequest, OpenAIServer

CODE = "```\nx = 1 < 2\n```\n"
CLAIMS_OF_IT = ("Bern is a city. ", "🐻 A bear is in its arms.\n\n", CODE, "Note well.")
ANSWER = "<think>😀?</think>" + "".join(CLAIMS_OF_IT)
OTHER = "Bern has a bear <b>in</b> its arms."


def claims_wait(
    world: World,
    gate: str = "notes",
    *,
    numbers: Sequence[int] = (0,),
    scores: Sequence[float] = (SCORE,) * 4,
    **settings: Any,
) -> None:
    world.gate(gate, unit="claim", scorer="support", encoder="none", **settings)
    spans, place = [], len(ANSWER) - len("".join(CLAIMS_OF_IT))
    for text in CLAIMS_OF_IT:
        spans.append([place, place + len(text)])
        place += len(text)
    kept = {CLAIMS: {"responses": [["r0", ANSWER], ["r1", OTHER]], "spans": spans}}
    for number in numbers:
        made = answers(world, number, CLAIMS_OF_IT, metadata=kept, embedding_source="none")
        drawn = tuple(
            replace(one, drawn=True, score=score) for one, score in zip(made.responses, scores, strict=True)
        )
        fill(world, [replace(made, responses=drawn)])


def test_one_claim_after_the_other_is_marked_in_its_answer(
    world: World, serve: Callable[..., Site], browser: Browser
) -> None:
    claims_wait(world)
    ana = Person(browser, serve(world, gates=("notes",)).address(), "Ana")
    shown = ANSWER.partition("</think>")[2]
    marked = "return document.querySelector('.claim')?.textContent"
    for key, claim in zip("fnhw", CLAIMS_OF_IT, strict=True):
        ana.until(lambda claim=claim: ana.run(marked) == claim)
        ana.reads("Question 0?")
        assert ana.text("answer") == shown
        assert ana.text("answer-title") == "How bad is the marked claim?"
        assert ana.text("half-means") == "Partly wrong"
        if key == "f":
            ana.press("o")
            ana.until(lambda: ana.sees("others"))
            assert ana.text("others-list") == OTHER
        ana.press(key)
    ana.until(lambda: ana.sees("empty"))
    assert severities(world) == {"b0-0": [("Ana", 0.0), ("Ana", 0.0), ("Ana", 0.5), ("Ana", 1.0)]}
    ana.press("u")
    ana.until(lambda: ana.sees("item"))
    assert ana.driver.find_element(By.CLASS_NAME, "claim").text == CLAIMS_OF_IT[-1]


def test_an_answer_is_done_at_its_first_wrong_claim(
    world: World, serve: Callable[..., Site], browser: Browser
) -> None:
    claims_wait(world, scores=(0.3, 0.9, 0.3, 0.8))
    ana = Person(browser, serve(world, gates=("notes",)).address(), "Ana")
    marked = "return document.querySelector('.claim')?.textContent"
    for key, place in zip("hw", (1, 3), strict=True):
        ana.until(lambda place=place: ana.run(marked) == CLAIMS_OF_IT[place])
        ana.reads("Question 0?")
        assert "Stop at the first wrong one" in ana.text("about")
        ana.press(key)
    ana.until(lambda: ana.sees("empty"))
    ana.press("u")  # and on with it, once it is not wrong
    ana.until(lambda: ana.sees("item"))
    ana.reads("Question 0?")
    ana.press("f")
    ana.until(lambda: ana.run(marked) == CLAIMS_OF_IT[0])
    claims_wait(world, "shares", numbers=[1], loss="share")
    other = Person(browser, serve(world, gates=("shares",)).address(), "Ben")
    other.reads("Question 1?")
    assert "Stop" not in other.text("about")
    assert other.run(marked) == CLAIMS_OF_IT[0]


def test_the_queue_in_a_file_has_the_answer_with_each_claim(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    claims_wait(world)
    found: list[QueuedResponse] = world.store.labels.queue("notes")
    wanted = [(name, text, ANSWER) for name, text in zip("abcd", CLAIMS_OF_IT, strict=True)]
    assert [(one.response_id, one.text, one.answer) for one in found] == wanted
    assert RecordedClaims.of({}) is None
    monkeypatch.setenv("STREAMER_DATABASE_URL", world.url)
    assert main(["label", "queue", "--gate", "notes", "--format", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    shown = ANSWER.partition("</think>")[2]
    wanted = [f"{shown}\n\nThe claim to judge: {claim}" for claim in CLAIMS_OF_IT]
    assert [row["response"] for row in rows] == wanted


def test_a_judge_reads_each_claim_of_the_queue_in_its_answer(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    claims_wait(world, severity_kind="judge")
    claims_wait(world, "many", numbers=range(1, 13), severity_kind="judge")
    monkeypatch.setenv("STREAMER_DATABASE_URL", world.url)
    asked: list[tuple[str, str]] = []

    def reply(request: ChatRequest) -> ChatReply:
        case = request.body["messages"][1]["content"]
        shown = json.loads(case[case.index("{") : case.rindex("}") + 1])
        asked.append((shown["candidate"], shown["answer"]))
        return ChatReply(json.dumps({"score": 100 if "city" in shown["candidate"] else worst}))

    with OpenAIServer(reply) as server:
        command = ["label", "judge", "--base-url", server.url, "--model", "grader", "--json", "--gate"]
        worst = 10
        assert main([*command, "notes"]) == 0, capsys.readouterr().err
        told = json.loads(capsys.readouterr().out)
        assert (told["labelled"], told["waiting"]) == (4, 0)
        shown = ANSWER.partition("</think>")[2]
        assert sorted(asked) == sorted((claim, shown) for claim in CLAIMS_OF_IT)
        # One claim of each answer is read after the other, to the first wrong one: here the second.
        worst = 0
        assert main([*command, "many", "--concurrency", "1"]) == 0, capsys.readouterr().err
        told = json.loads(capsys.readouterr().out)
        assert 24 <= told["labelled"] <= 26  # as many as wait for the server are read on the way
        assert told["waiting"] == 0
    query = "SELECT response_id, severity FROM label_revisions WHERE gate = 'notes' ORDER BY response_id"
    found = [tuple(row) for row in world.rows(query)]
    assert found == [("a", 0.0), ("b", 0.9), ("c", 0.9), ("d", 0.9)]
    assert unsealed(world) == []
