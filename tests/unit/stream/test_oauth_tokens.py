"""Tokens from files and commands: read anew, checked, and missing in a way that clients take for a lost connection."""

import asyncio
import sys
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from kafka import KafkaProducer

from streamer.stream import connection
from streamer.stream.connection import KafkaConnection, NoToken, TokenCommand, TokenFile


def test_a_file_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "token"
    tokens = TokenFile(path)
    with pytest.raises(NoToken, match="cannot read the token in"):
        tokens.token()
    for text in ("first.token.", "second-token=="):
        path.write_text(f"{text}\n")
        assert tokens.token() == text
    for wrong in ("", "two words", "two\nlines", "gr\u00fc\u00dfe", "a\x01b"):
        path.write_text(wrong)
        with pytest.raises(NoToken, match="is no token"):
            tokens.token()


def test_a_command_is_run_again_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = tmp_path / "count"
    program = (
        f"import pathlib; p = pathlib.Path({str(count)!r}); p.open('a').write('x'); print(len(p.read_text()))"
    )
    tokens = TokenCommand(f'{sys.executable} -c "{program}"')
    found = [tokens.token(), tokens.token()]
    assert found == ["1", "1"], "connections that are opened together share one run"
    monkeypatch.setattr(connection, "_REUSED_SECONDS", -1.0)
    assert tokens.token() == "2"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise SystemExit('first\\nnot allowed')", "ended with status 1: not allowed"),
        ("print('a b')", "is no token"),
        ("", "is no token"),
        ("import time; time.sleep(60)", "took longer than 1 s"),
    ],
)
def test_a_command_that_prints_none(program: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SECONDS", 1.0)
    if "sleep" not in program:
        monkeypatch.setattr(connection, "SECONDS", 60.0)
    with pytest.raises(NoToken) as caught:
        TokenCommand(f'{sys.executable} -c "{program}"').token()
    assert said in str(caught.value)
    with pytest.raises(NoToken, match="cannot be run: No such file"):
        TokenCommand("no-such-command at all").token()


def test_both_clients_get_it_and_nothing_shows_it() -> None:
    connection = KafkaConnection(
        "kafka:9093",
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.command": "printf %s the-token",
        },
    )
    ours = connection.for_aiokafka(AIOKafkaConsumer)
    theirs = connection.for_kafka_python(KafkaProducer)
    assert asyncio.run(ours["sasl_oauth_token_provider"].token()) == "the-token"
    assert theirs["sasl_oauth_token_provider"].token() == "the-token"
    assert "sasl_plain_username" not in ours | theirs
    assert "the-token" not in repr(connection)
