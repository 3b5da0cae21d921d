"""`streamer threshold`: the policies of a gate, who made each, why and when, and what each promises."""

from typing import Annotated

import typer

from streamer.cli import options as opt
from streamer.cli.policies import guarantee_text, policy_json, segment_lines, standing, styled_threshold, when

app = typer.Typer(no_args_is_help=True, help="The thresholds that gates had and have: who, why, when.")


@app.command("list")
def list_(
    gate: Annotated[str | None, typer.Argument(metavar="[GATE]", help="Only this gate.")] = None,
    json: opt.JsonOption = False,
) -> None:
    """List every policy version, the newest first."""
    from streamer import wiring
    from streamer.cli.console import note, print_json, print_table
    from streamer.settings import load_settings

    with wiring.open_store(load_settings()) as store:
        gates = [gate] if gate else [revision.gate for revision in store.gates.list()]
        policies = [policy for name in gates for policy in reversed(store.policies.list(name))]
    if json:
        for policy in policies:
            print_json(policy_json(policy))
        return
    if not policies:
        note("There is no gate yet; make one with `streamer gate create NAME`.")
        return
    print_table(
        ["gate", "version", "threshold", "alpha", "method", "unit", "run", "since", "by", "why"],
        [
            [
                policy.gate, policy.version, styled_threshold(policy), policy.settings.alpha, policy.settings.method,
                policy.settings.unit, policy.calibration_run, when(policy.valid_from), policy.created_by, policy.reason,
            ]
            for policy in policies
        ],
    )  # fmt: skip


@app.command()
def show(
    gate: opt.GateArgument,
    version: Annotated[
        int | None,
        typer.Option("--version", metavar="N", min=1, help="This policy version; default: the newest."),
    ] = None,
    json: opt.JsonOption = False,
) -> None:
    """Show one policy: its threshold, what it promises and what not, who made it and why."""
    from streamer import wiring
    from streamer.cli.console import print_fields, print_json, say
    from streamer.settings import load_settings

    with wiring.open_store(load_settings()) as store:
        newest = store.policies.newest(gate)
        policy = newest if version is None else store.policies.get(gate, version)
    if json:
        print_json(policy_json(policy))
        return
    present = policy.version == newest.version
    say(f"{gate}, version {policy.version}{'' if present else ' (superseded)'}: {standing(policy)}")
    print_fields(
        {
            "threshold": styled_threshold(policy),
            **({"segments": lines} if (lines := segment_lines(policy.rule)) is not None else {}),
            "budget alpha": policy.settings.alpha,
            "unit": policy.settings.unit,
            "method": policy.settings.method,
            "scorer": f"{policy.settings.scorer}, {policy.settings.encoder}",
            "severity": policy.settings.severity_kind,
            "calibration run": policy.calibration_run,
            "since": when(policy.valid_from),
            "by": policy.created_by,
            "why": policy.reason,
            "guarantee": guarantee_text(policy.guarantee) or "none: nothing is promised, and nothing ships",
        }
    )
