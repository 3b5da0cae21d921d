"""What comes back is what is on record: decisions, repeats, contradictions, refusals, severities."""

import json
import socket
from typing import Any

import pytest

from streamer.cli import main
from streamer.errors import UsageError
from streamer.scoring.signals.signal_list import signal_list
from tests.faults.endpoint import GATE, Site, action, batch, held
from tests.integration.serving.model_server import ENCODER, Model


def test_the_answer_is_the_action_as_it_is_recorded(site: Site) -> None:
    endpoint = site.serve()
    ships, holds = endpoint.ask(batch("b-1")), endpoint.ask(batch("b-2", score=0.1))
    wanted = ("ship", "a", True)
    assert (action(ships)["action"], action(ships)["selected"], action(ships)["enforced"]) == wanted
    assert (action(holds)["action"], action(holds)["selected"]) == ("abstain", None)
    assert site.recorded() == {"b-1": ships.content, "b-2": holds.content}
    assert action(ships)["source"] == {"topic": "http", "partition": 0, "offset": 0}
    found = endpoint.client.get(f"/v1/gates/{GATE}/decisions/b-1")
    assert (found.status_code, found.content) == (200, ships.content)
    leaves = site.rows(
        "SELECT leaf_index, leaf_hash, root FROM outcomes WHERE topic = 'http' ORDER BY \"offset\""
    )
    for answer, (index, leaf, root) in zip((ships, holds), leaves, strict=True):
        wanted = ["http", "http", 0, index, bytes(leaf).hex(), bytes(root).hex()]
        assert json.loads(answer.headers["streamer-receipt"]) == wanted
    assert found.headers["streamer-receipt"] == ships.headers["streamer-receipt"]
    assert site.rows("SELECT count(*) FROM pending_messages") == [(0,)]
    site.check()


def test_a_repeat_gets_the_recorded_decision_and_a_contradiction_is_refused(site: Site) -> None:
    endpoint = site.serve()
    first = endpoint.ask(batch("b-1"))
    again = endpoint.ask(batch("b-1"))
    assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
    assert again.headers["streamer-receipt"] == first.headers["streamer-receipt"]
    assert "idempotent-replayed" not in first.headers
    held(endpoint.ask(batch("b-1", prompt="Who?")), 409, "conflicting_content")
    # A second attempt is a batch of its own.
    assert action(endpoint.ask(batch("b-1", prompt="Who?") | {"attempt": 2}))["attempt"] == 2
    assert site.recorded() == {"b-1": first.content}
    assert site.outcomes() == ["decision", "duplicate", "conflict", "decision"]
    # It is no message that could be published again.
    assert site.store.dead_letters.never_replayed("conflicting_content") == []
    with pytest.raises(UsageError, match="came by HTTP"):
        site.store.dead_letters.replay([1], by="ana")
    site.check()


def test_numbers_of_the_callers_own_are_part_of_what_is_decided_and_kept(site: Site) -> None:
    endpoint = site.serve()

    def asked(name: str, signals: Any) -> Any:
        event = batch(name)
        event["responses"][0]["signals"] = signals
        return endpoint.ask(event)

    first = asked("b-1", {"retrieval": 1, "toxicity": 0.01})
    again = asked("b-1", {"toxicity": 0.01, "retrieval": 1.0})
    assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
    held(asked("b-1", {"retrieval": 0.9, "toxicity": 0.01}), 409, "conflicting_content")
    held(asked("b-1", {}), 409, "conflicting_content")
    ((metadata,),) = site.rows("SELECT metadata FROM batches")
    kept = json.loads(metadata) if isinstance(metadata, str) else metadata
    assert kept["streamer.signals"] == {"a": {"retrieval": 1.0, "toxicity": 0.01}}
    held(asked("b-2", {"Retrieval": 1}), 422, "invalid_field")
    assert site.outcomes() == ["decision", "duplicate", "conflict", "conflict"]
    site.check()


def test_a_restart_and_another_instance_have_the_same_decisions(site: Site) -> None:
    first = site.serve()
    answers = {f"b-{number}": first.ask(batch(f"b-{number}")).content for number in range(5)}
    assert first.terminate() == 0
    again, other = site.serve(), site.serve()
    for endpoint in (again, other):
        assert {name: endpoint.ask(batch(name)).content for name in answers} == answers
    new = action(again.ask(batch("b-9"))), action(other.ask(batch("b-10")))
    assert [(one["source"]["partition"], one["source"]["offset"]) for one in new] == [(0, 10), (1, 5)]
    site.check()


