"""The clients against `streamer serve` itself: decided, repeated, looked up, labelled, contradicted, and without a key."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from streamer.gates.batch_key import BatchKey
from streamer.store.desk.release_desk import Reject, Release
from streamer_client import Trouble
from tests.faults.endpoint import GATE, Site
from tests.faults.site import wait_until
from tests.integration.client.conftest import Caller

NAME = "order 47/11 ü"  # it fits no header, and a path only when it is quoted
ANSWERS = {"a": "Here.", "ü/2": "There."}
LONG: dict[str, Any] = {"deadline": 240.0}
ASKED: dict[str, Any] = LONG | {"batch_id": NAME, "scores": [0.2, 0.9]}


@pytest.fixture
def site(migrated_sqlite_url: str, tmp_path: Path) -> Iterator[Site]:
    one = Site(migrated_sqlite_url, tmp_path)
    one.gate()
    yield one
    one.close()


def test_what_becomes_of_it_at_the_desk(caller: Caller, migrated_sqlite_url: str, tmp_path: Path):
    with closing(Site(migrated_sqlite_url, tmp_path)) as site:
        site.gate(hold_action="escalate", desk_deadline_seconds=600.0)
        url = site.serve().base
        asked = ASKED | {"scores": [0.1, 0.2]}
        decided = caller.call(url, "decide", GATE, "Where?", ANSWERS, **asked)
        assert (decided["action"], decided["ships"]) == ("escalate", False)
        assert datetime.fromisoformat(decided["desk_until"]) > datetime.now(UTC)

        waiting = caller.call(url, "desk", GATE, NAME, deadline=3.0)
        assert (waiting["action"], waiting["waits"], waiting["released"], waiting["text"]) == (
            "waiting", True, False, None,
        )  # fmt: skip
        key = BatchKey(GATE, NAME, 1)
        threading.Timer(
            1.0,
            lambda: site.store.desk.decide(key, Release(response_id="ü/2", text="Thére."), by="account:ana"),
        ).start()
        found = caller.call(url, "desk", GATE, NAME, **LONG)
        assert (found["action"], found["released"], found["text"], found["response_id"], found["edited"]) == (
            "released", True, "Thére.", "ü/2", True,
        )  # fmt: skip
        assert (found["by"], found["reason"], found["waits"]) == ("account:ana", "person", False)
        assert found["event"]["desk_id"]

        # In one request: an edited answer is released while the request waits, another is not decided in time.
        def decide_at(key: BatchKey, outcome: Release | Reject) -> None:
            wait_until(lambda: site.store.desk.state(key) is not None, "it waits at the desk")
            site.store.desk.decide(key, outcome, by="account:ana", remark="soon")

        for name, outcome in (
            ("b-4", Release(response_id="a", text="Hére.")),
            ("b-5", Release(response_id="a")),
            ("b-6", Reject()),
        ):
            person = threading.Thread(target=decide_at, args=(BatchKey(GATE, name, 1), outcome))
            person.start()
            one = caller.call(url, "decide", GATE, "Where?", ANSWERS, **asked | {"batch_id": name}, desk=60.0)
            person.join()
            edited, released = name == "b-4", name != "b-6"
            text = {"b-4": "Hére.", "b-5": "Here."}.get(name)
            assert (one["action"], one["ships"], one["text"]) == ("escalate", False, text)
            assert one["desk"]["action"] == ("released" if released else "rejected")
            wanted = (edited, text, "soon")
            assert (one["desk"]["edited"], one["desk"]["text"], one["desk"]["remark"]) == wanted
            assert one["event"] == json.loads(site.recorded()[name])
        late = caller.call(url, "decide", GATE, "Where?", ANSWERS, **asked | {"batch_id": "b-7"}, desk=0.1)
        assert (late["action"], late["text"], late["desk"]["action"]) == ("escalate", None, "waiting")
        wrong = caller.call(url, "decide", GATE, "Where?", ANSWERS, **asked | {"batch_id": "b-8"}, desk=0)
        assert (wrong["action"], wrong["reason"], wrong["desk"]) == ("hold", "invalid_request", None)

        # What never came to the desk, and what is not known, holds.
        caller.call(url, "decide", GATE, "Where?", ANSWERS, **LONG, batch_id="b-2", scores=[0.1, 0.9])
        for name, code in (("b-2", "404 not_at_desk"), ("b-3", "404 unknown_batch")):
            no = caller.call(url, "desk", GATE, name, **LONG)
            assert (no["action"], no["released"], no["reason"]) == ("hold", False, "refused")
            assert f"status {code}" in no["detail"]
            with pytest.raises(Trouble, match="refused"):
                caller.call(url, "desk", GATE, name, raise_on_trouble=True, **LONG)
        site.check()


def test_against_the_service_itself(caller: Caller, site: Site):
    url = site.serve().base

    def decide(prompt: str = "Where?", **options: Any) -> dict[str, Any]:
        return dict(caller.call(url, "decide", GATE, prompt, ANSWERS, **ASKED | options))

    first = decide()
    assert (first["action"], first["ships"], first["reason"]) == ("ship", True, "scored")
    assert (first["text"], first["response_id"], first["index"], first["score"]) == ("There.", "ü/2", 1, 0.9)
    assert (first["enforced"], first["threshold"], first["policy_version"]) == (True, 0.5, 2)
    assert first["event"] == json.loads(site.recorded()[NAME])
    assert decide() == first
    assert site.outcomes() == ["decision", "duplicate"]

    found = caller.call(url, "decision", GATE, NAME, **LONG)
    assert found == first | {"text": None}  # the service has no texts to return
    held = decide(batch_id="b-2", scores=[0.1, 0.2])
    assert (held["action"], held["ships"], held["text"], held["score"]) == ("abstain", False, None, 0.2)
    drawn = caller.call(url, "decide", GATE, "Where?", ANSWERS, scores=[0.9, 0.2], **LONG)
    assert (drawn["ships"], drawn["text"]) == (True, "Here.")
    assert drawn["batch_id"] in site.recorded()

    caller.call(url, "label", GATE, NAME, "ü/2", 0.5, labeller="ana", **LONG)
    assert site.rows("SELECT response_id, severity, labeller FROM label_revisions") == [("ü/2", 0.5, "ana")]
    gate = caller.call(url, "gate", GATE, **LONG)
    assert (gate["gate"], gate["policy"]["lambda"], gate["policy"]["version"]) == (GATE, 0.5, 2)

    other = decide("Who?")
    wanted = ("hold", "refused", False, None)
    assert (other["action"], other["reason"], other["ships"], other["event"]) == wanted
    assert "status 409 conflicting_content: " in other["detail"]
    missing = caller.call(url, "decision", GATE, "nobody's", **LONG)
    assert "status 404 unknown_batch: " in missing["detail"]
    with pytest.raises(Trouble, match="refused: status 422 invalid_field: "):
        caller.call(url, "label", GATE, NAME, "a", 1.5, labeller="ana", **LONG)

    _, token = site.store.api_keys.create(gates=[GATE], may=["decide"], by="ana")
    wait_until(
        lambda: site.started[0].client.get(f"/v1/gates/{GATE}").status_code == 401, "keys are asked for"
    )
    refused = decide(batch_id="b-4")
    assert (refused["action"], refused["reason"], refused["event"]) == ("hold", "refused", None)
    assert "status 401 no_key: " in refused["detail"]
    assert "b-4" not in site.recorded()
    assert decide(batch_id="b-4", key=token)["ships"]
    with pytest.raises(Trouble, match="refused: status 403 not_allowed: "):
        caller.call(url, "gate", GATE, key=token, **LONG)
    site.check()
