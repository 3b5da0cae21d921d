"""A report in words and tables, which the page and the PDF file both show: it adds nothing to the report."""

import dataclasses
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from streamer.security.visible import visible
from streamer.wording.numbers import counted, percent
from streamer.wording.policies import who

NONE = "none"
MOST_GATES = 3
"""With more of them a clause names the figures of all together, not one by one."""

MOST_ROWS = 200
"""Of a longer list the newest are shown; the JSON file has them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceTable:
    """Rows of text under heads; the last `numbers` columns are numbers."""

    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]
    numbers: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One figure: its number in the document, its sentence, its tables, and where it comes from."""

    number: str
    name: str
    title: str
    sentence: str
    tables: tuple[EvidenceTable, ...]
    derived: str
    seal: str
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Of decisions over time: by step, by outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownClause:
    """One clause: what it asks, sentences with the numbers of their figures, and what is not shown."""

    number: str
    title: str
    asks: str
    shows: list[tuple[tuple[str, ...], str]]
    does_not_show: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The whole report, in the order in which it is read. Up to `how` it is the summary.

    `draws` says whether draws were verified, `gates` and `glance` have a row for each gate and for each clause.
    """

    title: str
    lead: str
    draws: str
    warning: str
    facts: list[tuple[str, str]]
    gates: EvidenceTable
    glance: EvidenceTable
    how: list[str]
    where: str
    clauses: list[ShownClause]
    never: tuple[str, ...]
    unchecked: tuple[str, ...]
    figures: list[Shown]
    footer: str


def document_of(report: Mapping[str, Any]) -> Document:
    """Put a report into words."""
    found = report["figures"]
    order = [name for family in TITLES for name in sorted(found) if name.partition("/")[0] == family]
    numbers = {name: f"F{at}" for at, name in enumerate(order, 1)}
    shown = [_shown(name, numbers[name], found[name]) for name in order]
    sentences = {one.name: one.sentence for one in shown}
    framework, period = report["framework"], report["period"]
    verification = found["verification"]["value"]
    gates = sorted({name.partition("/")[2] for name in order if "/" in name})
    decided = any(one["value"]["total"] for name, one in found.items() if name.startswith("decisions/"))
    faults, unchecked = verification["faults"], found["unchecked"]["value"]
    lead = (
        (
            "The record behind it was verified: nothing that could be checked is inconsistent."
            if found["record"]["value"]["leaves"]
            else "The record behind it is empty: there was nothing to verify."
        )
        + (f" {_not_checked(unchecked)} [{numbers['unchecked']}]." if unchecked else "")
        if not faults
        else f"The verification of the record found {counted(faults, 'fault', 'faults')}: no figure here can be relied on before"
        " they are explained."
    )
    document = Document(
        title=f"Evidence from the record: {framework['title']}",
        lead=lead,
        draws=_draws_verified(verification),
        warning=(
            "For each clause this report says what the sealed record of decisions shows, and what it does not. It is material for"
            f" an assessment, and not the assessment. {framework['applies']}"
        ),
        facts=[
            *((one.capitalize(), _claimed(said)) for one, said in report["about"].items()),
            (
                "Signed with",
                f"the key {report['signed_with']}; the signature is in report.dsse.json"
                if report["signed_with"]
                else "no key: whoever has the report can change it",
            ),
            ("Clauses by", framework["edition"]),
            (
                "Period",
                f"{_when(period['since'])} to {_when(period['until'])}"
                + ("" if decided else ": nothing was decided in it"),
            ),
            ("Gates", ", ".join(gates) or NONE),
            ("Bundle made", _when(report["made_at"])),
            ("SHA-256 of its manifest", report["bundle"]),
            ("Verified with", _verified_with(report["verified_with"])),
        ],
        gates=_rows(
            (
                "gate",
                "mode",
                "decisions",
                "served",
                "drawn",
                "labelled",
                "the risk that its budget bounds",
                "open alerts",
            ),
            [_of_gate(gate, found) for gate in gates],
        ),
        glance=_rows(
            ("clause", "about", "figures", "not shown"),
            [
                (
                    one["clause"],
                    one["title"],
                    _ranges([numbers[name] for name in one["shows"]]),
                    str(len(one["does_not_show"])),
                )
                for one in report["clauses"]
            ],
            1,
        ),
        how=[_command(report)],
        where=(
            "verify.pyz is the verifier of conformal-streamer. Take it from a release that you trust, or make it from the release's"
            " package with python -m streamer_verify.pyz verify.pyz, and not from whoever handed this over; it needs Python 3.11 or"
            " later and nothing else, and can be read (unzip verify.pyz). The one of this report's release has the SHA-256"
            f" {report['verifier']} (sha256sum verify.pyz): another release may have another, and must derive the same figures."
        ),
        clauses=[
            ShownClause(
                number=one["clause"],
                title=one["title"],
                asks=one["asks"],
                shows=_lines(one["shows"], numbers, sentences),
                does_not_show=tuple(one["does_not_show"]),
            )
            for one in report["clauses"]
        ],
        never=tuple(report["does_not_show"]),
        unchecked=tuple(found["unchecked"]["value"]),
        figures=shown,
        footer="Made by conformal-streamer from report.json, which has every figure in full; docs/evidence.md says what each is.",
    )
    shown_so: Document = _visible(document)
    return shown_so


def _visible(value: Any) -> Any:
    """The same with every text as a reader may see it: names and reasons come from others, and may hide or reverse text."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_visible, value))
    if isinstance(value, dict):
        return {_visible(name): _visible(one) for name, one in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {part.name: _visible(getattr(value, part.name)) for part in dataclasses.fields(value)}
        return dataclasses.replace(value, **parts)
    return value


def _lines(
    names: Sequence[str], numbers: Mapping[str, str], sentences: Mapping[str, str]
) -> list[tuple[tuple[str, ...], str]]:
    """A sentence for each figure; where there are many gates, one for each family with its first and last figure."""
    lines: list[tuple[tuple[str, ...], str]] = []
    for family, group in itertools.groupby(names, key=lambda name: name.partition("/")[0]):
        members = list(group)
        if len(members) <= MOST_GATES:
            lines += [((numbers[name],), sentences[name]) for name in members]
        else:
            said = f"{TITLES[family]}, of each of {len(members)} gates"
            lines.append(((numbers[members[0]], numbers[members[-1]]), said))
    return lines


def _claimed(said: str | None) -> str:
    return "not given" if said is None else f"{said} (as given with the report, not verified)"


def _draws_verified(counts: Mapping[str, int]) -> str:
    """Whether labels, exposure and error rates come from batches that nobody chose."""
    if missing := counts["draws not verified"]:
        return (
            f"The audit draws of {counted(missing, 'decision', 'decisions')} were not verified, because the bundle leaves out the"
            " salts, which foretell draws to come: that chance chose the batches behind labels, exposure and error rates rests on"
            " the operator's word."
        )
    return f"{counted(counts['draws'], 'audit draw was', 'audit draws were')} verified by the salts of the gates."


def _of_gate(gate: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    """The row of a gate in the summary."""
    decided, drawn, alerts = (found[f"{one}/{gate}"]["value"] for one in ("decisions", "draws", "alerts"))
    settings = found[f"settings/{gate}"]["value"]["newest"]
    risk = found[f"exposure/{gate}"]["value"]
    if risk["promised"] == "selective":
        risk = found[f"selective/{gate}"]["value"]
    if risk["estimate"] is None or risk["budget"] is None:
        said = "not established"
    else:
        said = f"{percent(risk['lower'])} to {percent(risk['upper'])}, budget {percent(risk['budget'])}: " + (
            "kept"
            if risk["upper"] <= risk["budget"]
            else "exceeded"
            if risk["lower"] > risk["budget"]
            else "not decided"
        )
    return (
        gate, _plain(settings["mode"]), _number(decided["total"]),
        percent(decided["share_served"]) if decided["total"] else "–", _number(drawn["drawn"]),
        _number(drawn["responses_labelled"]), said, _number(alerts["raised"] - alerts["acknowledged"]),
    )  # fmt: skip


def _ranges(numbers: Sequence[str]) -> str:
    """F1, F2, F3, F7 as F1–F3, F7."""
    runs: list[list[int]] = []
    for at in sorted(int(one[1:]) for one in numbers):
        if runs and at == runs[-1][-1] + 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    return ", ".join(f"F{run[0]}" if len(run) == 1 else f"F{run[0]}–F{run[-1]}" for run in runs)


def _command(report: Mapping[str, Any]) -> str:
    """The command that derives each figure again, with what the report was made with."""
    given = report["verified_with"]
    return (
        "python3 verify.pyz bundle.zip"
        + (" --public-key checkpoint-key.pem.pub" if given["keys"] else "")
        + " --report report.json"
        + (" --report-key report-key.pem.pub" if report["signed_with"] else "")
        + ("" if given["checkpoints"] is None else " --checkpoints checkpoints.jsonl")
    )


def _verified_with(given: Mapping[str, Any]) -> str:
    keys = ", ".join(key[:16] for key in given["keys"])
    outside = given["checkpoints"]
    return (
        (f"public keys {keys}" if keys else "no public key: signatures of checkpoints were not checked")
        + "; "
        + (
            "checkpoints of the bundle alone"
            if outside is None
            else f"{counted(outside['lines'], 'checkpoint', 'checkpoints')} kept outside the database"
        )
    )


def _shown(name: str, number: str, figure: Mapping[str, Any]) -> Shown:
    family, _, gate = name.partition("/")
    sentence, tables = WORDS[family](figure["value"])
    return Shown(
        number=number,
        name=name,
        title=f"{TITLES[family]}: {gate}" if gate else TITLES[family],
        sentence=f"{gate}: {sentence}" if gate else sentence[:1].upper() + sentence[1:],
        tables=tuple(one for one in tables if one.rows),
        derived=figure["derived"],
        seal=_seal(figure),
        counts=dict(figure["value"]["counts"]) if family == "over_time" else {},
    )


def _seal(figure: Mapping[str, Any]) -> str:
    if not figure["rows"]:
        return "from no row, so that there is no hash and no checkpoint"
    covered = (
        "no checkpoint covers them"
        if figure["checkpoint"] is None
        else f"covered by checkpoint {figure['checkpoint']}"
        + (f", but for {figure['after']} that are younger than every checkpoint" if figure["after"] else "")
    )
    rows = counted(figure["rows"], "row", "rows")
    return f"{rows}, {covered}; SHA-256 of their leaves {figure['sha256']}"


Words = Callable[[Any], tuple[str, list[EvidenceTable]]]

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
        heads=(one, "number"), rows=[(str(k), _number(v)) for k, v in value.items()], numbers=1
    )


def _listed(values: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> EvidenceTable:
    """A row for each value: by head, the key of what stands there."""
    rows = [
        [
            _when(one[key]) if _is_moment(key) else _by(one[key]) if key.endswith("_by") else _plain(one[key])
            for key in columns.values()
        ]
        for one in values
    ]
    return _rows(tuple(columns), rows)


def _by(name: str | None) -> str:
    return "–" if name is None else who(name)


def _is_moment(key: str) -> bool:
    return key in ("at", "before") or key.endswith("_at")


def _rows(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> EvidenceTable:
    kept = [tuple(row) for row in rows[-MOST_ROWS:]]
    return EvidenceTable(heads=tuple(heads), rows=kept, numbers=numbers, left_out=len(rows) - len(kept))


@_words_of("record", "The record")
def _record(value: Mapping[str, Any]) -> tuple[str, list[EvidenceTable]]:
    if not value["leaves"]:
        return "the record is empty", []
    return (
        f"{_number(value['leaves'])} leaves of Merkle logs over {counted(value['partitions'], 'partition', 'partitions')} and what"
        f" governs them, recorded from {_when(value['first_recorded'])} to {_when(value['last_recorded'])}"
        f" ({_seconds(_between(value['first_recorded'], value['last_recorded']))})",
        [],
    )


@_words_of("checkpoints", "Signed checkpoints")
def _checkpoints(value: Mapping[str, Any]) -> tuple[str, list[EvidenceTable]]:
    if not value["number"]:
        return "there is no signed checkpoint: the record could have been rewritten as a whole", []
    return (
        f"{counted(value['number'], 'signed checkpoint', 'signed checkpoints')}, the newest of {_when(value['newest_made_at'])};"
        f" {_number(value['leaves_covered'])} leaves are covered and {_number(value['leaves_after'])} younger ones are not"
        + (
            f"; the longest time between two was {_seconds(value['longest_seconds_between'])}"
            if value["number"] > 1
            else ""
        ),
        [],
    )


@_words_of("verification", "Verification of the bundle")
def _verification(value: Mapping[str, Any]) -> tuple[str, list[EvidenceTable]]:
    counts = {name: count for name, count in value.items() if name != "faults"}
    return (
        f"{counted(value['faults'], 'fault was', 'faults were') if value['faults'] else 'no fault was'} found in"
        f" {_number(value['outcomes'])} outcomes and {_number(value['control entries'])} entries of the control log",
        [_pairs(counts, "verified")],
    )


@_words_of("unchecked", "What the verification could not check")
def _unchecked(value: Sequence[str]) -> tuple[str, list[EvidenceTable]]:
    if not value:
        return "everything that is in the bundle was checked", []
    return (
        _not_checked(value),
        [_rows(("could not be checked",), [(one,) for one in value])],
    )


def _not_checked(value: Sequence[str]) -> str:
    return f"{counted(len(value), 'kind of thing', 'kinds of things')} could not be checked"


@_words_of("decisions", "Decisions")
def _decisions(value: Mapping[str, Any]) -> tuple[str, list[EvidenceTable]]:
    if not value["total"]:
        return "no decision in the period", []
    shadow = value["by_mode"].get("shadow", 0)
    return (
        f"{counted(value['total'], 'decision', 'decisions')}, {percent(value['share_served'])} served"
        + (
            f"; {_number(shadow)} in shadow mode, where everything is delivered whatever is decided"
            if shadow
            else ""
        ),
        [_pairs(value["by_outcome"], "outcome"), _pairs(value["by_reason"], "reason")],
    )


@_words_of("over_time", "Decisions over time")
def _over_time(value: Mapping[str, Any]) -> tuple[str, list[EvidenceTable]]:
    if not value["counts"]:
        return "no decision in the period", []
    names = sorted({name for _, counts in value["counts"] for name in counts})
    return (
        f"decisions by {value['step']}, on record for {counted(len(value['counts']), value['step'], value['step'] + 's')}",
        [
            _rows(
                (value["step"], *names),
                [(at, *(_number(counts.get(name, 0)) for name in names)) for at, counts in value["counts"]],
                len(names),
            )
        ],
    )


@_words_of("settings", "Settings of the gate")
def _settings(value: Mapping[str, Any]) -> tuple[str, list[EvidenceTable]]:
    newest = value["newest"]
    return (
        (
            "no revision of it is on record;"
            if newest["alpha"] is None
            else f"budget {percent(newest['alpha'])} by the method {newest['method']}, mode {newest['mode']}, on an alarm {newest['on_alarm']};"
        )
        + _changes(len(value["changes"])),
        [
            _rows(("setting", "newest value"), [(name, _plain(one)) for name, one in newest.items()]),
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
def _policies(value: Sequence[Mapping[str, Any]]) -> tuple[str, list[EvidenceTable]]:
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
            str(one["version"]), one["event"], _when(one["at"]), who(one["by"]), one["reason"], _cut(one),
            _by(one["run_requested_by"]), "yes" if one["signed"] else "no",
        )
        for one in value
    ]  # fmt: skip
    return said, [
        _rows(("policy", "event", "at", "by", "reason", "threshold", "run asked for by", "signed"), rows)
    ]


def _cut(policy: Mapping[str, Any]) -> str:
    return f"above {policy['threshold']:.6g}" if policy["threshold"] is not None else _plain(policy["state"])


@_words_of("runs", "Calibration runs")
def _runs(value: Mapping[str, Any]) -> tuple[str, list[EvidenceTable]]:
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
def _draws(value: Mapping[str, Any]) -> tuple[str, list[EvidenceTable]]:
    if not value["drawn"]:
        return "no decision was drawn for labelling", []
    labelled = value["share_labelled"]
    return (
        f"{_number(value['drawn'])} decisions were drawn ({percent(value['share_drawn'])}); of"
        f" {counted(value['responses_drawn'], 'drawn response or claim', 'drawn responses or claims')} {_number(value['responses_labelled'])} have a label"
        + (f" ({percent(labelled)})" if labelled is not None else ""),
        [],
    )


@_words_of("labels", "Labels")
def _labels(value: Mapping[str, Any]) -> tuple[str, list[EvidenceTable]]:
    if not value["total"]:
        return "no label came in the period", []
    return (
        f"{counted(value['total'], 'label', 'labels')} came in the period, by"
        f" {counted(len(value['by_labeller']), 'labeller', 'labellers')}",
        [_pairs(value["by_labeller"], "labeller"), _pairs(value["by_source"], "came by")],
    )


@_words_of("exposure", "Exposure: average harm per prompt, held prompts counting 0")
def _exposure(value: Mapping[str, Any]) -> tuple[str, list[EvidenceTable]]:
    said = _risk(value, "exposure")
    if value["promised"] == "selective":
        said += ". The gate's budget is of another risk, the error rate among shipped answers"
    return said, []


@_words_of(
    "selective", "Error rate among shipped answers; of claims the loss of a prompt that gets something"
)
def _selective(value: Mapping[str, Any]) -> tuple[str, list[EvidenceTable]]:
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
            f", and {_number(missing)} whose label is missing, which count 0 below and 1 above and in the estimate"
            if missing
            else ""
        )
    )


@_words_of("desk", "Held answers and what people made of them")
def _desk(value: Mapping[str, Any]) -> tuple[str, list[EvidenceTable]]:
    if not value["outcomes"]:
        kept = "no outcome at the desk in the period"
        return (kept if value["deadline_seconds"] is not None else f"{kept}; the gate has no desk"), []
    said = (
        f"of {counted(value['outcomes'], 'held batch', 'held batches')} that got an outcome at the desk people released"
        f" {_number(value['released'])} ({_number(value['edited'])} edited) and rejected {_number(value['rejected'])};"
        f" {_number(value['deadline_passed'])} had no decision by their deadline"
    )
    if value["median_seconds"] is not None:
        said += f"; people took {_seconds(value['median_seconds'])} at the median and {_seconds(value['longest_seconds'])} at most"
    if value["severity"] is not None:
        said += (
            f". Of {counted(value['released_as_they_were'], 'answer or claim that was', 'answers or claims that were')} released unedited the audit"
            f" drew {_number(value['drawn'])}; the {_number(value['labelled'])} with a label have the mean severity"
            f" {percent(value['severity'])}"
        )
    elif value["released_as_they_were"]:
        said += ". Of what was released unedited nothing that the audit drew has a label"
    return said, [_pairs(value["by"], "decided by")]


@_words_of("alerts", "Alerts and acknowledgements")
def _alerts(value: Mapping[str, Any]) -> tuple[str, list[EvidenceTable]]:
    if not value["raised"]:
        return "no alert was raised in the period", []
    said = f"{counted(value['raised'], 'alert was', 'alerts were')} raised, {_number(value['acknowledged'])} acknowledged"
    if value["acknowledged"]:
        said += f", after {_seconds(value['median_seconds'])} at the median and {_seconds(value['longest_seconds'])} at most"
    rows = [
        (
            _when(one["raised_at"]), one["level"], one["kind"], one["message"], _when(one["acknowledged_at"]),
            _by(one["acknowledged_by"]), _seconds(one["seconds"]),
        )
        for one in value["each"]
    ]  # fmt: skip
    return said, [_rows(("raised", "level", "kind", "says", "acknowledged", "by", "after"), rows)]


@_words_of("refused", "Refused, repeated and lost messages")
def _refused(value: Mapping[str, Any]) -> tuple[str, list[EvidenceTable]]:
    return (
        f"{counted(value['dead_letters'], 'message was', 'messages were') if value['dead_letters'] else 'no message was'} refused;"
        f" {_came_again(value['duplicates'], value['conflicts'])}, and"
        f" {counted(len(value['lost']), 'range of offsets was', 'ranges of offsets were') if value['lost'] else 'no offsets were'} lost",
        [
            _pairs(value["by_code"], "refused for"),
            _rows(
                ("lost of", "partition", "from offset", "to offset"),
                [tuple(map(str, one)) for one in value["lost"]],
                2,
            ),
        ],
    )


def _came_again(alike: int, otherwise: int) -> str:
    if alike and otherwise:
        return f"{counted(alike, 'batch', 'batches')} came again unchanged and {_number(otherwise)} with other content"
    if alike or otherwise:
        how = "unchanged" if alike else "with other content"
        return f"{counted(alike or otherwise, 'batch', 'batches')} came again {how}"
    return "no batch came again"


@_words_of("erasures", "Erasures of texts")
def _erasures(value: Sequence[Mapping[str, Any]]) -> tuple[str, list[EvidenceTable]]:
    if not value:
        return "no erasure in the period", []
    sooner = sum(bool(one["sooner"]) for one in value)
    rows = [
        (
            _when(one["at"]),
            who(one["by"]),
            one["reason"],
            _when(one["before"]),
            "yes" if one["sooner"] else "no",
        )
        for one in value
    ]
    return (
        f"{counted(len(value), 'erasure', 'erasures')}, each with who, why and the age from which texts were erased;"
        f" {_number(sooner)} of what was younger than six months",
        [_rows(("at", "by", "reason", "erased what is older than", "younger than six months"), rows)],
    )


@_words_of("people", "Accounts and API keys")
def _people(value: Mapping[str, Any]) -> tuple[str, list[EvidenceTable]]:
    accounts, keys, revoked = value["accounts"], value["api_keys"], value["revoked"]
    return (
        f"{counted(len(accounts), 'change', 'changes')} of accounts, {counted(len(keys), 'new API key', 'new API keys')},"
        f" {_number(len(revoked))} revoked",
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


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _plain(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def _when(moment: str | None) -> str:
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