def test_the_key_may_come_in_a_header_and_without_one_the_service_makes_it(sqlite_site: Site) -> None:
    endpoint = sqlite_site.serve()
    unnamed = {name: value for name, value in batch("").items() if name != "batch_id"}
    for key in ("k-1", '"k-1"'):
        assert action(endpoint.ask(unnamed, headers={"Idempotency-Key": key}))["batch_id"] == "k-1"
    assert action(endpoint.ask(batch("k-1"), headers={"Idempotency-Key": "k-1"}))["batch_id"] == "k-1"
    assert sqlite_site.outcomes() == ["decision", "duplicate", "duplicate"]
    held(endpoint.ask(batch("other"), headers={"Idempotency-Key": "k-1"}), 422, "invalid_field")
    for key in ("x" * 201, "", b"\xfc"):
        told = held(endpoint.ask(unnamed, headers={"Idempotency-Key": key}), 422, "bad_identifier")
        assert told["detail"].startswith("the header Idempotency-Key ")
    assert (
        action(endpoint.ask(unnamed, headers={"Idempotency-Key": "für 日本".encode()}))["batch_id"]
        == "für 日本"
    )
    assert endpoint.client.get(f"/v1/gates/{GATE}/decisions/für 日本").status_code == 200
    made = [action(endpoint.ask(unnamed))["batch_id"] for _ in range(2)]
    assert len({*made, "k-1"}) == 3


WRONG: list[tuple[bytes, int, str]] = [
    (b"", 400, "empty_value"),
    (b"{", 400, "not_json"),
    (b"\xff{}", 400, "not_utf8"),
    (b"[]", 422, "wrong_schema"),
    (b"{}", 422, "invalid_field"),
    (json.dumps(batch("b") | {"gate": "another"}).encode(), 422, "invalid_field"),
    (json.dumps(batch("b") | {"schema": "streamer.labels.v1"}).encode(), 422, "wrong_schema"),
    (json.dumps(batch("")).encode(), 422, "bad_identifier"),
    (json.dumps(batch("b")).replace('"prompt"', '"prompt": "x", "prompt"').encode(), 422, "duplicate_keys"),
    (b'{"prompt": "x", "prompt": "y", "responses": ["a", "b"]}', 422, "duplicate_keys"),
    (b'{"prompt": "x", "responses": ["a", "b"], "metadata": {"a": 1, "a": 2}}', 422, "duplicate_keys"),
    (b" " * (1024 * 1024 + 1), 413, "too_large"),
]


def test_what_the_decoder_refuses_is_told_and_leaves_nothing(sqlite_site: Site) -> None:
    endpoint = sqlite_site.serve()
    path = f"/v1/gates/{GATE}/decisions"
    for body, status, code in WRONG:
        held(
            endpoint.client.post(path, content=body, headers={"content-type": "application/json"}),
            status,
            code,
        )
    held(endpoint.ask(batch("b"), gate="nobody"), 404, "unknown_gate")
    held(endpoint.client.post(path, content=json.dumps(batch("b"))), 415, "bad_media_type")
    held(endpoint.ask(batch("b"), headers={"host": "evil.example"}), 403, "forbidden_host")
    held(endpoint.client.get(f"{path}/b"), 404, "unknown_batch")
    held(endpoint.client.get("/v1/gates"), 404, "not_found")
    other = endpoint.client.delete(path)
    held(other, 405, "method_not_allowed")
    assert other.headers["allow"] == "POST"
    assert other.json()["title"] == "The path does not take this method"
    for prefer in ("wait=0", "wait=-1", "wait=soon", "wait=nan", "wait=inf"):
        held(endpoint.ask(batch("b"), headers={"prefer": prefer}), 400, "bad_request")
    assert sqlite_site.outcomes() == []
    assert sqlite_site.rows("SELECT count(*) FROM dead_letters") == [(0,)]


