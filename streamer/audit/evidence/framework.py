"""What a framework is to the evidence pack: its clauses, and which figures of the record speak to each."""

from dataclasses import dataclass

FAMILIES = (
    "record", "checkpoints", "verification", "unchecked", "decisions", "over_time", "settings", "policies", "runs", "draws",
    "labels", "exposure", "selective", "desk", "alerts", "refused", "erasures", "people",
)  # fmt: skip
"""The figures that the verifier derives (`streamer_verify.figures`), in the order in which a report shows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One clause that the record can speak to, by the number that people cite.

    The title has two or three words; `asks` says what it asks for, in our own words and no more than that. `shows` are names of
    figures, from `FAMILIES`; `does_not_show` says what it asks for and the record cannot show, one sentence each.
    """

    number: str
    title: str
    asks: str
    shows: tuple[str, ...]
    does_not_show: tuple[str, ...]


def clause(number: str, title: str, asks: str, shows: tuple[str, ...], *does_not_show: str) -> Clause:
    """Declare a clause; see `Clause`."""
    return Clause(number=number, title=title, asks=asks, shows=shows, does_not_show=does_not_show)


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A regulation, a standard or a set of criteria, with its name at the command line.

    `edition` is the text that the clauses are numbered by. Whether it applies at all is for its reader to say; `applies` says
    what that depends on, in one sentence. Clauses that the record says nothing about are not listed.
    """

    name: str
    title: str
    edition: str
    applies: str
    clauses: tuple[Clause, ...]


NEVER_SHOWN = (
    "Completeness upstream of Kafka: not established. An answer that an application gave without asking a gate is not on record.",
    "What people saw: not established. The record has what was sent to the gate and what it answered, not what consumers of its"
    " answer did.",
    "Whether labels are right: not established. A severity is what a labeller said.",
    "Who people are: names are those that were signed in with or given at the command line.",
    "Whether clocks were right: times are those of the machines that wrote the record.",
    "What was erased or left out of the bundle: only its seal can be checked.",
)
"""What no clause's figures show, whatever the framework."""
