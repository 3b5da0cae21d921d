"""The answer head: the few words of an answer that say what it claims. Pure.

Severities look at the head alone, so that style, length and a rationale neither hide an error nor make one.

The head is, of what comes after the reasoning, in this order:

1. what follows the last ``Final:`` or ``Final answer:`` (any case, with or without Markdown emphasis) that begins a
   line or follows the end of a sentence: the rest of its line, or the next line that is not blank. Where nothing
   follows, the answer was cut off before it said anything, and the head is blank;
2. otherwise the first sentence: up to ``.``, ``!``, ``?`` or ``…`` before white space, up to ``。``, ``！``, ``？`` or
   ``｡`` anywhere, or up to the end of the line. A point ends no sentence after an initial (``J. K. Rowling``), an
   abbreviation (``Dr.``, ``U.S.``, ``No. 5``), the number of a list (``1. Paris``), or before a small letter;

and of that, without Markdown's ``**`` around it, the first 16 words, where words are what white space separates. A
language that writes without spaces is cut by its sentences only.
"""

import re

from streamer.scoring.blank import is_blank

MAX_HEAD_WORDS = 16
"""The paper's bound on a head, in words separated by white space."""

# Every repetition is over characters that cannot begin the next part, so that matching takes linear time.
_BEFORE, _AFTER = r"(?:^|[.!?…。！？])[ \t*_#>-]*", r"[ \t*_]*[:：][*_]*"
_FINAL = re.compile(_BEFORE + r"final(?:[ \t]+answer)?" + _AFTER, re.IGNORECASE | re.MULTILINE)
FIELD = re.compile(_BEFORE + r"(?:final(?:[ \t]+answer)?|answer)" + _AFTER, re.IGNORECASE | re.MULTILINE)
"""``Final:``, ``Final answer:`` or ``Answer:``, and what stands around it."""

WHITE = " \t\n\r\v\f"
"""What is left out around an answer behind its reasoning."""
_TAG = re.compile(r"<(/?)(?:think|thinking|reasoning)>", re.IGNORECASE | re.ASCII)
_SAYS_FINAL = re.compile("final", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’»)\]*_]*+(?=\s)|[。！？｡]+[」』”’）]*")
_LAST_WORD = re.compile(r"[^\s(\[\"'“‘]+\Z")
_ABBREVIATIONS = frozenset({
    "adm", "al", "approx", "blvd", "ca", "capt", "cf", "co", "col", "corp", "dept", "dr", "e.g", "ed", "eds", "est",
    "etc", "fig", "ft", "gen", "gov", "hon", "i.e", "inc", "jr", "lt", "ltd", "maj", "messrs", "mr", "mrs", "ms",
    "mt", "mx", "op", "p", "pp", "pres", "prof", "rep", "rev", "sen", "sgt", "sr", "st", "univ", "viz", "vol", "vs",
})  # fmt: skip


def whole(text: str) -> str:
    """What follows the last ``</think>``, ``</thinking>`` or ``</reasoning>``; nothing, where such a block is opened and not closed."""
    tags = list(_TAG.finditer(text)) if "<" in text else []
    if not tags:
        return text
    return text[tags[-1].end() :].strip(WHITE) if tags[-1][1] else ""


def answer_head(text: str, *, max_words: int = MAX_HEAD_WORDS) -> str:
    """Cut an answer of any length down to its head of at most `max_words` >= 1 words; see the
    module's text for the rule.

    Returns the head, its words separated by single spaces; empty when the answer is blank, or was
    cut off right after ``Final:``. A head of a head is the head itself, unless it holds a
    ``Final:`` of its own. Raises `ValueError` if `max_words` is less than 1.
    """
    if max_words < 1:
        raise ValueError(f"a head has at least 1 word, not {max_words}")
    text = whole(text)
    final = _after_final(text)
    sentence = _first_sentence(text, max_words) if final is None else final
    words = sentence.strip().strip("*").split(maxsplit=max_words)
    head = " ".join(words[:max_words])
    return "" if is_blank(head) else head


def _after_final(text: str) -> str | None:
    """What the last ``Final:`` says, on its line or the next that is not blank; None where there is no such field."""
    # Most texts do not, and to find that out so takes a tenth of the time.
    says = "final" in text.lower() if text.isascii() else _SAYS_FINAL.search(text)
    fields = list(_FINAL.finditer(text)) if says else []
    if not fields:
        return None
    return rest_of_line(text[fields[-1].end() :])


def rest_of_line(text: str) -> str:
    """Return the first line of a text that is not blank; empty where there is none."""
    lines = text.strip().splitlines()
    return lines[0] if lines else ""


def _first_sentence(text: str, max_words: int) -> str:
    line = rest_of_line(text)
    words = line.split(
        maxsplit=max_words + 2
    )  # one may be emphasis, and what follows a sentence tells whether it ends
    if len(words) > max_words + 2:
        line = line[: -len(words[-1])]
    for end in _SENTENCE_END.finditer(line):
        if line[end.start()] != "." or _ends_sentence(line, end.start(), end.end()):
            return line[: end.end()]
    return line


def _ends_sentence(line: str, point: int, after: int) -> bool:
    """Whether the point at `point` ends a sentence whose successor begins after `after`."""
    if line[point : point + 2] == "..":
        return True
    # No abbreviation is longer; the bound keeps a line of a thousand points from costing its square.
    last = _LAST_WORD.search(line[max(0, point - 20) : point])
    word = last.group() if last else ""
    is_initial = len(word) == 1 and word.isalpha() and word.isupper()
    is_abbreviation = word.lower() in _ABBREVIATIONS or ("." in word and word.replace(".", "").isalpha())
    is_list_number = word.isdecimal() and not line[: point - len(word)].strip()
    following = line[after:].lstrip()[:1]
    is_number_sign = word.lower() == "no" and following.isdecimal()
    return not (is_initial or is_abbreviation or is_list_number or is_number_sign or following.islower())
