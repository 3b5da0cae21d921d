"""An answer with claims: why one is held whatever the threshold, and its text as it ships. Pure."""

from collections.abc import Sequence
from typing import Literal, get_args

from streamer.calibration.claims import MOST_CLAIMS
from streamer.scoring.blank import is_blank
from streamer.scoring.claims.sentences import Span, says, sentences
from streamer.scoring.judged import WHOLE

LeftOut = Literal["drop", "mark"]
LEFT_OUT: tuple[LeftOut, ...] = get_args(LeftOut)
"""What becomes of claims that do not ship: they are missing in the text, or stand between marks."""
MARKS = ("[unsupported: ", "]")

WHY_HELD = {
    "no_claims": "the answer has no claims",
    "too_many_units": f"the answer has more than {MOST_CLAIMS} claims",
    "no_witness": "no other answer says anything",
}
"""Why a prompt is held whatever the threshold, and no part of the promise: known without labels."""

Part = Span | str
"""What an answer ships, piece by piece: characters of it, from and up to, or a text of ours."""


def cut(text: str) -> tuple[Span, ...]:
    """Cut the answer behind its reasoning by `sentences`; what says nothing is no claim."""
    begin, end = WHOLE.span(text) or (0, len(text))
    spans = [(begin + first, begin + last) for first, last in sentences(text[begin:end])]
    return tuple((first, last) for first, last in spans if says(text[first:last]))


def why_held(text: str, claims: int, witnesses: Sequence[str]) -> str:
    """Say why an answer with so many claims is held, a key of `WHY_HELD`; empty: scores decide.

    `witnesses` : the other answers, without their reasoning.
    """
    if not claims or is_blank(WHOLE.part(text)):
        return "no_claims"
    if claims > MOST_CLAIMS:
        return "too_many_units"
    return "no_witness" if all(map(is_blank, witnesses)) else ""


def parts(
    text: str,
    claims: Sequence[Span],
    ships: Sequence[bool],
    left_out: LeftOut,
) -> tuple[Part, ...]:
    """Return what of an answer ships; nothing where no claim does.

    `claims`: in the order of the text, disjoint. `ships`: one mark for each. `left_out`: `drop`:
    the claims that ship, as they stand; `mark`: those that do not as well, between marks, and the
    promise is about what is not marked. Text of no claim never ships; of what stands between two
    claims white space does, and a new paragraph begins where one was left out with what stood
    there.
    """
    if not any(ships):
        return ()
    made: list[Part] = []
    place = kept = 0
    for (first, last), out in zip(claims, ships, strict=True):
        if out or left_out == "mark":
            bare_gap = not text[place:first].strip()
            line = text[:kept].rstrip(" ")
            ended, lost = len(line) - len(line.rstrip("\n")), kept < place or not bare_gap
            if made and lost and ended < 2 and "\n" * (ended + 1) in text[kept:first]:
                made.append("\n\n"[ended:])
            elif made:
                made.append((place, first) if bare_gap else " ")
            kept = last
            bare = first + len(text[first:last].rstrip())
            made += [(first, last)] if out else [MARKS[0], (first, bare), MARKS[1], (bare, last)]
        place = last
    joined: list[Part] = []
    for part in made:
        before = joined[-1] if joined else ""
        if not isinstance(part, str) and not isinstance(before, str) and before[1] == part[0]:
            joined[-1] = before[0], part[1]
        elif isinstance(part, str) or part[0] < part[1]:
            joined.append(part)
    return tuple(joined)


def assembled(text: str, shipped: Sequence[Part]) -> str:
    """Return the text that `parts` is of."""
    return "".join(part if isinstance(part, str) else text[slice(*part)] for part in shipped)


def places(shipped: Sequence[Part], claims: Sequence[Span]) -> list[Span | None]:
    """Return where in the text that is `assembled` each claim stands; None: it does not."""
    found: dict[Span, Span] = {}
    offset = 0
    for part in shipped:
        if isinstance(part, str):
            offset += len(part)
            continue
        begin, end = part
        for first, last in claims:
            if begin <= first < end:
                found[first, last] = offset + first - begin, offset + min(last, end) - begin
        offset += end - begin
    return [found.get((first, last)) for first, last in claims]


def left_out(shipped: Sequence[Part], claims: Sequence[Span], ships: Sequence[bool]) -> list[Span]:
    """Return where in the text that is `assembled` claims that do not ship are.

    Of each one what stands between marks, with these; or where it is missing, an empty span.
    """
    at, offset = dict[int, Span](), 0
    for part in shipped:
        size = len(part) if isinstance(part, str) else part[1] - part[0]
        if not isinstance(part, str):
            at[part[0]] = (offset, offset + size)
        offset += size
    found = []
    for (first, _), out in zip(claims, ships, strict=True):
        if not out and first in at:
            begin, end = at[first]
            found.append((begin - len(MARKS[0]), end + len(MARKS[1])))
        elif not out:
            place = max((end for start, (_, end) in at.items() if start < first), default=0)
            found.append((place, place))
    return found
