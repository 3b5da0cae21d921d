"""Vectors of texts from an endpoint that speaks OpenAI's embeddings protocol, many requests at once."""

import asyncio
import base64
import itertools
import random
import re
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from streamer.errors import BadData, Unavailable
from streamer.labels.llm.client import LLMClient, RequestFailed
from streamer.labels.llm.completions import NOTHING, member, text_of
from streamer.labels.llm.endpoint import ChatEndpoint
from streamer.labels.llm.pace import Pace
from streamer.labels.llm.pool import Pool
from streamer.labels.llm.record import Exchange, Message, Price, TokenUsage
from streamer_client.door import MOST_BYTES, Reply, ReplyFailed, read_json

_STATUS = re.compile(r"\d{3}(?=:)")
_TEXTS = 128
_OBJECTS = 8 * _TEXTS
_VECTOR_BYTES = 2**19
"""Of one vector in a reply, at most: 20,000 numbers as they are written."""
_BYTES = 200_000
"""Of one request, at most, but for a single text: OpenAI takes 300,000 tokens, and a token is at least a byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingsEndpoint(ChatEndpoint):
    """Where the model is and how it is asked; `price` is of its tokens, None: not known."""

    whose: ClassVar[str] = "the encoder's"

    price: Price | None = None


class Embeddings:
    """Asks a model for the vectors of texts. Implements
    `streamer.scoring.encoders.endpoint_encoder.EmbeddingRequests`.

    `tokens` are of all texts so far, as the endpoint counted them. Raises `UsageError` when the
    extra is not installed. Thread-safe. Requests run on an event loop in a thread of its own, at
    most `endpoint.concurrency` at a time. Call `close` at the end.
    """

    def __init__(self, endpoint: EmbeddingsEndpoint) -> None:
        self._endpoint = endpoint
        pace = Pace(clock=time.monotonic, sleep=asyncio.sleep)
        self._requests = _Requests(
            endpoint, sleep=asyncio.sleep, jitter=random.random, clock=time.monotonic, pace=pace
        )
        self._pool = Pool("encoder-endpoint")
        self.tokens = 0

    @property
    def model(self) -> str:
        """The model's name at the endpoint."""
        return self._endpoint.model

    @property
    def host(self) -> str:
        """The host that gets the texts."""
        return self._endpoint.host

    @property
    def cost(self) -> Decimal | None:
        """What all texts so far cost, in the price list's currency; None without a price."""
        price = self._endpoint.price
        return None if price is None else price.cost(TokenUsage(self.tokens, 0))

    def vectors(
        self, texts: Sequence[str], dimensions: int | None = None
    ) -> Generator[tuple[slice, NDArray[np.float32]]]:
        """Yield the vectors of texts as they come: which texts, and rows of shape (how many, d).

        None of the texts is empty. `dimensions` is the length to ask for; None: the model's own.
        Rows of another length are yielded as they are. Raises `Unavailable` when the endpoint is
        unavailable, busy or failing, or replies with something else, after all tries; `UsageError`
        when it takes no request at all: wrong key, unknown model, no credit left; `BadData` when it
        does not take one of these texts, or its vector of one is no direction.
        """
        parameters: dict[str, object] = {"model": self.model}
        if dimensions is not None:
            parameters["dimensions"] = dimensions
        parts = list(_parts(texts))
        jobs = (partial(self._ask, texts[part], parameters) for part in parts)
        with closing(self._pool.finished(jobs, ahead=2 * self._endpoint.concurrency)) as groups:
            for group in groups:
                yield from ((parts[number], rows) for number, rows in group)

    def close(self) -> None:
        """Cancel what is asked and close the connections. May be called twice."""
        self._pool.close(self._requests.close)

    async def _ask(self, texts: Sequence[str], parameters: Mapping[str, object]) -> NDArray[np.float32]:
        messages = tuple(Message("user", text) for text in texts)
        exchanges = await self._requests.ask(messages, parameters)
        last = exchanges[-1]
        if last.vectors is None:
            raise self._unanswered(last)
        self.tokens += last.usage.prompt if last.usage else 0
        return last.vectors

    def _unanswered(self, exchange: Exchange) -> Exception:
        # Of a refusal the status alone: what an endpoint says of a request may quote people's texts.
        status = _STATUS.match(exchange.detail or "")
        detail = exchange.detail if status is None else f"status {status[0]}"
        said = f"{self.host}, model {self.model}, {exchange.problem}: {detail}"
        if exchange.problem in ("rejected", "malformed_reply"):
            return BadData(f"the encoder's endpoint gives no vectors of these texts ({said})")
        return Unavailable(f"the encoder's endpoint does not answer ({said})")


