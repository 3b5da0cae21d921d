"""The answer head: what an answer claims, without the words around it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.scoring.answer_head import MAX_HEAD_WORDS, answer_head
from tests.growth import grows_in_proportion

WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("Paris", "Paris"),
        ("Paris. It has been the capital for long.", "Paris."),
        ("Paris! No doubt.", "Paris!"),
        ("Paris? Perhaps", "Paris?"),
        ("  Paris\n\nbecause it is", "Paris"),
        ("Paris\u2028because it is", "Paris"),
        ('He said "Paris." Then he left.', 'He said "Paris."'),
        ("It is 3.5 metres. Long.", "It is 3.5 metres."),
        ("巴黎。是的", "巴黎。"),
        ("Париж. Да", "Париж."),
        ("J. K. Rowling wrote it. Yes.", "J. K. Rowling wrote it."),
        ("Dr. Smith did. She was first.", "Dr. Smith did."),
        ("The U.S. Senate. Not the House.", "The U.S. Senate."),
        ("1. Paris\n2. London", "1. Paris"),
        ("It was approx. ten. Or so.", "It was approx. ten."),
        ("No. Paris is.", "No."),
        ("No. 5 is alive. Yes.", "No. 5 is alive."),
        ("a\tb\u00a0c", "a b c"),
        (WORDS, WORDS.removesuffix(" seventeen")),
    ],
)
def test_the_first_sentence_is_the_head(text: str, head: str) -> None:
    assert answer_head(text) == head


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("Let me think. It is not Lyon.\nFinal: Paris", "Paris"),
        ("It is not Lyon. Final: Paris. It always was", "Paris. It always was"),
        ("because\n**Final Answer:** Paris\nDone.", "Paris"),
        ("because\n## FINAL ANSWER: **Paris**", "Paris"),
        ("Final: Lyon\nNo, wait.\nFinal: Paris", "Paris"),
        ("Final:\n\n  Paris\nreally", "Paris"),
        ("Final\uff1aParis", "Paris"),
        ("The reasons are long. Final:", ""),
        ("The final: England against Spain. Yes.", "The final: England against Spain."),
        ("A semifinal: no", "A semifinal: no"),
        (f"Final: {WORDS}", WORDS.removesuffix(" seventeen")),
    ],
)
def test_a_final_field_comes_before_sentences(text: str, head: str) -> None:
    assert answer_head(text) == head


@pytest.mark.parametrize("text", ["", " \n\t ", "\u3000", "\u2028\n"])
def test_a_blank_answer_has_a_blank_head(text: str) -> None:
    assert answer_head(text) == ""


@given(st.text(), st.integers(1, 20))
def test_a_head_is_one_line_of_few_words_from_the_answer(text: str, most: int) -> None:
    head = answer_head(text, max_words=most)
    words = head.split()
    assert len(words) <= most
    assert head == " ".join(words)
    assert head in " ".join(text.split())


@given(st.text(alphabet=st.characters(exclude_characters=":：*")))
def test_a_head_of_a_head_is_the_head(text: str) -> None:
    assert answer_head(answer_head(text)) == answer_head(text)


@given(st.text(alphabet="ab .\n!?"))
def test_only_a_blank_answer_without_a_final_field_has_no_head(text: str) -> None:
    assert (answer_head(text) == "") == (not text.strip())


def test_a_head_has_at_least_one_word() -> None:
    with pytest.raises(ValueError, match="at least 1 word"):
        answer_head("Paris", max_words=0)


@pytest.mark.parametrize(
    "unit",
    [".", "!", ". ", "\n", "*", " ", "- ", "final ", "final", "A. ", 'x."', ".'", "final: ", "\t#", "。"],
)
def test_no_text_of_the_largest_size_takes_long(unit: str) -> None:
    def head(size: int) -> None:
        assert len(answer_head((unit * size)[:size]).split()) <= MAX_HEAD_WORDS

    assert grows_in_proportion(head, 65_536)
