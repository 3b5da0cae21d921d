"""PromQL that several dashboards need."""

GATE = 'gate=~"$gate"'


def shown(metric: str, *by: str, where: str = GATE) -> str:
    """What several workers show alike, once for each gate (or for each of `by`)."""
    return f"max by ({', '.join(by or ('gate',))}) (streamer_{metric}{{{where}}})"


def led(metric: str, *by: str, where: str = GATE, how: str = "max") -> str:
    """What the recalibrator that leads shows; one that waits may still show what it knew when it led."""
    return (
        f"{how} by ({', '.join(by or ('gate',))}) "
        f"(streamer_{metric}{{{where}}} and on (job, instance) streamer_recalibrator_leader == 1)"
    )


def recorded(rule: str, where: str = GATE) -> str:
    """A recording rule of deploy/prometheus/recording.rules.yml."""
    return f"{rule}{{{where}}}"


def per_second(metric: str, *by: str, where: str = "") -> str:
    """What all workers count, a second."""
    braces = f"{{{where}}}" if where else ""
    level = f" by ({', '.join(by)})" if by else ""
    return f"sum{level} (rate(streamer_{metric}{braces}[$__rate_interval]))"


def quantile(q: float, histogram: str, *by: str) -> str:
    """A quantile of a histogram over all workers."""
    return f"histogram_quantile({q:g}, {per_second(f'{histogram}_bucket', *by, 'le')})"
