"""`streamer alert`: list alerts, see an incident with what to do, say who looks after it, and acknowledge it."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer import wiring
from streamer.cli import options as opt
from streamer.cli.console import picked, print_fields, print_json, print_list, say, tell
from streamer.errors import UsageError
from streamer.wording.numbers import when
from streamer.wording.verdicts import no_alerts

if TYPE_CHECKING:
    from streamer.store.risk.alerts import RaisedAlert

_MOST = 200

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_(
    gate: opt.OnlyGate = None,
    open_: bool = opt.flag("--open", "Only alerts that nobody has acknowledged."),
    limit: int = opt.option("N", "At most this many.", 20, min=1),
    json: opt.JsonOption = False,
) -> None:
    """List alerts, the newest first; with `--open` what pages before the rest."""
    with wiring.record(gate) as store:
        found = store.alerts.list(gate, limit=limit, unacknowledged=open_)
    print_list(
        json,
        found,
        ["id", "raised", "gate", "level", "kind", "what", "acknowledged"],
        lambda raised: [
            raised.alert.alert_id[:8], when(raised.alert.raised_at), raised.alert.gate, raised.alert.level,
            raised.alert.kind, raised.alert.message,
            "" if raised.acknowledged_by is None else f"{raised.acknowledged_by}: {raised.acknowledged_reason}",
        ],
        none=no_alerts(open_),
        to_json=alert_json,
    )  # fmt: skip


_IncidentArgument = Annotated[
    str,
    opt.argument(
        "ID|GATE", "An alert's id, or its beginning; or a gate: its worst open incident, else its newest."
    ),
]


@app.command()
def show(incident: _IncidentArgument, json: opt.JsonOption = False) -> None:
    """Show an incident: what happened and when, the labels that told, and what to do now."""
    from streamer.store.risk.incident_story import story_of

    with wiring.record() as store:
        found = store.alerts.incident(incident)
        story = story_of(store, found, now=wiring.now())
    if json:
        print_json(
            {
                "incident": found.first.alert.alert_id,
                "assignee": found.assignee,
                "timeline": story.timeline,
                "told": [asdict(one) for one in story.told],
                "steps": [one._asdict() for one in story.steps],
                "alerts": [alert_json(one) for one in found.alerts],
            }
        )
        return
    named = "nobody yet" if found.assignee is None else found.assignee
    say(f"Incident {found.first.alert.alert_id[:8]} of {found.gate}, looked after by {named}.")
    say(found.alerts[0].alert.message)
    print_fields([(when(at), what) for at, what in story.timeline])
    if story.told:
        say(f"Labels that told: {', '.join(one.batch_id for one in story.told)}")
    for number, step in enumerate(story.steps, 1):
        say(f"{number}. {step.what}\n   {step.command}")
    if story.steps:
        say(f'Once it is known: streamer alert acknowledge {found.gate} --reason "..."')


@app.command()
def assign(
    incident: _IncidentArgument,
    to: str = opt.option("NAME", "Who looks after it.", ..., "--to"),
    by: opt.ByOption = "",
) -> None:
    """Say who looks after an incident."""
    with wiring.record() as store:
        found = store.alerts.incident(incident)
        store.alerts.assign(found, to, by=by)
    say(f"{to} looks after incident {found.first.alert.alert_id[:8]} of {found.gate}.")


@app.command()
def acknowledge(
    alert_id: str = opt.argument(
        "ID|GATE",
        "The alert's id, or its beginning, as `alert list` shows it; or a gate: all of its open alerts.",
    ),
    reason: str = opt.for_the_record("--reason", "What was found, for the record."),
    by: opt.ByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """Record that you have looked at an alert, or at all open alerts of a gate, and what you found.

    After an alarm the next one begins, on decisions from now on. Its chance of a false alarm is
    smaller, so that all alarms of a gate together keep theirs.
    """
    with wiring.record() as store:
        ids = [alert_id]
        if any(one.gate == alert_id for one in store.gates.list()):
            found = store.alerts.list(alert_id, limit=_MOST, unacknowledged=True)
            ids = [one.alert.alert_id for one in found]
            if not ids:
                raise UsageError(f"gate {alert_id} has no alert that nobody has acknowledged")
        for one in ids:
            raised = store.alerts.acknowledge(one, by=by, reason=reason)
            tell(json, alert_json(raised), f"Acknowledged by {by}: {raised.alert.message}")


def alert_json(raised: "RaisedAlert") -> dict[str, Any]:
    """Return an alert as JSON values, with its acknowledgement."""
    event = picked(raised.alert, "alert_id gate kind level message details policy_version raised_at")
    return event | picked(raised, "assignee acknowledged_by acknowledged_at acknowledged_reason")
