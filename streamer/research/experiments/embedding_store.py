"""Embeddings of texts, kept beside the work so that no text is encoded twice, whichever file it comes in."""

import hashlib
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamer.errors import Unavailable
from streamer.scoring.encoders.encoder import Encoder, PartlyEncoded

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
    """Return the rows of texts, from the store where they are there, else encoded and stored.

    What has been encoded is stored 512 texts at a time, so that a run that is stopped loses no more than that. A file
    of the store that is damaged is passed over and its texts are encoded again. Several runs may share a store.

    Parameters
    ----------
    texts : n texts, repeated ones too.
    name : of the encoder and the form of its rows: what is stored under one name must come of one encoder.
    dimension : d, of its rows.
    load_encoder : called only when a text is not there; loading takes seconds.
    folder : made if it is not there; a text is in it as its SHA-256 alone.
    progress : called with how many texts have their rows.

    Returns
    -------
    ndarray of float32, shape (n, d)

    Raises
    ------
    Unavailable : the store cannot be written to; the disk may be full.
    """
    place = folder / hashlib.sha256(name.encode()).hexdigest()[:16]
    by_digest = {_digest(text): text for text in texts}
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
        found[i] = kept[_digest(text)]
    return found


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


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
