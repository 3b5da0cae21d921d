"""Severities: their range, their order, and what they ask a scorer."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.labels import ReferencedAnswer, factuality_severities, judge_severity, lexical_severity
from streamer.labels.lexical import matches, normal_form
from streamer.scoring.answer_head import answer_head


class Table:
    """A scorer that knows the F1 of some pairs, and remembers what it was asked."""

    def __init__(self, f1: dict[tuple[str, str], float] | None = None, default: float = 0.5) -> None:
        self._f1 = f1 or {}
        self._default = default
        self.calls: list[list[tuple[str, str]]] = []

    def f1(self, candidates: Sequence[str], references: Sequence[str]) -> list[float]:
        pairs = list(zip(candidates, references, strict=True))
        self.calls.append(pairs)
        return [self._f1.get(pair, self._default) for pair in pairs]


class TestFactualitySeverity:
    def test_the_best_reference_counts(self) -> None:
        scorer = Table({("Paris.", "Lyon"): 0.2, ("Paris.", "Paris, France"): 0.9, ("Paris.", "Rome"): 0.4})
        (severity,) = factuality_severities(
            [ReferencedAnswer("Paris. It is in France.", ("Lyon", "Paris, France", "Rome"))], scorer
        )
        assert severity.value == pytest.approx(0.1)
        assert severity.raw == pytest.approx(0.1)

    def test_a_negative_f1_is_clipped_and_kept(self) -> None:
        (severity,) = factuality_severities([ReferencedAnswer("Paris", ("Rome",))], Table(default=-0.25))
        assert (severity.value, severity.raw) == (1.0, 1.25)

    def test_an_f1_above_one_by_rounding_is_clipped(self) -> None:
        (severity,) = factuality_severities([ReferencedAnswer("Paris", ("Paris",))], Table(default=1.0000001))
        assert severity.value == 0.0
        assert severity.raw < 0.0

    @pytest.mark.parametrize("text", ["", "  \n", "Reasons without end. Final:"])
    def test_a_blank_head_is_worst_and_asks_nobody(self, text: str) -> None:
        scorer = Table()
        (severity,) = factuality_severities([ReferencedAnswer(text, ("Paris",))], scorer)
        assert (severity.value, severity.raw) == (1.0, 1.0)
        assert scorer.calls == []

    def test_all_pairs_are_asked_for_once_and_together(self) -> None:
        scorer = Table()
        factuality_severities(
            [
                ReferencedAnswer("Paris. Yes.", ("Paris", " Paris ", "", "Lutetia")),
                ReferencedAnswer("Paris. No.", ("Paris",)),
                ReferencedAnswer(" ", ("Paris",)),
            ],
            scorer,
        )
        assert scorer.calls == [[("Paris.", "Paris"), ("Paris.", "Lutetia")]]

    def test_nothing_gives_nothing(self) -> None:
        assert factuality_severities([], Table()) == ()

    @pytest.mark.parametrize("references", [(), ("",), (" ", "\t")])
    def test_without_a_reference_there_is_no_severity(self, references: tuple[str, ...]) -> None:
        with pytest.raises(ValueError, match="answer 1 has no reference"):
            factuality_severities(
                [ReferencedAnswer("Paris", ("Paris",)), ReferencedAnswer("Paris", references)], Table()
            )

    @pytest.mark.parametrize("wrong", [math.nan, math.inf])
    def test_a_scorer_that_gives_no_number_is_an_error(self, wrong: float) -> None:
        with pytest.raises(ValueError, match="finite"):
            factuality_severities([ReferencedAnswer("Paris", ("Rome",))], Table(default=wrong))

    @given(
        st.lists(
            st.tuples(st.text(), st.lists(st.text(), max_size=3).map(lambda more: ("Paris", *more))),
            max_size=6,
        ),
        st.floats(-2, 2),
    )
    def test_values_are_in_range_and_follow_raw(
        self, answers: list[tuple[str, tuple[str, ...]]], f1: float
    ) -> None:
        severities = factuality_severities(
            [ReferencedAnswer(*answer) for answer in answers], Table(default=f1)
        )
        assert len(severities) == len(answers)
        for severity, (text, _) in zip(severities, answers, strict=True):
            assert 0.0 <= severity.value <= 1.0
            assert severity.raw == (1.0 - f1 if answer_head(text) else 1.0)
            assert severity.value == pytest.approx(min(max(severity.raw, 0.0), 1.0), abs=1e-6)


class TestLexicalSeverity:
    @pytest.mark.parametrize(
        ("answer", "reference"),
        [
            ("Paris", "paris"),
            ("The Beatles!", "beatles"),
            ("ＰＡＲＩＳ", "paris"),
            ("Straße", "STRASSE"),
            ("Beyonce\u0301", "Beyoncé"),
            ("$1,000", "1000"),
            ("\u22125", "-5"),
            ("(-5)", "-5"),
            ("rock 'n' roll", "rock n roll"),
            ("«Париж».", "париж"),
            ("巴黎。", "巴黎"),
            ("A", "a"),
            ("the\u00a0Paris", "Paris"),
        ],
    )
    def test_the_same_words_are_fine(self, answer: str, reference: str) -> None:
        assert lexical_severity(answer, ["something else", reference]) == 0.0

    @pytest.mark.parametrize(
        ("answer", "reference"),
        [
            ("3.5", "35"),
            (".5", "5"),
            ("-5", "5"),
            ("C++", "C"),
            ("C#", "C++"),
            ("Mate", "Maté"),
            ("A", "The"),
            ("Paris, France", "Paris"),
            ("", "Paris"),
            ("?!", "Paris"),
            ("New  York", "NewYork"),
        ],
    )
    def test_other_words_are_not(self, answer: str, reference: str) -> None:
        assert lexical_severity(answer, [reference]) == 1.0

    @pytest.mark.parametrize(
        ("answer", "severity"),
        [("It is Paris, France.", 0.0), ("Parisian", 1.0), ("It is New York", 1.0), ("paris", 0.0)],
    )
    def test_an_alias_may_stand_inside_the_answer(self, answer: str, severity: float) -> None:
        assert lexical_severity(answer, ["Paris", "York New"], match="contained") == severity

    @pytest.mark.parametrize("references", [[], ["", " "]])
    def test_without_a_reference_there_is_no_severity(self, references: list[str]) -> None:
        with pytest.raises(ValueError, match="no reference"):
            lexical_severity("Paris", references)

    def test_a_reference_of_punctuation_alone_matches_nothing(self) -> None:
        assert not matches("?", ["!"])
        assert not matches("Paris", ["!"], "contained")

    @given(st.text())
    def test_the_normal_form_is_stable(self, text: str) -> None:
        form = normal_form(text)
        assert normal_form(form) == form
        assert form == " ".join(form.split())

    @given(st.text(), st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=4))
    def test_what_is_exact_is_contained(self, answer: str, references: list[str]) -> None:
        exact = lexical_severity(answer, references)
        contained = lexical_severity(answer, references, match="contained")
        assert contained <= exact
        assert {exact, contained} <= {0.0, 1.0}


class TestJudgeSeverity:
    @pytest.mark.parametrize(("mark", "severity"), [(0, 1.0), (100, 0.0), (88.6, 0.114), (50, 0.5)])
    def test_it_is_the_mark_turned_round(self, mark: float, severity: float) -> None:
        assert judge_severity(mark) == severity

    @pytest.mark.parametrize("mark", [-0.1, 100.1, math.nan, math.inf])
    def test_other_marks_are_refused(self, mark: float) -> None:
        with pytest.raises(ValueError, match="from 0 to 100"):
            judge_severity(mark)

    @given(st.floats(0, 100), st.floats(0, 100))
    def test_a_better_mark_is_never_more_severe(self, one: float, other: float) -> None:
        low, high = sorted((one, other))
        assert 0.0 <= judge_severity(high) <= judge_severity(low) <= 1.0
