"""Log lines: one format for our own and the libraries', no secret, no local variables."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from streamer.telemetry.logs import TALKATIVE, configure_logging


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    libraries = {name: logging.getLogger(name).level for name in TALKATIVE}
    yield
    for name, before in libraries.items():
        logging.getLogger(name).setLevel(before)
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


def test_json_lines_of_structlog_and_the_standard_library() -> None:
    stream = io.StringIO()
    configure_logging("json", "INFO", stream=stream)
    structlog.get_logger("streamer.x").info("lease_taken", topic="t", offset=3)
    logging.getLogger("library").warning("gone %s", "away")
    logging.getLogger("library").debug("not shown")
    ours, theirs = map(json.loads, stream.getvalue().splitlines())
    assert ours["event"] == "lease_taken"
    assert (ours["topic"], ours["offset"], ours["level"], ours["logger"]) == ("t", 3, "info", "streamer.x")
    assert ours["timestamp"].endswith("Z")
    assert (theirs["event"], theirs["level"]) == ("gone away", "warning")


@pytest.mark.expected_errors
@pytest.mark.parametrize("style", ["json", "console"])
def test_no_secret_and_no_local_variable_is_logged(style: str) -> None:
    stream = io.StringIO()
    configure_logging(style, stream=stream)  # type: ignore[arg-type]
    log = structlog.get_logger("streamer.x")
    log.info("connecting", url="postgresql://u:hunter2@h/x", sasl_password="hunter3")
    prompt = "what a person asked"
    try:
        raise ValueError("cannot reach postgresql://u:hunter4@h/x")
    except ValueError:
        log.exception("failed")
    text = stream.getvalue()
    assert "hunter" not in text
    assert prompt not in text.replace('prompt = "what a person asked"', "")
    assert "ValueError" in text


def test_configuring_twice_writes_once() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure_logging("json", stream=first)
    configure_logging("json", stream=second)
    logging.getLogger("x").warning("once")
    assert first.getvalue() == ""
    assert len(second.getvalue().splitlines()) == 1


def test_auto_is_json_when_nobody_watches() -> None:
    stream = io.StringIO()
    configure_logging("auto", stream=stream)
    logging.getLogger("x").warning("hello")
    assert json.loads(stream.getvalue())["event"] == "hello"


def test_libraries_do_not_talk_about_themselves() -> None:
    stream = io.StringIO()
    configure_logging("json", "INFO", stream=stream)
    logging.getLogger("kafka.net").info("Closing transport")
    logging.getLogger("kafka.net").warning("refused")
    logging.getLogger("streamer.x").info("ours")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["refused", "ours"]
    configure_logging("json", "DEBUG", stream=stream)
    logging.getLogger("kafka.net").debug("all")
    assert json.loads(stream.getvalue().splitlines()[-1])["event"] == "all"
