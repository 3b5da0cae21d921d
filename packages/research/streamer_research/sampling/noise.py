"""Noisy answers made by program: the paper's families, each drawn from a seed, none twice in a cloud. Pure."""

from collections.abc import Sequence

from numpy.random import Generator

from streamer.clouds.noise import NoiseFamily, noise_of, one_of

MOST_CHARACTERS = 2000
"""No noisy answer is longer."""

_LONGEST_BORROWED = 200
_DRAWS_A_PIECE = 4
_MOST_PIECES = 8

_CLAIMS = (
    "This was settled by a study of 4,000 cases.",
    "The answer has been known since the early archives were opened.",
    "Three independent surveys came to the same result.",
    "The original records leave no doubt about it.",
    "It was measured twice and found to be the opposite of what is taught.",
)
_ASSERTED = (
    "It happened exactly as people say.",
    "The answer is yes.",
    "Everybody agrees on this.",
    "There was only one of them.",
    "It is well documented.",
    "It came first.",
)
_DENIED = (
    "It never happened.",
    "The answer is no.",
    "Nobody has ever agreed on this.",
    "There were several of them.",
    "Nothing was ever written down about it.",
    "It came last.",
)
_TURNS = ("", "Then again: ", "On the other hand, to be exact: ", "At the same time: ", "And also: ")


def distinct_noise(
    rng: Generator, families: Sequence[NoiseFamily], *, references: Sequence[str], others: Sequence[str]
) -> list[str]:
    """Draw one noisy answer for each of `families`, no two the same.

    Two noisy answers that are alike would agree with one another, as no noise does.

    `rng`: where the draws come from. `families`: one for each answer that is wanted. `references`:
    acceptable answers to the question; contradictions are between the first one and another.
    `others`: answers to other questions, which are wrong here; fabricated citations and
    contradictions use them. Returns `list of str`: as long as `families`; each text has 1 to
    `MOST_CHARACTERS` characters.
    """
    used: set[str] = set()
    texts = []
    for family in families:
        text = ""
        for draw in range(_DRAWS_A_PIECE * _MOST_PIECES):
            pieces = [_piece(rng, family, references, others) for _ in range(1 + draw // _DRAWS_A_PIECE)]
            text = " ".join(pieces)[:MOST_CHARACTERS]
            if text not in used:
                break
        used.add(text)
        texts.append(text)
    return texts


def _piece(rng: Generator, family: NoiseFamily, references: Sequence[str], others: Sequence[str]) -> str:
    right = references[0][:_LONGEST_BORROWED] if references else ""
    wrong = one_of(rng, others)[:_LONGEST_BORROWED] if others else ""
    if family == "contradiction" and not (right and wrong):
        sides = [_ASSERTED, _DENIED] if rng.random() < 0.5 else [_DENIED, _ASSERTED]
        return f"{one_of(rng, sides[0])} {one_of(rng, _TURNS)}{one_of(rng, sides[1])}"
    statement = "The answer is {}." if wrong else one_of(rng, _CLAIMS)
    return noise_of(family, rng, right=right, wrong=wrong, statement=statement).text
