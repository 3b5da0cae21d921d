"""Case 17: a record that cannot be decided or stored is refused alone; nothing stops, and all others get their outcome."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from streamer import wiring
from tests.faults.site import GATE, event, publish, wait_until

if TYPE_CHECKING:
    from tests.faults.matrix import Matrix
    from tests.faults.site import Site

BEYOND_UTC = ("0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-05:00")
"""Times that no UTC timestamp can express; .NET writes the first one where there is no date."""


def label(number: int, **changes: Any) -> bytes:
    content = {
        "schema": "streamer.labels.v1",
        "gate": GATE,
        "batch_id": f"batch-{number}",
        "response_id": "r0",
        "severity": 0.5,
        "kind": "human",
        "labeller": "ana",
        "labelled_at": "2026-01-01T00:00:00Z",
    }
    return json.dumps(content | changes).encode()


def test_times_beyond_utc_are_refused_by_name(site: Site, matrix: Matrix) -> None:
    named = wiring.topics(site.settings)
    worker = site.start_worker()
    with wiring.publisher(site.settings) as publisher:
        for number in range(40):
            when = {"created_at": BEYOND_UTC[number % 2]} if number % 20 > 17 else {}
            publisher.send(named.responses, event(number, **when), key=b"%d" % number)
            when = {"labelled_at": BEYOND_UTC[number % 2]} if number % 20 > 17 else {}
            publisher.send(named.labels, label(number, **when), key=b"%d" % number)
    wait_until(lambda: worker.ended or site.recorded() == 80, "every record has an outcome", 60)
    assert not worker.ended, worker.log_tail()
    found = site.check()
    assert (found.decisions, found.labels, found.dead_letters) == (36, 36, 8)
    assert {letter.code for letter in site.store.dead_letters.list()} == {"invalid_field"}
    matrix.add("17 times that UTC cannot express", found)
    assert worker.terminate() == 0
