"""`streamer label judge`, `bertscore`, `lexical`: severities for everything in the label queue, without people."""

from __future__ import annotations

from contextlib import closing, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamer.cli import FAILED
from streamer.cli import options as opt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from streamer.labels.filling import Attempted, Labeller, Tally
    from streamer.labels.label_files import LabelTask
    from streamer.settings.settings import Settings
    from streamer.store import Store

LimitOption = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="Label at most this many responses.")
]


def judge(
    gate: opt.GateFilter = None,
    limit: LimitOption = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="The model's name at the endpoint; overrides the setting."),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="The endpoint, like https://api.openai.com/v1; overrides the setting."
        ),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Most requests in flight; overrides the setting.")
    ] = None,
    json: opt.JsonOption = False,
) -> None:
    """Have a language model label what waits in the queues of gates of the kind `judge`.

    The endpoint is any that speaks OpenAI's chat protocol; docs/severities.md has the rubric, the settings are in the
    group `judge`. Each label is stored as soon as its reply arrives, with every request and reply: stop when you like,
    a second run does the rest. What cannot be judged stays in the queue, and the exit status is 1.
    """
    from streamer import wiring
    from streamer.settings.settings import load_settings

    settings = load_settings(judge=_given(model=model, base_url=base_url, concurrency=concurrency))
    endpoint = wiring.judge_endpoint(settings)
    _fill(
        settings,
        "judge",
        lambda: wiring.judge_labeller(endpoint),
        gate,
        limit,
        json,
        priced=bool(endpoint.prices),
    )


def bertscore(
    gate: opt.GateFilter = None,
    limit: LimitOption = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="A folder, or a name on the Hugging Face hub; overrides the setting."
        ),
    ] = None,
    layers: Annotated[
        int | None,
        typer.Option(metavar="L", min=1, help="Layer of the model to compare; overrides the setting."),
    ] = None,
    rescale: Annotated[
        bool | None,
        typer.Option(
            "--rescale/--no-rescale", help="Rescale with a baseline, or not; overrides the setting."
        ),
    ] = None,
    json: opt.JsonOption = False,
) -> None:
    """Compare what waits in the queues of gates of the kind `bertscore` with the references that came with it.

    A response without references cannot be compared: it is counted, and stays in the queue. The other settings are in
    the group `bertscore`. Labels are stored as they are computed: stop when you like, a second run does the rest.
    """
    from streamer import wiring
    from streamer.settings.settings import load_settings

    settings = load_settings(bertscore=_given(model=model, layers=layers, rescale=rescale))
    _fill(settings, "bertscore", lambda: nullcontext(wiring.bertscore_labeller(settings)), gate, limit, json)


def lexical(
    gate: opt.GateFilter = None,
    limit: LimitOption = None,
    match: Annotated[
        Literal["exact", "contained"],
        typer.Option(help="The answer is a reference, or has the words of one in it."),
    ] = "exact",
    whole: Annotated[bool, typer.Option("--whole", help="Compare whole answers, not their heads.")] = False,
    json: opt.JsonOption = False,
) -> None:
    """Label what waits in the queues of gates of the kind `lexical`: 0 where it says a reference, else 1.

    A response without references cannot be compared: it is counted, and stays in the queue.
    """
    from streamer.labels.reference_labellers import LexicalLabeller
    from streamer.settings.settings import load_settings

    labeller = LexicalLabeller(match, whole=whole)
    _fill(load_settings(), "lexical", lambda: nullcontext(labeller), gate, limit, json)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _fill(
    settings: Settings,
    kind: str,
    open_labeller: Callable[[], AbstractContextManager[Labeller]],
    gate: str | None,
    limit: int | None,
    json: bool,
    *,
    priced: bool = False,
) -> None:
    """Fill the queues and report, also when something stops it in the middle: what was kept stays."""
    from time import monotonic

    from streamer import wiring
    from streamer.cli.console import progress
    from streamer.cli.interrupts import PatientInterrupt
    from streamer.errors import StreamerError
    from streamer.labels.filling import Tally, fill

    tally, who, stopped = Tally(), None, None
    start = monotonic()
    with wiring.open_store(settings) as store:
        gates = _gates(store, gate, kind)
        waiting = _pending(store, gates)
        if waiting:
            with open_labeller() as labeller, PatientInterrupt() as interrupt:
                who = labeller.id
                gates = _that_read(store, gates, who)
                store_kept = partial(store.judgements.keep, kind=kind, labeller=who, source=kind)

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
    seconds = monotonic() - start
    if json:
        _print_json(tally, kind, who, gates, left, seconds, priced=priced)
    else:
        _print(tally, kind, who, gates, left, seconds, priced=priced, stopped=stopped is not None)
    if stopped is not None:
        raise stopped
    if tally.failures:
        raise typer.Exit(FAILED)


