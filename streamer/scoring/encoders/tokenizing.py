"""What a tokenizer says of texts that a model does not read."""

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from streamer.scoring.reading import CUT, UNREAD, mostly_unknown


def tokenized(
    tokenizer: Tokenizer, texts: Sequence[str], vectors: NDArray[np.float32], *, strict: bool
) -> dict[int, Encoding]:
    """Tokenize texts, and return the tokens of those that are read, by their places; the others get their rows.

    Parameters
    ----------
    tokenizer : truncates where the model does.
    vectors : shape (len(texts), d); the row of a text that is not read is filled.
    strict : False: all count as read.
    """
    plain = [text if text.isascii() else unicodedata.normalize("NFC", text) for text in texts]
    unknown = _unknown(tokenizer)
    read: dict[int, Encoding] = {}
    for place, (text, tokens) in enumerate(zip(plain, tokenizer.encode_batch(plain), strict=True)):
        known = [span for one, span in zip(tokens.ids, tokens.offsets, strict=True) if one != unknown]
        if not strict:
            read[place] = tokens
        elif tokens.overflowing:
            vectors[place] = CUT
        elif (len(known) < len(tokens.ids) or not text.isascii()) and mostly_unknown(text, known):
            vectors[place] = UNREAD
        else:
            read[place] = tokens
    return read


def reading_tokenizer(model: Any) -> Tokenizer | None:
    """A copy of a sentence-transformers model's tokenizer that truncates where the model does; None where it has no such one."""
    backend = getattr(getattr(model, "tokenizer", None), "backend_tokenizer", None)
    if backend is None:
        return None
    copy = Tokenizer.from_str(backend.to_str())
    copy.no_padding()
    copy.no_truncation()
    if model.max_seq_length is not None:
        copy.enable_truncation(model.max_seq_length)
    return copy


def _unknown(tokenizer: Tokenizer) -> int | None:
    """The id of the token for unknown words."""
    names = (getattr(tokenizer.model, "unk_token", None), "[UNK]", "<unk>")
    found = (tokenizer.token_to_id(name) for name in names if name)
    return next((number for number in found if number is not None), None)
