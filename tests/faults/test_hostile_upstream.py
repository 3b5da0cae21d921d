"""Whoever answers by HTTP may send anything: no reader of a reply grows by 64 MiB, and what came stays on record."""

import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from streamer.scoring.signals.signal_list import signal_list
from tests.faults.endpoint import Site
from tests.faults.matrix import LONG, Matrix
from tests.faults.oracle import Findings
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.history import export, settings_for
from tests.services.loopback import Asked, Loopback

MOST_GROWTH = 64 * 2**20
MIB = b" " * 2**20


def good(n: int = 1) -> bytes:
    choices = [{"message": {"content": "Paris."}, "finish_reason": "stop"}] * n
    return json.dumps({"choices": choices}).encode()


def bomb() -> bytes:
    """390 kB that unpack to 400 MB, each 64 KiB packed once and put together as members of a stream would be."""
    return gzip.compress(b" " * 400_000_000, 6)


def many(one: bytes, size: int, before: bytes, after: bytes) -> bytes:
    """As many of one thing as fit."""
    return before + b",".join([one] * ((size - len(before + after)) // (len(one) + 1))) + after


CHAT = 4 * 2**20
EMBEDDINGS = 4 * CHAT
BODIES: dict[str, Callable[[], tuple[dict[str, str], bytes]]] = {
    "bomb": lambda: ({"Content-Encoding": "gzip"}, bomb()),
    "lists": lambda: ({}, many(b"[]", CHAT, b'{"choices": [', b"]}")),
    "choices": lambda: ({}, many(b'{"message":{}}', CHAT, b'{"choices": [', b"]}")),
    "logprobs": lambda: (
        {},
        many(b'{"logprob":0}', CHAT, b'{"choices": [{"message": {}, "logprobs": {"content": [', b"]}}]}"),
    ),
    "likeliest": lambda: (
        {},
        many(
            b'{"logprob":0}',
            CHAT,
            b'{"choices": [{"message": {}, "logprobs": {"content": [{"logprob":0,"top_logprobs":[',
            b"]}]}}]}",
        ),
    ),
    "parts": lambda: ({}, many(b'{"type":""}', CHAT, b'{"choices": [{"message": {"content": [', b"]}}]}")),
    "calls": lambda: ({}, many(b"{}", CHAT, b'{"choices": [{"message": {"tool_calls": [', b"]}}]}")),
    "numbers in a call": lambda: (
        {},
        json.dumps(
            {
                "choices": [
                    {
                        "message": {
                            "tool_calls": [{"function": {"name": "a", "arguments": f"[{'1e399,' * 8_000}1]"}}]
                        }
                    }
                ]
            }
        ).encode(),
    ),
    "wide text": lambda: (
        {},
        b'{"choices": [{"message": {"content": "' + "\U0001f5fc".encode() + b"x" * (CHAT - 100) + b'"}}]}',
    ),
    "nested": lambda: ({}, b'{"choices": ' + b"[" * (CHAT // 2)),
    "embeddings": lambda: ({}, many(b'{"index":0,"embedding":0}', EMBEDDINGS, b'{"data": [', b"]}")),
    "numbers": lambda: (
        {},
        b'{"data": [' + many(b"0", EMBEDDINGS - 60, b'{"index": 0, "embedding": [', b"]}]}"),
    ),
    "error": lambda: ({}, MIB * 4),
}
"""Of these, what is not of a reader's form is refused at once."""


class Hostile(Loopback):
    """Sends 3,000 MB in pieces for ``endless``, else the body of `BODIES` that its `way` names."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies = {name: make() for name, make in BODIES.items()} | {
            "good": ({}, good(4)),
            "one": ({}, good()),
        }
        self.way = "good"

    @property
    def url(self) -> str:
        return f"{self.address}/v1"

    def respond(self, asked: Asked, body: bytes) -> None:
        with suppress(OSError):
            getattr(self, f"_{self.way}", self._body)(asked)

    def _body(self, asked: Asked) -> None:
        headers, body = self.bodies[self.way]
        asked.answer(body, 500 if self.way == "error" else 200, **headers)

    def _endless(self, asked: Asked) -> None:
        asked.begin(200, content_type="application/json", transfer_encoding="chunked")
        for _ in range(3_000):
            asked.wfile.write(b"100000\r\n" + MIB + b"\r\n")

    def _cookies(self, asked: Asked) -> None:
        asked.answer(b"", 429, set_cookie=f"{threading.get_ident()}={'x' * 60_000}")


@pytest.fixture(scope="module")
def hostile() -> Iterator[Hostile]:
    with Hostile() as server:
        yield server


WAYS = ("endless", *BODIES, "cookies")


def test_no_reply_of_an_upstream_fills_the_service(
    tmp_path: Path, migrated_sqlite_url: str, hostile: Hostile, matrix: Matrix
):
    with closing(Site(migrated_sqlite_url, tmp_path)) as site:
        for gate in ("bot", "one-by-one"):
            site.gate(
                gate, scorer="choice", encoder="any@12345678",
                signals=signal_list(["token_entropy"]).text, segment_by="upstream",
            )  # fmt: skip
        upstreams = {
            gate: {"base_url": hostile.url, "model": "m", "answers": 32, "tries": 2, "tools": "judge", **own}
            for gate, own in (("bot", {}), ("one-by-one", {"per_request": 1}))
        }
        endpoint = site.serve("--wait", "60", STREAMER_UPSTREAMS=json.dumps(upstreams))

        def ask(gate: str) -> dict[str, Any]:
            tools = [{"type": "function", "function": {"name": "a"}}]
            body = {"model": gate, "messages": [{"role": "user", "content": "Who?"}], "tools": tools}
            return endpoint.client.post("/v1/chat/completions", json=body).json()["streamer"]

        hostile.way = "one"
        for gate in upstreams:
            ask(gate)
        before = endpoint.peak_bytes()
        for turn, gate in enumerate(upstreams):
            for hostile.way in WAYS if LONG else list(WAYS)[turn::2]:
                told = ask(gate)
                assert told["action"] == "abstain", hostile.way
                assert told["calls"] > 0, hostile.way
                grown = endpoint.peak_bytes() - before
                assert grown < MOST_GROWTH, f"{hostile.way} at {gate}: {grown / 2**20:.0f} MiB"
        site.check()
        export(settings_for(migrated_sqlite_url, tmp_path), tmp_path / "bundle.zip")
        assert verify_bundle(tmp_path / "bundle.zip", [], None).faults == []  # what no answer came for, too
        decided = len(site.recorded())
        matrix.add(
            "31 by HTTP: an upstream that sends 3,000 MB, a gzip bomb and ten other ways",
            Findings(decided, 0, 0, decided, 0, 0, 0, 0, 0),
        )


READERS = {
    "chat": """
import asyncio, random, time
from streamer.labels.llm import ChatEndpoint, Message
from streamer.labels.llm.client import Chat
async def once():
    chat = Chat(ChatEndpoint(model="m", base_url=URL, tries=1), sleep=asyncio.sleep, jitter=random.random, clock=time.monotonic)
    await chat.ask((Message("user", "Who?"),), {"model": "m"})
    await chat.close()
def read(): asyncio.run(once())
""",
    "encoder": """
from streamer.labels.llm.embeddings import Embeddings, EmbeddingsEndpoint
asked = Embeddings(EmbeddingsEndpoint(model="m", base_url=URL, tries=1))
def read(): list(asked.vectors([str(one) for one in range(1000)]))
""",
    "issuer": """
from datetime import UTC, datetime
import time
from streamer.console.oidc import Issuer, Registration
issuer = Issuer(Registration(issuer=URL, client_id="c"), redirect=URL, clock=lambda: datetime.now(UTC), monotonic=time.monotonic)
def read(): issuer.metadata()
""",
    "witness": """
from streamer.audit.witnesses import _post
def read(): _post(URL, b"checkpoint")
""",
    "client": """
from streamer_client import Client
client = Client(URL)
def read(): client.gate("bot", deadline=60)
""",
}
MEASURED = """
import sys
URL = sys.argv[1]
READER
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:"))
before = None
for line in sys.stdin:
    try:
        read()
        said = "read"
    except Exception as error:
        said = type(error).__name__
    now = peak()
    before = now if before is None else before
    print(said, 1024 * (now - before), flush=True)
"""


@pytest.mark.parametrize("name", READERS)
def test_no_reply_fills_who_reads_it(hostile: Hostile, name: str):
    code = MEASURED.replace("READER", READERS[name])
    with subprocess.Popen(
        [sys.executable, "-c", code, hostile.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        for hostile.way in ("good", *WAYS):
            reader.stdin.write("again\n")
            reader.stdin.flush()
            said, grown = reader.stdout.readline().split()
            assert said not in ("RecursionError", "MemoryError"), hostile.way
            assert int(grown) < MOST_GROWTH, f"{hostile.way}: {int(grown) / 2**20:.0f} MiB, {said}"
        reader.stdin.close()
