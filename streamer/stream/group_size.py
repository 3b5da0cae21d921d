"""How many records make one group: enough that the fixed cost of a commit is shared, few enough that it ends soon.

A group of n records takes ``fixed + n * marginal`` seconds. The fixed part is the commit itself (a slow fsync, a
synchronous replica, a starved processor); the marginal part is what a record costs (a score in the event, or a
hundred long texts for an encoder on CPU). Only the marginal part is a reason for smaller groups. Both are estimated
from the last groups, the fixed one for each number of partitions by itself, since each partition of a group costs a
commit statements of its own; and the records of one group may take

- one second, where commits are quick: an action, a new policy and a drain wait no longer than that;
- four times the fixed cost, where it is higher: throughput is then four fifths of what unlimited groups reach;
- at most 12 seconds of that, so that a group with up to 3 seconds of fixed cost ends within 15, well before the
  deadline of a drain;
- as long as the fixed cost where that alone exceeds 12 seconds: throughput never falls below half.
"""

import math
from collections import deque

_FIRST = 16
_QUICK_SECONDS = 1.0
_SHARE = 4.0
_LONGEST_SECONDS = 12.0
_GROWTH = 4
"""The next group has at most so many times the records of the largest one seen: estimates reach no further."""
_KEPT = 6
"""Groups remembered of each size; sizes are grouped in steps of a factor of the square root of 2."""
_FORGOTTEN_AFTER = 48
"""A group is forgotten after so many full ones."""
_SURPRISE = 2.0
_LATELY = 4
"""A group that took so many times more or less than expected is a surprise; two alike among the last four mean that
costs have changed."""
_PROBE_EVERY = 8
"""One full group in so many is half as large: groups of one size cannot separate fixed from marginal cost."""
_LEVER = 1.3
"""The largest group remembered must be so many times the smallest before a slope means anything."""
_LONG_LEVER = 2.0
"""The same, before the slope is believed of groups with other numbers of partitions."""
_ROUNDS = 10
_LEAST = 1e-9


def seconds_for_records(fixed: float) -> float:
    """Give how long the records of one group may take beside `fixed` seconds; a higher fixed cost never lowers it."""
    return max(_QUICK_SECONDS, min(_SHARE * fixed, _LONGEST_SECONDS), fixed)


