"""With the real model: the vector of a text depends on the text alone, and agrees with sentence-transformers."""

import gzip
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from streamer.scoring.encoders.encoder import CachedEncoder, Encoder
from streamer.scoring.encoders.registry import DEFAULT_ENCODER, encoder_identity, find_encoder, load_encoder
from streamer.scoring.gram import gram_energy
from tests import programs

pytestmark = pytest.mark.encoder

WORDS = [
    "Paris", "is", "the", "capital", "of", "France", ",", "and", "Lyon", "1,742", "km²", "of",
    "naïve", "東京", "rivers", "🙂", "don't", "(x)", "<<16-3=13>>",
]  # fmt: skip


@pytest.fixture(scope="module", params=["ctranslate2", "sentence-transformers"])
def name(request: pytest.FixtureRequest) -> str:
    return f"{DEFAULT_ENCODER}+{request.param}"


@pytest.fixture(scope="module")
def encoder(name: str) -> Iterator[Encoder]:
    encoder = load_encoder(name, device="cpu", threads=2, strict=False)
    yield encoder
    encoder.close()


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Texts of many lengths up to far beyond the model's 256 tokens, and odd ones."""
    rng = np.random.default_rng(7)
    lengths = [*range(1, 40, 2), *range(40, 300, 40), 2000]
    made = [" ".join(rng.choice(WORDS, size=length)) for length in lengths]
    return list(dict.fromkeys([*made, "", " ", "\n\t", "a", "A", "é", "e\u0301", "x" * 5000, "ab " * 400]))


@pytest.fixture(scope="module")
def reference() -> SentenceTransformer:
    """The library itself."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(find_encoder(DEFAULT_ENCODER).folder), device="cpu")


@pytest.fixture(scope="module")
def references(reference: SentenceTransformer, texts: list[str]) -> NDArray[np.float32]:
    """The library's vectors of the texts."""
    return reference.encode(texts, show_progress_bar=False)


@pytest.fixture(scope="module")
def answers_and_references(
    reference: SentenceTransformer, triviaqa_path: Path, gsm8k_path: Path, tot_path: Path
) -> list[tuple[list[str], NDArray[np.float64]]]:
    """Clouds of real answers, each with the scores of the library's vectors."""
    clouds = [*batches(triviaqa_path, 10), *batches(gsm8k_path, 4), *batches(tot_path, 1)]
    return [(answers, gram_energy(reference.encode(answers, show_progress_bar=False))) for answers in clouds]


@pytest.fixture(scope="module")
def vectors(encoder: Encoder, texts: list[str]) -> NDArray[np.float32]:
    return encoder.encode(texts)


def test_neighbours_order_and_size_of_a_call_do_not_matter(
    encoder: Encoder, texts: list[str], vectors: NDArray[np.float32]
):
    together = dict(zip(texts, vectors, strict=True))
    rng = np.random.default_rng(11)
    order = [texts[i] for i in rng.permutation(len(texts))]
    start = 0
    while start < len(order):
        part = order[start : start + int(rng.integers(1, 23))]
        for text, row in zip(part, encoder.encode(part), strict=True):
            assert row.tobytes() == together[text].tobytes(), text[:80]
        start += len(part)


@pytest.mark.parametrize("text", ["Paris", "The capital of France is Paris, I think.", "word " * 300])
def test_every_position_of_a_micro_batch_gives_the_same_bits(encoder: Encoder, text: str):
    alone = encoder.encode([text])[0].tobytes()
    assert {row.tobytes() for row in encoder.encode([text] * 20)} == {alone}


def test_the_number_of_threads_does_not_matter(name: str, texts: list[str], vectors: NDArray[np.float32]):
    one, three = (load_encoder(name, device="cpu", threads=threads, strict=False) for threads in (1, 3))
    try:
        expected = vectors[::3].tobytes()
        assert one.encode(texts[::3]).tobytes() == expected
        assert three.encode(texts[::3]).tobytes() == expected
    finally:
        one.close()
        three.close()


