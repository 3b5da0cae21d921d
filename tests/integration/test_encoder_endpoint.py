"""An encoder at an endpoint: what is sent, what is believed, and what happens while the endpoint does not answer."""

import gzip
import hashlib
import json
import math
import shutil
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamer import wiring
from streamer.cli import main
from streamer.cli.dev.embedded import EmbeddedStep
from streamer.errors import BadData, EncoderGivenUp, Unavailable, UsageError
from streamer.gates.settings import GateSettings
from streamer.labels.llm.embeddings import Embeddings, EmbeddingsEndpoint
from streamer.labels.llm.record import Price
from streamer.scoring.encoders.encoder import CachedEncoder, PartlyEncoded
from streamer.scoring.encoders.endpoint_encoder import EndpointEncoder
from streamer.settings.settings import load_settings
from tests.faults.site import wait_until
from tests.made import an_event
from tests.services.openai_server import ChatReply, ChatRequest, OpenAIServer, embeddings
from tests.told import Told

KEY = "sk-nobody-may-read-this"
DIMENSION = 8
AWAY = ChatReply(status=503)


def vector(text: str, dimension: int = DIMENSION) -> list[float]:
    """Of any length but 0, and of one direction for one text."""
    numbers = hashlib.shake_256(text.encode()).digest(dimension)
    return [float(one) + 1.0 for one in numbers]


def unit(text: str, dimension: int = DIMENSION) -> np.ndarray:
    row = np.array(vector(text, dimension))
    return row / np.linalg.norm(row)


def answer(request: ChatRequest) -> ChatReply:
    """A model of `DIMENSION` that makes shorter vectors on demand."""
    wanted = request.body.get("dimensions", DIMENSION)
    if wanted > DIMENSION:
        return ChatReply(status=400)
    return embeddings(request, [vector(text, wanted) for text in request.inputs])


class Server(OpenAIServer):
    """Answers `answer`, or what a test puts in its place; remembers the texts that it gave vectors of."""

    def __init__(self) -> None:
        super().__init__(self._reply)
        self.reply: Callable[[ChatRequest], ChatReply] = answer

    def _reply(self, request: ChatRequest) -> ChatReply:
        return self.reply(request)

    @property
    def texts(self) -> list[str]:
        return [text for request in self.requests for text in request.inputs]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


@contextmanager
def encoder(
    server: Server, name: str = "openai:small", *, start_without: bool = False, **settings: Any
) -> Iterator[EndpointEncoder]:
    of_encoder = {one: settings.pop(one) for one in ("wait", "clock", "report_status") if one in settings}
    patient = {"tries": 1, "first_delay": 0.01, "longest_delay": 0.05, "timeout": 240.0, "api_key": KEY}
    requests = Embeddings(EmbeddingsEndpoint(model="small", base_url=server.url, **(patient | settings)))
    try:
        yield EndpointEncoder(requests, name, start_without=start_without, **of_encoder)
    finally:
        requests.close()


# -- what is sent, and what comes back


def test_rows_are_unit_rows_of_the_texts_in_their_order(server: Server):
    texts = [f"answer {number}" for number in range(300)]
    with encoder(server, concurrency=2) as made:
        rows = made.encode(texts)
    assert rows.dtype == np.float32
    assert rows.shape == (300, DIMENSION)
    np.testing.assert_allclose(rows, [unit(text) for text in texts], atol=1e-6)
    assert made.identity.id == f"openai:small@{DIMENSION}"
    assert made.identity.revision == server.url.split("/")[2]
    probe, *asked = server.requests
    assert probe.inputs == ["Paris"]
    assert sorted(len(request.inputs) for request in asked) == [44, 128, 128]
    assert {request.path for request in server.requests} == {"/v1/embeddings"}
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    assert all("dimensions" not in request.body for request in server.requests)
    assert server.most_in_flight <= 2


def test_large_texts_are_parted_by_their_bytes(server: Server):
    texts = ["é" * 40_000 + str(number) for number in range(5)]
    with encoder(server) as made:
        made.encode(texts)
    assert [len(request.inputs) for request in sorted(server.requests, key=lambda one: one.number)[1:]].count(
        2
    ) == 2