class GroupSize:
    """The bound on a group, learned from how long groups took; never above `most`, >= 1."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bound = min(_FIRST, most)
        self._full = 0
        self._seen: dict[tuple[int, int], deque[tuple[int, float, int]]] = {}
        self._lately: deque[tuple[int, float, int, int]] = deque(maxlen=_LATELY)
        self._cost: tuple[float, float] | None = None
        self._marginal: float | None = None
        self._largest = 0
        self._partitions = 0

    @property
    def bound(self) -> int:
        """The most records of the next group, in 1..most."""
        return self._bound

    def observe(self, records: int, seconds: float, partitions: int = 1) -> None:
        """Learn what a group of `records`, from so many partitions, took."""
        seconds = max(seconds, _LEAST)
        self._full += records >= self._bound
        slow = self._surprise(records, seconds, partitions)
        self._lately.append((records, seconds, partitions, slow))
        if slow and sum(one[-1] == slow for one in self._lately) >= 2:
            self._forget()
        else:
            self._remember(records, seconds, partitions)
        # Even if nothing of what this group took was fixed, so many records take a second.
        harmless = min(self._bound, int(_QUICK_SECONDS * records / seconds))
        if slow > 0 and self._cost is not None:
            # It may have waited for a lock, or each record may cost more now: a smaller group shows which.
            self._bound = max(1, min(self._bound, records) // _GROWTH, harmless)
        else:
            self._bound = max(self._next(records, seconds, partitions), harmless)

    def _surprise(self, records: int, seconds: float, partitions: int) -> int:
        """Return 1 for a group that took much longer than expected, -1 for much shorter, 0 otherwise."""
        if self._cost is None or partitions != self._partitions or records > self._largest:
            return 0  # beyond what was seen the expectation is a guess, and any measurement is new
        ratio = seconds / self._expected(records)
        return (ratio > _SURPRISE) - (ratio < 1 / _SURPRISE)

    def _forget(self) -> None:
        """Costs have changed: keep only what was seen since the first of these surprises."""
        self._seen.clear()
        self._cost = self._marginal = None
        first = next(at for at, one in enumerate(self._lately) if one[-1])
        for records, seconds, partitions, _ in list(self._lately)[first:]:
            self._remember(records, seconds, partitions)
        self._lately.clear()

    def _expected(self, records: int) -> float:
        fixed, marginal = self._cost or (0.0, 0.0)
        return max(fixed + marginal * records, _LEAST)

    def _remember(self, records: int, seconds: float, partitions: int) -> None:
        size = (partitions, round(2 * math.log2(records)))
        self._seen.setdefault(size, deque(maxlen=_KEPT)).append((records, seconds, self._full))

    def _next(self, records: int, seconds: float, partitions: int) -> int:
        seen = [
            (n, took, of)
            for (of, _), kept in self._seen.items()
            for n, took, at in kept
            if self._full - at <= _FORGOTTEN_AFTER
        ]
        self._largest, self._partitions = max(seen)[0], partitions
        alike = [(n, took) for n, took, of in seen if of == partitions]
        if _differ_enough(alike):
            self._cost = fixed, marginal = _line(alike)
            if _differ_enough(alike, lever=_LONG_LEVER):
                self._marginal = marginal
        elif self._marginal is not None or _differ_enough([(n, took) for n, took, _ in seen]):
            self._cost = None
            if seconds <= _LONGEST_SECONDS:
                # Partitions may be what costs, rather than records. More records from the same ones show it.
                return self._bounded(2 * records)
            if self._marginal is None:
                fixed, marginal = _line([(n, took) for n, took, _ in seen])
            else:
                # What a record costs is known from groups of other numbers of partitions; the rest is fixed.
                marginal = min(self._marginal, seconds / records)
                fixed = seconds - marginal * records
        else:
            # Nothing to compare with yet: try a different size, in the harmless direction.
            self._cost = None
            return self._bounded(
                records * 2 if seconds < 1.5 * _QUICK_SECONDS or records == 1 else records // 2
            )
        wanted = seconds_for_records(fixed) / max(marginal, _LEAST)
        wanted = self._bounded(min(wanted, _GROWTH * self._largest))
        if self._full % _PROBE_EVERY == 0:
            return self._bounded(wanted // 2 if wanted > 1 else 2)
        return wanted

    def _bounded(self, wanted: float) -> int:
        return max(1, min(self._most, int(wanted)))


def _differ_enough(seen: list[tuple[int, float]], *, lever: float = _LEVER) -> bool:
    """Whether sizes differ enough for a slope."""
    return bool(seen) and max(seen)[0] >= lever * min(seen)[0]


def _line(seen: list[tuple[int, float]]) -> tuple[float, float]:
    """Fit ``fixed + n * marginal`` with the least sum of relative errors, which one slow group hardly moves."""
    fixed = marginal = 0.0
    weights = [1 / took**2 for _, took in seen]
    for _ in range(_ROUNDS):
        total = sum(weights)
        n_mean = sum(w * n for w, (n, _) in zip(weights, seen, strict=True)) / total
        t_mean = sum(w * t for w, (_, t) in zip(weights, seen, strict=True)) / total
        spread = sum(w * (n - n_mean) ** 2 for w, (n, _) in zip(weights, seen, strict=True))
        shared = sum(w * (n - n_mean) * (t - t_mean) for w, (n, t) in zip(weights, seen, strict=True))
        marginal = max(0.0, shared / spread)
        fixed = t_mean - marginal * n_mean
        if fixed < 0:
            fixed = 0.0
            marginal = sum(w * n * t for w, (n, t) in zip(weights, seen, strict=True)) / sum(
                w * n * n for w, (n, _) in zip(weights, seen, strict=True)
            )
        weights = [1 / (t * max(abs(t - fixed - marginal * n), 0.01 * t)) for n, t in seen]
    return fixed, marginal
