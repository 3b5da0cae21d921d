"""Gates that an earlier version calibrated with `selective`: read, signed and derived again as they were then."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from streamer.audit.rederive import contradiction
from streamer.audit.standalone.verify_bundle import calibrated_for_another as by_the_verifier
from streamer.calibration import History
from streamer.events.codec import encode
from streamer.events.thresholds import decode_threshold, policy_from_event, threshold_event
from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import GateRevision, Policy
from streamer.gates.rule import INDICATOR, rule_text
from streamer.gates.setting_changes import calibrated_for_another
from streamer.gates.settings import FLAT_NAMES, GateSettings
from streamer.recalibration.run import SampledGroup, SampledItem, derive
from streamer.signing.policies import statement

if TYPE_CHECKING:
    from streamer.recalibration.run import CalibrationRun

NOW = datetime(2026, 11, 20, tzinfo=UTC)
WRITTEN = {
    "selective": "b33ed01a799b4663ea65f5546618375ccd5cfd3c655c1e93307a70b9a45a72a6",
    "mean": "7f185563ed47c6df8f5312ab7ff3e02783d6fdba4a2c1549d19dc5de84a408cb",
}
"""SHA-256 of what the version before the walk signed of the policies below, guarantees in words included."""
FOUND = {"selective": 0.38, "mean": 0.1925, "hb": 0.245, "betting": 0.26, "bernstein": 0.2875, "age": 0.2075}
"""What that version found in the groups below."""


def groups() -> list[SampledGroup]:
    return [
        SampledGroup(
            key=BatchKey("g", f"b{n:03d}", 1),
            probability=0.2,
            items=(
                SampledItem(
                    response_id="a",
                    score=(37 * n % 400) / 400,
                    severity=float(37 * n % 400 < 200 and n % 3 > 0),
                ),
            ),
        )
        for n in range(400)
    ]


def earlier(method: str) -> GateSettings:
    """The settings as that version recorded them: it knew no parameter beyond those with a field."""
    flat = GateSettings(encoder="e@00000000", method=method, alpha=0.2).flat()
    return GateSettings(**(flat | {"parameters": None}))


def gate(settings: GateSettings) -> GateRevision:
    return GateRevision(
        gate="g", revision=1, settings=settings, seed=7, audit_salt=bytes(32), created_at=NOW, created_by="ana",
        reason="",
    )  # fmt: skip


def policy(settings: GateSettings, run: CalibrationRun) -> Policy:
    return Policy(
        gate="g", version=2, gate_revision=1, settings=settings, state=run.decided.state,
        threshold=run.decided.value, calibrated=True, calibration_run=1, seed=7, valid_from=NOW,
        guarantee=run.decided.guarantee, created_by="ana", reason="", rule=INDICATOR,
    )  # fmt: skip


@pytest.mark.parametrize("method", sorted(WRITTEN))
def test_a_run_of_an_earlier_version_is_derived_again_to_the_last_bit(method: str) -> None:
    settings = earlier(method)
    run = derive(gate(settings), groups(), [], now=NOW, older_than=NOW, history=None)
    assert {name: one.threshold.value for one in run.candidates if (name := one.name) in FOUND} == FOUND
    text = statement(policy(settings, run), record_id=bytes(32), audit_salt=bytes(32))
    assert hashlib.sha256(text).hexdigest() == WRITTEN[method]


def row(run: CalibrationRun, **more: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A run and its candidates as the record has them."""

    def cut(value: float, state: str) -> float | None:
        return value if state == "cut" else None

    found = [
        {
            "method": one.name,
            "decides": one.decides,
            "state": one.threshold.state,
            "threshold": cut(one.threshold.value, one.threshold.state),
            "rule": rule_text(one.rule),
        }
        for one in run.candidates
    ]
    decided = run.decided
    return {
        "id": 1, "alpha": run.effective_alpha, "seed": 7, "state": decided.state,
        "threshold": cut(decided.value, decided.state), **more,
    }, found  # fmt: skip


def again(run: CalibrationRun, **more: Any) -> str | None:
    stored, found = row(run, **more)
    return contradiction(
        stored, found, gate=run.gate, inputs=lambda _: groups(), started_at=NOW, older_than=NOW
    )


@pytest.mark.parametrize("method", sorted(WRITTEN))
def test_the_verifier_derives_a_run_by_the_edition_that_made_it(method: str) -> None:
    before = derive(gate(earlier(method)), groups(), [], now=NOW, older_than=NOW, history=None)
    assert again(before) is None
    history = History.of([n / 400 for n in range(400)])
    today = gate(GateSettings(encoder="e@00000000", method=method, alpha=0.2))
    now = derive(today, groups(), [], now=NOW, older_than=NOW, history=history)
    walked = next(one for one in now.candidates if one.name == "selective").threshold.value
    assert walked in history.cuts
    assert walked != FOUND["selective"]
    assert again(now, history=json.dumps(history.to_json())) is None
    other = History.of([(n / 400) ** 2 for n in range(400)])
    assert "selective finds" in str(again(now, history=json.dumps(other.to_json())))
    assert "cuts of a history" in str(again(now, history='{"prompts": 400, "cuts": [0.2, 0.5]}'))


def test_a_record_says_which_edition_a_gate_has() -> None:
    before, today = earlier("selective"), GateSettings(encoder="e@00000000", method="selective", alpha=0.2)
    assert (before.parameter("edition"), today.parameter("edition")) == (1, 2)
    assert (before.flat()["parameters"], today.flat()["parameters"]) == (None, {"edition": 2})
    for settings in (before, today):
        assert GateSettings(**settings.flat()) == settings
        assert GateSettings(**settings.named()) == settings
        assert replace(settings, alpha=0.3).parameter("edition") == settings.parameter("edition")
        run = derive(gate(settings), groups(), [], now=NOW, older_than=NOW)
        made = policy(settings, run) if run.decided.state == "cut" else None
        if made is not None:
            assert policy_from_event(decode_threshold(encode(threshold_event(made)))) == made
    assert calibrated_for_another(before, replace(before, edition=2)) == ["edition"]
    rows = [{name: one.flat()[name] for name in FLAT_NAMES} for one in (before, today)]
    assert by_the_verifier(*rows) == ["edition"]
    assert replace(before, edition=2) == today
    mean = GateSettings(encoder="e@00000000", alpha=0.2)
    assert by_the_verifier(mean.flat(), replace(mean, edition=1).flat()) == []
    assert calibrated_for_another(mean, replace(mean, edition=1)) == []


def test_the_grid_knows_no_label_floor() -> None:
    with pytest.raises(ValueError, match="label_floor does not go with this edition of method selective"):
        replace(earlier("selective"), label_floor=0.5)
    assert replace(earlier("selective"), edition=2, label_floor=0.5).label_floor == 0.5
