"""Texts to unit vectors by a model at an OpenAI-compatible endpoint, which may be unavailable."""

import hashlib
import math
import re
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from decimal import Decimal
from typing import Protocol

import numpy as np
import structlog
from numpy.typing import NDArray

from streamer.errors import BadData, EncoderGivenUp, Unavailable, UsageError
from streamer.scoring.blank import is_blank
from streamer.scoring.encoders.encoder import PartlyEncoded
from streamer.scoring.encoders.identity import ENDPOINT_PREFIX, EncoderIdentity
from streamer.scoring.encoders.threads import Progress

log = structlog.get_logger(__name__)

_NAME = re.compile(rf"(?P<name>{ENDPOINT_PREFIX}[!-~]+?)(?:@(?P<dimension>[1-9][0-9]{{0,5}}))?")
_PROBE = "Paris"
_ASK_EVERY = 10.0
"""Seconds between two questions to an endpoint that has been given up."""


class EmbeddingRequests(Protocol):
    """What asks a model at an endpoint; `streamer.labels.llm.embeddings.Embeddings` does."""

    @property
    def host(self) -> str:
        """The host that gets the texts."""

    @property
    def tokens(self) -> int:
        """How many tokens the endpoint has counted so far."""

    @property
    def cost(self) -> Decimal | None:
        """Of all texts so far; None where no price is known."""

    def vectors(
        self, texts: Sequence[str], dimensions: int | None = None
    ) -> Generator[tuple[slice, NDArray[np.float32]]]:
        """Yield which of `texts` have been answered, and their finite rows, none of them zero, shape (how many, d).

        Raises `Unavailable`, `UsageError` where the endpoint takes no request at all, and `BadData` for texts that
        it does not take.
        """

    def close(self) -> None:
        """End what is asked."""


def is_endpoint_name(name: str) -> bool:
    """Whether an encoder's name is of a model at an endpoint."""
    return name.startswith(ENDPOINT_PREFIX)


def parted_name(name: str) -> tuple[str, int | None]:
    """Return ``openai:MODEL`` and the dimension that a name gives, if it does. Raises `UsageError` for no such name."""
    found = _NAME.fullmatch(name)
    if found is None or len(name) > 190:
        raise UsageError(
            f"{name!r} is no encoder at an endpoint: write openai:MODEL or openai:MODEL@DIMENSION, at most 190 "
            "characters, none of them a space"
        )
    return found["name"], None if found["dimension"] is None else int(found["dimension"])


def model_of(name: str) -> str:
    """Return the model's name at its endpoint."""
    return parted_name(name)[0].removeprefix(ENDPOINT_PREFIX)


def endpoint_identity(name: str, dimension: int, host: str) -> EncoderIdentity:
    """Return what is known of the model ``openai:MODEL``: its name, its dimension, and who runs it."""
    digest = hashlib.sha256(f"{name}@{dimension}".encode()).hexdigest()
    return EncoderIdentity(name, host[:200], digest, dimension)


