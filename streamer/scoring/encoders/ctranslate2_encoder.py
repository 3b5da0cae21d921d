"""Texts to unit vectors with CTranslate2 on CPU, each vector a function of its text alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import structlog
from numpy.typing import NDArray

from streamer.errors import UsageError
from streamer.scoring.encoders.identity import EncoderIdentity
from streamer.scoring.encoders.plain_bert import WORDS_OF_A_TRIAL, PlainBert, load_model, load_tokenizer
from streamer.scoring.encoders.threads import Progress, encoder_threads, run_passes
from streamer.scoring.encoders.tokenizing import tokenized

if TYPE_CHECKING:
    import ctranslate2

log = structlog.get_logger(__name__)

_TOKENS = 1024
"""Of one pass, at most: more gain nothing, and leave threads without work at a call's end."""
_LEAST_TOKENS = 16
"""Of one pass: the library multiplies by another routine where a matrix has fewer than four rows."""
_PROBE = "The capital of France is Paris, and it has been for a very long time, as everybody knows. " * 24
_PROBE_WORDS = (0, 1, 4, 5, 12, 24, 60, 400)
_PROBE_ROWS = (2, 3, 7, 20)

_tokens_of_a_pass: dict[EncoderIdentity, int] = {}
"""What has been found out in this process: it takes a second, and follows from the engine, the processor and the shapes."""


def normalized(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """`rows` at length 1, shape kept; a row of zeros stays. Each row by itself, to the last bit."""
    made: NDArray[np.float32] = rows / np.maximum(
        np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12)
    )
    return made


class CTranslate2Encoder:
    """A plain BERT with mean pooling whose vectors do not depend on what else is encoded, or in
    which order.

    A pass holds texts of one length in tokens, so nothing is padded, and runs on one thread; a
    small one is filled up with its last text. Where a row's bits still depend on how many rows
    there are, each text has a pass to itself; that is tried when a process loads the model for the
    first time. Rows are bit-equal between calls, orders, processes and thread counts on one kind of
    CPU and one version of CTranslate2. Calls from several threads are safe; they share the threads,
    `at_once` of them.

    `threads` >= 1; None: as many as this process may use, at most 32. `unit` False leaves out the
    normalisation, so that rows keep the length that pooling gives them. `strict` False gives every
    text a vector, of what the model takes of it, as the paper's experiments do. Raises `UsageError`
    where the model cannot be loaded, does not have the identity's dimension, or makes vectors that
    are not finite.
    """

    device = "cpu"

    def __init__(
        self,
        model: PlainBert,
        identity: EncoderIdentity,
        *,
        threads: int | None = None,
        unit: bool = True,
        strict: bool = True,
    ) -> None:
        threads = encoder_threads(threads)
        self._identity = identity
        self._tokenizer = load_tokenizer(model)
        self._model = load_model(model, self._tokenizer, threads=threads)
        self._unit = unit
        self._strict = strict
        self.at_once = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="encoder")
        for tokens in self._probes():
            alone = _pooled(self._model, [tokens])
            if alone.shape[1] != self._identity.dimension:
                raise UsageError(
                    f"{self._identity.id} makes {alone.shape[1]} numbers a text, its files say {self._identity.dimension}"
                )
            if not np.isfinite(alone).all():
                raise UsageError(
                    f"{self._identity.id} makes vectors that are not finite: its weights are damaged"
                )
        self._tokens = self._tokens_of_a_pass(model)

    @property
    def identity(self) -> EncoderIdentity:
        """Of the files that were loaded, and of this engine."""
        return self._identity

    def encode(self, texts: Sequence[str], *, progress: Progress = None) -> NDArray[np.float32]:
        """Rows of shape (len(texts), dimension), unit rows by default; see `streamer.scoring.encoders.encoder.Encoder`."""
        vectors = np.empty((len(texts), self._identity.dimension), dtype=np.float32)
        read = tokenized(self._tokenizer, texts, vectors, strict=self._strict)
        places, tokens = list(read), [one.ids for one in read.values()]
        if progress is not None and len(read) < len(texts):
            progress(len(texts) - len(read))

        def run(members: Sequence[int]) -> int:
            vectors[[places[index] for index in members]] = self._forward(
                [tokens[index] for index in members]
            )
            return len(members)

        run_passes(self._pool, run, self._passes(tokens), progress)
        return vectors

    def close(self) -> None:
        """End the worker threads; later calls of `encode` fail. Waits for what runs."""
        self._pool.shutdown()

    def _passes(self, tokens: Sequence[Sequence[int]]) -> list[list[int]]:
        """Every index of `tokens` once, with others of its length; the largest passes first, so that threads end together."""
        by_length: defaultdict[int, list[int]] = defaultdict(list)
        for index, of_text in enumerate(tokens):
            by_length[len(of_text)].append(index)
        passes = []
        for length, members in by_length.items():
            rows = max(1, self._tokens // length)
            passes += [members[start : start + rows] for start in range(0, len(members), rows)]
        return sorted(passes, key=lambda members: len(members) * len(tokens[members[0]]), reverse=True)

    def _forward(self, tokens: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Rows of texts of one length."""
        rows = _pooled(self._model, tokens)
        return normalized(rows) if self._unit else rows

    def _tokens_of_a_pass(self, model: PlainBert) -> int:
        """Find out whether a row's bits depend on how many rows a pass has; 0 where they do.

        One layer tells: all have the same shapes, so the library multiplies in each by the same routines.
        """
        known = _tokens_of_a_pass.get(self._identity)
        if known is not None:
            return known
        found = _TOKENS
        layer = load_model(model, self._tokenizer, threads=1, layers=1)
        for place, probe in enumerate(self._probes()):
            tokens = [number % WORDS_OF_A_TRIAL for number in probe]
            alone = _pooled(layer, [tokens])
            full = _TOKENS // len(tokens)
            # A full pass of the shortest texts has the most rows.
            for rows in _PROBE_ROWS if place else (*_PROBE_ROWS, full):
                if found and rows * len(tokens) <= _TOKENS:
                    others = [list(reversed(tokens))] * (rows - 1)
                    together = _pooled(layer, [*others, tokens])
                    if together[-1].tobytes() != alone[0].tobytes():
                        log.warning("encoder.one_text_a_pass", tokens=len(tokens), rows=rows)
                        found = 0
        _tokens_of_a_pass[self._identity] = found
        return found

    def _probes(self) -> list[list[int]]:
        words = _PROBE.split()
        return [self._tokenizer.encode(" ".join(words[:count])).ids for count in _PROBE_WORDS]


def _pooled(model: ctranslate2.Encoder, tokens: Sequence[Sequence[int]]) -> NDArray[np.float32]:
    """Means over the tokens of texts of one length, one row a text."""
    length = len(tokens[0])
    missing = -(-_LEAST_TOKENS // length) - len(tokens)
    filled = [*tokens, *([tokens[-1]] * missing)]
    hidden = np.asarray(model.forward_batch(filled).last_hidden_state)[: len(tokens)]
    rows: NDArray[np.float32] = hidden.sum(axis=1) / np.float32(length)
    return rows
