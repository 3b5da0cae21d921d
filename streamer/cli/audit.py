"""`streamer audit`: the record of a decision, and whether the record can be trusted."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer import wiring
from streamer.audit.reached import read_reached, write_reached
from streamer.audit.story import fits, full_receipt, story_of
from streamer.cli import FOUND
from streamer.cli import options as opt
from streamer.cli.audit_bundle import (
    CheckpointsOption,
    KeysOption,
    SegmentsOption,
    embed,
    export,
    outcomes,
    report,
)
from streamer.cli.broker import announce_now
from streamer.cli.console import note, print_fields, print_json, progress, say, warn
from streamer.cli.services import PortOption, run_service
from streamer.collector import looking_rarely
from streamer.errors import Unreadable, UsageError
from streamer.settings.settings import Settings
from streamer.wording.numbers import counted

if TYPE_CHECKING:
    from streamer.audit.verification import Trusted, VerificationReport
    from streamer.store import Store
    from streamer.store.audit.chained_rows import ChainedRowsSnapshot

app = typer.Typer(no_args_is_help=True)

_Batch = Annotated[str, opt.argument("BATCH", "The batch_id of the event.")]
_Attempt = Annotated[int | None, opt.option("N", "Only this attempt.", ..., min=1)]


@app.command()
def show(
    batch: _Batch,
    gate: opt.GateFilter = None,
    attempt: _Attempt = None,
    segment: SegmentsOption = None,
    json: opt.JsonOption = False,
) -> None:
    """Show one decision: what came, what was decided and why, by which policy, and how it is sealed."""
    with _snapshot(segment) as snapshot:
        found = _decisions_of(snapshot, batch, gate, attempt)
    for number, one in enumerate(found):
        if json:
            print_json(one | {"fits": fits(one["line"])})
            continue
        if number:
            say("")
        print_fields(story_of(one))
    if not all(fits(one["line"]) or "given_out" in one["line"] for one in found):
        raise typer.Exit(FOUND)


@contextmanager
def _snapshot(segments: list[Path] | None) -> "Iterator[ChainedRowsSnapshot]":
    with (
        wiring.record() as store,
        store.evidence.snapshot(segments=wiring.segments(segments)) as snapshot,
    ):
        yield snapshot


def _decisions_of(
    snapshot: "ChainedRowsSnapshot", batch: str, gate: str | None, attempt: int | None
) -> list[dict[str, Any]]:
    from streamer.audit.verification import UNREADABLE

    try:
        found = snapshot.decisions_of(batch, gate=gate, attempt=attempt)
    except UNREADABLE as error:
        raise Unreadable(
            f"the record of batch {batch!r} cannot be read ({type(error).__name__}: {error}); "
            "`streamer audit verify` says which row it is"
        ) from error
    if not found:
        raise UsageError(
            f"no decision about batch {batch!r} is recorded" + (f" for gate {gate}" if gate else "")
        )
    return found


@app.command()
def receipt(
    batch: _Batch,
    gate: opt.GateFilter = None,
    attempt: _Attempt = None,
    segment: SegmentsOption = None,
) -> None:
    """Prove that a signed checkpoint covers a decision: its leaf, inclusion proofs and the checkpoint, as JSON.

    One line for each attempt. Whoever has it can check it alone and offline, with any program that verifies inclusion proofs by
    RFC 9162 (docs/audit.md).
    """
    with _snapshot(segment) as snapshot:
        for one in _decisions_of(snapshot, batch, gate, attempt):
            line, head = one["line"], one["head"]
            if head is None:
                raise UsageError(
                    "no checkpoint covers the decision yet; `streamer audit checkpoint` makes one"
                )
            if "given_out" in line and line["facts"] is None:
                raise UsageError(f"{line['missing']}: give --segment FILE")
            try:
                if not fits(line):
                    raise ValueError("the decision is not what was recorded")
                proved = full_receipt(line, head, snapshot.leaves, snapshot.proof_of_head)
            except ValueError as error:
                warn(f"{error}; `streamer audit verify` says more")
                raise typer.Exit(FOUND) from error
            print_json(proved)


@dataclass(frozen=True, slots=True)
class ComparedOptions:
    """What the record is compared with."""

    receipts: str | None = opt.option(
        "FILE|topic",
        "Receipts of decisions that somebody has kept, one JSON a line; topic: those on the topics of actions and of the desk.",
    )
    rescore: bool = opt.flag(
        "--rescore",
        "Score the stored texts again, each with the configured encoder that made its score, and read judges' marks again "
        "from their stored replies.",
    )
    tolerance: float | None = opt.option(
        "T", "Largest difference allowed between a score and the stored one; default 1e-5.", min=0
    )
    log: bool = opt.flag(
        "--log",
        "Compare the record with what the topics responses, labels, actions and desk still hold, too.",
    )


@app.command()
@opt.in_groups
def verify(
    checkpoints: CheckpointsOption = None,
    public_key: KeysOption = None,
    *,
    compared: ComparedOptions,
    incremental: Path | None = opt.option(
        "FILE",
        "Continue after what the last run with this file found consistent, and note in it how far this run came.",
    ),
    full: bool = opt.flag("--full", "Verify the whole record; the default without --incremental."),
    segment: SegmentsOption = None,
    jobs: int = opt.option("N", "How many processes verify; 1 with --rescore.", 1, min=1),
    json: opt.JsonOption = False,
) -> None:
    """Re-derive the whole record, and name the first row that is inconsistent. Exit status 3 if there is one.

    Chains, seals and signatures, the audit draw, each action from stored scores and policy, each policy from its
    run's inputs and seed. docs/audit.md says what it detects, and what needs checkpoints kept outside the database.
    """
    from streamer.audit.verification import Lookups, verify_record

    if full and incremental is not None:
        raise UsageError("--full and --incremental are opposites; give one of them")
    if compared.rescore and jobs > 1:
        raise UsageError("an encoder takes every core by itself; leave out --rescore or --jobs")
    settings = wiring.load_settings()
    since = None if incremental is None else read_reached(incremental)
    trusted = _trusted(settings, public_key)
    outside = wiring.outside_checkpoints(settings, checkpoints)
    kept = None if compared.receipts is None else wiring.receipts(settings, compared.receipts)
    segments = wiring.segments(segment)
    with wiring.beside(settings, jobs, segments) as beside, wiring.open_store(settings) as store:
        rescorer = wiring.rescorer(settings, compared.tolerance) if compared.rescore else None
        total = outcomes(store) if since is None else None
        others = None if beside is None else partial(beside.call, "begin")
        with (
            store.evidence.snapshot(others, segments) as snapshot,
            progress("verify", total) as done,
            looking_rarely(),
        ):
            report = verify_record(
                snapshot,
                trusted=trusted,
                outside=outside,
                lookups=Lookups(store.gates.history, store.calibration.inputs),
                rescorer=rescorer,
                since=since,
                receipts=kept,
                progress=done,
                beside=beside,
            )
        if compared.log:
            found = wiring.compared_with_log(settings, store)
            report = report.plus(found.faults, found.notes, found.counts)
    if incremental is not None and report.reached is not None:
        write_reached(incremental, report.reached)
    if json:
        faults = [asdict(one) for one in report.faults]
        print_json({"ok": not faults, "faults": faults, "not_checked": report.notes, "counts": report.counts})
    else:
        _say_verified(report)
    if report.faults:
        raise typer.Exit(FOUND)


def _trusted(settings: Settings, file: Path | None) -> "Trusted":
    """The keys that a record is verified with: of checkpoints those in `file`, or else those that are configured."""
    from streamer.audit.verification import Trusted

    return Trusted(
        wiring.trusted_keys(settings, file),
        wiring.policy_keys(settings).trusted,
        wiring.label_keys(settings).trusted or None,
        {one.key.name: one.key.key for one in wiring.witnesses(settings)},
    )


def _say_verified(report: "VerificationReport") -> None:
    for fault in report.faults:
        say(f"{fault.place}: {fault.detail}")
    for text in report.notes:
        warn(f"not checked: {text}")
    note(", ".join(f"{count} {name}" for name, count in report.counts.items()))
    say(
        f"{counted(report.counts['faults'], 'fault was', 'faults were')} found; the first is {report.faults[0].place}."
        if report.faults
        else "Everything that could be checked is consistent."
    )


for command in (export, embed, report):
    app.command()(command)


@app.command()
def sign(port: PortOption = None, json: opt.JsonOption = False) -> None:
    """Sign what is recorded, second by second, until SIGTERM or Ctrl-C, and have witnesses cosign it.

    A recalibrator with STREAMER_AUDIT_PRIVATE_KEY_FILE does the same beside its own work; this is for a key that is kept apart.
    Of all such processes of one database one signs, and another takes over when it is gone.

    Exit status: 0 stopped on request, 1 crashed, 124 did not stop in time.
    """
    run_service(wiring.run_signer, port, until_stdin_closes=False, json=json)


@app.command()
def checkpoint(json: opt.JsonOption = False) -> None:
    """Sign what is recorded, publish the checkpoint, append it to the configured file, and have witnesses cosign it, all now.

    Exit status 1 if the file does not have it or a witness did not cosign it; they get it later.
    """
    settings = wiring.load_settings()
    with wiring.open_store(settings) as store:
        _sign_now(settings, store, json=json)


def _sign_now(settings: Settings, store: "Store", *, json: bool, **about: Any) -> None:
    """Sign, publish and have witnesses cosign; `about` is printed with `json`, too. Exits with status 1 if somebody does not have it."""
    from streamer.audit.witnesses import send

    checkpointer, witnesses = wiring.checkpointer(settings, store), wiring.witnesses(settings)
    before, newest = store.heads.newest().size, checkpointer.run(publish=True)
    kept_back = checkpointer.keep_up(newest)
    failed = send(witnesses, store.heads)
    reached = {one.witness: one.size for one in store.heads.cosigned()}
    announce_now(settings)
    key = str(checkpointer.signer.verifier_key(store.heads.origin()))
    if json:
        told = [
            {"witness": name, "cosigned": reached.get(name, 0), "failed": why} for name, why in failed.items()
        ]
        print_json(
            {"made": newest.size > before, "size": newest.size, "witnesses": told, "verifier_key": key}
            | about
        )
    else:
        say(
            f"Checkpoint {newest.size} is made."
            if newest.size > before
            else f"Nothing was recorded since checkpoint {newest.size}."
        )
        note(f"Verifier key, for witnesses: {key}")
    if kept_back is not None:
        warn(f"The file does not have it: {kept_back}")
    for name, why in failed.items():
        if why is not None:
            warn(f"{name} did not cosign it, and is asked again: {why}")
        elif not json:
            say(f"{name} has cosigned checkpoint {reached[name]}.")
    if kept_back is not None or any(failed.values()):
        raise typer.Exit(1)


@app.command()
def restored(
    reason: opt.ReasonOption,
    checkpoints: CheckpointsOption = None,
    by: opt.ByOption = "",
    json: opt.JsonOption = False,
) -> None:
    """Put on record that a backup was restored: the checkpoints made after the backup are given up, and a new origin begins.

    Run it before anything else works with the restored database. It finds what is lost in the configured file of checkpoints,
    on the topic, and at the witnesses, and signs on. Who runs a witness must be given the new verifier key.

    Exit status as of `streamer audit checkpoint`.
    """
    import json as text

    from streamer.audit.restoring import give_up

    settings = wiring.load_settings()
    with wiring.open_store(settings) as store:
        made = give_up(
            wiring.checkpointer(settings, store),
            wiring.known_checkpoints(settings, checkpoints),
            wiring.witnesses(settings),
            by=by,
            reason=reason,
        )
        given_up = text.loads(made.given_up)
        if not json:
            for origin, most in given_up:
                say(f"Heads {made.kept + 1} to {most} of {origin} are given up.")
            say(f"The record goes on as {made.origin}.")
        _sign_now(settings, store, json=json, origin=made.origin, kept=made.kept, given_up=given_up)


@app.command()
def keygen(
    out: Path = opt.option("FILE", "New file for the private key; FILE.pub gets the public one.", ...),
) -> None:
    """Make a key pair, for checkpoints or for policies: each needs its own. For labels: `streamer label keygen`.

    Keep the key of checkpoints with what signs them, and that of policies where policies are made; neither with workers.
    Verifiers get the public key: auditors, and for policies the workers.
    """
    from streamer.audit.signing import generate_keys

    beside = opt.write_key_files(out, *generate_keys())
    say(
        f"{out}: the private key. For checkpoints: STREAMER_AUDIT_PRIVATE_KEY_FILE, where the recalibrator runs and nowhere else. For "
        "policies: STREAMER_POLICIES_PRIVATE_KEY_FILE, where policies are made."
    )
    say(
        f"{beside}: the public key, for verifying; for policies STREAMER_POLICIES_PUBLIC_KEYS_FILE, for workers."
    )