class EndpointEncoder:
    """A model behind OpenAI's embeddings protocol.

    The endpoint sees every text that has something to see; the row of a blank one is the first unit
    vector, and no scorer looks at it. Rows are made unit rows here. Equal texts have equal rows as
    far as the endpoint answers equally: put it behind a `CachedEncoder`. Calls from several threads
    are safe and run one after another: one call already has as many requests in flight as allowed.

    An endpoint that is unavailable, refuses every request (a key that was withdrawn) or answers
    with vectors of another length is waited for by whoever calls again after `Unavailable`. When
    that has gone on for `wait` seconds (>= 0, may be infinite; `clock` is monotonic) it is given
    up: calls raise `EncoderGivenUp` at once, and one in ten seconds asks again. `report_status` is
    called with whether the endpoint answers, from the thread that calls.

    A dimension that is not the model's own (see `parted_name`) is asked for with each request.
    `start_without`: make an encoder although the endpoint does not answer, if `name` gives the
    dimension. Raises `UsageError` where the endpoint takes no request, or has no vectors of that
    dimension; `Unavailable` where it does not answer.
    """

    device = "endpoint"

    def __init__(
        self,
        requests: EmbeddingRequests,
        name: str,
        *,
        wait: float = math.inf,
        start_without: bool = False,
        report_status: Callable[[bool], None] = lambda _up: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._requests = requests
        self._wait = wait
        self._report_status = report_status
        self._clock = clock
        self._lock = threading.Lock()
        self._away_since: float | None = None
        self._ask_again_at = float("-inf")
        self._shortened = False
        self._probed = False
        base, wanted = parted_name(name)
        try:
            own = self._probe(None)
        except Unavailable as error:
            if not start_without:
                raise
            if wanted is None:
                raise Unavailable(
                    f"{error}; an encoder named {base}@DIMENSION needs no answer to start"
                ) from error
            own = wanted
            log.warning("encoder.endpoint_away", error=str(error)[:300])
            report_status(False)
        except BadData as error:
            raise UsageError(f"{base} makes no vectors: {error}") from error
        self._identity = endpoint_identity(base, wanted or own, requests.host)
        if self._probed:
            self._settle(own)
            report_status(True)

    @property
    def identity(self) -> EncoderIdentity:
        """The model's name and dimension, and its endpoint's host."""
        return self._identity

    @property
    def tokens(self) -> int:
        """Tokens of all texts so far, as the endpoint counted them."""
        return self._requests.tokens

    @property
    def cost(self) -> Decimal | None:
        """What all texts so far cost; None where no price is known."""
        return self._requests.cost

    def encode(self, texts: Sequence[str], *, progress: Progress = None) -> NDArray[np.float32]:
        """Unit rows, shape (len(texts), dimension); see `streamer.scoring.encoders.encoder.Encoder`.

        Raises `Unavailable`: the endpoint does not answer; call again. Raises `EncoderGivenUp`: it
        has not answered for `wait` seconds. Raises `BadData`: the endpoint does not take one of the
        texts. Raises `PartlyEncoded`: in place of each of these where some texts have been
        answered; the error is its cause.
        """
        with self._lock:
            vectors = np.zeros((len(texts), self._identity.dimension), dtype=np.float32)
            vectors[:, 0] = 1.0
            seen = [place for place, text in enumerate(texts) if not is_blank(text)]
            if progress is not None and len(seen) < len(texts):
                progress(len(texts) - len(seen))
            if seen:
                self._fill(vectors, texts, seen, progress)
            return vectors

    def close(self) -> None:
        """End what is asked; later calls of `encode` fail."""
        self._requests.close()

    def _fill(
        self,
        vectors: NDArray[np.float32],
        texts: Sequence[str],
        seen: Sequence[int],
        progress: Progress,
    ) -> None:
        given_up = self._away_since is not None and self._clock() - self._away_since >= self._wait
        if given_up and self._clock() < self._ask_again_at:
            raise EncoderGivenUp("the encoder's endpoint still does not answer")
        done: list[int] = []
        try:
            if not self._probed:
                self._settle(self._probe(None))
            for part, rows in self._vectors([texts[place] for place in seen]):
                places = seen[part]
                vectors[places] = rows
                done += places
                if progress is not None:
                    progress(len(places))
        except BadData as error:
            self._answers()
            raise _partly(error, vectors, done) from error
        except (Unavailable, UsageError) as error:
            raise _partly(self._away(str(error)), vectors, done) from error
        self._answers()

    def _vectors(self, texts: Sequence[str]) -> Generator[tuple[slice, NDArray[np.float32]]]:
        wanted = self._identity.dimension
        with closing(self._requests.vectors(texts, wanted if self._shortened else None)) as answered:
            for part, rows in answered:
                if rows.shape[1] != wanted:
                    raise Unavailable(
                        f"{self._requests.host} makes {rows.shape[1]} numbers a text, and the encoder is {self._identity.id}"
                    )
                yield part, _unit(rows)

    def _probe(self, dimensions: int | None) -> int:
        """Return the length of a vector."""
        (answered,) = self._requests.vectors([_PROBE], dimensions)
        self._probed = True
        return int(answered[1].shape[1])

    def _settle(self, own: int) -> None:
        """Find out whether the dimension must be asked for; `own` is the model's. Raises `UsageError` if it cannot be had."""
        wanted = self._identity.dimension
        if own == wanted:
            return
        try:
            made = self._probe(wanted)
        except BadData:
            made = own
        if made != wanted:
            self._probed = False
            raise UsageError(
                f"the model {self._identity.name} at {self._requests.host} makes {made} numbers a text, not {wanted}: "
                f"name the encoder {self._identity.name}@{made}"
            )
        self._shortened = True

    def _answers(self) -> None:
        if self._away_since is not None:
            log.info("encoder.endpoint_back", seconds=round(self._clock() - self._away_since, 1))
        self._away_since = None
        self._report_status(True)

    def _away(self, detail: str) -> Unavailable | EncoderGivenUp:
        now = self._clock()
        self._report_status(False)
        if self._away_since is None:
            self._away_since = now
        if now - self._away_since < self._wait:
            return Unavailable(detail)
        self._ask_again_at = now + _ASK_EVERY
        log.error("encoder.endpoint_given_up", seconds=round(now - self._away_since, 1), error=detail[:300])
        return EncoderGivenUp(detail)


def _partly(error: Exception, vectors: NDArray[np.float32], done: Sequence[int]) -> Exception:
    return PartlyEncoded(error, {place: vectors[place] for place in done}) if done else error


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of length 1, of finite ones that are not zero."""
    wide = rows.astype(np.float64)
    wide /= np.abs(wide).max(axis=1, keepdims=True)  # first, so that squares neither overflow nor vanish
    made: NDArray[np.float32] = (wide / np.linalg.norm(wide, axis=1, keepdims=True)).astype(np.float32)
    return made