def test_torch_settings_of_the_process_stay_and_do_not_matter(name: str, encoder: Encoder):
    import torch

    present = torch.get_num_threads()
    expected = encoder.encode(["Paris", "Lyon"]).tobytes()
    try:
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)
        assert encoder.encode(["Lyon", "Paris"])[::-1].tobytes() == expected
        another = load_encoder(name, device="cpu", threads=1, strict=False)
        assert another.encode(["Paris", "Lyon"]).tobytes() == expected
        another.close()
        assert torch.get_num_threads() == 1
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(present)


def test_vectors_agree_with_sentence_transformers(
    reference: SentenceTransformer, references: NDArray[np.float32], vectors: NDArray[np.float32]
):
    assert reference.max_seq_length == 256
    np.testing.assert_allclose(vectors, references, rtol=0, atol=1e-6)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)


def test_no_texts(name: str, encoder: Encoder):
    assert encoder.encode([]).shape == (0, 384)
    assert encoder.identity == encoder_identity(name)


def test_progress_adds_up(encoder: Encoder):
    told: list[int] = []
    encoder.encode(
        ["number " * (1 + number % 3) + str(number) for number in range(100)], progress=told.append
    )
    assert sum(told) == 100
    assert len(told) > 1


def test_a_progress_that_raises_ends_the_call_and_not_the_encoder(encoder: Encoder):
    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encoder.encode([f"number {number}" for number in range(200)], progress=interrupt)
    assert encoder.encode(["after"]).shape == (1, 384)


def test_calls_from_several_threads_get_their_own_vectors(encoder: Encoder):
    from concurrent.futures import ThreadPoolExecutor

    parts = [[f"answer {number} of {part}" for number in range(part + 3)] for part in range(8)]
    expected = [encoder.encode(part).tobytes() for part in parts]
    with ThreadPoolExecutor(4) as callers:
        assert [rows.tobytes() for rows in callers.map(encoder.encode, parts)] == expected


def test_another_process_writes_nothing_and_finds_the_same_bits(
    name: str, texts: list[str], vectors: NDArray[np.float32]
):
    code = (
        "import hashlib, json, sys\n"
        "from streamer.scoring.encoders.registry import load_encoder\n"
        "texts = json.load(sys.stdin)\n"
        f"rows = load_encoder('{name}', device='cpu', threads=1, strict=False).encode(texts[::-1])[::-1]\n"
        "print(hashlib.sha256(rows.tobytes()).hexdigest())"
    )
    run = programs.run(
        *(sys.executable, "-W", "error", "-c", code),
        seconds=600,
        input=json.dumps(texts),
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )
    assert run.stderr == ""
    assert run.stdout.strip() == hashlib.sha256(vectors.tobytes()).hexdigest()


def batches(path: Path, count: int) -> list[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        clouds: list[dict[str, Any]] = [json.loads(next(lines)) for _ in range(count)]
    return [[response["text"] for response in cloud["responses"]] for cloud in clouds]


@pytest.mark.shared_data
def test_scores_of_real_clouds_agree_with_sentence_transformers(
    encoder: Encoder, answers_and_references: list[tuple[list[str], NDArray[np.float64]]]
):
    clouds = [answers for answers, _ in answers_and_references]
    embedded = CachedEncoder(encoder).embed(clouds)
    for (_, expected), rows in zip(answers_and_references, embedded, strict=True):
        np.testing.assert_allclose(gram_energy(rows), expected, rtol=0, atol=1e-6)


@pytest.mark.shared_data
def test_real_answers_scored_with_others_or_alone(encoder: Encoder, triviaqa_path: Path, gsm8k_path: Path):
    answers = [*batches(triviaqa_path, 10), *batches(gsm8k_path, 4)]
    together = CachedEncoder(encoder).embed(answers)
    for batch, rows in zip(answers, together, strict=True):
        assert CachedEncoder(encoder, capacity_texts=0).embed([batch])[0].tobytes() == rows.tobytes()
