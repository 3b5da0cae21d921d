"""The encoder without its last normalisation: the same directions, with the lengths that pooling gives."""

import numpy as np
import pytest

from streamer.scoring.encoders.encoder import Encoder
from streamer.scoring.encoders.registry import find_encoder, load_encoder

pytestmark = pytest.mark.encoder

TEXTS = ["Paris", "The capital of France is Paris, and has been for a long time.", "", "no " * 60]


@pytest.mark.parametrize("engine", ["ctranslate2", "sentence-transformers"])
def test_lengths_are_those_of_the_mean_over_tokens(real_encoder: Encoder, engine: str) -> None:
    from sentence_transformers import SentenceTransformer

    plain = load_encoder(f"all-MiniLM-L6-v2+{engine}", device="cpu", unit=False)
    rows = plain.encode(TEXTS)
    lengths = np.linalg.norm(rows, axis=1)
    assert (np.abs(lengths - 1) > 0.1).all()
    assert rows / lengths[:, np.newaxis] == pytest.approx(real_encoder.encode(TEXTS), abs=1e-6)
    reference = SentenceTransformer(str(find_encoder("all-MiniLM-L6-v2").folder), device="cpu")
    for text, row in zip(TEXTS, rows, strict=True):
        tokens = reference.encode(text, output_value="token_embeddings").numpy()
        assert row == pytest.approx(tokens.mean(axis=0), abs=1e-5)
    # Reproducible as unit rows are: alone and together, the same bits.
    assert (np.stack([plain.encode([text])[0] for text in TEXTS]) == rows).all()
    plain.close()
