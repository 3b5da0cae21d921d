"""Scores batches by the candidate policies of their gates, beside the decision, which never waits long for it.

A thread of its own scores; the decision is made meanwhile. Whatever fails there, and whatever is not there when the time is up,
is recorded as no score. Nothing of it is read by anything that decides.
"""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import NamedTuple

import numpy as np
import structlog
from numpy.typing import NDArray

from streamer.deciding.claims import recorded
from streamer.deciding.measuring import NoScore, batch_made, measured
from streamer.deciding.pending import Pending, accepts, known_beside
from streamer.errors import EncoderGivenUp, Unavailable
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


class Beside(NamedTuple):
    """One batch that is decided, as its gate's candidate gets it, with the candidate's settings."""

    candidate: CandidatePolicy
    settings: GateSettings
    p: Pending


def beside_of(p: Pending) -> Beside | None:
    """The batch as its gate's candidate gets it; None where there is none, or it has decided it already."""
    candidate = p.active.candidate
    if candidate is None or candidate.settings is None or known_beside(p) is not None:
        return None
    return Beside(candidate, candidate.settings, p)


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
            if one.p.held in _WHATEVER_SCORES:
                found[place] = CandidateDecision(one.candidate.number, why=one.p.held)
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
                    gate=one.p.key.gate,
                    batch_id=one.p.key.batch_id,
                    candidate=one.candidate.number,
                    exc_info=error,
                )
            return CandidateDecision(number, why="scorer_failed")

    def _scores(self, one: Beside) -> tuple[tuple[float, ...], NDArray[np.float32] | None]:
        """The scores of a batch, and the row of signals of what its unit may ship, where the candidate keeps one."""
        settings, p, n = one.settings, one.p, len(one.p.event.responses)
        if settings.unit != p.active.policy.settings.unit:
            raise NoScore(OTHER_UNIT)
        if p.claims:
            return tuple(recorded(p.event, p.claims).scores_by(settings.scores_by).tolist()), None
        batch = (
            self._batch(settings, p)
            if settings.embeds
            else batch_made(settings, p.event, p.blank, None, encoded=False)
        )
        scores, _, row = measured(settings, p.event, batch)
        if len(scores) != n or not all(0 <= score <= 1 for score in scores):
            raise ValueError(f"{n} answers got the scores {scores}")
        return scores, row

    def _batch(self, settings: GateSettings, p: Pending) -> AnswerBatch:
        """The answers with embeddings of the candidate's encoder: those of the decision, where they are."""
        vectors: NDArray[np.float64] | NDArray[np.float32]
        same = settings.encoder == p.active.policy.settings.encoder
        if p.rows is not None:
            if not accepts(settings, p.event):
                raise NoScore("encoder_mismatch")
            vectors = p.rows
        elif p.batch is not None and same:
            return p.batch
        elif p.held == "scorer_failed" and same:
            raise NoScore(p.held)  # the decision has tried these texts already
        elif settings.encoder in self._encoders:
            (vectors,) = self._encoders[settings.encoder].embed(
                [settings.form.parts([r.text for r in p.event.responses])]
            )
        else:
            raise NoScore(NO_ENCODER_HERE)
        return batch_made(settings, p.event, p.blank, vectors, encoded=p.rows is None)

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
        gate, p = known[1], one.p
        uniforms = None
        if gate.needs_uniforms:
            ids = [response.id for response in p.event.responses]
            uniforms = uniforms_for(p.active.audit_salt, p.key, ids, settings.unit)
        segment = None if settings.segment_by is None else segment_of(p.event.metadata, settings.segment_by)
        blank = None if p.claims else p.blank
        return gate.decide(scores, blank=blank, uniforms=uniforms, segment=segment, row=row)
