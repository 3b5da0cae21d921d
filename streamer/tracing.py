"""What is traced of a decision on its way, and the tracing that records nothing.

The one that does is `streamer.telemetry.traces`. A record is known by its partition and offset, from `begin` until it is
`committed` or `dropped`; what was published is known by the trace context in its headers, so that a trace goes on where another
process publishes.
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Protocol

from streamer.journal import Headers, OutboxMessage, Outcome, OutcomeKind, Record


class Answered(Protocol):
    """How a request to the service ended."""

    def __call__(self, route: str | None, status: int | None, /) -> None:
        """The template of its address, None for one that there is not; its status, None where nothing was sent."""


class Call(Protocol):
    """How a request to a language model ended."""

    def __call__(
        self,
        *,
        model: str | None,
        finish_reasons: Sequence[str | None],
        tokens: tuple[int, int] | None,
        problem: str | None,
    ) -> None:
        """The model that answered, why each answer ended, tokens of prompt and of answers; or a code of what went wrong."""


class Tracing(Protocol):
    """Thread-safe; every call returns at once, and none raises."""

    def request(self, scope: MutableMapping[str, Any], /) -> AbstractContextManager[Answered]:
        """A request (an ASGI scope) is answered inside; its trace headers become those of what is done inside."""

    def call(self, base_url: str, parameters: Mapping[str, object], /) -> AbstractContextManager[Call]:
        """A language model is asked inside, at that address and with these parameters."""

    def calibration(self, gate: str, /) -> AbstractContextManager[Callable[[str], None]]:
        """A gate is recalibrated inside; what is given takes how that ended, in a word."""

    def outgoing(self) -> Mapping[str, str] | None:
        """The headers that carry the present trace to another service."""

    def begin(self, records: Sequence[Record], /) -> None:
        """These are decided from now on, together; also those that were begun, and are decided again."""

    def scoring(self, records: Sequence[Record], /) -> AbstractContextManager[object]:
        """Of those that were begun, these get their scores inside, and calls inside are about them."""

    def context(self, record: Record, /) -> Headers:
        """What an event about this record carries as its trace: headers, `traceparent` and `tracestate` among them."""

    def decided(self, outcomes: Sequence[Outcome], /) -> None:
        """These are the outcomes, which nobody has recorded yet."""

    def committed(self, outcomes: Sequence[Outcome], kinds: Sequence[OutcomeKind], *, seconds: float) -> None:
        """These are recorded, by a transaction of so many seconds; `kinds` (same length) says what each became."""

    def dropped(self, records: Sequence[Record], /) -> None:
        """These are another process's to decide."""

    def published(self, messages: Sequence[OutboxMessage], *, seconds: float) -> None:
        """The broker has these, so many seconds after they were sent."""


class NoTracing(Tracing):
    """Keeps no trace: the protocol's own methods do nothing."""

    def request(self, scope: MutableMapping[str, Any], /) -> AbstractContextManager[Answered]:
        """Do nothing."""
        return _ANSWERED

    def call(self, base_url: str, parameters: Mapping[str, object], /) -> AbstractContextManager[Call]:
        """Do nothing."""
        return _CALL

    def calibration(self, gate: str, /) -> AbstractContextManager[Callable[[str], None]]:
        """Do nothing."""
        return _RUN

    def outgoing(self) -> None:
        """Nothing is carried."""

    def scoring(self, records: Sequence[Record], /) -> AbstractContextManager[object]:
        """Do nothing."""
        return _INSIDE

    def context(self, record: Record, /) -> Headers:
        """What came with the record."""
        return record.headers


def _ignore(*_: object, **__: object) -> None:
    """Nobody asked."""


_ANSWERED: Final[nullcontext[Answered]] = nullcontext(_ignore)
_CALL: Final[nullcontext[Call]] = nullcontext(_ignore)
_RUN: Final[nullcontext[Callable[[str], None]]] = nullcontext(_ignore)
_INSIDE: Final = nullcontext()

NO_TRACING: Final[Tracing] = NoTracing()  # type: ignore[abstract]  # what it inherits does nothing
