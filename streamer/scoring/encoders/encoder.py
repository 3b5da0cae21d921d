"""What an encoder is to its users, and how many batches share one: each distinct text is encoded once."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.encoders.identity import EncoderIdentity
from streamer.scoring.encoders.threads import Progress

__all__ = ["DEFAULT_CAPACITY_TEXTS", "CachedEncoder", "Encoder", "EncoderIdentity", "PartlyEncoded"]

DEFAULT_CAPACITY_TEXTS = 50_000

_Digest = bytes


class PartlyEncoded(Exception):
    """An encoder failed, for the reason `error`, when it had done some texts, for which somebody
    may have to pay: their `rows` by places in the call.
    """

    def __init__(self, error: Exception, rows: Mapping[int, NDArray[np.float32]]) -> None:
        super().__init__(str(error))
        self.error = error
        self.rows = rows


class Encoder(Protocol):
    """What turns texts into vectors that the Gram scorer compares."""

    @property
    def identity(self) -> EncoderIdentity:
        """Never changes during the encoder's life."""

    def encode(self, texts: Sequence[str], *, progress: Progress = None) -> NDArray[np.float32]:
        """Unit rows, shape (len(texts), identity.dimension); equal texts have bit-equal rows in every call.

        A text that it does not read has a row of zeros where it is too long, of NaN where its characters are unknown; see
        `streamer.scoring.unread_answers`. `progress` is called with how many more texts are done, from the calling thread. May raise `PartlyEncoded`.
        """


class CachedEncoder:
    """An encoder that never encodes a text twice while it remembers it.

    Sampled answers repeat: of 10,000 short ones half were copies. Texts are remembered by their
    SHA-256, so a long text costs no more than a short one (its vector and about 300 bytes), and no
    text stays in memory; at most `capacity_texts` >= 0 of them, the least recently used leave
    first. `encoded_texts` were handed to the encoder so far; with `cache_hits` they are all that
    were asked for.

    Thread-safe. No lock is held while the encoder works, so calls that find everything remembered
    never wait for it; two calls that miss the same text at once both encode it, to the same bits.
    """

    def __init__(self, encoder: Encoder, capacity_texts: int = DEFAULT_CAPACITY_TEXTS) -> None:
        if capacity_texts < 0:
            raise ValueError(f"capacity_texts must be 0 or more, not {capacity_texts}")
        self._encoder = encoder
        self._capacity = capacity_texts
        self._rows: OrderedDict[_Digest, NDArray[np.float32]] = OrderedDict()
        self._unasked: set[_Digest] = set()
        self._lock = threading.Lock()
        self.encoded_texts = 0
        self.cache_hits = 0

    @property
    def encoder(self) -> Encoder:
        """The encoder within."""
        return self._encoder

    @property
    def identity(self) -> EncoderIdentity:
        """Of the encoder within."""
        return self._encoder.identity

    @property
    def capacity(self) -> int:
        """How many texts it remembers at most."""
        return self._capacity

    @property
    def at_once(self) -> int:
        """How many calls the encoder within runs side by side on this machine's processors; 0: it asks elsewhere."""
        return getattr(self._encoder, "at_once", 0)

    def __len__(self) -> int:
        """How many texts are remembered, at most `capacity_texts`."""
        return len(self._rows)

    def remember(self, texts: Sequence[str]) -> None:
        """Embed texts that `embed` will be asked for; only then do they count as asked for. Raises what `embed` does."""
        wanted = {digest_of(text): text for text in texts}
        with self._lock:
            missing = {digest: text for digest, text in wanted.items() if digest not in self._rows}
        if missing:
            rows = dict(zip(missing, self._encoder.encode(list(missing.values())), strict=True))
            self._remember(list(missing), rows, 0)
            with self._lock:
                self._unasked |= missing.keys() & self._rows.keys()

    def embed(
        self, batches: Sequence[Sequence[str]], *, progress: Progress = None
    ) -> list[NDArray[np.float32]]:
        """Return the unit vectors of every batch, each a new float32 array of shape (len(batch),
        dimension); batches may be empty.

        `progress` is called with how many more texts are done, from the calling thread; its total
        is the number of texts. Raises whatever the encoder raises; no more is remembered then than
        what `PartlyEncoded` hands over.
        """
        asked = [[digest_of(text) for text in batch] for batch in batches]
        texts = {
            digest: text
            for digests, batch in zip(asked, batches, strict=True)
            for digest, text in zip(digests, batch, strict=True)
        }
        rows, unasked = self._recall(texts)
        missing = [digest for digest in texts if digest not in rows]
        there = sum(map(len, asked)) - len(missing)
        hits = there - unasked
        if progress is not None and there:
            progress(there)
        if missing:
            try:
                vectors = self._encode([texts[digest] for digest in missing], progress)
            except PartlyEncoded as part:
                done = {missing[place]: row for place, row in part.rows.items()}
                self._remember(list(done), done, 0)
                raise part.error from part
            rows.update(zip(missing, vectors, strict=True))
        self._remember(missing, rows, hits)
        return [self._stack([rows[digest] for digest in digests]) for digests in asked]

    def _encode(self, texts: list[str], progress: Progress) -> NDArray[np.float32]:
        return (
            self._encoder.encode(texts)
            if progress is None
            else self._encoder.encode(texts, progress=progress)
        )

    def _recall(self, texts: dict[_Digest, str]) -> tuple[dict[_Digest, NDArray[np.float32]], int]:
        """What is remembered, and how many of it were counted when they were made."""
        with self._lock:
            unasked = self._unasked & texts.keys()
            self._unasked -= unasked
            rows = {}
            for digest in texts:
                row = self._rows.get(digest)
                if row is not None:
                    self._rows.move_to_end(digest)
                    rows[digest] = row
            return rows, len(unasked)

    def _remember(self, digests: list[_Digest], rows: dict[_Digest, NDArray[np.float32]], hits: int) -> None:
        with self._lock:
            self.encoded_texts += len(digests)
            self.cache_hits += hits
            for digest in digests[-self._capacity :] if self._capacity else ():
                # A copy, because a view would keep the whole call's array alive.
                self._rows[digest] = rows[digest].copy()
                self._rows.move_to_end(digest)
            while len(self._rows) > self._capacity:
                self._unasked.discard(self._rows.popitem(last=False)[0])

    def _stack(self, rows: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        if not rows:
            return np.empty((0, self._encoder.identity.dimension), dtype=np.float32)
        return np.stack(rows)


def digest_of(text: str) -> _Digest:
    """SHA-256 of a text, which may have half a character."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
