"""Chat completions of a gate of claims, with an unmodified `openai` client."""

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest

from streamer.store.desk.release_desk import Release
from tests.faults.endpoint import Site
from tests.integration.serving.model_server import Model
from tests.integration.serving.test_chat import HELD, PROMPT, ask, client, post
from tests.services.openai_server import ChatReply

CLAIMS: dict[str, Any] = {"unit": "claim", "scorer": "support", "cut": 0.6}
RIGHT, WRONG, LAST = "The depot in Bern opens at 9. ", "Zebras fly 77 times. ", "Parcels go at noon."
OTHER = "The depot in Bern opens at 9. Parcels go at noon."


def test_content_is_what_ships_and_left_out_says_where(
    new_site: Callable[..., Site], migrated_sqlite_url: str
) -> None:
    site = new_site(migrated_sqlite_url, **CLAIMS)
    site.gate("marked", left_out="mark", **CLAIMS)
    site.gate("shadow", mode="shadow", **CLAIMS)
    with Model() as model:
        first = f"<think>Hm.</think>{RIGHT}{WRONG}{LAST}"
        model.reply = lambda request: ChatReply(first, further=[OTHER] * (request.body["n"] - 1))
        gates: dict[str, Any] = {"bot": {}, "marked": {}, "tools": {"tools": "judge"}}
        gates["shadow"] = {"in_shadow": "first"}
        site.gate("tools", **CLAIMS)
        gates["desk"] = {}
        site.gate("desk", hold_action="escalate", desk_deadline_seconds=9000.0, **CLAIMS)
        endpoint = model.serve(site, gates=gates)
        found = ask(endpoint)
        (choice,) = found.choices
        assert (choice.message.content, choice.finish_reason) == (RIGHT + LAST, "stop")
        told, place = found.streamer, len(RIGHT)
        assert (told["action"], told["shown"], told["answers"]) == ("mixed", "1", 4)
        assert told["left_out"] == [{"id": "c01", "span": [place, place]}]
        first_out, last_out = told["label"]["claims"]
        assert told["label"]["batch_id"] == told["batch_id"]
        assert [one["id"] for one in (first_out, last_out)] == ["c00", "c02"]
        assert choice.message.content[slice(*first_out["span"])] == RIGHT
        assert choice.message.content[slice(*last_out["span"])] == LAST

        with client(endpoint) as made:
            streamed = made.chat.completions.create(model="gate/bot", messages=PROMPT, stream=True)
            said = "".join(one.choices[0].delta.content or "" for one in streamed)
        assert said == RIGHT + LAST

        marked = ask(endpoint, gate="marked")
        text, (out,) = marked.choices[0].message.content, marked.streamer["left_out"]
        assert text == f"{RIGHT}[unsupported: {WRONG.strip()}] {LAST}"
        assert text[slice(*out["span"])] == f"[unsupported: {WRONG.strip()}]"

        shadow = ask(endpoint, gate="shadow")
        assert shadow.choices[0].message.content == RIGHT + WRONG + LAST
        assert "left_out" not in shadow.streamer
        assert [one["id"] for one in shadow.streamer["label"]["claims"]] == ["c00", "c01", "c02"]
        begin, end = shadow.streamer["label"]["claims"][1]["span"]
        assert shadow.choices[0].message.content[begin:end] == WRONG

        # a repeat is answered from the record, of which the rows are of claims
        key = {"idempotency-key": "one"}
        once, again = (post(endpoint, headers=key).json() for _ in range(2))
        calls = len(model.asked)
        assert again == once
        assert once["choices"][0]["message"]["content"] == RIGHT + LAST
        assert len(model.asked) == calls

        first = WRONG
        held = ask(endpoint)
        (choice,) = held.choices
        assert (choice.message.refusal, choice.finish_reason) == (HELD, "content_filter")
        assert held.streamer["action"] == "abstain"
        assert held.streamer["label"]["claims"] == []

        # at the desk a person puts back what was left out; a repeat gets it
        first, key = f"{RIGHT}{WRONG}{LAST}", {"idempotency-key": "two"}
        once = post(endpoint, headers=key, model="gate/desk").json()
        assert once["choices"][0]["message"]["content"] == RIGHT + LAST
        assert once["streamer"]["desk"]["action"] == "waiting"
        (waits,) = site.store.desk.waiting()
        act = Release(response_id="1", claims=("c01",))
        site.store.desk.decide(waits.key, act, by="account:ana")
        again = post(endpoint, headers=key, model="gate/desk").json()
        assert again["choices"][0]["message"]["content"] == first
        assert again["streamer"]["left_out"] == []
        assert [one["id"] for one in again["streamer"]["label"]["claims"]] == ["c00", "c01", "c02"]
        with client(endpoint) as made, pytest.raises(openai.BadRequestError, match="tools"):
            made.chat.completions.create(model="gate/tools", messages=PROMPT)
    everything = {name: json.loads(value)["action"] for name, value in site.recorded().items()}
    assert set(everything.values()) == {"mixed", "abstain"}
    site.check()
