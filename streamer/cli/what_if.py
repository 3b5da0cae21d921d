"""`streamer what-if`: what another policy would have made of the recorded past, beside what was in force."""

from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer.cli import FOUND
from streamer.cli import options as opt
from streamer.cli.console import SERVED, counted, percent
from streamer.cli.gate_options import with_settings
from streamer.cli.policies import cut_text, guarantee_text, when
from streamer.cli.verdicts import interval_text
from streamer.gates.settings import PARAMETERS
from streamer.whatif.asking import SETTINGS, Change

if TYPE_CHECKING:
    from streamer.gates.rule import Cut
    from streamer.whatif import Answer, Changed, Figures

_SHOWN_ANSWERS = 10
_LONGEST = 36_500 * 86_400.0


@partial(with_settings, only={*SETTINGS, *PARAMETERS})
def what_if(
    gate: opt.GateArgument,
    *,
    given: dict[str, Any],
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="Q|open|closed",
            help="A threshold on the score in place of a calibrated one.",
        ),
    ] = None,
    against: Annotated[
        int | None,
        typer.Option(metavar="VERSION", min=1, help="An earlier policy of the gate in place of both."),
    ] = None,
    proposal: Annotated[
        bool, typer.Option("--proposal", help="The threshold that waits for a person in place of all.")
    ] = False,
    since: Annotated[
        str,
        typer.Option(metavar="TIME", help="How far back, like 12h, 30d; at most the newest 100,000 prompts."),
    ] = "30d",
    in_sample: Annotated[
        bool,
        typer.Option(
            "--in-sample",
            help="Judge a threshold by the labels that chose it, too: it then looks better than it is.",
        ),
    ] = False,
    monitor_delta: Annotated[
        float | None,
        typer.Option(
            metavar="D",
            parser=opt.share,
            help="Chance that an interval is wrong; who compares k settings gives a k-th of it. Default: the gate's monitor delta.",
        ),
    ] = None,
    answers: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Answers to list of those that would have been decided otherwise."
        ),
    ] = _SHOWN_ANSWERS,
    explain: opt.ExplainOption = False,
    json: opt.JsonOption = False,
) -> None:
    """Say what another budget, method, scorer or threshold would have shipped of the recorded past, and what that would have cost.

    Without options: what the gate's own settings would have done, calibrated anew. The intervals rest on the audit draw,
    which takes held answers too, each with a chance that is on record. A threshold that is calibrated is judged on later
    prompts than those it was calibrated on. Nothing is changed. Exit status 3 if a decision of the record does not come out
    again by its own policy.
    """
    from streamer import wiring
    from streamer.cli.console import note, print_json
    from streamer.cli.gate import chosen_settings
    from streamer.errors import UsageError
    from streamer.gates.settings import GateSettings, unread
    from streamer.settings.settings import load_settings

    seconds = opt.seconds(since, "--since")
    if not 0 < seconds <= _LONGEST:
        raise UsageError(f"--since must be above 0 and at most 36500d, not {since!r}")
    if monitor_delta is not None and not 0 < monitor_delta < 1:
        raise UsageError(f"--monitor-delta must be between 0 and 1, not {monitor_delta!r}")
    cut = None if threshold is None else _cut(threshold)
    settings = load_settings()
    with wiring.open_store(settings) as store:
        present = store.gates.get(gate).settings
        named: dict[str, object] = {}
        if given:
            chosen: GateSettings = chosen_settings(present.named(), given, settings, store.encoders.dimension)
            named = {name: value for name, value in chosen.named().items() if present.named()[name] != value}
            for name in sorted(unread(chosen) & given.keys()):
                note(
                    f"--{name.replace('_', '-')} has no effect: method {chosen.method}, shape {chosen.shape.name}"
                )
        try:
            change = Change(settings=named, cut=cut, policy=against, proposal=proposal)
        except ValueError as error:
            raise UsageError(str(error)) from None
        now = wiring.now()
        asking = wiring.what_if(settings, store, gate, since=now - timedelta(seconds=seconds), now=now)
        answer = asking.ask(change, in_sample=in_sample, delta=monitor_delta)
    if json:
        print_json(answer_json(answer, change))
    else:
        _show(answer, change, most=answers, explain=explain)
    if answer.differences:
        raise typer.Exit(FOUND)


def _cut(text: str) -> "Cut":
    from streamer.errors import UsageError
    from streamer.gates.rule import Cut

    if text == "open":
        return Cut("open", None)
    if text == "closed":
        return Cut("closed", None)
    try:
        return Cut.at(float(text))
    except ValueError:
        raise UsageError(f"--threshold must be a score like 0.7, or open, or closed, not {text!r}") from None


# -- in words ------------------------------------------------------------------------------------------------


