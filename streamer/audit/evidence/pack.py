"""`audit report`: from a bundle to figures, and from figures to a report that the verifier derives again."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from streamer.audit import signing
from streamer.audit.bundle import reading
from streamer.audit.evidence.document import document_of
from streamer.audit.evidence.framework import FAMILIES, NEVER_SHOWN, Framework
from streamer.audit.evidence.page import page_of
from streamer.errors import UsageError
from streamer.signing.canonical_json import dsse, moment_text
from streamer_verify.bundle import Bundle
from streamer_verify.command import verify_bundle
from streamer_verify.figures import Figures
from streamer_verify.pyz import archive
from streamer_verify.reports import IN_TOTO, REPORT, SIGNATURE, verified_with
from streamer_verify.segments import NO_SEGMENTS, Segments
from streamer_verify.values import EPOCH, canonical_json, sha256

NOTHING_SAID = dict.fromkeys(("system", "version", "provider", "signatory"))
JSON, PAGE, PDF, BUNDLE = "report.json", "report.html", "report.pdf", "bundle.zip"
"""What the files of a pack are called."""


def make_report(
    bundle: Path,
    framework: Framework,
    *,
    since: datetime | None,
    until: datetime | None,
    gates: Sequence[str] | None = None,
    keys: Sequence[bytes] = (),
    outside: Sequence[bytes] | None = None,
    about: Mapping[str, str | None] = NOTHING_SAID,
    signed_with: str | None = None,
    segments: Segments = NO_SEGMENTS,
) -> dict[str, Any]:
    """Verify a bundle and derive a report from it, and from nothing else: the same bundle gives the same report.

    The period of decisions and events has `since` in it and `until` not; None: from the beginning, until the bundle was made.
    `gates` None: every gate. Keys and outside checkpoints are what `verify_bundle` takes; `segments` have what was given out.
    `about` has system, version, provider and signatory, as whoever asks for the report gives them, and `signed_with` the id of
    the key that `write_report` gets. Raises `UsageError` when the bundle cannot be read, a gate is not on record, or the period
    is empty.
    """
    with reading(bundle) as opened:
        begins, ends = moment_text(since or EPOCH), moment_text(until or _made_at(opened))
        if begins >= ends:
            raise UsageError(f"the period is empty: it begins at {begins} and ends at {ends}")
        figures = Figures(begins, ends, gates)
        with_them: dict[str, Any] = {"verify_signature": signing.verify, "segments": segments}
        verifier = verify_bundle(opened, keys, outside, figures=figures, **with_them)
        found = figures.result(opened, verifier)
    unknown = [name for name in gates or () if f"decisions/{name}" not in found]
    if unknown:
        raise UsageError(f"the record has no gate {unknown[0]}")
    return {
        "format": REPORT,
        "framework": {name: getattr(framework, name) for name in ("name", "title", "edition", "applies")},
        "about": {**NOTHING_SAID, **about},
        "signed_with": signed_with,
        "made_at": opened.manifest["made_at"],
        "period": {"since": begins, "until": ends},
        "gates": None if gates is None else sorted(gates),
        "bundle": opened.digest,
        "verified_with": verified_with(keys, outside),
        "segments": segments.names(),
        "verifier": sha256(archive()),
        "clauses": [
            {
                "clause": one.number,
                **{name: value for name, value in asdict(one).items() if name not in ("number", "shows")},
                "shows": in_order(found, one.shows),
            }
            for one in framework.clauses
        ],
        "does_not_show": list(NEVER_SHOWN),
        "figures": found,
    }


def write_report(
    report: dict[str, Any], folder: Path, *, pdf: bool = True, signer: signing.Signer | None = None
) -> list[Path]:
    """Write a report into a folder as JSON, HTML and PDF, with a signature over these, and return what was written.

    Raises `UsageError` when a file cannot be written, or the package that makes PDF files is
    missing.
    """
    text = json.dumps(report, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    document = document_of(report)
    written = {JSON: text.encode(), PAGE: page_of(document).encode()}
    if pdf:
        from streamer.audit.evidence.pdf import pdf_of

        written[PDF] = pdf_of(document)
    if signer is not None:
        written[SIGNATURE] = _signature(report, written, signer)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in written.items():
            (folder / name).write_bytes(data)
    except OSError as error:
        raise UsageError(f"cannot write {error.filename or folder}: {error.strerror or error}") from error
    return [folder / name for name in written]


def _signature(report: dict[str, Any], files: dict[str, bytes], signer: signing.Signer) -> bytes:
    """Sign the files as an in-toto statement in a DSSE envelope, which tools of others verify too."""
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": sha256(data)}} for name, data in files.items()],
        "predicateType": f"urn:{REPORT}",
        "predicate": {**report["about"], "bundle": report["bundle"], "made_at": report["made_at"]},
    }
    payload = canonical_json(statement)
    envelope = {
        "payloadType": IN_TOTO,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": signer.key_id, "sig": signer.sign(dsse(IN_TOTO, payload))}],
    }
    return canonical_json(envelope) + b"\n"


def in_order(figures: dict[str, Any], families: Sequence[str]) -> list[str]:
    """Name the figures of some families in the order of a report: by family, then by gate."""
    return [
        name
        for family in FAMILIES
        if family in families
        for name in sorted(figures)
        if name.partition("/")[0] == family
    ]


def _made_at(bundle: Bundle) -> datetime:
    try:
        return datetime.fromisoformat(bundle.manifest["made_at"])
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError("the manifest of the bundle does not say when it was made") from error
