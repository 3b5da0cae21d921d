"""Services that log JSON say nothing else: every line of both outputs is an object, from the first one on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import programs
from tests.services.kafka import KafkaBroker
from tests.services.service_forks import FORKS

PLAIN = {"STREAMER_ENCODER_NAME": "none", "STREAMER_HTTP_PORT": "0"}


def environment(directory: Path, **settings: str) -> dict[str, str]:
    return os.environ | PLAIN | {"STREAMER_DATABASE_URL": f"sqlite:///{directory / 'db'}"} | settings


def objects(output: str) -> list[dict[str, Any]]:
    """Every line, as an object: anything else fails."""
    found = []
    for line in output.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        assert isinstance(value, dict), f"no JSON object: {line!r} in\n{output}"
        found.append(value)
    return found


def run(directory: Path, *words: str, **settings: str) -> tuple[int, str, str]:
    """Run it forked: what an import itself would say is seen in the services that start afresh."""
    done = FORKS.run(words, environment=environment(directory, **settings), folder=directory, seconds=240)
    return done.returncode, done.stdout, done.stderr


BROKER = {"STREAMER_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("words", "settings", "status", "says"),
    [
        (["worker"], {}, 2, "no Kafka broker is configured"),
        (["worker", "--bogus"], {}, 2, "No such option"),
        (["worker", "--port", "x"], {}, 2, "--port"),
        (["recalibrator"], {"STREAMER_DATABASE_URL": "nonsense"}, 2, "database URL"),
        (["worker"], {"STREAMER_HTTP_PORT": "many"}, 2, "http.port"),
        (["worker"], {"STREAMER_CONFIG": "absent.toml", "STREAMER_DEBUG": "1"}, 2, "absent.toml"),
        (
            ["--insecure", "worker"],
            BROKER | {"STREAMER_KAFKA_BOOTSTRAPP": "x"},
            2,
            "STREAMER_KAFKA_BOOTSTRAPP",
        ),
        (
            ["dev"],
            {"STREAMER_LOGGING_FORMAT": "json", "STREAMER_WORKER_BUFFER_MAX_RECORDS": "-1"},
            2,
            "buffer",
        ),
        (["review"], {"STREAMER_LOGGING_FORMAT": "json"}, 2, "there is no database"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_bad_settings_are_said_in_json(
    tmp_path: Path, words: list[str], settings: dict[str, str], status: int, says: str
):
    ended, out, err = run(tmp_path, *words, **settings)
    assert ended == status, err
    assert objects(out) == []
    lines = objects(err)
    assert lines
    assert all({"event", "level", "timestamp", "logger"} <= line.keys() for line in lines)
    assert any(says in json.dumps(line) for line in lines)


STRAY = """
import sys, threading, warnings
from streamer import cli, wiring

class Gone:
    def __del__(self):
        raise KeyError("nobody hears it")

def run_worker(*_args, **_kwargs):
    warnings.warn("old")
    gone = Gone()
    del gone
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    raise RuntimeError("\x1b[31mboom")

wiring.run_worker = run_worker
sys.exit(cli.main(["worker"]))
"""


def test_what_nothing_catches_is_logged_in_json(tmp_path: Path):
    own = {"env": environment(tmp_path), "cwd": tmp_path}
    done = programs.run(sys.executable, "-c", STRAY, status=1, **own)
    assert done.stdout == ""
    said = " ".join(f"{line['event']} {line.get('exception', '')}" for line in objects(done.stderr))
    for part in ("UserWarning: old", "nobody hears it", "ZeroDivisionError", "boom"):
        assert part in said
    assert "\x1b" not in done.stderr


def test_for_people_nothing_is_json(tmp_path: Path):
    _, _, err = run(tmp_path, "worker", STREAMER_LOGGING_FORMAT="console")
    assert err.startswith("streamer: no Kafka broker")


@pytest.mark.parametrize("service", ["worker", "recalibrator", "dev"])
def test_a_service_logs_json_from_its_first_line_to_its_last(
    kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path, service: str
):
    settings = {
        "STREAMER_KAFKA_BOOTSTRAP_SERVERS": kafka_broker.bootstrap,
        "STREAMER_KAFKA_TOPIC_PREFIX": topic_prefix,
        "STREAMER_KAFKA_GROUP_ID": f"{topic_prefix}workers",
        "STREAMER_KAFKA_REPLICATION_FACTOR": "1",
    }
    if service == "dev":
        settings = {"STREAMER_LOGGING_FORMAT": "json"}
    else:
        for words in (["db", "upgrade"], ["topics", "create"]):
            done = FORKS.run(
                words, environment=environment(tmp_path, **settings), folder=tmp_path, seconds=240
            )
            assert done.returncode == 0, done.stderr
    with (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-X", "dev", "-m", "streamer", service],
            env=environment(tmp_path, **settings, STREAMER_HTTP_PROT="1"), cwd=tmp_path,
            stdout=subprocess.PIPE, stderr=err, text=True,
        )  # fmt: skip
        first = process.stdout.readline()
        time.sleep(2)
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=240)[0]
    log = (tmp_path / "err").read_text()
    assert "http" in objects(first)[0], log
    objects(rest)
    lines = objects(log)
    assert any("STREAMER_HTTP_PROT" in json.dumps(line) for line in lines)
