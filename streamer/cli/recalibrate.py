"""`streamer recalibrate`: one calibration now; the gate's own method decides, the others are diagnostics."""

from typing import Any

import typer

from streamer import wiring
from streamer.calibration import Threshold
from streamer.calibration.registry import every
from streamer.calibration.specification import Sample
from streamer.cli import FAILED
from streamer.cli import options as opt
from streamer.cli.broker import announce_now
from streamer.cli.console import complain, counted, note, picked, print_json, print_table, say, warn
from streamer.cli.policies import NO_GATE, promise_text, verdict_json
from streamer.errors import UsageError
from streamer.gates.policy import Policy
from streamer.gates.rule import Cut, Indicator, rule_to_json
from streamer.recalibration.run import CalibrationRun, Recalibration
from streamer.recalibration.skill import separation
from streamer.wording.numbers import items, percent
from streamer.wording.policies import cut_text, own_cuts, threshold_text, way_into_force
from streamer.wording.verdicts import headline


def recalibrate(
    gate: str | None = opt.argument("GATE", "Name of the gate; every gate when left out.", None),
    dry_run: bool = opt.flag("--dry-run", "Only show the result; nothing is recorded."),
    propose: bool = opt.flag(
        "--propose/--activate",
        "Only record the result, for `streamer threshold activate`, or put it in force at once.",
    ),
    reason: opt.ReasonOption = "recalibrated",
    by: opt.ByOption = "",
    explain: opt.ExplainOption = False,
    json: opt.JsonOption = False,
) -> None:
    """Calibrate from the audit sample and put the new threshold in force, or propose it.

    Only the gate's own method decides; it was chosen before labels were read. The other calibrators are shown
    beside it as diagnostics: choosing among them now would void the guarantee.
    """
    settings = wiring.load_settings()
    if gate is not None:
        names = [gate]
    else:
        with wiring.open_store(settings) as store:
            names = [revision.gate for revision in store.gates.list()]
        if not names:
            note(NO_GATE)
    failed = changed = False
    for name in names:
        with wiring.open_store(
            settings
        ) as store:  # before there is another policy, under which nothing was decided
            risk = store.monitoring.judged(name, now=wiring.now())
        try:
            done = wiring.recalibrate(settings, name, by=by, dry_run=dry_run, propose=propose, reason=reason)
        except UsageError as error:
            if gate is not None:
                raise
            complain(str(error))
            failed = True
            continue
        changed |= done.after is not None
        if json:
            print_json(report_json(done) | verdict_json(risk))
        else:
            print_report(done, headline(risk), explain=explain)
    if changed:
        announce_now(settings)
    if failed:
        raise typer.Exit(FAILED)


def print_report(done: "Recalibration", headline: str | None, *, explain: bool) -> None:
    """Print a run: its sample, its candidates, and what it changed."""
    from rich.text import Text

    run = done.run
    if headline is not None:
        say(headline)
    name, settings = run.gate.gate, run.gate.settings
    attempts = f" / {settings.max_attempts} attempts" if settings.max_attempts > 1 else ""
    say(
        f"Gate {name}: {counted(len(run.groups), 'group (prompt)', 'groups (prompts)')}, "
        f"{run.labelled} of {counted(run.drawn, *items(settings.unit, plain='drawn response'))} labelled, "
        f"budget {percent(settings.alpha)}{attempts}, unit {settings.unit}"
    )
    if run.age_cut is not None and (waiting := run.age_cut.said(run.missing, name)) is not None:
        say(f"{waiting}.")
    if (missing := run.missing_labels) is not None and missing.not_at_random:
        warn(f"{missing.said[:1].upper()}{missing.said[1:]}.")
    rows: list[list[object]] = []
    for one in run.candidates:
        style = "bold green" if one.decides else "dim"
        role = "decides" if one.decides else _role(one.name)
        cells = [one.name, cut_text(Cut.at(one.threshold.value), one.rule), role]
        rows.append([Text(cell, style=style) for cell in cells])
    print_table(["method", "threshold", ""], rows)
    found = cut_text(Cut.at(run.decided.value), run.rule)
    was = threshold_text(done.before)
    if done.proposed is not None:
        say(f"Is {was} (version {done.before.version}); run {done.proposed} proposes {found}.")
        note(f"Put it in force: {way_into_force(name, done.before.settings)}")
    elif done.after is None:
        say(f"Would change from {was} to {found}; nothing was recorded.")
    else:
        say(f"Was {was} (version {done.before.version}); is {found} (version {done.after.version}).")
    say(promise_text(run.guarantee, explain=explain))
    if run.decided.state == "closed" and not own_cuts(run.rule):
        say(why_closed(run))
        return
    if reason := why_little(run):
        warn(reason)
    if (skill := separation(run.reading, settings, run.sample)) is not None and not skill.shown:
        warn(f"{skill.said[:1].upper()}{skill.said[1:]}.")
    if done.after is not None and settings.mode == "shadow":
        note(f"It is in shadow mode, where consumers do not enforce: streamer gate set {name} --mode enforce")


