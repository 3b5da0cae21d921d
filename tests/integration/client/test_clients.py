"""The clients against a real server on loopback: each of them, the same table."""

import asyncio
import itertools
import json
import os
import re
import shutil
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from streamer.events.labels import decode_label
from streamer.events.responses import decode_responses
from streamer.serving.openapi import document
from streamer_client import AsyncClient, Client, Trouble
from streamer_client.decisions import TroubleReason
from tests import programs
from tests.at_once import at_once
from tests.faults.site import wait_until
from tests.integration.client.conftest import Caller, _Node
from tests.integration.client.misbehaviours import MISBEHAVIOURS, STALLED_SECONDS
from tests.services.gate_server import GateServer, Request, action_event, problem, response
from tests.services.node import CLIENT, node
from tests.services.ports import free_port

ANSWERS = ["It left our depot.", "It left the depot today.", "Ask the carrier."]
SHORT, LONG = 0.5, 240.0


def decides(_server: GateServer, connection: socket.socket, request: Request, **changes: Any) -> bool:
    connection.sendall(response(action_event(request.body, **changes)))
    return True


def script(*replies: Callable[[Request], bytes]) -> Callable[..., bool]:
    """One reply after the other, the last for ever."""
    places = itertools.count()

    def act(_server: GateServer, connection: socket.socket, request: Request) -> bool:
        connection.sendall(replies[min(next(places), len(replies) - 1)](request))
        return True

    return act


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_whatever_the_service_does_is_held_within_the_deadline(caller: Caller, name: str):
    act, reason, tried_again = MISBEHAVIOURS[name]
    deadline = LONG if tried_again is False and reason != "timed_out" else SHORT
    with GateServer(act) as server:
        held = caller.decide(server.url, ANSWERS, deadline=deadline, batch_id="b")
        while not server.requests and deadline < LONG:  # a busy machine: nobody was asked yet
            deadline = min(2 * deadline, LONG)
            held = caller.decide(server.url, ANSWERS, deadline=deadline, batch_id="b")
        if asked_twice := tried_again is False and reason != "timed_out":
            with pytest.raises(Trouble, match=f"^{reason}: "):
                caller.decide(server.url, ANSWERS, deadline=deadline, batch_id="b", raise_on_trouble=True)
    reasons = {reason} if tried_again is False else {reason, "timed_out"}
    assert held["reason"] in reasons, held
    assert (held["action"], held["ships"], held["text"], held["index"]) == ("hold", False, None, None)
    assert (held["gate"], held["batch_id"], held["attempt"]) == ("support-bot", "b", 1)
    assert held["enforced"]
    assert held["event"] is None
    assert held["detail"]
    assert not any(text in held["detail"] for text in ANSWERS)
    assert {request.target for request in server.requests} == {"/v1/gates/support-bot/decisions"}
    if tried_again is False:
        assert len(server.requests) == 1 + asked_twice
    if isinstance(code := re.match(r"\d+$", name), re.Match) and reason == "refused":
        assert f"status {code[0]}" in held["detail"]
        assert ": it is " in held["detail"]


@pytest.mark.parametrize("name", [name for name, one in MISBEHAVIOURS.items() if one.tried_again])
def test_what_passes_is_asked_again(caller: Caller, name: str):
    def act(server: GateServer, connection: socket.socket, request: Request) -> bool | None:
        misbehaves = len(server.requests) <= 2
        return (MISBEHAVIOURS[name].act if misbehaves else decides)(server, connection, request)

    with GateServer(act) as server:
        assert caller.decide(server.url, ANSWERS, deadline=LONG)["text"] == ANSWERS[1]
    assert len(server.requests) == 3
    assert len({request.body for request in server.requests}) == 1


def test_the_server_of_these_tests_lets_go_of_a_request_that_breaks_off():
    """A client whose deadline passes may have sent the half of it."""
    before = set(threading.enumerate())
    head = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n"
    with GateServer(lambda *_: None) as server:
        host, port = server.url.removeprefix("http://").split(":")
        for sent in (head[:9], head + b"{", head + b"{}"):
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(sent)
        wait_until(lambda: len(server.requests) == 1, "the whole one has come, after the others")
        wait_until(lambda: len(set(threading.enumerate()) - before) == 1, "its threads end")


def test_a_port_that_nobody_listens_on(caller: Caller):
    held = caller.decide(f"http://127.0.0.1:{free_port()}", ANSWERS, deadline=SHORT)
    assert held["reason"] in ("connection_failed", "timed_out")
    assert held["action"] == "hold"