def sentence(answer: "Answer", change: Change) -> str:
    """Say in one sentence what would have come of it, beside what came."""
    asked, was = answer.asked, answer.recorded
    unit = answer.settings.unit
    share, shared = (asked.shipped, was.shipped) if unit == "response" else (asked.served, was.served)
    return (
        f"{answer.gate.gate} {_asked(answer, change)}: {percent(share)} of {SERVED[unit]} served in place of "
        f"{percent(shared)}; error rate among shipped answers {_bounded(asked, 'selective')} (it was "
        f"{_estimate(was, 'selective')}), exposure {_bounded(asked, 'exposure')} (it was {_estimate(was, 'exposure')})."
    )


def _asked(answer: "Answer", change: Change) -> str:
    """Name what was asked about: ``with a budget of 10 %, method selective``."""
    if change.proposal:
        return "with the proposed threshold"
    if change.policy is not None:
        return f"under policy {change.policy}"
    named = [
        f"a budget of {percent(float(str(value)))}"
        if name == "alpha"
        else f"{name.replace('_', ' ')} {value}"
        for name, value in change.settings.items()
        if name not in ("encoder", "embeddings", "dimension")
    ]
    if change.cut is not None:
        text = cut_text(change.cut, answer.reading.rule)
        named.append(text if change.cut.threshold is None else f"the threshold {text}")
    return "with " + ", ".join(named) if named else "with its own settings, calibrated anew"


def _known(one: "Figures") -> bool:
    """Whether a label says anything of what ships: where none does, an estimate would be that all of it is bad."""
    return bool(one.labelled or not one.exposure.overdue)


def _estimate(one: "Figures", risk: str) -> str:
    value = getattr(one, risk).estimate
    return "not known" if value is None or not _known(one) else percent(value)


def _bounded(one: "Figures", risk: str) -> str:
    return interval_text(getattr(one, risk)) if _known(one) else "not known"


def basis_sentence(answer: "Answer") -> str:
    """Say where the threshold comes from, and on which prompts it is judged."""
    basis, threshold = answer.basis, cut_text(answer.reading.cut, answer.reading.rule)
    if basis.source == "given":
        return (
            "The threshold was given. The intervals hold for one that was chosen without these labels; who compares k gives "
            "each a k-th of --monitor-delta."
        )
    if basis.source == "calibrated":
        said = f"The threshold, {threshold}, is calibrated on {counted(basis.prompts, 'prompt', 'prompts')}"
        if basis.in_sample:
            return f"{said}, IN-SAMPLE: they are judged as well, so that it looks better than it is."
        before = "" if basis.before is None else f" decided before {when(basis.before)}"
        said += f"{before} and judged on {'those' if before else 'prompts'} decided since: no label counts for both"
        if basis.moved:
            said += " (too few were decided before the period, so its older half calibrates)"
        return said + "."
    name = "proposal" if basis.source == "proposal" else "policy"
    if basis.before is None:
        return f"The policy's threshold, {threshold}, comes from no calibration."
    if basis.in_sample:
        return (
            f"The threshold of the {name}, {threshold}, is judged IN-SAMPLE: labels up to {when(basis.before)} chose it, so that "
            "it looks better than it is."
        )
    return (
        f"The threshold of the {name}, {threshold}, was chosen by labels of prompts decided before {when(basis.before)}, and is "
        "judged on those decided since."
    )


def _show(answer: "Answer", change: Change, *, most: int, explain: bool) -> None:
    from streamer.cli.console import note, print_table, say, warn

    say(sentence(answer, change))
    say(basis_sentence(answer))
    print_table(["of the same prompts", _in_force(answer), "what if"], _rows(answer))
    for what, found in (
        ("would have got through", answer.more),
        ("would have been held instead", answer.less),
    ):
        _show_changed(what, found, most=most)
    if explain and answer.basis.guarantee:
        say(guarantee_text(answer.basis.guarantee))
    for text in caveats(answer):
        note(text)
    if not answer.differences:
        say(
            "Replayed by the policies that decided, every decision of the period is as recorded, bit for bit."
        )
    for one in answer.differences[:most]:
        say(f"batch {one.batch_id}, policy {one.policy_version}: {one.detail}")
    if answer.differences:
        warn(
            f"{counted(len(answer.differences), 'decision differs', 'decisions differ')} from what its own policy comes to: "
            "`streamer audit verify` says more."
        )


def _in_force(answer: "Answer") -> str:
    first, last = answer.versions
    return f"policy {first}, in force" if first == last else f"policies {first} to {last}, in force"


