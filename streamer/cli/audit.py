"""`streamer audit`: the record of a decision, and whether the record can be trusted."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer import wiring
from streamer.audit.reached import read_reached, write_reached
from streamer.cli import FOUND
from streamer.cli import options as opt
from streamer.cli.broker import announce_now
from streamer.cli.console import note, print_json, print_pairs, progress, say, warn
from streamer.cli.services import PortOption, run_service
from streamer.collector import looking_rarely
from streamer.errors import Unreadable, UsageError
from streamer.events.cloudevents import rfc3339
from streamer.settings.settings import Settings
from streamer.wording.numbers import counted

if TYPE_CHECKING:
    from streamer.audit.verification import Trusted, VerificationReport
    from streamer.store import Store
    from streamer.store.audit.chained_rows import ChainedRowsSnapshot

app = typer.Typer(no_args_is_help=True)

_KeysOption = Annotated[
    Path | None,
    opt.option(
        "FILE",
        "PEM file with the public keys that may sign checkpoints. Default: the configured ones.",
        "--public-key",
    ),
]
_CheckpointsOption = Annotated[
    str | None,
    opt.option(
        "FILE|topic",
        "Checkpoints kept outside the database. Default: the configured file, if it exists.",
        "--checkpoints",
    ),
]
_SegmentsOption = Annotated[
    list[Path] | None,
    opt.option(
        "FILE", "Decisions that `streamer db give-out` moved into this file; may be repeated.", "--segment"
    ),
]


@app.command()
def show(
    batch: Annotated[str, opt.argument("BATCH", "The batch_id of the event.")],
    gate: opt.GateFilter = None,
    attempt: Annotated[int | None, opt.option("N", "Only this attempt.", min=1)] = None,
    segment: _SegmentsOption = None,
    json: opt.JsonOption = False,
) -> None:
    """Show one decision: what came, what was decided and why, by which policy, and how it is sealed."""
    from streamer.audit.story import fits, story_of

    with _snapshot(segment) as snapshot:
        found = _decisions_of(snapshot, batch, gate, attempt)
    for number, one in enumerate(found):
        if json:
            print_json(one | {"fits": fits(one["line"])})
            continue
        if number:
            say("")
        print_pairs(story_of(one))
    if not all(fits(one["line"]) or "given_out" in one["line"] for one in found):
        raise typer.Exit(FOUND)


@contextmanager
def _snapshot(segments: list[Path] | None) -> "Iterator[ChainedRowsSnapshot]":
    with (
        wiring.open_store(wiring.load_settings()) as store,
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
    batch: Annotated[str, opt.argument("BATCH", "The batch_id of the event.")],
    gate: opt.GateFilter = None,
    attempt: Annotated[int | None, opt.option("N", "Only this attempt.", min=1)] = None,
    segment: _SegmentsOption = None,
) -> None:
    """Prove that a signed checkpoint covers a decision: its leaf, inclusion proofs and the checkpoint, as JSON.

    One line for each attempt. Whoever has it can check it alone and offline, with any program that verifies inclusion proofs by
    RFC 9162 (docs/audit.md).
    """
    from streamer.audit.story import fits, full_receipt

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

    receipts: Annotated[
        str | None,
        opt.option(
            "FILE|topic",
            "Receipts of decisions that somebody has kept, one JSON a line; topic: those on the topics of actions and of the desk.",
        ),
    ] = None
    rescore: Annotated[
        bool,
        opt.flag(
            "--rescore",
            "Score the stored texts again, each with the configured encoder that made its score, and read judges' marks again "
            "from their stored replies.",
        ),
    ] = False
    tolerance: Annotated[
        float | None,
        opt.option(
            "T", "Largest difference allowed between a score and the stored one; default 1e-5.", min=0
        ),
    ] = None
    log: Annotated[
        bool,
        opt.flag(
            "--log",
            "Compare the record with what the topics responses, labels, actions and desk still hold, too.",
        ),
    ] = False


@app.command()
@opt.in_groups
def verify(
    checkpoints: _CheckpointsOption = None,
    public_key: _KeysOption = None,
    *,
    compared: ComparedOptions,
    incremental: Annotated[
        Path | None,
        opt.option(
            "FILE",
            "Continue after what the last run with this file found consistent, and note in it how far this run came.",
        ),
    ] = None,
    full: Annotated[
        bool, opt.flag("--full", "Verify the whole record; the default without --incremental.")
    ] = False,
    segment: _SegmentsOption = None,
    jobs: Annotated[int, opt.option("N", "How many processes verify; 1 with --rescore.", min=1)] = 1,
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
        total = _outcomes(store) if since is None else None
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


def _outcomes(store: "Store") -> int | None:
    """Count what a progress bar is about; None where the record is so damaged that even this cannot be read."""
    from streamer.audit.verification import UNREADABLE

    try:
        return sum(store.reports.log_sizes().values())
    except UNREADABLE:
        return None


@app.command()
def export(
    out: Annotated[Path, opt.option("PATH", "A new folder, or a file that ends in .zip.")],
    gate: opt.GateFilter = None,
    texts: Annotated[
        bool, opt.flag("--texts/--no-texts", "Include prompts and answers, or only their seals.")
    ] = True,
    salts: Annotated[
        bool,
        opt.flag(
            "--salts/--no-salts",
            "Reveal the salts of audit draws: draws can be verified, and everybody who has the bundle can foretell them.",
        ),
    ] = False,
    tiles: Annotated[
        Path | None,
        opt.option(
            "FOLDER",
            "Write the log of heads into this new folder, too: static files by https://c2sp.org/tlog-tiles.",
        ),
    ] = None,
    segment: _SegmentsOption = None,
    public_key: _KeysOption = None,
    json: opt.JsonOption = False,
) -> None:
    """Write a bundle that anyone can verify without this package, by verify.pyz, which needs Python alone.

    docs/audit.md says where verify.pyz comes from. With --gate other gates' leaves are included without their texts,
    actions and salts.
    """
    from streamer.audit.bundle import write_tiles

    settings = wiring.load_settings()
    with wiring.open_store(settings) as store:
        if gate is not None:
            store.gates.get(gate)
        keys = wiring.trusted_keys(settings, public_key)
        manifest = _export(store, out, keys, segment, gate=gate, texts=texts, salts=salts)
        if tiles is not None:
            with store.evidence.snapshot() as snapshot:
                if not (size := store.heads.newest().size):
                    raise UsageError("nothing is signed yet; `streamer audit checkpoint` does it")
                write_tiles(snapshot.heads(), snapshot.proof_of_head(size - 1)["checkpoint"].encode(), tiles)
    if json:
        print_json({"path": str(out), "manifest": manifest})
        return
    lines = ", ".join(f"{part['lines']} in {name}" for name, part in manifest["files"].items())
    say(f"Written to {out}: {lines}.")
    note(
        "It reveals the salts of audit draws: give it to auditors, not to publishers of batches."
        if salts
        else "Without the salts, which foretell draws, nobody can verify draws with it: --salts reveals them."
    )


def _export(
    store: "Store", out: Path, keys: list[bytes], segments: list[Path] | None, **what: Any
) -> dict[str, Any]:
    """Write a bundle; `what` is in it, as `write_bundle` has it. Returns its manifest."""
    from streamer.audit.bundle import write_bundle

    total, given = _outcomes(store), wiring.segments(segments)
    with store.evidence.snapshot(segments=given) as snapshot, progress("export", total) as done:
        made_at = rfc3339(wiring.now())
        return write_bundle(snapshot, out, keys=keys, made_at=made_at, progress=done, **what)


@app.command()
def embed(
    bundle: Annotated[Path, opt.argument("BUNDLE", "Folder or .zip of `streamer audit export`.")],
    out: Annotated[Path, opt.option("FILE", "A new file for the embeddings.")],
    json: opt.JsonOption = False,
) -> None:
    """Write the embeddings of a bundle's answers, by the configured encoder: verify.pyz --embeddings scores by them again.

    It needs no database. An auditor makes them, or tries some, with an encoder of their own: whoever gives embeddings vouches
    for them.
    """
    from streamer.audit.bundle import reading, write_embeddings

    with reading(bundle) as opened:
        encoder = wiring.encoder(wiring.load_settings())
        if encoder is None:
            raise UsageError("embeddings need an encoder; STREAMER_ENCODER_NAME is none")
        with progress("embed") as done:
            count = write_embeddings(
                opened, out, encoder=encoder.identity.id, embed=encoder.embed, progress=done
            )
    if json:
        print_json({"path": str(out), "encoder": encoder.identity.id, "texts": count})
        return
    say(f"Written to {out}: embeddings of {count} answers by {encoder.identity.id}.")


@dataclass(frozen=True, slots=True)
class AboutOptions:
    """What the report is about, and who signs it."""

    system: Annotated[
        str | None, opt.option("NAME", "The system that the report is about, as it is to be shown.")
    ] = None
    system_version: Annotated[str | None, opt.option("TEXT", "Its version.")] = None
    provider: Annotated[str | None, opt.option("NAME", "Who provides it.")] = None
    signatory: Annotated[
        str | None, opt.option("NAME", "Who answers for the report, with their function.")
    ] = None
    sign_with: Annotated[
        Path | None, opt.option("FILE", "Sign the report with this private key of `streamer audit keygen`.")
    ] = None

    def said(self) -> dict[str, str | None]:
        """Return what the report says as it was given."""
        found: dict[str, str | None] = asdict(self) | {"version": self.system_version}
        return {name: found[name] for name in ("system", "version", "provider", "signatory")}


@app.command()
@opt.in_groups
def report(
    *,
    framework: Annotated[
        str, opt.option("NAME", "Framework of the clauses: eu-ai-act, iso-42001, nist-ai-rmf or soc2.")
    ],
    out: Annotated[Path, opt.option("FOLDER", "A new folder for the report.")],
    since: Annotated[
        str | None,
        opt.option(
            "TIME",
            "Start of the period: a date like 2026-01-01, in UTC, or how far back, like 90d. Default: all of it.",
        ),
    ] = None,
    until: Annotated[str | None, opt.option("TIME", "End of the period, likewise. Default: now.")] = None,
    gates: Annotated[
        list[str] | None, opt.option("GATE", "Only this gate; may be repeated.", "--gate")
    ] = None,
    bundle: Annotated[Path | None, opt.option("PATH", "Report on this bundle and need no database.")] = None,
    texts: Annotated[
        bool, opt.flag("--texts/--no-texts", "Put prompts and answers into the bundle.")
    ] = False,
    salts: Annotated[
        bool, opt.flag("--salts/--no-salts", "Reveal the salts of audit draws in the bundle.")
    ] = False,
    about: AboutOptions,
    pdf: Annotated[bool, opt.flag("--pdf/--no-pdf", "Write a PDF file, too.")] = True,
    segment: _SegmentsOption = None,
    checkpoints: _CheckpointsOption = None,
    public_key: _KeysOption = None,
    json: opt.JsonOption = False,
) -> None:
    """Write what the record shows for each clause of a framework, and what it does not show.

    The folder gets report.html, report.pdf, report.json and bundle.zip. Every figure is derived from the bundle alone:
    verify.pyz --report derives each again and names any that differs. It is material for an assessment, not the
    assessment. Exit status 3 if the record does not verify; the report says so, too.
    """
    from streamer.audit.evidence.frameworks import ALL
    from streamer.audit.evidence.pack import BUNDLE, make_report, write_report

    if framework not in ALL:
        raise UsageError(f"--framework must be one of {', '.join(ALL)}, not {framework!r}")
    if pdf:
        from streamer.audit.evidence.pdf import require_pdf

        require_pdf()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists; name a new folder")
    begins, ends = _period(since, until)
    signer = None if about.sign_with is None else wiring.signer(about.sign_with)
    settings = wiring.load_settings()
    keys = wiring.trusted_keys(settings, public_key)
    outside = wiring.outside_checkpoints(settings, checkpoints)
    made = out / BUNDLE if bundle is None else bundle
    if bundle is None:
        _export_for_report(settings, made, gates or (), keys, segment, texts=texts, salts=salts)
    found = make_report(
        made,
        ALL[framework],
        since=begins,
        until=ends,
        gates=gates,
        keys=keys,
        outside=None if outside is None else outside[0],
        about=about.said(),
        signed_with=None if signer is None else signer.key_id,
        segments=wiring.segments(None if bundle is None else segment),
    )
    written = write_report(found, out, pdf=pdf, signer=signer)
    faults = found["figures"]["verification"]["value"]["faults"]
    if json:
        print_json({"files": [str(one) for one in written], "bundle": str(made), "report": found})
    else:
        for one in written:
            say(str(one))
        say(f"{made}: from it verify.pyz --report derives every figure again.")
        note("It names people who labelled, approved and acknowledged: give it to whom these may be shown.")
        if faults:
            found_faults = counted(faults, "fault was", "faults were")
            say(f"{found_faults} found; verify.pyz, with this bundle, names each.")
    if faults:
        raise typer.Exit(FOUND)


def _period(since: str | None, until: str | None) -> tuple[datetime | None, datetime | None]:
    """Read a period. Raises `UsageError` for one that is empty."""
    now = wiring.now()
    begins, ends = _moment(since, "--since", now), _moment(until, "--until", now)
    if begins is not None and begins >= (ends or now):
        raise UsageError("the period is empty: --since must be before --until, or before now")
    return begins, ends


def _export_for_report(
    settings: Settings,
    bundle: Path,
    gates: Sequence[str],
    keys: list[bytes],
    segments: list[Path] | None,
    **what: Any,
) -> None:
    """Write the bundle of a report into its folder. Raises `UsageError` for an unknown gate before anything is made."""
    with wiring.open_store(settings) as store:
        for gate in gates:
            store.gates.get(gate)
        try:
            bundle.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write {bundle.parent}: {error.strerror or error}") from None
        _export(store, bundle, keys, segments, **what)


def _moment(text: str | None, option: str, now: datetime) -> datetime | None:
    """Turn a date, a moment or how far back it lies into a moment. Raises `UsageError` for anything else."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now - timedelta(seconds=opt.seconds(text, option))
        except (UsageError, OverflowError) as error:
            raise UsageError(
                f"{option} must be a date like 2026-01-01 or a time back like 90d, not {text!r}"
            ) from error
    return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)


@app.command()
def sign(port: PortOption = None, json: opt.JsonOption = False) -> None:
    """Sign what is recorded, second by second, until SIGTERM or Ctrl-C, and have witnesses cosign it.

    A recalibrator with STREAMER_AUDIT_PRIVATE_KEY_FILE does the same beside its own work; this is for a key that is kept apart.
    Of all such processes of one database one signs, and another takes over when it is gone.

    Exit status: 0 stopped on request, 1 crashed, 124 did not stop in time.
    """
    raise typer.Exit(run_service(wiring.run_signer, port, until_stdin_closes=False, json=json))


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
    checkpoints: _CheckpointsOption = None,
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
    out: Annotated[Path, opt.option("FILE", "New file for the private key; FILE.pub gets the public one.")],
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
