"""What the default encoder reads, and what of a batch says that it did not."""

import unicodedata

import numpy as np
import pytest

from streamer.scoring.encoders.encoder import CachedEncoder, Encoder
from streamer.scoring.unread_answers import RULES, mostly_unknown, not_read

THINKING = f"<think>{'so it goes ' * 190}</think>"
LONG = "ok " * 254
HELD: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "reasoning": ((f"{THINKING}Yes, it is.", f"{THINKING}No, it is not.", f"{THINKING}Maybe."), ("cut",)),
    "254 words": ((LONG + "yes", LONG + "no"), ("cut",)),
    "emoji": (("👍", "👎", "🚗"), ("unread",)),
    "an emoji at the end": (("Yes 👍", "Yes 👎"), ("unread",)),
    "Thai": (("กรุงเทพฯ เป็นเมืองหลวง", "เชียงใหม่เป็นเมืองหลวง"), ("unread",)),
    "Khmer": (("ភ្នំពេញ", "សៀមរាប"), ("unread",)),
    "Amharic": (("አዲስ አበባ ነው", "ጎንደር ነው"), ("unread",)),
    "Burmese": (("နေပြည်တော် ဖြစ်သည်", "ရန်ကုန် ဖြစ်သည်"), ("unread",)),
    "Hindi": (("नई दिल्ली राजधानी है", "मुंबई राजधानी है"), ("unread",)),
    "Chinese": (("中国的首都是北京", "中国的首都是上海"), ("unread",)),
    "Japanese": (("東京は日本の首都です", "大阪は日本の首都です"), ("unread",)),
    "both": ((LONG + "yes", "👍"), ("cut", "unread")),
}
"""Answers that contradict each other, and the rules by which the default encoder reads none of them."""
VIETNAMESE = "Thủ đô là Hà Nội"
READ = {
    "signs": ("It is 5 €, or £4 – “about” that.", "It is 6 €."),
    "Arabic": ("العاصمة هي القاهرة", "العاصمة هي الإسكندرية"),
    "Russian": ("Столица — Москва", "Столица — Казань"),
    "Greek": ("Πρωτεύουσα είναι η Αθήνα", "Πρωτεύουσα είναι η Πάτρα"),
    "Vietnamese": (VIETNAMESE, "Thủ đô là Huế"),
    "decomposed": (unicodedata.normalize("NFD", VIETNAMESE), "Thủ đô là Huế"),
    "French": ("La capitale, c'est Orléans", "La capitale, c'est Angoulême"),
    "253 words": ("ok " * 253 + "yes", "ok " * 253 + "no"),
    "JSON": ('{"total": 12.5, "paid": true}', '{"total": 12.5, "paid": false}'),
}


def rules(encoder: Encoder, *texts: str) -> tuple[str, ...]:
    (rows,) = CachedEncoder(encoder).embed([texts])
    found = not_read(texts, [False] * len(texts), rows)
    return tuple(rule for rule in RULES if rule in found)


@pytest.mark.encoder
@pytest.mark.parametrize("name", HELD)
def test_what_the_encoder_cannot_read(real_encoder: Encoder, name: str) -> None:
    texts, found = HELD[name]
    assert rules(real_encoder, *texts) == found


@pytest.mark.encoder
@pytest.mark.parametrize("name", READ)
def test_what_it_reads(real_encoder: Encoder, name: str) -> None:
    assert rules(real_encoder, *READ[name]) == ()


@pytest.mark.encoder
def test_what_is_not_read_has_no_vector_that_anything_could_compare(real_encoder: Encoder) -> None:
    cut, unknown, read = real_encoder.encode([LONG + "yes", "👍", "Paris"])
    assert not cut.any()
    assert np.isnan(unknown).all()
    assert np.linalg.norm(read) == pytest.approx(1)


def test_twins_have_one_vector_and_other_characters() -> None:
    one = np.array([[0.6, 0.8]] * 2)
    assert not_read(["Paris", "Lyon"], [False, False], one) == ("twin", "twin")
    assert not_read(["Bonn", "Paris", "Lyon"], [False] * 3, [[1, 0], *one]) == (None, "twin", "twin")
    assert not_read(["Paris", "paris "], [False, False], one) == ()
    assert not_read(["Páris", "Paris"], [False, False], one) == (), "marks are not told apart"
    assert not_read(["Paris", "Lyon"], [False, True], one) == (), "a blank answer agrees with none anyway"
    assert not_read(["Paris", "Lyon"], [False, False], np.eye(2)) == ()


def test_a_tenth_of_the_visible_characters_counts() -> None:
    text = "nine more \u200b☂"
    assert mostly_unknown(text, [(0, 4), (5, 9)]), "1 of 9; what cannot be seen is none of them"
    assert not mostly_unknown("nearly ten more ☂", [(0, 15)])
    assert mostly_unknown("कि", [(0, 1)]), "a mark is seen"
    assert not mostly_unknown("", [])
