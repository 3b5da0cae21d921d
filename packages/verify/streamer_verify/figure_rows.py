"""The rows that the figures of a report are made of, read while they pass to the verifier."""

from __future__ import annotations

import hashlib
import itertools
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from streamer_verify.forms import wrong_form
from streamer_verify.logs import read_note
from streamer_verify.values import EPOCH, HTTP_LOG, canonical_value, sha256, sizes_of


class Rows:
    """Which rows of the logs a figure was read from: how many, and how many `after` every checkpoint.

    `newest` is the number of the checkpoint by which all that one covers were covered; None: none is.
    """

    def __init__(self) -> None:
        self.count, self.after = 0, 0
        self.newest: int | None = None
        self._digest = hashlib.sha256()

    def add(self, leaf: str, checkpoint: int | None) -> None:
        """Take a row by its leaf, and the checkpoint that covers it."""
        self.count += 1
        self._digest.update(bytes.fromhex(leaf))
        if checkpoint is None:
            self.after += 1
        else:
            self.newest = max(self.newest or 0, checkpoint)

    def digest(self) -> bytes:
        """Return the SHA-256 of the leaves."""
        return self._digest.digest()


class GateRows:
    """What the figures of one gate are made of."""

    def __init__(self) -> None:
        self.rows: dict[str, Rows] = {}
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.modes: Counter[str] = Counter()
        self.over_time: dict[str, Counter[str]] = {}
        self.first, self.last = "", ""
        self.served = self.later_attempts = 0
        self.drawn = self.extra = 0
        self.shipped_undrawable = 0
        # Of each first attempt: when (in microseconds), and its logged probability.
        self.moments, self.probabilities = array("q"), array("d")
        self.shares = array("d")  # of each, how much of it shipped
        # Of those that were drawn: where it stands there, its name, the kind of its labels, and what of it shipped.
        self.drawn_ones: list[tuple[int, str, str, tuple[tuple[str, bool], ...]]] = []
        self.revisions: list[dict[str, Any]] = []
        self.policies: dict[int, dict[str, Any]] = {}
        self.policy_events: list[dict[str, Any]] = []
        self.runs: dict[int, dict[str, Any]] = {}
        self.rejections: list[dict[str, Any]] = []
        self.alerts: dict[int, dict[str, Any]] = {}
        self.labels: Counter[str] = Counter()
        self.labellers: Counter[str] = Counter()
        self.desk: list[dict[str, Any]] = []
        # Of batches with an outcome at the desk: when they were decided, the kind of their labels, and which answers were drawn.
        self.at_desk: dict[tuple[str, int], tuple[str, str, frozenset[str]] | None] = {}


_OF_RECORD = {
    "erasures": "at", "accounts": "created_at", "api_keys": "created_at", "api_key_revocations": "revoked_at",
    "data_gaps": "recorded_at",
}  # fmt: skip
"""Kinds of rows that are of no gate, and the moment by which each is in the period."""

_OF_GATE = {
    "gate_revisions": ("created_at", "settings"), "policy_events": ("at", "policies"), "desk_outcomes": ("at", "desk"),
    "calibration_runs": ("started_at", "runs"), "alerts": ("raised_at", "alerts"),
}  # fmt: skip
"""The same of gates, and the figure that counts them."""

Response = tuple[str, str, int, str]
"""Gate, batch id, attempt and id."""

Label = tuple[str, str, float, bool]
"""When it counts from, when it was recorded, its severity, and whether it came with a signature."""


