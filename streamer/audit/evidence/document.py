"""A report in words and tables, which the page and the PDF file both show: it adds nothing to the report."""

import dataclasses
import itertools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamer.audit.evidence.figures import (
    TITLES,
    WORDS,
    EvidenceTable,
    grouped,
    not_checked,
    plain,
    table_of,
    when,
)
from streamer.security.visible import visible
from streamer.wording.numbers import counted, percent

NONE = "none"
MOST_GATES = 3
"""With more of them a clause names the figures of all together, not one by one."""


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


_OF_GATE = (
    "gate", "mode", "decisions", "served", "drawn", "labelled", "the risk that its budget bounds", "open alerts"
)  # fmt: skip


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
        + (f" {not_checked(unchecked)} [{numbers['unchecked']}]." if unchecked else "")
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
                f"{when(period['since'])} to {when(period['until'])}"
                + ("" if decided else ": nothing was decided in it"),
            ),
            ("Gates", ", ".join(gates) or NONE),
            ("Bundle made", when(report["made_at"])),
            ("SHA-256 of its manifest", report["bundle"]),
            ("Verified with", _verified_with(report["verified_with"])),
        ],
        gates=table_of(_OF_GATE, [_of_gate(gate, found) for gate in gates]),
        glance=table_of(
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
    said = "not established"
    if risk["estimate"] is not None and risk["budget"] is not None:
        kept, exceeded = risk["upper"] <= risk["budget"], risk["lower"] > risk["budget"]
        verdict = "kept" if kept else "exceeded" if exceeded else "not decided"
        lower, upper, budget = (percent(risk[name]) for name in ("lower", "upper", "budget"))
        said = f"{lower} to {upper}, budget {budget}: {verdict}"
    return (
        gate, plain(settings["mode"]), grouped(decided["total"]),
        percent(decided["share_served"]) if decided["total"] else "–", grouped(drawn["drawn"]),
        grouped(drawn["responses_labelled"]), said, grouped(alerts["raised"] - alerts["acknowledged"]),
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
        + "".join(f" --segment {shlex.quote(name)}" for name in report["segments"])
        + (" --public-key checkpoint-key.pem.pub" if given["keys"] else "")
        + " --report report.json"
        + (" --report-key report-key.pem.pub" if report["signed_with"] else "")
        + ("" if given["checkpoints"] is None else " --checkpoints checkpoints.jsonl")
    )


def _verified_with(given: Mapping[str, Any]) -> str:
    keys = "no public key: signatures of checkpoints were not checked"
    if given["keys"]:
        keys = f"public keys {', '.join(key[:16] for key in given['keys'])}"
    outside = "checkpoints of the bundle alone"
    if given["checkpoints"] is not None:
        lines = given["checkpoints"]["lines"]
        outside = f"{counted(lines, 'checkpoint', 'checkpoints')} kept outside the database"
    return f"{keys}; {outside}"


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
    covered = "no checkpoint covers them"
    if figure["checkpoint"] is not None:
        covered = f"covered by checkpoint {figure['checkpoint']}"
        if figure["after"]:
            covered += f", but for {figure['after']} that are younger than every checkpoint"
    rows = counted(figure["rows"], "row", "rows")
    return f"{rows}, {covered}; SHA-256 of their leaves {figure['sha256']}"
