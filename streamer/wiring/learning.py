"""Learned scores of gates: fitted on the record, and put in force."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog

from streamer.errors import TryLater, UsageError
from streamer.gates.folds import cannot_learn
from streamer.gates.policy import RECALIBRATOR
from streamer.labels.learning import Lesson, learn, no_safe_side, score_again, wanted_labels
from streamer.scoring.fitting import NothingToLearn
from streamer.wiring.encoders import encoder
from streamer.wiring.parts import now, open_store, recalibrate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from streamer.gates.policy import GateRevision
    from streamer.labels.learning import Embed
    from streamer.recalibration.run import Recalibration
    from streamer.scoring.learned import LearnedModel
    from streamer.settings.settings import Settings
    from streamer.store import Store

log = structlog.get_logger(__name__)


def fit_score(settings: Settings, gate: str) -> Lesson:
    """Fit a learned score on a gate's labels; writes nothing. Raises `UsageError` as `streamer.labels.learning.learn`."""
    with open_store(settings) as store:
        return _fit(settings, store, store.gates.get(gate))


def _fit(settings: Settings, store: Store, revision: GateRevision) -> Lesson:
    if (why := cannot_learn(revision.settings)) is not None:
        raise UsageError(f"gate {revision.gate}: {why}")
    batches = store.learned_scores.drawn(revision.gate, settings=revision.settings, before=now())
    return learn(revision, batches, _embed(settings, revision))


class ScoreLearner:
    """Fits learned scores for the recalibrator, after a gate's run: on record is a proposal or why there is none.

    Nothing changes a gate here: a person adopts what is proposed. What this installation lacks (the extra, the gate's encoder) is
    logged and not recorded, and tried again after the next run.
    """

    def __init__(self, settings: Settings, *, stopping: Callable[[], bool]) -> None:
        self._settings = settings
        self._stopping = stopping

    def after_run(self, store: Store, gate: str) -> str | None:
        """Fit a score if it is due; returns what became of it, None where it is not due or could not be tried."""
        revision = store.gates.get(gate)
        wanted = wanted_labels(revision.settings, store.score_fits.newest(gate))
        if wanted is None:
            return None
        labelled = store.learned_scores.labelled(gate, settings=revision.settings, before=now())
        if labelled < wanted:
            return None
        log.info("recalibrator.score_fit", gate=gate, labelled=labelled)
        try:
            embed = _embed(self._settings, revision)
            batches = store.learned_scores.drawn(gate, settings=revision.settings, before=now())
            lesson: Lesson | None = learn(revision, batches, partial(self._embed_unless_stopped, embed))
            why = lesson.worth.said if lesson is not None else ""
        except NothingToLearn as error:
            lesson, why = None, str(error)
        except TryLater as error:
            log.info("recalibrator.score_put_off", gate=gate, reason=str(error))
            return None
        except UsageError as error:
            log.warning("recalibrator.score_not_fitted", gate=gate, reason=str(error))
            return None
        outcome = store.score_fits.record(revision, lesson, labelled=labelled, why=why, by=RECALIBRATOR)
        log.info("recalibrator.score_fitted", gate=gate, outcome=outcome, why=why)
        return outcome

    def _embed_unless_stopped(
        self, embed: Embed, texts: Sequence[Sequence[str]]
    ) -> Sequence[NDArray[np.float32]]:
        if self._stopping():
            raise TryLater("the recalibrator is stopping")
        return embed(texts)


def adopt_proposed(
    settings: Settings, gate: str, *, by: str, reason: str
) -> tuple[LearnedModel, Recalibration]:
    """Adopt, as `adopt_score` does, what the recalibrator has proposed. Raises `UsageError` where nothing is proposed."""
    with open_store(settings) as store:
        newest = store.score_fits.newest(gate)
        present = store.gates.get(gate).settings
        if newest is None or newest.model is None or newest.outcome != "proposed":
            raise UsageError(
                f"no score is proposed for gate {gate!r}: `streamer score show {gate}` says what was tried"
            )
        # Where an earlier call was ended after the change it is continued.
        if present.scorer != newest.model.name and not newest.waits(present):
            raise UsageError(
                f"the score that was proposed for gate {gate!r} was fitted for other settings than it has now; it will be "
                "fitted again after the next run"
            )
        model = newest.model
    return model, adopt_score(settings, gate, model, by=by, reason=reason)


def adopt_fitted(
    settings: Settings, gate: str, model: LearnedModel, *, by: str, reason: str
) -> Recalibration:
    """Adopt, as `adopt_score` does, a score that `fit_score` returned: it is fitted again, must come out the same, and is recorded.

    Raises
    ------
    UsageError
        When the labels on record fit another score, or one that is not worth having.
    """
    with open_store(settings) as store:
        revision = store.gates.get(gate)
        # Where an earlier call was ended after the change it is continued.
        if revision.settings.scorer != model.name:
            lesson = _fit(settings, store, revision)
            if lesson.model.name != model.name:
                raise UsageError(
                    f"gate {gate}: the record's labels fit {lesson.model.name}, and the proposal is {model.name}: it was changed, "
                    f"or labels were; `streamer score fit {gate} --out FILE` makes one of the present labels"
                )
            if not lesson.worth.shown:
                raise UsageError(
                    f"gate {gate}: the score {model.name} is not worth having: {lesson.worth.said}"
                )
            store.score_fits.record(
                revision, lesson, labelled=lesson.fit + lesson.calibrate, why=lesson.worth.said, by=by
            )
    return adopt_score(settings, gate, model, by=by, reason=reason)


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
        if (why := cannot_learn(revision.settings)) is not None:
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
        raise UsageError(no_safe_side(revision.gate, revision.settings.method, lost))
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
