"""`streamer what-if`: what another policy would have made of the recorded past, beside what was in force."""

from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from streamer import wiring
from streamer.cli import FOUND
from streamer.cli import options as opt
from streamer.cli.console import note, picked, print_json, print_table, say, warn
from streamer.cli.evaluate_claims import print_claims
from streamer.cli.gate import chosen_settings
from streamer.cli.gate_options import with_settings
from streamer.cli.options import gate_names
from streamer.cli.policies import cut_json
from streamer.cli.try_file import print_budgets, print_through, report_json
from streamer.errors import UsageError
from streamer.frames.results import Report
from streamer.gates.rule import Cut, rule_to_json
from streamer.gates.setting_changes import unread
from streamer.gates.settings import PARAMETERS, GateSettings
from streamer.settings.settings import Settings
from streamer.whatif import Changed, WhatIfAnswer
from streamer.whatif.answers import Change
from streamer.whatif.asking import SETTINGS
from streamer.whatif.words import among, answer_rows, basis_sentence, caveats, columns, sentence
from streamer.wording.numbers import counted, items, when
from streamer.wording.policies import guarantee_text

if TYPE_CHECKING:
    from streamer.store import Store

_LONGEST = 36_500 * 86_400.0


@dataclass(frozen=True, slots=True)
class AskedOptions:
    """In place of settings."""

    threshold: str | None = opt.option(
        "Q|open|closed", "A threshold on the score instead of a calibrated one."
    )
    against: int | None = opt.option("VERSION", "An earlier policy of the gate instead.", min=1)
    proposal: bool = opt.flag("--proposal", "The threshold that waits for a person instead.")
    candidate: bool = opt.flag(
        "--candidate", "The gate's candidate policy instead; see `streamer candidate`."
    )

    def change(self) -> Change | None:
        """Return what is asked about; None: settings are. Raises `UsageError`."""
        cut = None if self.threshold is None else given_cut(self.threshold)
        if cut is None and self.against is None and not (self.proposal or self.candidate):
            return None
        try:
            return Change(cut=cut, policy=self.against, proposal=self.proposal, candidate=self.candidate)
        except ValueError as error:
            raise UsageError(str(error)) from None


@partial(with_settings, only={*SETTINGS, *PARAMETERS})
@opt.in_groups
def what_if(
    gate: str = opt.argument("GATE", "Name of a gate.", autocompletion=gate_names),
    *,
    given: dict[str, Any],
    asked: AskedOptions,
    since: opt.SinceOption = "30d",
    monitor_delta: float | None = opt.option(
        "D",
        "Chance that an interval is wrong; to compare k settings, give each a k-th of it. Default: the gate's monitor delta.",
        parser=opt.share,
    ),
    answers: int = opt.option(
        "N", "How many of the answers that would have been decided otherwise to list.", 10, min=0
    ),
    explain: opt.ExplainOption = False,
    json: opt.JsonOption = False,
) -> None:
    """Say what another budget, method, scorer or threshold would have shipped of the recorded past, and what that would have cost.

    Without options: what the gate's own settings would do, calibrated anew. Settings are tried as `streamer try` tries a file: half of
    the drawn prompts calibrates and the other is judged, 50 times. A threshold, a policy or a candidate is judged on prompts whose
    labels had no part in it; these intervals rest on the audit draw. Nothing is changed. Exit status 3 if a recorded decision
    cannot be derived again from its own policy.
    """
    now = wiring.now()
    since_ = now - period(since)
    if monitor_delta is not None and not 0 < monitor_delta < 1:
        raise UsageError(f"--monitor-delta must be between 0 and 1, not {monitor_delta!r}")
    change = asked.change()
    settings = wiring.load_settings()
    if "/" in gate or gate == "-" or Path(gate).is_file():
        raise UsageError(f"what-if asks about a gate, and {gate} is a file: streamer try {gate}")
    with wiring.open_store(settings) as store:
        store.gates.get(gate)
        for text in store.evidence.given_out(since_):
            note(text)
        if doubt := store.alerts.doubt(gate):
            warn(doubt)
        if change is not None:
            if given:
                raise UsageError(
                    "a threshold, a policy, a proposal and a candidate are asked about without other settings"
                )
            answer = wiring.what_if(store, gate, since=since_, now=now).ask(change, delta=monitor_delta)
        elif (chosen := _chosen(store, gate, given, settings)).unit == "claim":
            results, notes = wiring.tried_gate_of_claims(store, gate, chosen, since=since_, now=now)
            print_claims(results, json=json)
            for text in notes:
                note(text)
            return
        else:
            found, own, notes = wiring.tried_gate(settings, store, gate, chosen, since=since_, now=now)
    if change is None:
        if json:
            print_json(report_json(found) | {"gate": gate, "present": asdict(own.at), "notes": notes})
        else:
            _print_tried(found, own, notes, most=answers)
            if explain:
                say(guarantee_text(found.threshold.guarantee))
        return
    if json:
        print_json(answer_json(answer, change))
    else:
        show_answer(answer, change, most=answers, explain=explain)
    if answer.differences:
        raise typer.Exit(FOUND)


