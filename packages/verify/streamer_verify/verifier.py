"""The record as a whole: the logs of partitions with what stands in them, and where all logs end."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from streamer_verify.checkpoints import MOST_FAULTS, Chain
from streamer_verify.decisions import Decisions
from streamer_verify.logs import Log
from streamer_verify.values import (
    HTTP_LOG,
    base64_as_hex,
    canonical_json,
    given_out_of,
    line_of_segment,
    log_of,
    sha256,
)


class Read(NamedTuple):
    """A line verified by itself: what it saw of the control log, its name, and more for `in_order`."""

    line: dict[str, Any]
    control: list[Any] | None
    place: str
    later: dict[str, Any]


class Verifier(Decisions):
    """Takes the parts of a bundle in turn (`checkpoints`, `control`, `outcomes`, `unchained`, `heads`) and collects what does not fit.

    `keys` are public keys, 32 bytes each, that checkpoints may be signed with; `verify_signature`, `derive`, `canonical` and
    `parse` may be replaced by faster or fuller ones of the same form. `faults` are dicts with `check`, `place` and `detail`, in
    the order in which they were found; `notes` say what could not be checked, and why, `counts` how much was checked;
    `left_out` is what a bundle says that it has not, as in its manifest, and None for what is no bundle.
    """

    def __init__(self, keys: Sequence[bytes], **replaced: Callable[..., Any]) -> None:
        super().__init__(keys, **replaced)
        self._ends: dict[Chain, tuple[Log, int]] = {}
        self._said: dict[Chain, int] = {}
        self._holes: dict[Chain, tuple[int, int]] = {}
        self._given: dict[tuple[int, Chain], Log] = {}
        self._unread: Counter[int] = Counter()  # by what gave them out

    def outcomes(self, lines: Iterable[dict[str, Any]]) -> None:
        """Verify the logs of outcomes, which come partition by partition."""
        self.in_order(self.by_itself(lines))

    def by_itself(self, lines: Iterable[dict[str, Any]]) -> Iterator[Read]:
        """Verify what each line says, whatever came before it."""
        for line in lines:
            facts, index, source = line.get("facts"), line["index"], tuple(line["source"][:3])
            place = f"{source[1]}[{source[2]}], leaf {index}, offset {line['source'][3]}"
            self._later = {}
            if facts is None:
                if "given_out" not in line:
                    self._not_read(line, place, line.get("missing", "what it is about is missing"))
                elif not self._was_given_out(line):
                    self._not_read(line, place, "it was not given out, as is said of it")
            else:
                if line["kind"] == "decision":
                    place += " ({}/{}#{})".format(*facts["batch"])
                sealed = {
                    "kind": line["kind"], "source": line["source"], "index": index,
                    "recorded_at": line["recorded_at"], "facts": facts,
                }  # fmt: skip
                if sha256(b"\x00" + self._canonical(sealed)) != line["leaf"]:
                    self.fault("log", place, f"the {line['kind']} is not what was recorded")
                self._about(line, facts, place)
                if "given_out" in line and facts["sampled"]:
                    self.fault("log", place, "it was drawn, which is not given out")
            if self._events and (facts is not None or "given_out" not in line):
                self._receipt_of(source, index, line, place)
            yield Read(line, None if facts is None else facts["control"], place, self._later)

    def in_order(self, lines: Iterable[Read]) -> None:
        """Verify lines against those before them: the logs they form, and what may occur once."""
        at: Chain | None = None
        log, last = Log(), -1
        self.counts["outcomes"] += 0  # none is a finding, too
        for line, control, place, later in lines:
            source = tuple(line["source"][:3])
            name, offset, index = f"{source[1]}[{source[2]}]", line["source"][3], line["index"]
            if source != at:
                if at is not None:
                    self._ends[at] = (log, last)
                if source in self._ends:
                    self.fault("log", name, "its outcomes are not in one piece")
                at, (log, last) = source, self._begin(source)
                self._lost.get(source, []).sort()
                self._mark(source, log, name)
            if index != log.size:
                self.fault("log", f"{name}, leaf {log.size}", f"it is missing (the next is {index})")
                log = Log(index + 0, whole=False)
            here = f"{name}, leaf {index}, offset {offset}"
            if offset <= last:
                self.fault("log", here, f"its offset does not come after {last}")
            self._hole(source, last + 1, offset, here)
            self._clock(source, name, line["recorded_at"], here)
            if control is not None:
                self._how_far(source, index, control, place)
            if later:
                self._once(later, place)
            self._append(source, log, line, place)
            if (number := line.get("given_out")) is not None:
                self._given.setdefault((number, source), Log()).append(_left_by(line))
                self._unread[number] += control is None
            last = offset
            self.counts["outcomes"] += 1
        if at is not None:
            self._ends[at] = (log, last)

    def forget_order(self) -> None:
        """Forget what was found, and what only `in_order` needs, which is most of a long record."""
        self._marks, self._committed, self._kept, self._receipts, self._read_at = {}, {}, {}, [], {}
        self._ends, self._edges, self._control_roots = {}, {}, {}
        self._decided, self._waits, self._came = set(), [], set()
        self.part()

    def part(self) -> tuple[list[dict[str, str]], dict[str, str], Counter[str], Counter[str]]:
        """Give out what `by_itself` has found since the last time."""
        found = self.faults, self.notes, self.counts, self._early
        self.faults, self.notes, self.counts, self._early = [], {}, Counter(), Counter()
        return found

    def repeat(self, faults: Iterable[dict[str, str]]) -> None:
        """Remember faults that were counted elsewhere."""
        self.faults = [*self.faults, *faults][:MOST_FAULTS]

    def add(self, notes: dict[str, str], counts: Counter[str], early: Counter[str]) -> None:
        """Add what was found elsewhere beside faults."""
        self.notes.update(notes)
        self.counts.update(counts)
        self._early.update(early)

    def _how_far(self, chain: Chain, index: int, control: list[Any], place: str) -> None:
        """Check what a leaf says of the control log as its transaction saw it: its size and its root.

        So whoever has a receipt, or a checkpoint, of the leaf holds the control log to account as well. It is read once the
        partition is locked, so that it never falls along a log; and a head has read where all logs were at one moment.
        """
        before, (size, root) = self._said.get(chain), control
        there = self._control_size
        if size <= there and root != (self._control_roots.get(size) or root):
            self.fault("order", place, f"it saw other {size} control leaves than there are")
        if before is not None and size < before:
            self.fault(
                "order", place, f"it saw {size} control leaves, and a leaf before it saw {before} already"
            )
        if size > there:
            self.fault("order", place, f"it saw {size} control leaves, and there are {there}")
        if (covering := self._marks.get(chain)) is not None:
            at = bisect_left(covering.sizes, index + 1)
            if at < len(covering.sizes) and size > (saw := covering.controls[at]):
                covers = f"checkpoint {covering.numbers[at]} covers it and saw {saw} control leaves"
                self.fault("order", place, f"{covers}, it says {size}")
        self._said[chain] = max(size, before or 0)

    def _was_given_out(self, line: dict[str, Any]) -> bool:
        """Whether a decision without content is among leaves of which decisions were given out."""
        row = self.row("give_outs", line.get("given_out"))
        return row is not None and line_of_segment(row["logs"], line) is not None

    def given_out_since(
        self, number: int, lines: Callable[[Chain, int, int], Iterable[dict[str, Any]]]
    ) -> None:
        """Take what left by a row that is younger than `begin_behind`; before `outcomes`.

        `lines` : read a log from one leaf up to before another.
        """
        row = self.row("give_outs", number) or {"logs": "[]"}
        for chain, (first, end, *_) in given_out_of(row["logs"]).items():
            if first < (begins := self._begins.get(chain, (0,))[0]):
                log = self._given[number, chain] = Log()
                for line in lines(chain, first, min(end, begins)):
                    if line.get("given_out") == number:
                        log.append(_left_by(line))

    def _end_of_given_out(self) -> None:
        """Compare what was given out with what is on record of it, and say what was not read."""
        for (number,), row in self.rows("give_outs").items():
            for chain, (first, end, count, root, _) in given_out_of(row["logs"]).items():
                log = self._given.get((number, chain))
                if log is None and first < self._begins.get(chain, (0,))[0]:
                    continue  # compared before
                log = log or Log()
                if (log.size, log.root()) != (count, root):
                    gone = f"other decisions are gone than were given out through {row['through']}"
                    place = f"{chain[1]}[{chain[2]}], leaves {first} to {end - 1}"
                    how = (
                        f"{log.size}, not {count}"
                        if log.size != count
                        else "their keys or moments are not those"
                    )
                    self.fault("log", place, f"{gone}: {how}")
            if unread := self._unread[number]:
                self.counts["decisions given out, not read"] += unread
                self.notes[f"given out {number}"] = (
                    f"{unread} decisions through {row['through']}: they were given out in"
                    f" {row['file']}, SHA-256 {row['sha256']}; --segment reads it"
                )

    def _hole(self, chain: Chain, first: int, end: int, place: str) -> None:
        """Count the offsets from `first` to `end` - 1, which have no outcome, and are not recorded as lost either."""
        missing = end - first
        for start, stop in self._lost.get(chain, []) if missing > 0 else ():
            missing -= max(0, min(stop, end) - max(start, first))
        if missing <= 0:
            return
        if chain[0] == HTTP_LOG:
            said = f"{missing} requests before it have no outcome: they are numbered without holes"
            self.fault("order", place, said)
            return
        count, at = self._holes.get(chain, (0, first))
        self._holes[chain] = count + missing, at

    def _about(self, line: dict[str, Any], facts: dict[str, Any], place: str) -> None:
        if line["kind"] == "decision":
            self._decision(line, facts, place)
        elif line["kind"] in ("dead_letter", "conflict"):
            self._seal_of_letter(line, facts, place)
        elif line["kind"] == "label":
            self._label(facts, line.get("effective_at"), place)

    def _seal_of_letter(self, line: dict[str, Any], facts: dict[str, Any], place: str) -> None:
        content = line.get("content")
        if content is None:
            self._erased(line, line["recorded_at"], place)
        else:
            key, value = (base64_as_hex(content[name]) for name in ("key", "value"))
            sealed = [key, value, content["headers"], content["detail"]]
            if not self.is_sealed(content, sealed, facts["content_mac"]):
                self.fault("seal", place, "the refused bytes, headers or detail were changed")

    def unchained(self, rows: Iterable[dict[str, Any]]) -> None:
        """Rows, or columns of rows, that are in the tables and in no log, or say otherwise than it."""
        for row in rows:
            place = f"{row['kind']} {row['subject']}"
            if row["kind"].endswith(".erased_at"):
                self.fault("erasure", place, "it is said to be erased, and its content is there")
            elif row["kind"] == "desk_items":
                said = "it does not wait for a person as its decision says: nobody will reject it in time"
                self.fault("desk", place, said)
            else:
                self.fault("log", place, "this row, or what it says of itself, belongs to no log")

    def heads(self, head: dict[str, Any]) -> None:
        """Compare where the logs end with where the record, and the checkpoints, say that they end."""
        known = {log_of(one): one for one in head["partitions"]}
        for chain in sorted({*known, *self._ends, *(one for one in (*self._marks, *self._kept) if one)}):
            name = f"{chain[1]}[{chain[2]}]"
            log, last = self._ends.get(chain) or self._begin(chain)
            if chain not in self._ends:
                self._mark(chain, log, name)
            self._end(chain, name, log, known.get(chain), last)
            if chain in known:
                self._next_offset(chain, name, known[chain]["next_offset"])
                self._hole(chain, last + 1, known[chain]["next_offset"], name)
        for gate, count in sorted(self._early.items()):
            if count:
                self.notes[f"early {gate}"] = (
                    f"{count} batches of {gate} were decided before a checkpoint was committed to its salt"
                )
        for chain, reads in self._read_at.items():
            for size, runs in reads.items():
                for _, _, place in runs:
                    read = f"{size} leaves of {chain[1]}[{chain[2]}]"
                    self.fault("calibration", place, f"it has read {read}, and there are fewer")
        for chain, (count, first) in sorted(self._holes.items()):
            self.notes[f"holes {chain}"] = (
                f"{count} offsets of {chain[1]}[{chain[2]}] have no outcome, the first is {first}: the marks of a publisher's"
                " transactions have none either; --log tells them apart while the topic has them"
            )
        for chain, (count, longest, at) in sorted(self._back.items()):
            self.notes[f"clock {chain}"] = (
                f"the time at which {f'{chain[1]}[{chain[2]}]' if chain else 'the control log'} was recorded steps back"
                f" {count} times, by up to {longest.total_seconds():.0f} s, first at {at}: a clock was wrong, or somebody"
                " wrote it"
            )
        self._end_of_given_out()
        self._end_of_desk()
        self._uncovered(head)


def _left_by(line: dict[str, Any]) -> bytes:
    """The leaf of a decision that was given out: its own, and what stays of it beside that."""
    stays = canonical_json([line["leaf"], line["recorded_at"], line.get("batch")])
    return hashlib.sha256(b"\x00" + stays).digest()
