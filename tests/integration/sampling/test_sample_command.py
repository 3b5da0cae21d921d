"""`streamer sample` against an endpoint on loopback that behaves as it is told."""

import importlib.util
import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streamer.cli import main
from streamer.clouds.cloud import Cloud, cloud_message
from streamer.clouds.cloud_files import read_clouds
from streamer.clouds.noise import NOISE_FAMILIES
from streamer.events.limits import Limits
from streamer.labels.llm import ChatEndpoint
from streamer_research.sampling import Recipe, read_prompts
from streamer_research.sampling import sample as sample_clouds
from tests.services.openai_server import ChatReply, ChatRequest, HeldUp, OpenAIServer, refusal_of_a_parameter
from tests.services.ports import free_port
from tests.services.requirements import missing
from tests.told import Told

KEY = "sk-test-0123456789"
USAGE = {"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50}


@pytest.fixture(autouse=True, scope="module")
def _needs_httpx() -> None:
    if importlib.util.find_spec("httpx2") is None:
        missing("no httpx2", "pip install 'conformal-streamer[judge]'")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three prompts and a key in a file, and no setting of this machine."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").write_text(f"{KEY}\n")
    monkeypatch.setenv("STREAMER_SAMPLING_API_KEY_FILE", "key")
    rows = [
        ("q1", "Capital of France?", ["Paris"]),
        ("q2", "Largest planet?", ["Jupiter"]),
        ("q3", "Why?", []),
    ]
    (tmp_path / "prompts.jsonl").write_text(
        "".join(json.dumps({"question_id": q, "question": t, "references": r}) + "\n" for q, t, r in rows)
    )
    return tmp_path


def good(request: ChatRequest, *, after: float = 0.0) -> ChatReply:
    """As many answers as are asked for, each with a text of its own."""
    count = request.body.get("n", 1)
    texts = [f"Answer {request.number}-{i}. So it is." for i in range(count)]
    usage = {"prompt_tokens": 40, "completion_tokens": 10 * count, "total_tokens": 0}
    return ChatReply(texts[0], further=texts[1:], usage=usage, after=after)


def always(reply: ChatReply) -> Callable[[ChatRequest], ChatReply]:
    return lambda _: reply


def sample(
    server: OpenAIServer | str, *options: str, prompts: str = "prompts.jsonl", out: str = "out.jsonl"
) -> int:
    url = server if isinstance(server, str) else server.url
    who = () if "--model" in options else ("--model", "m")
    where = () if "--base-url" in options else ("--base-url", url)
    return main(["sample", prompts, "--out", out, *who, *where, *options])


def clouds(name: str = "out.jsonl") -> list[Cloud]:
    return list(read_clouds(name))


def seeds(server: OpenAIServer) -> list[int]:
    """What tells requests apart: each has a seed of its own, which a repetition keeps."""
    return [request.body["seed"] for request in server.requests]


