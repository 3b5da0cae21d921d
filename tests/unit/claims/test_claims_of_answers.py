"""How an answer is cut into claims, and how far others support each."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.calibration.claims import claim_loss, labels_needed
from streamer.calibration.groups import LabelledGroup
from streamer.clouds.claims import RESTS_ON, claimed_prompt, claims_in, shipped_text
from streamer.clouds.cloud import Claim, Cloud, CloudResponse
from streamer.scoring.claims.sentences import says, sentences, splitter
from streamer.scoring.claims.support import features
from streamer.scoring.registry import EVERY, OF_CLAIMS, SUPPORT
from streamer.scoring.scorers.support_learned import BIAS, WEIGHTS
from streamer_verify.claims import scores_of

BLOCKS = (
    "# A heading. Of two\n", "\n", "  \n", "- an item. With two\n  lines\n", "1. first\n",
    "| a | b |\n|---|:-:|\n| 1. | 2 |\n", "```\nx = 1. y\n\n# no heading\n```\n", "~~~~\nopen\n",
    "One sentence. Another, of Dr. No!\r\n", "---\n", "是的。不是。", "👍 ", "a | b\n",
)  # fmt: skip
TEXT = st.lists(st.one_of(st.sampled_from(BLOCKS), st.text(max_size=12)), max_size=12).map("".join)


support = EVERY[SUPPORT].support


def cut(text: str) -> list[str]:
    return [text[first:last] for first, last in sentences(text)]


@given(TEXT)
def test_claims_partition_the_text_and_each_says_something(text: str) -> None:
    parts = cut(text)
    assert "".join(parts) == text
    assert all(parts)
    assert len(parts) < 2 or all(map(says, parts))


def test_markdown_blocks_stay_whole() -> None:
    table, fence = BLOCKS[5], BLOCKS[6]
    wanted = [
        "# Title. Two\n\n", "It is 3.5 km. ", "U.S. forces left.\n\n", "- one. two\n  more\n",
        "- three\n\n", f"{table}\n", fence, "Then. ", "End\n\n---\n",
    ]  # fmt: skip
    assert cut("".join(wanted)) == wanted
    assert cut("~~~\nnever closed\n\nto the end") == ["~~~\nnever closed\n\nto the end"]
    assert splitter().startswith("sentences@1/sentencex-1.")


def test_support_is_what_its_text_says() -> None:
    """By hand: paris, 2 and rivers count as words; paris and 2 are its names and numbers."""
    witnesses = ["Paris has rivers.", " ", "Two rivers; PARIS is 2"]
    gram4 = (8 / 12 + 5 / 12) / 2  # of pari aris rish isha shas has2 as2r s2ri 2riv rive iver vers
    rows = features(["Paris has 2 rivers"], witnesses)
    answer = (5 / 6 + gram4 + 3 / 4) / 3
    assert np.allclose(rows, [[5 / 6, gram4, 3 / 4, 1 / 2, 1 / 2, answer]])
    wanted = (5 / 6 + 3 / 4 + 1 / 2 + 1 / 2 + 2 * answer) / 6
    assert support(["Paris has 2 rivers"], witnesses).tolist() == [round(wanted, 6)]
    odds = math.exp(BIAS + float(rows[0] @ WEIGHTS))
    learned = EVERY["support-learned"].support(["Paris has 2 rivers"], witnesses)
    assert learned.tolist() == [round(odds / (1 + odds), 6)]


@pytest.mark.parametrize("name", OF_CLAIMS)
@given(
    claims=st.lists(TEXT, min_size=1, max_size=4),
    witnesses=st.lists(TEXT.filter(says), min_size=1, max_size=4),
)
def test_a_score_is_a_share_and_no_order_matters_and_the_verifier_derives_it(
    name: str, claims: list[str], witnesses: list[str]
) -> None:
    scorer = EVERY[name]
    found = scorer.support(claims, witnesses)
    assert ((found >= 0) & (found <= 1)).all()
    backwards = scorer.support(claims[::-1], [*witnesses[::-1], "  "])[::-1]
    assert np.allclose(backwards, found, atol=2e-6)
    ends = np.cumsum([0, *map(len, claims)]).tolist()
    texts = list(enumerate(["".join(claims), *witnesses]))
    kept = {"responses": texts, "spans": list(pairwise(ends))}
    again = scores_of(kept, {"judged": "raw@1"}, name, str(scorer.in_place))
    assert np.allclose(again or (), found, atol=2e-6)


@pytest.mark.parametrize("name", OF_CLAIMS)
def test_what_was_not_read_is_not_supported(name: str) -> None:
    scored = EVERY[name].support
    for claim, witness in (
        ("👍", "👎"),
        ("It is not so.", "It is so."),
        ("x < 5", "x > 5"),
        ("ไม่ใช่", "ใช่"),
        ("नहीं", "हाँ"),
    ):
        same, other = (scored([claim], [one] * 3)[0] for one in (claim, witness))
        assert other < same - 0.15, claim
    assert scored(["It is.", "…", ""], ["It is."] * 3).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="another answer"):
        scored(["a"], [" "])


def prompt(*texts: str) -> Cloud:
    return Cloud("q", "?", (), tuple(CloudResponse(f"r{i}", text) for i, text in enumerate(texts)))


def test_what_has_no_claims_is_held_for_a_reason() -> None:
    assert claimed_prompt(prompt("A b.", "A b."), cut=True).held == ""
    assert claimed_prompt(prompt("A b.", "A b.")).held == "no_claims"
    assert claimed_prompt(prompt("<think>A.", "A b."), cut=True).held == "no_claims"
    assert claimed_prompt(prompt("A b.", " ", "<think>A b.</think>"), cut=True).held == "no_witness"
    assert claimed_prompt(prompt("It is so. " * 65, "A b."), cut=True).held == "too_many_units"
    assert claimed_prompt(prompt("It is so. " * 64, "A b."), cut=True).held == ""


def test_the_text_as_shipped_has_only_claims() -> None:
    text = "<think>Hm. No.</think> Yes. It is 5. Or 6."
    claims = claims_in(text)
    assert [one.text for one in claims] == ["Yes. ", "It is 5. ", "Or 6."]
    assert shipped_text(text, claims, [True, False, True]) == "Yes. Or 6."
    marked = shipped_text(text, claims, [True, False, True], "mark")
    assert marked == "Yes. [unsupported: It is 5.] Or 6."
    assert shipped_text(text, claims, [False] * 3, "mark") is None
    given = [replace(claims[1], text="It is 5", span=None), replace(claims[2], text="6", span=None)]
    assert shipped_text(text, given, [True, True]) == "It is 5 6"  # and nothing between them
    assert shipped_text(text, [replace(given[0], text="Hm")], [True]) is None  # nor does reasoning
    assert shipped_text(text, given[::-1], [True, True]) is None


def test_labels_end_where_the_loss_is_certain() -> None:
    scores, severities = np.array([0.9, 0.7, 0.7, 0.5, 0.1]), np.array([0, 1, 0, 1, 0])
    one = LabelledGroup("g", tuple("abcde"), scores, severities)
    needed = {
        name: labels_needed(one, claim_loss(name))
        for name in ("any", "mass:2", "share", "wrong-among")  # each on its own
    }
    assert needed == {"any": 3, "mass:2": 4, "share": 5, "wrong-among": 5}
    for wrong in ("mass", "mass:0", "mass:nan", "all", "any:1"):
        with pytest.raises(ValueError, match="a loss is one of"):
            claim_loss(wrong)
    small = claim_loss("mass:0.5").at(np.array([0.2, 1.0]), np.array([True, False]))
    assert math.isclose(small, 0.4)


@given(
    st.lists(st.lists(st.integers(0, 7), max_size=2), min_size=1, max_size=8),
    st.lists(st.sampled_from(["Amber melts.", "Basalt melts.", "Flint."]), min_size=8, max_size=8),
    st.floats(0, 1),
)
def test_what_ships_is_closed(rests: list[list[int]], said: list[str], threshold: float) -> None:
    """Circles too: no claim ships without what it rests on; what rests on nothing is as it was."""
    count = len(rests)
    made = [
        Claim(f"c{i}", said[i], 0.0, rests_on=tuple(f"c{j % count}" for j in on))
        for i, on in enumerate(rests)
    ]
    cloud = prompt("Amber melts.", "Amber melts. Flint.", "Basalt.")
    first, *others = cloud.responses
    cloud = replace(cloud, responses=(replace(first, claims=tuple(made)), *others))
    alone = support([one.text for one in made], cloud.texts[1:])
    named, prefix = (claimed_prompt(cloud, rests_on=how).group for how in RESTS_ON)
    assert prefix is not None
    ships = dict(zip((one.id for one in made), named.scores > threshold, strict=True))
    assert all(ships[on] for one in made if ships[one.id] for on in one.rests_on)
    assert all(named.scores[i] == alone[i] for i, on in enumerate(rests) if not on)
    assert prefix.scores.tolist() == np.minimum.accumulate(alone).tolist()
