"""What follows from what, by the program's own code: actions from scores and policy, policies from runs."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.calibration import History
from streamer.calibration.threshold import ThresholdState
from streamer.errors import UsageError
from streamer.gates.declared import Unit
from streamer.gates.policy import GateRevision
from streamer.gates.policy_gate import PolicyGate
from streamer.gates.rule import Cut, Full, Needed, Rule, rule_from_json, rule_of_text, rule_text
from streamer.recalibration.age_cut import AgeCut
from streamer.recalibration.comparison import Reading
from streamer.recalibration.run import CHOSEN, CalibrationRun, Since, derive
from streamer.recalibration.sampled import (
    SampledGroup,
    cuts_at_budget,
    is_bad,
    losses_by_score,
    one_of_each,
    prompts_of_rule,
)
from streamer.recalibration.suffix_test import Suffix

_MOST_COMPARED = 64
"""Policies whose labelled prompts are held."""


Revisions = Callable[[str], Sequence[GateRevision]]
Inputs = Callable[[int], Sequence[SampledGroup]]


class ActionRules:
    """Decides batches again; the gate of each policy is built once.

    `revisions` and `inputs` look up a gate's revisions, and what a run has read: `streamer.audit.verification.Lookups`.
    """

    def __init__(self, revisions: Revisions, inputs: Inputs) -> None:
        self._policies: dict[tuple[str, int], dict[str, Any]] = {}
        self._older_than: dict[int, datetime] = {}
        self.look_up(revisions, inputs)

    def look_up(self, revisions: Revisions, inputs: Inputs) -> None:
        """Look up what is needed here from now on: where they were sent to another process."""
        self._revisions, self._inputs = revisions, inputs
        self._gates: dict[tuple[str, int, Unit], PolicyGate] = {}
        self._compares = lru_cache(maxsize=_MOST_COMPARED)(self._comparing)

    def __getstate__(self) -> dict[str, Any]:
        return {"_policies": self._policies, "_older_than": self._older_than}

    def read(self, line: dict[str, Any]) -> None:
        """Read a line of the control log."""
        row = line["row"] or {}
        if line["kind"] == "policies" and row:
            self._policies[row["gate"], row["version"]] = row
        elif line["kind"] == "calibration_runs" and row:
            self._older_than[row["id"]] = datetime.fromisoformat(row["older_than"])

    def needed(self, facts: dict[str, Any]) -> list[Any] | None:
        """Return the budget that a decision needed by its policy's labelled prompts, as its leaf has it; None: none."""
        scores = [response[1] for response in facts["responses"]]
        if not scores or scores[0] is None:
            return None
        if (gate := self._compares(facts["batch"][0], facts["policy"])) is None:
            return None
        found = gate.decide(scores, segment=facts.get("segment"), row=_row_of(facts)).needed
        return None if found is None else [found.count, found.groups]

    def reading(self, gate: str, version: int) -> Reading | None:
        """What a policy that was read cuts by, with the prompts that a rule of all signals compares with; None: it is not known."""
        row = self._policies.get((gate, version))
        if row is None:
            return None
        reading, older_than = reading_of(row), self._older_than.get(row["calibration_run"])
        if not isinstance(reading.rule, Full) or older_than is None:
            return reading
        found = prompts_of_rule(reading.rule, self._inputs(row["calibration_run"]), older_than)
        return replace(reading, rule=replace(reading.rule, prompts=tuple(found)))

    def _comparing(self, gate: str, version: int) -> PolicyGate | None:
        """The gate of a policy with what it compares batches with; None where it compares them with nothing."""
        row, reading = self._policies.get((gate, version)), self.reading(gate, version)
        older_than = None if row is None else self._older_than.get(row["calibration_run"])
        if row is None or reading is None or older_than is None:
            return None
        settings = next(one.settings for one in self._revisions(gate) if one.revision == row["gate_revision"])
        losses = None
        if cuts_at_budget(settings, reading.rule):
            losses = losses_by_score(settings, reading.rule, self._inputs(row["calibration_run"]), older_than)
        elif not isinstance(reading.rule, Full):
            return None
        return PolicyGate(unit=settings.unit, cut=reading.cut, rule=reading.rule, losses=losses)

    def __call__(
        self,
        rule: dict[str, Any],
        *,
        unit: Unit,
        state: ThresholdState,
        threshold: float | None,
        scores: Sequence[float],
        blank: Sequence[bool],
        facts: dict[str, Any],
    ) -> tuple[list[bool], int | None, tuple[str, float | None]]:
        """Return what ships, the best response's position, and the cut that served the batch.

        Raises `ValueError` when policy, scores and what was recorded contradict each other.
        """
        key = (facts["batch"][0], facts["policy"], unit)
        gate = self._gates.get(key)
        if gate is None:
            gate = PolicyGate(unit=unit, cut=Cut(state, threshold), rule=rule_from_json(rule))
            self._gates[key] = gate
        ruling = gate.decide(
            scores, blank=blank, uniforms=facts.get("uniforms"), segment=facts.get("segment"),
            row=None if state == "full" else _row_of(facts),  # then the count on record decides
            needed=None if "budget" not in facts else Needed(*facts["budget"]),
        )  # fmt: skip
        return list(ruling.gate.shipped), ruling.gate.best, (ruling.cut.state, ruling.cut.threshold)


