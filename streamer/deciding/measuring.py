"""What a scorer and a list of signals make of a batch, for the decision and for a candidate."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import structlog
from numpy.typing import NDArray

from streamer.events.responses import ResponsesV1, models_named, numbers_given
from streamer.gates.policy_gate import unit_row
from streamer.gates.settings import GateSettings
from streamer.labels.answer_forms import answer_batch
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.scoring.scorer import AnswerBatch, Given, Scorer
from streamer.scoring.signals.measured import Measured
from streamer.scoring.signals.signal_list import scored_for_choice

log = structlog.get_logger(__name__)


class NoScore(Exception):
    """There are no scores of a batch; the argument says why, in one word."""


class Made(NamedTuple):
    """n scores, the numbers behind them where these are kept, and the row of what the unit may ship."""

    scores: tuple[float, ...]
    raw: tuple[float | None, ...] | None
    row: NDArray[np.float32] | None


def batch_made(
    settings: GateSettings,
    event: ResponsesV1,
    blank: Sequence[bool],
    vectors: NDArray[np.float64] | NDArray[np.float32] | None,
    *,
    encoded: bool,
) -> AnswerBatch:
    """Return the answers as scorers see them. `vectors` : their embeddings; None: none are read."""
    texts = [one.text for one in event.responses]
    rows = np.empty((len(texts), 0)) if vectors is None else vectors
    return answer_batch(texts, rows, blank, models_named(event), encoded=encoded, form=settings.form)


def scores_given(scorer: Scorer, event: ResponsesV1, blank: Sequence[bool]) -> Given:
    """Make the scores of the numbers that came with the event. Raises `NoScore` where one is missing."""
    numbers = [getattr(one, scorer.of_event or "") for one in event.responses]
    given = scorer.of_given(numbers, blank)
    if given is None:
        raise NoScore(scorer.missing)
    return given


def measured(settings: GateSettings, event: ResponsesV1, batch: AnswerBatch) -> Made:
    """Score a batch, and measure its signals where the settings list some. Raises `NoScore`
    where something is missing, was not read, or lies outside its range, `ValueError` where the
    scorer cannot score these."""
    scorer, listed = settings.scores_by, settings.signal_list
    seen = None if listed is None else Measured(batch, event.prompt)
    given: Given
    if scorer.of_event is not None:
        given = scores_given(scorer, event, batch.blank)
    elif seen is None and scorer.holds(batch):
        raise NoScore("not_read")
    else:
        scores, raw = scorer.with_raw(batch) if seen is None else scored_for_choice(seen)
        kept = None if raw is None else tuple(None if math.isnan(x) else x for x in raw.tolist())
        given = tuple(scores.tolist()), kept
    if seen is None or listed is None:
        return Made(*given, None)
    came = numbers_given(event.responses)
    try:
        listed.check(came)
    except ValueError as error:
        log.info("deciding.signal_refused", gate=event.gate, batch_id=event.batch_id, reason=str(error))
        raise NoScore("signal_out_of_range") from None
    rows = listed.of_measured(seen, came)
    return Made(*given, unit_row(settings.unit, rows, given[0], batch.blank))


def best_score(
    settings: GateSettings,
    texts: Sequence[str],
    encoder: CachedEncoder | None,
    logprobs: Sequence[float | None],
) -> float:
    """Score answers, at least as many as the gate's scorer needs, and return the score of the one
    that the gate would select; 0.0 where all are blank, or where the gate's encoder does not read
    one.

    The encoder remembers the texts, so that the decision about them does not encode them again; it
    blocks, and what it raises (`Unavailable`, `EncoderGivenUp`) is raised. Raises `ValueError` when
    the encoder is not the gate's, or the scorer cannot score these.
    """
    blank = settings.form.blank(texts)
    if all(blank):
        return 0.0
    if settings.of_event is not None:
        made = settings.scores_by.of_given(logprobs, blank)
        if made is None:
            raise ValueError("the upstream gave an answer without log-probabilities")
        return max(made[0])
    if encoder is None or encoder.identity.id != settings.encoder:
        raise ValueError(f"the gate's encoder is {settings.encoder}, which does not run here")
    (vectors,) = encoder.embed([settings.form.parts(texts)])
    batch = answer_batch(list(texts), vectors, blank, encoded=True, form=settings.form)
    if settings.signal_list is None and settings.scores_by.holds(batch):
        return 0.0
    scores = settings.scores_by.with_raw(batch)[0]
    return max(float(score) for score, empty in zip(scores, blank, strict=True) if not empty)
