"""`audit verify`: the whole record derived again from its tables, against checkpoints kept elsewhere."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from typing import Any, Protocol

import msgspec

from streamer.audit import signing
from streamer.audit.marks_again import check_marks
from streamer.audit.reached import Reached
from streamer.audit.rederive import ActionRules, contradiction
from streamer.audit.rescoring import Rescorer
from streamer.errors import Unreadable, UsageError
from streamer.gates.policy import GateRevision
from streamer.labels.signing import LabellerKey
from streamer.recalibration.sampled import SampledGroup
from streamer.signing.canonical_json import canonical_json
from streamer_verify.alarms import Alarms
from streamer_verify.all_signals import wrong_budget
from streamer_verify.command import checkpoint_lines as checkpoint_lines
from streamer_verify.command import receipt_lines as receipt_lines
from streamer_verify.forms import formed
from streamer_verify.logs import Log
from streamer_verify.run_again import check_runs
from streamer_verify.runs import Runs
from streamer_verify.segments import Segments as Segments
from streamer_verify.side_by_side import AT_ONCE
from streamer_verify.side_by_side import Processes as Processes
from streamer_verify.values import place_of, row_name, strict_json
from streamer_verify.verifier import Verifier

_decode = msgspec.json.Decoder().decode


class Snapshot(Protocol):
    """The record at one moment, as evidence; docs/audit.md has the form of the lines."""

    @property
    def segments(self) -> Segments:
        """The files that have what was given out, as far as they are read."""
        ...

    def head(self) -> dict[str, Any]:
        """Which record this is, and where each of its logs ends."""
        ...

    def control(self, kind: str | None = None) -> Iterator[dict[str, Any]]:
        """Every leaf of the control log; those of one kind where one is named."""
        ...

    def outcomes(self) -> Iterator[dict[str, Any]]:
        """Every outcome, partition by partition, in the order of its log."""
        ...

    def ranges(self, after: Mapping[tuple[Any, ...], int], lines: int) -> Iterator[tuple[Any, ...]]:
        """What `outcomes` yields, from a leaf on where one is named, in ranges of so many lines."""
        ...

    def within(self, piece: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
        """The outcomes of one of `ranges`, in the order of its log."""
        ...

    def heads(self, first: int = 0) -> Iterator[bytes]:
        """What each leaf of the log of heads is the hash of, from one on."""
        ...

    def checkpoints(self) -> Iterator[bytes]:
        """The newest checkpoint, where there is one."""
        ...

    def unchained(self) -> Iterator[dict[str, Any]]:
        """Rows that belong to no log."""
        ...

    def not_evidence(self) -> dict[str, str]:
        """Each table or column that is in no log, and why."""
        ...

    def scored_later(self) -> Iterator[dict[str, Any]]:
        """Batches that got an adopted candidate's scores, or a row by its list of signals, after they were decided.

        Each has ``scorer``, ``batch`` (gate, batch id, attempt), ``judged``, ``encoder``, ``encoded`` (a worker's encoder made its
        embeddings), and ``texts``, ``models`` and ``scores`` by position; an erased text is None. For a row ``scores`` is None, and
        ``row`` what it is and what it was made of.
        """
        ...


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that does not fit: what kind of check found it, where, and what is wrong, in words."""

    check: str
    place: str
    detail: str


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """What a verification found.

    `faults` are the first ones, in the order of the record; `counts` has their total number, and how much was checked; `notes`
    say what could not be, and why. `reached` is None where something does not fit, or there is no checkpoint.
    """

    faults: tuple[Fault, ...]
    notes: tuple[str, ...]
    counts: Mapping[str, int]
    reached: Reached | None

    def plus(
        self, faults: Iterable[Fault], notes: Iterable[str], counts: Mapping[str, int]
    ) -> "VerificationReport":
        """Add what another check found."""
        both = Counter(self.counts)
        both.update(counts)  # unlike +, keeps what is 0
        found = dict(sorted(both.items()))
        return replace(self, faults=(*self.faults, *faults), notes=(*self.notes, *notes), counts=found)


@dataclass(frozen=True, slots=True)
class Trusted:
    """Public keys, 32 bytes each: of checkpoints, policies, and of witnesses, who cosign checkpoints.

    `labels` has whose labels which key signs, by its id; None: which labels gates with signed labels have read is not checked.
    """

    checkpoints: Sequence[bytes]
    policies: Sequence[bytes] = ()
    labels: Mapping[str, LabellerKey] | None = None
    witnesses: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lookups:
    """What the record says of a gate's revisions, and of what a run has read, in order of decision; looked up meanwhile."""

    revisions: Callable[[str], Sequence[GateRevision]]
    inputs: Callable[[int], Sequence[SampledGroup]]