class TestWhatComesOfIt:
    def test_clouds_that_everything_reads(self, folder: Path, capsys: pytest.CaptureFixture[str]):
        with OpenAIServer(good) as server:
            assert sample(server, "--answers", "12", "--mix", ".5/.25/.25", "--temperature", "0.7") == 0
        found = clouds()
        assert [cloud.question_id for cloud in found] == ["q1", "q2", "q3"]
        for cloud in found:
            assert len(cloud.responses) == 12
            assert cloud.severities == (None,) * 12
            assert cloud_message(cloud, "gate", Limits())
            kinds = [response.meta["mode"] for response in cloud.responses]
            assert [kinds.count(mode) for mode in ("normal", "enforced", "noise")] == [6, 3, 3]
            assert len(set(cloud.texts)) == 12
        for response in found[0].responses:
            meta = response.meta
            assert meta["forced_generation"] == (meta["mode"] == "noise")
            if meta["mode"] == "noise":
                assert meta["family"] in NOISE_FAMILIES
                assert meta["made_by"] == "program"
                continue
            assert (meta["temperature"], meta["model"], meta["answered_by"]) == (0.7, "m", "m-2026")
            assert (meta["finish_reason"], meta["not_taken"]) == ("stop", [])
            assert meta["tokens"]["prompt"] == 40
            assert response.text.startswith(meta["head"])
        assert len(server.requests) == 9, (
            "6 normal answers in two requests, 3 enforced ones in one, for each prompt"
        )
        assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
        written = "".join(path.read_text() for path in folder.iterdir() if path.name != "key")
        output = capsys.readouterr()
        assert KEY not in written + output.out + output.err

    def test_what_is_sent_is_what_the_dry_run_says(self, capsys: pytest.CaptureFixture[str]):
        options = ("--preset", "C2", "--rewordings", "1", "--model-noise", "--seed", "3")
        with OpenAIServer(good) as server:
            assert sample(server, *options, "--dry-run", "--json") == 0
            planned = json.loads(capsys.readouterr().out)
            assert server.requests == []
            assert not list(Path().glob("out*"))
            assert sample(server, *options) == 0
        assert len(server.requests) == planned["requests"]
        assert sum(request.body.get("n", 1) for request in server.requests) == planned["answers"]
        shown = {json.dumps(one["messages"]) for one in planned["examples"]}
        sent = {json.dumps(request.body["messages"]) for request in server.requests}
        # Rewordings are asked about once they are there; before, the dry run has the question in their place.
        assert shown <= sent
        cloud = clouds()[0]
        assert len(cloud.responses) == 16
        assert len(cloud.references) == 7, "the answer and the paper's six paraphrases"
        assert {r.meta["rewording"] for r in cloud.responses if r.meta["mode"] == "normal"} == {0, 1}
        families = {r.meta["family"]: r.meta["made_by"] for r in cloud.responses if r.meta["mode"] == "noise"}
        assert set(families.values()) <= {"model", "program"}
        assert families.get("gibberish", "program") == "program"

    def test_a_dry_run_needs_neither_key_nor_client(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ):
        monkeypatch.delenv("STREAMER_SAMPLING_API_KEY_FILE")
        monkeypatch.setitem(sys.modules, "httpx2", None)
        assert sample("https://api.example.invalid/v1", "--dry-run", "--price", "0.15/0.60") == 0
        shown = capsys.readouterr().out
        assert "6 requests for 30 answers" in shown
        assert "Capital of France?" in shown
        assert "cost about 0." in shown

    def test_the_same_again_sends_nothing(self, folder: Path, capsys: pytest.CaptureFixture[str]):
        with OpenAIServer(good) as server:
            assert sample(server) == 0
            before, sent = (folder / "out.jsonl").read_bytes(), len(server.requests)
            assert sample(server) == 0
            assert len(server.requests) == sent
        assert (folder / "out.jsonl").read_bytes() == before
        assert "nothing was sent" in capsys.readouterr().err

    def test_models_and_temperatures_side_by_side(self, folder: Path):
        arms = ("--model", "a/1", "--model", "b", "--temperature", "0.1", "--temperature", "1.3")
        with OpenAIServer(good) as server:
            assert sample(server, *arms, "--mix", ".8/0/.2", out="swap.jsonl.gz") == 0
        names = sorted(path.name for path in folder.glob("swap.*.gz"))
        assert names == [f"swap.{model}.t{t}.jsonl.gz" for model in ("a-1", "b") for t in ("0.1", "1.3")]
        noise = [
            [(i, r.text) for i, r in enumerate(clouds(name)[0].responses) if r.meta["mode"] == "noise"]
            for name in names
        ]
        assert noise[0]
        assert all(one == noise[0] for one in noise), "the same noise at the same places"
        for name in names:
            answers = [r for cloud in clouds(name) for r in cloud.responses if r.meta["made_by"] == "model"]
            assert {f"{r.meta['model'].replace('/', '-')}.t{r.meta['temperature']:g}" for r in answers} == {
                name.removeprefix("swap.").removesuffix(".jsonl.gz")
            }

    def test_models_that_share_a_cloud(self):
        with OpenAIServer(good) as server:
            assert sample(server, "--model", "a", "--model", "b", "--together") == 0
        assert [[r.meta["model"] for r in cloud.responses].count("a") for cloud in clouds()] == [5, 5, 5]

    def test_a_system_prompt_of_ones_own(self, folder: Path):
        (folder / "system.txt").write_text("You are a pirate.\n")
        with OpenAIServer(good) as server:
            assert sample(server, "--system-prompt", "system.txt") == 0
        assert {request.texts[0] for request in server.requests} == {"You are a pirate."}

    def test_prompts_on_standard_input(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"Why?\nWhere?\n"))))
        with OpenAIServer(good) as server:
            assert sample(server, "--answers", "3", prompts="-") == 0
        assert [cloud.question for cloud in clouds()] == ["Why?", "Where?"]


