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
from streamer_verify.verifier import Verifier

_CASE = re.compile(r"CASE ([0-9A-Za-z]{16,}) begins\n(.*)\nCASE \1 ends\n", re.DOTALL)


def check_mark(line: Mapping[str, Any], verifier: Verifier) -> None:
    """Compare one response's mark, which the log has, with what its judge was asked and said.

    `line` is one of `streamer.audit.verification.Snapshot.marked`.
    """
    place = "judgements ({}/{}#{}, response {!r})".format(*line["batch"], line["response_id"])
    judged = line["judged"]
    if not judged:
        text = line["text"]
        if line["mark"] == 0 and (text is None or is_blank(answer_head(text))):
            return  # an empty head is put before no judge
        verifier.fault("score", place, "what the judge said of it is not on record")
        return
    kept = [one for one in judged if one["exchanges"] is not None]
    if not kept:
        verifier.counts["marks not read again"] += 1
        said = "some marks were not read again: the judge's words are erased"
        verifier.notes["marks not read again"] = said
        return
    found = []
    for one in kept:
        if not one["intact"]:
            verifier.fault("score", place, "what the judge was asked or said was changed")
            continue
        exchanges = exchanges_of(one["exchanges"])
        try:
            mark = parse_verdict(exchanges[-1].reply or "").mark
        except (MalformedReply, IndexError):
            verifier.fault("score", place, "its judge's last reply has no mark")
            continue
        if mark != (own := one["mark"]):
            verifier.fault("score", place, f"the judge's reply says {mark:g}, and its mark is {own:g}")
        if line["text"] is not None and not _asked_about(exchanges, line["prompt"], line["text"]):
            verifier.fault("score", place, "the judge was asked about another prompt or answer")
        if not _asked_by_rubric(exchanges, one["judge"]):
            verifier.fault("score", place, "the judge was asked by another rubric than it names")
        found.append(mark)
    if found:
        verifier.counts["marks read again"] += 1
        if (made_of := line["mark"]) not in found:
            wrong = f"its score is made of the mark {made_of:g}, and its judge said {found[-1]:g}"
            verifier.fault("score", place, wrong)


def _asked_by_rubric(exchanges: Sequence[Exchange], judge: str) -> bool:
    """Whether the instructions are those of the judge's name; other versions' rubrics have other names."""
    first = exchanges[0]
    seed, model = first.parameters.get("seed"), str(first.parameters["model"])
    if not (seed is None or isinstance(seed, int)) or judge != judge_name(model, seed):
        return True
    return first.messages[0].content == instructions(SEED if seed is None else seed)


def _asked_about(exchanges: Sequence[Exchange], prompt: str, text: str) -> bool:
    for message in exchanges[0].messages:
        case = _CASE.match(message.content)
        if case is not None:
            material = json.loads(case[2])
            return (material["question"], material["candidate"]) == (prompt, answer_head(text))
    return False
