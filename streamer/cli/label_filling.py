"""`streamer label NAME` for each kind of severity that a program gives: everything in the label queue, without people."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from streamer import wiring
from streamer.cli import FAILED
from streamer.cli import options as opt
from streamer.cli.console import PatientInterrupt, counted, note, picked, print_json, progress, say, warn
from streamer.errors import StreamerError, UsageError
from streamer.gates.batch_key import BatchKey
from streamer.labels.filling import Attempted, FillingTally, fill
from streamer.labels.severity import LabelTask
from streamer.labels.severity_kind import KindOption, ProgramKind
from streamer.scoring.judged import form
from streamer.wording.numbers import items, waiting_items

if TYPE_CHECKING:
    from streamer.store import Store

_PAGE = 500


def filling(kind: type[ProgramKind]) -> Callable[..., None]:
    """Return the command that fills the queues of gates of a kind."""

    def run(gate: str | None, limit: int | None, json: bool, **options: Any) -> None:
        _fill(kind(**options), gate, limit, json)

    run.__doc__ = kind.command
    limit = opt.option("N", "Label at most this many responses.", ..., "--limit", min=1)
    return opt.with_parameters(
        run,
        [
            opt.keyword("gate", opt.GateFilter, None),
            opt.keyword("limit", Annotated[int | None, limit], None),
            *(parameter(name, one) for name, one in kind.options().items()),
            opt.keyword("json", opt.JsonOption, default=False),
        ],
    )


def parameter(name: str, one: KindOption, of: str = "") -> inspect.Parameter:
    """Make a parameter of a command from an option of a kind; `of` names whose it is, where there are several."""
    dashed = name.replace("_", "-")
    flag = {bool: [f"--{dashed}"], bool | None: [f"--{dashed}/--no-{dashed}"]}.get(one.type, [])
    text = f"{of}: {one.help[0].lower()}{one.help[1:]}" if of else one.help
    given = opt.option(one.metavar, text, ..., *flag, min=one.least)
    return opt.keyword(name, Annotated[one.type, given], one.default)


def _fill(kind: ProgramKind, gate: str | None, limit: int | None, json: bool) -> None:
    """Fill the queues and report, also when something stops it in the middle: what was kept stays."""
    settings = wiring.load_settings(**kind.overrides())
    opened, priced = kind.labeller(settings), kind.priced(settings)
    tally, who, stopped = FillingTally(), None, None
    start = monotonic()
    with wiring.open_store(settings) as store:
        gates = _gates(store, gate, kind.name)
        waiting = _pending(store, gates)
        if waiting:
            with opened as labeller, PatientInterrupt() as interrupt:
                who = labeller.id
                gates = _that_read(store, gates, who)
                store_kept = partial(store.judgements.keep, kind=kind.name, labeller=who, source=kind.name)

                def keep(attempts: Sequence[Attempted]) -> int:
                    interrupt.hold()
                    return store_kept(attempts)

                try:
                    with (
                        progress("labelling", min(waiting, limit or waiting)) as advance,
                        closing(fill(_queued(store, gates), labeller, keep, limit=limit)) as tallies,
                    ):
                        for tally in tallies:
                            advance(tally.seen)
                            interrupt.release()
                except (KeyboardInterrupt, StreamerError) as reason:
                    stopped = reason
        left = _pending(store, gates)
        units = {store.gates.get(name).settings.unit for name in gates}
    done = _Filled(tally, kind.name, who, gates, units, left, monotonic() - start, priced)
    if json:
        _print_json(done)
    else:
        _print(done, stopped=stopped is not None)
    if stopped is not None:
        raise stopped
    if tally.failures:
        raise typer.Exit(FAILED)


def _gates(store: Store, gate: str | None, kind: str) -> list[str]:
    """Return the gates whose queues are to be filled. Raises `UsageError` for one of another kind."""
    if gate is None:
        return [one.gate for one in store.gates.list() if one.settings.severity_kind == kind]
    wanted = store.gates.get(gate).settings.severity_kind
    if wanted != kind:
        raise UsageError(
            f"gate {gate} is controlled by severities of the kind {wanted!r}, which {kind!r} are not; another kind is "
            f"another gate: streamer gate create NAME --severity-kind {kind} (or streamer gate set, which closes it)"
        )
    return [gate]


def _that_read(store: Store, gates: Sequence[str], who: str) -> list[str]:
    """Return the gates that would read this labeller's labels. Raises `UsageError` when there is none."""
    refusals = store.labels.refusals(who, gates)
    left = [gate for gate in gates if gate not in refusals]
    if not left:
        raise UsageError(
            f"{'; '.join(refusals.values())}. Nothing was labelled. `streamer gate set GATE --labellers ...` names"
            " labellers, `streamer label keygen` makes a key for one"
        )
    for refusal in refusals.values():
        warn(f"{refusal}: its queue is left out")
    return left


