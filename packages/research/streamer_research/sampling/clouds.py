"""From replies to the lines of a file of response clouds. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamer.scoring.answer_head import answer_head
from streamer_research.sampling.plan import RecordPart, SamplingPlan, Slot
from streamer_research.sampling.prompts import Prompt
from streamer_research.sampling.replies import Found, Ledger

FEWEST = 2
"""Answers of a model without which there is no cloud: noise alone is none, unless it is what was asked for."""


@dataclass(frozen=True, slots=True)
class MadeCloud:
    """One cloud, as far as it is there.

    `line`: one JSON object, without the line's end; None where too many answers are missing for a
    cloud. `answers`: how many it holds. `refused`, `empty`, `missing`: places without an answer:
    refused, without a text, nothing came. `cut_off`: answers that ended at the most tokens.
    `headless`: answers whose head is blank: they say nothing before they end.
    """

    line: str | None
    answers: int
    refused: int
    empty: int
    missing: int
    cut_off: int
    headless: int


def make_clouds(plan: SamplingPlan, ledger: Ledger, cloud: int) -> list[MadeCloud]:
    """One cloud of every prompt, in their order; `cloud`: the arm's number, or 0 where all arms
    share one.
    """
    return [_made(plan, ledger, place, cloud) for place in range(len(plan.prompts))]


def _made(plan: SamplingPlan, ledger: Ledger, place: int, cloud: int) -> MadeCloud:
    prompt = plan.prompts[place]
    noise = plan.noise(place)
    found = ledger.places.get(RecordPart(prompt.question_id, "answer", cloud), {})
    responses: list[dict[str, Any]] = []
    refused = empty = missing = cut_off = by_model = 0
    for slot in plan.slots(prompt, cloud):
        if slot.arm is None:
            text = noise[slot.position]
            meta = _meta(slot, text) | {"made_by": "program", "seed": plan.recipe.seed}
            responses.append({"text": text, "label": None, "meta": meta})
            continue
        one = found.get(slot.position)
        if one is None:
            missing += 1
        elif one.is_refused:
            refused += 1
        elif (text_or_none := one.text) is None:
            empty += 1
        else:
            by_model += 1
            cut_off += one.is_cut_off
            meta = _meta(slot, text_or_none) | _answer_meta(plan, slot.arm, slot, one)
            responses.append({"text": text_or_none, "label": None, "meta": meta})
    line = None
    if len(responses) >= FEWEST and (by_model >= FEWEST or not refused + empty + missing):
        counts = {"refused": refused, "empty": empty, "missing": missing}
        line = json.dumps(
            {
                "question_id": prompt.question_id,
                "question": prompt.question,
                "references": _references(prompt, ledger),
                "responses": responses,
                "sampling": {"recipe": plan.recipe.document(), **_prepared(prompt, ledger), **counts},
            },
            ensure_ascii=False,
        )
    headless = sum(not response["meta"]["head"] for response in responses)
    return MadeCloud(line, len(responses), refused, empty, missing, cut_off, headless)


def _meta(slot: Slot, text: str) -> dict[str, Any]:
    return {
        "mode": slot.mode,
        "family": slot.family,
        "forced_generation": slot.mode == "noise",
        "head": answer_head(text),
    }


def _answer_meta(plan: SamplingPlan, arm: int, slot: Slot, one: Found) -> dict[str, Any]:
    """Everything known about how an answer was made. A value that was not sent is null."""
    reply, sent = one.reply, one.reply.sent
    usage = reply.usage
    asked = plan.arms[arm]
    meant = {"temperature", "top_p"} | ({"seed"} if plan.recipe.send_seed else set())
    return {
        "made_by": "model",
        "model": asked.model,
        "host": asked.host,
        "answered_by": reply.model,
        "fingerprint": reply.fingerprint,
        "temperature": sent.get("temperature"),
        "top_p": sent.get("top_p"),
        "max_tokens": plan.recipe.max_tokens,
        "seed": sent.get("seed"),
        "not_taken": sorted(meant - sent.keys()),
        "rewording": slot.rewording,
        "finish_reason": one.choice.finish_reason,
        "choice": one.place,
        "request": f"{reply.batch.cloud}-{reply.positions[0]}",
        "tokens": None
        if usage is None
        else {"prompt": usage.prompt, "completion": usage.completion, "choices": len(reply.choices)},
    }


def _references(prompt: Prompt, ledger: Ledger) -> list[str]:
    """The references and the paraphrases of the first one, without repetitions."""
    paraphrases = ledger.texts(RecordPart(prompt.question_id, "paraphrase", 0)).values()
    return _distinct([*prompt.references, *paraphrases])


def _prepared(prompt: Prompt, ledger: Ledger) -> dict[str, Any]:
    paraphrases = ledger.texts(RecordPart(prompt.question_id, "paraphrase", 0))
    rewordings = ledger.texts(RecordPart(prompt.question_id, "rewording", 0))
    return {"paraphrases": list(paraphrases.values()), "rewordings": list(rewordings.values())}


def _distinct(texts: Sequence[str]) -> list[str]:
    found: dict[str, str] = {}
    for text in texts:
        found.setdefault(" ".join(text.casefold().split()), text)
    return list(found.values())