def _role(name: str) -> str:
    """What a candidate that does not decide is: one that promises nothing at all says so."""
    return "diagnostic, asymptotic" if every()[name].family == "no promise" else "diagnostic"


def why_closed(run: "CalibrationRun") -> str:
    """Say what would open a gate that calibration has found no threshold for."""
    settings = run.gate.settings
    least = settings.calibrator.groups_needed(run.effective_alpha)
    if len(run.groups) < least:
        return (
            f"It stays closed: a budget of {percent(run.effective_alpha)} by method {settings.method} needs at least {least} "
            f"labelled groups, and there are {len(run.groups)}."
        )
    sample = Sample(groups=run.labelled_groups, alpha=run.effective_alpha, seed=run.seed)
    reason = settings.calibrator.why_closed(sample)
    if run.missing and (reason is None or settings.calibrator.family != "on average"):
        return f"It stays closed: {_missing(run)}"
    if reason is None:
        reason = f"even the {items(settings.unit, plain='response')[1]} with the highest scores do more harm than the budget allows"
    return f"It stays closed: {reason}."


def why_little(run: "CalibrationRun") -> str | None:
    """Say what keeps a gate stricter than it need be, or that it is practically closed; None when nothing does."""
    parts = []
    if (
        isinstance(run.rule, Indicator)
        and run.decided.state == "cut"
        and not any(item.score > run.decided.value for group in run.groups for item in group.items)
    ):
        parts.append(
            "Nothing in the calibration sample scores above this threshold: hardly anything will ship."
        )
    if run.missing:
        parts.append(_missing(run))
    return " ".join(parts) or None


def _missing(run: "CalibrationRun") -> str:
    many = items(run.gate.settings.unit, plain="response")[1]
    return (
        f"{run.missing} of {run.drawn} drawn {many} have no label and count as the worst; "
        f"`streamer label queue --gate {run.gate.gate}` lists them."
    )


def report_json(done: "Recalibration") -> dict[str, Any]:
    """Return a run as JSON values; a `lambda` is null unless its state is cut."""

    def threshold(found: "Threshold") -> dict[str, object]:
        return {"state": found.state, "lambda": found.value if found.state == "cut" else None}

    run = done.run
    return {
        "gate": run.gate.gate,
        "dry_run": done.after is None and done.proposed is None,
        "proposed": done.proposed,
        **picked(run.gate.settings, "method alpha unit"),
        "groups": len(run.groups),
        **picked(run, "effective_alpha drawn labelled missing seed older_than guarantee"),
        "age_cut": None if run.age_cut is None else run.age_cut.to_json(),
        "suffix": None if run.suffix is None else run.suffix.to_json(),
        "history": run.history.to_json(),
        "before": _version(done.before),
        "decided": threshold(run.decided),
        "rule": rule_to_json(run.rule) | {"curve": None},
        "after": None if done.after is None else _version(done.after),
        "candidates": [
            {"method": one.name, "decides": one.decides, **threshold(one.threshold)} for one in run.candidates
        ],
    }


def _version(policy: "Policy") -> dict[str, object]:
    return {"version": policy.version, "state": policy.state, "lambda": policy.threshold}
