"""An endpoint on loopback that speaks OpenAI's protocol and answers as a test has told it to."""

import base64
import json
import math
import struct
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.services.loopback import Asked, Loopback


@dataclass(frozen=True)
class ChatRequest:
    """What a client sent: the number of the request, from 0, its headers (small letters) and its JSON."""

    number: int
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def texts(self) -> list[str]:
        """The contents of the messages."""
        return [message["content"] for message in self.body["messages"]]

    @property
    def inputs(self) -> list[str]:
        """The texts whose embeddings are asked for."""
        return list(self.body["input"])


@dataclass(frozen=True)
class ChatReply:
    """What the endpoint answers.

    Attributes
    ----------
    content : the model's text, put into a completion; not used where `raw` is given.
    id : the completion's; another one each time where it is empty.
    message : further members of each message, or others in their place.
    further : the texts of further choices, for requests that want several.
    logprobs : for each choice the log-probability of each of its two tokens; none where there are no numbers.
    top : for each of the two tokens the probabilities of the likeliest.
    raw : the response's body as it is.
    after : seconds before the response begins.
    drip : seconds between any two bytes of the body; 0 sends it at once.
    hang_up : close the connection without a response.
    """

    content: str | None = None
    further: Sequence[str | None] = ()
    id: str = ""
    message: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    refusal: str | None = None
    logprobs: Sequence[float] = ()
    top: Sequence[Sequence[float]] = ((), ())
    finish_reason: str = "stop"
    usage: Mapping[str, int] | None = field(
        default_factory=lambda: {"prompt_tokens": 400, "completion_tokens": 50, "total_tokens": 450}
    )
    after: float = 0.0
    drip: float = 0.0
    hang_up: bool = False

    def body(self, model: str) -> bytes:
        if self.raw is not None:
            return self.raw
        if self.status != 200:
            return json.dumps({"error": {"message": "as the test told it to", "code": None}}).encode()
        completion = {
            "id": self.id or f"chatcmpl-{uuid.uuid4()}",
            "object": "chat.completion",
            "created": 1,
            "model": f"{model}-2026",
            "system_fingerprint": "fp_1",
            "choices": [
                {
                    "index": index,
                    "finish_reason": self.finish_reason,
                    "message": {
                        "role": "assistant",
                        "content": content,
                        "refusal": self.refusal,
                        **self.message,
                    },
                    "logprobs": {
                        "content": [
                            {
                                "token": token,
                                "logprob": self.logprobs[index],
                                "bytes": None,
                                "top_logprobs": [
                                    {"token": "a", "logprob": math.log(one), "bytes": None} for one in top
                                ],
                            }
                            for token, top in zip("ab", self.top, strict=True)
                        ]
                    }
                    if self.logprobs
                    else None,
                }
                for index, content in enumerate((self.content, *self.further))
            ],
            "usage": self.usage,
        }
        return json.dumps(completion).encode()


def refusal_of_a_parameter(name: str, *, value: bool = False) -> ChatReply:
    """What OpenAI's own endpoint answers where a model does not take a parameter, or not this value of it."""
    code = "unsupported_value" if value else "unsupported_parameter"
    message = f"Unsupported {'value' if value else 'parameter'}: '{name}' is not supported with this model."
    error = {"message": message, "type": "invalid_request_error", "param": name, "code": code}
    return ChatReply(status=400, raw=json.dumps({"error": error}).encode())


def embeddings(
    request: ChatRequest, rows: Sequence[Sequence[float]], *, indices: Sequence[int] | None = None
) -> ChatReply:
    """What OpenAI's endpoint answers to a request for embeddings: in base64 where the client wants it so; 3 tokens a text."""
    packed = request.body.get("encoding_format") == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode()
            if packed
            else list(row),
        }
        for index, row in zip(range(len(rows)) if indices is None else indices, rows, strict=True)
    ]
    tokens = 3 * len(request.inputs)
    reply = {
        "object": "list",
        "data": data,
        "model": request.body["model"],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return ChatReply(raw=json.dumps(reply).encode())


class HeldUp:
    """Answers `reply`, but from the request of this number on only when it may `go_on`: no run ends before."""

    def __init__(self, number: int, reply: Callable[[ChatRequest], ChatReply]) -> None:
        self._number, self._reply = number, reply
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __call__(self, request: ChatRequest) -> ChatReply:
        if request.number >= self._number:
            self.reached.set()
            self.go_on.wait(240)
        return self._reply(request)


class OpenAIServer(Loopback):
    """Serves OpenAI's protocol on a free loopback port. A context manager.

    Parameters
    ----------
    answer : the reply to each request; called from several threads.

    Attributes
    ----------
    requests : what came, in order of arrival.
    most_in_flight : the most requests that were being answered at one time.
    """

    def __init__(self, answer: Callable[[ChatRequest], ChatReply]) -> None:
        super().__init__()
        self.requests: list[ChatRequest] = []
        self.most_in_flight = 0
        self._answer = answer
        self._in_flight = 0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The base URL to give to a client."""
        return f"{self.address}/v1"

    def respond(self, asked: Asked, body: bytes) -> None:
        sent = json.loads(body)
        with self._lock:
            headers = {name.lower(): value for name, value in asked.headers.items()}
            request = ChatRequest(len(self.requests), asked.path, headers, sent)
            self.requests.append(request)
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            reply = self._answer(request)
            self.stopping.wait(reply.after)
            if reply.hang_up:
                asked.close_connection = True
                return
            self._send(asked, reply, sent["model"])
        except (BrokenPipeError, ConnectionResetError):
            asked.close_connection = True  # the client has given up, as some tests want it to
        finally:
            with self._lock:
                self._in_flight -= 1

    def _send(self, asked: Asked, reply: ChatReply, model: str) -> None:
        body = reply.body(model)
        asked.begin(reply.status, len(body), **{"content-type": "application/json"} | reply.headers)
        if reply.drip == 0:
            asked.wfile.write(body)
            return
        for byte in body:
            asked.wfile.write(bytes([byte]))
            asked.wfile.flush()
            if self.stopping.is_set():
                return
            time.sleep(reply.drip)
