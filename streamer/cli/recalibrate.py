"""`streamer recalibrate`: one calibration now; the gate's own method decides, the others stand beside it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer.cli import FAILED
from streamer.cli import options as opt
from streamer.cli.policies import guarantee_text, threshold_text

if TYPE_CHECKING:
    from streamer.calibration import Threshold
    from streamer.policy import Policy
    from streamer.recalibration.run import CalibrationRun, Recalibration


def recalibrate(
    gate: Annotated[
        str | None, typer.Argument(metavar="[GATE]", help="Name of the gate; every gate when left out.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be decided; nothing is recorded.")
    ] = False,
    by: opt.ByOption = None,
    json: opt.JsonOption = False,
) -> None:
    """Calibrate from the audit sample and put the new threshold in force.

    Only the gate's own method decides; it was chosen before labels were read. The other calibrators are shown
    beside it as diagnostics: choosing among them now would void the guarantee.
    """
    from streamer import wiring
    from streamer.cli.console import complain, note, print_json
    from streamer.cli.outbox import announce_now
    from streamer.errors import UsageError
    from streamer.settings import load_settings

    actor = opt.who(by)
    settings = load_settings()
    if gate is not None:
        names = [gate]
    else:
        with wiring.open_store(settings) as store:
            names = [revision.gate for revision in store.gates.list()]
        if not names:
            note("There is no gate yet; make one with `streamer gate create NAME`.")
    failed = changed = False
    for name in names:
        try:
            done = wiring.recalibrate(settings, name, by=actor, dry_run=dry_run)
        except UsageError as error:
            if gate is not None:
                raise
            complain(str(error))
            failed = True
            continue
        changed |= done.after is not None
        if json:
            print_json(report_json(done))
        else:
            _print_report(done)
    if changed:
        announce_now(settings)
    if failed:
        raise typer.Exit(FAILED)


def _print_report(done: "Recalibration") -> None:
    from rich.text import Text

    from streamer.cli.console import counted, note, print_table, say, warn

    run = done.run
    name, settings = run.gate.gate, run.gate.settings
    attempts = f" / {settings.max_attempts} attempts" if settings.max_attempts > 1 else ""
    say(
        f"Gate {name}: {counted(len(run.groups), 'group (prompt)', 'groups (prompts)')}, "
        f"{run.labelled} of {counted(run.drawn, 'drawn response', 'drawn responses')} labelled, "
        f"budget {settings.alpha:g}{attempts}, unit {settings.unit}"
    )
    rows: list[list[object]] = []
    for one in run.candidates:
        decides = one.method == settings.method
        style = "bold green" if decides else "dim"
        cells = [one.method, found_text(one.threshold), "decides" if decides else "diagnostic"]
        rows.append([Text(cell, style=style) for cell in cells])
    print_table(["method", "threshold", ""], rows)
    found = found_text(run.decided)
    was = threshold_text(done.before)
    if done.after is None:
        say(f"Would change from {was} to {found}; nothing was recorded.")
    else:
        say(f"Was {was} (version {done.before.version}); is {found} (version {done.after.version}).")
    say(guarantee_text(run.guarantee))
    if run.decided.state == "closed":
        say(why_closed(run))
        return
    if reason := why_little(run):
        warn(reason)
    if done.after is not None and settings.mode == "shadow":
        note(
            f"It is in shadow, where consumers are told not to enforce: streamer gate set {name} --mode enforce"
        )


def why_closed(run: "CalibrationRun") -> str:
    """Say what would open a gate that calibration has found no threshold for."""
    from streamer.calibration import groups_needed

    least = groups_needed(run.effective_alpha)
    if len(run.groups) < least:
        return (
            f"It stays closed: a budget of {run.effective_alpha:g} needs at least {least} labelled groups, and there "
            f"are {len(run.groups)}."
        )
    if run.labelled < run.drawn:
        return (
            f"It stays closed: {run.drawn - run.labelled} drawn responses have no label and count as the worst; "
            f"`streamer label queue --gate {run.gate.gate}` lists them."
        )
    return "It stays closed: even the highest scores carry more severity than the budget allows."


def why_little(run: "CalibrationRun") -> str | None:
    """Say what keeps a gate stricter than it need be, or that it is as good as closed; None when nothing does."""
    parts = []
    if run.decided.state == "cut" and not any(
        item.score > run.decided.value for group in run.groups for item in group.items
    ):
        parts.append(
            "Nothing of the calibration sample scores above this threshold: hardly anything will ship."
        )
    missing = run.drawn - run.labelled
    if missing:
        parts.append(
            f"{missing} of {run.drawn} drawn responses have no label and count as the worst; "
            f"`streamer label queue --gate {run.gate.gate}` lists them."
        )
    return " ".join(parts) or None


def found_text(threshold: "Threshold") -> str:
    """Write a calibrated threshold: ``closed``, ``open``, or ``Q > 0.83``."""
    return f"Q > {threshold.value:.6g}" if threshold.state == "cut" else threshold.state


def report_json(done: "Recalibration") -> dict[str, Any]:
    """Return a run as JSON values; a `lambda` is null unless its state is cut."""

    def threshold(found: "Threshold") -> dict[str, object]:
        return {"state": found.state, "lambda": found.value if found.state == "cut" else None}

    run = done.run
    settings = run.gate.settings
    return {
        "gate": run.gate.gate,
        "dry_run": done.after is None,
        "method": settings.method,
        "alpha": settings.alpha,
        "effective_alpha": run.effective_alpha,
        "unit": settings.unit,
        "groups": len(run.groups),
        "drawn": run.drawn,
        "labelled": run.labelled,
        "missing": run.drawn - run.labelled,
        "seed": run.seed,
        "older_than": run.older_than,
        "before": _version(done.before),
        "decided": threshold(run.decided),
        "after": None if done.after is None else _version(done.after),
        "candidates": [
            {"method": one.method, "decides": one.method == settings.method, **threshold(one.threshold)}
            for one in run.candidates
        ],
        "guarantee": run.guarantee,
    }


def _version(policy: "Policy") -> dict[str, object]:
    return {"version": policy.version, "state": policy.state, "lambda": policy.threshold}
