"""Processes need no numbers: each takes a free slot, and what one left behind in its own is another's."""

import json
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest

from streamer.store.db.leases import LEASE_SECONDS
from tests.faults.endpoint import PATIENCE, Endpoint, Site, action, batch, held
from tests.faults.site import wait_until
from tests.integration.serving.test_with_kafka import published_on
from tests.services.kafka import KafkaBroker


def slot(endpoint: Endpoint, name: str) -> int:
    return action(endpoint.ask(batch(name)))["source"]["partition"]


def test_a_process_takes_the_lowest_free_slot(site: Site) -> None:
    first, second = site.serve(), site.serve()
    assert [slot(first, "b-1"), slot(second, "b-2")] == [0, 1]
    assert first.terminate() == 0
    assert slot(site.serve(), "b-3") == 0
    second.kill()
    third = slot(site.serve(), "b-4")
    killed = site.store.leases.of_slot(1)
    assert third == 2 or killed.held(), "a slot is free only when its lease has run out"
    site.check()


def test_updated_one_after_the_other_no_request_fails(site: Site) -> None:
    serving = [site.serve()]

    def ask(number: int) -> httpx.Response:
        return serving[-1].ask(batch(f"b-{number}"))

    with ThreadPoolExecutor(4) as pool:
        asked = []
        for version in range(3):
            serving.append(site.serve())
            asked += [pool.submit(ask, 50 * version + number) for number in range(50)]
            assert serving[-2].terminate() == 0
        answers = [one.result() for one in asked]
    assert {action(one)["action"] for one in answers} == {"ship"}
    assert {action(one)["source"]["partition"] for one in answers} == {0, 1}
    site.check()


def test_a_process_that_stood_still_takes_no_request_before_it_knows_whose_its_slot_is(
    sqlite_site: Site,
) -> None:
    endpoint = sqlite_site.serve()
    assert slot(endpoint, "b-1") == 0
    endpoint.process.send_signal(signal.SIGSTOP)
    time.sleep(LEASE_SECONDS + 1)
    other = sqlite_site.serve()
    endpoint.process.send_signal(signal.SIGCONT)
    try:
        answer = endpoint.ask(batch("b-2"))
    except httpx.TransportError:
        pass  # it has ended already
    else:
        held(answer, 503, "unavailable")
    assert endpoint.process.wait(PATIENCE) == 70
    assert slot(other, "b-2") == 0
    assert sqlite_site.outcomes() == ["decision"] * 2


def test_a_process_that_stood_still_goes_on_in_a_slot_that_nobody_took(sqlite_site: Site) -> None:
    endpoint = sqlite_site.serve()
    endpoint.process.send_signal(signal.SIGSTOP)
    time.sleep(LEASE_SECONDS + 1)
    endpoint.process.send_signal(signal.SIGCONT)
    wait_until(lambda: not endpoint.unready(), "it has its slot again")
    assert slot(endpoint, "b-1") == 0


@pytest.mark.postgres
def test_what_a_killed_process_left_unpublished_another_publishes(
    kafka_broker: KafkaBroker, topic_prefix: str, migrated_postgres_url: str, new_site: Callable[..., Site]
) -> None:
    site = new_site(migrated_postgres_url)
    site.with_kafka(kafka_broker, topic_prefix)
    killed = site.serve(kafka=True, STREAMER_FAILPOINTS="before_publish=kill")
    other = site.serve(kafka=True)
    with suppress(httpx.TransportError):
        killed.ask(batch("b-1"))
    killed.wait_until_killed()
    assert slot(other, "b-3") == 1
    wait_until(lambda: not site.rows("SELECT 1 FROM pending_messages"), "nothing waits")
    published = [
        json.loads(one.value)["batch_id"] for one in published_on(kafka_broker, f"{topic_prefix}actions")
    ]
    assert sorted(published) == ["b-1", "b-3"]
    free = "SELECT 1 FROM leases WHERE name = 'serve-0' AND expires_at <= now()"
    wait_until(lambda: site.rows(free) != [], "the slot was given back")
    assert slot(site.serve(kafka=True), "b-4") == 0
