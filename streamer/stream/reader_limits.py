"""The reader's bounds and timeouts."""

from dataclasses import dataclass

from streamer.events.limits import DEFAULT_LIMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderLimits:
    """Bounds on memory and time; seconds and bytes.

    `max_buffered_*` may be between the fetcher and the database, `max_poll_records` are taken from
    the fetcher at a time. `max_fetch_bytes` is per partition and fetch; one larger record still
    passes. Of a record whose key, value and headers have more than `max_record_bytes` an excerpt is
    read. After `session_timeout` without a heartbeat the group reassigns our partitions;
    `request_timeout` is at least as long, and a lease may take .7 of it.
    """

    max_buffered_records: int = 4000
    max_buffered_bytes: int = 64 * 1024 * 1024
    max_poll_records: int = 2000
    max_fetch_bytes: int = 1024 * 1024
    max_record_bytes: int = DEFAULT_LIMITS.max_input_bytes
    session_timeout: float = 8.0
    heartbeat_interval: float = 1.0
    request_timeout: float = 30.0

    def __post_init__(self) -> None:
        if self.request_timeout < self.session_timeout:
            raise ValueError("the request timeout must not be less than the session timeout")
        bounds = (
            self.max_buffered_records,
            self.max_buffered_bytes,
            self.max_poll_records,
            self.max_fetch_bytes,
            self.max_record_bytes,
        )
        if min(bounds) < 1:
            raise ValueError("the reader's bounds must be 1 or more")

    @property
    def lease_deadline(self) -> float:
        """Seconds that taking the leases may last before the worker gives up and restarts."""
        return 0.7 * self.request_timeout
