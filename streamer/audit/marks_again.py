"""Reading a judge's marks again from its stored words: the number that a score is made of, from the reply that it stands in."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from streamer.labels.judge.exchanges import exchanges_of
from streamer.labels.judge.parsing import MalformedReply, parse_verdict
from streamer.labels.judge.rubric import SEED, instructions, judge_name
from streamer.labels.llm.record import Exchange
from streamer.scoring.answer_head import answer_head
from streamer.scoring.blank import is_blank
from streamer.scoring.scorers.judge import Judge
from streamer_verify.verifier import Verifier

_CASE = re.compile(r"CASE ([0-9A-Za-z]{16,}) begins\n(.*)\nCASE \1 ends\n", re.DOTALL)


def check_marks(line: Mapping[str, Any], verifier: Verifier) -> None:
    """Compare the marks that a decision's scores are made of with what its judge was asked and said, by its line.

    Words that are not those that were sealed are not read: the verifier names them.
    """
    facts = line["facts"]
    if facts["scorer"] != Judge.name:
        return
    texts = line["content"]["texts"] if "content" in line else [None] * len(facts["responses"])
    judged = list(zip(facts.get("judged", ()), line.get("judged", ()), strict=False))
    for (name, _, made_of, *_), text in zip(facts["responses"], texts, strict=True):
        if made_of is not None:
            place = "judgements ({}/{}#{}, response {!r})".format(*facts["batch"], name)
            own = [both for both in judged if both[0]["response"] == name and both[0]["mark"] is not None]
            asked = None if text is None else (line["content"]["prompt"], answer_head(text))
            _check_mark(made_of, own, asked, place, verifier)


def _check_mark(
    made_of: float,
    judged: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
    asked: tuple[str, str] | None,
    place: str,
    verifier: Verifier,
) -> None:
    if not judged:
        if made_of != 0 or (
            asked is not None and not is_blank(asked[1])
        ):  # an empty head is put before no judge
            verifier.fault("score", place, "what the judge said of it is not on record")
        return
    kept = [(one, words["content"]) for one, words in judged if "content" in words]
    if not kept:
        verifier.counts["marks not read again"] += 1
        said = "some marks were not read again: the judge's words are erased"
        verifier.notes["marks not read again"] = said
        return
    found = []
    for one, words in kept:
        if not verifier.is_sealed(words, words["exchanges"], one["content_mac"]):
            continue
        exchanges = exchanges_of(words["exchanges"])
        try:
            mark = parse_verdict(exchanges[-1].reply or "").mark
        except (MalformedReply, IndexError):
            verifier.fault("score", place, "its judge's last reply has no mark")
            continue
        if mark != (own := one["mark"]):
            verifier.fault("score", place, f"the judge's reply says {mark:g}, and its mark is {own:g}")
        if asked is not None and not _asked_about(exchanges, asked):
            verifier.fault("score", place, "the judge was asked about another prompt or answer")
        if not _asked_by_rubric(exchanges, one["judge"]):
            verifier.fault("score", place, "the judge was asked by another rubric than it names")
        found.append(mark)
    if found:
        verifier.counts["marks read again"] += 1
        if made_of not in found:
            wrong = f"its score is made of the mark {made_of:g}, and its judge said {found[-1]:g}"
            verifier.fault("score", place, wrong)


def _asked_by_rubric(exchanges: Sequence[Exchange], judge: str) -> bool:
    """Whether the instructions are those of the judge's name; other versions' rubrics have other names."""
    first = exchanges[0]
    seed, model = first.parameters.get("seed"), str(first.parameters["model"])
    if not (seed is None or isinstance(seed, int)) or judge != judge_name(model, seed):
        return True
    return first.messages[0].content == instructions(SEED if seed is None else seed)


def _asked_about(exchanges: Sequence[Exchange], asked: tuple[str, str]) -> bool:
    for message in exchanges[0].messages:
        case = _CASE.match(message.content)
        if case is not None:
            material = json.loads(case[2])
            return (material["question"], material["candidate"]) == asked
    return False