def test_a_port_that_takes_no_connection(caller: Caller):
    """The queue of the listening socket is full: connecting stalls."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        others = [socket.socket() for _ in range(4)]
        for other in others:
            other.setblocking(False)
            other.connect_ex(listening.getsockname())
        held = caller.decide(f"http://127.0.0.1:{listening.getsockname()[1]}", ANSWERS, deadline=SHORT)
        for other in others:
            other.close()
    assert (held["action"], held["reason"]) == ("hold", "timed_out"), "the system tries still"


def test_a_ship_is_read_whole(caller: Caller):
    with GateServer(decides) as server:
        found = caller.decide(
            server.url, ANSWERS, key="streamer_k", deadline=LONG, desk=0.1, batch_id="b", attempt=2
        )
    (request,) = server.requests
    event = decode_responses(request.body)
    assert event.key == ("support-bot", "b", 2)
    assert [one.text for one in event.responses] == ANSWERS
    assert request.headers["authorization"] == "Bearer streamer_k"
    assert request.headers["idempotency-key"] == "b"
    wait, desk = map(
        float, re.fullmatch(r"wait=(\d+\.\d{3}), desk=(\d\.\d{3})", request.headers["prefer"]).groups()
    )
    assert 0.5 * LONG < wait <= 0.9 * LONG
    assert 0 < desk <= 0.1, "what the decision does not take is no time for the desk"
    assert found.pop("event")["policy"]["alpha"] == 0.05
    assert found == {
        "gate": "support-bot", "batch_id": "b", "attempt": 2, "action": "ship", "ships": True, "reason": "scored",
        "enforced": True, "text": ANSWERS[1], "response_id": "1", "index": 1, "score": 0.9, "threshold": 0.5,
        "policy_version": 7, "detail": "", "receipt": None, "desk_until": None, "desk": None,
    }  # fmt: skip


def test_a_hold_shadow_mode_and_the_other_units(caller: Caller):
    def all_ship(request: Request) -> bytes:
        event = json.loads(action_event(request.body, unit="batch", selected=None))
        for one in event["responses"]:
            one["action"] = "ship"
        return response(json.dumps(event).encode())

    act = script(
        lambda request: response(action_event(request.body, ship=False, reason="closed")),
        lambda request: response(action_event(request.body, enforced=False)),
        lambda request: response(action_event(request.body, unit="response", action="mixed", selected=None)),
        all_ship,
    )
    with GateServer(act) as server:
        held, shadow, mixed, batch = (caller.decide(server.url, ANSWERS, deadline=LONG) for _ in range(4))
    wanted = ("escalate", "closed", False, None)
    assert (held["action"], held["reason"], held["ships"], held["text"]) == wanted
    assert (held["score"], held["enforced"], held["policy_version"]) == (0.9, True, 7)
    assert (shadow["action"], shadow["ships"], shadow["enforced"]) == ("ship", False, False)
    assert (shadow["text"], shadow["response_id"]) == (None, "1")
    assert (mixed["action"], mixed["ships"], mixed["text"]) == ("mixed", False, None)
    assert (batch["action"], batch["ships"], batch["text"], batch["index"]) == ("ship", True, None, None)
    names = [request.event["batch_id"] for request in server.requests]
    assert len({*names, held["batch_id"]}) == 4  # one drawn for each


def test_of_claims_what_ships_of_the_first_answer_may_be_shown(caller: Caller):
    def claims(request: Request, action: str = "mixed", answer: str = "0") -> bytes:
        event = json.loads(action_event(request.body, unit="claim", action=action, selected=None))
        actions = ("ship", "abstain" if action != "ship" else "ship")
        event["responses"] = [{"id": f"c{i}", "score": 0.9, "action": one} for i, one in enumerate(actions)]
        return response(json.dumps(event | {"answer": answer, "parts": [[0, 2]], "text": "It"}).encode())

    act = script(
        claims, lambda request: claims(request, "ship"), lambda request: claims(request, "abstain"),
        lambda request: claims(request, answer="another"),
    )  # fmt: skip
    with GateServer(act) as server:
        mixed, whole, held, other = (caller.decide(server.url, ANSWERS, deadline=LONG) for _ in range(4))
    assert (mixed["action"], mixed["ships"], mixed["text"], mixed["index"]) == ("mixed", False, "It", None)
    assert "text" not in mixed["event"]
    assert (whole["ships"], whole["text"], whole["response_id"]) == (True, "It", None)
    assert (held["action"], held["text"], held["response_id"]) == ("abstain", None, None)
    assert (other["reason"], other["text"]) == ("mismatched", None)


def members(schema: str) -> set[str]:
    """What the service takes."""
    return set(json.loads(document())["components"]["schemas"][schema]["properties"])


def test_every_field_of_the_event_is_sent(caller: Caller):
    answers = {"a": "", "ünï": "two"}
    call = {"name": "look", "arguments": {"parcel": 4}}
    fields = {
        "batch_id": "order 47/11 ü", "attempt": 3, "embeddings": [[1.0, 0.5], [0.25, -2.0]],
        "embedding_encoder": "made-up", "scores": [0.5, 0.75], "logprobs": [-0.5, None],
        "token_logprobs": [None, [-0.25, -0.75]], "calls": [[call], None],
        "models": ["small", None], "signals": [{"retrieval": 0.82, "toxicity": None}, None],
        "claims": [None, [{"id": "c", "text": "two", "span": [0, 3]}]], "references": ["r"],
        "metadata": {"user": "x", "n": 1}, "created_at": datetime(2026, 11, 20, 12, tzinfo=UTC),
    }  # fmt: skip
    with GateServer(decides) as server:
        found = caller.decide(server.url, answers, deadline=LONG, **fields)
    (request,) = server.requests
    assert request.event.keys() == members("ResponsesV1")
    assert set().union(*request.event["responses"]) == members("ResponseV1")
    event = decode_responses(request.body)
    assert (event.batch_id, event.attempt, event.embedding_encoder) == ("order 47/11 ü", 3, "made-up")
    assert [
        (one.id, one.text, one.embedding, one.score, one.logprob, one.model) for one in event.responses
    ] == [
        ("a", '{"arguments":{"parcel":4},"name":"look"}', (1.0, 0.5), 0.5, -0.5, "small"),
        ("ünï", "two", (0.25, -2.0), 0.75, -0.5, None),
    ]
    figures = {"low_logprob": -0.75, "least_logprob": -0.75}
    assert [one.signals for one in event.responses] == [{"retrieval": 0.82}, figures]
    assert (event.references, event.metadata) == (("r",), {"user": "x", "n": 1})
    assert event.created_at == fields["created_at"]
    assert "idempotency-key" not in request.headers  # no header can hold it
    assert (found["response_id"], found["index"], found["text"]) == ("ünï", 1, "two")


def test_tries_repeat_the_batch_and_wait_as_long_as_they_are_asked_to(caller: Caller):
    def soon(request: Request) -> bytes:
        return problem(429, "queue_full", Retry_After="0.3")

    act = script(
        lambda request: problem(503, "database_unavailable"),
        soon,
        lambda request: problem(
            429, "queue_full", Retry_After=format_datetime(datetime.now(UTC), usegmt=True)
        ),
        lambda request: response(action_event(request.body)),
    )
    with GateServer(act) as server:
        found = caller.decide(server.url, ANSWERS, deadline=LONG)
    assert found["text"] == ANSWERS[1]
    assert len({request.body for request in server.requests}) == 1
    assert {request.headers["idempotency-key"] for request in server.requests} == {found["batch_id"]}
    at = [request.at for request in server.requests]
    assert at[2] - at[1] >= 0.3
    waits = [float(request.headers["prefer"].removeprefix("wait=")) for request in server.requests]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] - waits[-1] > 0.25


def test_a_connection_that_was_closed_between_two_calls_is_no_trouble(caller: Caller):
    def once(_server: GateServer, connection: socket.socket, request: Request) -> bool:
        return not decides(_server, connection, request)

    with GateServer(once) as server:
        actions = [caller.decide(server.url, ANSWERS, deadline=LONG)["action"] for _ in range(3)]
    assert actions == ["ship"] * 3


@pytest.mark.parametrize("name", ["plain-1", '"quoted"', "ünï", "two words"])
def test_the_batch_id_is_a_header_where_every_reader_reads_the_same(caller: Caller, name: str):
    with GateServer(decides) as server:
        assert caller.decide(server.url, ANSWERS, deadline=LONG, batch_id=name)["batch_id"] == name
    (request,) = server.requests
    assert request.event["batch_id"] == name
    assert request.headers.get("idempotency-key") == (name if name == "plain-1" else None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"desk": "x"},
        {"deadline": 0.0},
        {"deadline": -1.0},
        {"embeddings": [[1.0, 2.0]]},
        {"scores": [0.5, 0.5, 0.5, 0.5]},
        {"signals": [{"retrieval": 0.5}]},
    ],
    ids=str,
)
def test_arguments_that_make_no_event_are_held(caller: Caller, wrong: dict[str, Any]):
    with GateServer(decides) as server:
        held = caller.decide(server.url, ANSWERS, **({"deadline": LONG} | wrong))
    assert (held["action"], held["reason"]) == ("hold", "invalid_request")
    assert server.requests == []


@pytest.mark.parametrize("args", [["decide", "?", ANSWERS], ["decision", "b"], ["desk", "b"]], ids=str)
def test_options_of_another_type_are_held(caller: Caller, args: list[Any]):
    """JavaScript passes null in place of all of them."""
    wrong = {"no_options": True} if isinstance(caller, _Node) else {"deadline": "soon"}
    held = caller.call("http://127.0.0.1:9", args[0], "support-bot", *args[1:], **wrong)
    assert (held["action"], held["reason"]) == ("hold", "invalid_request")


def test_what_is_on_record_the_gate_and_labels(caller: Caller):
    decided = json.dumps(
        {"schema": "streamer.responses.v1", "gate": "support-bot", "batch_id": "a/b", "prompt": "?",
         "responses": [{"id": "x", "text": "1"}, {"id": "y", "text": "2"}]}
    ).encode()  # fmt: skip

    def act(_server: GateServer, connection: socket.socket, request: Request) -> bool:
        if request.target.endswith("/labels"):
            connection.sendall(response(b"", status=202))
        elif "/decisions/" in request.target:
            connection.sendall(response(action_event(decided, attempt=1 + ("attempt=2" in request.target))))
        else:
            connection.sendall(response(b'{"gate": "support-bot", "policy": {"version": 7}}'))
        return True

    with GateServer(act) as server:
        found = caller.call(server.url, "decision", "support-bot", "a/b", deadline=LONG)
        second = caller.call(server.url, "decision", "support-bot", "a/b", attempt=2, deadline=LONG)
        other = caller.call(server.url, "decision", "support-bot", "c", deadline=LONG)
        gate = caller.call(server.url, "gate", "support-bot", deadline=LONG)
        at = datetime(2026, 11, 20, 12, tzinfo=UTC)
        labelled: dict[str, Any] = {"labeller": "ana", "labelled_at": at, "kind": "judge", "deadline": LONG}
        labelled |= {"attempt": 2, "signature": "c2ln", "key_id": "k", "severities": {"/total": 0.5}}
        caller.call(server.url, "label", "support-bot", "a/b", "y", 0.5, **labelled)
        caller.call(server.url, "label", "support-bot", "a/b", "y", 0.5, labeller="ben", deadline=LONG)
    assert (found["action"], found["response_id"], found["index"], found["text"]) == ("ship", "y", 1, None)
    assert second["attempt"] == 2
    assert (other["action"], other["reason"]) == ("hold", "mismatched")
    assert gate == {"gate": "support-bot", "policy": {"version": 7}}
    assert [request.target for request in server.requests[:4]] == [
        "/v1/gates/support-bot/decisions/a%2Fb", "/v1/gates/support-bot/decisions/a%2Fb?attempt=2",
        "/v1/gates/support-bot/decisions/c", "/v1/gates/support-bot",
    ]  # fmt: skip
    assert server.requests[4].event.keys() == members("LabelsV1")
    one, two = (decode_label(request.body) for request in server.requests[4:])
    assert (one.key, one.response_id, one.severity, one.kind, one.labeller, one.labelled_at) == (
        ("support-bot", "a/b", 2), "y", 0.5, "judge", "ana", at,
    )  # fmt: skip
    assert two.kind == "human"
    assert abs(datetime.now(UTC) - two.labelled_at) < timedelta(hours=1)


def test_what_is_no_decision_raises(caller: Caller):
    with GateServer(script(lambda request: problem(404, "unknown_gate"))) as server:
        with pytest.raises(Trouble, match="refused: status 404 unknown_gate: it is unknown_gate"):
            caller.call(server.url, "gate", "no-bot", deadline=LONG)
        with pytest.raises(Trouble, match="refused"):
            caller.call(server.url, "label", "no-bot", "b", "0", 1.0, labeller="ana", deadline=LONG)
        held = caller.call(server.url, "decision", "no-bot", "b", deadline=LONG)
    assert (held["action"], held["reason"]) == ("hold", "refused")


# -- Python alone ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    "url", ["gates.example", "ftp://gates.example", "http://", "http://gates.example", "http://10.0.0.1:8080"]
)
def test_addresses_that_are_refused(kind: type[Client | AsyncClient], url: str):
    with pytest.raises(ValueError, match="http"):
        kind(url, key="secret")


@pytest.mark.parametrize("url", ["https://gates.example", "http://localhost:1", "http://[::1]:1"])
def test_addresses_that_are_taken(url: str):
    Client(url).close()
    Client("http://gates.example", insecure=True).close()


@pytest.mark.parametrize(
    "answers",
    ["one text", ["a", "\ud800"], ["a", object()], None],
    ids=["one text", "half a character", "no text", "none"],
)
def test_answers_that_make_no_event_are_held(answers: Any):
    with GateServer(decides) as server, Client(server.url) as client:
        held = client.decide("support-bot", "?", answers, deadline=LONG)
    assert (held.action, held.text) == ("hold", None)
    assert held.reason in ("invalid_request", "failed")
    assert server.requests == []


def test_embeddings_may_be_arrays_or_bytes():
    rows = np.array([[1.0, 0.5], [0.25, -2.0], [3.0, 4.0]])
    with GateServer(decides) as server, Client(server.url, deadline=LONG) as client:
        client.decide("support-bot", "?", ANSWERS, embeddings=list(rows))
        client.decide("support-bot", "?", ANSWERS, embeddings=[row.astype("<f4").tobytes() for row in rows])
    numbers, packed = (
        [one["embedding"] for one in request.event["responses"]] for request in server.requests
    )
    assert numbers == rows.tolist()
    assert packed[0] == "AACAPwAAAD8="


def test_signals_may_be_numbers_of_numpy_and_are_of_each_answer():
    rows = [{"retrieval": np.float32(0.5)}, {"retrieval": None}, None]
    with GateServer(decides) as server, Client(server.url, deadline=LONG) as client:
        client.decide("support-bot", "?", ANSWERS, signals=rows)
        held = client.decide("support-bot", "?", ANSWERS, signals={"retrieval": [0.5, 0.5, 0.5]})  # type: ignore[arg-type]
    (request,) = server.requests
    assert [one.get("signals") for one in request.event["responses"]] == [{"retrieval": 0.5}, {}, None]
    wanted = ("invalid_request", "of signals there must be one for each answer, not one mapping")
    assert (held.reason, held.detail) == wanted


def test_texts_may_be_of_a_subclass_of_str():
    """As those of LangChain's messages are."""

    class Text(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "shown otherwise"

    with GateServer(decides) as server, Client(server.url, deadline=LONG) as client:
        shipped = client.decide("support-bot", Text("?"), [Text(one) for one in ANSWERS])
    assert shipped.ships
    assert shipped.text in ANSWERS
    (request,) = server.requests
    assert request.event["prompt"] == "?"
    assert [one["text"] for one in request.event["responses"]] == ANSWERS


def test_one_client_serves_many_threads():
    with GateServer(decides) as server, Client(server.url, deadline=LONG) as client:

        def ask(number: int) -> tuple[str, str]:
            decision = client.decide("support-bot", "?", ANSWERS, batch_id=f"b{number}")
            return decision.batch_id, decision.action

        found = at_once(ask, *range(20))
    assert found == [(f"b{number}", "ship") for number in range(20)]


def test_a_client_goes_on_after_a_fork_on_both_sides():
    with GateServer(decides) as server, Client(server.url, deadline=LONG) as client:
        assert client.decide("support-bot", "?", ANSWERS).ships
        child = os.fork()
        if child == 0:  # nothing of pytest may run here
            try:
                os._exit(0 if client.decide("support-bot", "?", ANSWERS).ships else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.decide("support-bot", "?", ANSWERS).ships


def test_what_begins_while_calls_are_cancelled_is_ended_too():
    """A connection that tries the next address does so."""
    begun: list[asyncio.Task[None]] = []

    async def call(_: AsyncClient) -> None:
        begun.append(asyncio.create_task(asyncio.sleep(600)))
        try:
            await asyncio.sleep(600)
        finally:
            begun.append(asyncio.create_task(asyncio.sleep(600)))

    client = Client("http://127.0.0.1:9")
    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(client._thread.run, call)
        wait_until(lambda: len(begun) == 1, "it is called")
        client.close()
        assert called.exception() is not None
    assert [one.cancelled() for one in begun] == [True, True]


def test_a_closed_client_holds_and_closing_ends_what_is_under_way():
    arrived = threading.Event()

    def act(server: GateServer, _connection: socket.socket, _request: Request) -> None:
        arrived.set()
        server.stopped.wait(STALLED_SECONDS)

    with GateServer(act) as server:
        client = Client(server.url, deadline=STALLED_SECONDS)
        found: list[str] = []
        thread = threading.Thread(
            target=lambda: found.append(client.decide("support-bot", "?", ANSWERS).reason)
        )
        thread.start()
        arrived.wait(LONG)
        client.close()
        thread.join(LONG)
        assert found == ["failed"]
        assert client.decide("support-bot", "?", ANSWERS).reason == "failed"
        with pytest.raises(Trouble, match="closed"):
            client.gate("support-bot")
        client.close()


async def test_a_caller_that_is_cancelled_is_cancelled():
    arrived = threading.Event()

    def act(server: GateServer, _connection: socket.socket, _request: Request) -> None:
        arrived.set()
        server.stopped.wait(STALLED_SECONDS)

    with GateServer(act) as server:
        async with AsyncClient(server.url, deadline=STALLED_SECONDS) as client:
            task = asyncio.ensure_future(client.decide("support-bot", "?", ANSWERS))
            await asyncio.to_thread(arrived.wait, LONG)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


# -- the page ----------------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[3] / "docs" / "clients.md").read_text()


def _served(_server: GateServer, connection: socket.socket, request: Request) -> bool:
    """What `streamer serve` would say, of decisions that it remembers."""
    name = request.target.rsplit("/", 1)[-1]
    if request.target.endswith("/decisions"):
        _served.bodies[request.event["batch_id"]] = request.body  # type: ignore[attr-defined]
        connection.sendall(response(action_event(request.body)))
    elif name in _served.bodies:  # type: ignore[attr-defined]
        connection.sendall(response(action_event(_served.bodies[name])))  # type: ignore[attr-defined]
    elif name == "labels":
        connection.sendall(response(b"", status=202))
    else:
        connection.sendall(response(b'{"gate": "support-bot"}'))
    return True


_served.bodies = {}  # type: ignore[attr-defined]


def test_the_python_of_the_page_runs(capsys: pytest.CaptureFixture[str]):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    with GateServer(_served) as server:
        for block in blocks:
            exec(
                compile(block.replace("http://127.0.0.1:8080", server.url), "docs/clients.md", "exec"), names
            )

        async def reply() -> str:
            async with AsyncClient(server.url, deadline=LONG) as client:
                return str(await names["reply"](client, "r-1", "Where?", ANSWERS))

        assert asyncio.run(reply()) == ANSWERS[1]
    assert capsys.readouterr().out.splitlines() == [
        "It left the depot today.", "ship scored 0.9 0.5 7", "support-bot", "ship", "At the shop.",
    ]  # fmt: skip


def test_the_typescript_of_the_page_runs(typescript: Callable[[Path], Path], tmp_path: Path):
    (block,) = re.findall(r"^```ts\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    shutil.copy(CLIENT / "streamer.ts", tmp_path)
    block = block.replace('"conformal-streamer-client"', '"./streamer.ts"')
    with GateServer(_served) as server:
        # console is not in the library of a bare TypeScript
        (tmp_path / "page.ts").write_text(block.replace("http://127.0.0.1:8080", server.url))
        program = typescript(tmp_path / "page.ts")
        done = programs.run(*node(), program, status=None)
    assert done.stdout.splitlines() == ["It left the depot today.", "ship scored 0.9 7"], done.stderr


def test_every_reason_is_on_the_page():
    _, *table = re.findall(
        r"^\| `(\w+)` \|", PAGE.partition("## What holds")[2].partition("\n## ")[0], re.MULTILINE
    )
    assert tuple(table) == get_args(TroubleReason)
    source = (Path(__file__).parents[3] / "clients" / "typescript" / "streamer.ts").read_text()
    assert re.findall(r'^  \| "(\w+)"', source, re.MULTILINE) == table


def test_a_slow_name_does_not_outlast_the_deadline(monkeypatch: pytest.MonkeyPatch):
    """The resolver blocks for as long as it likes, and no time-out of a socket bounds it."""
    stopped, resolved = threading.Event(), list[bool]()
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *_, **__: resolved.append(stopped.wait(STALLED_SECONDS))
    )
    with Client("http://gates.example", insecure=True) as client:
        held = client.decide("support-bot", "?", ANSWERS, deadline=SHORT)
        assert resolved == [], "it resolves still"
        stopped.set()
    assert (held.action, held.reason) == ("hold", "timed_out")
