"""Killed, stopped, fenced, overloaded, without its database: no answer without a committed decision, and a repeat gets the same."""

import itertools
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.callers import Callers, agree, ask_all_again, heard
from tests.faults.endpoint import PATIENCE, Site, action, batch, held
from tests.faults.forms import FORMS
from tests.faults.site import wait_until
from tests.integration.serving.model_server import Model
from tests.services.postgres import PostgresServer


@pytest.mark.parametrize(
    ("migrated_database_url", "point"),
    [("sqlite", "before_commit"), ("postgresql", "in_transaction"), ("sqlite", "after_transaction")],
    indirect=["migrated_database_url"],
)
@pytest.mark.postgres
def test_killed_before_in_and_after_a_transaction_with_requests_in_flight(site: Site, point: str) -> None:
    """`make faults` kills at every step on PostgreSQL, and at random moments."""
    with Model() as model:
        model.answer_forms(site)
        endpoint = site.serve(STREAMER_FAILPOINTS=f"{point}=kill@15")
        with Callers([endpoint.base], forms=FORMS) as callers:
            endpoint.wait_until_killed()
        agree(site, callers.said)
        ask_all_again(site.serve(), callers, most=40)
        agree(site, callers.said)


def test_a_stop_answers_what_was_taken(site: Site) -> None:
    endpoint = site.serve(STREAMER_FAILPOINTS="while_scoring=sleep:1@1")
    waiting = 'streamer_consumer_lag_records{partition="0",topic="http"}'
    assert endpoint.metrics()[waiting] == 0
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(endpoint.ask, batch("b-1"))
        endpoint.wait_for_log("failpoint.reached")
        assert endpoint.metrics()[waiting] == 1
        assert not endpoint.unready()
        assert endpoint.terminate() == 0
        assert action(asked.result())["action"] == "ship"
    agree(site, [heard("b-1", asked.result())])


def test_a_process_whose_slot_another_took_ends_and_says_so(site: Site) -> None:
    first = site.serve()
    told = {"b-1": first.ask(batch("b-1"))}
    first.process.send_signal(signal.SIGSTOP)
    site.end_slot(0)
    second = site.serve()
    first.process.send_signal(signal.SIGCONT)
    told["b-2"] = first.ask(batch("b-2"))
    held(told["b-2"], 503, "unavailable")
    assert first.process.wait(PATIENCE) == 70
    told["b-3"] = second.ask(batch("b-3"))
    agree(site, itertools.starmap(heard, told.items()))
    assert action(second.ask(batch("b-2")))["action"] == "ship"


def test_two_instances_and_many_clients_over_the_same_batches(site: Site) -> None:
    endpoints = [site.serve() for _ in range(2)]
    names = [f"b-{number % 40}" for number in range(160)]

    def ask(place: int) -> bytes:
        answer = endpoints[place % 2 ^ place // 40 % 2].ask(batch(names[place]))
        assert action(answer)["action"] == "ship"
        return answer.content

    with ThreadPoolExecutor(16) as pool:
        told = list(pool.map(ask, range(len(names))))
    recorded = site.recorded()
    assert told == [recorded[name] for name in names]
    assert sorted(site.outcomes()) == ["decision"] * 40 + ["duplicate"] * 120
    site.check()


def test_past_the_bound_on_what_waits_it_refuses(site: Site) -> None:
    endpoint = site.serve(STREAMER_FAILPOINTS="while_scoring=sleep:2@1", STREAMER_ENDPOINT_MAX_WAITING="3")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: endpoint.ask(batch(f"b-{number}")), range(8)))
    refused = [answer for answer in answers if answer.status_code != 200]
    assert len(refused) == 5
    for answer in refused:
        held(answer, 429, "overloaded")
        assert int(answer.headers["retry-after"]) > 0
    agree(site, [heard(f"b-{number}", answer) for number, answer in enumerate(answers)])
    assert {action(endpoint.ask(batch(f"b-{number}")))["action"] for number in range(8)} == {"ship"}


def test_many_clients_share_groups_and_a_lone_request_has_one_of_its_own(sqlite_site: Site) -> None:
    endpoint = sqlite_site.serve(STREAMER_FAILPOINTS="while_scoring=sleep:1@2")
    alone = endpoint.ask(batch("alone"))
    assert action(alone)["action"] == "ship"
    commits = 'streamer_stage_duration_seconds_count{stage="commit"}'
    wait_until(lambda: endpoint.metrics()[commits] == 1, "a group of one")
    with ThreadPoolExecutor(24) as pool:
        list(pool.map(lambda number: endpoint.ask(batch(f"b-{number}")), range(24)))
    # While the first of them was being decided the others gathered.
    assert endpoint.metrics()[commits] - 1 <= 24 / 2


@pytest.mark.postgres
def test_without_its_database_it_says_hold_and_ships_nothing_that_it_told_to_hold(
    own_postgres_server: PostgresServer, new_site: Callable[..., Site]
) -> None:
    from streamer.store import migrate

    url = own_postgres_server.create_database()
    migrate(url)
    site = new_site(url)
    endpoint = site.serve()
    told = {"b-0": endpoint.ask(batch("b-0"))}
    own_postgres_server.crash()
    waited = {"prefer": "wait=1"}
    with ThreadPoolExecutor(4) as pool:
        names = [f"b-{number}" for number in range(1, 5)]
        told |= zip(
            names, pool.map(lambda name: endpoint.ask(batch(name), headers=waited), names), strict=True
        )
    for name in names:
        held(told[name], 503, "unavailable")
        assert int(told[name].headers["retry-after"]) > 0
    # The next one is told at once: it is not even taken.
    told["b-9"] = endpoint.ask(batch("b-9"))
    held(told["b-9"], 503, "unavailable")
    assert "database" in endpoint.unready() or "decider" in endpoint.unready()
    own_postgres_server.start()
    site.engine.dispose()
    wait_until(lambda: endpoint.ask(batch("after")).status_code == 200, "decisions again")
    wait_until(lambda: not endpoint.unready(), "ready again")
    agree(site, itertools.starmap(heard, told.items()))
    # What was taken stays held; what was not is decided when it is asked for again.
    assert {action(endpoint.ask(batch(name)))["reason"] for name in names} <= {"deadline_passed", "scored"}
    assert action(endpoint.ask(batch("b-9")))["action"] == "ship"
    agree(site, [heard("b-0", told["b-0"])])


def test_a_frozen_process_ships_nothing_past_a_deadline(site: Site) -> None:
    for times in (1, 6, 36):  # the longer where the machine stood still before the process did
        endpoint = site.serve(STREAMER_FAILPOINTS=f"before_commit=sleep:{0.5 * times}@1")
        name = f"b-{times}"
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(endpoint.ask, batch(name), headers={"prefer": f"wait={times}"})
            endpoint.wait_for_log("failpoint.reached")
            endpoint.process.send_signal(signal.SIGSTOP)
            before_it_committed = name not in site.recorded()
            time.sleep(1.5 * times)
            endpoint.process.send_signal(signal.SIGCONT)
            told = asked.result()
        agree(site, [heard(name, told)])
        if before_it_committed:
            break
    assert action(told)["reason"] == "deadline_passed"
