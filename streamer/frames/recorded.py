"""A gate's record, tried as a file of answers is: the same halves, calibrations and figures."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np

from streamer.calibration.groups import LabelledGroup
from streamer.clouds.claims import ClaimedPrompt, RestsOn
from streamer.clouds.cloud import Claim, judged_cloud
from streamer.clouds.evaluated_claims import CLAIM, ClaimOptions, ClaimResult, evaluate_prompts
from streamer.clouds.offline import ScoredCloud
from streamer.clouds.stored_answers import AnswerStore, StoredBatch
from streamer.errors import TryLater, UsageError
from streamer.events.claims import RecordedClaims
from streamer.frames.answers import Encode, Read
from streamer.frames.calibrating import Marking
from streamer.frames.gate import Gate
from streamer.frames.results import Report
from streamer.gates.settings import GateSettings
from streamer.recalibration import age_cut
from streamer.recalibration.one_gate import RunStore
from streamer.scoring.registry import EVERY, claim_scorer
from streamer.wording.numbers import counted, younger_labels


class NothingToTry(TryLater):
    """The record has too little to try a gate on."""


def recorded(
    answers: AnswerStore,
    sample: RunStore,
    gate: str,
    settings: GateSettings,
    *,
    now: datetime,
    since: datetime | None = None,
) -> tuple[list[StoredBatch], list[str]]:
    """Read what a gate decided and drew; say what is left out, and what no calibration reads.

    By age alone, as a calibration chooses.
    """
    found = list(answers.audited(gate, settings=settings, older_than=now, since=since))
    if not found:
        return [], []
    cut = age_cut.of_past(
        [(one.decided_at, one.waits) for one in found],
        now,
        settings,
        lambda first: sample.label_delays(gate, settings=settings, before=first, most=age_cut.MOST_DELAYS),
    )
    kept = [one for one in found if (now - one.decided_at).total_seconds() >= cut.seconds]
    notes = []
    if settings.unit == CLAIM and settings.segment_by is not None:
        notes.append("One threshold is tried for all segments together.")
    closure = sample.alarm_closure(gate)
    if closure is not None and (older := sum(one.decided_at < closure.moment for one in kept)):
        notes.append(
            f"{older} were decided before an alarm brought policy {closure.version}: no calibration reads them."
        )
    if not cut.unused:
        return kept, notes
    said = counted(cut.unused, "drawn prompt is left out, being", "drawn prompts are left out, being")
    young, old = (
        [one.severity for batch in some for one in batch.responses] for some in (found[len(kept) :], kept)
    )
    return kept, [
        *notes,
        f"{said} younger than {age_cut.span(cut.seconds)}.{younger_labels(young, old, unit=settings.unit)}",
    ]


def tried_record(
    batches: Sequence[StoredBatch],
    settings: GateSettings,
    asked: GateSettings,
    encode: Encode | None = None,
) -> tuple[Report, list[str]]:
    """Say what gates with other settings would ship of recorded prompts that did not calibrate
    them; and what has to be said of the record, in sentences.

    `encode` embeds the stored texts, where the record has no scores or signals of what is asked
    about. Raises `UsageError` for another unit, and where texts or an encoder are wanted and are
    not there, `NothingToTry` where too little is labelled.
    """
    if asked.unit != settings.unit:
        raise UsageError(
            f"the audit drew answers to label for the unit {settings.unit}: what the unit {asked.unit} would have cost does not "
            "follow from their labels"
        )
    notes = []
    again = asked.scored_by != settings.scored_by
    kept = [one for one in batches if _usable(one, asked, again=again)]
    if left := len(batches) - len(kept):
        notes.append(_left_out(left, "the texts" if again else "the signals or the metadata"))
    waiting = sum(one.waits for one in kept)
    if len(kept) < 2 or 2 * waiting > len(kept):
        raise NothingToTry(_too_few(len(kept), waiting, notes))
    if again and not (asked.calibrator.of_signals or (asked.embeds and asked.scorer in EVERY)):
        raise UsageError(
            f"scores of the scorer {asked.scorer} cannot be computed from the record; `streamer candidate set` has it score "
            "beside the gate from now on"
        )
    if waiting:
        notes.append(f"{waiting} of {len(kept)} drawn prompts have no label, and count as wrong.")
    if len({one.probability for one in kept}) > 1:
        notes.append("The audit probability changed; times with a higher one count for more.")
    if asked.max_attempts > 1:
        notes.append("Of first attempts alone, at the budget of one attempt.")
    asked = replace(asked, alpha=asked.alpha / asked.max_attempts, max_attempts=1)
    gate = Gate(
        alpha=asked.alpha,
        unit=asked.unit,
        segment_by=asked.segment_by,
        segment_fallback=asked.segment_fallback,
        group_by=asked.group_by,
        scorer=asked.scorer if again and not asked.calibrator.of_signals else None,
        encoder=None if encode is None else Marking(encode),
    )
    clouds = tuple(judged_cloud(one.cloud(settings.severity_kind), settings.form) for one in kept)
    table = Read(clouds, None, len(clouds), "the record", metadata=tuple(one.metadata or {} for one in kept))
    found = [
        ScoredCloud(cloud, one.scores, None if one.signals is None else np.frombuffer(one.signals, "<f4"))
        for cloud, one in zip(clouds, kept, strict=True)
    ]
    if again:
        found = gate._scored(table, asked)[0]
    return gate._learn(None, table, found, asked, "", drop=False).report(), notes


def claimed(
    batches: Sequence[StoredBatch],
    settings: GateSettings,
    scorer: str,
    rests_on: RestsOn = "named",
) -> tuple[list[ClaimedPrompt], list[str]]:
    """Return the prompts of a gate of claims that were scored, and what is left out, in a sentence.

    The gate's own `scorer` counts as it decided; another one scores the recorded texts. Raises
    `NothingToTry` where there are fewer than two.
    """
    found, left = [], 0
    for one in batches:
        if not (scores := one.scores):
            continue
        if scorer != settings.scorer:
            if (kept := RecordedClaims.of(one.metadata)) is None:
                left += 1
                continue
            scores = tuple(kept.scores_by(claim_scorer(scorer)))
        cloud = one.cloud(settings.severity_kind)
        claims = tuple(Claim(said.id, said.text, said.severity) for said in cloud.responses)
        cuts = np.array(scores) if rests_on == "named" else np.minimum.accumulate(scores)
        severities = [1.0 if said.severity is None else said.severity for said in claims]
        ids = tuple(said.id for said in claims)
        group = LabelledGroup(cloud.batch_id, ids, cuts, np.array(severities))
        found.append(ClaimedPrompt(cloud, cloud.responses[0], claims, group))
    notes = [_left_out(left, "the texts")] if left else []
    if len(found) < 2:
        raise NothingToTry(_too_few(len(found), 0, notes))
    return found, notes


def tried_claims(
    gate: str, batches: Sequence[StoredBatch], settings: GateSettings, asked: GateSettings
) -> tuple[list[ClaimResult], list[str]]:
    """Say what a gate of claims with other settings would ship of recorded prompts, and what with
    its own where they differ; see `evaluate_claims`. And what is left out, as `claimed` does, and
    which other settings are not tried.
    """
    ways = {
        ClaimOptions(
            alphas=(one.alpha / one.max_attempts,),
            losses=(one.loss,),
            least_kept=one.least_kept,
            scorer=one.scorer,
            **calibrator_of(one),
        ): said
        for one, said in ((asked, "what if"), (settings, "as it is"))
    }
    prompts = {way.scorer: claimed(batches, settings, way.scorer) for way in ways}
    found = [
        evaluate_prompts(f"gate {gate}, {said}", prompts[way.scorer][0], way) for way, said in ways.items()
    ]
    notes = prompts[asked.scorer][1]
    for name in ("segment_by", "segment_fallback", "label_floor", "pending", "window"):
        if getattr(asked, name) != getattr(settings, name):
            notes.append(f"--{name.replace('_', '-')} is not tried on claims.")
    return found, notes


def calibrator_of(settings: GateSettings) -> dict[str, Any]:
    """The options of claims that are a gate's calibrator."""
    given = tuple(settings.calibrator.parameters().items())
    return {"method": settings.method, "parameters": given}


