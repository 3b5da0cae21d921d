"""The tables of a GPSO study: cells for a terminal and Markdown, rows for CSV, and one JSON form."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from streamer.security.csv_cells import CsvTable
from streamer_research.gpso.figures import LEVEL, MEASURES, Estimate
from streamer_research.gpso.protocols import Protocol, Task
from streamer_research.gpso.scatter import PIPELINES
from streamer_research.gpso.study import DiagnosticsSummary, GpsoStudy, Row

SECTIONS: tuple[tuple[Protocol, Task], ...] = (
    ("within", "batch"),
    ("within", "response"),
    ("across", "batch"),
    ("across", "response"),
)
"""The tables, in the order in which they are shown."""
HEADS = ("method", "macro acc", "good", "bad", "Δ_P", "AUROC", "ties", "accuracy", "macro F1")
PLAIN_HEADS = HEADS[:7]
"""What fits a terminal of 80 columns; the rest is in the files."""
DIAGNOSTIC_HEADS = ("pipeline", "Δ_P", "ε", "γ", "δ", "r", "m / r", "met", "c = 2")
AGAINST_HEADS = ("pipeline", "less", "macro acc", "AUROC")


def sections(study: GpsoStudy) -> list[tuple[Protocol, Task]]:
    """Return the tables that a study has; of a protocol that had nothing to judge one is left, to say so."""
    asked = [each for each in SECTIONS if each[0] == "within" or study.options.loo]
    return [each for each in asked if each[1] == "batch" or section_rows(study, *each)]


def section_rows(study: GpsoStudy, protocol: Protocol, task: Task) -> list[Row]:
    """Return the rows of one table, pipelines first; none when nothing could be judged."""
    return [row for row in study.rows if row.protocol == protocol and row.task == task]


def section_title(study: GpsoStudy, protocol: Protocol, task: Task) -> str:
    """Say in a line what a table is of."""
    rows = section_rows(study, protocol, task)
    options = study.options
    how = (
        f"Within questions, {options.splits} splits, {options.train_share:.0%} to train on"
        if protocol == "within"
        else _across(study)
    )
    what = "batches of one class" if task == "batch" else "single responses"
    if task == "batch" and not options.equal_sizes:
        what += ", of unequal sizes,"
    if not rows:
        return f"{how}: nothing to judge"
    return f"{how}: {rows[0].figures.judged} {what} of {rows[0].figures.questions} questions"


def _across(study: GpsoStudy) -> str:
    folds, questions = study.options.folds, len(study.question_ids)
    if folds is None or folds >= questions:
        return "Each question left out"
    return f"Questions left out in {folds} folds"


def cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the cells under `HEADS`: figure ± standard error by question."""
    return [
        (
            method_title(row),
            with_error(row.figures.macro_accuracy),
            plain(row.figures.accuracy_good),
            plain(row.figures.accuracy_bad),
            f"{row.diagnostics.separation:.3f}" if row.diagnostics else "-",
            with_error(row.figures.auroc),
            str(row.figures.undecided),
            with_error(row.figures.accuracy),
            with_error(row.figures.macro_f1),
        )
        for row in rows
    ]


def diagnostic_cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the cells under `DIAGNOSTIC_HEADS`: means over judged batches, and the share that meets the condition."""
    return [
        (
            method_title(row),
            f"{d.separation:.3f}",
            f"{d.concentration:.3g}",
            f"{d.eigengap:.3g}",
            f"{d.dispersion:.3f}",
            f"{d.rank:.2f}",
            f"{d.margin:.3f}",
            f"{d.condition_share:.1%}",
            f"{d.condition_share_paper:.1%}",
        )
        for row in rows
        if (d := row.diagnostics) is not None
    ]


def against_cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the cells under `AGAINST_HEADS`: differences with their intervals."""
    return [
        (
            f"({row.method.removeprefix('GPSO ')})",
            rival,
            with_interval(found["macro_accuracy"]),
            with_interval(found["auroc"]),
        )
        for row in rows
        for rival, found in row.against.items()
    ]


def method_title(row: Row) -> str:
    """Name a row's method: pipelines with what they are, in the paper's letters."""
    key = row.method.removeprefix("GPSO ")
    return f"({key}) {PIPELINES[key].title}" if key in PIPELINES else row.method


def plain(estimate: Estimate) -> str:
    """Write a figure, a dash where it is not defined."""
    return "-" if estimate.value is None else f"{estimate.value:.3f}"


def with_error(estimate: Estimate) -> str:
    """Write a figure with its standard error."""
    return plain(estimate) if estimate.se is None else f"{plain(estimate)} ± {estimate.se:.3f}"


def with_interval(estimate: Estimate) -> str:
    """Write a difference with its sign and interval."""
    if estimate.value is None:
        return "-"
    interval = estimate.interval
    ends = "" if interval is None else f" [{interval[0]:+.3f}, {interval[1]:+.3f}]"
    return f"{estimate.value:+.3f}{ends}"


def selection_lines(study: GpsoStudy) -> list[str]:
    """Say in a few sentences what of the file was used, and what not."""
    used, options = study.selection, study.options
    classified = used.good + used.bad
    lines = [
        f"{used.questions} questions, {used.responses} responses; good: severity at most {options.cut:g} "
        f"({used.good}, {used.good / classified:.0%}), bad: above ({used.bad}). "
        f"Left out: {used.unlabelled} without a severity, {used.blank} blank"
        + (f", {used.repeated} copies of an earlier text." if options.distinct else "."),
        f"Within questions: {used.both_classes} have {options.min_per_class} or more of each class; {used.skipped} "
        f"skipped ({used.too_few_good} with too few good, {used.too_few_bad} with too few bad, {used.too_few_both} "
        "with too few of both).",
    ]
    if options.loo:
        lines.append(
            f"Across questions: {used.batches_good} good and {used.batches_bad} bad batches of "
            f"{options.min_per_class} or more."
        )
    if used.copied >= classified / 100:
        lines.append(
            f"{used.copied / classified:.0%} of responses have a word-for-word copy among those to the same question: "
            "within questions, memorising texts scores well."
        )
    return lines


