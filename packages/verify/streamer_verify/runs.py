"""What calibration runs have read, and which of it was there to be read."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from streamer_verify.actions import unread
from streamer_verify.all_signals import MOST_FITS, ByScore, BySignals, Fit, cuts_at_budget, wrong_budget
from streamer_verify.signatures import OF_LABEL, label_statement
from streamer_verify.values import MONITOR, PLAIN, parsed, place_of, sha256
from streamer_verify.verifier import Verifier
from streamer_verify.waits import of_same_revisions


class Decided(NamedTuple):
    """What runs and alarms need to know of a decision.

    `responses` has the score of each, and whether it was drawn; `needed` are the drawn ones that shipped.
    """

    batch: tuple[str, str, int]
    number: int
    chain: tuple[Any, ...]
    leaf: int
    made_as: tuple[str, str]
    erased_at: str
    place: str
    sampled: bool
    decided_at: str
    policy: int
    extra_draw: bool
    raised: bool
    probability: float
    scorer: str
    responses: dict[str, tuple[float | None, bool]]
    needed: tuple[str, ...]
    signals: bytes | None

    @property
    def drawn(self) -> list[tuple[str, float]]:
        """The scored responses that its gate's own audit drew, with their scores."""
        if not self.sampled or self.extra_draw or self.batch[2] != 1:
            return []
        return [
            (name, score) for name, (score, drawn) in self.responses.items() if drawn and score is not None
        ]


class Label(NamedTuple):
    """A label, with its leaf in its partition's log; one of a file has the id of its row, and a leaf of the control log."""

    kind: str
    labeller: str
    severity: float
    effective: str
    received: str
    chain: tuple[Any, ...] | None
    leaf: int
    id: int
    said: dict[str, Any]


