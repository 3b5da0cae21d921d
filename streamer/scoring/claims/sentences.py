"""`sentences@1`: an answer cut into claims where its Markdown blocks and its sentences end. Pure.

A fenced block, a table, a heading and an item of a list are each one claim; in paragraphs a
sentence is, as the library sentencex finds it. White space, rules and whatever else has no letter,
digit or symbol belong to what stands before them. The claims partition the text: joined they are
it, to the last character.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from unicodedata import category

from streamer.extras import needed_by

Span = tuple[int, int]
"""The first character and the one behind the last, counted in code points."""

_MARKS = "|`^~=+<>"
"""Symbols that Markdown draws with."""
_FENCE = re.compile(r"[ \t]*(?P<mark>`{3,}|~{3,})")
_ITEM = re.compile(r"[ \t]*(?:[-*+•]|\d{1,9}[.)])[ \t]")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t\r\n]|\Z)")
_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?\s*")
"""What stands between the head and the rows of a table, if it has a bar."""


@cache
def splitter() -> str:
    """The splitter's name with the version of what finds sentences; a threshold is calibrated for
    one.
    """
    return f"sentences@1/sentencex-{version('sentencex')}"


def sentences(text: str) -> tuple[Span, ...]:
    """Return the spans of a text's claims, in order, each beginning where the one before ends; none
    of an empty text.
    """
    with needed_by("cutting answers into sentences"):
        from sentencex import segment

    ends: list[int] = []
    place = 0
    for block, paragraph in _blocks(text):
        parts = segment("en", block) if paragraph else [block]
        if "".join(parts) != block:
            parts = [block]
        for part in parts:
            place += len(part)
            if not ends or says(part):
                ends.append(place)
            else:
                ends[-1] = place
    if len(ends) > 1 and not says(text[: ends[0]]):
        del ends[0]
    return tuple(zip([0, *ends[:-1]], ends, strict=True)) if ends else ()


def says(text: str) -> bool:
    """Report whether a text has a letter, a digit or a symbol."""
    return any(one.isalnum() or (category(one)[0] == "S" and one not in _MARKS) for one in text)


def _blocks(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the blocks of a text, and whether each is a paragraph; joined they are the text."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    start = place = 0
    paragraph = True

    def block(end: int) -> Iterator[tuple[str, bool]]:
        if end > start:
            yield "".join(lines[start:end]), paragraph

    while place < len(lines):
        line = lines[place]
        fence = _FENCE.match(line)
        if fence is not None:
            yield from block(place)
            start, paragraph = place, False
            place = _closed(lines, place + 1, fence["mark"])
            yield from block(place)
            start, paragraph = place, True
        elif _table(lines, place):
            yield from block(place)
            start, paragraph = place, False
            while place < len(lines) and "|" in lines[place]:
                place += 1
            yield from block(place)
            start, paragraph = place, True
        elif _HEADING.match(line):
            yield from block(place)
            yield line, False
            place += 1
            start, paragraph = place, True
        else:
            if _ITEM.match(line):
                yield from block(place)
                start, paragraph = place, False
            place += 1
            if not line.strip():
                yield from block(place)
                start, paragraph = place, True
    yield from block(place)


def _closed(lines: list[str], place: int, mark: str) -> int:
    """The line behind the fence that closes another; the end, where none does."""
    for number, line in enumerate(lines[place:], start=place):
        bare = line.strip()
        if len(bare) >= len(mark) and set(bare) == {mark[0]}:
            return number + 1
    return len(lines)


def _table(lines: list[str], place: int) -> bool:
    """Whether a table begins on a line: it and the next have a bar, and the next is a rule."""
    two = lines[place : place + 2]
    return len(two) == 2 and all("|" in one for one in two) and _RULE.fullmatch(two[1]) is not None
