"""What a threshold was calibrated for, and how long a looser one has to wait."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from streamer_verify.samples import budget
from streamer_verify.settings import CALIBRATED_FOR
from streamer_verify.values import PLAIN, RECALIBRATOR, parsed

MEANS_SOMETHING_UNDER = {
    "eta": ("method", ("rbwa",)),
    "draws": ("method", ("bb",)),
    "delta": ("method", ("hb", "betting", "selective", "bernstein")),
    "rho": ("method", ("age",)),
    "width": ("shape", ("smooth", "ramp")),
    "signals": ("method", ("full",)),
}


def calibrated_for_another(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Name what a threshold for the settings `before` was calibrated for otherwise than the settings `after` ask."""

    def has_meaning(name: str) -> bool:
        if name == "segment_fallback":
            return any(row.get("segment_by") is not None for row in (before, after))
        decider, values = MEANS_SOMETHING_UNDER.get(name, (None, ()))
        return decider is None or any(row.get(decider) in values for row in (before, after))

    changed = [
        name
        for name in CALIBRATED_FOR
        if name in before and name in after and before[name] != after[name] and has_meaning(name)
    ]
    # For methods that are newer than this table, the row itself says what they read.
    was, will_be = (parsed(row.get("parameters") or {}) for row in (before, after))
    changed += sorted(
        name
        for name in was.keys() | will_be.keys()
        if name not in changed
        and has_meaning(name)
        and was.get(name, before.get(name)) != will_be.get(name, after.get(name))
    )
    named, wanted = before.get("labellers"), after.get("labellers")
    if wanted is not None and (named is None or not set(named) <= set(wanted)):
        changed.append("labellers")
    if after.get("signed_labels") and not before.get("signed_labels"):
        changed.append("signed_labels")
    return changed


_WAITED = re.compile(r"it has waited for one label lag since run (\d+)")


class Served(NamedTuple):
    """What a policy or a run cuts by: lambda, plus or minus infinity where nothing or all ships, and its rule."""

    value: float
    rule: dict[str, Any]

    @classmethod
    def of(cls, row: dict[str, Any]) -> Served:
        """Read a policy's row, or that of a candidate."""
        return cls(
            _level({"state": row["state"], "lambda": row["threshold"]}), parsed(row.get("rule")) or PLAIN
        )

    @property
    def own(self) -> dict[str, float]:
        """The cuts of segments."""
        own = self.rule["parameters"]["own"] if self.rule["kind"] == "segments" else {}
        return {name: _level(cut) for name, cut in own.items()}

    @property
    def ships_nothing(self) -> bool:
        """Whether all is held."""
        return self.value == math.inf and all(value == math.inf for value in self.own.values())


def _level(cut: dict[str, Any]) -> float:
    whole = {"closed": math.inf, "open": -math.inf, "full": math.nan}
    return float(cut["lambda"]) if cut["state"] == "cut" else whole[cut["state"]]


def is_looser(before: Served, after: Served) -> bool:
    """Report whether `after` may ship something that `before` holds; what cannot be compared may."""
    if before == after or after.ships_nothing:
        return False
    if before.ships_nothing:
        return True
    kinds = before.rule["kind"], after.rule["kind"]
    if "full" in kinds:
        return False  # which of two ships more is told by prompts, not by a threshold
    if kinds == ("transductive", "transductive"):
        return not _window_holds_more(before.rule, after.rule)
    if kinds == ("segments", "segments"):
        if before.rule["parameters"]["key"] != after.rule["parameters"]["key"]:
            return True
    elif kinds != ("quantile", "quantile") and before.rule != after.rule:
        return True
    names = {*before.own, *after.own}
    cuts = [(before.own.get(name, before.value), after.own.get(name, after.value)) for name in names]
    return any(new < old for old, new in [(before.value, after.value), *cuts])


def _window_holds_more(before: dict[str, Any], after: dict[str, Any]) -> bool:
    old, new = before["parameters"], after["parameters"]
    floors = [-math.inf if one["floor"] is None else one["floor"] for one in (old, new)]
    if old["labelled"] != new["labelled"] or floors[1] < floors[0]:
        return False
    levels = {-math.inf if level is None else level for rule in (before, after) for level, _ in rule["curve"]}
    return all(_room(after, level) <= _room(before, level) for level in levels)


def _room(rule: dict[str, Any], level: float) -> float:
    """What a batch may lose at a level, at most 1."""
    totals = [total for at, total in rule["curve"] if at is None or at <= level]
    given = rule["parameters"]
    return min(1.0, budget(given["alpha"], given["groups"]) + 1 - totals[-1]) if totals else -math.inf


class Waits:
    """Follows the runs and policies of all gates in their order: no looser threshold acts while it has to wait.

    How late labels were when a wait began is not among what a run keeps: that its length was right is not tested.
    """

    def __init__(self) -> None:
        self._serves: dict[str, Served] = {}
        self._since: dict[str, str] = {}
        self._held: dict[str, tuple[int, str, str]] = {}

    def policy(self, row: dict[str, Any]) -> None:
        """Take note of a policy: it ends the waits of runs that were finished before it came into force."""
        gate = row["gate"]
        self._serves[gate] = Served.of(row)
        self._since[gate] = max(row["valid_from"], self._since.get(gate, row["valid_from"]))

    def rejection(self, run: int) -> None:
        """Take note that a person rejected what a run proposed, which ends the wait too."""
        self._held = {gate: held for gate, held in self._held.items() if held[0] != run}

    def run(self, row: dict[str, Any], decided: Served | None) -> str | None:
        """Say how what became of a run contradicts the wait that ran when it began; None: it does not."""
        held = self._held.pop(row["gate"], None)
        if held is not None and held[2] < self._since.get(row["gate"], held[2]):
            held = None
        if row["requested_by"] != RECALIBRATOR:
            return None  # somebody asked for it
        until, before = row.get("held_until"), self._serves.get(row["gate"])
        if until is not None:
            self._held[row["gate"]] = (row["id"], until, row["finished_at"])
            if row["outcome"] != "proposed" or until <= row["started_at"]:
                return (
                    f"it is {row['outcome']} and waits until {until}: only a proposal waits, and until later"
                )
            return None
        if row["outcome"] != "applied" or before is None or decided is None:
            return None
        waited = _WAITED.search(row["why"])
        if waited is not None and (held is None or held[0] != int(waited[1])):
            return f"it says that its threshold has waited since run {waited[1]}, which began no wait that ran then"
        if held is not None and row["started_at"] < held[1] and is_looser(before, decided):
            return (
                f"a looser threshold came into force before {held[1]}, until when run {held[0]} has it wait"
            )
        return None


def of_same_revisions(wanted: dict[str, Any], served: dict[str, Any] | None) -> bool:
    """Whether a run for these settings reads what was decided under those: of the same upstream, and the same list of signals."""
    return all(
        wanted.get(name) is None or (served is not None and served.get(name) == wanted[name])
        for name in ("upstream", "signals", "judged")
    )
