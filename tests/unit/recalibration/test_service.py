"""Rounds of the recalibrator: who leads, one gate's trouble, parts that go away and come back."""

import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from streamer.errors import LeaseLost, TryLater, Unavailable, UsageError
from streamer.events.alerts import AlertsV1
from streamer.gates.policy import GateRevision
from streamer.recalibration.gate_status import GateStatus
from streamer.recalibration.runner import GateWork
from streamer.recalibration.service import Recalibrator, Timing
from tests.faults.site import wait_until
from tests.unit.recalibration.test_schedule import status

NOW = datetime(2026, 11, 20, tzinfo=UTC)


class Stage:
    """Everything around a recalibrator, as a test wants it; it is told all that happens."""

    def __init__(self, **gates: int) -> None:
        self.new = gates
        self.settings: dict[str, Any] = {}
        self.leads = True
        self.has_lapsed = False
        self.stopping = False
        self.seconds = 0.0
        self.told: list[tuple[Any, ...]] = []
        self.raising: dict[str, BaseException] = {}
        self.service = Recalibrator(
            statuses=self, leadership=self, work=GateWork(self.recalibrate),
            raise_alert=self.raise_alert, publish=lambda: self.pass_("publish"), watch=self,
            observer=self,
            timing=Timing(clock=lambda: NOW, monotonic=lambda: self.seconds, poll_seconds=0.01),
            stopping=lambda: self.stopping,
        )  # fmt: skip

    def step(self) -> None:
        """A round, and the runs that it brings about."""
        self.service.round()
        self.service._runner.run_due()
        self.service.announce()

    def pass_(self, name: str, *facts: Any) -> None:
        self.told.append((name, *facts))
        if (error := self.raising.get(name)) is not None:
            raise error

    def happened(self, name: str) -> list[tuple[Any, ...]]:
        return [facts for first, *facts in self.told if first == name]

    def held(self) -> bool:
        self.pass_("held")
        return self.leads

    def lapsed(self) -> bool:
        return self.has_lapsed

    def statuses(self, *, now: datetime, recount: bool = True) -> Sequence[GateStatus]:
        self.pass_("statuses")
        return [status(name=name, new=new, **self.settings) for name, new in sorted(self.new.items())]

    def labels_pending(self) -> Mapping[str, int]:
        return dict.fromkeys(self.new, 3)

    def labels_unread(self) -> Mapping[str, int]:
        return {}

    def recalibrate(self, one: GateStatus) -> str:
        self.pass_(f"run {one.gate.gate}")
        self.new[one.gate.gate] = 0
        return "proposed"

    def raise_alert(self, event: AlertsV1) -> None:
        self.told.append(("alert", event))

    def round(self, gates: Sequence[GateRevision], *, now: datetime) -> None:
        self.pass_("watch", *[gate.gate for gate in gates])

    def stand_by(self) -> None:
        self.pass_("stand_by")

    def set_part(self, part: str, reachable: bool) -> None:
        self.told.append(("part", part, reachable))

    def set_round(self, moment: datetime) -> None:
        self.told.append(("round", moment))

    def set_leader(self, leads: bool) -> None:
        self.told.append(("leader", leads))

    def forget_gates(self) -> None: ...

    def show(self, status: GateStatus) -> None:
        self.told.append(("show", status.gate.gate))

    def set_labels_pending(self, gate: str, responses: int) -> None:
        self.told.append(("pending", gate, responses))

    def set_labels_unread(self, gate: str, labels: int) -> None:
        self.told.append(("unread", gate, labels))

    def count_run(self, gate: str, method: str, outcome: str, seconds: float) -> None:
        self.told.append(("count", gate, outcome))


def test_who_leads_watches_first_and_runs_what_is_due_the_longest_waiting_first() -> None:
    stage = Stage(a=0, b=500, c=0)
    stage.service.round()
    assert stage.happened("watch") == [["a", "b", "c"]]
    stage.seconds += 1
    stage.new |= {"a": 500}
    stage.service.round()
    stage.seconds += 1
    stage.service._runner.run_due()
    assert stage.happened("count") == [["b", "proposed"], ["a", "proposed"]]
    assert stage.service.unready() == ["the broker was not asked yet"]
    stage.service.announce()
    assert stage.service.unready() == []
    # What a round found out before a run ended is no reason for another one.
    stage.new |= {"b": 500}
    stage.service._runner.offer(stage.statuses(now=NOW), now=NOW, asked=stage.seconds - 0.5)
    stage.service._runner.run_due()
    assert len(stage.happened("run b")) == 1


