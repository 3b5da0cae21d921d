"""Which ERROR records a test caused, and which of them it had announced."""

import logging
import re
from collections.abc import Sequence

_HARMLESS = (r"^kafka\.cluster: Metadata refresh: failed Transport closed",)
"""A client whose connection was closed in between, by the broker or with the client itself, asks again by itself."""


class ErrorLog(logging.Handler):
    """Keeps every record at ERROR or above that reaches the root logger.

    Attributes
    ----------
    records : what was logged, in order.
    all_expected : True once the test has said that it looks at `records` itself.
    """

    def __init__(self) -> None:
        super().__init__(level=logging.ERROR)
        self.records: list[logging.LogRecord] = []
        self.all_expected = False

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def lines(self) -> list[str]:
        """The records as ``logger: message``, the form that expectations are matched against."""
        return [f"{record.name}: {record.getMessage()}" for record in self.records]

    def unexpected(self, patterns: Sequence[str]) -> list[str]:
        """The lines that no pattern (regular expression, found anywhere) matches."""
        if self.all_expected:
            return []
        known = (*patterns, *_HARMLESS)
        return [line for line in self.lines if not any(re.search(pattern, line) for pattern in known)]
