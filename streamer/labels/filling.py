"""Severities for a label queue, in bulk: whatever gives them, each is stored as soon as it exists.

What is kept at once needs no memory of the run: after a crash, a kill or Ctrl-C the queue holds exactly what has no
label yet, and a second run does the rest. A response that could not be labelled stays in the queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from streamer.labels.severity import LabelTask, Severity, not_blank

if TYPE_CHECKING:
    from streamer.labels.judge.record import Judgement

_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """The outcome of one response of the queue: a severity, or why not, as ``code: detail``.

    `judgement` is what a judge was asked and said, to be kept whatever came of it.
    """

    task: LabelTask
    severity: Severity | None
    failure: str | None = None
    judgement: Judgement | None = None

    def __post_init__(self) -> None:
        if (self.severity is None) == (self.failure is None):
            raise ValueError("an attempt ends with a severity or a failure")


class Labeller(Protocol):
    """What gives severities of a kind: a judge, or a comparison with references.

    `id` names it for the record, down to the version of whatever computes them. Whether it
    `needs_references` : a response without any cannot be labelled.
    """

    @property
    def kind(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def needs_references(self) -> bool: ...

    def label(self, tasks: Iterable[LabelTask]) -> Generator[Sequence[Attempted]]:
        """Label tasks, taken as they are needed; yields what is ready, in any order, each group at least one.

        A task that cannot be labelled is an attempt with a failure; what ends the whole run is raised.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FillingTally:
    """What a run has done so far.

    `skipped` : responses that somebody else labelled meanwhile. `failed` : those that could not be
    labelled, by the failure's code; `examples` : the first of these failures, each with the
    response's name. `without_references` : those that were passed over, for there is nothing to
    compare them with. Tokens are as far as an endpoint counted them; `cost`, in the price list's
    currency, is None without prices, or when a reply's tokens were not counted.
    """

    labelled: int = 0
    skipped: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    without_references: int = 0
    examples: tuple[str, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = Decimal(0)

    @property
    def failures(self) -> int:
        """Responses that could not be labelled."""
        return sum(self.failed.values())

    @property
    def seen(self) -> int:
        """Responses that the run has processed."""
        return self.labelled + self.skipped + self.failures + self.without_references


def fill(
    waiting: Iterable[LabelTask],
    labeller: Labeller,
    keep: Callable[[Sequence[Attempted]], int],
    *,
    limit: int | None = None,
) -> Generator[FillingTally]:
    """Label what waits, and keep each label before the next ones are asked for.

    `keep` stores all labels of these, in one transaction, and returns how many are new; a response
    that somebody else has labelled meanwhile gets no second label of this kind. The labeller is
    given at most `limit` responses. Yields what has been done so far, after everything that was
    kept; at least once, at the end.
    """
    tally = FillingTally()
    passed_over = 0

    def labellable() -> Iterator[LabelTask]:
        nonlocal passed_over
        given = 0
        for task in waiting:
            if given == limit:
                return
            if labeller.needs_references and not not_blank(task.references):
                passed_over += 1
                continue
            given += 1
            yield task

    with closing(labeller.label(labellable())) as groups:
        for attempts in groups:
            tally = replace(_with(tally, attempts, keep(attempts)), without_references=passed_over)
            yield tally
    yield replace(tally, without_references=passed_over)


def in_groups(tasks: Iterable[LabelTask], size: int) -> Iterator[list[LabelTask]]:
    """Cut tasks into groups of `size`, the last one shorter."""
    iterator = iter(tasks)
    while group := list(islice(iterator, size)):
        yield group


def _with(tally: FillingTally, attempts: Sequence[Attempted], labelled: int) -> FillingTally:
    failed = [attempt for attempt in attempts if attempt.failure is not None]
    codes = Counter(tally.failed) + Counter(str(attempt.failure).partition(":")[0] for attempt in failed)
    judgements = [attempt.judgement for attempt in attempts if attempt.judgement is not None]
    costs = [tally.cost, *(judgement.cost for judgement in judgements)]
    return replace(
        tally,
        labelled=tally.labelled + labelled,
        skipped=tally.skipped + len(attempts) - len(failed) - labelled,
        failed=dict(codes),
        examples=(*tally.examples, *map(_example, failed))[:_EXAMPLES],
        input_tokens=tally.input_tokens + sum(judgement.usage.prompt for judgement in judgements),
        output_tokens=tally.output_tokens + sum(judgement.usage.completion for judgement in judgements),
        cost=None if None in costs else sum((cost for cost in costs if cost is not None), Decimal(0)),
    )


def _example(attempt: Attempted) -> str:
    key = attempt.task.key
    again = f", attempt {key.attempt}" if key.attempt > 1 else ""
    unit = "claim" if attempt.task.unit_id else "response"
    named = f"{unit} {attempt.task.unit_id or attempt.task.response_id}"
    return f"{key.gate}/{key.batch_id}{again}, {named}: {attempt.failure}"
