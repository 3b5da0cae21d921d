"""A worker's inside on one database, without Kafka: decoder, decider and commit, through its own group commit."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from streamer import wiring
from streamer.calibration import Threshold
from streamer.deciding.policy_book import PolicyBook
from streamer.events import codes
from streamer.events.actions import decode_action
from streamer.gates.rule import INDICATOR, BatchCut, Chance, Cut, Quantile, Rank, Rule, Segments
from streamer.gates.settings import GateSettings
from streamer.journal import Partition, Record
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.settings.settings import load_settings
from streamer.store import Store
from streamer.store.db.schema import decisions, outbox
from streamer.stream.group_commit import GroupCommit
from streamer.stream.hooks import Hooks
from streamer.stream.intake import FetchBudget, Fetched, Intake, OfferResult
from streamer.stream.isolation import DeadLetterCap, DeadLetterLimits
from streamer.telemetry.metrics import Metrics
from tests.faults.hostile_messages import Message
from tests.faults.site import record_threshold
from tests.made import a_decider
from tests.recorded import ledgers_of
from tests.unit.deciding.test_decider import IDENTITY, HashingEncoder

GROUP = 250
PARTITIONS = 3
NOW = datetime(2026, 11, 20, 12, 0, 30, tzinfo=UTC)

RULES: dict[str, tuple[dict[str, Any], Rule, Threshold]] = {}


def a_gate(name: str, rule: Rule = INDICATOR, cut: float | None = 0.5, **settings: Any) -> None:
    chosen = {"encoder": IDENTITY.id, "mode": "enforce", "audit_probability": 0.5} | settings
    method = chosen.get("method", "mean")
    state = "closed" if cut is None else "open" if cut == -float("inf") else "cut"
    value = float("inf") if cut is None else cut
    threshold = Threshold(state=state, value=value, alpha=0.05, method=method, groups=0, guarantee="")  # type: ignore[arg-type]
    RULES[name] = (chosen, rule, threshold)


a_gate("best")
a_gate("each", unit="response", audit_draws=2, cut=0.7)
a_gate("whole", unit="batch", cut=-float("inf"), hold_action="escalate")
a_gate("judged", scorer="external", encoder="none", unit="response", label_floor=0.3)
a_gate("hasty", decision_deadline_seconds=60.0, max_attempts=3, audit_probability=1.0)
a_gate("event", encoder="another", unit="response")
a_gate("smooth", rule=Chance("smooth", 0.2), unit="response", shape="smooth")
a_gate("ramp", rule=Chance("ramp", 0.2), shape="ramp", scorer="external", encoder="none")
a_gate("quantile", rule=Quantile(0.3), unit="response", shape="quantile")
a_gate("ranks", rule=Rank(), unit="response", shape="rank", scorer="external", encoder="none")
a_gate(
    "languages",
    rule=Segments("language", (("", Cut("cut", 0.3)), ("de", Cut("cut", 0.8)), ("en", Cut("open", None)))),
    cut=None,
    unit="response",
    segment_by="language",
)
a_gate(
    "window",
    rule=BatchCut(alpha=0.05, groups=3, labelled=3, levels=(0.3, 0.5), totals=(0.1, 0.0)),
    cut=1.0,
    unit="response",
    method="transductive",
    audit_draws=3,
    scorer="external",
    encoder="none",
)


class Laboratory:
    """A worker's inside on one database: intake, decider, store and group commit, without Kafka."""

    def __init__(self, url: str, *, keep_texts: bool, gates: Iterable[str] = tuple(RULES)) -> None:
        self.url = url
        self.settings = load_settings(database={"url": url})
        self.named = wiring.topics(self.settings)
        self.store: Store = wiring.open_store(self.settings)
        self.store._clock = lambda: (
            NOW
        )  # as the decider's: one that never agrees with it on a deadline never commits
        for name in gates:
            chosen, rule, threshold = RULES[name]
            self.store.gates.create(
                name, GateSettings(**chosen, keep_texts=keep_texts or name != "best"), by="ana", reason="test"
            )
            record_threshold(self.store, name, threshold, rule)
        book = PolicyBook(self.store.policies.active, limits=wiring.limits(self.settings))
        book.refresh()
        self.metrics = Metrics()
        self.decider = a_decider(
            book,
            self.store.known,
            encoder=CachedEncoder(HashingEncoder(), capacity_texts=1000),
            topics=self.named,
            limits=wiring.limits(self.settings),
            clock=lambda: NOW,
        )
        self.partitions = [
            Partition("log", topic, number)
            for topic in (self.named.responses, self.named.labels)
            for number in range(PARTITIONS)
        ]
        self.published: dict[Partition, int] = dict.fromkeys(self.partitions, 0)
        self.values: dict[tuple[Partition, int], bytes | None] = {}

    def take(self, messages: Iterable[Message]) -> float:
        """Let the group commit have these; the seconds of the slowest group of `GROUP`."""
        return asyncio.run(self._take(messages))

    async def _take(self, messages: Iterable[Message]) -> float:
        intake = Intake(FetchBudget(max_records=10**9, max_bytes=10**12))
        intake.install(self.store.lease(self.partitions).values(), now=0.0)
        with ThreadPoolExecutor(1) as scoring, ThreadPoolExecutor(1) as executor:
            commits = GroupCommit(
                intake,
                self.decider,
                self.store.commit,
                score_executor=scoring,
                executor=executor,
                max_records=GROUP,
                max_bytes=64 * 2**20,
                cap=DeadLetterCap(DeadLetterLimits(run=10**9, ratio=1.0)),
                hooks=Hooks(observer=self.metrics),
                on_commit=lambda: None,
            )
            running = asyncio.create_task(commits.run())
            slowest = 0.0
            try:
                waiting = 0
                for number, message in enumerate(messages):
                    self._offer(intake, message, number)
                    waiting += 1
                    if waiting == GROUP:
                        slowest = max(slowest, await self._settled(intake, running))
                        waiting = 0
                slowest = max(slowest, await self._settled(intake, running))
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
        return slowest

    def _offer(self, intake: Intake, message: Message, number: int) -> None:
        topic = self.named.labels if message.label else self.named.responses
        partition = Partition("log", topic, number % PARTITIONS)
        follows = self.published[partition]
        offset = follows + (3 if number % 50 == 0 else 0)  # logs have holes
        self.published[partition] = offset + 1
        self.values[partition, offset] = message.value
        record = Record(partition, offset, message.key, message.value, message.headers, message.timestamp_ms)
        taken = intake.offer(Fetched(record, follows, 0, len(message.value or b"")), now=0.0)
        assert taken is OfferResult.TAKEN

    @staticmethod
    async def _settled(intake: Intake, running: asyncio.Task[None]) -> float:
        began = time.monotonic()
        drained = asyncio.create_task(intake.drained())
        done, _ = await asyncio.wait({drained, running}, timeout=120, return_when=asyncio.FIRST_COMPLETED)
        assert done, "the group commit hangs"
        if running in done:
            running.result()
        return time.monotonic() - began

    def check(self) -> Counter[str]:
        """What became of the records: one outcome each, all well formed; `faults` are those of ours."""
        ledgers = {ledger.partition: ledger for ledger in ledgers_of(self.store)}
        recorded = {
            (partition, offset)
            for partition, ledger in ledgers.items()
            for first, last in ledger.ranges
            for offset in range(first, last + 1)
        }
        assert recorded == set(self.values), "a record has no outcome, or one that never was has"
        assert {p: ledger.next_offset for p, ledger in ledgers.items()} == self.published
        assert not self.store.evidence.log_faults()
        became: Counter[str] = Counter()
        for ledger in ledgers.values():
            became.update({kind: n for kind, n in ledger.kinds.items() if kind != "dead_letter"})
        faults: list[tuple[str, bytes]] = []
        for letter in self.store.dead_letters.list(limit=10**6):
            became[letter.code] += 1
            assert letter.code in codes.MEANINGS
            assert letter.detail is not None
            assert len(letter.detail) <= 300, letter.detail
            assert letter.detail.isprintable(), letter.detail
            if letter.code == codes.INTERNAL_ERROR:
                value = self.values[Partition(letter.log_id, letter.topic, letter.partition), letter.offset]
                faults.append((letter.detail, (value or b"")[:600]))
        self.faults = faults
        with self.store._database.engine.connect() as connection:
            for value in connection.execute(sa.select(decisions.c.action_value)).scalars():
                decode_action(value)
            for headers in connection.execute(sa.select(outbox.c.headers)).scalars():
                for name, _ in headers:
                    name.encode()  # as the producer will
        return became
