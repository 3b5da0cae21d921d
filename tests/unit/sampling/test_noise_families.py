"""Noise made by program: by seed, never empty, bounded, and nothing that an event could not carry."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.clouds.line_files import is_publishable
from streamer.clouds.noise import NOISE_FAMILIES, NoiseFamily
from streamer_research.sampling.noise import MOST_CHARACTERS, distinct_noise

ANSWERS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), max_size=3
)
SEEDS = st.integers(0, 2**32)


@pytest.mark.parametrize("family", NOISE_FAMILIES)
@given(seed=SEEDS, references=ANSWERS, others=ANSWERS, count=st.integers(1, 20))
def test_every_family_by_seed_bounded_and_publishable(
    family: NoiseFamily, seed: int, references: list[str], others: list[str], count: int
) -> None:
    def drawn() -> list[str]:
        rng = np.random.default_rng(seed)
        return distinct_noise(rng, [family] * count, references=references, others=others)

    texts = drawn()
    assert texts == drawn()
    assert len(texts) == count
    for text in texts:
        assert text.strip()
        assert len(text) <= MOST_CHARACTERS
        assert is_publishable(text)


@pytest.mark.parametrize("family", NOISE_FAMILIES)
def test_no_two_of_a_cloud_are_the_same(family: NoiseFamily) -> None:
    rng = np.random.default_rng(1)
    texts = distinct_noise(rng, [family] * 250, references=["Paris"], others=["Jupiter", "Jane Austen"])
    assert len(set(texts)) == 250


def test_a_contradiction_is_between_the_answer_and_another_ones() -> None:
    rng = np.random.default_rng(3)
    texts = distinct_noise(rng, ["contradiction"] * 4, references=["Paris"], others=["Jupiter"])
    assert all("Paris" in text and "Jupiter" in text for text in texts)


def test_several_languages_and_scripts() -> None:
    rng = np.random.default_rng(4)
    texts = distinct_noise(rng, ["multilingual snippet"] * 20, references=[], others=[])
    assert sum(not text.isascii() for text in texts) > 10
