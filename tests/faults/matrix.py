"""The table of what the fault cases found: printed at the end of a long run; ``docs/reliability.md`` sums it up."""

from dataclasses import dataclass

from tests.faults.oracle import Findings
from tests.machine import LONG as LONG


@dataclass(frozen=True)
class Row:
    """One case: what the oracle found, and the seconds from the end of the fault until nothing waited any more."""

    case: str
    found: Findings
    seconds: float | None


class Matrix:
    """Rows, in the order in which the cases ended."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, case: str, found: Findings, *, seconds: float | None = None) -> None:
        """Keep the outcome of one case, which the oracle has found in order; `case` begins with its number."""
        if not case.partition(" ")[0].isdigit():
            raise ValueError(f"no case of the table in docs/reliability.md: {case!r} has no number")
        self.rows.append(Row(case, found, seconds))

    def table(self) -> str:
        head = (
            "case", "events", "lost", "decided", "refused", "duplicated", "conflicting",
            "seconds to recover",
        )  # fmt: skip
        lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        for row in sorted(self.rows, key=lambda one: (int(one.case.split()[0]), one.case)):
            found = row.found
            numbers = (
                found.events, found.lost, found.decisions, found.dead_letters, found.republished,
                found.conflicting,
            )  # fmt: skip
            seconds = "" if row.seconds is None else f"{row.seconds:.1f}"
            lines.append(f"| {row.case} | {' | '.join(map(str, numbers))} | {seconds} |")
        return "\n".join(lines)