def _gates(store: Store, gate: str | None, kind: str) -> list[str]:
    """Return the gates whose queues are to be filled. Raises `UsageError` for one of another kind."""
    from streamer.errors import UsageError

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
    from streamer.cli.console import warn
    from streamer.errors import UsageError

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
    from streamer.cli.label import waiting

    for gate in gates:
        yield from waiting(store, gate, with_texts=True)


def _print_json(
    tally: Tally, kind: str, who: str | None, gates: Sequence[str], left: int, seconds: float, *, priced: bool
) -> None:
    from streamer.cli.console import print_json

    print_json(
        {
            "gates": gates,
            "kind": kind,
            "labeller": who,
            "labelled": tally.labelled,
            "failed": tally.failures,
            "failures": tally.failed,
            "skipped": tally.skipped,
            "without_references": tally.without_references,
            "waiting": left,
            "tokens": {"input": tally.input_tokens, "output": tally.output_tokens},
            "cost": float(tally.cost) if priced and tally.cost is not None else None,
            "seconds": round(seconds, 3),
        }
    )


def _print(
    tally: Tally,
    kind: str,
    who: str | None,
    gates: Sequence[str],
    left: int,
    seconds: float,
    *,
    priced: bool,
    stopped: bool,
) -> None:
    from streamer.cli.console import counted, note, say, warn

    if not gates:
        note(
            f"No gate is controlled by severities of the kind {kind!r} (streamer gate create --severity-kind {kind})."
        )
    by = "" if who is None else f" by {who}"
    say(f"labelled {counted(tally.labelled, 'response', 'responses')}{by} in {seconds:.1f} s")
    if tally.input_tokens or tally.output_tokens:
        cost = "" if not priced else f", cost {'unknown' if tally.cost is None else f'{tally.cost:.4f}'}"
        note(f"{tally.input_tokens} tokens of requests, {tally.output_tokens} of replies{cost}")
    if tally.skipped:
        note(
            f"{counted(tally.skipped, 'response was', 'responses were')} labelled by somebody else meanwhile"
        )
    if tally.without_references:
        warn(
            f"{counted(tally.without_references, 'response has', 'responses have')} no references to be compared with; "
            "they stay in the queue: publish references with the events, or label them by hand"
        )
    if tally.failures:
        codes = ", ".join(f"{count} {code}" for code, count in sorted(tally.failed.items()))
        warn(f"{counted(tally.failures, 'response', 'responses')} could not be labelled ({codes}):")
        for example in tally.examples:
            warn(f"  {example}")
        if tally.failures > len(tally.examples):
            warn("  ...")
    if stopped:
        note("Stopped; what was labelled is stored.")
    if again := left - tally.without_references:
        note(
            f"{counted(again, 'response waits', 'responses wait')} in the queue; the same command resumes with them"
        )
    elif tally.labelled:
        note("Next: streamer recalibrate" + (f" {gates[0]}" if len(gates) == 1 else ""))
