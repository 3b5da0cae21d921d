"""From the first key on a request needs one: of this gate, for this act, in force, and not too often."""

from typing import Any

from streamer.gates.batch_key import BatchKey
from streamer.security.api_keys import Rate
from streamer.store.desk.release_desk import Release
from streamer_client import Client
from tests.faults.endpoint import GATE, Endpoint, Site, action, batch, held
from tests.faults.site import wait_until

LABEL = {
    "batch_id": "b-1",
    "response_id": "a",
    "severity": 0.0,
    "kind": "human",
    "labeller": "ana",
    "labelled_at": "2026-01-01T00:00:00Z",
}


def key(site: Site, *may: str, **changes: Any) -> tuple[str, dict[str, str]]:
    """A key's id, and the header that sends it."""
    made, token = site.store.api_keys.create(**{"gates": [GATE], "may": may, "by": "ana"} | changes)
    return made.id, {"authorization": f"Bearer {token}"}


def asks_for_keys(endpoint: Endpoint) -> None:
    """Wait until the service has read that there are keys."""
    wait_until(lambda: endpoint.client.get(f"/v1/gates/{GATE}").status_code == 401, "keys are asked for")


def test_what_a_key_allows(site: Site) -> None:
    site.gate("other")
    endpoint = site.serve()
    assert action(endpoint.ask(batch("b-0")))["action"] == "ship", "nobody is asked before there is a key"
    _, decides = key(site, "decide")
    _, others = key(site, "decide", "label", "read", gates=["other"])
    _, everything = key(site, "label", "read", gates=None)
    asks_for_keys(endpoint)
    known = f"/v1/gates/{GATE}"  # by the key that was made last
    wait_until(lambda: endpoint.client.get(known, headers=everything).status_code == 200, "all are read")

    decisions, labels = f"/v1/gates/{GATE}/decisions", f"/v1/gates/{GATE}/labels"
    client = endpoint.client
    refused = held(client.post(decisions, json=batch("b-1")), 401, "no_key")
    assert "Authorization: Bearer" in refused["detail"]
    for header in (
        "Bearer",
        "Bearer streamer_x",
        decides["authorization"] + "0",
        "Basic abc",
        decides["authorization"][7:],
    ):
        answer = client.post(decisions, json=batch("b-1"), headers={"authorization": header})
        held(answer, 401, "no_key")
        assert answer.headers["www-authenticate"] == "Bearer"
    held(client.post(decisions, json=batch("b-1"), headers=others), 403, "not_allowed")
    held(client.post(decisions, json=batch("b-1"), headers=everything), 403, "not_allowed")
    assert "b-1" not in site.recorded()

    # Whoever has a key may come by any name: a page of another origin has none.
    shipped = action(client.post(decisions, json=batch("b-1"), headers=decides | {"host": "gates.example"}))
    assert shipped["action"] == "ship"
    held(client.post(labels, json=LABEL, headers=decides), 403, "not_allowed")
    held(client.get(known, headers=decides), 403, "not_allowed")
    for path in (f"{decisions}/b-1", f"/v1/gates/{GATE}/desk/b-1"):
        held(client.get(path, headers=others), 403, "not_allowed")
    assert client.get(f"{decisions}/b-1", headers=decides).json() == shipped
    assert client.post(labels, json=LABEL, headers=everything).json() == {"recorded": 1}
    assert client.get(f"{decisions}/b-1", headers=everything).json() == shipped
    assert client.get(f"/v1/gates/{GATE}", headers=everything).status_code == 200
    assert client.get("/v1/gates/other", headers=others).status_code == 200
    for path in ("/openapi.json", "/docs"):
        assert client.get(path).status_code == 200, "the description is no secret"
    site.check()


def test_whoever_may_have_a_batch_decided_may_ask_what_became_of_it_at_the_desk(sqlite_site: Site) -> None:
    sqlite_site.gate("waits", hold_action="escalate", desk_deadline_seconds=600.0)
    endpoint = sqlite_site.serve()
    (_, decides), (_, reads), (_, labels) = (
        key(sqlite_site, may, gates=["waits"]) for may in ("decide", "read", "label")
    )
    asks_for_keys(endpoint)
    at = "/v1/gates/waits/desk/b-1"
    wait_until(lambda: endpoint.client.get(at, headers=reads).status_code == 404, "all are read")
    body = batch("b-1", score=0.1)
    assert action(endpoint.client.post("/v1/gates/waits/decisions", json=body, headers=decides))["desk_until"]
    assert endpoint.client.get(at, headers=decides).status_code == 202
    made = Release(response_id="a", text="Better.")
    sqlite_site.store.desk.decide(BatchKey("waits", "b-1", 1), made, by="account:ana", remark="why")
    read, told = (endpoint.client.get(at, headers=one).json() for one in (reads, decides))
    assert (told["text"], told["remark"]) == ("Better.", "why")
    assert read == told | {"by": "account:ana"}, "a key that may decide need not know who"
    held(endpoint.client.get(at, headers=labels), 403, "not_allowed")


def test_a_key_that_asks_too_often_and_one_that_is_revoked(sqlite_site: Site) -> None:
    slow, headers = key(sqlite_site, "read", rate=Rate(2, 3600))
    endpoint = sqlite_site.serve()
    path = f"/v1/gates/{GATE}"
    assert [endpoint.client.get(path, headers=headers).status_code for _ in range(2)] == [200, 200]
    answer = endpoint.client.get(path, headers=headers)
    held(answer, 429, "too_often")
    assert 1700 <= int(answer.headers["retry-after"]) <= 1800

    quick, headers = key(sqlite_site, "read")
    wait_until(lambda: endpoint.client.get(path, headers=headers).status_code == 200, "it is read")
    sqlite_site.store.api_keys.revoke(quick, by="ana", reason="lost")
    sqlite_site.store.api_keys.revoke(slow, by="ana", reason="lost, too")
    # Every two seconds they are read; that none older than `MOST_SECONDS_OLD` serve, tests/unit/test_api_keys.py says.
    wait_until(lambda: endpoint.client.get(path, headers=headers).status_code == 401, "it is refused")
    held(endpoint.ask(batch("b")), 401, "no_key")


def test_our_client_brings_its_key(sqlite_site: Site) -> None:
    _, headers = key(sqlite_site, "decide", "read", "label")
    endpoint = sqlite_site.serve()
    token = headers["authorization"].removeprefix("Bearer ")
    with Client(endpoint.base, key=token) as client:
        decided = client.decide(
            GATE, "Where?", {"a": "Here.", "b": "There."}, scores=[0.9, 0.2], batch_id="b-1"
        )
        assert decided.ships
        assert decided.batch_id == "b-1"
    with Client(endpoint.base, key=token[:-1] + ("0" if token[-1] != "0" else "1")) as client:
        decided = client.decide(
            GATE, "Where?", {"a": "Here.", "b": "There."}, scores=[0.9, 0.2], batch_id="b-2"
        )
        assert not decided.ships
        assert "no_key" in str(decided)
    assert set(sqlite_site.recorded()) == {"b-1"}