class _Embedding(msgspec.Struct, gc=False):
    index: int
    embedding: Raw


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int


class _Found(msgspec.Struct, gc=False):
    data: list[_Embedding]
    model: Raw = NOTHING
    usage: Raw = NOTHING


class _Requests(LLMClient):
    """Asks for the vectors of some texts, a text a message."""

    path = "/embeddings"
    most = 4 * MOST_BYTES

    def body(self, messages: tuple[Message, ...]) -> dict[str, Any]:
        return {"input": [message.content for message in messages], "encoding_format": "base64"}

    def read(self, reply: Reply, messages: tuple[Message, ...]) -> dict[str, Any]:
        if reply.content.count(b"{") > _OBJECTS:
            raise RequestFailed("server_error", f"the reply holds more than {_OBJECTS} objects")
        found: _Found = read_json(reply.content, _Found)
        places = [one.index for one in found.data]
        if places != list(range(len(messages))):
            # Whether the place or the number is right cannot be told.
            raise RequestFailed(
                "server_error",
                f"{len(messages)} texts were sent, and embeddings of the numbers {_shown(places)} came, in this order",
            )
        rows = _rows([one.embedding for one in found.data])
        good = np.isfinite(rows).all(axis=1) & rows.any(axis=1)
        if not good.all():
            raise RequestFailed(
                "malformed_reply",
                f"embedding {int(good.argmin())} has numbers that are not finite, or only zeros",
            )
        usage = member(found.usage, _Usage)
        return {
            "vectors": rows,
            "model": text_of(member(found.model, str)),
            "usage": None if usage is None or usage.prompt_tokens < 0 else TokenUsage(usage.prompt_tokens, 0),
        }


def _rows(vectors: Sequence[Raw]) -> NDArray[np.float32]:
    """Vectors of one length, each a list of numbers or their bytes in base64. Raises `RequestFailed`."""
    rows = np.empty((len(vectors), 0), dtype=np.float32)
    try:
        for number, vector in enumerate(vectors):
            row = _row(vector)
            if number == 0:
                rows = np.empty((len(vectors), len(row)), dtype=np.float32)
            if not len(row) == rows.shape[1] > 0:
                raise ValueError
            rows[number] = row
    except (ReplyFailed, ValueError):
        raise RequestFailed("server_error", "the reply holds no list of embeddings of one length") from None
    return rows


def _row(vector: Raw) -> NDArray[np.float32]:
    written = memoryview(vector)
    if len(written) > _VECTOR_BYTES:
        raise ValueError
    if bytes(written[:1]) == b'"':
        return np.frombuffer(base64.b64decode(read_json(vector, str), validate=True), dtype="<f4")
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
        return np.array(read_json(vector, list[float]), dtype=np.float32)


def _parts(texts: Sequence[str]) -> Iterator[slice]:
    """Return how texts are parted into requests."""
    start, size = 0, 0
    for place, text in enumerate(texts):
        length = len(text.encode("utf-8", "surrogatepass"))
        if place - start == _TEXTS or (place > start and size + length > _BYTES):
            yield slice(start, place)
            start, size = place, 0
        size += length
    if texts:
        yield slice(start, len(texts))


def _shown(places: Sequence[object]) -> str:
    first = ", ".join(str(place)[:20] for place in itertools.islice(places, 8))
    return f"{first}, ..." if len(places) > 8 else first or "none"
