"""The figures of a report, from the rows of a bundle."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from streamer_verify.bundle import Bundle
from streamer_verify.calibrators import claim_loss
from streamer_verify.figure_rows import FigureRows, GateRows, Response, Rows
from streamer_verify.values import parsed, seconds_between, sha256
from streamer_verify.verifier import Verifier

_RATES = 12
"""How many rates the boundary of an interval mixes."""


def _only(rows: Iterable[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Of each row these columns."""
    return [{name: row[name] for name in names} for row in rows]


def _in_turn(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items()))


def _median(rising: Sequence[float]) -> float | None:
    if not rising:
        return None
    return round((rising[(len(rising) - 1) // 2] + rising[len(rising) // 2]) / 2, 3)


MOST_DAYS = 62

_SELECTIVE = ("selective", "selective-mean")
"""Methods that bound the error rate among shipped answers, and not exposure."""


def _by_day_or_month(days: dict[str, Counter[str]]) -> tuple[str, dict[str, Counter[str]]]:
    if not days or (datetime.fromisoformat(max(days)) - datetime.fromisoformat(min(days))).days <= MOST_DAYS:
        return "day", days
    months: dict[str, Counter[str]] = {}
    for day, counts in days.items():
        months.setdefault(day[:7], Counter()).update(counts)
    return "month", months


VERIFIED = (
    "outcomes", "control entries", "checkpoints", "decisions", "actions derived again", "draws", "draws not verified", "texts",
    "texts not given or erased", "decisions under the newest policy", "runs whose sample is complete",
    "calibrations derived again", "inputs of runs",
)  # fmt: skip
"""What of the verifier's counts is a figure."""


def _in_order(gate: GateRows, losses: dict[int, tuple[float, float]]) -> Iterator[tuple[float, float, float]]:
    """Yield of each first attempt, in the order of decision: probability, and 1/probability times the least and most loss."""
    order = sorted(range(len(gate.moments)), key=lambda at: (gate.moments[at], at))
    for at in order:
        probability = gate.probabilities[at]
        least, most = losses.get(at, (0.0, 0.0))
        weight = 1 / probability if at in losses else 0.0
        yield probability, weight * least, weight * most


def exposure_sums(
    decisions: Iterable[tuple[float, float, float]], *, alpha: float, delta: float
) -> tuple[float, float, float]:
    """Bound the summed exposure of decisions in their order: the estimate, and two bounds that hold with 1 - delta.

    As `streamer risk` does: a sum of bounded martingale differences against a mixture of exponential supermartingales, in
    which a missing label counts 0 below and 1 above. Over the number of decisions it is exposure, over how much of them
    shipped it is the error rate among shipped answers; both intervals fail together or not at all. Each decision has the
    logged probability of its draw, and its least and its most loss over that probability, 0 if it was not drawn; `alpha` is
    the budget of a first attempt, from which the running mean begins.
    """
    least, most = [0.0, 0.0], [0.0, 0.0]  # sum and variation of each
    smallest, count = 1.0, 0
    for count, (probability, low, high) in enumerate(decisions, 1):
        smallest = min(smallest, probability or 1.0)
        for sums, value in ((least, low), (most, high)):
            centre = min(max((alpha + sums[0]) / count, 0.0), 1.0)
            sums[0] += value
            sums[1] += (value - centre) ** 2
    target = smallest * math.sqrt(2 * math.log(2 / delta) / (1000 * alpha))
    below = least[0] - _deviation(1.0, target, least[1], delta / 2)
    above = most[0] + _deviation(1 / smallest, target, most[1], delta / 2)
    return most[0], below, above


def _deviation(scale: float, target: float, variation: float, error: float) -> float:
    """Return how far the sum may stray at any time: D with sum_k w_k exp(u_k D - psi(u_k) V) = 1/error."""
    rates = [0.95 * 2.0**-k / scale for k in range(_RATES)]
    weights = [3.0 ** -abs(math.log2(rate / target)) for rate in rates]
    total, goal = math.fsum(weights), -math.log(error)
    rests = [
        math.log(weight / total) - variation * (-math.log1p(-scale * rate) - scale * rate) / scale**2
        for rate, weight in zip(rates, weights, strict=True)
    ]

    def reaches(deviation: float) -> bool:
        exponents = [rest + rate * deviation for rate, rest in zip(rates, rests, strict=True)]
        peak = max(exponents)
        return peak + math.log(math.fsum(math.exp(one - peak) for one in exponents)) >= goal

    low, high = 0.0, min((goal - rest) / rate for rate, rest in zip(rates, rests, strict=True))
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high


class Figures(FigureRows):
    """Derives the figures of an evidence report from the rows of a bundle, while they pass to the verifier.

    docs/evidence.md says what each of them is. The period is `since` <= moment < `until`, in the form of moments in leaves;
    `gates` None: every gate.
    """

    def result(self, bundle: Bundle, verifier: Verifier) -> dict[str, dict[str, Any]]:
        """Return every figure by its name: `value`, how it was `derived`, and the rows it was read from.

        `rows` is their number, `sha256` of their leaves in the order of the bundle, `checkpoint` the number of the one by which
        they were covered, and `after` how many no checkpoint covers.
        """
        for number in self._signed & self._by_number.keys():
            response, kind, labeller = self._by_number[number]
            given = self._labels[response][kind]
            given[labeller] = (*given[labeller][:3], True)
        figures: dict[str, dict[str, Any]] = {}
        period = f"since {self.since} and before {self.until}"

        def put(name: str, value: Any, derived: str, *rows: Rows | None) -> None:
            read = [one for one in rows if one is not None]
            figures[name] = {
                "value": value, "derived": derived, "rows": sum(one.count for one in read),
                "sha256": sha256(b"".join(one.digest() for one in read)) if read else None,
                "checkpoint": max((one.newest for one in read if one.newest is not None), default=None),
                "after": sum(one.after for one in read),
            }  # fmt: skip

        self._about_the_record(put, bundle, verifier, period)
        for name, gate in sorted(self._gates.items()):
            self._about_a_gate(put, name, gate, period)
        return figures

    def _about_the_record(
        self, put: Callable[..., None], bundle: Bundle, verifier: Verifier, period: str
    ) -> None:
        head = bundle.manifest["head"]
        days = (datetime.fromisoformat(self._last) - datetime.fromisoformat(self._first)) / timedelta(days=1) if self._first else 0  # fmt: skip
        put(
            "record",
            {
                "record_id": head["record_id"], "leaves": self._leaves, "partitions": len(head["partitions"]),
                "first_recorded": self._first or None, "last_recorded": self._last or None, "days": round(days, 3),
            },
            "control.jsonl and outcomes.jsonl: number of lines, least and greatest recorded_at; whatever the period",
            self._every,
        )  # fmt: skip
        made = sorted(self._checkpoints)
        moments = [datetime.fromisoformat(at) for _, at in made]
        gaps = [(b - a).total_seconds() for a, b in itertools.pairwise(moments)]
        put(
            "checkpoints",
            {
                "number": len(made), "newest": made[-1][0] if made else None,
                "newest_made_at": made[-1][1] if made else None, "leaves_covered": min(self._covered, self._leaves),
                "leaves_after": max(0, self._leaves - self._covered),
                "longest_seconds_between": round(max(gaps, default=0.0), 3),
            },
            "heads.jsonl: sizes of the newest under the checkpoint against the sizes of the logs; whatever the period",
            self._signed_heads,
        )  # fmt: skip
        put(
            "verification",
            {"faults": verifier.counts["faults"]} | {name: verifier.counts[name] for name in VERIFIED},
            "verify.pyz on this bundle; whatever the period",
            self._every,
            self._signed_heads,
        )
        put(
            "unchecked",
            sorted(verifier.notes.values()),
            "verify.pyz on this bundle: what it could not check",
            self._every,
            self._signed_heads,
        )
        put(
            "refused",
            {
                "dead_letters": self._kinds["dead_letter"], "by_code": _in_turn(self._codes),
                "conflicts": self._kinds["conflict"], "duplicates": self._kinds["duplicate"],
                "lost": [
                    [one["topic"], one["partition"], one["from_offset"], one["to_offset"]]
                    for one in self._of_record["data_gaps"]
                ],
            },
            f"outcomes.jsonl, kind dead_letter, conflict or duplicate, control.jsonl, kind data_gaps; recorded_at {period}",
            self._rows.get("refused"), self._rows.get("data_gaps"),
        )  # fmt: skip
        put(
            "erasures",
            _only(self._of_record["erasures"], "at", "by", "reason", "before", "sooner"),
            f"control.jsonl, kind erasures; at {period}",
            self._rows.get("erasures"),
        )
        put(
            "people",
            {
                "accounts": _only(self._of_record["accounts"], "name", "revision", "roles", "created_at", "created_by", "reason"),
                "api_keys": _only(self._of_record["api_keys"], "id", "gates", "may", "created_at", "created_by"),
                "revoked": _only(self._of_record["api_key_revocations"], "id", "revoked_at", "revoked_by", "revoked_reason"),
            },
            f"control.jsonl, kind accounts, api_keys and api_key_revocations; created_at or revoked_at {period}",
            *(self._rows.get(name) for name in ("accounts", "api_keys", "api_key_revocations")),
        )  # fmt: skip

    def _about_a_gate(self, put: Callable[..., None], name: str, gate: GateRows, period: str) -> None:
        decided = f"outcomes.jsonl, kind decision, facts.batch[0] = {name}, facts.decided_at {period}"
        total = sum(gate.outcomes.values())
        put(
            f"decisions/{name}",
            {
                "total": total, "by_outcome": _in_turn(gate.outcomes), "by_reason": _in_turn(gate.reasons),
                "by_mode": _in_turn(gate.modes), "served": gate.served,
                "share_served": gate.served / total if total else None, "later_attempts": gate.later_attempts,
                "first": gate.first or None, "last": gate.last or None,
            },
            f"{decided}: count by facts.outcome, reason and mode; served: with a response that shipped",
            gate.rows.get("decisions"),
        )  # fmt: skip
        step, counts = _by_day_or_month(gate.over_time)
        put(
            f"over_time/{name}",
            {"step": step, "counts": [[at, _in_turn(one)] for at, one in sorted(counts.items())]},
            f"{decided}: count by {step} (UTC) and facts.outcome; by month where there are more than {MOST_DAYS} days",
            gate.rows.get("decisions"),
        )
        newest: dict[str, Any] = gate.revisions[-1] if gate.revisions else {}
        asked = ("revision", "unit", "scorer", "encoder", "severity_kind", "alpha", "method", "mode", "hold_action", "audit_probability", "on_alarm", "two_people", "keep_texts")  # fmt: skip
        changed = [one for one in gate.revisions if self._inside(one["created_at"])]
        put(
            f"settings/{name}",
            {
                "newest": {one: newest.get(one) for one in asked},
                "changes": _only(changed, "revision", "created_at", "created_by", "reason"),
            },
            f"control.jsonl, kind gate_revisions, row.gate = {name}: the last one; changes: created_at {period}",
            gate.rows.get("settings"),
        )  # fmt: skip
        put(
            f"policies/{name}",
            [self._policy(gate, one) for one in gate.policy_events],
            f"control.jsonl, kind policy_events, row.gate = {name}, at {period}, with the row of kind policies of that version",
            gate.rows.get("policies"),
        )
        runs = [one for one in gate.runs.values() if self._inside(one["started_at"])]
        put(
            f"runs/{name}",
            {
                "total": len(runs),
                "by_outcome": dict(sorted(Counter(str(one.get("outcome")) for one in runs).items())),
                "requested_by": _in_turn(Counter(one["requested_by"] for one in runs)),
                "rejected": _only(gate.rejections, "run", "rejected_at", "rejected_by", "reason"),
            },
            f"control.jsonl, kind calibration_runs, row.gate = {name}, started_at {period}; proposal_rejections of its runs",
            gate.rows.get("runs"),
        )  # fmt: skip
        put(f"alerts/{name}", self._alerts(gate),
            f"control.jsonl, kind alerts, row.gate = {name}, raised_at {period}, and alert_acknowledgements of them",
            gate.rows.get("alerts"))  # fmt: skip
        put(
            f"labels/{name}",
            {
                "total": sum(gate.labels.values()),
                "by_source": _in_turn(gate.labels),
                "by_labeller": _in_turn(gate.labellers),
            },
            f"outcomes.jsonl, kind label, and control.jsonl, kind label_revisions, of the gate {name}, received_at {period}",
            gate.rows.get("labels"),
        )
        self._about_the_desk(put, name, gate, newest, period)
        self._about_the_sample(put, name, gate, newest, decided, total)

    def _about_the_desk(
        self, put: Callable[..., None], name: str, gate: GateRows, settings: dict[str, Any], period: str
    ) -> None:
        """What people made of answers that the gate held for them."""
        waits, severities = [], []
        drawn = as_they_were = 0
        for row in gate.desk:
            decided = gate.at_desk[row["batch_id"], row["attempt"]]
            if decided is None:  # the verifier names it
                continue
            moment, kind, asked = decided
            if row["reason"] == "person":
                waits.append(seconds_between(moment, row["at"]))
            if row["action"] != "released" or row["edited"]:
                continue
            released = parsed(row["claims"]) or [row["response_id"]]
            as_they_were += len(released)
            for one in asked.intersection(released):
                drawn += 1
                response: Response = (name, row["batch_id"], row["attempt"], one)
                severities.append(self._severity(response, kind, settings))
        known = [one for one in severities if one is not None]
        waits.sort()
        put(
            f"desk/{name}",
            {
                "deadline_seconds": settings.get("desk_deadline_seconds"), "outcomes": len(gate.desk),
                "released": sum(one["action"] == "released" for one in gate.desk),
                "edited": sum(bool(one["edited"]) for one in gate.desk),
                "rejected": sum(one["action"] == "rejected" and one["reason"] == "person" for one in gate.desk),
                "deadline_passed": sum(one["reason"] != "person" for one in gate.desk),
                "by": _in_turn(Counter(one["by"] for one in gate.desk if one["by"] is not None)),
                "median_seconds": _median(waits), "longest_seconds": round(waits[-1], 3) if waits else None,
                "released_as_they_were": as_they_were, "drawn": drawn, "labelled": len(known),
                "severity": math.fsum(known) / len(known) if known else None,
            },
            f"control.jsonl, kind desk_outcomes, row.gate = {name}, at {period}: count by action, reason and edited; seconds from"
            " facts.decided_at of the batch to at, where reason is person; drawn: released unedited, and the gate's own audit draw"
            " took that answer, or claim that was put back; severity: mean of those of them that have a label which the gate reads, whenever",
            gate.rows.get("desk"),
            gate.rows.get("decisions at the desk"),
            gate.rows.get("every label") if drawn else None,
        )  # fmt: skip

    def _about_the_sample(
        self, put: Callable[..., None], name: str, gate: GateRows, settings: dict[str, Any], decided: str, total: int
    ) -> None:  # fmt: skip
        wanted = labelled = missing = known = 0
        losses: dict[int, tuple[float, float]] = {}
        for at, batch_id, kind, marks in gate.drawn_ones:
            least, most = list[float](), list[float]()
            for response_id, ships in marks:
                severity = self._severity((name, batch_id, 1, response_id), kind, settings)
                wanted += 1
                labelled += severity is not None
                if ships:
                    least.append(0.0 if severity is None else severity)
                    most.append(1.0 if severity is None else severity)
            loss = settings["loss"] if settings.get("unit") == "claim" else "share"
            low, high = losses[at] = claim_loss(loss, least, len(marks)), claim_loss(loss, most, len(marks))
            missing += low < high
            known += low == high
        put(
            f"draws/{name}",
            {
                "drawn": gate.drawn, "share_drawn": gate.drawn / total if total else None,
                "by_a_raised_rate": gate.extra, "responses_drawn": wanted, "responses_labelled": labelled,
                "share_labelled": labelled / wanted if wanted else None,
            },
            f"{decided}, facts.sampled; responses: drawn ones of first attempts; labelled: by a label that the gate reads, whenever",
            gate.rows.get("drawn"), gate.rows.get("every label"),
        )  # fmt: skip
        # A first attempt has its share of what a prompt may cost; some methods bound another risk.
        share = settings["alpha"] / (settings.get("max_attempts") or 1) if settings else None
        promised = "selective" if settings.get("method") in _SELECTIVE else "exposure"
        delta = settings.get("monitor_delta") or 0.1  # gates of the first versions had no such setting
        sums = None
        if share is not None and len(gate.moments) and not gate.shipped_undrawable:
            sums = exposure_sums(_in_order(gate, losses), alpha=share, delta=delta)
        served = math.fsum(gate.shares)
        among = "mean severity among what shipped: the sum behind exposure over what shipped,"
        for risk, over, what in (
            ("exposure", float(len(gate.moments)), "mean severity of what shipped, held ones 0,"),
            ("selective", served, among),
        ):
            value: dict[str, Any] = {
                "decisions": len(gate.moments), "known": known, "missing": missing, "promised": promised,
                "budget": share if promised == risk else None,
            }  # fmt: skip
            bounds = None
            if sums is not None and over:
                bounds = tuple(min(1.0, max(0.0, one / over)) for one in sums)
            value |= dict(zip(("estimate", "lower", "upper"), bounds or (None, None, None), strict=True))
            value["confidence"] = 1 - delta if bounds else None
            value["shipped_without_a_chance_to_be_drawn"] = gate.shipped_undrawable
            if risk == "selective":
                value["shipped"] = served
            put(
                f"{risk}/{name}",
                value,
                f"{decided}, facts.batch[2] = 1: {what} from the drawn ones and their labels; docs/evidence.md has the formula",
                gate.rows.get("decisions"), gate.rows.get("every label"),
            )  # fmt: skip

    def _severity(self, response: Response, kind: str, settings: dict[str, Any]) -> float | None:
        """Return the mean of what the labellers whom the gate reads said last; None: nobody has."""
        named = parsed(settings.get("labellers"))
        given = [
            severity
            for labeller, (_, _, severity, signed) in self._labels.get(response, {}).get(kind, {}).items()
            if (named is None or labeller in named) and (signed or not settings.get("signed_labels"))
        ]
        return math.fsum(given) / len(given) if given else None

    @staticmethod
    def _policy(gate: GateRows, event: dict[str, Any]) -> dict[str, Any]:
        policy = gate.policies.get(event["version"], {})
        run = gate.runs.get(policy.get("calibration_run") or 0, {})
        return {
            **{name: event[name] for name in ("version", "event", "at", "by", "reason")},
            **{name: policy.get(name) for name in ("state", "threshold", "guarantee", "calibration_run")},
            "signed": policy.get("signature") is not None,
            "run_requested_by": run.get("requested_by"),
        }

    @staticmethod
    def _alerts(gate: GateRows) -> dict[str, Any]:
        waits, each = [], []
        for one in gate.alerts.values():
            row, seen = one["alert"], one["acknowledged"] or {"at": None, "by": None}
            wait = None if seen["at"] is None else seconds_between(row["raised_at"], seen["at"])
            waits += [] if wait is None else [wait]
            each.append(
                {
                    **{name: row[name] for name in ("kind", "level", "raised_at", "message")},
                    "acknowledged_at": seen["at"], "acknowledged_by": seen["by"],
                    "seconds": None if wait is None else round(wait, 3),
                }
            )  # fmt: skip
        waits.sort()
        return {
            "raised": len(each), "by_level": _in_turn(Counter(one["level"] for one in each)),
            "acknowledged": len(waits), "median_seconds": _median(waits),
            "longest_seconds": round(waits[-1], 3) if waits else None, "each": each,
        }  # fmt: skip