def _chosen(store: "Store", gate: str, given: dict[str, Any], settings: Settings) -> GateSettings:
    """Return the settings that are asked about, and say which of those that were given have no effect."""
    present = store.gates.get(gate).settings.named()
    chosen = chosen_settings(present, given, settings, store.encoders.dimension)
    for name in sorted(unread(chosen) & given.keys()):
        note(f"--{name.replace('_', '-')} has no effect: method {chosen.method}, shape {chosen.shape.name}")
    return chosen


def _print_tried(found: Report, own: Report, notes: list[str], *, most: int) -> None:
    """Print what other settings would ship of the recorded prompts, beside what the gate's own would with today's labels."""
    say(found.worth)
    say(found.basis)
    same = found.at.alpha == own.at.alpha
    print_budgets([found.at], f"What is asked about, of {found.prompts} drawn prompts")
    if not same or found.at != own.at:
        print_budgets(
            [own.at], f"The gate's own settings with today's labels, of {own.prompts} drawn prompts"
        )
    print_through(found, most, "with --answers N")
    for text in notes:
        note(text)


def given_cut(text: str) -> Cut:
    """Read a threshold as it is given on the command line. Raises `UsageError`."""
    if text == "open":
        return Cut("open", None)
    if text == "closed":
        return Cut("closed", None)
    try:
        return Cut("cut", float(text))
    except ValueError:
        raise UsageError(f"--threshold must be a score like 0.7, or open, or closed, not {text!r}") from None


def show_answer(answer: WhatIfAnswer, change: Change, *, most: int, explain: bool) -> None:
    """Print an answer for people, with at most `most` of the answers that would have been decided otherwise."""
    say(sentence(answer, change))
    say(basis_sentence(answer))
    print_table(["of the same prompts", *columns(answer)], answer_rows(answer))
    for what, found in (
        ("would have got through", answer.more),
        ("would have been held instead", answer.less),
    ):
        _show_changed(answer, what, found, most=most)
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
            f"{counted(len(answer.differences), 'decision differs', 'decisions differ')} from what its own policy gives: "
            "`streamer audit verify` says more."
        )


def _show_changed(answer: WhatIfAnswer, what: str, found: Changed, *, most: int) -> None:
    named = items(answer.settings.unit)
    if not found.answers:
        say(f"No {named[0]} {what}.")
        return
    say(f"{counted(len(found.answers), *named)} {what}; {among(answer, found)}.")
    shown = found.answers[:most]
    if shown:
        print_table(
            ["batch", "claim" if named[0] == "claim" else "response", "decided", "score", "severity"],
            [[one.batch_id, one.response_id, when(one.decided_at), one.score, one.severity] for one in shown],
        )
    if shown and len(shown) < len(found.answers):
        say(f"... and {len(found.answers) - len(shown)} more: --answers N, or --json.")


def period(since: str) -> timedelta:
    """Read `--since`. Raises `UsageError` for none that is above 0 and at most a hundred years."""
    seconds = opt.seconds(since, "--since")
    if not 0 < seconds <= _LONGEST:
        raise UsageError(f"--since must be above 0 and at most 36500d, not {since!r}")
    return timedelta(seconds=seconds)


def answer_json(answer: WhatIfAnswer, change: Change) -> dict[str, Any]:
    """Return an answer as JSON values; a `lambda` is null unless its state is cut."""
    return {
        "gate": answer.gate.gate,
        "asked": {
            "threshold": None if change.cut is None else cut_json(change.cut),
            **picked(change, "policy proposal candidate"),
        },
        "threshold": cut_json(answer.reading.cut),
        "rule": rule_to_json(answer.reading.rule) | {"curve": None},
        "basis": asdict(answer.basis),
        **picked(answer, "since until prompts judged unscored unaudited budget promised delta"),
        "age_cut": None if answer.age is None else answer.age.to_json(),
        "while_closed": answer.closed,
        "in_shadow": answer.shadow,
        "left_out": dict(answer.left_out),
        "notes": caveats(answer),
        "policies": list(answer.versions),
        "in_force": asdict(answer.recorded),
        "what_if": asdict(answer.asked),
        "got_through": asdict(answer.more),
        "held_instead": asdict(answer.less),
        "replay": {
            "as_recorded": not answer.differences,
            "differences": [asdict(one) for one in answer.differences],
        },
    }
