"""Embeddings of texts by a named encoder, from the store or the encoder: with their lengths, or as unit rows."""

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamer.errors import Unavailable
from streamer.scoring.encoders.ctranslate2_encoder import normalized
from streamer.scoring.encoders.encoder import Encoder, PartlyEncoded, digest_of
from streamer.scoring.encoders.registry import EncoderFiles, find_encoder, load_encoder

EMBEDDINGS_FOLDER = Path(".streamer/embeddings")
"""Where embeddings are cached by default."""
_TOGETHER = 512


def embedded_texts(
    texts: Sequence[str],
    *,
    name: str,
    dimension: int,
    load_encoder: Callable[[], Encoder],
    folder: Path = EMBEDDINGS_FOLDER,
    progress: Callable[[int], None] | None = None,
) -> NDArray[np.float32]:
    """Return the rows of n texts, float32, shape (n, `dimension`), from the store where they are
    there, else encoded and stored.

    What has been encoded is stored 512 texts at a time, so that a run that is stopped loses no more
    than that. A file of the store that is damaged is passed over and its texts are encoded again.
    Several runs may share a store; a text is in it as its SHA-256 alone. What is stored under one
    `name` must come of one encoder in one form of its rows; it is loaded only when a text is not
    there. `progress` is called with how many texts have their rows. Raises `Unavailable` where the
    store cannot be written to; the disk may be full.
    """
    place = folder / hashlib.sha256(name.encode()).hexdigest()[:16]
    by_digest = {digest_of(text): text for text in texts}
    kept = _read(place, dimension, by_digest.keys())
    wanted = [digest for digest in by_digest if digest not in kept]
    if progress is not None:
        progress(len(kept))
    if wanted:
        encoder = load_encoder()
        # Long ones together: a micro-batch is of texts of like length.
        wanted.sort(key=lambda digest: (len(by_digest[digest]), digest))
        for first in range(0, len(wanted), _TOGETHER):
            some = wanted[first : first + _TOGETHER]
            try:
                rows = encoder.encode([by_digest[digest] for digest in some])
            except PartlyEncoded as part:
                _write(place, [some[one] for one in part.rows], np.array(list(part.rows.values())))
                raise part.error from part
            _write(place, some, rows)
            kept.update(zip(some, rows, strict=True))
            if progress is not None:
                progress(len(kept))
    found = np.empty((len(texts), dimension), dtype=np.float32)
    for i, text in enumerate(texts):
        found[i] = kept[digest_of(text)]
    return found


def _read(place: Path, dimension: int, wanted: Iterable[bytes]) -> dict[bytes, NDArray[np.float32]]:
    rows: dict[bytes, NDArray[np.float32]] = {}
    asked = set(wanted)
    for path in sorted(place.glob("*.npz")):
        try:
            # Opened here, because numpy leaves the file of a damaged archive open.
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
                digests, vectors = stored["digests"], stored["rows"]
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
            continue
        if digests.shape != (len(vectors), 32) or vectors.shape[1:] != (dimension,):
            continue
        stored_rows = zip(map(bytes, digests), vectors, strict=True)
        rows.update((digest, row) for digest, row in stored_rows if digest in asked)
    return rows


def _write(place: Path, digests: Sequence[bytes], rows: NDArray[np.float32]) -> None:
    name = hashlib.sha256(b"".join(digests)).hexdigest()[:24]
    unfinished = place / f"{name}.part"
    try:
        place.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as stream:
            np.savez(
                stream,
                digests=np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, 32),
                rows=rows,
            )
        unfinished.replace(place / f"{name}.npz")
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise Unavailable(
            f"cannot keep embeddings in {place}: {error.strerror or error}; what was kept before is there, and the same "
            "command goes on"
        ) from error


UNNORMALISED = "pooled, not normalised"


class StoredEncoder:
    """An encoder that caches what it has encoded for all callers: scores and GPSO share one store.

    Kept are rows as pooling makes them. GPSO's pipelines without L2 want their lengths, and unit rows follow from them. Of
    an encoder that is given loaded the unit rows are kept.

    `encoder`: a name, see `streamer.scoring.encoders.registry.find_encoder`; or one that is loaded,
    of unit rows. `device`, `threads`: of the encoder, which is loaded only when the store lacks a
    text. `folder`: of the store. `progress`: called with how many of how many distinct texts have
    their rows. `strict`: False gives every text a vector, of what the model takes of it; see
    `load_encoder`.
    """

    def __init__(
        self,
        encoder: str | Encoder,
        *,
        device: str = "auto",
        threads: int | None = None,
        folder: Path = EMBEDDINGS_FOLDER,
        progress: Callable[[int, int], None] | None = None,
        strict: bool = True,
    ) -> None:
        self._encoder = encoder
        self._files: EncoderFiles | None
        if isinstance(encoder, str):
            self._files = find_encoder(encoder)
            self._identity = self._files.identity
        else:
            self._files = None
            self._identity = encoder.identity
        self._device = device
        self._strict = strict
        self._threads = threads
        self._folder = folder
        self._progress = progress

    def rows(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Rows with the length that pooling gives them, where it is known, shape (len(texts), d)."""
        total, told = len(set(texts)), self._progress
        read = ", of what is read" if self._strict else ""
        return embedded_texts(
            texts,
            name=f"{self._identity.id}, {'unit rows' if self._files is None else UNNORMALISED}{read}",
            dimension=self._identity.dimension,
            load_encoder=self._load,
            folder=self._folder,
            progress=None if told is None else lambda done: told(done, total),
        )

    def _load(self) -> Encoder:
        if not isinstance(self._encoder, str):
            return self._encoder
        return load_encoder(
            self._encoder, device=self._device, threads=self._threads, unit=False, strict=self._strict
        )

    def embed(self, batches: Sequence[Sequence[str]]) -> list[NDArray[np.float32]]:
        """The unit vectors of every batch, on a CPU to the last bit those of `streamer.scoring.encoders.encoder.CachedEncoder`."""
        splits = np.cumsum([len(batch) for batch in batches])[:-1]
        lengths = self.rows([text for batch in batches for text in batch])
        if self._files is None:
            return np.split(lengths, splits)
        if self._files.bert is not None:
            return np.split(normalized(lengths), splits)
        import torch

        rows = torch.from_numpy(lengths)
        with torch.inference_mode():
            # Once for each layer of the model's own that normalises at its end, and once as every encoder here does.
            for _ in range(1 + _normalising_layers(self._files.folder)):
                rows = torch.nn.functional.normalize(rows, dim=1)
        return np.split(rows.numpy(), splits)


def _normalising_layers(folder: Path) -> int:
    try:
        modules = json.loads((folder / "modules.json").read_bytes())
    except FileNotFoundError:
        return 0
    names = [str(module["type"]).rpartition(".")[2] for module in modules]
    while names and names[-1] == "Normalize":
        names.pop()
    return len(modules) - len(names)