def test_tokens_and_cost_are_counted(server: Server):
    with encoder(server, price=Price(Decimal(20), Decimal(0))) as made:
        made.encode(["one", "two"])
        assert made.tokens == 9  # of the first question too, which finds the dimension
        assert made.cost == Decimal("0.00018")
    with encoder(server) as made:
        assert made.cost is None


def test_what_nobody_can_see_is_not_sent(server: Server):
    done: list[int] = []
    with encoder(server) as made:
        rows = made.encode(["", "seen", " \u200b\n"], progress=done.append)
    assert server.texts == ["Paris", "seen"]
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(rows[1], unit("seen"), atol=1e-6)
    assert sum(done) == 3


def test_a_text_is_paid_for_once(server: Server):
    with encoder(server) as made:
        cached = CachedEncoder(made)
        cached.embed([["a", "b", "a"], ["b"]])
        cached.embed([["a"], ["c"]])
    assert server.texts[1:] == ["a", "b", "c"]


def test_what_was_answered_before_a_failure_is_not_paid_for_again(server: Server):
    texts = [f"answer {number}" for number in range(300)]

    def failing_at_the_end(request: ChatRequest) -> ChatReply:
        return AWAY if texts[-1] in request.inputs else answer(request)

    with encoder(server, concurrency=1) as made:
        cached = CachedEncoder(made)
        server.reply = failing_at_the_end
        with pytest.raises(Unavailable):
            cached.embed([texts])
        server.reply = answer
        rows = cached.embed([texts])[0]
    np.testing.assert_allclose(rows, [unit(text) for text in texts], atol=1e-6)
    answered = [text for request in server.requests for text in request.inputs]
    assert answered.count(texts[0]) == 1
    assert answered.count(texts[-1]) == 2


# -- the dimension


def test_another_dimension_is_asked_for(server: Server):
    with encoder(server, "openai:small@4") as made:
        assert made.identity.id == "openai:small@4"
        np.testing.assert_allclose(made.encode(["one"])[0], unit("one", 4), atol=1e-6)
    assert server.requests[-1].body["dimensions"] == 4


@pytest.mark.parametrize("reply", [answer, lambda request: embeddings(request, [vector("x")])])
def test_a_dimension_that_cannot_be_had_is_refused(server: Server, reply: Callable[[ChatRequest], ChatReply]):
    server.reply = reply
    with (
        pytest.raises(UsageError, match=r"makes 8 numbers a text, not 16: name the encoder openai:small@8"),
        encoder(server, "openai:small@16"),
    ):
        pass


@pytest.mark.parametrize("name", ["openai:", "openai:two words", "openai:small@", "openai:" + "x" * 190])
def test_a_name_that_names_nothing_is_refused(server: Server, name: str):
    if name == "openai:small@":
        with encoder(server, name) as made:
            assert made.identity.name == name  # an @ is part of a name unless digits follow
        return
    with pytest.raises(UsageError, match="is no encoder at an endpoint"), encoder(server, name):
        pass


# -- what is not believed


def rows_of(request: ChatRequest) -> list[list[float]]:
    return [vector(text) for text in request.inputs]


def replaced(request: ChatRequest, **changes: Any) -> ChatReply:
    body = json.loads(answer(request).body(""))
    body["data"][0] |= changes
    return ChatReply(raw=json.dumps(body).encode())