@pytest.mark.parametrize("levels", [70, 990, 100_000])
def test_what_is_nested_too_deeply_is_refused_and_dead_lettered(site: Site, levels: int) -> None:
    endpoint = site.serve()
    nested = b"[" * levels + b"]" * levels
    event = json.dumps(batch("b"))[:-1].encode() + b', "metadata": {"m": ' + nested + b"}}"
    label = (
        b'{"batch_id": "b", "response_id": "a", "kind": "human", "labeller": "ana", "severity": 1, "x": '
        + nested
        + b"}"
    )
    for path, body in (("decisions", event), ("labels", label), ("labels", b"[" + label + b"]")):
        answer = endpoint.client.post(
            f"/v1/gates/{GATE}/{path}", content=body, headers={"content-type": "application/json"}
        )
        assert (answer.status_code, answer.json()["code"]) == (422, "too_deeply_nested"), answer.text
    assert site.outcomes() == ["dead_letter"]
    assert site.outcomes("http.labels") == ["dead_letter", "dead_letter"]
    assert len(site.rows("SELECT * FROM dead_letters")) == 3
    assert action(endpoint.ask(batch("b")))["action"] == "ship"
    site.check()


def test_answers_may_be_texts_alone_and_have_their_places_for_ids(sqlite_site: Site) -> None:
    endpoint = sqlite_site.serve()
    asked = {"batch_id": "b-1", "prompt": "Where?", "responses": ["In the depot.", "In the depot."]}
    told = endpoint.ask(asked)
    assert [one["id"] for one in action(told)["responses"]] == ["0", "1"]
    with_ids = [{"id": str(place), "text": text} for place, text in enumerate(asked["responses"])]
    assert endpoint.ask(asked | {"responses": with_ids}).content == told.content
    for other, got in ((1, "int"), (None, "null"), (with_ids[1], "object")):
        answer = endpoint.ask(asked | {"responses": ["In the depot.", other]})
        held(answer, 422, "invalid_field")
        assert f"got `{got}` - at `$.responses[1]`" in answer.json()["detail"]