def test_a_long_run_holds_up_no_round_and_the_end_waits_for_it() -> None:
    stage = Stage(a=500)
    begun, go_on, stop = threading.Event(), threading.Event(), threading.Event()

    def takes_long(_: GateStatus) -> str:
        begun.set()
        assert go_on.wait(240)
        return "applied"

    stage.service._runner._work = GateWork(takes_long)
    service = threading.Thread(target=stage.service.run, args=(stop,))
    service.start()
    try:
        assert begun.wait(240)
        rounds = len(stage.happened("watch"))
        while len(stage.happened("watch")) < rounds + 3:
            assert not stop.wait(0.01)
        assert stage.service.unready() == []
        stop.set()
        service.join(0.1)
        assert service.is_alive()
    finally:
        stop.set()
        go_on.set()
        service.join(240)
    assert stage.happened("count") == [["a", "applied"]]
    assert stage.happened("publish"), "and what waited was published beside it"


def test_nothing_is_run_once_a_stop_was_requested() -> None:
    stage = Stage(a=500)
    stage.stopping = True
    stage.step()
    assert stage.happened("watch") == [["a"]]
    assert not stage.happened("run a")
    stage.stopping = False
    stage.step()
    assert stage.happened("count") == [["a", "proposed"]], "whoever comes next runs it"


def test_who_stands_by_does_nothing_and_is_ready() -> None:
    stage = Stage(a=500)
    stage.leads = False
    stage.step()
    assert stage.service.unready() == []
    assert stage.happened("leader") == [[False]]
    assert not stage.happened("run a")
    assert not stage.happened("show")
    stage.leads = True
    stage.service.round()
    stage.leads = False
    stage.step()
    assert not stage.happened("run a"), "what was due is the next leader's"
    assert stage.happened("leader") == [[False], [True], [False]]
    assert len(stage.happened("stand_by")) == 2


@pytest.mark.expected_errors("recalibrator.run_failed")
def test_one_gates_failure_is_no_others() -> None:
    stage = Stage(a=500, b=500)
    stage.raising["run a"] = RuntimeError("broken")
    stage.step()
    assert stage.happened("count") == [["a", "failed"], ["b", "proposed"]]
    stage.seconds += 4
    stage.step()
    assert len(stage.happened("run a")) == 1, "it is left alone for a while"
    stage.seconds += 2
    del stage.raising["run a"]
    stage.step()
    assert stage.happened("count")[-1] == ["a", "proposed"]


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (TryLater("under way"), []),
        (Unavailable("nobody answers"), []),
        (UsageError("no key"), [["a", "failed"]]),
    ],
)
def test_what_passes_by_itself_is_no_failure(error: Exception, counted: list[list[str]]) -> None:
    stage = Stage(a=500)
    stage.raising["run a"] = error
    stage.step()
    assert stage.happened("count") == counted
    assert stage.service.unready() == []
    stage.raising.clear()
    stage.seconds += 6
    stage.step()
    assert stage.happened("count") == [*counted, ["a", "proposed"]]


@pytest.mark.parametrize(
    ("recalibrate", "on_alarm", "told"),
    [("auto", "report", True), ("propose", "close", True), ("propose", "report", False)],
)
def test_who_may_have_to_act_and_has_no_key_says_so_once(recalibrate: str, on_alarm: str, told: bool) -> None:
    stage = Stage(a=0)
    stage.settings = {"missing_key": "no key to sign with", "recalibrate": recalibrate, "on_alarm": on_alarm}
    stage.step()
    stage.step()
    assert [event.kind for (event,) in stage.happened("alert")] == ["no_signing_key"] * told
    stage.settings["missing_key"] = None
    stage.step()
    stage.settings["missing_key"] = "no key to sign with"
    stage.step()
    assert len(stage.happened("alert")) == 2 * told, "it was there, and is gone again"


@pytest.mark.expected_errors("recalibrator.part_failed")
def test_a_broken_watch_stops_no_run_and_says_that_nobody_watches() -> None:
    stage = Stage(a=500)
    stage.raising["watch"] = RuntimeError("a right was taken away")
    stage.step()
    assert stage.happened("count") == [["a", "proposed"]]
    assert stage.service.unready() == ["watching the risk failed in the last round, see the log"]
    stage.leads = False
    stage.service.round()
    assert stage.service.unready() == [], "who stands by watches nothing"
    stage.leads = True
    stage.raising.clear()
    stage.step()
    assert stage.service.unready() == []


