"""Checkpoints with witnesses: a file, an endpoint, and a time stamp authority made by OpenSSL; on SQLite."""

from __future__ import annotations

import json
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from streamer import wiring
from streamer.audit.witnesses import witness
from streamer.cli import main
from streamer.errors import UsageError
from streamer.events.checkpoints import decode_checkpoint
from streamer.settings.settings import load_settings
from tests.integration.audit.history import PRIVATE, PUBLIC, Scribe, event
from tests.migrated import migrated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streamer.audit.witnesses import Sent
    from streamer.settings.settings import Settings

CONFIGURATION = """
[ tsa ]
default_tsa = one
[ one ]
serial = {folder}/serial
signer_cert = {folder}/tsa.pem
signer_key = {folder}/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4
digests = sha256
[ ca ]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[ tsa_cert ]
keyUsage = critical, digitalSignature
extendedKeyUsage = critical, timeStamping
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


def openssl(folder: Path, *arguments: str, given: bytes | None = None) -> bytes:
    return subprocess.run(
        ["openssl", *arguments], cwd=folder, check=True, capture_output=True, input=given
    ).stdout


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of a time stamp authority."""
    folder = tmp_path_factory.mktemp("tsa")
    (folder / "tsa.cnf").write_text(CONFIGURATION.format(folder=folder))
    (folder / "serial").write_text("01\n")
    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(folder, "req", "-x509", *ec, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=root", "-config", "/dev/null",
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip
    (folder / "req.cnf").write_text("[req]\ndistinguished_name = dn\n[dn]\n")
    openssl(
        folder,
        "req",
        *ec,
        "-keyout",
        "tsa.key",
        "-out",
        "tsa.csr",
        "-subj",
        "/CN=authority",
        "-config",
        "req.cnf",
    )
    openssl(folder, "x509", "-req", "-in", "tsa.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out",
            "tsa.pem", "-extfile", "tsa.cnf", "-extensions", "tsa_cert")  # fmt: skip
    return folder


@contextmanager
def serving(answer: Callable[[bytes], tuple[int, bytes]]) -> Iterator[tuple[str, list[bytes]]]:
    """An endpoint on this machine; its address, and what it got."""
    got: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            status, content = answer(data)
            if status < 300:
                got.append(data)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/checkpoints", got
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def scribe(tmp_path: Path) -> Iterator[Scribe]:
    settings = settings_with(tmp_path)
    migrated(settings)
    with wiring.open_store(settings) as store:
        scribe = Scribe(store, settings)
        scribe.gate("best", unit="best", alpha=0.3)
        yield scribe


def settings_with(folder: Path, *witnesses: str, roots: str | None = None) -> Settings:
    return load_settings(
        database={"url": f"sqlite:///{folder / 'record.db'}"},
        audit={
            "private_key": PRIVATE,
            "public_keys": PUBLIC,
            "witnesses": list(witnesses),
            "witness_answers": str(folder / "answers.jsonl"),
            "time_stamp_roots": roots,
        },
    )


def send(scribe: Scribe, settings: Settings, number: int) -> list[Sent]:
    scribe.deliver([event("best", number)])
    assert wiring.checkpointer(settings, scribe.store).make() is not None
    return wiring.witnesses(settings, scribe.store).send()


def test_each_witness_gets_each_checkpoint_also_what_it_lacked_while_it_was_away(
    scribe: Scribe, tmp_path: Path
) -> None:
    away = [True]
    file = tmp_path / "elsewhere" / "kept.jsonl"
    with serving(lambda data: (503, b"") if away[0] else (200, b"seen " + data[:10])) as (url, got):
        settings = settings_with(tmp_path, str(file), url)
        for number in range(2):
            kept, posted = send(scribe, settings, number)
            assert (kept.failed, kept.sent, kept.lacks_since) == (None, 1, None)
            assert posted.failed is not None
            assert "503" in posted.failed or "Service Unavailable" in posted.failed
            first = scribe.store.checkpoints.after(0, limit=1)[0]
            assert posted.lacks_since == decode_checkpoint(first).made_at
        away[0] = False
        _, posted = send(scribe, settings, 2)
        assert (posted.failed, posted.sent) == (None, 3)
        assert got == scribe.store.checkpoints.after(0, limit=9) == file.read_bytes().splitlines()
        assert wiring.witnesses(settings, scribe.store).send()[1].sent == 0
        assert wiring.check_witnesses(settings, scribe.store) == ([], [], 3, 0)
    assert wiring.outside_checkpoints(settings, str(file)) is not None


def test_time_stamps_are_kept_and_verified(scribe: Scribe, authority: Path, tmp_path: Path) -> None:
    def stamp(query: bytes) -> tuple[int, bytes]:
        (authority / "query.tsq").write_bytes(query)
        return 200, openssl(
            authority, "ts", "-reply", "-queryfile", "query.tsq", "-config", "tsa.cnf", "-section", "one"
        )

    roots = (authority / "ca.pem").read_text()
    with serving(stamp) as (url, _):
        settings = settings_with(tmp_path, f"tsa+{url}", roots=roots)
        for number in range(2):
            (sent,) = send(scribe, settings, number)
            assert (sent.failed, sent.sent) == (None, 1)
    assert wiring.check_witnesses(settings, scribe.store) == ([], [], 2, 2)
    found = wiring.check_witnesses(settings_with(tmp_path), scribe.store)
    assert found is not None
    assert "2 time stamps" in found[1][0]
    answers = tmp_path / "answers.jsonl"
    first, second = (json.loads(line) for line in answers.read_bytes().splitlines())
    for changed, said in (
        (first | {"answer": second["answer"]}, "of something else"),
        (first | {"answer": first["answer"][:-8] + "AAAAAAA="}, "is not good"),
        (first | {"answer": None}, "is not good"),
        (first | {"sha256": second["sha256"]}, "another checkpoint of this number"),
        (first | {"sequence": 9}, "another checkpoint of this number"),
    ):
        answers.write_text(json.dumps(changed) + "\n")
        found = wiring.check_witnesses(settings, scribe.store)
        assert found is not None
        assert said in found[0][0][1]
    openssl(authority, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
            "other.key", "-out", "other.pem", "-subj", "/CN=root", "-config", "/dev/null")  # fmt: skip
    answers.write_text(json.dumps(first) + "\n")
    other = settings_with(tmp_path, roots=(authority / "other.pem").read_text())
    found = wiring.check_witnesses(other, scribe.store)
    assert found is not None
    assert "is not good" in found[0][0][1]


def test_a_file_of_answers_that_is_gone_was_not_checked(scribe: Scribe, tmp_path: Path) -> None:
    settings = settings_with(tmp_path)
    found = wiring.check_witnesses(settings, scribe.store)
    assert found is not None
    assert found[0] == []
    assert found[1] == [f"what witnesses answered: there is no file {settings.audit.witness_answers}"]
    assert found[2:] == (0, 0)


@pytest.mark.parametrize("answer", [(302, b""), (200, b"x" * 70_000), (404, b"")])
def test_what_is_no_answer_is_told_and_sent_again(
    scribe: Scribe, answer: tuple[int, bytes], tmp_path: Path
) -> None:
    with serving(lambda _: answer) as (url, _):
        for address in (url, f"tsa+{url}"):
            (sent,) = send(scribe, settings_with(tmp_path, address), len(address))
            assert sent.failed
            assert sent.sent == 0
    with serving(lambda _: (200, b"not a time stamp")) as (url, _):
        (sent,) = send(scribe, settings_with(tmp_path, f"tsa+{url}"), 99)
        assert sent.failed == "the answer is not a time stamp"
    assert not (tmp_path / "answers.jsonl").exists()


def test_nothing_waits_for_a_witness(scribe: Scribe, tmp_path: Path) -> None:
    """The thread of the others wakes it and goes on; it shows what it could not send."""
    shown: list[tuple[str, float, bool]] = []
    told, release = threading.Event(), threading.Event()

    def show(kind: str, seconds: float, failed: bool) -> None:
        shown.append((kind, seconds, failed))
        told.set()

    def hang(_: bytes) -> tuple[int, bytes]:
        release.wait(240)
        return 500, b""

    with serving(hang) as (url, _):
        settings = settings_with(tmp_path, url)
        scribe.deliver([event("best", 1)])
        wiring.checkpointer(settings, scribe.store).make()
        others = wiring.witnesses(settings, scribe.store, show=show)
        others.wake()
        others.wake()
        scribe.deliver([event("best", 2)])
        assert not shown, "the witness has not answered, and nothing waited until it did"
        release.set()
        assert told.wait(240)
    assert shown[0][0] == "http"
    assert shown[0][1] > 0
    assert shown[0][2]


@pytest.mark.parametrize(
    "address", ["", " ", "tsa+kept.jsonl", "ftp://somewhere/x", "https://", "tsa+https://"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="a witness is a file"):
        witness(address)


def test_the_command(
    scribe: Scribe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STREAMER_DATABASE_URL", scribe.settings.database.url)
    monkeypatch.setenv("STREAMER_AUDIT_PRIVATE_KEY", PRIVATE)
    file = tmp_path / "witness.jsonl"
    assert main(["audit", "checkpoint", "--witness", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["witnesses"] == [
        {"witness": str(file), "sent": 1, "failed": None}
    ]
    assert main(["audit", "checkpoint", "--witness", "https://127.0.0.1:1/x"]) == 2
    assert "STREAMER_AUDIT_WITNESS_ANSWERS" in capsys.readouterr().err
    monkeypatch.setenv("STREAMER_AUDIT_WITNESS_ANSWERS", str(tmp_path / "answers.jsonl"))
    assert main(["audit", "checkpoint", "--witness", "https://127.0.0.1:1/x?secret=1"]) == 1
    printed = capsys.readouterr().err
    assert "https://127.0.0.1:1/x did not take a checkpoint" in printed
    assert "secret" not in printed
    with serving(lambda _: (200, b"seen")) as (url, _):
        assert main(["audit", "checkpoint", "--witness", url]) == 0
    capsys.readouterr()
    assert main(["audit", "verify", "--checkpoints", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["answers of witnesses"] == 1
    (tmp_path / "answers.jsonl").write_text(
        (tmp_path / "answers.jsonl").read_text().replace('"sha256": "', '"sha256": "0')
    )
    assert main(["audit", "verify", "--checkpoints", str(file)]) == 3
    assert "the witness was given another checkpoint of this number" in capsys.readouterr().out