# ---- for programs


def study_json(study: GpsoStudy) -> dict[str, Any]:
    """Return a study as JSON values; null where a figure is not defined."""
    return {
        "options": asdict(study.options),
        "selection": {**asdict(study.selection), "skipped": study.selection.skipped},
        "rows": [
            {
                **_facts(row),
                **{name: estimate_json(row.figures.measure(name)) for name in MEASURES},
                "diagnostics": None if row.diagnostics is None else asdict(row.diagnostics),
                "against": {
                    rival: {name: estimate_json(one) for name, one in found.items()}
                    for rival, found in row.against.items()
                },
            }
            for row in study.rows
        ],
    }


def _facts(row: Row) -> dict[str, object]:
    return {
        "protocol": row.protocol,
        "task": row.task,
        "method": row.method,
        "questions": row.figures.questions,
        "judged": row.figures.judged,
        "undecided": row.figures.undecided,
    }


def estimate_json(estimate: Estimate) -> dict[str, Any]:
    """Return a figure with its standard error and interval."""
    low, high = estimate.interval or (None, None)
    return {"value": estimate.value, "se": estimate.se, "low": low, "high": high}


def figures_csv(studies: Mapping[str, GpsoStudy]) -> str:
    """Write one line for each file, protocol, task and method."""
    heads = ["file", "protocol", "task", "method", "cut", "questions", "judged", "undecided"]
    heads += [f"{name}{suffix}" for name in MEASURES for suffix in ("", "_se")]
    heads += list(_SUMMARY)
    rows = []
    for name, study in studies.items():
        for row in study.rows:
            line: dict[str, object] = {"file": name, "cut": study.options.cut, **_facts(row)}
            for measure in MEASURES:
                estimate = row.figures.measure(measure)
                line |= {measure: estimate.value, f"{measure}_se": estimate.se}
            if row.diagnostics is not None:
                line |= {column: getattr(row.diagnostics, column) for column in _SUMMARY}
            rows.append(line)
    return _csv(heads, rows)


_SUMMARY = tuple(one.name for one in fields(DiagnosticsSummary) if one.name != "batches")
_EACH = (
    "rank", "margin", "separation", "concentration", "eigengap", "dispersion",
    "left", "right", "holds", "holds_paper",
)  # fmt: skip


def batches_csv(studies: Mapping[str, GpsoStudy]) -> str:
    """Write one line for each batch that GPSO judged, with its diagnostics: what the paper records for each fold."""
    rows: list[dict[str, object]] = []
    for name, study in studies.items():
        for outcomes in study.outcomes:
            for i, found in enumerate(outcomes.diagnostics):
                score = float(outcomes.score[i])
                rows.append(
                    {
                        "file": name,
                        "protocol": outcomes.protocol,
                        "method": outcomes.method,
                        "question_id": study.question_ids[outcomes.question[i]],
                        "fold": int(outcomes.fold[i]),
                        "class": "good" if outcomes.good[i] else "bad",
                        "predicted": "undecided" if score == 0 else "good" if score > 0 else "bad",
                        **{column: getattr(found, column) for column in _EACH},
                    }
                )
    return _csv(
        ["file", "protocol", "method", "question_id", "fold", "class", "predicted", *_EACH],
        rows,
    )


def _csv(heads: Sequence[str], rows: Sequence[Mapping[str, object]]) -> str:
    stream = io.StringIO(newline="")
    table = CsvTable(stream)
    table.write(heads)
    for row in rows:
        table.write(row.get(head) for head in heads)
    return stream.getvalue()


def markdown(studies: Mapping[str, GpsoStudy]) -> str:
    """Write all tables of all files, a heading each."""
    parts = []
    for name, study in studies.items():
        parts.append(f"## {name}, cut {study.options.cut:g}")
        parts += selection_lines(study)
        for protocol, task in sections(study):
            rows = section_rows(study, protocol, task)
            parts.append(f"### {section_title(study, protocol, task)}")
            if not rows:
                continue
            parts.append(_markdown_table(HEADS, cells(rows)))
            if task == "batch":
                parts.append(_markdown_table(DIAGNOSTIC_HEADS, diagnostic_cells(rows)))
            parts.append(_markdown_table(AGAINST_HEADS, against_cells(rows)))
    parts.append(NOTES)
    return "\n\n".join(parts) + "\n"


NOTES = (
    f"± is a standard error by question (jackknife); brackets hold {LEVEL:.0%} intervals of differences on the same "
    "questions. good, bad: share right of what is good, of what is bad, each question's share counting once; macro acc: "
    "their mean (balanced accuracy, .5 for a coin). A tie decides nothing and counts one half. accuracy and macro F1 "
    "count every judgement once. Diagnostics are means over judged batches; δ is δ_proto, `met` the share of batches "
    "with c √r ε / γ + δ_proto < Δ_P / 4 for c = 2√2, and then for the paper's c = 2. δ_proto is a dispersion, not an "
    "error: where the condition is met, nothing is certified."
)
"""What the columns mean, under every set of tables."""


def _markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