def verify_record(
    snapshot: Snapshot,
    *,
    trusted: Trusted,
    outside: tuple[Sequence[bytes], str] | None,
    lookups: Lookups,
    rescorer: Rescorer | None = None,
    since: Reached | None = None,
    receipts: tuple[Iterable[bytes], str] | None = None,
    progress: Callable[[int], None] = lambda _done: None,
    beside: Processes | None = None,
) -> VerificationReport:
    """Verify a record by its `snapshot`, which was opened after `outside` was read.

    `outside` are checkpoints from where whoever can write the database cannot, and where these come from, in words; None: the
    database's own are used. `receipts` likewise, of decisions, as `Verifier.receipts` reads them. `rescorer` scores stored
    texts again, and has judges' marks read again from their stored words; None: scores are taken as they are. Outcomes and
    calibration runs before `since`, where an earlier verification ended, are not read again. `progress` is called with how
    many outcomes are done. `beside` are processes that take part, each with a `RecordReader` of this moment; no `rescorer`.
    """
    rules = ActionRules(cache(lookups.revisions), lookups.inputs)
    faster: dict[str, Any] = {
        "verify_signature": signing.verify,
        "canonical": canonical_json,
        "parse": _parsed,
        "write": msgspec.json.encode,
    }
    verifier = Verifier(trusted.checkpoints, derive=rules, **faster)
    verifier.witnesses = trusted.witnesses
    reached: Reached | None = None
    if outside is None:
        verifier.notes["outside"] = (
            "the checkpoint was taken from the database itself: whoever can change the record could have put an older one there;"
            " give --checkpoints"
        )
    else:
        verifier.checkpoints(outside[0], origin=outside[1])
    if receipts is not None:
        verifier.receipts(receipts[0], origin=receipts[1])
    try:
        verifier.checkpoints(snapshot.checkpoints(), origin="the database", complete=True)
        head = snapshot.head()
        if since is not None and since.record_id != head["record_id"]:
            verifier.fault(
                "checkpoint", "the record", f"an earlier verification was of the record {since.record_id}"
            )
            since = None
        seen = None if since is None else (since.size, since.root)
        before, heads = _heads(snapshot, since)
        verifier.log_of_heads(heads, head["record_id"], seen=seen, before=before)
        after = _not_again(since, verifier)
        runs, alarms = Runs(verifier, trusted.labels), Alarms()
        control = _calibrated_again(
            formed("control", snapshot.control(), verifier.fault), verifier, lookups, rules, after.get((), 0)
        )
        verifier.control(head, alarms.control(runs.control(control)))
        snapshot.segments.check(verifier)
        for line in snapshot.control("give_outs") if after else ():
            if line["index"] >= after[()] and line["row"] is not None:
                verifier.given_out_since(line["row"]["id"], lambda *piece: snapshot.within(piece))
        verifier.policy_signatures(trusted.policies)
        ranges = snapshot.ranges(after, AT_ONCE)
        if beside is not None:
            beside.outcomes(ranges, verifier, runs, alarms, rules, progress)
        else:
            every = chain.from_iterable(map(snapshot.within, ranges))
            lines = formed("outcomes", every, verifier.fault)
            watched = _watched(lines, verifier, rules, rescorer, progress)
            verifier.outcomes(alarms.outcomes(runs.outcomes(watched)))
        if rescorer is not None:
            for line in snapshot.scored_later():
                rescorer.take_later(line, verifier)
            rescorer.finish(verifier)
        verifier.unchained(snapshot.unchained())
        verifier.heads(head)
        if not after:  # else the decisions and labels before the checkpoint were not read
            check_runs(runs, snapshot.control("calibration_runs"), inputs_alone=True)
            alarms.check(runs)
        if (newest := verifier.reached()) is not None and not verifier.faults:
            size, root, edge, edges = newest
            logs = [
                [*place, length, [one.hex() for one in right]] for place, (length, right) in edges.items()
            ]
            reached = Reached(head["record_id"], size, root, [one.hex() for one in edge], logs)
    except UNREADABLE as error:
        verifier.fault(
            "form", _reached(verifier), f"what comes next cannot be read: {type(error).__name__}: {error}"
        )
        verifier.notes["unread"] = "everything behind the row that cannot be read"
    return VerificationReport(
        faults=tuple(Fault(**fault) for fault in verifier.faults),
        notes=tuple(verifier.notes.values()),
        counts=dict(sorted(verifier.counts.items())),
        reached=reached,
    )


