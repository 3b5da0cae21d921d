"""`audit embed`: embeddings of a bundle's answers, by which verify.pyz derives scores again."""

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamer.errors import UsageError
from streamer.scoring.answer_head import whole
from streamer.scoring.blank import is_blank
from streamer.signing.canonical_json import canonical_json
from streamer_verify.bundle import Bundle

_TEXTS_A_CALL = 256


def write_embeddings(
    bundle: Bundle,
    target: Path,
    *,
    encoder: str,
    embed: Callable[[Sequence[Sequence[str]]], Sequence[NDArray[np.float32]]],
    progress: Callable[[int], object] = lambda _done: None,
) -> int:
    """Write the embeddings of all answers that this encoder scored, and return how many they are.

    Parameters
    ----------
    target : a new file; each line has `encoder`, `text` (the SHA-256 of an answer) and `embedding` (base64 of little-endian float32).
    encoder : its id, ``name@hash``.
    embed : as for `streamer.audit.rescoring.Rescorer`.
    progress : called with how many texts are done.

    Raises
    ------
    UsageError
        When the file exists or cannot be written.
    """
    done = 0
    try:
        with target.open("xb") as file:
            texts = _texts(bundle, encoder)
            while some := list(islice(texts, _TEXTS_A_CALL)):
                (rows,) = embed([[text for _, text in some]])
                for (digest, _), row in zip(some, rows, strict=True):
                    packed = base64.b64encode(row.astype("<f4").tobytes()).decode()
                    line = {"encoder": encoder, "text": digest, "embedding": packed}
                    file.write(canonical_json(line) + b"\n")
                done += len(some)
                progress(done)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from error
    return done


def _texts(bundle: Bundle, encoder: str) -> Iterator[tuple[str, str]]:
    """Each answer of a batch that the encoder scored, with and without its reasoning, once, with its SHA-256; no blank ones."""
    seen: set[str] = set()
    for line in bundle.values("outcomes.jsonl"):
        facts, content = line.get("facts") or {}, line.get("content")
        if (
            line["kind"] != "decision"
            or content is None
            or (facts["encoder"], facts["embedding_source"]) != (encoder, "encoder")
        ):
            continue
        answers = [text for text in content["texts"] if text is not None]
        for text in (*answers, *map(whole, answers)):
            if is_blank(text):
                continue
            digest = hashlib.sha256(text.encode()).hexdigest()
            if digest not in seen:
                seen.add(digest)
                yield digest, text
