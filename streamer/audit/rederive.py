"""What follows from what, by the program's own code: actions from scores and policy, policies from runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from streamer.errors import UsageError
from streamer.gates.policy_gate import PolicyGate
from streamer.gates.rule import Cut, Rule, rule_from_json, rule_text
from streamer.recalibration.run import calibrate_gate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from streamer.audit.standalone.verify_bundle import Derived
    from streamer.calibration.threshold import ThresholdState
    from streamer.gates.policy import GateRevision
    from streamer.gates.settings import GateSettings, Unit
    from streamer.recalibration.run import CalibrationRun, SampledGroup, SeverityBasis


class ActionRules:
    """Decides batches again. Policies come by the JSON of their rule; the gate of each is built once."""

    def __init__(self) -> None:
        self._gates: dict[tuple[str, str, float | None, str], PolicyGate] = {}

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
    ) -> Derived | None:
        """Return what ships, the best response's position, and the cut that served the batch.

        Raises
        ------
        ValueError
            When policy, scores and what was recorded contradict each other.
        """
        key = (unit, state, threshold, json.dumps(rule, sort_keys=True))
        gate = self._gates.get(key)
        if gate is None:
            gate = self._gates[key] = PolicyGate(
                unit=unit, cut=Cut(state, threshold), rule=rule_from_json(rule)
            )
        ruling = gate.decide(
            scores, blank=blank, uniforms=facts.get("uniforms"), segment=facts.get("segment")
        )
        return list(ruling.gate.shipped), ruling.gate.best, (ruling.cut.state, ruling.cut.threshold)


class _StoredInputs:
    """An audit sample that is what a run has read."""

    def __init__(self, groups: Sequence[SampledGroup]) -> None:
        self._groups = groups

    def audit_sample(
        self,
        gate: str,
        *,
        settings: GateSettings,
        older_than: datetime,
        since_version: int | None = None,
        severities: SeverityBasis = "mean",
    ) -> Sequence[SampledGroup]:
        return self._groups


def contradiction(
    run: dict[str, Any],
    candidates: Sequence[dict[str, Any]],
    *,
    gate: GateRevision,
    inputs: Callable[[int], Sequence[SampledGroup]],
    started_at: datetime,
) -> str | None:
    """Calibrate again what a stored run has read; say how the result differs, to the last bit, or None.

    Parameters
    ----------
    run : its row, as it is sealed.
    candidates : what it found, one row for each calibrator.
    gate : the revision that it was calibrated for.
    inputs : reads what a run has read, in order of decision.
    """
    try:
        again = calibrate_gate(_StoredInputs(inputs(run["id"])), gate, now=started_at)
    except UsageError as error:
        return f"its inputs cannot be calibrated: {error}"
    if (run["alpha"], run["seed"]) != (again.effective_alpha, gate.seed):
        return f"its budget or seed is not that of revision {gate.revision}"
    return next(_differences(run, candidates, again), None)


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
        if (row["state"], row["threshold"], _rule(row.get("rule"))) != (
            cut.state,
            cut.threshold,
            _rule(one.rule),
        ):
            yield (
                f"{one.name} finds {cut.state} {cut.threshold!r} from its inputs, the run says"
                f" {row['state']} {row['threshold']!r}"
            )
        if one.decides and (run["state"], run["threshold"]) != (cut.state, cut.threshold):
            yield f"its threshold is not what {one.name} finds"


def _rule(rule: Rule | str | None) -> str:
    if rule is None:
        return rule_text(rule_from_json({"kind": "indicator", "parameters": {}, "curve": None}))
    return rule if isinstance(rule, str) else rule_text(rule)