def _rows(answer: "Answer") -> list[list[object]]:
    both = (answer.recorded, answer.asked)
    rows: list[list[object]] = [
        ["since", *(when(answer.since),) * 2],
        ["prompts", *(str(one.prompts) for one in both)],
        ["share of prompts served", *(percent(one.served) for one in both)],
    ]
    if answer.settings.unit == "response":
        rows.append(["share of responses shipped", *(percent(one.shipped) for one in both)])
    for risk, name in (("selective", "error rate of shipped"), ("exposure", "exposure")):
        promised = f", budget {percent(answer.budget)}" if answer.promised == risk else ""
        rows.append([f"{name}{promised}", *(_bounded(one, risk) for one in both)])
    rows.append(["labelled shipped answers", *(str(one.labelled) for one in both)])
    if any(one.exposure.overdue for one in both):
        rows.append(["drawn, shipped, not known how bad", *(str(one.exposure.overdue) for one in both)])
    return rows


def _show_changed(what: str, found: "Changed", *, most: int) -> None:
    from streamer.cli.console import print_table, say

    if not found.answers:
        say(f"No answer {what}.")
        return
    rate = interval_text(found.selective)
    say(f"{counted(len(found.answers), 'answer', 'answers')} {what}; error rate among them {rate}.")
    shown = found.answers[:most]
    if shown:
        print_table(
            ["batch", "response", "decided", "score", "severity"],
            [[one.batch_id, one.response_id, when(one.decided_at), one.score, one.severity] for one in shown],
        )
    if len(shown) < len(found.answers):
        say(f"... and {len(found.answers) - len(shown)} more: --answers N, or --json.")


def caveats(answer: "Answer") -> list[str]:
    """Say what the figures do not say."""
    from streamer.recalibration.age_cut import span

    said = [
        f"Intervals hold with {percent(1 - answer.delta)}, each column for itself, at all times at once. A threshold for all of "
        "the period is not what recalibration would have done day by day."
    ]
    if answer.judged < answer.prompts and answer.age is not None:
        said.append(
            f"Intervals are over the {answer.judged} prompts older than {span(answer.age.seconds)}: labels of younger ones may "
            "still come."
        )
    unknown = max(answer.asked.exposure.overdue, answer.recorded.exposure.overdue)
    if unknown:
        said.append(
            "What was drawn and would ship, and nobody knows how bad it is, counts 0 in the lower bound, 1 in the upper one and 1 in the "
            "estimate."
        )
    if answer.basis.missing:
        said.append(
            f"{answer.basis.missing} of {answer.basis.drawn} drawn responses had no label that calibration could use, and "
            "counted as severity 1."
        )
    if answer.closed:
        said.append(f"{answer.closed} of these prompts were decided while the gate was closed.")
    if answer.shadow:
        said.append(
            f"{counted(answer.shadow, 'prompt was', 'prompts were')} decided in shadow mode: in force means what the gate said, and "
            "consumers acted as if there were none."
        )
    if answer.unscored:
        said.append(
            f"{counted(answer.unscored, 'prompt was', 'prompts were')} held without scores: no policy ships these."
        )
    if answer.unaudited:
        said.append(
            f"Of {counted(answer.unaudited, 'prompt', 'prompts')} nothing is known, for the audit could not draw them."
        )
    said += [f"{count} prompts of the period are left out: {why}." for why, count in answer.left_out.items()]
    if answer.settings.max_attempts > 1:
        said.append(
            f"Of first attempts alone, at a budget of {percent(answer.budget)}: what a later attempt would have been depends on "
            "what the first one shipped."
        )
    return said


# -- as JSON -------------------------------------------------------------------------------------------------


def answer_json(answer: "Answer", change: Change) -> dict[str, Any]:
    """Return an answer as JSON values; a `lambda` is null unless its state is cut."""
    from streamer.gates.rule import rule_to_json

    cut = answer.reading.cut
    return {
        "gate": answer.gate.gate,
        "asked": {
            "settings": dict(change.settings),
            "threshold": None
            if change.cut is None
            else {"state": change.cut.state, "lambda": change.cut.threshold},
            "policy": change.policy,
            "proposal": change.proposal,
        },
        "threshold": {"state": cut.state, "lambda": cut.threshold},
        "rule": rule_to_json(answer.reading.rule) | {"curve": None},
        "basis": asdict(answer.basis),
        "since": answer.since,
        "until": answer.until,
        "prompts": answer.prompts,
        "judged": answer.judged,
        "age_cut": None if answer.age is None else answer.age.to_json(),
        "unscored": answer.unscored,
        "while_closed": answer.closed,
        "in_shadow": answer.shadow,
        "unaudited": answer.unaudited,
        "left_out": dict(answer.left_out),
        "policies": list(answer.versions),
        "budget": answer.budget,
        "promised": answer.promised,
        "delta": answer.delta,
        "in_force": asdict(answer.recorded),
        "what_if": asdict(answer.asked),
        "got_through": asdict(answer.more),
        "held_instead": asdict(answer.less),
        "replay": {
            "as_recorded": not answer.differences,
            "differences": [asdict(one) for one in answer.differences],
        },
    }
