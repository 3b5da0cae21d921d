"""`streamer audit export`, `embed` and `report`: the record as a bundle, and what it shows for the clauses of a framework."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer import wiring
from streamer.audit.evidence.frameworks import ALL
from streamer.cli import FOUND
from streamer.cli import options as opt
from streamer.cli.console import note, print_json, progress, say, tell
from streamer.errors import UsageError, cannot
from streamer.events.cloudevents import rfc3339
from streamer.settings.settings import Settings
from streamer.wording.numbers import counted

if TYPE_CHECKING:
    from streamer.store import Store

KeysOption = Annotated[
    Path | None,
    opt.option(
        "FILE",
        "PEM file with the public keys that may sign checkpoints. Default: the configured ones.",
        ...,
        "--public-key",
    ),
]
CheckpointsOption = Annotated[
    str | None,
    opt.option(
        "FILE|topic",
        "Checkpoints kept outside the database. Default: the configured file, if it exists.",
        ...,
        "--checkpoints",
    ),
]
SegmentsOption = Annotated[
    list[Path] | None,
    opt.option(
        "FILE",
        "Decisions that `streamer db give-out` moved into this file; may be repeated.",
        ...,
        "--segment",
    ),
]


def outcomes(store: "Store") -> int | None:
    """Count what a progress bar is about; None where the record is so damaged that even this cannot be read."""
    from streamer.audit.verification import UNREADABLE

    try:
        return sum(store.reports.log_sizes().values())
    except UNREADABLE:
        return None


def export(
    out: Path = opt.option("PATH", "A new folder, or a file that ends in .zip.", ...),
    gate: opt.GateFilter = None,
    texts: bool = opt.flag("--texts/--no-texts", "Include prompts and answers, or only their seals.", True),
    salts: bool = opt.flag(
        "--salts/--no-salts",
        "Reveal the salts of audit draws: draws can be verified, and everybody who has the bundle can foretell them.",
    ),
    tiles: Path | None = opt.option(
        "FOLDER",
        "Write the log of heads into this new folder, too: static files by https://c2sp.org/tlog-tiles.",
    ),
    segment: SegmentsOption = None,
    public_key: KeysOption = None,
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

    total, given = outcomes(store), wiring.segments(segments)
    with store.evidence.snapshot(segments=given) as snapshot, progress("export", total) as done:
        made_at = rfc3339(wiring.now())
        return write_bundle(snapshot, out, keys=keys, made_at=made_at, progress=done, **what)


def embed(
    bundle: Path = opt.argument("BUNDLE", "Folder or .zip of `streamer audit export`."),
    out: Path = opt.option("FILE", "A new file for the embeddings.", ...),
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
    said = f"Written to {out}: embeddings of {count} answers by {encoder.identity.id}."
    tell(json, {"path": str(out), "encoder": encoder.identity.id, "texts": count}, said)


@dataclass(frozen=True, slots=True)
class AboutOptions:
    """What the report is about, and who signs it."""

    system: str | None = opt.option("NAME", "The system that the report is about, as it is to be shown.")
    system_version: str | None = opt.option("TEXT", "Its version.")
    provider: str | None = opt.option("NAME", "Who provides it.")
    signatory: str | None = opt.option("NAME", "Who answers for the report, with their function.")
    sign_with: Path | None = opt.option(
        "FILE", "Sign the report with this private key of `streamer audit keygen`."
    )

    def said(self) -> dict[str, str | None]:
        """Return what the report says as it was given."""
        found: dict[str, str | None] = asdict(self) | {"version": self.system_version}
        return {name: found[name] for name in ("system", "version", "provider", "signatory")}


@opt.in_groups
def report(
    *,
    framework: str = opt.option(
        "NAME", "Framework of the clauses: eu-ai-act, iso-42001, nist-ai-rmf or soc2.", ...
    ),
    out: Path = opt.option("FOLDER", "A new folder for the report.", ...),
    since: str | None = opt.option(
        "TIME",
        "Start of the period: a date like 2026-01-01, in UTC, or how far back, like 90d. Default: all of it.",
    ),
    until: str | None = opt.option("TIME", "End of the period, likewise. Default: now."),
    gates: list[str] | None = opt.option("GATE", "Only this gate; may be repeated.", None, "--gate"),
    bundle: Path | None = opt.option("PATH", "Report on this bundle and need no database."),
    texts: bool = opt.flag("--texts/--no-texts", "Put prompts and answers into the bundle."),
    salts: bool = opt.flag("--salts/--no-salts", "Reveal the salts of audit draws in the bundle."),
    about: AboutOptions,
    pdf: bool = opt.flag("--pdf/--no-pdf", "Write a PDF file, too.", True),
    segment: SegmentsOption = None,
    checkpoints: CheckpointsOption = None,
    public_key: KeysOption = None,
    json: opt.JsonOption = False,
) -> None:
    """Write what the record shows for each clause of a framework, and what it does not show.

    The folder gets report.html, report.pdf, report.json and bundle.zip. Every figure is derived from the bundle alone:
    verify.pyz --report derives each again and names any that differs. It is material for an assessment, not the
    assessment. Exit status 3 if the record does not verify; the report says so, too.
    """
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
    beside = [] if bundle is None else segment or []
    with _whole(out):
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
            segments=wiring.segments(beside),
        )
        written = write_report(found, out, pdf=pdf, signer=signer)
    faults = found["figures"]["verification"]["value"]["faults"]
    if json:
        print_json({"files": [str(one) for one in written], "bundle": str(made), "report": found})
    else:
        for one in written:
            say(str(one))
        given = " --segment ".join(map(str, (made, *beside)))
        say(f"verify.pyz {given} --report {written[0]} derives every figure again.")
        note("It names people who labelled, approved and acknowledged: give it to whom these may be shown.")
        if faults:
            found_faults = counted(faults, "fault was", "faults were")
            say(f"{found_faults} found; verify.pyz, with this bundle, names each.")
    if faults:
        raise typer.Exit(FOUND)


@contextmanager
def _whole(folder: Path) -> Iterator[None]:
    """Remove what came into an empty or new folder where it does not become whole."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for one in folder.iterdir():
                one.unlink()
            folder.rmdir()
        raise


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
        with cannot(f"write {bundle.parent}"):
            bundle.parent.mkdir(parents=True, exist_ok=True)
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
