"""What signed checkpoints and receipts say of the logs, and the logs against it."""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from streamer_verify.forms import wrong_form
from streamer_verify.logs import WITNESS, Log, Marks, Note, key_hash, read_note
from streamer_verify.signatures import ed25519_verify
from streamer_verify.values import (
    CLOCKS_APART,
    CONTROL,
    canonical_value,
    from_base64,
    log_of,
    sha256,
    sizes_of,
    strict_json,
)

MOST_FAULTS = 100

Chain = tuple[Any, ...]
"""A log: its id, topic and partition; the control log is `()`."""


class Checkpoints:
    """Collects what does not fit, and compares logs with checkpoints and receipts as they are read."""

    def __init__(
        self,
        keys: Sequence[bytes],
        verify_signature: Callable[[bytes, bytes, bytes], bool] = ed25519_verify,
    ) -> None:
        self._keys = list(keys)
        self.signed = verify_signature
        self.faults: list[dict[str, str]] = []
        self.notes: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.left_out: dict[str, Any] | None = None
        self.witnesses: Mapping[str, bytes] = {}
        self._cosigners: dict[tuple[int, str], list[str]] = {}
        # Of each witness its newest head, and the leaves under it.
        self._cosigned: dict[str, tuple[int, int]] = {}
        # Of each size of the log of heads: its root, who says so, and whether that may be younger than the record.
        self._signed: dict[int, list[tuple[str, str, bool, str]]] = {}
        # What contradicts the log, and may have been given up.
        self._apart: list[tuple[str, int, str, str]] = []
        self._origins: dict[str, str] = {}
        self._newest: tuple[int, str, dict[str, Any]] | None = None
        self._edge: list[bytes] = []  # of the log of heads before the newest
        self._remembered: tuple[int, dict[str, Any] | None] = (0, None)
        self._marks: dict[Chain, Marks] = {}
        self._progress: dict[Chain, tuple[int, int]] = {}
        self._receipts: list[tuple[Chain, int, tuple[str, str], str]] = []
        self._rootless: set[Chain] = set()
        self._kept: dict[Chain, dict[int, list[tuple[tuple[str, str], str]]]] = {}
        self._edges: dict[Chain, tuple[int, list[bytes]]] = {}
        self._events: dict[tuple[Chain, int], list[tuple[str, str]]] = {}
        self._may_be_younger = False
        self._committed: dict[str, dict[tuple[str, str], int]] = {}
        self._before: dict[str, dict[Chain, int]] = {}
        self._begins: dict[Chain, tuple[int, list[bytes], int]] = {}
        self._read_at: dict[Chain, dict[int, list[tuple[str, str, str]]]] = {}

    def fault(self, check: str, place: str, detail: str) -> None:
        """Remember that something does not fit."""
        self.counts["faults"] += 1
        if len(self.faults) < MOST_FAULTS:
            self.faults.append({"check": check, "place": place, "detail": detail})

    def _not_read(self, line: dict[str, Any], place: str, gone: str) -> None:
        """A leaf has no content, or none that is of its form."""
        malformed = line.get("malformed")
        self.fault("log" if malformed is None else "form", place, malformed or gone)

    def checkpoints(
        self, values: Iterable[bytes], *, origin: str, complete: bool = False, until: str | None = None
    ) -> None:
        """Read checkpoints from one place, as the topic has them or as signed notes; to be called before `log_of_heads`.

        `complete` says that they are of the record itself. What is verified may be older than those made after the moment
        `until`, and than those that say no moment.
        """
        there = False
        for number, value in enumerate(values, 1):
            try:
                raw = value.startswith(b"{")
                said = canonical_value(value) if raw else {"checkpoint": value.decode()}
                if (wrong := wrong_form("checkpoints", said)) is None:
                    note = read_note(said["checkpoint"])
            except ValueError as error:
                wrong = "", str(error)
            if wrong is not None:
                detail = f"this is not a checkpoint: {wrong[0][1:] or 'it'} {wrong[1]}"
                self.fault("checkpoint", f"{origin}, line {number}", detail)
                continue
            younger = until is not None and not "" < said.get("made_at", "") <= until
            place = f"checkpoint {note.size} ({origin})"
            good = [
                self.signed(key, note.text, signature)
                for name, named, signature in note.signatures
                for key in self._keys
                if (name, named) == (note.origin, key_hash(note.origin, key))
            ]
            if not self._keys:
                self.notes["signatures"] = (
                    "no public key was given: signatures were not checked; give --public-key"
                )
            elif not good or not all(good):
                what = "not good for what it says" if good else "of a key that is not trusted"
                self.fault("signature", place, f"its signature is {what}")
                continue
            there = True
            self._cosignatures(note, place)
            self._origins.setdefault(note.origin, place)
            self._signed.setdefault(note.size, []).append((note.root.hex(), place, younger, note.origin))
        if not complete and not there:
            self.notes["outside"] = (
                f"{origin} has no checkpoint: the one beside the record was taken, and whoever can change it could"
                " have put an older one there"
            )

    def _cosignatures(self, note: Note, place: str) -> None:
        """Remember which trusted witnesses have cosigned a checkpoint (c2sp.org/tlog-cosignature)."""
        for name, named, value in note.signatures:
            key = self.witnesses.get(name)
            if key is None or named != key_hash(name, key, WITNESS):
                continue
            said = b"cosignature/v1\ntime %d\n%b" % (int.from_bytes(value[:8]), note.text)
            if self.signed(key, said, value[8:]):
                self._cosigners.setdefault((note.size, note.root.hex()), []).append(name)
            else:
                self.fault("signature", place, f"the cosignature of {name} is not good for what it says")

    def log_of_heads(
        self,
        lines: Iterable[bytes],
        record_id: str,
        *,
        seen: tuple[int, str] | None = None,
        before: Log | None = None,
    ) -> None:
        """Read the log of heads, up to the newest checkpoint that was read, and compare it with each.

        `seen` : its size and root as an earlier verification has seen it. `before` : the log before the first of `lines`; None: empty.
        """
        if seen is not None:
            place = f"checkpoint {seen[0]} (an earlier verification)"
            self._signed.setdefault(seen[0], []).append((seen[1], place, False, ""))
            self._remembered = seen[0], None
        if not self._signed:
            self.notes.pop("outside", None)  # none was taken from anywhere
            self.notes["checkpoints"] = (
                "there is no checkpoint: a cut-off tail or a log that was recomputed as a whole cannot be detected"
            )
            return
        log, newest, edge = before or Log(), max(self._signed), []
        older = [size for size in self._signed if size <= log.size]
        for size in older:
            del self._signed[size]
        if older:
            self.notes["older"] = (
                f"{len(older)} checkpoints of less than {log.size + 1} heads: only a full run compares them"
            )
        for line in itertools.islice(lines, newest - log.size):
            if log.size + 1 in self._signed:
                edge = list(log.edge)
            log.append(hashlib.sha256(b"\x00" + line).digest())
            facts = self._head(line, log.size, record_id)
            for root, place, _, origin in self._signed.pop(log.size, ()):
                if root != log.root():
                    said = "it was made of another log of heads"
                    self._apart.append((origin, log.size, place, said))
                elif facts is not None:
                    self._newest, self._edge = (log.size, root, facts), edge
                    for name in self._cosigners.get((log.size, root), ()):
                        self._cosigned[name] = log.size, sum(sizes_of(facts).values())
                    if log.size == self._remembered[0]:
                        self._remembered = log.size, facts
        for size, where in sorted(self._signed.items()):
            for _, place, younger, origin in where:
                if younger:
                    self.notes["younger"] = (
                        f"checkpoints beyond the {log.size} heads of the record: they are younger, or the end was cut off"
                    )
                else:
                    said = f"it saw {size} heads, there are {log.size}: the newest were cut off"
                    self._apart.append((origin, size, place, said))
        self.counts["checkpoints"] += 0 if self._newest is None else self._newest[0]

    def _head(self, line: bytes, number: int, record_id: str) -> dict[str, Any] | None:
        """Keep where the logs stood by a leaf of the log of heads."""
        try:
            facts = canonical_value(line)
            if (wrong := wrong_form("heads", facts)) is not None:
                raise ValueError(f"{wrong[0][1:]} {wrong[1]}")
            if (facts["record"], facts["index"]) != (record_id, number - 1):
                raise ValueError("it is of another record, or place")
            control, sizes = facts["control"]["size"], sizes_of(facts)
            places = [((), facts["control"]), *((log_of(one), one) for one in facts["partitions"])]
            for chain, head in places:
                self._marks.setdefault(chain, Marks()).add(head["size"], head["root"], control, number)
                if chain and head["next_offset"] > self._progress.get(chain, (0, 0))[0]:
                    self._progress[chain] = head["next_offset"], number
            for gate in facts["gates"]:
                committed = self._committed.setdefault(gate["gate"], {})
                committed.setdefault((gate["salt"], gate["seed"]), number)
                self._before.setdefault(gate["gate"], sizes)
        except ValueError as error:
            self.fault("checkpoint", f"checkpoint {number}", f"its head is none of this record: {error}")
            return None
        return facts

    def _mark(self, chain: Chain, log: Log, place: str) -> None:
        """Compare a log with the checkpoints that were made when it was as long."""
        marks = self._marks.get(chain)
        if marks is None or log.size < marks.due:
            return
        for expected, number in marks.reach(log.size) if log.whole else ():
            if expected == log.root():
                self._edges[chain] = log.size, list(log.edge)
                continue
            self.fault(
                "checkpoint",
                place,
                f"checkpoint {number} was made of another history: one of the leaves from {self._edges.get(chain, (0,))[0]} to"
                f" {log.size - 1} was changed and the log recomputed",
            )
            marks.due = sys.maxsize  # every later one says the same
            return

    def _append(self, chain: Chain, log: Log, line: dict[str, Any], place: str) -> str:
        """Append a leaf, compare the root then with the stored one and both with the receipts of it, and return it."""
        log.append(bytes.fromhex(line["leaf"]))
        root = log.root()
        if log.whole and root != line["root"] and chain not in self._rootless:
            self._rootless.add(chain)  # every later one says the same
            self.fault("log", place, "its root is not that of the leaves up to it")
        for (leaf, after), witness in self._kept.get(chain, {}).pop(log.size - 1, ()):
            if leaf != line["leaf"] or after != (root or after):
                what = "the log up to it" if leaf == line["leaf"] else "it"
                self.fault("receipt", place, f"{witness} was made of another history: {what} was changed")
        for said, moment, run in self._read_at.get(chain, {}).pop(log.size, ()):
            late = datetime.fromisoformat(line["recorded_at"]) - datetime.fromisoformat(moment)
            if log.whole and said != root:
                self.fault("calibration", run, f"it has read another history than there is, up to {place}")
            elif late > CLOCKS_APART:
                said = f"it says that it began before {place}, which it has read, was recorded"
                self.fault("calibration", run, said)
        self._mark(chain, log, place)
        return root

    def _cut_off(self, chain: Chain, name: str, size: int) -> None:
        marks, missing = self._marks.get(chain), {}
        if marks is not None and marks.sizes[-1] > size:
            missing = {marks.sizes[-1]: f"checkpoint {marks.numbers[-1]}"}
        missing |= {index + 1: of[0][1] for index, of in self._kept.get(chain, {}).items() if index >= size}
        if missing:
            most = max(missing)
            self.fault(
                "receipt" if missing[most].startswith("receipt") else "checkpoint",
                f"{name}, leaf {size}",
                f"{missing[most]} saw {most} leaves, there are {size}: the tail was cut off",
            )

    def receipts(self, lines: Iterable[bytes], *, origin: str, may_be_younger: bool = False) -> None:
        """Read receipts of decisions, which consumers have kept; to be called before `control`.

        `may_be_younger` : what is verified may have been exported before the last of them were given.

        A line is the receipt, a JSON array of log, topic, partition, index and hash of the leaf, and the root then; or an object with it as `receipt` and
        the SHA-256 of the action event that came with it as `sha256`.
        """
        for number, line in enumerate(lines, 1):
            place = f"receipt {number} ({origin})"
            said: Any = None
            digest = None
            try:
                said = strict_json(line)
                if isinstance(said, dict):
                    said, digest = said.get("receipt"), said.get("sha256")
                if isinstance(said, str):
                    said = strict_json(said.encode())
            except ValueError:
                said = None
            if wrong_form("receipt", [said, digest]):
                self.fault("receipt", f"{origin}, line {number}", "this is not a receipt")
                continue
            *chain, index, leaf, root = said
            of: Chain = () if tuple(chain) == CONTROL else tuple(chain)
            self.counts["receipts"] += 1
            self._receipts.append((of, index, (leaf, root), place))
            if digest is not None and of:
                self._events.setdefault((of, index), []).append((digest, place))
        self._may_be_younger = may_be_younger
        if not self.counts["receipts"]:
            self.notes["receipts"] = f"{origin} has no receipt"

    def _link_receipts(self, head: dict[str, Any]) -> None:
        there = sizes_of(head)
        skipped = younger = 0
        for chain, index, said, place in self._receipts:
            if index < self._begins.get(chain, (0,))[0]:
                skipped += 1
                continue
            if self._may_be_younger and index >= there.get(chain, 0):
                younger += 1
                continue
            self._kept.setdefault(chain, {}).setdefault(index, []).append((said, place))
        if skipped:
            self.notes["receipts before"] = (
                f"{skipped} receipts of leaves that were verified before, and are not read again"
            )
        if younger:
            self.notes["younger receipts"] = (
                f"{younger} receipts of leaves behind the end of what was exported: they are younger, or the end was cut off"
            )

    def _receipt_of(self, chain: Chain, index: int, line: dict[str, Any], place: str) -> None:
        """Compare the events that came with receipts of a leaf with the one on record."""
        for digest, witness in self._events.get((chain, index), []):
            action = line.get("action")
            value = None if action is None else from_base64(action["value"])
            if value is not None and sha256(value) == digest:
                self.counts["events with a receipt"] += 1
            elif line["kind"] == "decision" and action is None:
                self.notes["events"] = "actions that came with receipts: they are not in the bundle"
            else:
                said = f"{witness} came with another action event than the one on record"
                self.fault("receipt", place, said)

    def begin_behind(self, edges: Mapping[Chain, tuple[int, list[bytes]]]) -> dict[Chain, int]:
        """Take the partitions as they were at the checkpoint that `log_of_heads` got as `seen`, up to which the record was verified.

        To be called before `control`. `edges` are those that `reached` gave then. Returns the size of each log at that checkpoint,
        the control log's under `()`: leaves before it are not to be given to `outcomes`. It is empty where the log of heads has
        that checkpoint no more, or has other roots than the edges, which is a fault.
        """
        number, facts = self._remembered
        begins = {}
        for head in () if facts is None else facts["partitions"]:
            size, edge = edges.get(log_of(head), (0, []))
            there = (head["size"], head["root"])
            if len(edge) != size.bit_count() or (size, Log(size, edge).root()) != there:
                said = "it is not what an earlier verification has kept of it"
                self.fault("checkpoint", f"checkpoint {number}", said)
                return {}
            begins[log_of(head)] = (size, edge, head["next_offset"] - 1)
            self._marks[log_of(head)].reach(size - 1)
        if facts is None:
            return {}
        self._begins = begins
        return {chain: size for chain, (size, _, _) in begins.items()} | {(): facts["control"]["size"]}

    def reached(self) -> tuple[int, str, list[bytes], dict[Chain, tuple[int, list[bytes]]]] | None:
        """The log of heads at the newest checkpoint: size, root, right edge before its last leaf; the partitions' right edges then."""
        if self._newest is None:
            return None
        size, root, facts = self._newest
        return size, root, self._edge, {
            log_of(head): self._edges.get(log_of(head), (0, [])) for head in facts["partitions"]
        }  # fmt: skip

    def _begin(self, chain: Chain) -> tuple[Log, int]:
        """The log before the first leaf that is read, and the last offset."""
        size, edge, last = self._begins.get(chain, (0, [], -1))
        return Log(size, edge), last

    def _end(self, chain: Chain, name: str, log: Log, head: dict[str, Any] | None, last: int | None) -> None:
        if head is None:
            self.fault("log", name, "the record does not know this partition")
        elif head["size"] != log.size:
            self.fault("log", name, f"its log has {log.size} leaves, and should have {head['size']}")
        elif log.whole and head["root"] != log.root():
            self.fault("log", name, "its log has another root than its leaves give")
        elif last is not None and last >= head["next_offset"]:
            said = f"progress stands at {head['next_offset']}, before it"
            self.fault("log", f"{name}, leaf {log.size - 1}", said)
        self._cut_off(chain, name, log.size)

    def _next_offset(self, chain: Chain, name: str, present: int) -> None:
        most, number = self._progress.get(chain, (0, 0))
        if most > present:
            self.fault(
                "checkpoint", name, f"checkpoint {number} saw progress at {most}, now it stands at {present}"
            )

    def _uncovered(self, head: dict[str, Any]) -> None:
        for name in self.witnesses:
            size, under = self._cosigned.get(name, (0, 0))
            self.counts[f"heads cosigned by {name}"] = size
            if beyond := sum(sizes_of(head).values()) - under:
                self.notes[f"witness {name}"] = (
                    f"{beyond} leaves are younger than head {size}, the newest that {name} cosigned: whoever has the key could"
                    " still rewrite them"
                    if size
                    else f"{name} has cosigned none of the checkpoints that were read"
                )
        if self._newest is None:
            return
        covered = sum(sizes_of(self._newest[2]).values())
        present = sum(sizes_of(head).values())
        if present > covered:
            self.notes["after the last checkpoint"] = (
                f"{present - covered} leaves are younger than the last checkpoint: those behind every receipt"
                " that is kept could still be rewritten unseen"
            )
