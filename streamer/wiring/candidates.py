"""Candidate policies of gates: set with a threshold where labels give one, and put in force."""

from collections import Counter
from datetime import timedelta

from streamer.errors import TryLater, UsageError
from streamer.gates.gate import gate_batch
from streamer.gates.policy import SIGNED_IN, CandidatePolicy
from streamer.gates.rule import Cut
from streamer.gates.settings import PARAMETERS, GateSettings
from streamer.recalibration.run import CHOSEN, CalibrationRun, Recalibration
from streamer.settings.settings import Settings
from streamer.store import Store
from streamer.whatif.asking import SETTINGS, plain_rule
from streamer.wiring.asking import what_if
from streamer.wiring.parts import now, open_store, recalibrate

_AT_ONCE = 500
NOT_BESIDE = "not_beside"
"""Why a batch has no scores of a candidate: it was decided before that was set, or after it was stopped."""


def calibrated_beside(store: Store, gate: str, wanted: GateSettings) -> CalibrationRun | None:
    """Calibrate a gate for other settings on every label that there is, with the scores that candidates recorded; None: on none.

    Nothing is written.
    """
    return what_if(store, gate, since=now() - timedelta(days=1)).calibrate(wanted)


def set_candidate(
    store: Store,
    gate: str,
    wanted: GateSettings,
    *,
    cut: Cut | None,
    by: str,
    reason: str,
    must_ship: bool = False,
) -> CandidatePolicy:
    """Decide beside a gate from now on by other settings.

    `cut` : its threshold; None: what a calibration finds on the labels that there are, and where
    that ships nothing, none. `must_ship` : refuse, and change nothing, where that calibration is
    closed, whatever segments of it would ship. Raises `UsageError` for what cannot be tried beside:
    another unit, or a scorer that asks a language model, which somebody pays for; `TryLater` where
    it must ship and would not.
    """
    if wanted.asks:
        raise UsageError(
            f"the scorer {wanted.scorer} asks a language model for every answer, and who pays for that decides by it: a candidate cannot"
        )
    if wanted.unit != store.gates.get(gate).settings.unit:
        raise UsageError("a candidate has its gate's unit, for which the audit draws answers to label")
    if cut is not None:
        return store.candidates.start(gate, wanted, cut=cut, rule=plain_rule(wanted), by=by, reason=reason)
    run = calibrated_beside(store, gate, wanted)
    reading = None if run is None else run.reading
    if must_ship and (run is None or run.decided.state == "closed"):
        raise TryLater(
            f"there are too few labels of answers that the candidate of gate {gate!r} scored for a threshold that ships anything"
        )
    if run is None or reading is None or reading.ships_nothing:
        return store.candidates.start(gate, wanted, by=by, reason=reason)
    return store.candidates.start(
        gate, wanted, cut=reading.cut, rule=reading.rule, guarantee=run.guarantee, by=by, reason=reason
    )


def adopt_candidate(
    settings: Settings, gate: str, *, by: str, reason: str
) -> tuple[Recalibration, Counter[str]]:
    """Put a gate's candidate in force: keep its scores of the audit sample, change the gate, calibrate.

    Returns the run, and how many drawn batches it could not read because the candidate has no scores of them, by the reason:
    as on record, or `NOT_BESIDE` where it was not set yet.

    The gate is closed between the last two, which follow at once. Ended in between, the same call continues. Of a gate that
    demands two people the threshold waits for the second one, and the gate is closed until then, unless somebody who has signed in
    adopts what somebody else has set. The candidate itself is stopped. Raises `UsageError` when
    there is none, it reads another encoder's embeddings, or has the gate's settings; or when there
    is nothing to calibrate on.
    """
    with open_store(settings) as store:
        present, (candidate, wanted) = store.gates.get(gate).settings, store.candidates.present(gate)
        if wanted.encoder != present.encoder:
            raise UsageError(
                f"the candidate reads the embeddings of {wanted.encoder}, for which no earlier decision can calibrate gate {gate}: "
                f"`streamer gate set {gate} --scorer {wanted.scorer} --encoder {wanted.encoder}` closes it until labels have come"
            )
        if calibrated_beside(store, gate, wanted) is None:
            raise TryLater(
                f"there is nothing to calibrate gate {gate!r} on as its candidate would have it: no answer that was drawn has "
                "its scores; nothing was changed"
            )
        before, after = present.named(), wanted.named()
        tried = ("model", "signals", *SETTINGS, *PARAMETERS)
        changes = {name: after[name] for name in tried if before[name] != after[name]}
        left_out = _carry(store, gate, wanted)
        if changes:
            store.gates.revise(gate, changes, by=by, reason=reason)
            left_out = _carry(store, gate, wanted)  # what was decided since
    # Whoever signs in and approves what somebody else has proposed is the second person already.
    second = (
        present.two_people
        and by.startswith(SIGNED_IN)
        and by.removeprefix(SIGNED_IN) != candidate.by.removeprefix(SIGNED_IN)
    )
    asked = candidate.by if second else by
    done = recalibrate(settings, gate, by=asked, reason=reason, propose=present.two_people, note=CHOSEN)
    with open_store(settings) as store:
        if second:
            store.calibration.activate(gate, done.proposed, by=by, reason=reason, now=now())
        store.candidates.stop(gate, by=by, reason=reason)
    return done, left_out


def _carry(store: Store, gate: str, wanted: GateSettings) -> Counter[str]:
    """Keep, sealed, the candidate's scores and rows of the drawn batches that others have decided: of all, or of none.

    Returns how many have no scores, by the reason.
    """
    found: dict[int, dict[str, float]] = {}
    rows: dict[int, bytes] = {}
    asked, made = store.candidates.drawn(gate, wanted)
    missing = dict.fromkeys(asked, NOT_BESIDE)
    for one in made:
        scores = one.decision.scores
        if scores is None:
            missing[one.number] = one.decision.why or NOT_BESIDE
            continue
        best = gate_batch(scores, unit="best", state="open", threshold=None).best or 0
        if wanted.unit == "best" and one.response_ids[best] not in asked[one.number]:
            raise UsageError(
                f"the candidate ranks another answer first than gate {gate} does, and labels are of the gate's: they cannot calibrate "
                f"it. `streamer gate set {gate} --scorer {wanted.scorer}` closes the gate until labels have come"
            )
        found[one.number] = dict(zip(one.response_ids, scores, strict=True))
        if one.decision.signals is not None:
            rows[one.number] = one.decision.signals
    numbers = list(found)
    for start in range(0, len(numbers), _AT_ONCE):
        some = numbers[start : start + _AT_ONCE]
        store.carried_scores.keep(wanted.scorer, {number: found[number] for number in some})
        if wanted.signal_list is not None:
            kept = {number: rows[number] for number in some if number in rows}
            store.carried_scores.keep_signals(wanted.signal_list.hash, kept)
    return Counter(why for number, why in missing.items() if number not in found)
