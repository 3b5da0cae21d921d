"""The cap on refusals, the limit on client logs, the latency ledger, readiness, and patience."""

import logging
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from aiokafka.structs import ConsumerRecord
from faust.types import TP

from streamer.errors import Unavailable
from streamer.journal import OutboxMessage, Partition
from streamer.stream.backoff import Backoff, until_available
from streamer.stream.faust_driver import StampingThread
from streamer.stream.health import WorkerHealth
from streamer.stream.hooks import LatencyLedger, SilentObserver
from streamer.stream.intake import FetchBudget
from streamer.stream.isolation import DeadLetterCap, DeadLetterLimits
from streamer.stream.log_limits import LogRateLimit


def test_a_run_of_refusals_passes_the_cap_and_a_good_record_ends_the_run():
    cap = DeadLetterCap(DeadLetterLimits(run=3, ratio=1.0, window=1000))
    assert cap.passed(["dead_letter"] * 3) is None
    assert cap.passed(["decision"]) is None
    assert cap.passed(["conflict", "dead_letter", "dead_letter"]) is None
    assert "3 records in a row" in str(cap.passed(["dead_letter"]))


def test_a_share_of_refusals_passes_the_cap_once_the_window_is_full():
    cap = DeadLetterCap(DeadLetterLimits(run=1000, ratio=0.5, window=10))
    assert cap.passed(["dead_letter", "decision"] * 4) is None
    assert cap.passed(["dead_letter", "dead_letter"]) is not None
    assert cap.passed(["duplicate", "label"]) is None


@pytest.mark.parametrize("limits", [{"run": 0}, {"window": 0}, {"ratio": 0.0}, {"ratio": 1.1}])
def test_limits_that_make_no_sense_are_refused(limits: dict[str, float]):
    with pytest.raises(ValueError, match="dead-letter limits"):
        DeadLetterLimits(**limits)  # type: ignore[arg-type]


def test_equal_log_records_are_bounded_and_their_number_is_told():
    now = [0.0]
    limit = LogRateLimit(burst=2, period=10, clock=lambda: now[0])

    def says(message: str, *arguments: object) -> str | None:
        record = logging.LogRecord("aiokafka", logging.ERROR, "f", 1, message, arguments, None)
        return record.getMessage() if limit.filter(record) else None

    wanted = ["node 0 is away", "node 1 is away", None, None, None]
    assert [says("node %d is away", number) for number in range(5)] == wanted
    assert says("another matter") == "another matter"
    now[0] = 10.0
    assert says("node %d is away", 7) == "node 7 is away (3 more like this were left out)"


def test_a_latency_is_measured_once_and_never_guessed():
    ledger = LatencyLedger(capacity=2)
    actions = [OutboxMessage("t", None, b"", (("ce_id", b"%d" % number),)) for number in range(3)]
    for number, action in enumerate(actions):
        ledger.remember(action, 1000 * number)
    ledger.remember(OutboxMessage("t", None, b"", ()), 5)
    assert ledger.acknowledged(actions[0], 5000) is None  # forgotten: more than the capacity
    assert ledger.acknowledged(actions[1], 1250) == 0.25
    assert ledger.acknowledged(actions[1], 1250) is None
    assert ledger.acknowledged(actions[2], 0) == 0.0  # a clock that went back
    ledger.remember(actions[0], -1)  # a record without a timestamp
    assert ledger.acknowledged(actions[0], 5000) is None


def test_a_stuck_topic_is_named_and_only_an_essential_one_makes_a_worker_unready():
    health = WorkerHealth(SilentObserver(), essential=["actions"])
    health.part("database", True)
    health.part("broker", True)
    health.joined = lambda: True
    health.lane("letters", None, "gone")
    health.lane("actions", 3, "no leader")
    assert health.unready() == []
    assert health.stuck() == [
        "messages wait for topic letters: gone",
        "messages wait for topic actions, partition 3: no leader",
    ]
    health.lane("actions", None, "forbidden")
    assert health.unready() == ["messages wait for topic actions: forbidden"]
    for topic, partition in (("letters", None), ("actions", 3), ("actions", None)):
        health.lane(topic, partition, None)
    assert health.stuck() == health.unready() == []


def test_readiness_names_what_is_missing():
    now = [0.0]
    health = WorkerHealth(SilentObserver(), clock=lambda: now[0])
    assert health.unready() == [
        "the database has not answered yet",
        "the broker has not answered yet",
        "the consumer group has not assigned partitions yet",
    ]
    health.part("database", True)
    health.part("broker", True)
    health.joined = lambda: True
    assert health.unready() == []
    health.lag("t", 0, 7)
    health.log_id = "log"
    assert health.reads(Partition("log", "t", 0))
    assert not health.reads(Partition("log", "t", 1))
    assert not health.reads(Partition("another log", "t", 0))
    now[0] = 31.0
    assert health.unready() == ["7 records wait and none was recorded for 31 s"]
    health.committed([], [])
    assert health.unready() == []
    health.released("t", 0)
    assert not health.reads(Partition("log", "t", 0))
    now[0] = 100.0
    assert health.unready() == []
    health.part("database", False)
    assert health.unready() == ["the database does not answer"]
    assert health.alive
    health.stopping = "draining"
    assert health.unready() == ["draining"]
    assert not health.alive


def test_delays_grow_with_jitter_up_to_the_last():
    backoff = Backoff(first=1.0, last=4.0)
    delays = [backoff.next_delay() for _ in range(5)]
    for delay, full in zip(delays, [1.0, 2.0, 4.0, 4.0, 4.0], strict=True):
        assert full / 2 <= delay <= full
    backoff.reset()
    assert backoff.next_delay() <= 1.0


async def test_what_is_unavailable_is_asked_again_until_it_is_not_wanted():
    answers: list[object] = [Unavailable("away"), Unavailable("away"), 42]
    reached: list[bool] = []

    def call() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with ThreadPoolExecutor(1) as executor:
        assert (
            await until_available(
                executor, call, part="database", report_status=lambda _part, up: reached.append(up)
            )
            == 42
        )
        assert await until_available(executor, call, part="database", wanted=lambda: False) is None
        answers.append(KeyError("a bug"))
        with pytest.raises(KeyError):
            await until_available(executor, call, part="database")
    assert reached == [False, False, True]


def test_a_record_without_a_timestamp_is_read_as_one():
    """Messages of format 0 have none, and everything behind the reader counts with a number."""
    tp, budget = TP("in", 0), FetchBudget(max_records=10, max_bytes=1000)
    thread = StampingThread.__new__(StampingThread)
    thread._handed_out, thread._partitions = {tp: 3}, {tp: Partition("log", "in", 0)}
    thread._flow, thread._hooks = 0, SimpleNamespace(budget=budget, max_record_bytes=100)  # type: ignore[assignment]
    one = ConsumerRecord("in", 0, 3, None, 0, None, b"v", None, 0, 1, ())
    (found,) = thread._stamped(tp, [one])
    assert (found.record.timestamp_ms, found.record.value) == (-1, b"v")
