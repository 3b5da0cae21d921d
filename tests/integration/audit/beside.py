"""The verifiers once more, with two processes that take part."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import cache, partial
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import pytest

from streamer import wiring
from streamer.audit import verification
from streamer.audit.verification import Lookups, RecordReader, VerificationReport
from streamer.settings.settings import Settings
from streamer_verify import command
from streamer_verify.bundle import Bundle
from streamer_verify.command import Ranges
from streamer_verify.side_by_side import Processes
from streamer_verify.verifier import Verifier
from tests.integration.audit.history import verify


class Anywhere:
    """Reads ranges of whatever record or bundle it is told."""

    reader: Any = None

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.leave = self._stack.close

    def record(self, folder: Path, settings: Settings, moment: str | None) -> None:
        os.chdir(folder)  # where a URL begins
        store = self._stack.enter_context(closing(wiring.open_store(settings)))
        snapshot = self._stack.enter_context(store.evidence.joined(moment))
        lookups = Lookups(store.gates.history, store.calibration.inputs)
        self.reader = RecordReader(lambda _: nullcontext(snapshot), lookups)
        self.reader.begin(moment)

    def bundle(self, path: Path) -> None:
        self.reader = Ranges(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reader, name)


@cache
def processes() -> Processes:
    made = Processes(2, Anywhere)
    Finalize(None, made.__exit__, exitpriority=100)  # while their queues (10) are open
    return made


@contextmanager
def few_lines() -> Iterator[None]:
    """Cut the logs into ranges of few lines, so that damage and what is before it are read apart."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (verification, command):
            patch.setattr(module, "AT_ONCE", 7)
        yield


def verify_beside(settings: Settings, **options: Any) -> VerificationReport:
    others = partial(processes().call, "record", Path.cwd(), settings)
    try:
        with few_lines():
            return verify(settings, others=others, beside=processes(), **options)
    finally:
        processes().call("leave")


def said(verifying: Callable[[], Verifier]) -> Any:
    """What a verification of a bundle finds, or says that it cannot read."""
    try:
        found = verifying()
    except ValueError as error:
        return str(error)
    return found.faults, list(found.notes.items()), found.counts


def same_bundle(path: Path, *given: Any) -> bool:
    """Verify a bundle by one process and by two, and compare; returns whether it can be read."""
    processes().call("bundle", path)
    alone = said(lambda: command.verify_bundle(Bundle(path), *given))
    with few_lines():
        assert said(lambda: command.verify_bundle(Bundle(path), *given, beside=processes())) == alone
    return not isinstance(alone, str)