class RecordReader:
    """Reads ranges of a record in a process that takes part in its verification.

    `joined` opens the record at a moment that another process named.
    """

    at = "the record"

    def __init__(
        self, joined: Callable[[str | None], AbstractContextManager[Snapshot]], lookups: Lookups
    ) -> None:
        self._joined, self._lookups, self._known = joined, lookups, None
        self._stack = ExitStack()

    def begin(self, moment: str | None) -> None:
        """Open the record; see `Snapshot`."""
        self._snapshot = self._stack.enter_context(self._joined(moment))

    def outcomes(
        self, piece: tuple[Any, ...], verifier: Verifier, known: Any, *, again: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Yield the lines of a range, and verify what decisions needed; `known` is `ActionRules`."""
        if known is not self._known:
            known.look_up(cache(self._lookups.revisions), self._lookups.inputs)
            self._known = known
        lines = self._snapshot.within(piece)
        lines = lines if again else formed("outcomes", lines, verifier.fault)
        return _watched(lines, verifier, known, None, lambda _: None)


def _parsed(value: bytes) -> Any:
    """Read JSON as `strict_json` does, in a third of its time where the fast reader takes it."""
    try:
        return _decode(value)
    except msgspec.MsgspecError:
        return strict_json(value)


UNREADABLE = (
    ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError, UsageError, Unreadable,
)  # fmt: skip
"""What reading a row may raise if its values were not written by the program; a lost connection is none of these."""


def _heads(snapshot: Snapshot, since: Reached | None) -> tuple[Log, Iterator[bytes]]:
    """The log of heads before the last leaf that an earlier verification read, where it still is what it was; else all of it."""
    if since is not None and (last := next(rest := snapshot.heads(since.size - 1), None)) is not None:
        log = Log(since.size - 1, since.heads())
        log.append(hashlib.sha256(b"\x00" + last).digest())
        if log.root() == since.root:
            return Log(since.size - 1, since.heads()), chain([last], rest)
    return Log(), snapshot.heads()


def _not_again(since: Reached | None, verifier: Verifier) -> dict[tuple[Any, ...], int]:
    """Return the sizes up to which logs were verified before; the control log's under `()`."""
    if since is None:
        return {}
    after = verifier.begin_behind(since.edges())
    if after:
        count = sum(size for chain, size in after.items() if chain)
        verifier.notes["not again"] = (
            f"{count} outcomes up to checkpoint {since.size} were verified before, and not read again"
        )
    return after


def _reached(verifier: Verifier) -> str:
    if verifier.counts["outcomes"]:
        return f"outcomes, the first {verifier.counts['outcomes']} of which could be read"
    return f"control, leaf {verifier.counts['control entries']}"


def _calibrated_again(
    lines: Iterable[dict[str, Any]], verifier: Verifier, lookups: Lookups, rules: ActionRules, after: int
) -> Iterator[dict[str, Any]]:
    """Pass the lines on; calibrate each run from a leaf on again once the verifier has seen its line."""
    revisions = cache(lookups.revisions)
    for line in lines:
        yield line
        row = line["row"]
        rules.read(line)
        if line["kind"] != "calibration_runs" or row is None or line["index"] < after:
            continue
        columns = row["candidates"]["columns"]
        candidates = [dict(zip(columns, values, strict=True)) for values in line["candidates"]]
        place = f"control, leaf {line['index']}, {row_name(line['kind'], row)}"
        try:
            gate = next((one for one in revisions(row["gate"]) if one.revision == row["gate_revision"]), None)
        except UsageError:
            gate = None
        if gate is None:
            verifier.fault("policy", place, f"there is no revision {row['gate_revision']} of {row['gate']}")
            continue
        found: str | None
        try:
            served = partial(rules.reading, row["gate"])
            found = contradiction(row, candidates, gate=gate, inputs=lookups.inputs, served=served)
        except UNREADABLE as error:
            found = f"it cannot be calibrated again: {type(error).__name__}: {error}"
        verifier.counts["calibrations derived again"] += 1
        if found is not None:
            verifier.fault("policy", place, found)


def _watched(
    lines: Iterable[dict[str, Any]],
    verifier: Verifier,
    rules: ActionRules,
    rescorer: Rescorer | None,
    progress: Callable[[int], None],
) -> Iterator[dict[str, Any]]:
    for done, line in enumerate(lines, 1):
        yield line
        if line["kind"] == "decision" and line["facts"] is not None:
            said, wrong = line["facts"].get("budget"), None
            try:
                if said != (needed := rules.needed(line["facts"])):
                    wrong = wrong_budget(said, needed)
            except UNREADABLE as error:
                wrong = f"what it needed cannot be read: {type(error).__name__} {error}"
            if wrong is not None:
                verifier.fault("action", place_of(line), wrong)
            verifier.counts["budgets derived again"] += "budget" in line["facts"]
            if rescorer is not None:
                rescorer.take(line, verifier)
                check_marks(line, verifier)
        if done % 100 == 0:
            progress(done)
