"""What two looks at a service's metrics show a person who watches: rates, shares and states. Pure."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]


class Samples:
    """The samples of one look at one service, from a text in Prometheus' format; an empty one
    has none. Raises `ValueError` where the text is not in that format."""

    def __init__(self, exposition: str = "") -> None:
        self._values: dict[str, dict[Labels, float]] = defaultdict(dict)
        for family in text_string_to_metric_families(exposition):
            for sample in family.samples:
                self._values[sample.name][frozenset(sample.labels.items())] = sample.value

    def total(self, name: str, **labels: str) -> float:
        """Sum of the series that have these labels among theirs; 0 when there is none."""
        return sum(self._found(name, labels).values())

    def one(self, name: str, **labels: str) -> float | None:
        """Return the value of the only such series; None when there is none, or there are several."""
        found = list(self._found(name, labels).values())
        return found[0] if len(found) == 1 else None

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """Sums by the values of one label."""
        sums: dict[str, float] = defaultdict(float)
        for series, value in self._found(name, labels).items():
            sums[dict(series).get(label, "")] += value
        return dict(sums)

    def _found(self, name: str, labels: Mapping[str, str]) -> dict[Labels, float]:
        wanted = set(labels.items())
        return {
            series: value
            for series, value in self._values.get(f"streamer_{name}", {}).items()
            if wanted <= series
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownInterval:
    """A risk with its bounds, each in [0, 1]."""

    lower: float
    estimate: float
    upper: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GateNumbers:
    """One gate at a moment, and its policy in force since `activated_at` (Unix seconds, None while
    nobody knows); `threshold` is None unless the state is ``cut``, `alpha` is the budget.

    `batches` were decided since the worker started, and something shipped of the share
    `served_ratio`, None while there is none. `verdict` is -1 the budget was broken, 0 not known
    yet, 1 kept; None while nothing was decided while the gate was open. `exposure` and `selective`,
    with their bounds, are of what was decided while the gate was open: under the policy in force,
    or, while there is nothing of that, in the budget period; None while nothing is known.
    `labels_pending` are drawn responses that wait for a severity, None while nobody counts them;
    `alarms` are those that are raised.
    """

    gate: str
    version: int
    state: str
    threshold: float | None
    alpha: float
    activated_at: float | None
    batches: int
    served_ratio: float | None
    verdict: int | None
    exposure: ShownInterval | None
    selective: ShownInterval | None
    labels_pending: int | None
    alarms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNumbers:
    """Everything at a moment. `batches_per_second` is since the look before, None at the first;
    `latency_seconds` the mean since then, from a record's timestamp to its published action,
    None without any. `lag` records wait to be decided, `outbox` messages to be published;
    `dead_letters` are since the worker started; `away` are dependencies that do not answer."""

    batches_per_second: float | None
    latency_seconds: float | None
    lag: int
    outbox: int
    dead_letters: int
    away: tuple[str, ...]
    gates: tuple[GateNumbers, ...]


def live_numbers(
    worker: Samples, recalibrator: Samples, *, before: Samples | None = None, seconds: float = 1.0
) -> LiveNumbers:
    """Turn a look at each of the two services, an empty one for a service that does not answer,
    into what a person reads. `before` is a look at the worker `seconds` ago; None at the first."""
    rate = latency = None
    decided = worker.total("batches_total")
    # A restarted worker counts from zero.
    if before is not None and seconds > 0 and decided >= before.total("batches_total"):
        rate = (decided - before.total("batches_total")) / seconds
        name = "end_to_end_latency_seconds"
        acknowledged = worker.total(f"{name}_count") - before.total(f"{name}_count")
        if acknowledged > 0:
            latency = (worker.total(f"{name}_sum") - before.total(f"{name}_sum")) / acknowledged
    return LiveNumbers(
        batches_per_second=rate,
        latency_seconds=latency,
        lag=int(worker.total("consumer_lag_records")),
        outbox=int(worker.total("outbox_pending")),
        dead_letters=int(worker.total("dead_letters_total")),
        away=tuple(sorted(part for part, is_up in worker.by("part", "part_reachable").items() if not is_up)),
        gates=tuple(
            _gate(worker, recalibrator, gate) for gate in sorted(worker.by("gate", "policy_version"))
        ),
    )


def _gate(worker: Samples, recalibrator: Samples, gate: str) -> GateNumbers:
    batches = worker.by("action", "batches_total", gate=gate)
    decided = sum(batches.values())
    states = [state for state, is_it in worker.by("state", "policy_state", gate=gate).items() if is_it]
    pending = recalibrator.one("labels_pending", gate=gate)
    raised = recalibrator.by("alarm", "alarm_raised", gate=gate)
    verdict = recalibrator.one("budget_verdict", gate=gate)
    return GateNumbers(
        gate=gate,
        version=int(worker.one("policy_version", gate=gate) or 0),
        state=states[0] if len(states) == 1 else "unknown",
        threshold=worker.one("policy_lambda_ratio", gate=gate),
        alpha=worker.one("policy_alpha_ratio", gate=gate) or 0.0,
        activated_at=worker.one("policy_activated_timestamp_seconds", gate=gate),
        batches=int(decided),
        served_ratio=(batches.get("ship", 0.0) + batches.get("mixed", 0.0)) / decided if decided else None,
        verdict=None if verdict is None else int(verdict),
        exposure=_interval(recalibrator, "open_exposure_risk", gate),
        selective=_interval(recalibrator, "open_selective_risk", gate),
        labels_pending=None if pending is None else int(pending),
        alarms=tuple(sorted(name for name, is_raised in raised.items() if is_raised)),
    )


def _interval(recalibrator: Samples, name: str, gate: str) -> ShownInterval | None:
    for over in ("policy", "period"):
        estimate, lower, upper = (
            recalibrator.one(f"{name}{part}_ratio", gate=gate, over=over) for part in ("", "_lower", "_upper")
        )
        if estimate is not None and lower is not None and upper is not None:
            return ShownInterval(lower=lower, estimate=estimate, upper=upper)
    return None
