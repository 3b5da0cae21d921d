"""What a caller learns of the desk: by waiting, by polling, in a chat, and with each client."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from streamer.events.actions import decode_action
from streamer.events.desk import decode_desk
from streamer.gates.batch_key import BatchKey
from streamer.store.desk.release_desk import Reject, Release
from tests.faults.endpoint import GATE, PATIENCE, Site, action, batch, held
from tests.faults.site import wait_until
from tests.integration.serving.model_server import ENCODER, Model, differing
from tests.services.openai_server import ChatReply

DESK = {"hold_action": "escalate", "desk_deadline_seconds": 600.0}


def release(site: Site, name: str, text: str | None = None, *, answer: str = "a", gate: str = GATE) -> None:
    site.store.desk.decide(
        BatchKey(gate, name, 1),
        Release(response_id=answer, text=text),
        by="account:ana",
        remark="looked at it",
    )


def test_the_outcome_is_polled_and_waited_for(
    new_site: Callable[..., Site], migrated_sqlite_url: str
) -> None:
    site = new_site(migrated_sqlite_url, **DESK)
    site.gate("hasty", **DESK | {"desk_deadline_seconds": 1.0})
    endpoint = site.serve()
    get = endpoint.client.get
    action(endpoint.ask(batch("late", score=0.1), gate="hasty"))
    name = "order 47/desk"  # an id may end like an address
    decided = action(endpoint.ask(batch(name, score=0.1)))
    assert (decided["action"], decided["enforced"]) == ("escalate", True)
    at = f"/v1/gates/{GATE}/desk/{name}"
    waiting = get(at)
    assert (waiting.status_code, waiting.json()["action"]) == (202, "waiting")
    assert waiting.json()["until"] == decided["desk_until"]
    assert waiting.headers["retry-after"] == "2"
    assert get(at, headers={"prefer": "wait=0.3"}).status_code == 202

    released: list[Any] = []
    asking = threading.Thread(
        target=lambda: released.append(get(at, headers={"prefer": f"wait={PATIENCE:g}"})), daemon=True
    )
    asking.start()
    time.sleep(0.2)  # whether it asks before or after: it gets the same
    release(site, name, "Better.")
    asking.join(PATIENCE)
    (answer,) = released
    assert answer.status_code == 200
    event = decode_desk(answer.content)
    assert (event.action, event.text, event.edited, event.selected) == ("released", "Better.", True, "a")
    assert (event.by, event.remark, event.action_id) == ("account:ana", "looked at it", decided["action_id"])
    assert get(at).content == answer.content
    assert json.loads(get(at).headers["streamer-receipt"])[:3] == ["control", "", 0]
    assert get(f"/v1/gates/{GATE}/decisions/{name}").json() == decided, "the decision stays what it was"

    action(endpoint.ask(batch("shipped", score=0.9)))
    held(get(f"/v1/gates/{GATE}/desk/shipped"), 404, "not_at_desk")
    held(get(f"/v1/gates/{GATE}/desk/nobody's"), 404, "unknown_batch")
    held(get(at, headers={"prefer": "wait=soon"}), 400, "bad_request")
    assert get(f"/v1/gates/{GATE}").json()["policy"]["desk_deadline_seconds"] == 600.0
    name = f'streamer_desk_waiting{{gate="{GATE}"}}'
    action(endpoint.ask(batch("another", score=0.1)))
    wait_until(lambda: endpoint.metrics().get(name) == 1.0, "what waits is counted")

    # One request decides and waits for the desk. What is told as a hold stays one; a repeat learns the rest.
    def wanting(name: str, seconds: str, *, score: float = 0.1) -> Any:
        return endpoint.ask(batch(name, score=score), headers={"prefer": f"desk={seconds}"})

    told = wanting("another", "0.3")
    plain = action(endpoint.ask(batch("another", score=0.1)))
    assert told.json()["desk"]["action"] == "waiting"
    assert {one: value for one, value in told.json().items() if one != "desk"} == plain
    asking = threading.Thread(
        target=lambda: released.append(wanting("another", f"{PATIENCE:g}")), daemon=True
    )
    asking.start()
    release(site, "another", "Better.")
    asking.join(PATIENCE)
    told = released[1].json()
    wanted = ("escalate", "released", "Better.")
    assert (told["action"], told["desk"]["action"], told["desk"]["text"]) == wanted
    assert "by" not in told["desk"], "a key that may decide need not know who"
    assert decode_action(json.dumps(told).encode()).action == "escalate", "a client reads it as before"
    assert "desk" not in wanting("fine", "60", score=0.9).json(), "what ships waits for nobody"
    held(wanting("never", "never"), 400, "bad_request")
    held(get(f"/v1/gates/{GATE}/decisions/never"), 404, "unknown_batch")

    # Nobody came for the other gate's: the service itself rejects it.
    wait_until(lambda: get("/v1/gates/hasty/desk/late").status_code == 200, "it is rejected")
    event = decode_desk(get("/v1/gates/hasty/desk/late").content)
    assert (event.action, event.reason, event.by, event.text) == ("rejected", "deadline_passed", None, None)
    site.check()


def test_a_chat_is_held_and_a_repeat_gets_what_was_released(
    new_site: Callable[..., Site], migrated_sqlite_url: str
) -> None:
    site = new_site(migrated_sqlite_url, scorer="gram", encoder=ENCODER, cut=0.99, **DESK)
    with Model() as model:
        model.reply = differing
        endpoint = model.serve(site)
        body = {"model": f"gate/{GATE}", "messages": [{"role": "user", "content": "Where?"}]}

        def chat(name: str, **headers: str) -> Any:
            return endpoint.client.post(
                "/v1/chat/completions", json=body, headers={"idempotency-key": name} | headers
            )

        first = chat("c-1")
        assert first.status_code == 200
        assert "No answer can be given" in first.text
        assert '"action":"waiting"' in first.text
        assert f'"url":"/v1/gates/{GATE}/desk/c-1"' in first.text
        (shown,) = decode_action(site.store.action(BatchKey(GATE, "c-1", 1)).action).responses[:1]  # type: ignore[union-attr]
        release(site, "c-1", "It is on its way.", answer=shown.id)
        again = chat("c-1")
        assert "It is on its way." in again.text
        assert '"finish_reason":"stop"' in again.text or '"finish_reason":"length"' in again.text
        assert '"action":"released"' in again.text
        assert "account:ana" not in again.text, "whoever chats need not know who"
        body["stream"] = True
        assert '"delta":{"content":"It is on its way."}' in chat("c-1").text

        # A caller that waits for the desk, for a bounded time.
        bounded = chat("c-2", prefer="desk=0.3")
        assert '"action":"waiting"' in bounded.text
        site.store.desk.decide(BatchKey(GATE, "c-2", 1), Reject(), by="account:ana")
        rejected = chat("c-2", prefer="desk=60")
        assert "No answer can be given" in rejected.text
        assert '"action":"rejected"' in rejected.text
        assert chat("c-3", prefer="desk=never").status_code == 400
        assert site.store.action(BatchKey(GATE, "c-3", 1)) is None, "nothing was sampled"

        # Where no answer came nobody can release one, and nobody is waited for.
        body["stream"], model.reply = False, lambda _request: ChatReply(status=401)
        told = chat("c-4", prefer="desk=300").json()["streamer"]
        assert (told["action"], told["problem"], "desk" in told) == ("escalate", "rejected", False)
        held(endpoint.client.get(f"/v1/gates/{GATE}/desk/c-4"), 404, "not_at_desk")
    site.check()
