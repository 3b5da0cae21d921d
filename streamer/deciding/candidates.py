"""Scores batches by the candidate policies of their gates, beside the decision, which never waits long for it.

A thread of its own scores; the decision is made meanwhile. Whatever fails there, and whatever is not there when the time is up,
is recorded as no score. Nothing of it is read by anything that decides.
"""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

import numpy as np
import structlog
from numpy.typing import NDArray

from streamer.deciding.claims import recorded
from streamer.deciding.measuring import NoScore, batch_made, measured
from streamer.errors import EncoderGivenUp, Unavailable
from streamer.events.claims import ClaimV1
from streamer.events.responses import ResponsesV1, dimension_of
from streamer.gates.batch_key import BatchKey
from streamer.gates.declared import Unit
from streamer.gates.policy import (
    NO_ENCODER_HERE,
    OTHER_UNIT,
    TOO_SLOW,
    CandidateDecision,
    CandidatePolicy,
    segment_of,
)
from streamer.gates.policy_gate import PolicyGate, Ruling
from streamer.gates.settings import GateSettings
from streamer.gates.uniforms import uniforms_for
from streamer.scoring.claims.answer import WHY_HELD
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.scoring.scorer import AnswerBatch

log = structlog.get_logger(__name__)

WAIT_SECONDS = 0.25
"""How long a group of decisions waits at most, once for all of them."""

_MOST_OF_A_DEADLINE = 0.1
"""Share of the time that is left of a request: a decision that a candidate kept too long would be a hold."""

_WHATEVER_SCORES = frozenset(
    {
        "no_threshold",
        "attempts_exhausted",
        "deadline_passed",
        "upstream_mismatch",
        "too_few_responses",
        "empty_text",
        *WHY_HELD,
    }
)
"""Why a batch is held whoever scores it, its gate's scorer or the candidate's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One batch that is decided, as its gate's candidate gets it.

    `unit` is that of the policy that decides, `claims` what it decides one by one with the unit
    `claim`; `held` is why the decision is made without scores, None: it has some. `batch` has the
    answers with embeddings of `encoder`, where the decision has made some; `rows` are the
    embeddings that came with the event, shape (n, d). Random gates draw their numbers from `salt`,
    the gate's secret.
    """

    candidate: CandidatePolicy
    settings: GateSettings
    event: ResponsesV1
    key: BatchKey
    unit: Unit
    blank: tuple[bool, ...]
    claims: tuple[ClaimV1, ...]
    held: str | None
    encoder: str
    batch: AnswerBatch | None
    rows: NDArray[np.float64] | None
    salt: bytes


