"""Whoever stops to wait is told "hold", and what was told is what stands: whatever was under way at that moment."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.endpoint import Site, action, batch
from tests.faults.site import wait_until

LONG = 4
"""Seconds that a step is held up, far longer than the request waits."""
SHORT = {"prefer": "wait=0.4"}
TIMES = (1, 6, 36)
"""So many times as long, one after another, where the machine stood still meanwhile."""


def both_lanes(site: Site) -> list[str]:
    return site.outcomes("http") + site.outcomes("http.late")


def test_a_slow_encoder_holds_up_no_answer_past_its_deadline(site: Site) -> None:
    for times in TIMES:
        endpoint = site.serve(STREAMER_FAILPOINTS=f"while_scoring=sleep:{LONG * times}@1")
        told = endpoint.ask(batch(name := f"b-{times}"), headers=SHORT)
        if action(told)["source"]["topic"] == "http.late":
            break  # the lane that was to decide it had not come to it yet
    assert action(told)["source"]["topic"] == "http.late"
    assert (action(told)["action"], action(told)["reason"]) == ("abstain", "deadline_passed")
    assert told.headers["preference-applied"] == "wait=0.4"
    assert "idempotent-replayed" not in told.headers
    wait_until(lambda: site.outcomes("http")[-1:] == ["duplicate"], "the slow lane comes to it")
    assert site.recorded()[name] == told.content
    assert endpoint.ask(batch(name)).content == told.content
    assert action(endpoint.ask(batch("b-2"), params={"wait_ms": "200000"}))["action"] == "ship"
    site.check()


def test_a_ship_that_was_decided_in_time_and_not_committed_is_told_and_recorded_as_a_hold(site: Site) -> None:
    endpoint = site.serve(STREAMER_FAILPOINTS=f"before_commit=sleep:{LONG}@1")
    told = endpoint.ask(batch("b-1"), headers=SHORT)
    assert action(told)["reason"] == "deadline_passed"
    wait_until(lambda: len(both_lanes(site)) == 2, "both lanes come to it")
    assert sorted(both_lanes(site)) == ["decision", "duplicate"]
    assert site.recorded() == {"b-1": told.content}
    site.check()


@pytest.mark.parametrize("point", ["in_transaction", "after_transaction"])
def test_a_commit_that_was_under_way_in_time_is_told_as_it_was_committed(site: Site, point: str) -> None:
    for times in TIMES:
        # The lease is the first transaction; that of the batch is held up past its fence, or its end.
        endpoint = site.serve(STREAMER_FAILPOINTS=f"{point}=sleep:{1.5 * times}@2")
        late = len(site.outcomes("http.late"))
        wait = {"prefer": f"wait={0.4 * times:g}"}
        told = endpoint.ask(batch(name := f"b-{times}"), headers=wait)
        if told.status_code == 503:
            continue  # nothing was on record in time
        assert site.recorded()[name] == told.content
        if action(told)["action"] == "ship":
            break  # it was under way in time
    assert (action(told)["action"], action(told)["selected"]) == ("ship", "a")
    wait_until(lambda: len(site.outcomes("http.late")) > late, "the other lane comes to it")
    assert (site.outcomes("http")[-1], site.outcomes("http.late")[-1]) == ("decision", "duplicate")
    site.check()


def test_of_many_that_race_with_their_deadlines_each_is_told_what_stands(site: Site) -> None:
    endpoint = site.serve()
    endpoint.ask(batch("warm"))
    told: dict[str, bytes] = {}
    lock = threading.Lock()

    def ask(number: int) -> None:
        name = f"b-{number}"
        answer = None
        # On a busy machine the body comes too late, or nothing is on record in time.
        while answer is None or answer.status_code in (408, 503):
            answer = endpoint.ask(batch(name), params={"wait_ms": str(1 + number % 40)})
        action(answer)
        with lock:
            told[name] = answer.content

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, range(300)))
    wait_until(lambda: len(site.outcomes("http")) == 301, "everything is recorded")
    recorded = site.recorded()
    assert {name: recorded[name] for name in told} == told
    reasons = {reason for (reason,) in site.rows("SELECT DISTINCT reason FROM decisions")}
    assert reasons == {"scored", "deadline_passed"}  # else nothing raced
    site.check()
