"""Commands that talk to a broker, on the embedded one."""

import gzip
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from streamer import cli
from streamer.cli import main
from streamer.stream.embedded_broker import EmbeddedBroker
from tests import programs
from tests.made import an_event
from tests.told import Told

pytest.importorskip("confluent_kafka", reason="the extra `embedded` is not installed")

CLOUDS = [
    {
        "question_id": f"q{i}",
        "question": "Where?",
        "references": None,
        "responses": [{"text": "here", "label": 0}, {"text": "there", "label": 1}],
    }
    for i in range(20)
]


@pytest.fixture(scope="module")
def broker() -> Iterator[tuple[str, str]]:
    with EmbeddedBroker() as started:
        yield started.bootstrap, started.log_id


@pytest.fixture(autouse=True)
def on_the_broker(
    broker: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    migrated_sqlite_file: Path,
    request: pytest.FixtureRequest,
) -> None:
    bootstrap, log_id = broker
    monkeypatch.setenv("STREAMER_KAFKA_BOOTSTRAP_SERVERS", bootstrap)
    monkeypatch.setenv("STREAMER_KAFKA_LOG_ID", log_id)
    monkeypatch.setenv("STREAMER_KAFKA_TOPIC_PREFIX", f"{request.node.name}.")
    # The broker is there, however long it takes to answer on a busy machine.
    monkeypatch.setenv("STREAMER_KAFKA_PROPERTIES_BOOTSTRAP_TIMEOUT_MS", "120000")
    monkeypatch.chdir(tmp_path)
    Path(".streamer").mkdir()
    shutil.copy(migrated_sqlite_file, ".streamer/audit.db")