@pytest.mark.parametrize(
    ("reply", "error", "says"),
    [
        (lambda r: embeddings(r, rows_of(r)[:-1]), Unavailable, "3 texts were sent, and .* 0, 1 came"),
        (lambda r: embeddings(r, [*rows_of(r), vector("x")]), Unavailable, "0, 1, 2, 3 came"),
        (lambda r: embeddings(r, rows_of(r), indices=[0, 2, 1]), Unavailable, "0, 2, 1 came, in this order"),
        (lambda r: embeddings(r, rows_of(r), indices=[0, 0, 0]), Unavailable, "0, 0, 0 came"),
        (lambda r: embeddings(r, []), Unavailable, "the numbers none came"),
        (lambda r: embeddings(r, [vector("x", 4)] * 3), Unavailable, "4 numbers a text, .* openai:small@8"),
        (
            lambda r: embeddings(r, [[1.0], *rows_of(r)[1:]]),
            Unavailable,
            "no list of embeddings of one length",
        ),
        (lambda r: replaced(r, embedding="AAAA"), Unavailable, "(cannot be read|of one length)"),
        (lambda r: replaced(r, embedding=None), Unavailable, "(cannot be read|of one length)"),
        (lambda r: ChatReply(raw=b"[]"), Unavailable, "server_error"),
        (lambda r: ChatReply(raw=b"<html>"), Unavailable, "server_error"),
        (lambda r: embeddings(r, [[math.nan] * 8, *rows_of(r)[1:]]), BadData, "embedding 0 has numbers"),
        (
            lambda r: embeddings(r, [*rows_of(r)[:2], [math.inf, *[0.0] * 7]]),
            BadData,
            "embedding 2 has numbers",
        ),
        (lambda r: embeddings(r, [[0.0] * 8] * 3), BadData, "only zeros"),
        (lambda r: ChatReply(status=400), BadData, "rejected: status 400"),
    ],
)
def test_a_reply_that_is_not_of_these_texts_is_refused(
    server: Server, reply: Callable[[ChatRequest], ChatReply], error: type[Exception], says: str
):
    with encoder(server) as made:
        server.reply = reply
        with pytest.raises(error, match=says) as refused:
            made.encode(["one", "two", "three"])
    assert not isinstance(refused.value, PartlyEncoded)
    assert "three" not in str(refused.value)


# -- an endpoint that does not answer


def test_it_is_asked_again_so_often_and_no_more(server: Server):
    with encoder(server, tries=3) as made:
        server.reply = lambda request: AWAY if request.number < 3 else answer(request)
        made.encode(["one"])
        assert server.texts == ["Paris", "one", "one", "one"]
        server.reply = lambda request: AWAY
        with pytest.raises(Unavailable, match="does not answer"):
            made.encode(["two"])
    assert server.texts.count("two") == 3


def test_a_reply_that_never_ends_is_not_waited_for(server: Server):
    server.reply = lambda request: ChatReply(raw=b" " * 4000, drip=0.05)
    with (
        encoder(server, f"openai:small@{DIMENSION}", start_without=True, timeout=0.3) as made,
        pytest.raises(Unavailable, match=r"no reply within 0\.3 s"),
    ):
        made.encode(["one"])


def test_a_wrong_key_is_named_at_the_start_and_never_shown(server: Server):
    wrong = json.dumps(
        {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}}
    )
    server.reply = lambda request: ChatReply(status=401, raw=wrong.encode())
    with pytest.raises(UsageError, match="check base_url, model, api_key") as refused, encoder(server):
        pass
    assert KEY not in str(refused.value)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.expected_errors("given_up")
@pytest.mark.parametrize("trouble", [AWAY, ChatReply(status=401)], ids=["away", "key withdrawn"])
def test_it_is_waited_for_then_given_up_and_then_asked_now_and_again(server: Server, trouble: ChatReply):
    clock, reported = Clock(), list[bool]()
    with encoder(server, wait=60.0, clock=clock, report_status=reported.append) as made:
        made.encode(["one"])
        server.reply = lambda request: trouble
        for clock.now in (100.0, 130.0, 159.9):
            with pytest.raises(Unavailable):
                made.encode(["two"])
        assert reported == [True, True, False, False, False]
        asked = len(server.requests)
        clock.now = 160.0
        with pytest.raises(EncoderGivenUp):
            made.encode(["two"])
        assert len(server.requests) == asked + 1
        for clock.now in (161.0, 165.0, 169.9):
            with pytest.raises(EncoderGivenUp):
                made.encode(["two"])
        assert len(server.requests) == asked + 1
        server.reply = answer
        clock.now = 170.0
        np.testing.assert_allclose(made.encode(["two"])[0], unit("two"), atol=1e-6)
        assert reported[-1] is True
        server.reply = lambda request: trouble
        clock.now = 175.0
        with pytest.raises(Unavailable):  # from the beginning
            made.encode(["three"])


