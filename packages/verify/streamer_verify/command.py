"""The command: ``python3 verify.pyz BUNDLE``."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import streamer_verify
from streamer_verify.alarms import Alarms
from streamer_verify.bundle import Bundle
from streamer_verify.figures import Figures
from streamer_verify.logs import read_witness_keys
from streamer_verify.reports import check_report, check_signature, figures_for, verified_with
from streamer_verify.run_again import check_runs
from streamer_verify.runs import Runs
from streamer_verify.scores import check_scores
from streamer_verify.segments import NO_SEGMENTS, Segments
from streamer_verify.side_by_side import AT_ONCE, Processes
from streamer_verify.signatures import ed25519_verify, read_label_keys, read_public_keys
from streamer_verify.values import strict_json
from streamer_verify.verifier import Verifier


def verify_bundle(
    bundle: Bundle,
    keys: Sequence[bytes],
    outside: Iterable[bytes] | None,
    receipts: Iterable[bytes] | None = None,
    figures: Figures | None = None,
    verify_signature: Callable[[bytes, bytes, bytes], bool] = ed25519_verify,
    policy_keys: Sequence[bytes] = (),
    label_keys: Mapping[str, tuple[str, bytes]] | None = None,
    witnesses: Mapping[str, bytes] | None = None,
    beside: Processes | None = None,
    segments: Segments = NO_SEGMENTS,
) -> Verifier:
    """Verify everything that a bundle holds, against checkpoints and receipts from elsewhere where they are given.

    `beside`, without figures: processes whose readers are `Ranges` of the bundle, and take part.
    `figures` reads along. With `policy_keys` the signatures of policies are verified, with `label_keys` those of the labels that
    runs of gates with signed labels have read, with `witnesses` their cosignatures of checkpoints.
    `segments` : of what was given out.
    """
    if (month := bundle.manifest.get("segment")) is not None:
        raise ValueError(f"it is a segment, through {month}: give a bundle, and it with --segment")
    verifier = Verifier(keys, verify_signature=verify_signature)

    def read() -> Iterator[dict[str, Any]]:
        lines = bundle.values("outcomes.jsonl", verifier.fault)
        yield from segments.filled(lines, verifier.rows("give_outs"))

    verifier.left_out, verifier.witnesses = bundle.manifest["left_out"], witnesses or {}
    if receipts is not None:
        verifier.receipts(receipts, origin="the file", may_be_younger=True)
    for name in bundle.damaged():
        verifier.fault("bundle", name, "it is not the file that was exported")
    if outside is not None:
        verifier.checkpoints(outside, origin="the file", until=bundle.manifest["made_at"])
    else:
        verifier.notes["outside"] = (
            "checkpoints were taken from the bundle itself: its maker could have left out the newest ones"
        )
    verifier.checkpoints(bundle.lines("checkpoints.jsonl"), origin="the bundle", complete=True)
    verifier.log_of_heads(bundle.lines("heads.jsonl"), bundle.manifest["head"]["record_id"])
    head, runs, alarms = bundle.manifest["head"], Runs(verifier, label_keys), Alarms()
    control = alarms.control(runs.control(bundle.values("control.jsonl", verifier.fault)))
    outcomes = alarms.outcomes(runs.outcomes(read()))
    if figures is not None:
        figures.heads(bundle.lines("heads.jsonl"), bundle.lines("checkpoints.jsonl"))
        control, outcomes = figures.control(control), figures.outcomes(outcomes)
    verifier.control(head, control)
    segments.check(verifier)
    verifier.policy_signatures(policy_keys)
    pieces = [(first, AT_ONCE) for first in range(1, bundle.lengths["outcomes.jsonl"] + 1, AT_ONCE)]
    if beside is None:
        verifier.outcomes(outcomes)
    else:
        beside.outcomes(pieces, verifier, runs, alarms)
    verifier.unchained(bundle.values("unchained.jsonl", verifier.fault))
    verifier.heads(head)
    check_runs(runs, bundle.values("control.jsonl"))
    alarms.check(runs)
    if beside is None:
        runs.check_budgets(read())
    else:
        beside.check_budgets(pieces, verifier, runs)
    return verifier


class Ranges:
    """Reads ranges of a bundle's outcomes: the first line, and how many."""

    def __init__(self, path: Path, segments: Segments = NO_SEGMENTS) -> None:
        self._bundle, self._segments = Bundle(path), segments
        self._lines: Iterator[tuple[int, bytes]] = iter(())
        self._next = sys.maxsize

    @property
    def at(self) -> str:
        """What is being read."""
        return self._bundle.at

    def outcomes(
        self, piece: tuple[int, int], verifier: Verifier, known: None, *, again: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Yield the lines of a range."""
        (first, count), name = piece, "outcomes.jsonl"
        if first < self._next:
            self._lines, self._next = enumerate(self._bundle.lines(name), 1), 1
        some = itertools.islice(self._lines, first - self._next, first - self._next + count)
        self._next = first + count
        lines = self._bundle.some_values(name, some, verifier.fault, again=again)
        yield from self._segments.filled(lines, verifier.rows("give_outs"))


def complete_lines(data: bytes) -> list[bytes]:
    """Split a file of checkpoints; a last line without an end is one that a crash interrupted."""
    return [line for line in data.split(b"\n")[:-1] if line]


def checkpoint_lines(data: bytes) -> list[bytes]:
    """Split a file of checkpoints; a signed note, as a witness gives it, is one."""
    return complete_lines(data) if data.startswith(b"{") or not data.strip() else [data]


def receipt_lines(data: bytes) -> list[bytes]:
    """Split a file of receipts. A last line without an end was interrupted, unless it is whole."""
    lines = data.splitlines()
    if lines and not data.endswith((b"\n", b"\r")):
        try:
            strict_json(lines[-1])
        except ValueError:
            del lines[-1]
    return [line for line in lines if line.strip()]


def printable(text: str) -> str:
    """Escape what could steer the terminal: names in a record come from others."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


FILES_BESIDE = {
    "--public-key": "PEM file with the public keys that may sign checkpoints",
    "--checkpoints": "checkpoints kept outside the database: one JSON a line, or a signed note",
    "--receipts": "receipts of decisions that somebody kept, one JSON a line",
    "--policy-keys": "PEM file with the public keys that may sign policies",
    "--witness-keys": "keys of witnesses, NAME+HASH+KEY, one a line: say how far each has cosigned the record",
    "--label-keys": "public keys of labellers, each after a line `labeller: NAME`",
    "--report-key": "PEM file with the public keys that may sign the report",
    "--report": "report.json of `streamer audit report`: derive each of its figures again",
    "--embeddings": "embeddings of the answers, one JSON a line, as `streamer audit embed` makes them: derive the scores again",
}
"""The files that an auditor may give besides the bundle."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(description=(streamer_verify.__doc__ or "").partition("\n")[0])
    parser.add_argument("bundle", type=Path, help="folder or .zip made by `streamer audit export`")
    for option, said in FILES_BESIDE.items():
        parser.add_argument(option, type=Path, help=said)
    parser.add_argument(
        "--segment", type=Path, action="append", default=[], metavar="FILE",
        help="decisions that were given out, as `streamer db give-out` wrote them; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="how many processes verify; 1 with --report"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args(arguments)
    if asked.jobs < 1 or (asked.jobs > 1 and asked.report is not None):
        parser.error("--jobs must be at least 1, and 1 with --report, which is read by one process")
    reading, bundle, beside = asked.public_key, None, None

    def read(path: Path | None, how: Callable[[Path], Any], otherwise: Any = None) -> Any:
        nonlocal reading
        reading = path
        return otherwise if path is None else how(path)

    try:
        keys = read(asked.public_key, lambda path: read_public_keys(path.read_text("ascii")), [])
        outside = read(asked.checkpoints, lambda path: checkpoint_lines(path.read_bytes()))
        receipts = read(asked.receipts, lambda path: receipt_lines(path.read_bytes()))
        policy_keys = read(asked.policy_keys, lambda path: read_public_keys(path.read_text("ascii")), [])
        label_keys = read(asked.label_keys, lambda path: read_label_keys(path.read_text("utf-8")))
        witnesses = read(asked.witness_keys, lambda path: read_witness_keys(path.read_text("utf-8")))
        report_keys = read(asked.report_key, lambda path: read_public_keys(path.read_text("ascii")), [])
        report = read(asked.report, lambda path: strict_json(path.read_bytes()))
        figures = None if report is None else figures_for(report)
        reading = next(iter(asked.segment), None)
        segments = Segments(asked.segment)
        reading = asked.bundle
        bundle = Bundle(asked.bundle)
        make = partial(Ranges, asked.bundle, segments)
        with nullcontext() if asked.jobs == 1 else Processes(asked.jobs, make) as beside:
            verifier = verify_bundle(
                bundle, keys, outside, receipts, figures,
                policy_keys=policy_keys, label_keys=label_keys, witnesses=witnesses, beside=beside,
                segments=segments,
            )  # fmt: skip
        if report is not None and figures is not None:
            check_report(report, figures, bundle, verifier, verified_with(keys, outside))
            if report_keys:
                check_signature(asked.report, report_keys, verifier)
            else:
                verifier.notes["report key"] = "who signed the report: no --report-key was given"
        if asked.embeddings is not None:
            bundle.at = "the embeddings"
            with asked.embeddings.open("rb") as lines:
                check_scores(bundle, verifier, lines, segments)
    except Exception as error:  # any error that a hostile bundle raises is reported in one line
        at = None if bundle is None else (beside and beside.at) or bundle.at
        place = reading if at is None else f"{reading}, {at}"
        what = isinstance(error, OSError) and error.strerror
        sys.stderr.write(
            printable(f"cannot read {place}: {what or f'{type(error).__name__}: {error}'}") + "\n"
        )
        return 2
    if asked.json:
        report = {
            "faults": verifier.faults,
            "notes": list(verifier.notes.values()),
            "counts": verifier.counts,
        }
        sys.stdout.write(json.dumps(report) + "\n")
    else:
        for fault in verifier.faults:
            sys.stdout.write(printable(f"DOES NOT FIT  {fault['place']}: {fault['detail']}") + "\n")
        for note in verifier.notes.values():
            sys.stdout.write(printable(f"not checked   {note}") + "\n")
        for name, count in sorted(verifier.counts.items()):
            sys.stdout.write(f"{count:>12}  {name}\n")
        sys.stdout.write("Something does not fit.\n" if verifier.faults else "Everything fits.\n")
    return 3 if verifier.faults else 0
