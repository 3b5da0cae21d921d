"""A judge's marks for batches that wait for a decision: within a deadline and a budget, each answer judged once, all on record."""

import hashlib
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from decimal import Decimal

import structlog

from streamer.journal import AnswersToMark, AskedMark, Marks
from streamer.labels.judge.client import JudgeClient
from streamer.labels.judge.endpoint import JudgeEndpoint
from streamer.labels.judge.exchanges import asked_mark
from streamer.labels.judge.record import Judgement
from streamer.labels.judge.rubric import JudgeCase
from streamer.labels.llm.record import PASSING
from streamer.scoring.answer_head import answer_head
from streamer.scoring.blank import is_blank
from streamer.signing.canonical_json import canonical_json

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 10.0
"""How long a judge that answered nothing is not asked again: other batches must not wait for it each time."""

_REMEMBERED = 10_000
_MINUTE = 60.0


class RequestBudget:
    """Counts the requests of the last minute, and allows no more than so many. Thread-safe."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._sent: deque[float] = deque()
        self._lock = threading.Lock()

    def left(self) -> int:
        """How many may be sent now."""
        with self._lock:
            return self._left(self._clock())

    def take(self) -> bool:
        """Count one that is about to be sent; False where it must not be."""
        with self._lock:
            now = self._clock()
            if self._left(now) < 1:
                return False
            self._sent.append(now)
            return True

    def _left(self, now: float) -> int:
        while self._sent and self._sent[0] <= now - _MINUTE:
            self._sent.popleft()
        return self._most - len(self._sent)


def scoring_id(judge_id: str, endpoint: JudgeEndpoint) -> str:
    """Name what decides the marks: model, rubric, and a hash of the decoding parameters. A gate of the scorer `judge` has it."""
    parameters = {name: value for name, value in endpoint.parameters.items() if name != "model"}
    return f"judge:{judge_id}/{hashlib.sha256(canonical_json(parameters)).hexdigest()[:8]}"


class JudgeScores:
    """Asks a judge about batches, some at a time. For one thread; the counts may be read by others.

    `name` is of `scoring_id`. `of` may take `seconds`, > 0; what has no mark then has none. At most
    `per_minute` requests, >= 1, are sent in a minute, further tries and reminders included: a batch
    with more new answers than are left is not asked about, and an answer whose next request is one
    too many has no mark. `report_status` is told whether the judge answers; `clock` has seconds,
    from any start.

    `counts` has answers by what came of them: ``marked``, ``remembered`` (judged before, in this
    process), ``failed``, ``not_asked``. `tokens` are of all requests, as far as the endpoint
    counted; `cost` is None where a price or a count is missing.
    """

    def __init__(
        self,
        judge: JudgeClient,
        *,
        name: str,
        seconds: float,
        per_minute: int,
        report_status: Callable[[bool], None] = lambda _answers: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.id = name
        self.counts: Counter[str] = Counter()
        self.tokens = 0
        self.cost: Decimal | None = None
        self._judge = judge
        self._seconds = seconds
        self._budget = RequestBudget(per_minute, clock)
        self._report_status = report_status
        self._clock = clock
        self._known: OrderedDict[bytes, Judgement] = OrderedDict()
        self._paused_until = float("-inf")

    def of(self, batches: Sequence[AnswersToMark]) -> list[Marks]:
        """Mark all answers of these batches, or give up at the deadline. Blocks; nothing is raised for any content."""
        cases = [
            [None if is_blank(text) else JudgeCase(one.prompt, answer_head(text)) for text in one.answers]
            for one in batches
        ]
        wanted = self._affordable(cases)
        fresh = self._ask(list(wanted.values()))
        found = dict(zip(wanted, fresh, strict=True))
        told: set[bytes] = set()
        return [self._marks(some, found, told) for some in cases]

    def _affordable(self, batches: Sequence[Sequence[JudgeCase | None]]) -> dict[bytes, JudgeCase]:
        """The cases to ask about, each once: whole batches, as long as the budget lasts."""
        if self._clock() < self._paused_until:
            return {}
        left = self._budget.left()
        wanted: dict[bytes, JudgeCase] = {}
        for cases in batches:
            new = {
                key: case
                for case in cases
                if case is not None
                and not is_blank(case.candidate)
                and (key := _key(case)) not in self._known
                and key not in wanted
            }
            if len(wanted) + len(new) <= left:
                wanted |= new
        return wanted

    def _ask(self, cases: Sequence[JudgeCase]) -> list[Judgement | None]:
        if not cases:
            return []
        try:
            found = self._judge.in_time(cases, seconds=self._seconds, allowed=self._budget.take)
        except Exception:
            log.exception("judge.failed", cases=len(cases))
            found = [None] * len(cases)
        now = self._clock()
        for one in found:
            if one is not None:
                self.tokens += one.usage.prompt + one.usage.completion
                if one.cost is not None:
                    self.cost = one.cost if self.cost is None else self.cost + one.cost
        answers = any(
            one is not None and (one.failure is None or one.failure.code not in PASSING) for one in found
        )
        if not answers:
            self._paused_until = now + PAUSE_SECONDS
            failures = Counter(
                one.failure.code for one in found if one is not None and one.failure is not None
            )
            log.warning(
                "judge.does_not_answer", cases=len(cases), failures=dict(failures), pause=PAUSE_SECONDS
            )
        self._report_status(answers)
        return found

    def _marks(
        self, cases: Sequence[JudgeCase | None], found: dict[bytes, Judgement | None], told: set[bytes]
    ) -> Marks:
        """`told` : what of `found` has been paid for in another answer's name."""
        marks: list[float | None] = []
        asked: list[tuple[int, AskedMark]] = []
        for place, case in enumerate(cases):
            if case is None:
                marks.append(None)
                continue
            if is_blank(case.candidate):
                marks.append(0.0)  # the worst there is, which is put before no judge
                continue
            key = _key(case)
            judgement = found.get(key)
            remembered = judgement is None and key in self._known
            if remembered:
                judgement = self._known[key]
                self._known.move_to_end(key)
            self._count(judgement, remembered=remembered)
            if judgement is None:
                marks.append(None)
                continue
            asked.append((place, asked_mark(judgement, remembered=remembered or key in told)))
            told.add(key)
            marks.append(None if judgement.verdict is None else judgement.verdict.mark)
            if judgement.verdict is not None and not remembered:
                self._remember(key, judgement)
                found[key] = None  # a second answer of the same words is remembered, not paid for again
        return Marks(tuple(marks), tuple(asked))

    def _count(self, judgement: Judgement | None, *, remembered: bool) -> None:
        what = "not_asked"
        if judgement is not None:
            what = "failed" if judgement.verdict is None else "remembered" if remembered else "marked"
        self.counts[what] += 1

    def _remember(self, key: bytes, judgement: Judgement) -> None:
        self._known[key] = judgement
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)


def _key(case: JudgeCase) -> bytes:
    return hashlib.sha256(repr((case.question, case.candidate)).encode("utf-8", "surrogatepass")).digest()