def _row_of(facts: dict[str, Any]) -> NDArray[np.float32] | None:
    return None if "signals" not in facts else np.frombuffer(bytes.fromhex(facts["signals"]), "<f4")


def contradiction(
    run: dict[str, Any],
    candidates: Sequence[dict[str, Any]],
    *,
    gate: GateRevision,
    inputs: Inputs,
    served: Callable[[int], Reading | None] = lambda _version: None,
) -> str | None:
    """Calibrate again what a stored run has read; say how the result differs, to the last bit, or None.

    `run` is its row, as it is sealed, `candidates` what it found, one row for each calibrator, and `gate` the revision that it
    was calibrated for. `inputs` reads what a run has read, in order of decision, and `served` what a policy version of the
    gate cuts by; None: it is not known.
    """
    started_at, older_than = (datetime.fromisoformat(run[name]) for name in ("started_at", "older_than"))
    try:
        cut = AgeCut.from_json(_values(run["age_cut"]))
        suffix = None if run.get("suffix") is None else Suffix.from_json(_values(run["suffix"]))
        history = History.from_json(_values(run["history"]))
    except ValueError as error:
        return str(error)
    try:
        groups = inputs(run["id"])
    except UsageError as error:
        return f"its inputs cannot be calibrated: {error}"
    if not groups:
        return "its inputs cannot be calibrated: it has none"
    if gate.settings.calibrator.of_signals:
        for one in groups:
            if one.bad is not (bad := is_bad(gate.audit_salt, replace(one, bad=None))):
                return f"the prompt {one.id} is {'bad' if bad else 'good'}, by its severity {one.severity:g}"
    for one, drawn in zip(groups, one_of_each(groups, gate.audit_salt, older_than), strict=True):
        if one.spare is not drawn.spare:
            return f"another batch of the burst of {one.id} counts, by its gate's draw"
    sample = [one for one in groups if one.decided_at is None or one.decided_at < older_than]
    young = [one for one in groups if one.decided_at is not None and one.decided_at >= older_than]
    in_force = None
    if suffix is not None and suffix.cuts:
        reading = served(suffix.version)
        if reading is None:
            return f"policy {suffix.version}, at whose threshold the newest groups were compared, is not on record"
        in_force = (suffix.version, reading)
    try:
        again = derive(
            gate, sample, young, now=started_at, older_than=older_than, history=history, in_force=in_force
        )
    except UsageError as error:
        return f"its inputs cannot be calibrated: {error}"
    if in_force is not None and again.suffix != suffix:
        return f"the newest groups beside older ones come to {again.suffix}, the run says {suffix}"
    if (run["alpha"], run["seed"]) != (again.effective_alpha, gate.seed):
        return f"its budget or seed is not that of revision {gate.revision}"
    if (wrong := next(_differences(run, candidates, again), None)) is not None:
        return wrong
    again = replace(again, severities=run["severities"], age_cut=cut)
    since = run["since_version"], run["newer_than"]
    begun = [None] if since[0] is None else [
        Since(since[0], datetime.fromisoformat(since[1]), closed) for closed in (True, False)
    ]  # fmt: skip
    words = {replace(again, since=one, note=note).guarantee for one in begun for note in ("", CHOSEN)}
    return None if run["guarantee"] in words else "its guarantee is not in the words of what it has read"


def _values(stored: dict[str, Any] | str) -> dict[str, Any]:
    values = json.loads(stored) if isinstance(stored, str) else stored
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    return values


def _differences(
    run: dict[str, Any], candidates: Sequence[dict[str, Any]], again: CalibrationRun
) -> Iterator[str]:
    stored = {row["method"]: row for row in candidates}
    for one in again.candidates:
        row = stored.get(one.name)
        cut = Cut.at(one.threshold.value)
        if row is None:
            if one.decides:
                yield f"it has no result of {one.name}, which decides"
            continue  # a calibrator that is younger than the run
        if bool(row["decides"]) != one.decides:
            yield f"{one.name} {'decides' if one.decides else 'does not decide'}, the run says otherwise"
        if (row["state"], row["threshold"]) == (cut.state, cut.threshold):
            if _rule(row.get("rule")) != _rule(one.rule):
                yield f"{one.name} finds another rule from its inputs than the run says"
        else:
            yield (
                f"{one.name} finds {cut.state} {cut.threshold!r} from its inputs, the run says"
                f" {row['state']} {row['threshold']!r}"
            )
        if one.decides and (run["state"], run["threshold"]) != (cut.state, cut.threshold):
            yield f"its threshold is not what {one.name} finds"
        if row["guarantee"] != one.threshold.guarantee:
            yield f"its guarantee by {one.name} is not in the method's words"


def reading_of(row: dict[str, Any]) -> Reading:
    """What a policy cuts by, from its row as it is sealed."""
    return Reading(Cut(row["state"], row["threshold"]), rule_of_text(_rule(row.get("rule"))))


def _rule(rule: Rule | str | None) -> str:
    if rule is None:
        return rule_text(rule_from_json({"kind": "indicator", "parameters": {}, "curve": None}))
    return rule if isinstance(rule, str) else rule_text(rule)