class TestTrouble:
    @pytest.mark.parametrize(
        ("bad", "code"), [(ChatReply(status=500), "server_error"), (ChatReply(hang_up=True), "unreachable")]
    )
    def test_what_was_got_is_kept_and_the_rest_is_had_later(
        self, bad: ChatReply, code: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ):
        monkeypatch.setenv("STREAMER_SAMPLING_TRIES", "1")
        broken = True

        def answer(request: ChatRequest) -> ChatReply:
            return bad if broken and "planet" in request.texts[1] else good(request)

        with OpenAIServer(answer) as server:
            assert sample(server, "--json") == 1
            assert json.loads(capsys.readouterr().out)["failures"] == {code: 10}
            assert [cloud.question_id for cloud in clouds()] == ["q1", "q3"]
            before = len(server.requests)
            broken = False
            assert sample(server) == 0
            assert len(server.requests) == before + 2
            assert all("planet" in request.texts[1] for request in server.requests[before:])
        assert [len(cloud.responses) for cloud in clouds()] == [10, 10, 10]

    def test_trouble_that_passes_is_not_seen(self):
        def answer(request: ChatRequest) -> ChatReply:
            return (
                ChatReply(status=503, headers={"retry-after-ms": "1"})
                if request.number % 3 == 0
                else good(request)
            )

        with OpenAIServer(answer) as server:
            assert sample(server) == 0
        assert sum(len(cloud.responses) for cloud in clouds()) == 30

    def test_an_endpoint_that_asks_to_wait_is_left_alone_by_everybody(self):
        came: list[float] = []

        def answer(request: ChatRequest) -> ChatReply:
            came.append(time.monotonic())
            return (
                ChatReply(status=429, headers={"retry-after": "1"}) if request.number == 0 else good(request)
            )

        with OpenAIServer(answer) as server:
            assert sample(server, "--concurrency", "1") == 0
        assert came[1] - came[0] >= 0.95
        assert len(came) == 7

    def test_a_wrong_key_or_model_ends_it_at_once(self, folder: Path, capsys: pytest.CaptureFixture[str]):
        refusal = json.dumps({"error": {"message": f"Incorrect API key: {KEY}"}}).encode()
        with OpenAIServer(always(ChatReply(status=401, raw=refusal))) as server:
            assert sample(server, "--concurrency", "2", "--answers", "100", "--yes") == 2
            assert len(server.requests) <= 4
        said = capsys.readouterr()
        assert "refuses every request for the model m" in said.err
        assert KEY not in said.out + said.err
        assert not (folder / "out.jsonl").exists()

    def test_nobody_there(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
        monkeypatch.setenv("STREAMER_SAMPLING_TRIES", "1")
        url = f"http://127.0.0.1:{free_port()}/v1"
        assert sample(url, "--answers", "100", "--yes") == 1
        assert "answered none of the last 20 requests" in capsys.readouterr().err

    def test_answers_that_are_none_are_told_and_asked_for_again_only_on_request(
        self, capsys: pytest.CaptureFixture[str]
    ):
        def answer(request: ChatRequest) -> ChatReply:
            if "planet" in request.texts[1]:
                return ChatReply("", further=["Jupiter.", " "], usage=USAGE)
            if "Why" in request.texts[1]:
                return ChatReply(None, further=[None, None], refusal="I cannot.", usage=USAGE)
            return good(request)

        with OpenAIServer(answer) as server:
            assert sample(server, "--answers", "3", "--json") == 1
            (file,) = json.loads(capsys.readouterr().out)["files"]
            assert (file["empty"], file["refused"], file["missing"], file["left_out"]) == (2, 3, 0, 2)
            assert len(server.requests) == 3
            assert sample(server, "--answers", "3") == 1
            assert len(server.requests) == 3
            assert "--again asks again" in capsys.readouterr().err
            assert sample(server, "--answers", "3", "--again") == 1
            assert len(server.requests) == 5
        assert [len(cloud.responses) for cloud in clouds()] == [3, 2], "one of the two that were empty came"

    def test_answers_that_were_cut_off_are_kept_and_told(self, capsys: pytest.CaptureFixture[str]):
        reply = ChatReply("It is", further=["It", "I"], finish_reason="length")
        with OpenAIServer(always(reply)) as server:
            assert sample(server, "--answers", "3", "--max-tokens", "2") == 0
        assert "9 answers were cut off" in capsys.readouterr().err
        assert {r.meta["finish_reason"] for cloud in clouds() for r in cloud.responses} == {"length"}

    def test_texts_that_no_event_may_carry(self):
        reply = ChatReply(
            raw=json.dumps(
                {
                    "choices": [
                        {"finish_reason": "stop", "message": {"content": f"a\0 \ud800 {i}"}} for i in range(3)
                    ]
                }
            ).encode()
        )
        with OpenAIServer(always(reply)) as server:
            assert sample(server, "--answers", "3") == 0
        assert clouds()[0].texts == ("a  0", "a  1", "a  2")
        assert clouds()[0].responses[0].meta["tokens"] is None

    def test_an_endpoint_that_gives_one_answer_a_request(self):
        def answer(request: ChatRequest) -> ChatReply:
            return ChatReply(f"Answer {request.number}.", usage=USAGE)

        with OpenAIServer(answer) as server:
            assert sample(server, "--concurrency", "1") == 0
        assert len(server.requests) == 30
        assert len({text for cloud in clouds() for text in cloud.texts}) == 30
        assert sum(request.body.get("n", 1) > 1 for request in server.requests) <= 2, "it was learnt"

    @pytest.mark.parametrize(
        "cached", [{"headers": {"x-cache": "HIT"}}, {"id": "one-for-all"}], ids=["header", "id"]
    )
    def test_what_a_cache_had_is_no_sample_but_for_the_choices_of_one_reply(
        self, cached: dict[str, Any], capsys: pytest.CaptureFixture[str]
    ):
        def one_each(_: ChatRequest) -> ChatReply:
            return ChatReply("Paris.", usage=USAGE, **cached)

        with OpenAIServer(one_each) as server:
            assert sample(server, "--answers", "3", "--concurrency", "1") != 0
        told = capsys.readouterr().err
        assert "cached" in told
        assert "a cache answered, so that this is no sample of its own" in told

        def all_at_once(request: ChatRequest) -> ChatReply:
            return ChatReply("Paris.", further=["Lyon."] * (request.body["n"] - 1), usage=USAGE, **cached)

        with OpenAIServer(all_at_once) as server:
            assert sample(server, "--answers", "3", out="other.jsonl") == 0
        assert len(clouds("other.jsonl")) == 3

    def test_a_model_that_takes_neither_temperature_nor_seed_nor_several(
        self, capsys: pytest.CaptureFixture[str]
    ):
        def answer(request: ChatRequest) -> ChatReply:
            for name in ("temperature", "seed", "n", "max_tokens"):
                if name in request.body:
                    return refusal_of_a_parameter(name, value=name == "temperature")
            return ChatReply(f"Answer {request.number}.", usage=USAGE)

        with OpenAIServer(answer) as server:
            assert sample(server, "--answers", "2") == 0
        meta = clouds()[0].responses[0].meta
        assert (meta["temperature"], meta["seed"], meta["not_taken"]) == (None, None, ["seed", "temperature"])
        assert "m does not accept seed, temperature" in capsys.readouterr().err
        assert server.requests[-1].body["max_completion_tokens"] == 256


class TestBounds:
    def test_requests_in_flight(self):
        with OpenAIServer(lambda request: good(request, after=0.02)) as server:
            assert sample(server, "--per-request", "1", "--concurrency", "3") == 0
        assert 2 <= server.most_in_flight <= 3
        assert len(server.requests) == 30

    @pytest.mark.parametrize("bound", [("--requests-per-minute", "120"), ("--tokens-per-minute", "12000")])
    def test_rates(self, bound: tuple[str, str]):
        """0.5 s between requests; 12,000 tokens a minute are 200 a second, and each request uses 90."""
        came: list[float] = []

        def answer(request: ChatRequest) -> ChatReply:
            came.append(time.monotonic())
            return good(request)

        with OpenAIServer(answer) as server:
            assert sample(server, *bound) == 0
        assert len(came) == 6
        # On a busy machine the first may be late, by less than one of the five pauses; over all of them the rate must hold.
        assert came[-1] - came[0] >= 4 * (0.5 if "requests" in bound[0] else 0.45)

    def test_a_cost_that_is_never_exceeded(self, capsys: pytest.CaptureFixture[str]):
        """A request costs 0.00005 in replies of 50 tokens at 1 a million, and could cost 0.00048."""
        options = (
            "--max-tokens", "96", "--price", "0/1", "--max-cost", "0.0006", "--concurrency", "1",
            "--json",
        )  # fmt: skip
        with OpenAIServer(good) as server:
            assert sample(server, *options) == 1
            result = json.loads(capsys.readouterr().out)
            assert result["over_budget"]
            assert result["cost"] == pytest.approx(0.00015)
            assert len(server.requests) == 3, "a fourth might have exceeded it"
            assert sample(server, *options) == 1
            assert len(server.requests) == 3
            assert sample(server, *options, "--max-cost", "1") == 0
            assert len(server.requests) == 6

    def test_many_requests_need_a_yes(self, capsys: pytest.CaptureFixture[str]):
        with OpenAIServer(good) as server:
            assert sample(server, "--answers", "34", "--per-request", "1") == 2
            assert server.requests == []
            assert "give --yes" in capsys.readouterr().err
            assert sample(server, "--answers", "34", "--per-request", "1", "--yes") == 0
            assert len(server.requests) == 102


class TestKeys:
    def test_each_host_gets_its_own(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.delenv("STREAMER_SAMPLING_API_KEY_FILE")
        monkeypatch.setenv("STREAMER_SAMPLING_API_KEYS_127_0_0_1", "key-of-one")
        monkeypatch.setenv("STREAMER_SAMPLING_API_KEYS_LOCALHOST", "key-of-the-other")
        with OpenAIServer(good) as server:
            other = server.url.replace("127.0.0.1", "localhost")
            swap = ("--model", "a", "--base-url", server.url, "--model", "b", "--base-url", other)
            assert sample(server, *swap, "--answers", "2") == 0
        sent = {(request.body["model"], request.headers["authorization"]) for request in server.requests}
        assert sent == {("a", "Bearer key-of-one"), ("b", "Bearer key-of-the-other")}

    def test_one_key_goes_to_no_second_host(self, capsys: pytest.CaptureFixture[str]):
        with OpenAIServer(good) as server:
            other = server.url.replace("127.0.0.1", "localhost")
            swap = ("--model", "a", "--base-url", server.url, "--model", "b", "--base-url", other)
            assert sample(server, *swap) == 2
            assert server.requests == []
        assert "one key cannot be for 2 hosts" in capsys.readouterr().err

    def test_no_key_is_shown(self, monkeypatch: pytest.MonkeyPatch, told: Told):
        monkeypatch.setenv("STREAMER_SAMPLING_API_KEYS_API_TOGETHER_XYZ", "tg-secret")
        shown = told("config", "show").out
        assert "api.together.xyz" in shown
        assert KEY not in shown
        assert "tg-secret" not in shown

    def test_unencrypted_elsewhere_must_be_permitted(self, capsys: pytest.CaptureFixture[str]):
        assert sample("http://models.internal/v1", "--dry-run") == 2
        assert "--insecure" in capsys.readouterr().err


class TestWrongUsage:
    @pytest.mark.parametrize(
        ("options", "says"),
        [
            (("--preset", "C9"), "no preset"),
            (("--mix", ".5/.5"), "--mix is 3 numbers"),
            (("--mix", ".5/.1/.1"), "make 1"),
            (("--noise-family", "rude"), "'rude'"),
            (("--price", "cheap"), "two amounts"),
            (("--price", "1/-1"), "0 or more"),
            (("--max-cost", "1"), "needs --price"),
            (("--temperature", "3"), r"[0, 2]"),
            (("--model", "a", "--model", "a"), "twice"),
            (
                ("--model", "a", "--base-url", "https://x/v1", "--base-url", "https://y/v1"),
                "1 models and 2 base URLs",
            ),
            (("--system-prompt", "none.txt"), "cannot read"),
        ],
    )
    def test_is_told(self, options: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]):
        assert sample("https://api.example.invalid/v1", *options) == 2
        assert says in capsys.readouterr().err

    def test_nobody_is_asked_without_a_word(self, told: Told):
        found = told("sample", "prompts.jsonl", "--out", "out.jsonl", status=2).err
        assert "STREAMER_SAMPLING_BASE_URL" in found

    def test_somebody_elses_file_is_not_replaced(self, folder: Path, capsys: pytest.CaptureFixture[str]):
        (folder / "out.jsonl").write_text("mine")
        assert sample("https://api.example.invalid/v1", "--dry-run") == 2
        assert "exists already" in capsys.readouterr().err
        assert sample("https://api.example.invalid/v1", "--dry-run", out="no/where.jsonl") == 2
        assert "no folder" in capsys.readouterr().err

    def test_other_options_for_the_same_output(self, capsys: pytest.CaptureFixture[str]):
        with OpenAIServer(good) as server:
            assert sample(server, "--answers", "2") == 0
            assert sample(server, "--answers", "3") == 2
        assert "answers was 2, is 3" in capsys.readouterr().err


@contextmanager
def running(server: OpenAIServer, folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable, "-m", "streamer", "sample", "prompts.jsonl", "--out", "out.jsonl",
        "--model", "m",
    ]  # fmt: skip
    options = [
        "--base-url", server.url, "--answers", "40", "--per-request", "1", "--concurrency", "4",
        "--yes",
    ]  # fmt: skip
    process = subprocess.Popen(
        [*command, *options], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


SAME = ("--answers", "40", "--per-request", "1", "--concurrency", "4", "--yes")


class TestStopped:
    def test_killed_and_started_again_asks_for_nothing_twice(self, folder: Path):
        answer = HeldUp(20, good)
        with OpenAIServer(answer) as server:
            with running(server, folder) as process:
                assert answer.reached.wait(240)
                process.kill()
                process.wait()
                assert not (folder / "out.jsonl").exists()
            answer.go_on.set()
            lines = (folder / "out.jsonl.journal").read_text().splitlines()[1:]
            kept = [json.loads(line)["sent"]["seed"] for line in lines if line.endswith("}")]
            first = len(server.requests)
            assert 15 <= len(kept) <= first <= len(kept) + 4 + 4, "at most what was in flight is lost"
            assert sample(server, *SAME) == 0
            second = seeds(server)[first:]
        assert not set(second) & set(kept)
        assert sorted(second + kept) == sorted(set(second + kept))
        assert len(second) + len(kept) == 120
        assert [len(cloud.responses) for cloud in clouds()] == [40, 40, 40]

    @pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
    def test_told_to_stop_it_keeps_what_is_in_flight(self, number: signal.Signals, status: int, folder: Path):
        answer = HeldUp(20, good)
        with OpenAIServer(answer) as server:
            with running(server, folder) as process:
                assert answer.reached.wait(240)
                process.send_signal(number)
                time.sleep(0.2)  # whether it is told first or answered
                answer.go_on.set()
                _, said = process.communicate(timeout=240)
            assert process.returncode == status, said
            assert "in the journal" in said
            first = len(server.requests)
            found = len((folder / "out.jsonl.journal").read_text().splitlines()) - 1
            assert found == first, "all that was answered"
            assert not (folder / "out.jsonl").exists(), "no cloud is whole yet"
            assert sample(server, *SAME) == 0
            assert len(server.requests) == 120
        assert len(set(seeds(server))) == 120

    def test_whole_clouds_are_written_when_it_is_stopped(self, folder: Path):
        def answer(request: ChatRequest) -> ChatReply:
            return good(request, after=600.0 if "Why" in request.texts[1] else 0.0)

        with OpenAIServer(answer) as server, running(server, folder) as process:
            journal = folder / "out.jsonl.journal"
            while not journal.exists() or len(journal.read_text().splitlines()) < 81:
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=240)
        assert process.returncode in (130, 143), said
        assert [cloud.question_id for cloud in clouds()] == ["q1", "q2"]
        assert "not finished yet" in said

    def test_one_run_at_a_time(self, folder: Path, capsys: pytest.CaptureFixture[str]):
        answer = HeldUp(20, good)
        with OpenAIServer(answer) as server, running(server, folder):
            assert answer.reached.wait(240)
            assert sample(server, *SAME) == 2
            answer.go_on.set()
        assert "another run writes" in capsys.readouterr().err


def test_from_python(folder: Path):
    with OpenAIServer(good) as server:
        endpoint = ChatEndpoint(model="m", base_url=server.url, api_key=KEY)
        made = sample_clouds(
            read_prompts("prompts.jsonl"), Recipe(answers=4), [endpoint], folder / "p.jsonl",
            temperatures=[0.5],
        )  # fmt: skip
    assert made.tally.answered == 12
    assert made.files[0].clouds == 3
    assert len(clouds("p.jsonl")) == 3


def test_noise_alone_is_no_cloud(monkeypatch: pytest.MonkeyPatch, folder: Path):
    monkeypatch.setenv("STREAMER_SAMPLING_TRIES", "1")
    with OpenAIServer(always(ChatReply(status=500))) as server:
        assert sample(server, "--mix", ".5/0/.5") == 1
        assert not (folder / "out.jsonl").exists()
        assert sample(server, "--mix", "0/0/1", out="noise.jsonl") == 0
    assert len(clouds("noise.jsonl")) == 3
