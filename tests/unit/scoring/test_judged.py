"""The judged part of an answer: what each form makes of it, whatever it is, and how far answers agree in it."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.scoring.answer_head import answer_head
from streamer.scoring.judged import FORMS, form
from tests.growth import grows_in_proportion

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(), inside, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.text(), VALUES, max_size=3)
HOSTILE = [
    "[" * 100_000, "[" * 33 + "]" * 33, '{"a":' * 40 + "1" + "}" * 40, "1e999999", "-1e-999999", "9" * 5000, "1e99999999999999999999",
    '"\\ud800"', '{"\\udfff": 1}', "NaN", "[Infinity]", '{"a": 1, "a": 2}', "[1, 2", "{} {}", "[" + "0," * 1000 + "0]", "\ufeff{}", "'a'",
    '{"a": "</think>"}', '{"a": "\\u003c/think>"}', "```json\n1\n```\n```json\n2\n```", "\u202e{}\u202c", "{\u200b}",
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("Paris.", "Paris."),
        ("  as it was \n", "  as it was \n"),
        ("<think>Lyon? No.</think>\n\nParis.", "Paris."),
        ("so it is Lyon</think> wait </reasoning>Paris.", "Paris."),
        ("<Thinking>a</THINKING> b", "b"),
        ("<think>Lyon, or Paris", ""),
        ("<think>a</think>Paris<reasoning>is it", ""),
        ("a < b, <thin>", "a < b, <thin>"),
    ],
)
def test_whole_leaves_reasoning_out(text: str, part: str) -> None:
    assert form("whole").part(text) == part
    assert form("raw").part(text) == text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("16 - 3 = 13.\n#### 13", "13"),
        ("#### 12\nNo, wrong.\nAnswer: **13 eggs** in all\nBye", "13 eggs** in all"),
        ("Answer:\n\n 13\n14", "13"),
        (r"Answer: 3, so \boxed{\frac{1}{2}} it is.", r"\frac{1}{2}"),
        ("\\boxed{3}\nFinal answer: 4", "4"),
        (r"\boxed{\{3\}}", r"\{3\}"),
        (r"\boxed{3", ""),
        ("It is so.\nFinal:", ""),
        ("Paris. It is old.", "Paris."),
        ("<think>Answer: Lyon</think>Paris. It is old.", "Paris."),
    ],
)
def test_final_is_what_is_said_last(text: str, part: str) -> None:
    assert form("final").part(text) == part


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("2 and 3.\n#### 1,250.50 dollars", "1250.5"),
        ("Answer: many, 7 of 8\n9", "8"),
        ("Seven, say I. 7 it is", "7"),
        ("-0.0", "0"),
        ("1" * 500, ""),
        ("none at all", ""),
        ("<think>7</think> none", ""),
    ],
)
def test_number_is_the_last_one_as_a_decimal(text: str, part: str) -> None:
    assert form("number").part(text) == part


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (' {"b": 1.50, "a": [true, null, "x"]}', '{"a":[true,null,"x"],"b":1.5}'),
        ('Sure:\n```json\n{"a": 1}\n```', ""),
        ('<think>{}</think>\n```json\n{"a": 1e2}\n```', '{"a":100}'),
        ("[]", "[]"),
        ("-0.0", "0"),
        ('"É"', '"É"'),
    ],
)
def test_json_is_one_value(text: str, part: str) -> None:
    assert form("json").part(text) == part


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "pay", "arguments": {"to": "Ada", "sum": 5.0}}',
        '{"id": "c1", "type": "function", "function": {"name": "pay", "arguments": "{\\"sum\\": 5, \\"to\\": \\"Ada\\"}"}}',
        '{"tool_calls": [{"name": "pay", "arguments": {"sum": 5, "to": "Ada"}}]}',
        '<think>pay him</think>```\n[{"name": "pay", "arguments": {"sum": 5, "to": "Ada"}}]\n```',
    ],
)
def test_a_call_is_executed_in_one_form(text: str) -> None:
    call = form("call")
    assert call.part(text) == call.ships(text) == '{"arguments":{"sum":5,"to":"Ada"},"name":"pay"}'


@pytest.mark.parametrize(
    "text",
    [
        "I pay Ada.", "[]", "{}", "5", '{"name": "pay", "arguments": [5]}', '{"name": 5, "arguments": {}}', '{"name": " ", "arguments": {}}',
        '{"name": "pay", "arguments": "{"}', '{"name": "pay", "arguments": {}, "confirm": false}', '[{"name": "pay"}, 5]',
    ],
)  # fmt: skip
def test_what_is_no_call_has_no_form_to_execute(text: str) -> None:
    assert form("call").ships(text) == ""


def test_several_calls_have_no_order() -> None:
    one, other = '{"name": "a", "arguments": {"x": 1}}', '{"name": "b", "arguments": {}}'
    call = form("call")
    parts = call.parts([f"[{one}, {other}]", f"[{other}, {one}]", f"[{one}, {one}]", one])
    assert parts[0] == parts[1]
    assert call.agreement(parts).tolist() == pytest.approx([1 / 3, 1 / 3, 0, 0])


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("name", FORMS)
def test_no_text_breaks_a_form(name: str, text: str) -> None:
    one = form(name)
    for wrapped in (
        text,
        f"<think>{text}</think>{text}",
        f'{{"name": "f", "arguments": {{"x": {text}}}}}',
        f"Answer: {text}",
    ):
        part = one.part(wrapped)
        if one.structured:
            assert (
                one.part(part)
                == part
                == (
                    ""
                    if not part
                    else json.dumps(
                        json.loads(part), separators=(",", ":"), sort_keys=True, ensure_ascii=False
                    )
                )
            )
            part.encode()


@pytest.mark.parametrize("text", HOSTILE)
def test_what_passes_a_bound_is_no_json(text: str) -> None:
    assert form("json").part(text) == ""


@given(
    st.text(alphabet=st.sampled_from("<think>/reasoning #.:{}[]\\boxed\"',\n0123456789eE-Answer")),
    st.sampled_from(sorted(FORMS)),
)
def test_a_form_of_any_text_is_a_text_that_reads_the_same_again(text: str, name: str) -> None:
    part = form(name).part(text)
    if name not in ("final", "number"):
        assert form(name).part(part) == part
    if name == "number" and part:
        assert form(name).part(f"#### {part}") == part


@given(VALUES)
def test_a_value_has_one_form_however_it_is_written(value: object) -> None:
    read = form("json").part
    written = {
        read(json.dumps(value)), read(json.dumps(value, indent=2, ensure_ascii=False)),
        read(f"```json\n{json.dumps(value, sort_keys=True)}\n```"),
    }  # fmt: skip
    assert len(written) == 1
    part = written.pop()
    if part:
        assert json.loads(part, parse_int=float) == json.loads(json.dumps(value), parse_int=float)


@given(st.lists(st.tuples(st.text(min_size=1), ARGUMENTS), min_size=1, max_size=3), st.randoms())
def test_calls_are_executed_as_they_are_scored(calls: list[tuple[str, object]], random: object) -> None:
    given_ = [{"name": name, "arguments": arguments} for name, arguments in calls]
    part = form("call").part(json.dumps(given_))
    random.shuffle(given_)  # type: ignore[attr-defined]
    again = form("call").part(
        json.dumps({"tool_calls": [{"type": "function", "function": one} for one in given_]})
    )
    assert again == part == form("call").part(part)


@given(st.lists(VALUES, min_size=2, max_size=6), st.randoms())
def test_agreement_follows_the_answers_in_any_order(values: list[object], random: object) -> None:
    parts = form("json").parts([json.dumps(value) for value in values])
    order = list(range(len(parts)))
    random.shuffle(order)  # type: ignore[attr-defined]
    found = form("json").agreement(parts)
    assert ((found >= 0) & (found <= 1)).all()
    assert found[order].tolist() == form("json").agreement([parts[i] for i in order]).tolist()
    assert form("json").agreement([parts[0]] * 3).tolist() == [float(bool(parts[0]))] * 3


def test_the_least_certain_field_says_how_far_answers_agree() -> None:
    right = '{"total": 12.50, "to": "Ada  Lovelace", "lines": [1]}'
    texts = [
        right, '{"to": "ada lovelace", "total": 12.5, "lines": [1]}', right.replace("12.50", "13"),
        '{"total": 12.5, "to": "Ada Lovelace"}', "?",
    ]  # fmt: skip
    read = form("json")
    parts = read.parts(texts)
    assert read.agreement(parts).tolist() == [0.5, 0.5, 0.0, 0.0, 0.0]
    assert read.disputed(parts, 0) == {"/lines/0": 0.5, "/total": 0.5, "/to": 0.75}
    assert read.disputed(parts, 4) == {}
    assert read.disputed(parts[:2], 0) == {}
    assert read.agreement(read.parts(["1", '"1"', "1.0", "true"])).tolist() == pytest.approx(
        [1 / 3, 0, 1 / 3, 0]
    )


def test_fields_of_free_text_are_like_each_other() -> None:
    texts = [
        json.dumps({"lines": [{"note": note, "n": 1}]})
        for note in ("sent by post", "sent by the post", "lost")
    ]
    strict, free = form("json"), form("json /lines/*/note")
    assert free.text == "json@1 /lines/*/note"
    assert strict.agreement(strict.parts(texts)).tolist() == [0, 0, 0]
    first, second, third = free.agreement(free.parts(texts)).tolist()
    assert first > 0.3 > third
    assert second > 0.3


def test_shares_of_votes() -> None:
    number = form("number")
    assert number.agreement(number.parts(["A: 18", "18.00 eggs", "19", "?"])).tolist() == pytest.approx(
        [1 / 3, 1 / 3, 0, 0]
    )
    final = form("final")
    assert final.agreement(
        final.parts(["Answer: the Nile.", "So.\nanswer: The Nile", "Answer: ¿?"])
    ).tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize(
    "written", ["", "sentence", "number@2", "whole /a", "json notes", "json  /a", "json@1 /a notes"]
)
def test_other_forms_are_refused(written: str) -> None:
    with pytest.raises(ValueError, match="judged m"):
        form(written)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    "unit",
    ["<think>", "####", "\\boxed{", "{", "Answer:", "`", "```\n", "\n ", "[1,", '{"a":', "9", "1,", "\\{"],
)
def test_no_text_of_the_largest_size_takes_long(name: str, unit: str) -> None:
    def judge(size: int) -> None:
        part = form(name).part((unit * size)[:size])
        form(name).agreement([part] * 3) if form(name).agrees else answer_head(part)

    assert grows_in_proportion(judge, 65_536)


def test_many_answers_of_many_fields() -> None:
    def agree(fields: int) -> None:
        parts = [json.dumps({f"f{i}": i % (k + 2) for i in range(fields)}) for k in range(16)]
        assert np.isfinite(form("json").agreement(form("json").parts(parts))).all()

    assert grows_in_proportion(agree, 912)
