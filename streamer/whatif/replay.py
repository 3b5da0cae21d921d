"""The past decided again, batch by batch, by the gate that decides in service (`streamer.gates.policy_gate`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streamer.gates.batch_key import BatchKey
from streamer.gates.policy_gate import PolicyGate
from streamer.gates.settings import GateSettings
from streamer.gates.uniforms import uniforms_for
from streamer.recalibration.comparison import Reading
from streamer.whatif.past import Past

Flags = NDArray[np.bool_]

Why = Literal["ships", "selected", "cut", "needed", "policy", "candidate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A decision of the record that its own policy, applied again, does not come to.

    `what` differs: which responses ship, which one was selected, what the batch was cut by, which
    budget it needed; or its `policy` is not on record in a form that this program reads; or its
    `candidate` decided otherwise than it comes to again.
    """

    batch_id: str
    policy_version: int
    what: Why
    detail: str


def replay_record(past: Past) -> list[Difference]:
    """Decide every batch again by the policy that decided it; says which decisions differ from the record.

    Equal means: the same responses ship, the same one was selected, and where it was recorded the same cut served, to the
    last bit, as is the budget that it needed. What was not scored must have been held.
    """
    gates: dict[int, PolicyGate] = {}
    found = []
    shipped, blank = past.shipped.tolist(), past.blank.tolist()
    scores, uniforms = past.scores.tolist(), past.uniforms.tolist()
    versions, scored = past.versions.tolist(), past.scored.tolist()
    for place, version in enumerate(versions):
        there = past.of_batch(place)
        recorded = shipped[there]
        again, selected, cut, needed = [False] * len(recorded), None, None, past.needed[place]
        if scored[place]:
            policy = past.policies.get(version)
            if policy is None:
                found.append(
                    _differs(past, place, "policy", "its policy is not on record, or of a later version")
                )
                continue
            if version not in gates:
                gates[version] = PolicyGate.of(policy)
            gate = gates[version]
            try:
                ruling = gate.decide(
                    scores[there],
                    blank=blank[there],
                    uniforms=uniforms[there] if gate.needs_uniforms else None,
                    segment=past.segments[place],
                    row=row_of(past, place),
                    burst=past.bursts[place] if past.bursts else None,
                )
            except ValueError as error:
                found.append(_differs(past, place, "ships", f"it cannot be decided again: {error}"))
                continue
            again, cut, needed = list(ruling.gate.shipped), ruling.cut, ruling.needed
            if ruling.gate.selected is not None:
                selected = past.response_ids[there.start + ruling.gate.selected]
        if again != recorded:
            said = ", ".join(
                f"{past.response_ids[there.start + i]} {'shipped' if was else 'was held'} and "
                f"{'ships' if now else 'is held'}"
                for i, (was, now) in enumerate(zip(recorded, again, strict=True))
                if was != now
            )
            found.append(_differs(past, place, "ships", said))
        elif selected != past.selected[place]:
            found.append(
                _differs(past, place, "selected", f"{past.selected[place]} was selected, {selected} is")
            )
        elif cut is not None and past.cuts.get(place, cut) != cut:
            was = past.cuts[place]
            found.append(
                _differs(
                    past,
                    place,
                    "cut",
                    f"it was cut by {was.state} {was.threshold!r}, and is by {cut.state} {cut.threshold!r}",
                )
            )
        elif needed != past.needed[place]:
            said = f"the budget that it needed was {past.needed[place]}, and is {needed}"
            found.append(_differs(past, place, "needed", said))
    return found


def replay(past: Past, settings: GateSettings, reading: Reading, *, salt: bytes) -> Flags:
    """Decide every batch by another policy, and return which responses would have shipped: shape
    (m,).

    Of its settings unit, and the metadata key of segments, are read. Random gates draw their
    numbers from the gate's secret `salt`: they are those that they would have drawn. What was not
    scored stays held: no policy ships it.
    """
    ships = np.zeros(len(past.response_ids), dtype=np.bool_)
    if reading.ships_nothing:
        return ships
    bursts = reading.bursts if past.burst_names else None
    least = settings.least_kept
    gate = PolicyGate(unit=settings.unit, cut=reading.cut, rule=reading.rule, bursts=bursts, least_kept=least)
    segments = segments_under(past, settings.segment_by)
    scores, blank = past.scores.tolist(), past.blank.tolist()
    for place in np.flatnonzero(past.scored).tolist():
        there = past.of_batch(place)
        uniforms = None
        if gate.needs_uniforms:
            key = BatchKey(past.gate, past.batch_ids[place], 1)
            uniforms = uniforms_for(salt, key, past.response_ids[there], settings.unit)
        ruling = gate.decide(
            scores[there],
            blank=blank[there],
            uniforms=uniforms,
            segment=segments[place],
            row=row_of(past, place),
            prompt=f"{past.batch_ids[place]}#1",
            burst=None if bursts is None else bursts.sealed(past.burst_names[place]),
        )
        ships[there] = ruling.gate.shipped
    return ships


def row_of(past: Past, place: int) -> NDArray[np.float32] | None:
    """The signals of what a batch may ship, shape (d,); None where none were kept."""
    row = past.rows[place]
    return None if row is None else np.frombuffer(row, "<f4")


def segments_under(past: Past, key: str | None) -> Sequence[str | None]:
    """The segment of each batch by a metadata key: as the batch names it, or as it was recorded under the same key.

    None without a key, and where nobody knows it any more.
    """
    if key is None:
        return [None] * len(past)
    named = past.named.get(key, [None] * len(past))
    same = {one for one, policy in past.policies.items() if policy.settings.segment_by == key}
    return [
        recorded if name is None and version in same else name
        for name, recorded, version in zip(named, past.segments, past.versions.tolist(), strict=True)
    ]


def _differs(past: Past, place: int, what: Why, detail: str) -> Difference:
    return Difference(
        batch_id=past.batch_ids[place], policy_version=int(past.versions[place]), what=what, detail=detail
    )
