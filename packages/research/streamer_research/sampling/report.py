"""What `streamer sample` prints: the plan before anything is sent, and the result."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from streamer.cli.console import counted, note, print_json, print_table, say, warn
from streamer_research.sampling.collecting import SamplingTally
from streamer_research.sampling.estimating import CostEstimate, EstimateRow
from streamer_research.sampling.output import WrittenFile
from streamer_research.sampling.plan import Request
from streamer_research.sampling.session import SamplingSession

_EXAMPLE_CHARACTERS = 300


def print_plan(
    session: SamplingSession, planned: CostEstimate, *, again: bool, examples: bool, json: bool
) -> None:
    """Report what will be sent, at what cost, to whom; with `examples` also what the requests say."""
    plan = session.plan
    first = _first_of_each_kind(session.requests(again=again)) if examples else {}
    if json:
        print_json(_plan_document(session, planned, first))
        return
    tell = say if examples else note
    recipe = plan.recipe
    counts = recipe.mix.counts(recipe.answers)
    by_kind = ", ".join(f"{count} {mode}" for mode, count in counts.items() if count)
    clouds = len(plan.prompts) * plan.clouds_per_prompt
    tell(
        f"{counted(len(plan.prompts), 'prompt', 'prompts')}, {counted(clouds, 'cloud', 'clouds')} of {recipe.answers} "
        f"answers each ({by_kind}); seed {recipe.seed}"
    )
    if session.earlier:
        answered = counted(len(session.earlier), "request is", "requests are")
        tell(f"{answered} answered in {session.out.name}.journal already")
    if examples:
        columns = ["kind", "model", "T", "requests", "answers", "tokens in", "tokens out", "out at most"]
        priced = planned.cost is not None
        rows = [
            [*_row(session, row), *([_rounded(row.cost), _rounded(row.most_cost)] if priced else [])]
            for row in planned.rows
        ]
        if rows:
            print_table([*columns, *(["cost", "at most"] if priced else [])], rows)
    tell(_total(planned))
    if not examples:
        return
    for (kind, family), request in first.items():
        say("")
        say(
            f"{kind}{f' ({family})' if family else ''}, {counted(len(request.positions), 'answer', 'answers')}:"
        )
        for message in request.messages:
            say(f"  {message.role}: {_short(message.content)}")
    made = plan.noise(0)
    slots = [slot for slot in plan.slots(plan.prompts[0], 0) if slot.position in made]
    for family, text in {slot.family: made[slot.position] for slot in slots}.items():
        say("")
        say(f"noise by program ({family}):")
        say(f"  {_short(text)}")
    say("")
    say("Nothing was sent.")


def print_result(
    session: SamplingSession,
    tally: SamplingTally,
    files: Sequence[WrittenFile],
    not_taken: Mapping[int, frozenset[str]],
    seconds: float,
    *,
    stopped: bool,
    json: bool,
) -> None:
    """Report what came, what did not, and what to do next."""
    left = max(0, tally.wanted - tally.answered - tally.failed.total())
    if json:
        print_json(_result_document(session, tally, files, not_taken, seconds, left))
        return
    for file in files:
        if file.clouds:
            say(f"{file.path}: {counted(file.clouds, 'cloud', 'clouds')}, {file.answers} answers")
        if file.left_out:
            why = "not finished yet" if stopped else "with fewer than two answers of the model"
            warn(f"{file.path}: {counted(file.left_out, 'prompt', 'prompts')} left out, {why}")
        _warn_of_places(file)
    if tally.requests:
        cost = "" if tally.cost is None else f"; cost of all replies so far {tally.cost:.4f}"
        note(
            f"{counted(tally.requests, 'request', 'requests')} in {seconds:.1f} s, {tally.input_tokens} tokens in, "
            f"{tally.output_tokens} out{cost}"
        )
    elif not tally.wanted:
        note("Everything was already there; nothing was sent.")
    arms = session.plan.arms
    for vendor, names in not_taken.items():
        model = next(arm.model for arm in arms if arm.vendor == vendor)
        decoding = sorted(names & {"temperature", "top_p", "seed"})
        if decoding:
            warn(
                f"{model} does not accept {', '.join(decoding)}: its answers are sampled without (meta.not_taken names it)"
            )
    if tally.failed:
        codes = ", ".join(f"{count} {code}" for code, count in sorted(tally.failed.items()))
        warn(f"{counted(tally.failed.total(), 'answer', 'answers')} could not be obtained ({codes}):")
        for example in tally.examples:
            warn(f"  {example}")
    if tally.over_budget:
        warn("Stopped before --max-cost could be exceeded.")
    elif stopped:
        note("Stopped; what was answered is in the journal.")
    if left or tally.failed:
        note(f"{left + tally.failed.total()} answers are still missing; the same command resumes with them")
    elif files and files[0].clouds:
        note(
            f"Next: streamer publish {files[0].path} --gate GATE, or streamer label clouds {files[0].path} --out LABELLED"
        )


def _warn_of_places(file: WrittenFile) -> None:
    for count, what in (
        (file.refused, "refused by the model or a filter (--again asks again)"),
        (file.empty, "empty (--again asks again)"),
    ):
        if count:
            warn(f"{file.path}: {counted(count, 'answer', 'answers')} {what}")
    if file.cut_off:
        warn(
            f"{file.path}: {counted(file.cut_off, 'answer was', 'answers were')} cut off at the most tokens that are "
            "allowed; they are in the clouds (finish_reason length)"
        )
    if file.headless:
        warn(f"{file.path}: {counted(file.headless, 'answer', 'answers')} with a blank head (meta.head)")


def _row(session: SamplingSession, row: EstimateRow) -> list[object]:
    arm = session.plan.arms[row.arm]
    own = row.kind in ("normal", "enforced", "noise")
    return [
        row.kind,
        arm.model,
        arm.temperature if own else 1.0,
        row.requests,
        row.answers,
        row.expected.prompt,
        row.expected.completion,
        row.most.completion,
    ]


def _total(planned: CostEstimate) -> str:
    if not planned.requests:
        return "Nothing is left to ask for."
    text = (
        f"{counted(planned.requests, 'request', 'requests')} for {counted(planned.answers, 'answer', 'answers')}; about "
        f"{planned.expected.prompt} tokens in and {planned.expected.completion} out (at most {planned.most.completion} "
        "out)"
    )
    if planned.cost is None:
        return f"{text}; the cost is unknown without --price IN/OUT"
    return f"{text}; cost about {_money(planned.cost)}, at most {_money(planned.most_cost)}"


def _money(amount: Decimal | None) -> str:
    return "-" if amount is None else f"{amount:.4f}"


def _rounded(amount: Decimal | None) -> float | None:
    return None if amount is None else round(float(amount), 4)


def _short(text: str) -> str:
    one = " ".join(text.split())
    return one if len(one) <= _EXAMPLE_CHARACTERS else one[: _EXAMPLE_CHARACTERS - 3] + "..."


def _first_of_each_kind(requests: Sequence[Request]) -> dict[tuple[str, str | None], Request]:
    found: dict[tuple[str, str | None], Request] = {}
    for request in requests:
        kind = request.mode if request.batch.kind == "answer" else request.batch.kind
        found.setdefault((kind, request.family), request)
    return found


def _plan_document(
    session: SamplingSession, planned: CostEstimate, first: Mapping[tuple[str, str | None], Request]
) -> dict[str, Any]:
    plan = session.plan
    return {
        **plan.document(),
        "clouds": len(plan.prompts) * plan.clouds_per_prompt,
        "answered_before": len(session.earlier),
        "requests": planned.requests,
        "answers": planned.answers,
        "tokens": {"input": planned.expected.prompt, "output": planned.expected.completion},
        "tokens_at_most": {"input": planned.most.prompt, "output": planned.most.completion},
        "cost": None if planned.cost is None else float(planned.cost),
        "cost_at_most": None if planned.most_cost is None else float(planned.most_cost),
        "rows": [
            {
                "kind": row.kind,
                "model": plan.arms[row.arm].model,
                "temperature": plan.arms[row.arm].temperature,
                "requests": row.requests,
                "answers": row.answers,
            }
            for row in planned.rows
        ],
        "examples": [
            {
                "kind": kind,
                "family": family,
                "messages": [{"role": one.role, "content": one.content} for one in request.messages],
            }
            for (kind, family), request in first.items()
        ],
    }


_OF_FILE = ("clouds", "answers", "left_out", "missing", "refused", "empty", "cut_off")


def _result_document(
    session: SamplingSession,
    tally: SamplingTally,
    files: Sequence[WrittenFile],
    not_taken: Mapping[int, frozenset[str]],
    seconds: float,
    left: int,
) -> dict[str, Any]:
    arms = session.plan.arms
    return {
        "files": [
            {
                "path": str(file.path),
                **{name: getattr(file, name) for name in _OF_FILE},
                "blank_heads": file.headless,
            }
            for file in files
        ],
        "answered": tally.answered,
        "failed": tally.failed.total(),
        "failures": dict(tally.failed),
        "not_asked": left,
        "requests": tally.requests,
        "tokens": {"input": tally.input_tokens, "output": tally.output_tokens},
        "cost": None if tally.cost is None else float(tally.cost),
        "over_budget": tally.over_budget,
        "not_taken": {
            next(arm.model for arm in arms if arm.vendor == vendor): sorted(names)
            for vendor, names in not_taken.items()
        },
        "seconds": round(seconds, 3),
    }