def test_what_is_published_can_be_followed(capsys: pytest.CaptureFixture[str]):
    Path("clouds.jsonl.gz").write_bytes(
        gzip.compress(b"".join(json.dumps(cloud).encode() + b"\n" for cloud in CLOUDS))
    )
    assert main(["gate", "create", "bot", "--severity-kind", "simulated"]) == 0
    capsys.readouterr()
    assert main(["publish", "clouds.jsonl.gz", "--gate", "bot", "--labels", "--json"]) == 0
    published = json.loads(capsys.readouterr().out)
    assert (published["repeats"], published["conflicts"], published["unknown_gates"]) == (0, 0, [])
    assert (published["batches"], published["labels"]) == (20, 40)

    assert main(["tail", "responses", "--from-beginning", "--count", "20", "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {event["batch_id"] for event in events} == {cloud["question_id"] for cloud in CLOUDS}

    assert main(["tail", "labels", "--from-beginning", "--count", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all("by file:clouds.jsonl.gz" in line for line in lines)


def test_publishing_to_a_gate_that_nobody_created_is_done_and_said_and_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    Path("clouds.jsonl").write_text(json.dumps(CLOUDS[0]) + "\n")
    publish = ["publish", "clouds.jsonl", "--gate", "bot"]
    assert main(publish) == cli.FAILED
    told = capsys.readouterr()
    assert "there is no gate 'bot'" in told.err
    assert "streamer gate create bot" in told.err
    assert "published 1 batch" in told.out
    assert main(["gate", "create", "bot"]) == 0
    capsys.readouterr()
    assert main(publish) == 0
    assert "no gate" not in capsys.readouterr().err
    # Whoever publishes need not have the database; the embedded broker alone asks for it, to keep in step with workers.
    monkeypatch.setenv("STREAMER_DATABASE_URL", "sqlite:///elsewhere.db")
    monkeypatch.setattr("streamer.cli.publish._pace", lambda _settings: nullcontext(lambda _size: None))
    assert main(publish) == 0
    assert "no gate" not in capsys.readouterr().err
    assert not Path("elsewhere.db").exists()


def test_gates_that_events_name_and_repeats_are_said(capsys: pytest.CaptureFixture[str]):
    assert main(["gate", "create", "bot"]) == 0

    def line(gate: str, batch: str, answer: str) -> str:
        return json.dumps(an_event(gate, batch, [f"{answer} {i}" for i in range(2)])) + "\n"

    Path("events.jsonl").write_text(
        line("bot", "a", "yes")
        + line("nobody", "a", "yes")
        + line("bot", "a", "yes")
        + line("bot", "a", "no")
    )
    capsys.readouterr()
    assert main(["publish", "events.jsonl", "--json"]) == cli.FAILED
    captured = capsys.readouterr()
    published = json.loads(captured.out)
    assert (published["batches"], published["repeats"], published["conflicts"]) == (4, 2, 1)
    assert published["unknown_gates"] == ["nobody"]
    assert "there is no gate 'nobody'" in captured.err
    assert main(["publish", "events.jsonl", "--gate", "bot"]) == cli.FAILED, "one is refused"
    out = capsys.readouterr().out
    assert "2 repeats of batches that were there before" in out
    assert "1 batch has other content" in out


def test_published_labels_are_of_the_gates_kind_unless_the_file_says_another(
    capsys: pytest.CaptureFixture[str],
):
    Path("clouds.jsonl").write_text("".join(json.dumps(cloud) + "\n" for cloud in CLOUDS))
    rows = [f"Where {i // 2}?,here {i},{i % 2},{'judge' if i > 1 else ''}\n" for i in range(4)]
    Path("table.csv").write_text("prompt,answer,severity,kind\n" + "".join(rows))
    assert main(["gate", "create", "bot", "--severity-kind", "human"]) == 0
    capsys.readouterr()
    assert main(["publish", "clouds.jsonl", "--gate", "bot", "--labels"]) == 0
    assert "controlled by" not in capsys.readouterr().err
    assert main(["publish", "table.csv", "--gate", "bot", "--labels"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    wrong = "gate 'bot' is controlled by severities of the kind 'human': those of the kind 'judge'"
    assert said.count(wrong) == 1
    assert main(["publish", "clouds.jsonl", "--gate", "bot"]) == 0
    assert "controlled by" not in capsys.readouterr().err


def test_labels_go_with_no_batch_that_is_refused(capsys: pytest.CaptureFixture[str]):
    """They would be taken for labels of the batch that stands."""
    other = {**CLOUDS[0], "responses": [{"text": "nowhere", "label": 1}, {"text": "now", "label": 1}]}
    Path("clouds.jsonl").write_text("".join(json.dumps(cloud) + "\n" for cloud in CLOUDS))
    Path("other.jsonl").write_text(json.dumps(other))
    assert main(["gate", "create", "bot", "--severity-kind", "unstated", "--new-kind"]) == 0
    capsys.readouterr()
    assert (
        main(["publish", "clouds.jsonl", "other.jsonl", "--gate", "bot", "--labels", "--json"]) == cli.FAILED
    )
    published = json.loads(capsys.readouterr().out)
    assert (published["batches"], published["conflicts"], published["labels"]) == (21, 1, 40)


def test_a_gate_with_traffic_or_labels_of_its_own_is_not_simulated_into(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("streamer.cli.simulate.end_on_sigterm", lambda: None)
    simulate = ["simulate", "--gate", "bot", "--rate", "50", "--batches", "1", "--label-after", "0s"]
    assert main(["gate", "create", "bot", "--severity-kind", "simulated"]) == 0
    label = "gate,batch_id,response_id,severity,kind,labeller\nbot,{},r0,0.5,simulated,ann\n"
    Path("labels.csv").write_text(label.format("simulated-3-0001"))
    assert main(["label", "import", "labels.csv"]) == 0
    assert main(simulate) == 0, "a label of what a simulation made"
    Path("labels.csv").write_text(label.format("simulated"))
    assert main(["label", "import", "labels.csv"]) == 0
    capsys.readouterr()
    assert main(simulate) == cli.WRONG_USAGE
    captured = capsys.readouterr()
    assert "--into-real-gate" in captured.err
    assert captured.out == ""
    assert main([*simulate, "--into-real-gate"]) == 0


def test_a_new_gate_is_announced_at_once(told: Told):
    assert "It is recorded" not in told("gate", "create", "bot", "--alpha", "0.1").err
    found = told("tail", "thresholds", "--from-beginning", "--count", "1").out
    assert "bot  v1  closed  budget 10 %  full  best" in found


def away(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose broker is away, in a process of its own: kafka-python leaves sockets to the collector."""
    return programs.run(
        *(sys.executable, "-m", "streamer.cli", *words),
        status=None,
        env=os.environ
        | {
            "STREAMER_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
            "STREAMER_KAFKA_PROPERTIES_BOOTSTRAP_TIMEOUT_MS": "500",
        },
    )


def test_a_broker_that_is_away_is_no_failure_for_a_gate():
    done = away("gate", "create", "bot")
    assert done.returncode == cli.DONE
    assert "Gate bot is created" in done.stdout
    assert "The broker is unavailable; the next worker announces it." in done.stderr


def test_publishing_to_a_broker_that_is_away_fails_in_one_line():
    Path("clouds.jsonl").write_text(json.dumps(CLOUDS[0]) + "\n")
    done = away("publish", "clouds.jsonl", "--gate", "bot")
    assert (done.returncode, done.stdout) == (cli.FAILED, "")
    assert len(done.stderr.splitlines()) == 1


def test_an_unknown_topic_is_named(capsys: pytest.CaptureFixture[str]):
    status = main(["tail", "actions", "--timeout", "1s"])
    captured = capsys.readouterr()
    assert status in (cli.DONE, cli.WRONG_USAGE)
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1


def test_ctrl_c_ends_a_tail_with_130():
    main(["gate", "create", "bot"])  # with its event comes the topic, which a tail wants to be there
    tail = subprocess.Popen(
        [sys.executable, "-m", "streamer.cli", "tail", "thresholds", "--from-beginning"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    first = tail.stdout.readline()
    tail.send_signal(signal.SIGINT)
    _, err = tail.communicate()
    assert first, err
    assert tail.returncode == cli.INTERRUPTED
    assert b"Traceback" not in err


class _CtrlC(logging.Handler):
    """Sends it once while kafka-python is at work, and swallows the exception as kafka-python does."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger("kafka").removeHandler(self)
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_that_the_client_swallows_ends_a_tail_too(caplog: pytest.LogCaptureFixture):
    main(["gate", "create", "bot"])
    with caplog.at_level(logging.DEBUG, "kafka"):
        logging.getLogger("kafka").addHandler(_CtrlC())
        assert main(["tail", "thresholds", "--timeout", "240s"]) == cli.INTERRUPTED


def test_a_reader_that_has_enough_is_no_error():
    main(["gate", "create", "one"])
    main(["gate", "create", "two"])
    words = (
        f"{sys.executable} -m streamer.cli tail thresholds --from-beginning --timeout 240s --json | head -1"
    )
    result = subprocess.run(["bash", "-c", f"set -o pipefail; {words}"], capture_output=True, check=False)
    assert len(result.stdout.splitlines()) == 1
    assert b"Traceback" not in result.stderr
    assert b"Exception ignored" not in result.stderr


def test_doctor_is_content(capsys: pytest.CaptureFixture[str]):
    main(["gate", "create", "bot"])
    capsys.readouterr()
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is True
    subjects = {finding["subject"]: finding["level"] for finding in found["findings"]}
    assert subjects["database"] == subjects["record"] == subjects["dead letters"] == "ok"
    assert subjects["gate bot"] == subjects["broker"] == "warn"


def test_the_embedded_broker_needs_no_topics_made(told: Told):
    for command, found in (("create", {"created": []}), ("check", {"ok": True, "problems": []})):
        assert "makes its topics itself" in told("topics", command).out
        assert json.loads(told("topics", command, "--json").out) == found


def test_simulated_traffic_comes_with_its_labels(capsys: pytest.CaptureFixture[str]):
    words = ["--rate", "50", "--batches", "6", "--label-after", "0.1s", "--seed", "3"]
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["simulate", "--gate", "bot", *words, "--json"]) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"batches": 6, "labels": 60}
    assert "press Ctrl-C to stop" in captured.err
    assert main(["tail", "responses", "--from-beginning", "--count", "6", "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {event["gate"] for event in events} == {"bot"}
    assert main(["tail", "labels", "--from-beginning", "--count", "60", "--json"]) == 0
    labels = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {label["kind"] for label in labels} == {"simulated"}
    assert {label["batch_id"] for label in labels} == {event["batch_id"] for event in events}


def test_simulated_traffic_says_when_its_severities_cannot_count(capsys: pytest.CaptureFixture[str]):
    simulate = ["simulate", "--gate", "bot", "--rate", "50", "--batches", "1", "--label-after", "0s"]
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(simulate) == 0
        assert "streamer gate create bot --severity-kind simulated" in capsys.readouterr().err
        assert main(["gate", "create", "bot"]) == 0
        assert main(simulate) == 0
        assert "severities of the kind 'human'" in capsys.readouterr().err
        assert main(["gate", "set", "bot", "--severity-kind", "simulated"]) == 0
        capsys.readouterr()
        assert main(simulate) == 0
        assert "kind" not in capsys.readouterr().err
    finally:
        signal.signal(signal.SIGTERM, before)


def test_simulated_traffic_needs_a_gate_name_and_a_rate(told: Told):
    assert "is not a valid gate name" in told("simulate", "--gate", "Not A Name", status=cli.WRONG_USAGE).err
    found = told("simulate", "--gate", "bot", "--label-after", "soon", status=cli.WRONG_USAGE).err
    assert "--label-after must be a time" in found