class FigureRows:
    """Reads the rows that figures are made of."""

    def __init__(self, since: str, until: str, gates: Iterable[str] | None = None) -> None:
        self.since, self.until = since, until
        self._only = None if gates is None else set(gates)
        self._gates: dict[str, GateRows] = {}
        self._rows: dict[str, Rows] = {}
        self._every, self._signed_heads = Rows(), Rows()
        self._covering: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
        self._checkpoints: list[tuple[int, str]] = []
        self._covered = 0
        self._kinds: Counter[str] = Counter()
        self._codes: Counter[str] = Counter()
        self._of_record: dict[str, list[dict[str, Any]]] = {kind: [] for kind in _OF_RECORD}
        self._first, self._last = "", ""
        self._leaves = 0
        self._labels: dict[Response, dict[str, dict[str, Label]]] = {}
        self._files: dict[int, str] = {}
        self._told: set[int] = set()
        self._signed: set[int] = set()
        self._by_number: dict[int, tuple[Response, str, str]] = {}

    def heads(self, lines: Iterable[bytes], checkpoints: Iterable[bytes]) -> None:
        """Read the bundle's log of heads up to its checkpoint; to be called first."""
        known = 0
        with suppress(ValueError, KeyError, TypeError):  # the verifier names it
            known = max(
                (read_note(canonical_value(one)["checkpoint"]).size for one in checkpoints), default=0
            )
        for number, line in enumerate(itertools.islice(lines, known), 1):
            try:
                facts = canonical_value(line)
            except ValueError:
                facts = {}
            if wrong_form("heads", facts):
                continue  # the verifier names it
            sizes = sizes_of(facts)
            self._checkpoints.append((number, facts["at"]))
            self._signed_heads.add(sha256(b"\x00" + line), number)
            self._covered = max(self._covered, sum(sizes.values()))
            for chain, size in sizes.items():
                if (covering := self._covering.setdefault(chain, [])) and covering[-1][0] == size:
                    continue
                covering.append((size, number))
        for covering in self._covering.values():
            covering.sort()

    def _checkpoint(self, chain: tuple[Any, ...], index: int) -> int | None:
        covering = self._covering.get(chain, [])
        at = bisect_left(covering, (index + 1,))
        return covering[at][1] if at < len(covering) else None

    def _count(self, gate: str | None, name: str, chain: tuple[Any, ...], line: dict[str, Any]) -> None:
        rows = self._rows if gate is None else self._gates[gate].rows
        rows.setdefault(name, Rows()).add(line["leaf"], self._checkpoint(chain, line["index"]))

    def _inside(self, moment: str | None) -> bool:
        return moment is not None and self.since <= moment < self.until

    def _gate(self, name: str) -> GateRows | None:
        if self._only is not None and name not in self._only:
            return None
        return self._gates.setdefault(name, GateRows())

    def control(self, lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Pass the control log on and read it."""
        for line in lines:
            yield line
            self._leaf((), line)
            row = line.get("row")
            if row is not None:
                self._of_control(line, line["kind"], row)

    def _leaf(self, chain: tuple[Any, ...], line: dict[str, Any]) -> None:
        self._leaves += 1
        self._every.add(line["leaf"], self._checkpoint(chain, line["index"]))
        moment = line["recorded_at"]
        self._first = min(self._first or moment, moment)
        self._last = max(self._last, moment)

    def _of_control(self, line: dict[str, Any], kind: str, row: dict[str, Any]) -> None:
        if kind in _OF_RECORD:
            if self._inside(row[_OF_RECORD[kind]]):
                self._of_record[kind].append(row)
                self._count(None, kind, (), line)
        elif kind == "alert_acknowledgements":
            for one, gate in self._gates.items():
                if row["alert"] in gate.alerts:
                    gate.alerts[row["alert"]]["acknowledged"] = row
                    self._count(one, "alerts", (), line)
        elif kind == "give_outs":
            self._files[row["id"]] = row["file"]
        elif kind == "label_signatures":
            self._signed.add(row["label"])
        elif kind == "proposal_rejections":
            for one, gate in self._gates.items():
                if row["run"] in gate.runs and self._inside(row["rejected_at"]):
                    gate.rejections.append(row)
                    self._count(one, "runs", (), line)
        else:
            name: str = row["name"] if kind == "gates" else row.get("gate") or ""
            if name and (found := self._gate(name)) is not None:
                self._of_gate(found, name, line, kind, row)

    def _of_gate(
        self, found: GateRows, name: str, line: dict[str, Any], kind: str, row: dict[str, Any]
    ) -> None:
        moment, figure = _OF_GATE.get(kind, ("", ""))
        inside = moment != "" and self._inside(row[moment])
        if inside:
            self._count(name, figure, (), line)
        if kind == "gate_revisions":
            found.revisions.append(row)
        elif kind == "policies":
            found.policies[row["version"]] = row
        elif kind == "calibration_runs":
            found.runs[row["id"]] = row
        elif kind == "policy_events" and inside:
            found.policy_events.append(row)
        elif kind == "alerts" and inside:
            found.alerts[row["id"]] = {"alert": row, "acknowledged": None}
        elif kind == "desk_outcomes" and inside:
            found.desk.append(row)
            found.at_desk[row["batch_id"], row["attempt"]] = None
        elif kind == "label_revisions":
            response: Response = (row["gate"], row["batch_id"], row["attempt"], row["response_id"])
            self._by_number[row["id"]] = (response, row["kind"], row["labeller"])
            self._label(response, row, line, "file", (), signed=False)

    def outcomes(self, lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Pass the partitions' logs on and read them."""
        for line in lines:
            yield line
            facts, chain = line.get("facts"), tuple(line["source"][:3])
            self._leaf(chain, line)
            if facts is None:
                if "given_out" in line and self._inside(line["recorded_at"]):
                    file = self._files.get(line["given_out"], "FILE")
                    raise ValueError(f"decisions of the period were given out: give --segment {file}")
                continue
            if line["kind"] == "label":
                source = HTTP_LOG if chain[0] == HTTP_LOG else "topic"
                self._label(tuple(facts["response"]), facts, line, source, chain, signed="signature" in facts)
            elif line["kind"] == "decision":
                self._decision(line, facts, chain)
            elif self._inside(line["recorded_at"]):
                self._kinds[line["kind"]] += 1
                self._codes[facts.get("code", "")] += line["kind"] == "dead_letter"
                self._count(None, "refused", chain, line)

    def _label(
        self, response: Response, facts: dict[str, Any], line: dict[str, Any], source: str, chain: tuple[Any, ...],
        *, signed: bool,
    ) -> None:  # fmt: skip
        found = self._gate(response[0])
        if found is None:
            return
        effective = min(facts["labelled_at"], facts["received_at"])
        given = self._labels.setdefault(response, {}).setdefault(facts["kind"], {})
        label = (effective, line["recorded_at"], float(facts["severity"]), signed)
        labeller = facts["labeller"]
        if labeller not in given or given[labeller][:2] <= label[:2]:
            given[labeller] = label
        self._count(response[0], "every label", chain, line)
        of = ("kind", "labeller", "labelled_at", "received_at", "severity")
        told = (response, *(facts[name] for name in of))
        if hash(told) in self._told:
            return  # the same label, sent once more: it has a leaf of its own and no revision
        self._told.add(hash(told))
        if self._inside(facts["received_at"]):
            found.labels[source] += 1
            found.labellers[labeller] += 1
            self._count(response[0], "labels", chain, line)

    def _decision(self, line: dict[str, Any], facts: dict[str, Any], chain: tuple[Any, ...]) -> None:
        gate, batch_id, attempt = facts["batch"]
        found, moment = self._gate(gate), facts["decided_at"]
        if found is not None and (batch_id, attempt) in found.at_desk:
            drawn = frozenset(one[0] for one in facts["responses"] if one[4] and not facts.get("extra_draw"))
            kind = self._kind_of(found, facts["policy"])
            found.at_desk[batch_id, attempt] = (moment, kind, drawn)
            self._count(gate, "decisions at the desk", chain, line)
        if found is None or not self._inside(moment):
            return
        self._count(gate, "decisions", chain, line)
        found.outcomes[facts["outcome"]] += 1
        found.reasons[facts["reason"]] += 1
        found.modes[facts["mode"]] += 1
        found.over_time.setdefault(moment[:10], Counter())[facts["outcome"]] += 1
        found.first, found.last = min(found.first or moment, moment), max(found.last, moment)
        shipped = any(one[3] == "ship" for one in facts["responses"])
        found.served += shipped
        found.drawn += facts["sampled"]
        found.extra += facts.get("extra_draw", False)
        if attempt != 1:
            found.later_attempts += 1
            return
        probability = facts["sampling_probability"]
        if not probability > 0:
            found.shipped_undrawable += shipped
        if facts["sampled"]:
            self._count(gate, "drawn", chain, line)
            marks = tuple((one[0], one[3] == "ship") for one in facts["responses"] if one[4])
            kind = self._kind_of(found, facts["policy"])
            found.drawn_ones.append((len(found.moments), batch_id, kind, marks))
        elapsed = datetime.fromisoformat(moment) - EPOCH
        found.moments.append(elapsed // timedelta(microseconds=1))
        found.probabilities.append(probability)
        if facts["unit"] == "response" and facts["responses"]:
            ships = [one[3] == "ship" for one in facts["responses"]]
            found.shares.append(sum(ships) / len(ships))
        else:
            found.shares.append(float(shipped))

    @staticmethod
    def _kind_of(gate: GateRows, version: int) -> str:
        """Which kind of labels counts for a decision under a policy."""
        revision = gate.policies.get(version, {}).get("gate_revision")
        return next((one["severity_kind"] for one in gate.revisions if one["revision"] == revision), "")