class CandidateScorer:
    """Scores and decides batches by candidates, with the encoders of this process by id. One caller
    at a time.

    A call may keep its caller waiting for `seconds`, >= 0. What takes longer is given up; while it
    goes on, nothing else is begun, so that a scorer that hangs costs its caller this once.
    """

    def __init__(self, encoders: Mapping[str, CachedEncoder], *, seconds: float = WAIT_SECONDS) -> None:
        self._encoders = encoders
        self._seconds = seconds
        self._thread: threading.Thread | None = None
        self._gates: dict[str, tuple[int, PolicyGate]] = {}
        self._logged: set[tuple[int, str]] = set()

    def begin(
        self, batches: Sequence[Beside], *, left: float = math.inf
    ) -> Callable[[], list[CandidateDecision]]:
        """Begin, and return what gives one decision for each batch when it is called; it raises nothing.

        `left` : seconds that whoever asked for one of the decisions still waits; no more than a part of it is taken.
        """
        ends = monotonic() + min(self._seconds, _MOST_OF_A_DEADLINE * max(0.0, left))
        found: dict[int, CandidateDecision] = {}
        due = []
        for place, one in enumerate(batches):
            if one.held in _WHATEVER_SCORES:
                found[place] = CandidateDecision(one.candidate.number, why=one.held)
            else:
                due.append((place, one))
        given_up = threading.Event()

        def work() -> None:
            for place, one in due:
                if given_up.is_set():
                    return
                found[place] = self._decide(one)

        started = bool(due) and self._start(work)

        def decisions() -> list[CandidateDecision]:
            if started and self._thread is not None:
                self._thread.join(max(0.0, ends - monotonic()))
                given_up.set()
            made = dict(found)
            return [
                made.get(place) or CandidateDecision(one.candidate.number, why=TOO_SLOW)
                for place, one in enumerate(batches)
            ]

        return decisions

    def _start(self, work: Callable[[], None]) -> bool:
        if self._thread is not None and self._thread.is_alive():
            return False
        self._thread = threading.Thread(target=work, name="streamer-candidate", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no thread is to be had
            self._thread = None
            return False
        return True

    def _decide(self, one: Beside) -> CandidateDecision:
        number = one.candidate.number
        try:
            scores, row = self._scores(one)
            ruling = self._ruling(one, scores, row)
            return CandidateDecision(
                number,
                scores,
                shipped=None if ruling is None else ruling.gate.shipped,
                signals=None if row is None else row.astype("<f4").tobytes(),
                needed=None if ruling is None else ruling.needed,
            )
        except NoScore as error:
            return CandidateDecision(number, why=str(error))
        except (Unavailable, EncoderGivenUp):
            return CandidateDecision(number, why=NO_ENCODER_HERE)
        except Exception as error:
            what = (one.candidate.number, type(error).__name__)
            if what not in self._logged:
                self._logged.add(what)
                log.warning(
                    "deciding.candidate_failed",
                    gate=one.key.gate,
                    batch_id=one.key.batch_id,
                    candidate=one.candidate.number,
                    exc_info=error,
                )
            return CandidateDecision(number, why="scorer_failed")

    def _scores(self, one: Beside) -> tuple[tuple[float, ...], NDArray[np.float32] | None]:
        """The scores of a batch, and the row of signals of what its unit may ship, where the candidate keeps one."""
        settings, n = one.settings, len(one.event.responses)
        if settings.unit != one.unit:
            raise NoScore(OTHER_UNIT)
        if one.claims:
            return tuple(recorded(one.event, one.claims).scores_by(settings.scores_by).tolist()), None
        batch = (
            self._batch(one)
            if settings.embeds
            else batch_made(settings, one.event, one.blank, None, encoded=False)
        )
        scores, _, row = measured(settings, one.event, batch)
        if len(scores) != n or not all(0 <= score <= 1 for score in scores):
            raise ValueError(f"{n} answers got the scores {scores}")
        return scores, row

    def _batch(self, one: Beside) -> AnswerBatch:
        """The answers with embeddings of the candidate's encoder: those of the decision, where they are."""
        settings = one.settings
        vectors: NDArray[np.float64] | NDArray[np.float32]
        if one.rows is not None:
            first = one.event.responses[0].embedding
            if first is None or not settings.accepts(one.event.embedding_encoder, dimension_of(first)):
                raise NoScore("encoder_mismatch")
            vectors = one.rows
        elif one.batch is not None and settings.encoder == one.encoder:
            return one.batch
        elif one.held == "scorer_failed" and settings.encoder == one.encoder:
            raise NoScore(one.held)  # the decision has tried these texts already
        elif settings.encoder in self._encoders:
            (vectors,) = self._encoders[settings.encoder].embed(
                [settings.form.parts([r.text for r in one.event.responses])]
            )
        else:
            raise NoScore(NO_ENCODER_HERE)
        return batch_made(settings, one.event, one.blank, vectors, encoded=one.rows is None)

    def _ruling(
        self, one: Beside, scores: tuple[float, ...], row: NDArray[np.float32] | None
    ) -> Ruling | None:
        cut, settings = one.candidate.cut, one.settings
        if cut is None:
            return None
        known = self._gates.get(one.candidate.gate)
        if known is None or known[0] != one.candidate.number:
            made = PolicyGate(
                unit=settings.unit,
                cut=cut,
                rule=one.candidate.rule,
                least_kept=settings.least_kept,
            )
            known = self._gates[one.candidate.gate] = (one.candidate.number, made)
        gate = known[1]
        uniforms = None
        if gate.needs_uniforms:
            ids = [response.id for response in one.event.responses]
            uniforms = uniforms_for(one.salt, one.key, ids, settings.unit)
        segment = None if settings.segment_by is None else segment_of(one.event.metadata, settings.segment_by)
        blank = None if one.claims else one.blank
        return gate.decide(scores, blank=blank, uniforms=uniforms, segment=segment, row=row)
