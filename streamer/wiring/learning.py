"""Learned scores of gates: fitted on the record, and put in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamer.errors import UsageError
from streamer.labels.learning import Lesson, learn, refusal, score_again
from streamer.wiring.encoders import encoder
from streamer.wiring.parts import now, open_store, recalibrate

if TYPE_CHECKING:
    from streamer.gates.policy import GateRevision
    from streamer.labels.learning import Embed
    from streamer.recalibration.run import Recalibration
    from streamer.scoring.learned import LearnedModel
    from streamer.settings.settings import Settings
    from streamer.store import Store


def fit_score(settings: Settings, gate: str) -> Lesson:
    """Fit a learned score on a gate's labels; writes nothing. Raises `UsageError` as `streamer.labels.learning.learn`."""
    with open_store(settings) as store:
        revision = store.gates.get(gate)
        if (why := refusal(revision.settings)) is not None:
            raise UsageError(f"gate {gate}: {why}")
        batches = store.learned_scores.drawn(gate, settings=revision.settings, before=now())
        return learn(revision, batches, _embed(settings, revision))


def adopt_score(settings: Settings, gate: str, model: LearnedModel, *, by: str, reason: str) -> Recalibration:
    """Put a learned score in force: score the audit sample again, change the gate, calibrate on the fold `calibrate`.

    The gate is closed between the last two, which follow at once. Ended in between, the same call continues. Of a gate that
    demands two people the threshold waits for the second one, and the gate is closed until then.

    Raises
    ------
    UsageError
        When the gate cannot have this score, or cannot be calibrated; it is closed then.
    """
    with open_store(settings) as store:
        revision = store.gates.get(gate)
        if (why := refusal(revision.settings)) is not None:
            raise UsageError(f"gate {gate}: {why}")
        embed = _embed(settings, revision)
        _score_again(store, revision, model, embed)
        if revision.settings.scorer != model.name:
            store.gates.revise(gate, {"scorer": model.name, "model": model.text}, by=by, reason=reason)
            # What was decided since by the score before.
            _score_again(store, store.gates.get(gate), model, embed)
    return recalibrate(settings, gate, by=by, reason=reason, propose=revision.settings.two_people)


def _score_again(store: Store, revision: GateRevision, model: LearnedModel, embed: Embed) -> None:
    drawn = store.learned_scores.to_score(
        revision.gate, settings=revision.settings, scorer=model.name, before=now()
    )
    lost = sum(not one.readable for one in drawn)
    if lost and revision.settings.calibrator.risk == "selective":
        raise UsageError(
            f"gate {revision.gate}: {lost} batches of its audit sample cannot be scored again (their texts are not stored), "
            f"and the promise of method {revision.settings.method} has no safe side on which to count them"
        )
    for some in score_again(model, drawn, embed):
        store.learned_scores.keep(model.name, some)


def _embed(settings: Settings, revision: GateRevision) -> Embed:
    cached = encoder(settings)
    if cached is None or cached.identity.id != revision.settings.encoder:
        runs = "none" if cached is None else cached.identity.id
        raise UsageError(
            f"gate {revision.gate} has the encoder {revision.settings.encoder}, and the one that is configured here is {runs}: "
            "set STREAMER_ENCODER_NAME"
        )
    return cached.embed
