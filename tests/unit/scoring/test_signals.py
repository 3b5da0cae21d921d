"""The signals: each by hand, the properties that all keep, and the list of a gate."""

import math
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.calibration.signal_order import OF_TEXTS, SIGNALS
from streamer.labels.answer_forms import answer_batch
from streamer.scoring.contract import TOLERANCE, sample_batches
from streamer.scoring.scorer import AnswerBatch
from streamer.scoring.signals import measured
from streamer.scoring.signals import measured as measured_module
from streamer.scoring.signals.declared import declared_ranges
from streamer.scoring.signals.measured import Measured, begins, in_common, last_number, words_of
from streamer.scoring.signals.signal_list import (
    CLIP,
    MEASURED,
    MOST_MODELS,
    VERSION,
    SignalList,
    batch_row,
    choice_scores,
    signal_list,
)
from tests.checkout import ROOT

TEXTS = ["It is Paris.", "Paris", "It is Paris.", "Lyon, I think: 1,500 or 2", " "]
ROWS = np.array([[1.0, 0.0], [0.8, 0.6], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
BLANK = [False, False, False, False, True]
QUESTION = "Is it Paris or Lyon?"
EVERY = {one.name: one for one in MEASURED}


def batch(order: list[int] | None = None, models: tuple[str, ...] = ()) -> AnswerBatch:
    places = order or list(range(len(TEXTS)))
    return answer_batch(
        [TEXTS[p] for p in places],
        ROWS[places],
        [BLANK[p] for p in places],
        [models[p] for p in places] if models else (),
    )


def values(name: str) -> list[float]:
    return EVERY[name].of(Measured(batch(), QUESTION)).tolist()


def test_each_signal_by_hand() -> None:
    # Cosines of the first answer to the others: .8, 1, 0, and 0 to the blank one.
    assert values("gram")[0] == round(math.sqrt((0.64 + 1.0) / 4), 6)
    assert values("mean_cosine")[0] == pytest.approx(1.8 / 4)
    assert values("nearest_cosine")[:4] == pytest.approx([1.0, 0.8, 1.0, 0.6])
    assert values("median_cosine")[:2] == pytest.approx([0.4, 0.7])
    assert values("cluster_share")[:4] == [0.5, 0.5, 0.5, 0.0], ".8 links"
    together = np.array([1.8, 1.6])  # the others of the first answer
    assert values("centroid")[0] == pytest.approx(1.8 / np.linalg.norm(together))
    kernel = np.vstack([ROWS[:4] @ ROWS[:4].T, np.zeros(4)])
    kernel = np.column_stack([kernel, [0, 0, 0, 0, 1.0]])
    shares = np.linalg.eigvalsh(kernel)[np.linalg.eigvalsh(kernel) > 1e-12] / 5
    assert values("entropy") == pytest.approx([1 + (shares * np.log(shares)).sum() / math.log(5)] * 5)
    assert values("best_gram")[3] == max(values("gram")[:4])
    assert values("batch_cosine")[0] == pytest.approx(2 * (0.8 + 1 + 0 + 0.8 + 0.6 + 0) / 20)
    assert values("exact_match")[:4] == [0.25, 0.0, 0.25, 0.0]
    assert values("best_match")[3] == 0.25
    assert values("contained")[1] == pytest.approx(2 / 4), '"paris" is in two of the four others'
    assert values("contains")[1] == pytest.approx((1 / 3 + 1 / 3) / 4), "one word of three of two heads"
    assert values("jaccard")[0] == pytest.approx((1 / 3 + 1.0) / 4)
    assert values("rouge_1")[0] == pytest.approx((2 * 1 / 4 + 1.0) / 4)
    assert values("best_rouge_1")[1] == values("rouge_1")[0]
    assert values("same_number") == [0.0] * 5
    # The first answer's It and Paris: the second has one of them, the third both, the fourth (Lyon, I) neither.
    assert values("same_names")[:4] == pytest.approx([1.5 / 4, 0.5, 1.5 / 4, 0.0])
    assert values("length")[1] == pytest.approx(math.log(6))
    assert values("length_to_median")[1] == pytest.approx(math.log(6) - math.log(13))
    assert values("question_overlap")[:4] == pytest.approx([1.0, 1.0, 1.0, 2 / 6])
    assert values("has_number")[:4] == [0.0, 0.0, 0.0, 1.0]
    assert values("one_of")[0] == 0.2


def test_the_last_number_and_who_shares_it() -> None:
    found = [
        last_number(text)
        for text in ("so 18.", "$1,800.50 a day", "-3", "x-3", "٣ then ١٨", "1,2,3", "none", "18.0")
    ]
    assert [None if one is None else float(one) for one in found] == [18, 1800.5, -3, 3, 18, 3, None, 18]
    answers = answer_batch(["A: 18", "18.00 eggs", "19", "no idea"], np.eye(4), [False] * 4)
    assert EVERY["same_number"].of(Measured(answers)).tolist() == pytest.approx([1 / 3, 1 / 3, 0, 0])


@pytest.mark.parametrize(
    ("text", "refuses"),
    [
        ("I'm sorry, I cannot help.", 1.0),
        ("I don’t know.", 1.0),
        ("Unfortunately, there is no information", 1.0),
        ("Paris, I believe", 0.0),
        ("x" * 161 + " unknown", 0.0),
        ("The Unknowns won.", 0.0),
    ],
)
def test_an_opening_that_refuses(text: str, refuses: float) -> None:
    answers = answer_batch([text, "Paris"], np.eye(2), [False, False])
    assert EVERY["refusal"].of(Measured(answers))[0] == refuses


def plain_chrf(first: str, second: str) -> float:
    """As it is defined, by counters."""
    found = []
    for k in range(1, min(6, len(first), len(second)) + 1):
        one, other = (Counter(text[i : i + k] for i in range(len(text) - k + 1)) for text in (first, second))
        found.append(2 * (one & other).total() / (one.total() + other.total()))
    return sum(found) / len(found)


def chrf_of(texts: list[str]) -> np.ndarray:
    """Of an answer with itself, too, which a batch says twice."""
    twice = [*texts, *texts]
    n = len(texts)
    return Measured(AnswerBatch(twice, twice, np.ones((2 * n, 2)), [False] * 2 * n)).chrf[:n, n:]


@settings(deadline=None)
@given(
    st.lists(
        st.text("abAß 中é\u0301x7", min_size=1).filter(lambda text: text.strip("\u0301 ")),
        min_size=2,
        max_size=5,
    )
)
def test_chrf_is_what_counters_say(texts: list[str]) -> None:
    import unicodedata

    plain = ["".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in texts]
    wanted = [[plain_chrf(a, b) for b in plain] for a in plain]
    np.testing.assert_allclose(chrf_of(texts), wanted, rtol=0, atol=1e-12)


def test_chrf_of_alphabets_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The more kinds of characters there are, the fewer of them are sorted at once."""
    rng = np.random.default_rng(3)
    letters = [chr(0x4E00 + i) for i in range(3000)]
    texts = ["".join(rng.choice(letters[:50], 200)) + "".join(letters[i::3]) for i in range(3)]
    wanted = [[plain_chrf(a, b) for b in texts] for a in texts]
    np.testing.assert_allclose(chrf_of(texts), wanted, rtol=0, atol=1e-12)
    few = ["banana band", "bandana", "an anna"]
    before = chrf_of(few)
    for counted in (1, 10, 1000):
        monkeypatch.setattr(measured_module, "_COUNTED", counted)
        np.testing.assert_array_equal(chrf_of(few), before)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 6), max_size=12), min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from([1, 7, 2**22]),
)
def test_what_rows_have_in_common_is_what_counters_say(
    lists: list[list[int]], repeated: bool, cells: int
) -> None:

    elements = np.array([one for some in lists for one in some], dtype=np.int64)
    rows = np.repeat(np.arange(len(lists)), [len(some) for some in lists])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured, "_CELLS_AT_ONCE", cells)
        order = np.argsort(elements, kind="stable")
        found, shared = in_common(begins(elements[order]), rows[order], len(lists), repeated=repeated)
    counts = [Counter(some) if repeated else Counter(set(some)) for some in lists]
    assert shared.tolist() == [sum(one in some for some in lists) > 1 for one in elements[order].tolist()]
    for i, one in enumerate(counts):
        for j, other in enumerate(counts):
            if i != j:
                assert found[i, j] == (one & other).total()


def test_words_of_scripts_with_and_without_spaces() -> None:
    assert words_of("It's Paris-Nord, 2 km!") == ["it", "s", "paris", "nord", "2", "km"]
    assert words_of("Größe: 東京です、京") == ["grösse", "東京", "京で", "です", "京"]
    assert words_of("กรุง 2 เมือง") == ["กร", "รุ", "ุง", "2", "เม", "มื", "ือ", "อง"]
    assert words_of("नई दिल्ली") == ["नई", "दिल्ली"]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("12.50 €", "12.5 €", True),
        ("so 1,500.00.", "so 1500", True),
        ("12.5", "125", False),
        ("12.5", "12 5", False),
        ("12,5", "12.5", False),
        ("1.2.3", "1.2.4", False),
    ],
)
def test_a_number_is_a_word(first: str, second: str, same: bool) -> None:
    assert (words_of(first) == words_of(second)) == same


def test_heads_in_scripts_without_spaces_share_words() -> None:
    answers = answer_batch(["首都是北京。", "首都是北京市。", "上海。"], np.eye(3), [False] * 3)
    one, other, last = EVERY["contained"].of(Measured(answers))
    assert (one, other, last) == (0.5, 2 / 5, 0.0)


# What holds for every signal, as streamer.scoring.contract has it for scores.

LISTS = (
    SignalList(),
    SignalList(
        given=("score", "logprob", "judge", "token_entropy"),
        models=("a", "b"),
        declared=(("retrieval", -1.0, 3.0),),
    ),
)


def came_with(answers: AnswerBatch) -> dict[str, list[float | None]]:
    """Numbers that follow each answer, wherever it stands; some are missing."""
    sizes = [len(text) for text in answers.texts]
    return {
        "score": [None if size == 6 else size % 7 / 7 for size in sizes],
        "logprob": [-size / 100 for size in sizes],
        "judge": [float(size % 101) for size in sizes],
        "token_entropy": [size / 100 for size in sizes],
        "retrieval": [size % 4 - 1.0 for size in sizes],
    }


def every_batch() -> list[AnswerBatch]:
    return [replace(one, models=["ab"[len(text) % 2] for text in one.texts]) for one in sample_batches()]


@pytest.mark.parametrize("signals", LISTS, ids=["measured", "given too"])
def test_every_signal_keeps_the_contract(signals: SignalList) -> None:
    rng, alone = np.random.default_rng(11), []
    for answers in every_batch():
        before = (list(answers.texts), list(answers.forms), answers.embeddings.tobytes(), list(answers.blank))
        rows = signals.rows(answers, QUESTION, came_with(answers))
        alone.append(rows)
        n, blank = len(answers.texts), np.asarray(answers.blank)
        assert (rows.dtype, rows.shape) == (np.float32, (n, len(signals.columns)))
        assert np.isfinite(rows).all()
        assert np.abs(rows).max() <= CLIP
        assert not rows[blank].any(), "a blank answer has zeros"
        assert not np.signbit(rows[rows == 0]).any()
        assert before == (
            list(answers.texts),
            list(answers.forms),
            answers.embeddings.tobytes(),
            list(answers.blank),
        )
        order = rng.permutation(n).tolist()
        other = AnswerBatch(
            [answers.texts[i] for i in order],
            [answers.forms[i] for i in order],
            answers.embeddings[order],
            [answers.blank[i] for i in order],
            [answers.models[i] for i in order],
        )
        moved = signals.rows(other, QUESTION, came_with(other))
        np.testing.assert_allclose(moved, rows[order], rtol=0, atol=100 * TOLERANCE)
        scores = choice_scores(answers)
        np.testing.assert_allclose(choice_scores(other), scores[order], rtol=0, atol=TOLERANCE)
        assert (scores == scores.round(6)).all()
        assert not scores[blank].any()
        assert ((scores >= 0) & (scores <= 1)).all()
    again = [signals.rows(one, QUESTION, came_with(one)) for one in reversed(every_batch())][::-1]
    assert all((a == b).all() for a, b in zip(alone, again, strict=True)), (
        "twice the same, whatever came before"
    )


def test_the_choice_is_gram_energy_and_chrf() -> None:
    scores = choice_scores(batch())
    assert scores[0] == round((values("gram")[0] + values("chrf")[0]) / 2, 6)
    assert scores[0] == scores[2] > scores[1] > scores[3] > scores[4] == 0


def test_rows_are_scaled_by_constants_and_clipped() -> None:
    rows = SignalList().rows(batch(), QUESTION)
    for place, one in enumerate(MEASURED):
        wanted = np.clip((one.of(Measured(batch(), QUESTION)) - one.mean) / one.deviation, -4, 4).astype(
            np.float32
        )
        np.testing.assert_array_equal(rows[:4, place], wanted[:4])
    unknown = SignalList().rows(batch())[:, SignalList().columns.index("question_overlap")]
    assert not unknown.any(), "a question that is not known is the scale's mean"
    np.testing.assert_array_equal(SignalList().rows(batch(), ""), SignalList().rows(batch()))


def test_what_comes_with_an_answer() -> None:
    signals = SignalList(
        given=("score", "logprob"), models=("small", "large"), declared=(("retrieval", 0.0, 10.0),)
    )
    assert signals.columns[len(SIGNALS) :] == (
        "score", "score:missing", "logprob", "logprob:missing", "retrieval", "retrieval:missing", "model=small", "model=large",
    )  # fmt: skip
    assert signals.names[-3:] == ("score", "logprob", "retrieval")
    came = {
        "score": [1.0, 0.25, None, 0.0, 0.5],
        "logprob": [0.0, math.log(0.5), None, None, None],
        "retrieval": [5.0, 10.0, None, 0.0, None],
        "another": [99.0] * 5,
    }
    rows = signals.rows(batch(models=("small", "large", "new", "", "small")), None, came)[:, len(SIGNALS) :]
    np.testing.assert_array_equal(
        rows,
        np.array(
            [[1, 0, 1, 0, 0, 0, 1, 0], [-0.5, 0, 0, 0, 1, 0, 0, 1], [0, 1, 0, 1, 0, 1, 0, 0], [-1, 0, 0, 1, -1, 0, 0, 0], [0] * 8]
        ),
    )  # fmt: skip
    assert signals.rows(batch())[0, len(SIGNALS) :].tolist() == [0, 1, 0, 1, 0, 1, 0, 0]


@pytest.mark.parametrize(
    ("came", "said"),
    [
        ({"retrieval": [11.0] * 5}, "retrieval of answer 1 is 11.0, outside its range of 0 to 10"),
        ({"retrieval": [1.0, math.nan, 1.0, 1.0, 1.0]}, "retrieval of answer 2 is nan"),
        ({"score": [1.5] * 5}, "outside its range of 0 to 1"),
        ({"logprob": [0.1] * 5}, "at most 0"),
        ({"token_entropy": [-0.1] * 5}, "at least 0"),
        ({"token_entropy": [math.nan] * 5}, "token_entropy of answer 1 is nan"),
        ({"score": [1.0] * 4}, "4 values, and the batch 5 answers"),
    ],
)
def test_a_number_outside_its_range_is_refused(came: dict[str, list[float | None]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SignalList(given=("score", "logprob", "token_entropy"), declared=(("retrieval", 0.0, 10.0),)).rows(
            batch(), None, came
        )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"version": 1}, f"version of the signals must be {VERSION}, not 1"),
        (
            {"given": ("gram",)},
            "must be among score, logprob, judge, token_entropy, most_token_entropy, low_logprob, least_logprob, not 'gram'",
        ),
        ({"given": ("score", "score")}, "'score' stands twice"),
        ({"models": tuple(map(str, range(MOST_MODELS + 1)))}, "at most 20, not 21"),
        ({"models": ("",)}, "must have names"),
        ({"declared": (("Retrieval", 0.0, 1.0),)}, "the first a letter"),
        ({"declared": (("gram", 0.0, 1.0),)}, "'gram' stands twice"),
        ({"declared": (("retrieval", 1.0, 1.0),)}, "the first less"),
        ({"declared": (("retrieval", 0.0, math.inf),)}, "finite"),
    ],
)
def test_a_list_that_is_none_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SignalList(**wrong)  # type: ignore[arg-type]


def test_a_list_is_written_and_read_and_has_a_hash() -> None:
    made = SignalList(given=("score",), models=("größer",), declared=(("retrieval", 0.0, 1.0),))
    assert (
        made.text == '{"declared":[["retrieval",0.0,1.0]],"given":["score"],"models":["größer"],"version":2}'
    )
    assert SignalList.of_text(made.text) == made
    assert hash(made) == hash(SignalList.of_text(made.text))
    assert made.hash != SignalList().hash
    for changed in (
        "x",
        "[]",
        "{}",
        made.text + " ",
        made.text.replace("0.0", "0"),
        made.text.replace('"score"', "1"),
    ):
        with pytest.raises(ValueError, match=r"."):
            SignalList.of_text(changed)


def test_a_published_version_never_changes() -> None:
    """Policies and records hold rows of it: another scale, order or meaning is another version."""
    assert [(one.name, one.mean, one.deviation) for one in MEASURED] == PUBLISHED


def test_pages_count_the_signals_of_texts() -> None:
    counted = re.compile(r"\b(\d+)\]? (?:signals|numbers of every answer)")
    found = [said for page in ROOT.glob("docs/*.md") for said in counted.findall(page.read_text("utf-8"))]
    assert set(found) == {str(len(OF_TEXTS))}


def test_the_row_of_a_whole_batch_is_the_mean_over_what_is_written() -> None:
    rows = SignalList().rows(batch(), QUESTION)
    np.testing.assert_allclose(batch_row(rows, BLANK), rows[:4].mean(axis=0), atol=1e-6)
    assert batch_row(rows, BLANK).dtype == np.float32
    with pytest.raises(ValueError, match="has no row"):
        batch_row(rows, [True] * 5)


PUBLISHED = [
    ("gram", 0.74, 0.18),
    ("mean_cosine", 0.73, 0.19),
    ("nearest_cosine", 0.85, 0.17),
    ("median_cosine", 0.75, 0.21),
    ("cluster_share", 0.57, 0.4),
    ("centroid", 0.83, 0.17),
    ("exact_match", 0.092, 0.22),
    ("contains", 0.53, 0.23),
    ("contained", 0.53, 0.26),
    ("jaccard", 0.36, 0.22),
    ("rouge_1", 0.46, 0.22),
    ("chrf", 0.44, 0.2),
    ("same_number", 0.12, 0.26),
    ("same_names", 0.53, 0.27),
    ("length", 5.2, 1.7),
    ("length_to_median", 0.072, 0.7),
    ("entropy", 0.61, 0.17),
    ("best_gram", 0.81, 0.12),
    ("best_rouge_1", 0.54, 0.18),
    ("best_chrf", 0.51, 0.17),
    ("best_match", 0.14, 0.25),
    ("batch_cosine", 0.73, 0.16),
    ("question_overlap", 0.32, 0.26),
    ("refusal", 0.024, 0.15),
    ("has_number", 0.43, 0.5),
    ("one_of", 0.13, 0.074),
    ("cut", 0, 1),
    ("unread", 0, 1),
    ("twin", 0, 1),
]


def test_signals_are_declared_by_name_and_range() -> None:
    declared = (("retrieval", 0.0, 1.0), ("margin_2", -1.5, 1e3))
    assert signal_list(["retrieval=0..1", "margin_2=-1.5..1e3"]).declared == declared
    found = declared_ranges({"retrieval": (0, 1), "margin_2": [-1.5, 1000]})
    assert found == {name: (least, most) for name, least, most in declared}
    assert signal_list([]) == SignalList()
    assert signal_list(["half=.5...75", "score", "model=größer"]) == SignalList(
        given=("score",), models=("größer",), declared=(("half", 0.5, 0.75),)
    )


@pytest.mark.parametrize(
    "text",
    ["retrieval", "retrieval=", "retrieval=0", "retrieval=0..", "=0..1", "retrieval=1..0", "retrieval=0..0", "Retrieval=0..1",
     "re-trieval=0..1", "score=0..1", "judge=0..1", "retrieval=0..inf", "retrieval=nan..1", "retrieval=a..b", "a" * 41 + "=0..1"],
)  # fmt: skip
def test_what_declares_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|cannot be called|needs its range"):
        signal_list([text])


@pytest.mark.parametrize(
    "declared",
    [{"a": 1}, {"a": (0, 1, 2)}, {"a": None}, {"a": ("0", "1")}, {1: (0, 1)}, {"a": (0, 10**400)}, ["a"]],
)
def test_ranges_that_are_none(declared: Any) -> None:
    with pytest.raises(ValueError, match=r"the (range|name) of|a dict"):
        declared_ranges(declared)


def test_more_than_twenty_or_one_twice() -> None:
    with pytest.raises(ValueError, match="at most 20"):
        signal_list([f"s{i}=0..1" for i in range(21)])
    with pytest.raises(ValueError, match="twice"):
        signal_list(["a=0..1", "a=0..2"])
