"""Records that no honest publisher writes, and those at the very edge of what one may."""

import json

import pytest
from confluent_kafka import Producer

from streamer import wiring
from streamer.errors import UsageError
from streamer.events.dead_letters import ERROR_CODE
from streamer.events.limits import RECORD_OVERHEAD_BYTES
from tests.faults.matrix import Matrix
from tests.faults.site import Site, event, wait_until


def test_strange_headers_and_keys_become_outcomes(site: Site, matrix: Matrix) -> None:
    named = wiring.topics(site.settings)
    strange = [
        ("", b""),
        ("\x00", b"\x00"),
        ("\u202e", None),
        ("twice", b"1"),
        ("twice", b"2"),
        ("traceparent", b"\xff\x00"),
        ("tracestate", None),
        (ERROR_CODE, b"forged"),
        ("n" * 10_000, b"v" * 20_000),
    ]
    producer = Producer({"bootstrap.servers": site.settings.bootstrap_servers, "log_level": 0})
    for number in range(20):
        for key in (None, b"", b"\x00\xff", b"k" * 20_000):
            producer.produce(named.responses, event(number), key=key, headers=strange)
    producer.produce(named.responses, b"rubbish", key=b"\x00\xff", headers=strange)
    producer.produce(named.responses, None, key=None, headers=strange)
    assert producer.flush(30) == 0
    site.start_worker()
    wait_until(lambda: site.recorded() == 82, "every record has an outcome", 40, progress=site.recorded)
    found = site.check()
    assert (found.decisions, found.duplicates, found.dead_letters) == (20, 60, 2)
    matrix.add("9 strange keys and headers", found)


def test_values_of_exactly_the_limits_pass_and_more_is_refused_visibly(site: Site, matrix: Matrix) -> None:
    named, bounds = wiring.topics(site.settings), wiring.limits(site.settings)

    def of_size(number: int, size: int) -> bytes:
        content = json.loads(event(number, metadata={"pad": ""}))
        content["metadata"]["pad"] = "y" * (size - len(json.dumps(content)))
        value = json.dumps(content).encode()
        assert len(value) == size
        return value

    def with_text(number: int, size: int) -> bytes:
        content = json.loads(event(number))
        content["responses"][0]["text"] = "x" * size
        return json.dumps(content).encode()

    with wiring.publisher(site.settings) as publisher:
        publisher.send(named.responses, with_text(1, bounds.max_text_bytes), key=b"k")
        publisher.send(named.responses, with_text(2, bounds.max_text_bytes + 1), key=b"k")
        # The topic leaves room for what comes with a value, so that the largest one passes.
        publisher.send(named.responses, of_size(3, bounds.max_value_bytes), key=b"k")
        publisher.send(named.responses, of_size(4, bounds.max_value_bytes + 1), key=b"k")
    beyond = bounds.max_value_bytes + RECORD_OVERHEAD_BYTES
    with pytest.raises(UsageError, match="larger than"), wiring.publisher(site.settings) as publisher:
        publisher.send(named.responses, of_size(5, beyond), key=b"k")
    site.start_worker()
    wait_until(lambda: site.recorded() == 4, "every record has an outcome", 40, progress=site.recorded)
    found = site.check()
    assert (found.decisions, found.dead_letters) == (2, 2)
    matrix.add("8 at the limits and beyond", found)
    assert sorted(letter.code for letter in site.store.dead_letters.list()) == ["text_too_large", "too_large"]
