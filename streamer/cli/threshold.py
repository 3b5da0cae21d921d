"""`streamer threshold`: the policies of a gate, who made each, why and when, and what each promises."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer import wiring
from streamer.cli import options as opt
from streamer.cli.broker import announce_now, bounds_of_responses
from streamer.cli.console import counted, note, print_fields, print_json, print_table, say, tell, warn
from streamer.cli.policies import (
    NO_GATE,
    labels_fields,
    policy_json,
    promise_text,
    signature_json,
    styled_signature,
    styled_threshold,
    unread_json,
    verdict_json,
)
from streamer.errors import Unavailable, UsageError
from streamer.gates.policy import Policy
from streamer.recalibration.gate_rule import Proposal
from streamer.settings.settings import Settings
from streamer.signing.policies import REFUSAL_TEXTS, PolicyKeys, PolicyVersion
from streamer.wording.numbers import percent, when
from streamer.wording.policies import (
    cut_text,
    segment_lines,
    selection_text,
    status_text,
    threshold_text,
    variability_text,
    waits_text,
    way_into_force,
    weights_text,
    who,
)
from streamer.wording.verdicts import headline

if TYPE_CHECKING:
    from streamer.store import Store

_POLL_SECONDS = 0.5

_RunOption = Annotated[
    int | None, opt.option("N", "Fail unless this is the proposed run.", ..., "--run", min=1)
]

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_(
    gate: opt.OnlyGate = None,
    json: opt.JsonOption = False,
) -> None:
    """List every policy version, the newest first."""
    settings = wiring.load_settings()
    keys = wiring.policy_keys(settings)
    with wiring.open_store(settings) as store:
        gates = [gate] if gate else [revision.gate for revision in store.gates.list()]
        versions = [found for name in gates for found in reversed(store.policies.every_version(name))]
        proposals = [found for name in gates if (found := store.calibration.proposal(name)) is not None]
    if json:
        for version in versions:
            print_json(_version_json(version, keys))
        return
    if not versions:
        note(NO_GATE)
        return
    signed = keys.demanded or any(version.signature is not None for version in versions)
    print_table(
        ["gate", "version", "threshold", *(["signature"] if signed else []), "alpha", "method", "unit", "run", "since",
         "by", "why"],
        [
            [
                version.gate, version.version,
                "unreadable" if version.active is None else styled_threshold(version.active.policy),
                *([styled_signature(version, keys)] if signed else []),
                *(_cells(version.active.policy) if version.active is not None else [None] * 7),
            ]
            for version in versions
        ],
    )  # fmt: skip
    for found in proposals:
        note(_proposed(found, f" for {found.gate}, {when(found.at)} by {found.by}"))


@app.command()
def show(
    gate: opt.GateArgument,
    version: int | None = opt.option("N", "This policy version. Default: the newest.", min=1),
    explain: opt.ExplainOption = False,
    json: opt.JsonOption = False,
) -> None:
    """Show one policy: its threshold, what it promises and what not, who made it and why."""
    settings = wiring.load_settings()
    keys = wiring.policy_keys(settings)
    with wiring.open_store(settings) as store:
        newest = store.policies.newest(gate)
        found = store.policies.version(gate, newest.version if version is None else version)
        policy = newest if version is None else store.policies.get(gate, version)
        proposal = store.calibration.proposal(gate)
        unread = store.labels.unread(gate)
        waiting = store.calibration.waiting(gate)
        present = policy.version == newest.version
        risk = store.monitoring.judged(gate, now=wiring.now()) if present else None
        run = policy.calibration_run
        sample = [] if run is None or not policy.calibrated else store.calibration.sample(run)
        selection = selection_text(policy, store.gates.history(gate), sample)
    if json:
        unread_labels = {"unread_labels": unread_json(unread).get(gate)}
        print_json(_version_json(found, keys) | unread_labels | verdict_json(risk))
        return
    if (verdict := headline(risk)) is not None:
        say(verdict)
    say(f"{gate}, version {policy.version}{'' if present else ' (superseded)'}: {status_text(policy)}")
    signed = keys.demanded or found.signature is not None
    fields = {
        "threshold": styled_threshold(policy),
        "segments": segment_lines(policy.rule),
        "carried by": weights_text(policy),
        "budget": percent(policy.settings.alpha),
        "unit": policy.settings.unit,
        "method": policy.settings.method,
        "scorer": f"{policy.settings.scorer}, {policy.settings.encoder}",
        "severity": policy.settings.severity_kind,
        **labels_fields(policy.settings, unread.get(gate)),
        "labels": f"at the newest run: {waiting}" if waiting is not None and present else None,
        "calibration run": policy.calibration_run or "-",
        "since": when(policy.valid_from),
        "by": who(policy.created_by),
        "why": policy.reason,
        "signature": styled_signature(found, keys) if signed else None,
        "guarantee": promise_text(policy.guarantee, explain=explain),
        "chosen": selection,
        "one calibration": variability_text(policy, len(sample)),
    }
    print_fields({name: value for name, value in fields.items() if value is not None})
    if (refusal := keys.refusal(found)) is not None:
        warn(f"Workers with the same public keys refuse this policy: {REFUSAL_TEXTS[refusal]}.")
    if proposal is not None and present:
        note(_proposed(proposal))


def _proposed(found: "Proposal", about: str = "") -> str:
    """Say what is proposed, how it comes into force, and what it waits for."""
    waits, way = waits_text(found), way_into_force(found.gate, found.settings)
    said = f"Run {found.run} proposes {cut_text(found.cut, found.rule)}{about}: {way}"
    return f"{said}. {waits}" if waits else said


@app.command()
def activate(
    gate: opt.GateArgument,
    run: _RunOption = None,
    reason: opt.ReasonOption = "approved",
    by: opt.ByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """Put what the gate's newest run proposes in force.

    Only the newest run: choosing among thresholds after labels were read would void their guarantees.
    """

    def put_in_force(store: "Store") -> "Policy":
        return store.calibration.activate(gate, run, by=by, reason=reason, now=wiring.now())

    _change(gate, by, json, put_in_force)


@app.command()
def reject(
    gate: opt.GateArgument,
    reason: opt.ReasonOption,
    run: _RunOption = None,
    by: opt.ByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """Reject what the gate's newest run proposes: it is not proposed again, and the threshold stays as it is.

    The next run may propose what it finds. `streamer gate set GATE --recalibrate manual` stops scheduled runs.
    """
    with wiring.record() as store:
        rejected = store.calibration.reject(gate, run, by=by, reason=reason, now=wiring.now())
    said = f"Run {rejected.run} is not proposed again; the threshold of {gate} stays as it is."
    tell(json, {"gate": gate, "run": rejected.run, "by": by, "reason": reason}, said)


@app.command()
def rollback(
    gate: opt.GateArgument,
    version: int = opt.option("N", "The policy version to go back to.", ..., "--to", min=1),
    reason: opt.ReasonOption = "rolled back",
    by: opt.ByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """Put an older version's threshold in force again, under a new version number.

    It must have been calibrated for the gate's present settings.
    """
    _change(gate, by, json, lambda store: store.policies.rollback(gate, version, by=by, reason=reason))


@app.command()
def close(
    gate: opt.GateArgument,
    reason: opt.ReasonOption,
    wait: bool = opt.flag("--wait", "Return only when everything shipped before is published."),
    timeout: str = opt.option("TIME", "How long --wait waits before it fails.", "60s"),
    desk: str = opt.option(
        "ask|hold",
        "What waits at the gate's desk: `ask` leaves it there, marked, and whoever releases is asked again; `hold` rejects it.",
        "ask",
    ),
    by: opt.ByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """Ship nothing from now on, at once. `rollback`, `activate` or `streamer recalibrate` opens the gate again.

    Once this returns, no decision that ships is committed. It prints what still waits, by place: queue, outbox, desk and
    repeats. Ships that were committed before and are not published yet still reach consumers.
    """
    seconds = opt.seconds(timeout, "--timeout")
    if desk not in ("ask", "hold"):
        raise UsageError(f"--desk is ask or hold, not {desk!r}")
    _change(
        gate,
        by,
        json,
        lambda store: store.policies.close(gate, by=by, reason=reason),
        closing=True,
        hold_desk=f"gate closed: {reason}" if desk == "hold" else None,
    )
    if wait:
        _wait_until_published(gate, seconds)


@app.command()
def sign(
    gate: opt.GateArgument,
    version: int = opt.option("N", "The policy version that you vouch for.", ..., min=1),
    reason: opt.ReasonOption = "signed",
    by: opt.ByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """Sign a policy: put it in force again as it is, settings included, under a new version with your signature.

    For policies made before there was a key, and after a change of keys. Look at it first (threshold show), and check
    with `streamer audit verify` that nobody changed it. A policy with a bad signature is never signed.
    """
    if wiring.policy_keys(wiring.load_settings()).signer is None:
        raise UsageError(
            "no key to sign policies with is configured; `streamer audit keygen --out FILE` makes one, and"
            " STREAMER_POLICIES_PRIVATE_KEY_FILE names it"
        )
    _change(gate, by, json, lambda store: store.policies.sign(gate, version, by=by, reason=reason))


def _cells(policy: "Policy") -> list[object]:
    return [
        policy.settings.alpha, policy.settings.method, policy.settings.unit, policy.calibration_run,
        when(policy.valid_from), who(policy.created_by), policy.reason,
    ]  # fmt: skip


def _version_json(found: "PolicyVersion", keys: "PolicyKeys") -> "dict[str, Any]":
    about: dict[str, Any] = (
        {"gate": found.gate, "version": found.version}
        if found.active is None
        else policy_json(found.active.policy)
    )
    return about | signature_json(found, keys)


@contextmanager
def _may_stay_open(gate: str) -> "Iterator[None]":
    """Say what is uncertain when the database does not answer while a gate is being closed."""
    try:
        yield
    except Unavailable as error:
        raise Unavailable(
            f"gate {gate} may still be open: {error}. Run this again; until it succeeds, stop the workers to ship nothing"
        ) from error


def _wait_until_published(gate: str, seconds: float) -> None:
    """Return once no committed ship of a gate waits to be published. Raises `Unavailable` after so long."""
    deadline = time.monotonic() + seconds
    with wiring.record() as store:
        while True:
            try:
                waiting = store.reports.unpublished_ships(gate)
                state = f"{counted(waiting, 'ship', 'ships')} committed before {'is' if waiting == 1 else 'are'} not published yet"
            except Unavailable as error:
                waiting, state = None, f"the ships committed before cannot be counted: {error}"
            if waiting == 0:
                break
            if time.monotonic() >= deadline:
                raise Unavailable(
                    f"gate {gate} is closed; after {seconds:g} s {state}. Workers publish them"
                    " as soon as they can: `streamer doctor` shows whether one runs and reaches the broker"
                )
            time.sleep(_POLL_SECONDS)
    note("No ship waits to be published any more.")


def _what_waits(
    store: "Store", settings: "Settings", gate: str, actor: str, remark: str | None
) -> dict[str, int | None]:
    """Reject what waits at a closed gate's desk, with a remark, or leave it; then count what waits anywhere, and print it.

    A count is None where it is unknown.
    """
    counts: dict[str, int | None] = dict.fromkeys(("queue", "outbox", "desk", "repeats", "desk_rejected"))
    try:
        if remark is not None:
            counts["desk_rejected"] = store.desk.hold_all(gate, by=actor, remark=remark)
        return counts | store.reports.still_waiting(gate, bounds_of_responses(settings))._asdict()
    except Unavailable as error:
        warn(f"The gate is closed; what waits cannot be counted now: {error}")
        return counts


def _waiting_fields(counts: "Mapping[str, int | None]") -> dict[str, str]:
    """Say what becomes of what waits, by place."""

    def of(place: str, then: str, one: str, several: str) -> str:
        count = counts[place]
        if count is None:
            return "not known now"
        return f"{counted(count, one, several)}: {then}" if count else "nothing"

    rejected = counts["desk_rejected"]
    return {
        "queue": of(
            "queue", "the closed policy holds this gate's", "record of any gate", "records of any gate"
        ),
        "outbox": of("outbox", "committed before, and still published", "ship", "ships"),
        "desk": of("desk", "they stay, marked; whoever releases is asked again", "batch", "batches")
        if rejected is None
        else f"{counted(rejected, 'batch', 'batches')} rejected",
        "repeats": of(
            "repeats", "whoever repeats a batch or key gets it again", "ship on record", "ships on record"
        ),
    }


def _change(
    gate: str,
    by: str,
    json: bool,
    change: "Callable[[Store], Policy]",
    *,
    closing: bool = False,
    hold_desk: str | None = None,
) -> None:
    """Write a policy, describe it, and announce it; when `closing`, count what still waits."""
    settings = wiring.load_settings()
    with ExitStack() as stack:
        with _may_stay_open(gate) if closing else nullcontext():
            store = stack.enter_context(wiring.open_store(settings))
            before = store.policies.versions([gate]).get(gate)
            policy = change(store)
        if not json:
            was = (
                "unreadable"
                if before is None or before.active is None
                else threshold_text(before.active.policy)
            )
            say(
                f"Gate {gate} was {was} (version {policy.version - 1}); is {threshold_text(policy)} "
                f"(version {policy.version})."
            )
            say(status_text(policy))
        waiting = _what_waits(store, settings, gate, by, hold_desk) if closing else None
    if json:
        print_json(policy_json(policy) | ({} if waiting is None else {"waiting": waiting}))
    elif waiting is not None:
        say("What still waits:")
        print_fields(_waiting_fields(waiting))
    announce_now(settings)
