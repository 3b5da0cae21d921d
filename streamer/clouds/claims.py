"""Claims of the answers in files: which answer is cut, and the group that its claims make."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from streamer.calibration.groups import LabelledGroup
from streamer.clouds.cloud import NOT_KEPT, Claim, Cloud, CloudResponse
from streamer.errors import UsageError
from streamer.scoring.claims.answer import LEFT_OUT as LEFT_OUT
from streamer.scoring.claims.answer import WHY_HELD as WHY_HELD
from streamer.scoring.claims.answer import LeftOut as LeftOut
from streamer.scoring.claims.answer import assembled, cut, parts, why_held
from streamer.scoring.claims.sentences import Span
from streamer.scoring.claims.support import least, places
from streamer.scoring.judged import WHOLE
from streamer.scoring.registry import EVERY, SUPPORT
from streamer.scoring.scorer import Scorer

RestsOn = Literal["named", "prefix"]
RESTS_ON: tuple[RestsOn, ...] = get_args(RestsOn)
"""What a claim rests on, and never ships without: the claims that it names, or all before it."""


@dataclass(frozen=True, slots=True)
class ClaimedPrompt:
    """One prompt with the claims of the `answer` that was chosen; None: none is as was asked.

    `group` has of each claim the least score of it and of what it rests on, so that what ships is
    closed, and its severity, 1 where nobody labelled it. It is None where the prompt is held:
    `held` says why, by a key of `WHY_HELD`.
    """

    cloud: Cloud
    answer: CloudResponse | None
    claims: tuple[Claim, ...] = ()
    group: LabelledGroup | None = None
    held: str = ""


def claimed_prompt(
    cloud: Cloud,
    answer: str = "first",
    *,
    cut: bool = False,
    rests_on: RestsOn = "named",
    scorer: Scorer = EVERY[SUPPORT],
) -> ClaimedPrompt:
    """Choose an answer and score its claims by a scorer of claims.

    `answer` is ``first``, or the model whose answer it is: of `model`, or of ``model`` in `meta`.
    It is a function of the prompt's answers, never of labels. `cut` : an answer that brings no
    claims is cut by `sentences`.
    """
    asked = (one for one in cloud.responses if answer in {"first", model_of(one)})
    chosen = next(asked, None)
    if chosen is None:
        return ClaimedPrompt(cloud, None, held="no_claims")
    claims = chosen.claims
    if claims is None and cut and chosen.text != NOT_KEPT:
        claims = claims_in(chosen.text)
    others = [one.text for one in cloud.responses if one is not chosen]
    witnesses = [WHOLE.part(text) for text in others if text != NOT_KEPT]
    held = why_held(chosen.text, len(claims or ()), witnesses)
    if held:
        return ClaimedPrompt(cloud, chosen, claims or (), held=held)
    assert claims is not None
    scores = scorer.support([one.text for one in claims], witnesses)
    if rests_on == "prefix":
        scores = np.minimum.accumulate(scores)
    else:
        scores = least(scores, places([(one.id, one.rests_on) for one in claims]))
    group = LabelledGroup(
        cloud.batch_id,
        tuple(one.id for one in claims),
        scores,
        np.array([1.0 if one.severity is None else one.severity for one in claims]),
    )
    return ClaimedPrompt(cloud, chosen, claims, group)


def check_answered(prompts: Iterable[ClaimedPrompt], answer: str, where: str) -> None:
    """Raise `UsageError` if no prompt has the answer that was asked for."""
    if all(one.answer is None for one in prompts):
        raise UsageError(f"{where}: no answer is by the model {answer!r}; name one that is there")


def model_of(response: CloudResponse) -> str | None:
    """Return the model that gave an answer, as far as the file says so."""
    named = response.model or response.meta.get("model")
    return named if isinstance(named, str) else None


def claims_in(text: str) -> tuple[Claim, ...]:
    """Cut the answer behind its reasoning by `sentences`; what says nothing is no claim."""
    made = enumerate(cut(text))
    return tuple(Claim(f"c{i:02d}", text[slice(*span)], span=span) for i, span in made)


def shipped_text(
    text: str, claims: Sequence[Claim], ships: Sequence[bool], left_out: LeftOut = "drop"
) -> str | None:
    """Return an answer as it ships; None where nothing does, or a claim is not in the text.

    A claim without a span is looked for behind the one before.
    """
    place, end = WHOLE.span(text) or (0, len(text))
    spans: list[Span] = []
    for claim in claims:
        first = claim.span[0] if claim.span else text.find(claim.text, place)
        last = claim.span[1] if claim.span else first + len(claim.text)
        if not place <= first <= last <= end:
            return None
        spans.append((first, last))
        place = last
    return assembled(text, parts(text, spans, ships, left_out)) if any(ships) else None