def test_a_body_of_two_lengths_is_refused(sqlite_site: Site) -> None:
    endpoint = sqlite_site.serve()
    body = json.dumps(batch("b")).encode()
    head = (
        f"POST /v1/gates/{GATE}/decisions HTTP/1.1\r\nHost: {endpoint.base.partition('//')[2]}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nTransfer-Encoding: chunked\r\n\r\n"
    ).encode()
    smuggled = b"GET /openapi.json HTTP/1.1\r\n\r\n"
    url = endpoint.client.base_url
    with socket.create_connection((url.host, url.port)) as connection:
        connection.sendall(head + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n" + smuggled)
        connection.settimeout(60)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert sqlite_site.outcomes() == []


def test_a_gate_made_a_moment_ago_decides(sqlite_site: Site) -> None:
    endpoint = sqlite_site.serve()
    held(endpoint.ask(batch("b-1"), gate="new"), 404, "unknown_gate")
    sqlite_site.gate("new", cut=0.95)
    assert action(endpoint.ask(batch("b-1"), gate="new"))["action"] == "abstain"


def test_a_gate_closed_a_moment_ago_ships_nothing(sqlite_site: Site) -> None:
    endpoint = sqlite_site.serve()
    assert action(endpoint.ask(batch("b-1")))["action"] == "ship"
    sqlite_site.store.policies.close(GATE, by="ana", reason="test")
    shown = endpoint.client.get(f"/v1/gates/{GATE}").json()
    assert (shown["policy"]["version"], shown["policy"]["state"]) == (3, "closed")
    assert action(endpoint.ask(batch("b-2")))["reason"] == "closed"


def label(**changes: Any) -> dict[str, Any]:
    return {
        "batch_id": "b-1", "response_id": "a", "severity": 0.5, "kind": "human", "labeller": "ana",
    } | changes  # fmt: skip


def test_severities_are_recorded_as_those_of_the_topic_are(site: Site) -> None:
    endpoint = site.serve()
    endpoint.ask(batch("b-1"))
    path = f"/v1/gates/{GATE}/labels"
    dated = label(labelled_at="2026-11-20T12:00:00Z")
    fields = label(severity=None, severities={"/total": 1, "/to": 0})
    for body in (label(), [dated, label(response_id="b")], [dated], [], fields):
        answer = endpoint.client.post(path, json=body)
        assert (answer.status_code, answer.json()) == (
            200,
            {"recorded": len(body) if isinstance(body, list) else 1},
        )
    assert site.outcomes("http.labels") == ["label"] * 5
    # The identical one counts once.
    found = site.rows("SELECT count(*), max(severity), max(source), min(source) FROM label_revisions")
    assert found == [(4, 1.0, "http", "http")]
    problem = held(endpoint.client.post(path, json=[label(), label(severity=2)]), 422, "invalid_field")
    assert "label 1" in problem["detail"]
    broken = [label(severity="bad", labeller=7), label(), label(severity=None)]
    del broken[0]["kind"], broken[2]["kind"]
    problem = held(endpoint.client.post(path, json=broken), 422, "invalid_field")
    first, second = problem["detail"].split("; label 2: ")
    for said in (first, second):
        assert "kind is missing (this gate's is 'human')" in said
    assert "label 0: severity: Expected `float | null`, got `str`; kind" in first
    assert first.endswith("; labeller: Expected `str`, got `int`")
    assert "severity is missing" in second
    many = held(endpoint.client.post(path, json=[{}] * 1000), 422, "invalid_field")
    assert many["detail"].endswith("; and 990 more labels")
    held(endpoint.client.post("/v1/gates/nobody/labels", json=label()), 404, "unknown_gate")
    for wrong in (label(gate="another"), label(severity=None), label(severities={"total": 1})):
        held(endpoint.client.post(path, json=wrong), 422, "invalid_field")
    assert site.rows("SELECT count(*) FROM label_revisions") == [(4,)]
    site.check()


def test_who_labels_what_is_not_there_or_does_not_count_is_told(sqlite_site: Site) -> None:
    endpoint = sqlite_site.serve()
    endpoint.ask(batch("b-1"))
    given = [label(), label(batch_id="b-2"), label(response_id="c"), label(attempt=2), label(kind="judge")]
    answer = endpoint.client.post(f"/v1/gates/{GATE}/labels", json=given)
    assert (answer.status_code, answer.json()) == (200, {"recorded": 5, "unrecorded": 3, "other_kind": 1})
    sqlite_site.check()


def test_calls_are_decided_and_what_is_held_names_the_fields_that_differ(sqlite_site: Site) -> None:
    for gate, judged in (("fields", "json"), ("calls", "call")):
        sqlite_site.gate(
            gate, judged=judged, scorer="choice", signals=signal_list([judged]).text, encoder=ENCODER
        )
    said = [{"total": one, "<b>": "Ann"} for one in (7, 8, 9)]
    with Model() as model:
        endpoint = sqlite_site.serve(
            STREAMER_ENCODER_NAME="openai:small", STREAMER_ENCODER_BASE_URL=model.url
        )
        for gate, make, field in (
            ("fields", lambda one: {"text": f"<think>?</think>{json.dumps(one)}"}, "/total"),
            (
                "calls",
                lambda one: {"calls": [{"name": "pay", "arguments": json.dumps(one)}]},
                "/arguments/total",
            ),
        ):
            asked = {
                "batch_id": "differ",
                "prompt": "?",
                "responses": [{"id": str(n), **make(one)} for n, one in enumerate(said)],
            }
            held = endpoint.client.post(f"/v1/gates/{gate}/decisions", json=asked)
            assert (held.json()["action"], held.json()["disputed"]) == ("abstain", {field: 0.0})
            assert endpoint.client.post(f"/v1/gates/{gate}/decisions", json=asked).content == held.content
            on_record = endpoint.client.get(f"/v1/gates/{gate}/decisions/differ").json()
            assert on_record == {name: one for name, one in held.json().items() if name != "disputed"}
            same = asked | {
                "batch_id": "same",
                "responses": [one | {"id": str(n)} for n, one in enumerate(asked["responses"][:1] * 2)],
            }
            shipped = endpoint.client.post(f"/v1/gates/{gate}/decisions", json=same).json()
            wanted = ("ship", False, gate == "calls")
            assert (shipped["action"], "disputed" in shipped, "execute" in shipped) == wanted
    sqlite_site.check()


@pytest.mark.expected_errors(r"^streamer\.cli: ")
@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.com"])
def test_without_keys_it_listens_on_this_machine_alone(
    host: str, sqlite_site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STREAMER_DATABASE_URL", sqlite_site.url)
    monkeypatch.setenv("STREAMER_HTTP_PORT", "0")
    assert main(["serve", "--no-kafka", "--host", host]) == 2
    assert "there is no key yet; make one (`streamer key create`)" in capsys.readouterr().err


def test_what_was_given_out_is_decided_no_second_time(sqlite_site: Site) -> None:
    endpoint = sqlite_site.serve()
    endpoint.ask(batch("b-1"))
    with sqlite_site.store._database.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM decisions")
    held(endpoint.ask(batch("b-1")), 410, "given_out")
    held(endpoint.client.get(f"/v1/gates/{GATE}/decisions/b-1"), 410, "given_out")
    assert sqlite_site.outcomes() == ["decision", "duplicate"]