def _pending(store: Store, gates: Sequence[str]) -> int:
    pending = store.labels.pending()
    return sum(pending.get(gate, 0) for gate in gates)


def _queued(store: Store, gates: Sequence[str]) -> Iterator[LabelTask]:
    """Go through the queues once; where a wrong claim ends an answer's, one claim of each at a time."""
    for gate in gates:
        until_wrong, more = store.gates.get(gate).settings.until_wrong, True
        asked: set[tuple[BatchKey, str]] = set()
        while more:
            answers: set[BatchKey] = set()
            for task in waiting(store, gate, textless=Counter()):
                if task.key not in answers and (task.key, task.response_id) not in asked:
                    asked.add((task.key, task.response_id))
                    answers |= {task.key} if until_wrong else set()
                    yield task
            more = bool(answers)


class _Filled(NamedTuple):
    """What came of the queues of some gates: `left` still wait, after so many seconds."""

    tally: FillingTally
    kind: str
    who: str | None
    gates: Sequence[str]
    units: Collection[str]
    left: int
    seconds: float
    priced: bool


def _print_json(done: _Filled) -> None:
    tally = done.tally
    print_json(
        {
            "gates": done.gates,
            "kind": done.kind,
            "labeller": done.who,
            **tally_json(tally),
            **picked(tally, "skipped without_references"),
            "waiting": done.left,
            "cost": float(tally.cost) if done.priced and tally.cost is not None else None,
            "seconds": round(done.seconds, 3),
        }
    )


def tally_json(tally: FillingTally) -> dict[str, Any]:
    """Return what programs have labelled, and what that took, as JSON values."""
    tokens = {"input": tally.input_tokens, "output": tally.output_tokens}
    found = {"labelled": tally.labelled, "failed": tally.failures, "failures": tally.failed}
    return {**found, "tokens": tokens}


def warn_failed(tally: FillingTally, said: str) -> None:
    """Warn of what could not be labelled, with examples."""
    if tally.failures:
        warn(said)
        for example in tally.examples:
            warn(f"  {example}")
        if tally.failures > len(tally.examples):
            warn("  ...")


def _print(done: _Filled, *, stopped: bool) -> None:
    tally, kind, who, gates, units, left, seconds, priced = done
    one, many = named = items(*units, plain="response")
    if not gates:
        note(
            f"No gate is controlled by severities of the kind {kind!r} (streamer gate create --severity-kind {kind})."
        )
    by = "" if who is None else f" by {who}"
    say(f"labelled {counted(tally.labelled, *named)}{by} in {seconds:.1f} s")
    if tally.input_tokens or tally.output_tokens:
        cost = "" if not priced else f", cost {'unknown' if tally.cost is None else f'{tally.cost:.4f}'}"
        note(f"{tally.input_tokens} tokens of requests, {tally.output_tokens} of replies{cost}")
    if tally.skipped:
        note(f"{counted(tally.skipped, f'{one} was', f'{many} were')} labelled by somebody else meanwhile")
    if tally.without_references:
        warn(
            f"{counted(tally.without_references, f'{one} has', f'{many} have')} no references to be compared with; "
            "they stay in the queue: publish references with the events, or label them by hand"
        )
    codes = ", ".join(f"{count} {code}" for code, count in sorted(tally.failed.items()))
    warn_failed(tally, f"{counted(tally.failures, *named)} could not be labelled ({codes}):")
    if stopped:
        note("Stopped; what was labelled is stored.")
    if again := left - tally.without_references:
        note(f"{counted(again, *waiting_items(*units))} in the queue; the same command resumes with them")
    elif tally.labelled:
        note("Next: streamer recalibrate" + (f" {gates[0]}" if len(gates) == 1 else ""))


def waiting(store: Store, gate: str | None, *, textless: Counter[str] | None = None) -> Iterator[LabelTask]:
    """Iterate over what waits for a severity, the oldest first; what is labelled meanwhile may be left out.

    Gates whose audit rate is raised come first, and are said to be urgent.

    `textless` counts by gate what is kept without a text, which is then passed over.
    """
    last, urgent = None, store.labels.urgent(wiring.now())
    while page := store.labels.queue(gate, limit=_PAGE, after=last, urgent=urgent):
        for one in page:
            if textless is not None and one.text is None:
                textless[one.key.gate] += 1
                continue
            judged = form(one.judged)
            yield LabelTask(
                key=one.key,
                response_id=one.response_id,
                kind=one.kind,
                prompt=one.prompt,
                response=judged.ships((one.text if one.answer is None else one.answer) or ""),
                unit_id="" if one.answer is None else one.response_id,
                unit="" if one.answer is None else one.text or "",
                judged=judged,
                references=one.references,
                urgent=one.urgent,
                decided_at=one.decided_at,
            )
        last = page[-1]