def beside(
    batches: Sequence[StoredBatch], settings: GateSettings, asked: GateSettings, encode: Encode | None = None
) -> tuple[Report, Report, list[str]]:
    """Try what is asked about and, beside it, the gate's own settings; see `tried_record`."""
    found, notes = tried_record(batches, settings, asked, encode)
    own = None
    if settings == replace(asked, alpha=settings.alpha):
        own = found.at_budget(settings.alpha / settings.max_attempts)
    return found, own or tried_record(batches, settings, settings)[0], notes


def _left_out(left: int, wanted: str) -> str:
    return f"{counted(left, 'prompt is', 'prompts are')} left out: {wanted} are not on record."


def _too_few(kept: int, waiting: int, notes: Sequence[str]) -> str:
    return "".join(f"{one} " for one in notes) + (
        f"{counted(kept, 'prompt was', 'prompts were')} drawn for labelling and can be judged, {waiting} of them without a "
        "label: label what `streamer label queue` shows, or give an earlier --since"
    )


def _usable(batch: StoredBatch, asked: GateSettings, *, again: bool) -> bool:
    """Whether the record has what is read of a prompt."""
    texts = batch.prompt is not None and all(one.text is not None for one in batch.responses)
    if asked.group_by == "prompt" and batch.prompt is None:
        return False
    if batch.metadata is None and (asked.segment_by or asked.group_by not in (None, "prompt")):
        return False
    if again:
        return texts
    return batch.signals is not None or batch.scores is None or not asked.calibrator.of_signals
