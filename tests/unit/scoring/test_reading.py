"""What the default encoder reads, and what of a batch says that it did not."""

import unicodedata

import numpy as np
import pytest

from streamer.scoring.encoders.encoder import CachedEncoder, Encoder
from streamer.scoring.reading import mostly_unknown, not_read

THINKING = f"<think>{'so it goes ' * 190}</think>"
LONG = "ok " * 254


def rules(encoder: Encoder, *texts: str) -> tuple[str, ...]:
    (rows,) = CachedEncoder(encoder).embed([texts])
    return not_read(texts, [False] * len(texts), rows)


@pytest.mark.encoder
@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ((f"{THINKING}Yes, it is.", f"{THINKING}No, it is not.", f"{THINKING}Maybe."), ("cut",)),
        ((LONG + "yes", LONG + "no"), ("cut",)),
        (("👍", "👎", "🚗"), ("unread",)),
        (("Yes 👍", "Yes 👎"), ("unread",)),
        (("กรุงเทพฯ เป็นเมืองหลวง", "เชียงใหม่เป็นเมืองหลวง"), ("unread",)),
        (("ភ្នំពេញ", "សៀមរាប"), ("unread",)),
        (("አዲስ አበባ ነው", "ጎንደር ነው"), ("unread",)),
        (("နေပြည်တော် ဖြစ်သည်", "ရန်ကုန် ဖြစ်သည်"), ("unread",)),
        (("नई दिल्ली राजधानी है", "मुंबई राजधानी है"), ("unread",)),
        (("中国的首都是北京", "中国的首都是上海"), ("unread",)),
        (("東京は日本の首都です", "大阪は日本の首都です"), ("unread",)),
        ((LONG + "yes", "👍"), ("cut", "unread")),
    ],
    ids=["reasoning", "long", "emoji", "one emoji", "Thai", "Khmer", "Amharic", "Burmese", "Hindi", "Chinese", "Japanese", "both"],
)  # fmt: skip
def test_what_the_encoder_cannot_read(
    real_encoder: Encoder, texts: tuple[str, ...], found: tuple[str, ...]
) -> None:
    assert rules(real_encoder, *texts) == found


@pytest.mark.encoder
@pytest.mark.parametrize(
    "text",
    [
        "It is 5 €, or £4 – “about” that.",
        "العاصمة هي القاهرة",
        "Столица — Москва",
        "Πρωτεύουσα είναι η Αθήνα",
        "Thủ đô là Hà Nội",
        unicodedata.normalize("NFD", "Thủ đô là Hà Nội"),
        "La capitale, c'est Orléans",
        "ok " * 253 + "no",
        '{"total": 12.5, "paid": true}',
    ],
    ids=["signs", "Arabic", "Russian", "Greek", "Vietnamese", "decomposed", "French", "253 words", "JSON"],
)
def test_what_it_reads(real_encoder: Encoder, text: str) -> None:
    assert rules(real_encoder, text, "Something else.") == ()


@pytest.mark.encoder
def test_what_is_not_read_has_no_vector_that_anything_could_compare(real_encoder: Encoder) -> None:
    cut, unknown, read = real_encoder.encode([LONG + "yes", "👍", "Paris"])
    assert not cut.any()
    assert np.isnan(unknown).all()
    assert np.linalg.norm(read) == pytest.approx(1)


def test_twins_have_one_vector_and_other_characters() -> None:
    one = np.array([[0.6, 0.8]] * 2)
    assert not_read(["Paris", "Lyon"], [False, False], one) == ("twin",)
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
