"""`streamer candidate`: another policy decided beside the one in force, on the same batches, and never acted on."""

from functools import partial
from typing import Any

import typer

from streamer import wiring
from streamer.cli import FOUND
from streamer.cli import options as opt
from streamer.cli.broker import announce_now
from streamer.cli.console import note, picked, print_fields, print_json, say, tell
from streamer.cli.gate import chosen_settings
from streamer.cli.gate_options import with_settings
from streamer.cli.policies import cut_json
from streamer.cli.recalibrate import print_report, report_json
from streamer.cli.what_if import answer_json, given_cut, period, show_answer
from streamer.gates.policy import CandidatePolicy
from streamer.gates.settings import PARAMETERS, GateSettings
from streamer.whatif import Change
from streamer.whatif.asking import SETTINGS, NothingToJudge
from streamer.wording.numbers import counted, when
from streamer.wording.policies import cut_text

app = typer.Typer(no_args_is_help=True)


@app.command("set")
@partial(with_settings, only={"signals", *SETTINGS, *PARAMETERS})
def set_(
    gate: opt.GateArgument,
    *,
    given: dict[str, Any],
    threshold: str | None = opt.option(
        "Q|open|closed",
        "Its threshold. Default: calibrated on the labels that there are for its scores; without any it scores alone.",
    ),
    reason: opt.ReasonOption = "try it beside",
    by: opt.ByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """Decide every batch of a gate by other settings too, and record it; nothing is done by it.

    Workers take it up within seconds. It has the gate's settings but for those that are given, and takes the place of an earlier
    candidate, whose scores stay on record. Its scores are made beside the decision, which waits for them no longer than
    `worker.candidate_wait_seconds`: what fails or is late is recorded as no score.
    """
    settings = wiring.load_settings()
    cut = None if threshold is None else given_cut(threshold)
    with wiring.open_store(settings) as store:
        present = store.gates.get(gate).settings
        wanted = chosen_settings(present.named(), given, settings, store.encoders.dimension)
        made = wiring.set_candidate(store, gate, wanted, cut=cut, by=by, reason=reason)
    if json:
        print_json(_candidate_json(made))
        return
    say(f"Gate {gate} has a candidate policy, decided beside it from now on: {_about(made, present)}.")
    if made.cut is None:
        note(
            f"It has no threshold yet, for there are too few labels of answers that it scored. It scores, and `streamer candidate show {gate}` "
            "says what it would have done once there are."
        )
    if wanted.encoder != present.encoder and wanted.embeds:
        note(
            f"Workers that run {wanted.encoder} score by it: set STREAMER_ENCODER_CANDIDATE where the gate's encoder is another. "
            "Elsewhere the record says no_encoder."
        )


@app.command()
def show(
    gate: opt.GateArgument,
    since: opt.SinceOption = "30d",
    answers: int = opt.option(
        "N", "Answers to list of those that would have been decided otherwise.", 10, min=0
    ),
    explain: opt.ExplainOption = False,
    json: opt.JsonOption = False,
) -> None:
    """Compare a gate's candidate policy with the one in force, on the batches that both decided.

    A candidate without a threshold is calibrated on the older half of the labels and judged on the rest; a threshold that all of
    them give is proposed. Exit status 3 if a decision that is on record, of either, does not come out again.
    """
    back = period(since)
    settings, change, now = wiring.load_settings(), Change(candidate=True), wiring.now()
    answer, why_not = None, ""
    with wiring.open_store(settings) as store:
        present = store.gates.get(gate).settings
        candidate, tried = store.candidates.present(gate)
        counts = store.candidates.counts(candidate.number)
        asking = wiring.what_if(store, gate, since=now - back, now=now)
        try:
            answer = asking.ask(change)
        except NothingToJudge as error:
            why_not = str(error)
        proposed = None
        if candidate.cut is None:
            run = asking.calibrate(tried)
            proposed = None if run is None else run.reading
    scored = counts.pop(None, 0)
    if json:
        print_json(
            _candidate_json(candidate)
            | {
                "scored": scored,
                "without_scores": counts,
                "proposed": None if proposed is None else cut_json(proposed.cut),
                "comparison": None if answer is None else answer_json(answer, change),
                "why_no_comparison": why_not or None,
            }
        )
    else:
        print_fields(
            {
                "candidate": _about(candidate, present),
                "set": f"by {candidate.by}, {when(candidate.at)}: {candidate.reason}",
                "decided beside": ", ".join(
                    [f"{scored} with scores", *(f"{count} without ({why})" for why, count in counts.items())]
                ),
            }
        )
        if answer is None:
            say(f"Nothing to compare yet: {why_not}.")
        else:
            show_answer(answer, change, most=answers, explain=explain)
        if proposed is not None and not proposed.ships_nothing:
            say(
                f"On all labels that there are its threshold would be {cut_text(proposed.cut, proposed.rule)}: "
                f"`streamer candidate calibrate {gate}` takes it."
            )
        note(
            "Nothing of this is done: actions, thresholds and the risk in service are those of the policy in force. What a candidate "
            "made of batches is in no log: it is no evidence."
        )
    if answer is not None and answer.differences:
        raise typer.Exit(FOUND)


@app.command()
def calibrate(
    gate: opt.GateArgument,
    reason: opt.ReasonOption = "calibrated on the labels that there are",
    by: opt.ByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """Give a gate's candidate policy the threshold that all labels of answers it scored give by now, and judge it on what comes."""
    settings = wiring.load_settings()
    with wiring.open_store(settings) as store:
        present, wanted = store.gates.get(gate).settings, store.candidates.present(gate)[1]
        made = wiring.set_candidate(store, gate, wanted, cut=None, by=by, reason=reason, must_ship=True)
    said = f"The candidate policy of gate {gate} decides from now on: {_about(made, present)}."
    tell(json, _candidate_json(made), said)


@app.command()
def adopt(
    gate: opt.GateArgument,
    reason: opt.ReasonOption = "the candidate policy",
    by: opt.ByOption = "",
    explain: opt.ExplainOption = False,
    json: opt.JsonOption = False,
) -> None:
    """Put a gate's candidate policy in force: change the gate's settings to its own, and calibrate.

    Its scores of the audit sample are kept and sealed, so that the labels that there are calibrate it. The threshold is what that
    calibration finds, never one that somebody gave. The gate is closed for the moment between the two; one that demands two people
    stays closed until the second one approves. The candidate is stopped.
    """
    settings = wiring.load_settings()
    done, left_out = wiring.adopt_candidate(settings, gate, by=by, reason=reason)
    if json:
        print_json(report_json(done) | {"left_out": left_out})
    else:
        print_report(done, None, explain=explain)
        if left_out:
            reasons = ", ".join(f"{why} {count}" for why, count in sorted(left_out.items()))
            say(
                f"Left out: {counted(left_out.total(), 'drawn batch', 'drawn batches')} of which the candidate has no scores "
                f"({reasons}). If those are worse, the promise is not theirs."
            )
        note(
            "What this calibration promises holds if its labels played no part in the choice; if they did, look again once others have come."
        )
    announce_now(settings)


@app.command()
def stop(
    gate: opt.GateArgument,
    reason: opt.ReasonOption = "it has been tried",
    by: opt.ByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """End a gate's candidate policy. What it made of batches stays on record."""
    with wiring.record() as store:
        stopped = store.candidates.stop(gate, by=by, reason=reason)
        decisions = sum(store.candidates.counts(stopped.number).values())
    beside = counted(decisions, "decision", "decisions")
    said = f"Gate {gate} has no candidate policy any more. It was beside {beside}."
    tell(json, {"gate": gate, "stopped": stopped.number, "decisions": decisions}, said)


def _about(candidate: "CandidatePolicy", present: "GateSettings") -> str:
    """Say how a candidate differs from its gate, and where it cuts: ``scorer choice, Q > 0.83``."""
    if candidate.settings is None:
        return "none"
    before, named = present.named(), candidate.settings.named()
    said = [
        f"{name.replace('_', ' ')} {named[name]}"
        for name in (*SETTINGS, *PARAMETERS)
        if named[name] != before[name]
    ]
    if named["signals"] != before["signals"] and candidate.settings.signal_list is not None:
        said.append(f"{len(candidate.settings.signal_list.columns)} columns of signals")
    said.append("no threshold" if candidate.cut is None else cut_text(candidate.cut, candidate.rule))
    return ", ".join(said)


def _candidate_json(candidate: "CandidatePolicy") -> dict[str, Any]:
    return {
        **picked(candidate, "gate guarantee by reason at"),
        "candidate": candidate.number,
        "settings": None if candidate.settings is None else candidate.settings.flat(),
        "threshold": None if candidate.cut is None else cut_json(candidate.cut),
    }
