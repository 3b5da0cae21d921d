"""What a request log says of batches whose decisions have left the database."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any

import pytest

from streamer.gates.batch_key import BatchKey
from streamer.journal import RecordedAction
from streamer.serving.problems import Problem
from streamer.serving.request_log import RequestLog

KEY = BatchKey("bot", "b-1", 1)
DECIDED = RecordedAction(b"{}", None)


class Actions:
    """A record that finds these, one after the other."""

    def __init__(self, *found: RecordedAction | None, known: bool) -> None:
        self.found, self.is_known = list(found), known

    def action(self, _key: BatchKey) -> RecordedAction | None:
        return self.found.pop(0)

    recorded = action

    def known(self, keys: Sequence[BatchKey]) -> dict[BatchKey, bytes]:
        return dict.fromkeys(keys, b"") if self.is_known else {}


def read(name: str, actions: Actions) -> Any:
    with ThreadPoolExecutor(1) as executor:
        parts = dict.fromkeys((one.name for one in fields(RequestLog)), None)
        log = RequestLog(**parts | {"actions": actions, "executor": executor})  # type: ignore[arg-type]
        return asyncio.run(getattr(log, name)(KEY))


@pytest.mark.parametrize("name", ["find", "recorded"])
def test_what_is_decided_between_two_looks_was_not_given_out(name: str) -> None:
    assert read(name, Actions(None, DECIDED, known=True)) is DECIDED
    with pytest.raises(Problem) as given_out:
        read(name, Actions(None, None, known=True))
    assert (given_out.value.status, given_out.value.code) == (410, "given_out")


def test_what_was_never_decided_is_none() -> None:
    assert read("recorded", Actions(None, known=False)) is None
    with pytest.raises(Problem) as unknown:
        read("find", Actions(None, known=False))
    assert (unknown.value.status, unknown.value.code) == (404, "unknown_batch")
