"""A report against the bundle that it was made from, and the signature beside it."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from streamer_verify.bundle import Bundle
from streamer_verify.figures import Figures
from streamer_verify.signatures import dsse, ed25519_verify
from streamer_verify.values import canonical_json, same_json, sha256, strict_json
from streamer_verify.verifier import Verifier

REPORT = "streamer.report.v1"

SIGNATURE = "report.dsse.json"
"""The signature over the files of a report, beside them: an in-toto statement in a DSSE envelope."""

IN_TOTO = "application/vnd.in-toto+json"


def verified_with(keys: Sequence[bytes], outside: Sequence[bytes] | None) -> dict[str, Any]:
    """Say by which public keys, and against which checkpoints from elsewhere, a bundle was verified."""
    return {
        "keys": sorted(sha256(key) for key in keys),
        "checkpoints": None if outside is None else {"lines": len(outside), "sha256": sha256(b"\n".join(outside))},
    }  # fmt: skip


def figures_for(report: dict[str, Any]) -> Figures:
    """Return what derives the figures that a report has. Raises `ValueError` or `KeyError` when it is none."""
    if report.get("format") != REPORT:
        raise ValueError(f"it is not of the form {REPORT}")
    period = report["period"]
    return Figures(period["since"], period["until"], report["gates"])


def compare_report(
    report: dict[str, Any], bundle: Bundle, derived: dict[str, dict[str, Any]], given: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Name each figure of a report that does not follow from the bundle: which it is, and what is wrong."""
    if report["bundle"] != bundle.digest:
        yield "bundle", f"it was made from another bundle, whose manifest has the SHA-256 {report['bundle']}"
    if report["made_at"] != bundle.manifest["made_at"]:
        yield "made_at", f"the bundle was made at {bundle.manifest['made_at']}"
    said = report["figures"]
    for name in sorted(said.keys() - derived.keys()):
        yield name, "no such figure follows from the bundle"
    for name, one in sorted(derived.items()):
        if name not in said:
            yield name, "it is missing"
            continue
        for part in sorted(one.keys() | said[name].keys()):
            if name == "unchecked" and part == "value" and report["verified_with"] != given:
                continue
            if part not in said[name] or part not in one:
                yield name, f"its {part} is missing or unknown"
            elif not same_json(said[name][part], one[part], 1e-9):
                shown = canonical_json(one[part]).decode()
                shown = shown if len(shown) <= 300 else f"{shown[:300]} ..."
                yield name, f"its {part} differs: from the bundle follows {shown}"
    for clause in report["clauses"]:
        for name in clause["shows"]:
            if name not in derived:
                refers = f"it refers to the figure {name}, which does not follow from the bundle"
                yield f"clause {clause['clause']}", refers


def check_report(
    report: dict[str, Any], figures: Figures, bundle: Bundle, verifier: Verifier, given: dict[str, Any]
) -> None:
    """Compare a report with the bundle that was just verified while `figures` read along; differences become faults."""
    bundle.at = "the report"
    derived = figures.result(bundle, verifier)
    differing = list(compare_report(report, bundle, derived, given))
    verifier.counts["figures derived again"] += len(derived)
    verifier.notes["words"] = (
        "what the report says beside its figures, and its HTML and PDF files: `streamer audit report --bundle` makes them again"
    )
    if report["verified_with"] != given:
        verifier.notes["report"] = (
            "the list of what was not checked, in the report: it was made with other keys or checkpoints than were given now"
        )
    for name, detail in differing:
        verifier.fault("report", f"report, {name}", detail)


def check_signature(report: Path, keys: Sequence[bytes], verifier: Verifier) -> None:
    """Verify the signature beside a report, over each of its files that lies there; a fault where it is not good."""
    known = {sha256(key): key for key in keys}
    try:
        envelope = strict_json(report.with_name(SIGNATURE).read_bytes())
        payload = base64.b64decode(envelope["payload"], validate=True)
        signed = dsse(envelope["payloadType"], payload)
        good = envelope["payloadType"] == IN_TOTO and any(
            ed25519_verify(known.get(one["keyid"], b""), signed, base64.b64decode(one["sig"], validate=True))
            for one in envelope["signatures"]
        )
        digests = {Path(one["name"]).name: one["digest"]["sha256"] for one in strict_json(payload)["subject"]}
    except OSError:
        verifier.fault("report", SIGNATURE, "it is not beside the report, which nobody has signed then")
        return
    except (ValueError, TypeError, LookupError, AttributeError):
        verifier.fault("report", SIGNATURE, "it is no signature of a report")
        return
    if not good:
        verifier.fault("report", SIGNATURE, "no trusted key has signed it")
        return
    for name in sorted({report.name, *digests}):
        file = report.with_name(name or report.name)
        if file.is_file() and sha256(file.read_bytes()) != digests.get(name):
            verifier.fault("report", name, "it is not the file that was signed")
    verifier.counts["report signatures"] += 1