@pytest.mark.expected_errors("recalibrator.publish_failed")
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Unavailable("nobody answers"), "the broker does not answer"),
        (UsageError("no such topic"), "what waits cannot be published, see the log"),
    ],
)
def test_what_cannot_be_published_makes_it_unready_and_stops_nothing(error: Exception, said: str) -> None:
    stage = Stage(a=500)
    stage.raising["publish"] = error
    stage.step()
    assert stage.service.unready() == [said]
    assert stage.happened("count") == [["a", "proposed"]]
    stage.leads = False
    stage.service.round()
    stage.service.announce()  # it was under way when another one took the lead
    assert stage.service.unready() == [], "who stands by needs no broker"
    stage.leads = True
    stage.raising.clear()
    stage.step()
    assert stage.service.unready() == []


class _Death(BaseException):
    """What no part of the service handles."""


@pytest.mark.expected_errors("recalibrator.part_ended")
@pytest.mark.parametrize("part", ["run a", "publish"])
def test_where_a_part_beside_the_rounds_ends_all_of_it_ends(part: str) -> None:
    stage = Stage(a=500)
    stage.raising[part] = _Death()
    with pytest.raises(RuntimeError, match="start it again"):
        stage.service.run(threading.Event())


def test_what_a_broken_round_recorded_is_published_all_the_same() -> None:
    stage = Stage(a=500)
    stage.raising["watch"] = Unavailable("one gate's rows are locked")
    with pytest.raises(Unavailable):
        stage.service.round()
    assert stage.service._wake.is_set()


@pytest.mark.parametrize("place", ["held", "statuses", "watch"])
def test_a_database_that_is_away_is_waited_for(place: str) -> None:
    stage = Stage(a=500)
    stage.raising[place] = Unavailable("nobody answers")
    stop = threading.Event()
    thread = threading.Thread(target=stage.service.run, args=(stop,))
    thread.start()
    try:
        wait_until(lambda: "the database does not answer" in stage.service.unready(), "it says so")
        assert ["database", False] in stage.happened("part")
    finally:
        stop.set()
        thread.join(240)
    assert not thread.is_alive(), "it ends at once though it waits"
    stage.raising.clear()
    stage.seconds += 60
    away: dict[str, bool] = {}
    stage.pass_ = lambda name, *_: away.update({name: "database" in str(stage.service.unready())})  # type: ignore[method-assign]
    stage.step()
    wanted = {"held": True, "statuses": True, "watch": False, "run a": False, "publish": False}
    assert away == wanted, "it answers: nobody waits for the rest of the round"
    assert stage.service.unready() == []


def test_who_cannot_ask_for_the_lock_does_not_lead() -> None:
    stage = Stage(a=0)
    stage.service.round()
    stage.raising["held"] = Unavailable("nobody answers")
    with pytest.raises(Unavailable):
        stage.service.round()
    assert stage.happened("leader") == [[True], [False]]


def test_pending_labels_are_counted_now_and_then() -> None:
    stage = Stage(a=0)
    for _ in range(3):
        stage.service.round()
    assert stage.happened("pending") == [["a", 3]]
    stage.seconds += 31
    stage.service.round()
    assert len(stage.happened("pending")) == 2


def test_a_leader_that_lost_its_lease_in_a_round_stands_by() -> None:
    stage = Stage(a=500)
    stage.step()
    stage.raising["watch"] = LeaseLost("lost")
    stage.service.round()
    assert stage.happened("leader") == [[True], [False]]
    assert stage.happened("stand_by") == [[]]
    assert stage.service.unready() == []
    del stage.raising["watch"]
    stage.service.round()
    assert stage.happened("leader") == [[True], [False], [True]]
    stage.raising["publish"] = LeaseLost("lost")
    stage.service.announce()
    assert stage.service.unready() == [], "no dependency is unavailable"


def test_a_leader_that_cannot_renew_says_so_while_its_round_hangs() -> None:
    stage = Stage(a=0)
    stage.step()
    assert (stage.service.leads, stage.service.unready()) == (True, [])
    stage.has_lapsed = True
    assert not stage.service.leads
    assert "could not renew its lease" in stage.service.unready()[0]
