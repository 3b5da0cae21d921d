"""Why a worker ended, as a process exit status that a supervisor and a person can distinguish."""

from enum import IntEnum

from streamer.errors import StreamerError


class WorkerExit(IntEnum):
    """Exit statuses of the worker (0 drained on request; the others are from ``sysexits.h`` where one fits)."""

    DRAINED = 0
    CRASHED = 1
    DEAD_LETTER_CAP = 65
    """Too many records in a row, or too large a share of them, were refused: look before going on."""
    FENCED = 70
    """Another worker holds the lease: this process was a zombie and must not write any more."""
    LEASE_TIMEOUT = 75
    """No lease from the database in time; start again."""
    LOG_RECREATED = 78
    """A topic is not the one that the stored progress is of: it was deleted and recreated."""
    STOP_OVERDUE = 124
    """Asked to stop, it did not end by itself in time; nothing is lost by that."""


class WorkerHalted(StreamerError):
    """The worker stopped on its own.

    Parameters
    ----------
    status : the exit status for the process.
    """

    def __init__(self, status: WorkerExit, message: str) -> None:
        super().__init__(message)
        self.status = status