def test_it_need_not_answer_at_the_start_where_its_dimension_is_known(server: Server):
    server.reply = lambda request: AWAY
    for name, without in (("openai:small", True), ("openai:small@8", False)):
        with pytest.raises(Unavailable), encoder(server, name, start_without=without):
            pass
    with encoder(server, "openai:small@4", start_without=True) as made:
        assert made.identity.id == "openai:small@4"
        with pytest.raises(Unavailable):
            made.encode(["one"])
        server.reply = answer
        np.testing.assert_allclose(made.encode(["one"])[0], unit("one", 4), atol=1e-6)


def test_one_that_turns_out_to_make_other_vectors_is_not_believed_later_either(server: Server):
    server.reply = lambda request: AWAY
    with encoder(server, "openai:small@16", start_without=True) as made:
        server.reply = answer
        with pytest.raises(Unavailable, match="makes 8 numbers a text, not 16"):
            made.encode(["one"])


# -- the commands


@pytest.fixture
def configured(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite_file: Path
) -> Path:
    """A folder with a record, and the endpoint and its key in the settings."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".streamer").mkdir()
    shutil.copy(migrated_sqlite_file, ".streamer/audit.db")
    (tmp_path / "key").write_text(KEY + "\n")
    for name, value in {
        "NAME": "openai:small",
        "BASE_URL": server.url,
        "API_KEY_FILE": str(tmp_path / "key"),
        "PRICE_PER_MILLION": "20",
        "TRIES": "1",
    }.items():
        monkeypatch.setenv(f"STREAMER_ENCODER_{name}", value)
    return tmp_path


def test_a_gate_is_created_for_it(
    server: Server, configured: Path, monkeypatch: pytest.MonkeyPatch, told: Told
):
    assert main(["gate", "create", "one"]) == 0
    assert main(["gate", "create", "two", "--encoder", "openai:small@4", "--embeddings", "accept"]) == 0
    assert [request.inputs for request in server.requests] == [["Paris"]]
    assert main(["gate", "create", "three", "--encoder", "openai:org/other"]) == 0
    monkeypatch.delenv("STREAMER_ENCODER_BASE_URL")
    there = told("gate", "create", "four", "--encoder", "openai:small", status=2).err
    assert "STREAMER_ENCODER_BASE_URL" in there
    with wiring.open_store(load_settings()) as store:
        found = {name: store.gates.get(name).settings for name in ("one", "two", "three")}
    assert found["one"].encoder == "openai:small@8"
    assert (found["two"].encoder, found["two"].dimension) == ("openai:small@4", 4)
    assert found["three"].encoder == "openai:org/other@8"


def test_the_doctor_asks_it(server: Server, configured: Path, capsys: pytest.CaptureFixture[str]):
    main(["doctor", "--json"])
    (told,) = [f for f in json.loads(capsys.readouterr().out)["findings"] if f["subject"] == "encoder"]
    assert told["level"] == "ok"
    assert "openai:small@8" in told["text"]
    server.reply = lambda request: AWAY
    main(["doctor", "--json"])
    (told, *_) = [f for f in json.loads(capsys.readouterr().out)["findings"] if f["subject"] == "encoder"]
    assert told["level"] == "fail"
    assert "does not answer" in told["text"]


def test_the_key_is_shown_by_no_command(configured: Path, capfd: pytest.CaptureFixture[str]):
    for words in (["config", "show"], ["config", "show", "--json"], ["doctor"], ["gate", "create", "bot"]):
        main(words)
    shown = capfd.readouterr()
    assert KEY not in shown.out + shown.err
    assert KEY.encode() not in (configured / ".streamer" / "audit.db").read_bytes()


def test_files_are_evaluated_with_it_and_a_second_run_sends_nothing_again(
    server: Server, configured: Path, told: Told
):
    with gzip.open("clouds.jsonl.gz", "wt") as file:
        for question in range(12):
            answers = [{"text": f"It is {(n * question) % 3}.", "label": n % 2} for n in range(6)]
            cloud = {"question_id": f"q{question}", "question": "How much is it?", "references": ["0"]}
            file.write(json.dumps({**cloud, "responses": answers}) + "\n")
    words = ["evaluate", "clouds.jsonl.gz", "--splits", "2", "--processes", "1"]
    assert "12 tokens of texts were sent to 127.0.0.1" in told(*words).err
    assert sorted(server.texts) == ["It is 0.", "It is 1.", "It is 2.", "Paris"]
    shutil.rmtree("evaluation")
    assert main(words) == 0
    assert sorted(server.texts) == ["It is 0.", "It is 1.", "It is 2.", "Paris", "Paris"]


# -- a worker


def ready(step: EmbeddedStep) -> list[str]:
    try:
        with urllib.request.urlopen(f"{step.metrics_url}/readyz", timeout=240) as reply:
            json.load(reply)
            return []
    except urllib.error.HTTPError as unready:
        return list(json.load(unready)["reasons"])


def metric(step: EmbeddedStep, name: str) -> float:
    with urllib.request.urlopen(f"{step.metrics_url}/metrics", timeout=240) as reply:
        lines = reply.read().decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def test_a_worker_waits_for_it_then_holds_and_goes_on_when_it_answers(
    server: Server, configured: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("STREAMER_ENCODER_WAIT_SECONDS", "3")
    settings = load_settings(http={"port": 0})
    with wiring.open_store(settings) as store:
        store.gates.create("bot", GateSettings(encoder="openai:small@8"), by="ana", reason="test")
    step = EmbeddedStep(
        settings,
        database_url=f"sqlite:///{configured / '.streamer' / 'audit.db'}",
        directory=configured / "dev",
    )
    with step, wiring.open_store(settings) as store:
        reached = settings.model_copy(
            update={
                "kafka": settings.kafka.model_copy(
                    update={"bootstrap_servers": step.broker.bootstrap, "log_id": step.broker.log_id}
                )
            }
        )

        def decided(batch: str) -> tuple[str, str, str] | None:
            query = "SELECT reason, embedding_source, encoder FROM v_decisions WHERE batch_id = ?"
            with closing(sqlite3.connect(".streamer/audit.db")) as connection:
                found: tuple[str, str, str] | None = connection.execute(query, (batch,)).fetchone()
            return found

        def publish(batch: str, texts: Sequence[str]) -> None:
            event = json.dumps(an_event("bot", batch, texts)).encode()
            with wiring.publisher(reached) as sending:
                sending.send(wiring.topics(reached).responses, key=batch.encode(), value=event)

        publish("first", ["Paris", "Paris!", "Rome"])
        wait_until(lambda: decided("first") is not None, "it is so")
        # A new gate holds everything, and scores it: what it ships is not what this is about.
        assert decided("first") == ("no_threshold", "encoder", "openai:small@8")
        assert metric(step, 'streamer_part_reachable{part="encoder"}') == 1.0
        assert metric(step, "streamer_encoder_tokens_total") > 0
        assert metric(step, "streamer_encoder_cost_total") > 0
        assert ready(step) == []

        server.reply = lambda request: AWAY
        began = time.monotonic()
        publish("second", ["Lyon", "Nice"])
        wait_until(lambda: metric(step, 'streamer_part_reachable{part="encoder"}') == 0.0, "it is so")
        assert any("the encoder does not answer" in reason for reason in ready(step))
        wait_until(lambda: decided("second") is not None, "it is so")
        assert time.monotonic() - began >= 3, "it was waited for"
        assert decided("second") == ("scorer_failed", "none", "none")
        assert any("the encoder does not answer" in reason for reason in ready(step))
        publish("third", ["Paris", "Rome"])  # remembered
        wait_until(lambda: decided("third") is not None, "it is so")
        assert decided("third") == ("no_threshold", "encoder", "openai:small@8")

        server.reply = answer

        def answered() -> bool:
            publish(f"after {time.monotonic()}", [f"Lyon {time.monotonic()}", "Nice"])
            time.sleep(0.5)
            return not ready(step)

        wait_until(answered, "it answers")
        (identity,) = store.encoders.get("openai:small@8")
        assert (identity.id, identity.dimension) == ("openai:small@8", 8)
    log = (configured / "dev" / "worker.log").read_text()
    assert "encoder.endpoint_given_up" in log
    assert "encoder.endpoint_back" in log
    for file in [*(configured / "dev").iterdir(), *(configured / ".streamer").iterdir()]:
        if file.is_file():
            assert KEY.encode() not in file.read_bytes()
