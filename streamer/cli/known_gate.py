"""Problems with publishing to a gate, as far as the record can be read from here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from streamer import wiring
from streamer.cli.console import warn
from streamer.clouds.simulation import QUESTION_ID_PREFIX
from streamer.errors import StreamerError, UsageError
from streamer.events.labels import decode_label
from streamer.events.limits import Limits
from streamer.events.responses import content_hash, decode_responses
from streamer.settings.settings import Settings

if TYPE_CHECKING:
    from streamer.store import Store


class WhatIsKnown:
    """What the record says of batches before they are published; nothing where it is not `readable`
    from here.

    `repeats` are decided already, or were there before in the same files; of `conflicts` among them
    the content is another. `unknown_gates` nobody has created, in the order in which batches named
    them.
    """

    def __init__(self, store: Store | None, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._gates: dict[str, str | None] = {}
        self._warned: set[tuple[str, str]] = set()
        self._seen: dict[tuple[str, str, int], bytes] = {}
        self.readable = store is not None
        self.unknown_gates: list[str] = []
        self.repeats = self.conflicts = 0

    def look(self, events: Sequence[bytes], labels: Sequence[bytes] = ()) -> list[bool]:
        """Look at what is to be published next, as the topics require it; labels are of those
        batches or of earlier ones.

        Warns of gates that nobody has created, and of labels that control none. Returns which
        batches will be refused, since others of their names have other content.
        """
        if self._store is None:
            return [False] * len(events)
        batches = [decode_responses(value, self._limits) for value in events]
        try:
            decided = self._store.known([batch.key for batch in batches])
            for gate in dict.fromkeys(batch.gate for batch in batches):
                if gate in self._gates:
                    continue
                if not self._store.policies.versions([gate]):
                    self._gates[gate] = None
                    self.unknown_gates.append(gate)
                    warn(_no_such_gate(gate, ""))
                    continue
                settings = self._store.gates.get(gate).settings
                self._gates[gate] = settings.severity_kind
                if settings.unit == "claim" and labels:
                    warn(f"{gate!r} counts labels of claims, and these are of whole answers: label its queue")
        except StreamerError:
            self._store, self.readable = None, False
            return [False] * len(events)
        refused = []
        for batch in batches:
            content = content_hash(batch)
            before = decided.get(batch.key, self._seen.get(batch.key))
            self._seen.setdefault(batch.key, content)
            if before is not None:
                self.repeats += 1
            # erased content compares with nothing
            refused.append(before not in (None, content, b""))
        self.conflicts += sum(refused)
        for gate, kind in dict.fromkeys((one.gate, one.kind) for one in (decode_label(v) for v in labels)):
            wanted = self._gates.get(gate)
            if wanted not in (None, kind) and (gate, kind) not in self._warned:
                self._warned.add((gate, kind))
                warn(_of_other_kind(gate, str(wanted), kind))
        return refused

    def kind_of(self, gate: str | None) -> str | None:
        """Return the kind of severities that controls a gate; None where the record does not say."""
        try:
            found = None if self._store is None or gate is None else self._store.gates.get(gate)
        except StreamerError:
            return None
        return None if found is None else found.settings.severity_kind


@contextmanager
def asking(settings: Settings, limits: Limits) -> Iterator[WhatIsKnown]:
    """Look up in the record what is to be published; a publisher need not be able to read it."""
    with ExitStack() as stack:
        try:
            store = stack.enter_context(wiring.open_store(settings))
        except StreamerError:
            store = None
        yield WhatIsKnown(store, limits)


def refuse_real_gate(settings: Settings, gate: str) -> None:
    """Raise `UsageError` when a gate has batches or labels that no simulation made."""
    try:
        with wiring.open_store(settings) as store:
            real = store.reports.has_others_than(gate, batch_prefix=QUESTION_ID_PREFIX)
    except StreamerError:
        return
    if real:
        raise UsageError(
            f"the gate {gate!r} has batches or labels that no simulation made, and made-up labels would move its threshold; "
            "create another gate for the simulation (streamer gate create NAME --severity-kind simulated), or say "
            "--into-real-gate"
        )


def _no_such_gate(gate: str, options: str) -> str:
    return (
        f"there is no gate {gate!r} in the database that is configured here: workers refuse its batches (unknown_gate) "
        f"until there is; streamer gate create {gate}{options}"
    )


def _of_other_kind(gate: str, wanted: str, kind: str) -> str:
    return (
        f"gate {gate!r} is controlled by severities of the kind {wanted!r}: those of the kind {kind!r} are recorded and do not "
        f"count; streamer gate create NAME --severity-kind {kind} makes one where they do"
    )


def warn_of_unknown(settings: Settings, gate: str, *, kind: str) -> None:
    """Say that this gate does not exist, or that labels of `kind` do not control it. A

    publisher need not be able to read the record: then nothing is said.
    """
    try:
        with wiring.open_store(settings) as store:
            found = store.gates.get(gate) if store.policies.versions([gate]) else None
    except StreamerError:
        return
    if found is None:
        warn(_no_such_gate(gate, f" --severity-kind {kind}"))
    elif found.settings.severity_kind != kind:
        warn(_of_other_kind(gate, found.settings.severity_kind, kind))
