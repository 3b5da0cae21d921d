"""What each family of figures of a report is called, a sentence of it, and its tables."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streamer.wording.numbers import counted, percent
from streamer.wording.policies import who

MOST_ROWS = 200
"""Of a longer list the newest are shown; the JSON file has them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceTable:
    """Rows of text under heads; the last `numbers` columns are numbers."""

    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]
    numbers: int = 0
    left_out: int = 0


Said = tuple[str, list[EvidenceTable]]
Words = Callable[[Any], Said]

TITLES: dict[str, str] = {}
"""What the figures of each family are called, in the order of the report."""
WORDS: dict[str, Words] = {}
"""A sentence and tables for each family of figures."""


def _words_of(family: str, title: str) -> Callable[[Words], Words]:
    def taken(words: Words) -> Words:
        TITLES[family], WORDS[family] = title, words
        return words

    return taken


def _pairs(value: Mapping[str, Any], one: str) -> EvidenceTable:
    return EvidenceTable(
        heads=(one, "number"), rows=[(str(k), grouped(v)) for k, v in value.items()], numbers=1
    )


def _listed(values: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> EvidenceTable:
    """A row for each value: by head, the key of what stands there."""
    rows = [
        [
            when(one[key]) if _is_moment(key) else _by(one[key]) if key.endswith("_by") else plain(one[key])
            for key in columns.values()
        ]
        for one in values
    ]
    return table_of(tuple(columns), rows)


def _by(name: str | None) -> str:
    return "–" if name is None else who(name)


def _is_moment(key: str) -> bool:
    return key in ("at", "before") or key.endswith("_at")


def table_of(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> EvidenceTable:
    """Make a table of the newest rows, which come last."""
    kept = [tuple(row) for row in rows[-MOST_ROWS:]]
    return EvidenceTable(heads=tuple(heads), rows=kept, numbers=numbers, left_out=len(rows) - len(kept))


@_words_of("record", "The record")
def _record(value: Mapping[str, Any]) -> Said:
    if not value["leaves"]:
        return "the record is empty", []
    return (
        f"{grouped(value['leaves'])} leaves of Merkle logs over {counted(value['partitions'], 'partition', 'partitions')} and what"
        f" governs them, recorded from {when(value['first_recorded'])} to {when(value['last_recorded'])}"
        f" ({_seconds(_between(value['first_recorded'], value['last_recorded']))})",
        [],
    )


@_words_of("checkpoints", "Signed checkpoints")
def _checkpoints(value: Mapping[str, Any]) -> Said:
    if not value["number"]:
        return "there is no signed checkpoint: the record could have been rewritten as a whole", []
    return (
        f"{counted(value['number'], 'signed checkpoint', 'signed checkpoints')}, the newest of {when(value['newest_made_at'])};"
        f" {grouped(value['leaves_covered'])} leaves are covered and {grouped(value['leaves_after'])} younger ones are not"
        + (
            f"; the longest time between two was {_seconds(value['longest_seconds_between'])}"
            if value["number"] > 1
            else ""
        ),
        [],
    )


@_words_of("verification", "Verification of the bundle")
def _verification(value: Mapping[str, Any]) -> Said:
    counts = {name: count for name, count in value.items() if name != "faults"}
    return (
        f"{counted(value['faults'], 'fault was', 'faults were') if value['faults'] else 'no fault was'} found in"
        f" {grouped(value['outcomes'])} outcomes and {grouped(value['control entries'])} entries of the control log",
        [_pairs(counts, "verified")],
    )


@_words_of("unchecked", "What the verification could not check")
def _unchecked(value: Sequence[str]) -> Said:
    if not value:
        return "everything that is in the bundle was checked", []
    return not_checked(value), [table_of(("could not be checked",), [(one,) for one in value])]


def not_checked(value: Sequence[str]) -> str:
    """Count what the verification could not check."""
    return f"{counted(len(value), 'kind of thing', 'kinds of things')} could not be checked"


@_words_of("decisions", "Decisions")
def _decisions(value: Mapping[str, Any]) -> Said:
    if not value["total"]:
        return "no decision in the period", []
    shadow = value["by_mode"].get("shadow", 0)
    return (
        f"{counted(value['total'], 'decision', 'decisions')}, {percent(value['share_served'])} served"
        + (
            f"; {grouped(shadow)} in shadow mode, where everything is delivered whatever is decided"
            if shadow
            else ""
        ),
        [_pairs(value["by_outcome"], "outcome"), _pairs(value["by_reason"], "reason")],
    )


@_words_of("over_time", "Decisions over time")
def _over_time(value: Mapping[str, Any]) -> Said:
    if not value["counts"]:
        return "no decision in the period", []
    names = sorted({name for _, counts in value["counts"] for name in counts})
    return (
        f"decisions by {value['step']}, on record for {counted(len(value['counts']), value['step'], value['step'] + 's')}",
        [
            table_of(
                (value["step"], *names),
                [(at, *(grouped(counts.get(name, 0)) for name in names)) for at, counts in value["counts"]],
                len(names),
            )
        ],
    )


@_words_of("settings", "Settings of the gate")
def _settings(value: Mapping[str, Any]) -> Said:
    newest = value["newest"]
    return (
        (
            "no revision of it is on record;"
            if newest["alpha"] is None
            else f"budget {percent(newest['alpha'])} by the method {newest['method']}, mode {newest['mode']}, on an alarm {newest['on_alarm']};"
        )
        + _changes(len(value["changes"])),
        [
            table_of(("setting", "newest value"), [(name, plain(one)) for name, one in newest.items()]),
            _listed(
                value["changes"],
                {"revision": "revision", "at": "created_at", "by": "created_by", "reason": "reason"},
            ),
        ],
    )


def _changes(number: int) -> str:
    if not number:
        return " no change of settings in the period"
    who = "its author and reason" if number == 1 else "their authors and reasons"
    return f" {counted(number, 'change', 'changes')} of settings in the period, with {who}"


@_words_of("policies", "Policies and who put them in force")
def _policies(value: Sequence[Mapping[str, Any]]) -> Said:
    came = [one for one in value if one["event"] == "activated"]
    # A gate is closed when it is created, too: until its first run.
    closed = [one for one in value if one["event"] == "closed" and one["version"] > 1]
    by = sorted({who(one["by"]) for one in came})
    said = f"{counted(len(came), 'policy', 'policies')} came into force in the period"
    if by:
        said += f", by {', '.join(by)}"
    if closed:
        said += f"; the gate was closed {counted(len(closed), 'time', 'times')}"
    rows = [
        (
            str(one["version"]), one["event"], when(one["at"]), who(one["by"]), one["reason"], _cut(one),
            _by(one["run_requested_by"]), plain(bool(one["signed"])),
        )
        for one in value
    ]  # fmt: skip
    return said, [
        table_of(("policy", "event", "at", "by", "reason", "threshold", "run asked for by", "signed"), rows)
    ]


def _cut(policy: Mapping[str, Any]) -> str:
    return f"above {policy['threshold']:.6g}" if policy["threshold"] is not None else plain(policy["state"])


@_words_of("runs", "Calibration runs")
def _runs(value: Mapping[str, Any]) -> Said:
    rejected = value["rejected"]
    return (
        f"{counted(value['total'], 'calibration run', 'calibration runs')} in the period"
        + (f", asked for by {', '.join(map(who, value['requested_by']))}" if value["requested_by"] else "")
        + (f"; {counted(len(rejected), 'proposal was', 'proposals were')} rejected" if rejected else ""),
        [
            _pairs(value["by_outcome"], "became"),
            _listed(
                rejected,
                {"rejected run": "run", "at": "rejected_at", "by": "rejected_by", "reason": "reason"},
            ),
        ],
    )


@_words_of("draws", "Draws for labelling")
def _draws(value: Mapping[str, Any]) -> Said:
    if not value["drawn"]:
        return "no decision was drawn for labelling", []
    labelled = value["share_labelled"]
    return (
        f"{grouped(value['drawn'])} decisions were drawn ({percent(value['share_drawn'])}); of"
        f" {counted(value['responses_drawn'], 'drawn response or claim', 'drawn responses or claims')} {grouped(value['responses_labelled'])} have a label"
        + (f" ({percent(labelled)})" if labelled is not None else ""),
        [],
    )


@_words_of("labels", "Labels")
def _labels(value: Mapping[str, Any]) -> Said:
    if not value["total"]:
        return "no label came in the period", []
    return (
        f"{counted(value['total'], 'label', 'labels')} came in the period, by"
        f" {counted(len(value['by_labeller']), 'labeller', 'labellers')}",
        [_pairs(value["by_labeller"], "labeller"), _pairs(value["by_source"], "came by")],
    )


@_words_of("exposure", "Exposure: average harm per prompt, held prompts counting 0")
def _exposure(value: Mapping[str, Any]) -> Said:
    said = _risk(value, "exposure")
    if value["promised"] == "selective":
        said += ". The gate's budget is of another risk, the error rate among shipped answers"
    return said, []


@_words_of(
    "selective", "Error rate among shipped answers; of claims the loss of a prompt that gets something"
)
def _selective(value: Mapping[str, Any]) -> Said:
    if not value["shipped"]:
        return "nothing shipped in the period, so that there is no error rate among shipped answers", []
    said = _risk(value, "the error rate among shipped answers")
    if value["promised"] == "exposure":
        said += ". The gate's budget is of another risk, exposure, and nothing is promised of this one"
    return said, []


def _risk(value: Mapping[str, Any], name: str) -> str:
    if value["estimate"] is None:
        why = (
            f"{counted(value['shipped_without_a_chance_to_be_drawn'], 'decision', 'decisions')} shipped without a chance to be drawn"
            if value["shipped_without_a_chance_to_be_drawn"]
            else "there is no decision in the period"
        )
        return f"{name} is not established, because {why}"
    missing = value["missing"]
    return (
        f"{name} is between {percent(value['lower'])} and {percent(value['upper'])} (confidence {percent(value['confidence'])}),"
        f" estimate {percent(value['estimate'])}"
        + (f", budget of a first attempt {percent(value['budget'])}" if value["budget"] is not None else "")
        + f"; from {counted(value['known'], 'drawn decision', 'drawn decisions')} whose harm is known"
        + (
            f", and {grouped(missing)} whose label is missing, which count 0 below and 1 above and in the estimate"
            if missing
            else ""
        )
    )


@_words_of("desk", "Held answers and what people made of them")
def _desk(value: Mapping[str, Any]) -> Said:
    if not value["outcomes"]:
        kept = "no outcome at the desk in the period"
        return (kept if value["deadline_seconds"] is not None else f"{kept}; the gate has no desk"), []
    said = (
        f"of {counted(value['outcomes'], 'held batch', 'held batches')} that got an outcome at the desk people released"
        f" {grouped(value['released'])} ({grouped(value['edited'])} edited) and rejected {grouped(value['rejected'])};"
        f" {grouped(value['deadline_passed'])} had no decision by their deadline"
    )
    if value["median_seconds"] is not None:
        said += f"; people took {_seconds(value['median_seconds'])} at the median and {_seconds(value['longest_seconds'])} at most"
    if value["severity"] is not None:
        said += (
            f". Of {counted(value['released_as_they_were'], 'answer or claim that was', 'answers or claims that were')} released unedited the audit"
            f" drew {grouped(value['drawn'])}; the {grouped(value['labelled'])} with a label have the mean severity"
            f" {percent(value['severity'])}"
        )
    elif value["released_as_they_were"]:
        said += ". Of what was released unedited nothing that the audit drew has a label"
    return said, [_pairs(value["by"], "decided by")]


@_words_of("alerts", "Alerts and acknowledgements")
def _alerts(value: Mapping[str, Any]) -> Said:
    if not value["raised"]:
        return "no alert was raised in the period", []
    said = f"{counted(value['raised'], 'alert was', 'alerts were')} raised, {grouped(value['acknowledged'])} acknowledged"
    if value["acknowledged"]:
        said += f", after {_seconds(value['median_seconds'])} at the median and {_seconds(value['longest_seconds'])} at most"
    rows = [
        (
            when(one["raised_at"]), one["level"], one["kind"], one["message"], when(one["acknowledged_at"]),
            _by(one["acknowledged_by"]), _seconds(one["seconds"]),
        )
        for one in value["each"]
    ]  # fmt: skip
    return said, [table_of(("raised", "level", "kind", "says", "acknowledged", "by", "after"), rows)]


@_words_of("refused", "Refused, repeated and lost messages")
def _refused(value: Mapping[str, Any]) -> Said:
    return (
        f"{counted(value['dead_letters'], 'message was', 'messages were') if value['dead_letters'] else 'no message was'} refused;"
        f" {_came_again(value['duplicates'], value['conflicts'])}, and"
        f" {counted(len(value['lost']), 'range of offsets was', 'ranges of offsets were') if value['lost'] else 'no offsets were'} lost",
        [
            _pairs(value["by_code"], "refused for"),
            table_of(
                ("lost of", "partition", "from offset", "to offset"),
                [tuple(map(str, one)) for one in value["lost"]],
                2,
            ),
        ],
    )


def _came_again(alike: int, otherwise: int) -> str:
    if alike and otherwise:
        return f"{counted(alike, 'batch', 'batches')} came again unchanged and {grouped(otherwise)} with other content"
    if alike or otherwise:
        how = "unchanged" if alike else "with other content"
        return f"{counted(alike or otherwise, 'batch', 'batches')} came again {how}"
    return "no batch came again"


@_words_of("erasures", "Erasures of texts")
def _erasures(value: Sequence[Mapping[str, Any]]) -> Said:
    if not value:
        return "no erasure in the period", []
    sooner = sum(bool(one["sooner"]) for one in value)
    rows = [
        (when(one["at"]), who(one["by"]), one["reason"], when(one["before"]), plain(bool(one["sooner"])))
        for one in value
    ]
    return (
        f"{counted(len(value), 'erasure', 'erasures')}, each with who, why and the age from which texts were erased;"
        f" {grouped(sooner)} of what was younger than six months",
        [table_of(("at", "by", "reason", "erased what is older than", "younger than six months"), rows)],
    )


@_words_of("people", "Accounts and API keys")
def _people(value: Mapping[str, Any]) -> Said:
    accounts, keys, revoked = value["accounts"], value["api_keys"], value["revoked"]
    return (
        f"{counted(len(accounts), 'change', 'changes')} of accounts, {counted(len(keys), 'new API key', 'new API keys')},"
        f" {grouped(len(revoked))} revoked",
        [
            _listed(
                [{**one, "roles": json.loads(one["roles"])} for one in accounts],
                {
                    "account": "name",
                    "roles": "roles",
                    "at": "created_at",
                    "by": "created_by",
                    "reason": "reason",
                },
            ),
            _listed(
                [{**one, "gates": one["gates"] or "every gate"} for one in keys],
                {"API key": "id", "may": "may", "gates": "gates", "made": "created_at", "by": "created_by"},
            ),
            _listed(
                revoked,
                {"revoked API key": "id", "at": "revoked_at", "by": "revoked_by", "reason": "revoked_reason"},
            ),
        ],
    )


def grouped(value: Any) -> str:
    """Write a whole number with commas, anything else as it is."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def plain(value: Any) -> str:
    """Write a value of a setting."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def when(moment: str | None) -> str:
    """Write a moment to the second, UTC."""
    if moment is None:
        return "–"
    at = datetime.fromisoformat(moment)
    return "the beginning" if at.year == 1970 else at.strftime("%Y-%m-%d %H:%M:%SZ")


def _between(first: str, last: str) -> float:
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if value >= 2 * length:
            return f"{value / length:.1f} {unit}"
    return f"{value:.0f} seconds"
