"""`streamer key`: the keys with which programs call the HTTP endpoint."""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import typer

from streamer import wiring
from streamer.cli import options as opt
from streamer.cli.console import note, print_list, tell
from streamer.cli.options import gate_names
from streamer.errors import UsageError
from streamer.security.api_keys import ApiKey, read_rate
from streamer.wording.numbers import when

app = typer.Typer(no_args_is_help=True)


@app.command()
def create(
    may: list[str] = opt.option(
        "decide|label|read",
        "What it may do: ask for decisions and what became of them, send severities, look at decisions and gate; repeatable.",
        ...,
    ),
    gate: list[str] | None = opt.option("GATE", "Gate it is for; repeatable.", autocompletion=gate_names),
    all_gates: bool = opt.flag("--all-gates", "It is for every gate, later ones too."),
    rate: str | None = opt.option(
        "N/s", "Requests that each instance lets pass: 50/s, 100/m, 1000/h. Default: any."
    ),
    expires: str | None = opt.option("TIME", "When it ends, like 12h or 90d. Default: when it is revoked."),
    note_: str = opt.for_the_record("--note", "What it is for, for the record.", ""),
    by: opt.ByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """Create a key and print it once; only its SHA-256 is kept.

    Standard output has only the key, so that it can go to a file.
    """
    if bool(gate) == all_gates:
        raise UsageError("name the gates with --gate, or say --all-gates")
    now = wiring.now()
    with wiring.record() as store:
        key, token = store.api_keys.create(
            gates=None if all_gates else gate,
            may=may,
            by=by,
            rate=None if rate is None else read_rate(rate),
            note=note_,
            expires_at=None
            if expires is None
            else now + timedelta(seconds=opt.seconds(expires, "--expires")),
            now=now,
        )
    tell(json, {"token": token} | _key_json(key, now), token)
    if not json:
        note(f"Key {key.id}, shown this once. It ends with: streamer key revoke {key.id}")


@app.command("list")
def list_(
    gate: str | None = opt.argument("GATE", "Only keys for this gate.", None, autocompletion=gate_names),
    json: opt.JsonOption = False,
) -> None:
    """List every key there ever was, the oldest first; never the secret."""
    now = wiring.now()
    with wiring.record(gate) as store:
        keys = [
            key for key in store.api_keys.list() if gate is None or key.gates is None or gate in key.gates
        ]
    print_list(
        json,
        keys,
        ["id", "state", "gates", "may", "rate", "created", "by", "expires", "note"],
        lambda key: [
            key.id, _state(key, now), "all" if key.gates is None else ", ".join(key.gates), ", ".join(key.may),
            None if key.rate is None else str(key.rate), when(key.created_at), key.created_by,
            None if key.expires_at is None else when(key.expires_at), key.note,
        ],
        none="There is no API key: without one the endpoint serves this machine alone.",
        to_json=lambda key: _key_json(key, now),
    )  # fmt: skip


@app.command()
def revoke(
    key_id: str = opt.argument("ID", "The key's id: 12 characters, also within the key."),
    reason: opt.ReasonOption = "revoked",
    by: opt.ByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """Revoke a key for good, within ten seconds everywhere."""
    now = wiring.now()
    with wiring.record() as store:
        key = store.api_keys.revoke(key_id, by=by, reason=reason, now=now)
    told = f" ({key.note})" if key.note else ""
    tell(json, _key_json(key, now), f"Revoked key {key.id}{told}: {reason}")


def _state(key: "ApiKey", now: datetime) -> str:
    if key.revoked_at is not None:
        return f"revoked {when(key.revoked_at)}"
    return "in force" if key.in_force(now) else "expired"


def _key_json(key: "ApiKey", now: datetime) -> dict[str, Any]:
    """Return a key as JSON values, without its digest; `gates` is null for one that is for all."""
    rate = None if key.rate is None else str(key.rate)
    found = asdict(key) | {"in_force": key.in_force(now), "rate": rate, "by": key.created_by}
    return {name: value for name, value in found.items() if name not in ("digest", "created_by")}
