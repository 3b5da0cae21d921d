"""When two short answers are the same words: normalisation and matching of answers and their aliases. Pure.

The normal form follows SQuAD's evaluation (Rajpurkar et al. 2016): small letters, no punctuation, no articles, single
spaces. It departs from it where that would call different answers equal or equal answers different:

- Unicode: compatibility forms are folded (NFKC) and letters case-folded, so that ``ＰＡＲＩＳ`` is ``paris`` and
  ``Straße`` is ``strasse``; punctuation is what Unicode calls so, and ASCII's symbols. Accents stay.
- What distinguishes numbers and names stays: a point inside a number (3.5 is not 35), a minus sign before one (-5 is
  not 5), and ``+`` or ``#`` right after a letter or digit (C++ is neither C nor C#).
- Where nothing would be left without articles (the answer ``A``), they stay.
"""

import re
import string
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Literal

Match = Literal["exact", "contained"]

_ARTICLES = frozenset({"a", "an", "the"})
_SYMBOLS = frozenset(string.punctuation)
_MINUS_SIGNS = "-\N{MINUS SIGN}"
_KEPT = re.compile(
    r"(?<=[0-9])\.(?=[0-9])"  # 3.5
    r"|(?<![\w.])\.(?=[0-9])"  # .5
    rf"|(?<!\w)[{_MINUS_SIGNS}](?=\.?[0-9])"  # -5, -.5
    r"|(?<=\w)[+#]+"  # C++
)


def normal_form(text: str) -> str:
    """The form in which answers are compared: equal forms, equal answers. Idempotent; empty for a blank text.

    See the module's text for the rule.
    """
    form = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # What is removed may bring a sign to a number or an accent to a letter; each round removes something, so it ends.
    while (plainer := _plainer(form)) != form:
        form = plainer
    return form


def _plainer(text: str) -> str:
    dropped = dict.fromkeys(ord(one) for one in set(text) if _is_punctuation(one))
    pieces, end = [], 0
    for kept in _KEPT.finditer(text):
        pieces += [text[end : kept.start()].translate(dropped), kept[0].replace("\N{MINUS SIGN}", "-")]
        end = kept.end()
    plain = "".join([*pieces, text[end:].translate(dropped)])
    words = unicodedata.normalize("NFKC", plain.casefold()).split()
    return " ".join([word for word in words if word not in _ARTICLES] or words)


def _is_punctuation(character: str) -> bool:
    # C: control, format and private characters, and lone surrogates. White space among them still separates words.
    return character in _SYMBOLS or (unicodedata.category(character)[0] in "PC" and not character.isspace())


def matches(answer: str, references: Iterable[str], match: Match = "exact") -> bool:
    """Report whether an answer, or its head, says one of the references: acceptable answers and
    their aliases, of which blank ones are passed over.

    ``exact``: the normal forms are equal. ``contained``: the words of a reference stand in the
    answer, one after another; an answer that names several candidates matches each of them.
    """
    said = normal_form(answer)
    forms = [form for form in map(normal_form, references) if form]
    if match == "exact":
        return said in forms
    words = said.split()
    return any(_holds(words, form.split()) for form in forms)


def _holds(words: Sequence[str], part: Sequence[str]) -> bool:
    return any(words[i : i + len(part)] == part for i in range(len(words) - len(part) + 1))
