"""Back-pressure: how much may be in memory between the fetcher and the database."""

import threading


class FetchBudget:
    """Counts records and bytes on their way (fetched, not yet arrived) and held (arrived, not yet
    committed); the bounds are >= 1.

    The fetcher asks `room` before it hands out more; so neither the reader's queues nor ours can
    grow past the bound by more than one fetch. Thread safe: the fetcher lives on a thread of its
    own.
    """

    def __init__(self, *, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._flow = 0
        self._held_records = self._held_bytes = 0
        self._underway_records = self._underway_bytes = 0

    def room(self) -> int:
        """How many records may be fetched now; 0 when a bound is reached."""
        with self._lock:
            if self._held_bytes + self._underway_bytes >= self._max_bytes:
                return 0
            return max(0, self._max_records - self._held_records - self._underway_records)

    def begin_flow(self) -> int:
        """Forget what is on its way (it will be read again) and return the new flow's number."""
        with self._lock:
            self._flow += 1
            self._underway_records = self._underway_bytes = 0
            return self._flow

    def fetched(self, flow: int, records: int, size: int) -> None:
        """Records of a flow have left the fetcher."""
        with self._lock:
            if flow == self._flow:
                self._underway_records += records
                self._underway_bytes += size

    def arrived(self, flow: int, size: int, *, kept: bool) -> None:
        """One record came out of the reader; `kept`: it now waits for its outcome."""
        with self._lock:
            if flow == self._flow:
                self._underway_records -= 1
                self._underway_bytes -= size
            if kept:
                self._held_records += 1
                self._held_bytes += size

    def released(self, records: int, size: int) -> None:
        """Held records were committed or dropped."""
        with self._lock:
            self._held_records -= records
            self._held_bytes -= size