class Runs:
    """Reads the logs along with the verifier, and then derives each calibration run again.

    `control` and `outcomes` pass their lines on; `check_runs` takes the lines of the control log a second time, so that the
    inputs of one run at a time are held. `label_keys` are whose labels which key signs, by its id; None: which labels a gate
    that demands signatures has read is not checked.
    """

    def __init__(self, verifier: Verifier, label_keys: Mapping[str, tuple[str, bytes]] | None = None) -> None:
        self.label_keys, self.verifier = label_keys, verifier
        self._signatures: dict[int, list[tuple[int, dict[str, Any]]]] = {}
        self._of_files: set[int] = set()
        self._carried: dict[tuple[Any, ...], float] = {}
        self._rows: dict[tuple[Any, ...], bytes] = {}
        self._read: set[tuple[str, str, int]] = set()
        self._calibrated: set[str] = set()
        self._closings: dict[str, dict[int, int]] = {}
        self._alarmed: dict[str, list[int]] = {}
        self._carried_to: set[tuple[Any, ...]] = set()
        self._decided: dict[tuple[str, str, int], Decided] = {}
        self._draws: dict[str, list[Decided]] = {}
        self._labels: dict[tuple[Any, ...], list[Label]] = {}
        self._compares: dict[int, BySignals | ByScore] = {}
        self._fits: dict[int, list[Fit]] = {}

    # reading along

    def control(self, lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Pass the control log on and read it."""
        for line in lines:
            yield line
            if line["row"] is not None:
                self._of_control(line, line["kind"], line["row"])
        labels = self._labels.items()
        self._labels = {name: some for name, some in labels if name[0] in self._calibrated}

    def _of_control(self, line: dict[str, Any], kind: str, row: dict[str, Any]) -> None:
        if kind == "policies":
            if row["state"] != "closed":
                self._calibrated.add(row["gate"])
            if row["created_by"] == MONITOR and row["state"] == "closed":
                self._closings.setdefault(row["gate"], {})[row["version"]] = line["index"]
        elif kind == "alerts" and row["kind"] in ("risk", "selective", "missing"):
            self._alarmed.setdefault(row["gate"], []).append(row["policy_version"])
        elif kind == "carried_scores":
            self._carried[row["scorer"], *row["of"], row["response_id"]] = row["score"]
            self._carried_to.add((row["scorer"], *row["of"]))
        elif kind == "carried_signals":
            self._rows[row["list"], *row["of"]] = bytes.fromhex(row["signals"])
        elif kind == "label_signatures":
            self._signatures.setdefault(row["label"], []).append((line["index"], row))
        elif kind == "calibration_runs":
            self._calibrated.add(row["gate"])
            self._read.update((row["gate"], batch, attempt) for batch, attempt, *_ in line["inputs"])
        elif kind == "label_revisions":
            label = Label(
                row["kind"], row["labeller"], row["severity"], row["effective_at"], row["received_at"],
                None, line["index"], row["id"], row,
            )  # fmt: skip
            self._of_files.add(row["id"])
            response = (row["gate"], row["batch_id"], row["attempt"], row["response_id"])
            self._labels.setdefault(response, []).append(label)

    def outcomes(self, lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Pass the partitions' logs on, and keep what runs have read."""
        for line in lines:
            yield line
            if line["kind"] in ("decision", "label") and line["facts"] is not None:
                self._of_outcome(line, line["facts"])

    def _of_outcome(self, line: dict[str, Any], facts: dict[str, Any]) -> None:
        gate, batch_id, attempt, *response = facts["batch" if line["kind"] == "decision" else "response"]
        batch = (gate, batch_id, attempt)
        if gate not in self._calibrated:
            return
        if line["kind"] == "decision":
            if not facts["sampled"] and batch not in self._read:
                return
            self._decided[batch] = Decided(
                batch, facts["number"], tuple(line["source"][:3]), line["index"], (facts["unit"], facts["encoder"]),
                line.get("erased_at") or "~", place_of(line), facts["sampled"], facts["decided_at"], facts["policy"],
                facts.get("extra_draw", False), facts.get("audit_rate") is not None, facts["sampling_probability"],
                facts["scorer"], {one[0]: (one[1], one[4]) for one in facts["responses"]},
                tuple(one[0] for one in facts["responses"] if one[4] and one[3] == "ship"),
                bytes.fromhex(facts["signals"]) if "signals" in facts else None,
            )  # fmt: skip
            return
        effective = line.get("effective_at", min(facts["labelled_at"], facts["received_at"]))
        label = Label(
            facts["kind"], facts["labeller"], facts["severity"], effective, facts["received_at"],
            tuple(line["source"][:3]), line["index"], 0, facts,
        )  # fmt: skip
        self._labels.setdefault((*batch, *response), []).append(label)

    def part(self) -> tuple[Any, Any]:
        """Give out what was collected since the last time."""
        collected = self._decided, self._labels
        self._decided, self._labels = {}, {}
        return collected

    def add(self, part: tuple[Any, Any]) -> None:
        """Add what was collected elsewhere behind what is known."""
        self._decided.update(part[0])
        for response, some in part[1].items():
            self._labels.setdefault(response, []).extend(some)

    # and then

    def compare(self, run: int, by: BySignals | ByScore) -> None:
        """Remember what policies of a run compare batches with."""
        self._compares[run] = by

    def check_budgets(self, lines: Iterable[dict[str, Any]]) -> None:
        """Derive again which budget each decision needed; after `check_runs`, from the partitions' logs."""
        for line in lines:
            facts = line.get("facts")
            if line["kind"] != "decision" or facts is None:
                continue
            needed, said = self._needed(facts), facts.get("budget")
            self.verifier.counts["budgets derived again"] += needed is not None
            if said != needed:
                self.verifier.fault("action", place_of(line), wrong_budget(said, needed))

    def _needed(self, facts: dict[str, Any]) -> list[Any] | None:
        gate = facts["batch"][0]
        policy = self.verifier.row("policies", gate, facts["policy"])
        settings = self.verifier.settings(gate, facts["policy"])
        if policy is None or settings is None or not facts["responses"] or facts["responses"][0][1] is None:
            return None
        by = self._compares.get(policy["calibration_run"])
        if isinstance(by, BySignals):
            key = policy["calibration_run"]
            if key not in self._fits:
                while len(self._fits) >= MOST_FITS:
                    self._fits.pop(next(iter(self._fits)))
                self._fits[key] = by.fits()
            return by.needed(facts, self._fits[key])
        if by is None or not cuts_at_budget(policy, settings) or 1 in unread(facts.get("signals")):
            return None
        return by.needed(facts, settings, parsed(policy.get("rule")) or PLAIN)

    def decided(self, batch: tuple[str, str, int]) -> Decided | None:
        """Return what is on record of a batch."""
        return self._decided.get(batch)

    def bets(self, gate: str) -> list[Decided]:
        """Return the scored first attempts of a gate that were drawn, by the number of their batch."""
        own = (one for one in self._decided.values() if one.batch[0] == gate and one.batch[2] == 1)
        scored = (
            one
            for one in own
            if one.sampled and any(score is not None for score, _ in one.responses.values())
        )
        return sorted(scored, key=attrgetter("number"))

    def labels(self, response: tuple[Any, ...]) -> list[Label]:
        """Return every label of a response."""
        return self._labels.get(response, [])

    def signed(self, label: Label, response: tuple[Any, ...], before: int) -> bool:
        """Whether a label had a good signature of its labeller before a leaf of the control log."""
        text = dict(zip(OF_LABEL, response, strict=False)) | label.said
        if label.chain is not None:
            return self._is_good(text, label.said)
        signatures = self._signatures.get(label.id, [])
        return any(index < before and self._is_good(text, row) for index, row in signatures)

    def draws(
        self, row: dict[str, Any], settings: dict[str, Any], heads: dict[tuple[Any, ...], int]
    ) -> tuple[list[Decided], list[Decided]]:
        """Return what a gate's own audit had drawn below the heads of a run, in order: what the run could read, and what came before all that."""
        gate, since, made_as = row["gate"], row["since_version"] or 0, (settings["unit"], settings["encoder"])
        if gate not in self._draws:
            drawn = [one for one in self._decided.values() if one.batch[0] == gate and one.drawn]
            self._draws[gate] = sorted(drawn, key=attrgetter("decided_at", "chain", "leaf"))
        drawn = [one for one in self._draws[gate] if one.leaf < heads.get(one.chain, 0)]
        there = [one for one in drawn if one.decided_at < row["started_at"]]
        read = [
            one
            for one in there
            if one.policy >= since
            and one.made_as == made_as
            and (one.scorer == settings["scorer"] or (settings["scorer"], *one.batch) in self._carried_to)
            and of_same_revisions(
                settings if self.carried_row(settings, one.batch) is None else {**settings, "signals": None},
                self.verifier.settings(gate, one.policy),
            )
        ]
        return read, [one for one in there if read and one.decided_at < read[0].decided_at]

    def begins(self, gate: str, since: int | None, before: int) -> bool:
        """Whether a run may begin at a policy: the newest closing by an alarm before a leaf, or where an alarm could not close."""
        closings = self._closings.get(gate, {})
        newest = max((version for version, leaf in closings.items() if leaf < before), default=None)
        if since is None or since == newest:
            return since == newest
        # A closing may be sealed after it is in force.
        later = since in closings or any(version < since for version in self._alarmed.get(gate, ()))
        return later and since > (newest or 0)

    def _is_good(self, label: dict[str, Any], by: dict[str, Any]) -> bool:
        named, key = (self.label_keys or {}).get(by.get("key_id") or "", (None, b""))
        if named != label["labeller"]:
            return False
        try:
            signature = base64.b64decode(by["signature"], validate=True)
            return self.verifier.signed(key, label_statement(label, self.verifier.record_id), signature)
        except (KeyError, TypeError, ValueError):
            return False

    @property
    def signed_elsewhere(self) -> bool:
        """Whether labels that came by topics were signed by file: which, no bundle says."""
        return bool(self._signatures.keys() - self._of_files)

    def carried(self, scorer: str, response: tuple[Any, ...]) -> float | None:
        """Return what an adopted candidate's scorer made of a response that was decided before it."""
        return self._carried.get((scorer, *response))

    def carried_row(self, settings: dict[str, Any], batch: tuple[Any, ...]) -> bytes | None:
        """Return the row that an adopted candidate with this list of signals made of a batch that was decided before it."""
        return self._rows.get((sha256((settings.get("signals") or "").encode()), *batch))
