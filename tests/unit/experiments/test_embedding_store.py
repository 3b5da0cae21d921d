"""Embeddings are computed once, kept through anything that stops a run, and never believed when damaged."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from streamer.errors import Unavailable
from streamer.research.experiments import stored_encoder
from streamer.research.experiments.stored_encoder import StoredEncoder, embedded_texts
from streamer.scoring.encoders.registry import DEFAULT_ENCODER

D = 8


def row(text: str) -> np.ndarray:
    return np.frombuffer(hashlib.sha256(text.encode()).digest(), dtype=np.uint8)[:D].astype(np.float32)


class Counting:
    """An encoder whose rows follow from the texts, and that can be made to fail."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.asked: list[str] = []
        self.fail_after = fail_after

    def encode(self, texts, *, progress=None):
        if self.fail_after is not None and len(self.asked) >= self.fail_after:
            raise KeyboardInterrupt
        self.asked += texts
        return np.array([row(text) for text in texts])


def get(texts: list[str], folder: Path, encoder: Counting, name: str = "e") -> np.ndarray:
    return embedded_texts(texts, name=name, dimension=D, load_encoder=lambda: encoder, folder=folder)


def test_rows_are_in_the_texts_order_and_each_text_is_encoded_once(tmp_path):
    encoder = Counting()
    texts = ["b", "a", "", "b", "a longer one", "a"]
    found = get(texts, tmp_path, encoder)
    assert (found == np.array([row(text) for text in texts])).all()
    assert found.dtype == np.float32
    assert sorted(encoder.asked) == sorted(set(texts))


def test_a_second_run_loads_no_encoder(tmp_path):
    get(["a", "b"], tmp_path, Counting())

    def load():
        raise AssertionError("the encoder was loaded")

    again = embedded_texts(["b", "a"], name="e", dimension=D, load_encoder=load, folder=tmp_path)
    assert (again == np.array([row("b"), row("a")])).all()


def test_only_what_is_new_is_encoded(tmp_path):
    get(["a", "b"], tmp_path, Counting())
    encoder = Counting()
    get(["a", "c"], tmp_path, encoder)
    assert encoder.asked == ["c"]


def test_encoders_do_not_share_rows(tmp_path):
    get(["a"], tmp_path, Counting(), name="one")
    encoder = Counting()
    get(["a"], tmp_path, encoder, name="other")
    assert encoder.asked == ["a"]


def test_what_was_encoded_before_a_stop_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_encoder, "_TOGETHER", 2)
    texts = [f"t{i}" for i in range(6)]
    with pytest.raises(KeyboardInterrupt):
        get(texts, tmp_path, Counting(fail_after=4))
    encoder = Counting()
    assert (get(texts, tmp_path, encoder) == np.array([row(text) for text in texts])).all()
    assert len(encoder.asked) == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "garbage"])
def test_a_damaged_file_is_encoded_anew(tmp_path, damage):
    get(["a", "b"], tmp_path, Counting())
    (path,) = tmp_path.rglob("*.npz")
    whole = path.read_bytes()
    place = whole.rindex(row("b").tobytes())  # within the stored rows
    path.write_bytes(
        {
            "cut": whole[: len(whole) // 2],
            "flipped": whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :],
            "emptied": b"",
            "garbage": b"not an archive",
        }[damage]
    )
    encoder = Counting()
    assert (get(["a", "b"], tmp_path, encoder) == np.array([row("a"), row("b")])).all()
    assert sorted(encoder.asked) == ["a", "b"]


def test_a_store_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    def full(stream, **_):
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(Unavailable, match=r"cannot keep embeddings in .*No space left"):
        get(["a"], tmp_path, Counting())
    assert not list(tmp_path.rglob("*.part")), "on a full disk least of all"


def test_progress_counts_what_is_there_first(tmp_path):
    get(["a", "b"], tmp_path, Counting())
    told: list[int] = []
    embedded_texts(
        ["a", "b", "c"], name="e", dimension=D, load_encoder=Counting, folder=tmp_path, progress=told.append
    )
    assert told == [2, 3]


def test_unit_rows_are_those_of_the_encoder_to_the_last_bit_and_are_encoded_once(
    real_encoder, tmp_path, monkeypatch
):
    texts = ["", "Paris", "It left our depot this morning. " * 9, *(f"answer {i} of many" for i in range(40))]
    rows = StoredEncoder(DEFAULT_ENCODER, folder=tmp_path).rows(texts)
    assert not np.allclose(np.linalg.norm(rows, axis=1), 1), "they keep their lengths"
    monkeypatch.setattr(stored_encoder, "load_encoder", lambda *_, **__: pytest.fail("encoded again"))
    first, second = StoredEncoder(DEFAULT_ENCODER, folder=tmp_path).embed([texts[:3], texts[3:]])
    assert (np.vstack([first, second]) == real_encoder.encode(texts)).all()
