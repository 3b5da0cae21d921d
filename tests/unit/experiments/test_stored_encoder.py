"""One store of encoded texts serves scores, which want unit rows, and GPSO, which wants lengths."""

import numpy as np
import pytest

from streamer.research.experiments import stored_encoder
from streamer.research.experiments.stored_encoder import StoredEncoder
from streamer.scoring.encoders.registry import DEFAULT_ENCODER


def test_unit_rows_are_those_of_the_encoder_to_the_last_bit_and_are_encoded_once(
    real_encoder, tmp_path, monkeypatch
):
    texts = ["", "Paris", "It left our depot this morning. " * 9, *(f"answer {i} of many" for i in range(40))]
    rows = StoredEncoder(DEFAULT_ENCODER, folder=tmp_path).rows(texts)
    assert not np.allclose(np.linalg.norm(rows, axis=1), 1), "they keep their lengths"
    monkeypatch.setattr(stored_encoder, "load_encoder", lambda *_, **__: pytest.fail("encoded again"))
    first, second = StoredEncoder(DEFAULT_ENCODER, folder=tmp_path).embed([texts[:3], texts[3:]])
    assert (np.vstack([first, second]) == real_encoder.encode(texts)).all()
