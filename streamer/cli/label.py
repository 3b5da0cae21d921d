"""`streamer label`: what waits for a severity, severities that come back in a file, and those that programs give."""

import sys
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import typer

from streamer import wiring
from streamer.cli import FAILED, label_clouds, label_filling
from streamer.cli import options as opt
from streamer.cli.console import counted, note, print_json, say, warn
from streamer.cli.label_filling import waiting
from streamer.cli.options import gate_names, write_key_files
from streamer.cli.policies import unread_json, unread_text
from streamer.clouds.tables.answers import Reading
from streamer.clouds.tables.columns import shown_columns
from streamer.clouds.tables.formats import FORMATS
from streamer.clouds.tables.marks import Annotators
from streamer.errors import UsageError, cannot
from streamer.gates import labeller_names
from streamer.journal import LabelRevision
from streamer.labels.bridges.bridge import identity
from streamer.labels.bridges.registry import bridges
from streamer.labels.label_files import (
    NAMED_FIELDS,
    LabelReader,
    format_of,
    one_each,
    open_labels,
    write_queue,
)
from streamer.labels.registry import by_programs
from streamer.security.visible import VisibleLines
from streamer.wording.numbers import items, waiting_items

if TYPE_CHECKING:
    from streamer.store import Store
    from streamer.store.labels.revisions import Added


app = typer.Typer(no_args_is_help=True)


@app.command("import")
def import_(
    file: Path = opt.argument(
        "FILE", "CSV, JSON Lines or Parquet with the fields of the labels event; the first two may be gzip."
    ),
    column: list[str] | None = opt.option(
        "FIELD=NAME", "Column of a field that has another name, like severity=verdict; may be repeated."
    ),
    format_: str | None = opt.option(
        "|".join(("label-studio", "argilla", *FORMATS)),
        "What wrote FILE: a labelling tool, or the evaluation tool of a file that was "
        "published, which its columns tell.",
        None,
        "--format",
    ),
    gate: str | None = opt.option("GATE", "Gate of rows that name none.", autocompletion=gate_names),
    kind: str | None = opt.option("KIND", "Kind of rows that name none. Default: that of --gate."),
    labeller: str | None = opt.option("WHO", "Labeller of rows that name none. Default: your login name."),
    scale: opt.ScaleOption = None,
    words: opt.WordsOption = None,
    annotators: opt.AnnotatorsOption = "mean",
    trust_score: opt.TrustScoreOption = False,
    sign: bool = opt.flag(
        "--sign", "Sign each label with its labeller's private key (STREAMER_LABELS_PRIVATE_KEYS_FILE)."
    ),
    json: opt.JsonOption = False,
) -> None:
    """Import severities from a file. Rows without a severity are skipped; of a file with an error nothing is stored.

    The columns are gate, batch_id, attempt, response_id, severity, kind, labeller, labelled_at; `streamer label queue`
    writes a file that has them. Rows without labelled_at get the time when the file was last changed, so
    importing it again changes nothing, and an older file does not undo a newer one. Exit status 1 when no row has a
    severity.
    """
    reading = Reading(
        marks=opt.given_marks(scale, words),
        annotators=cast("Annotators", annotators),
        trust_score=trust_score,
    )
    named = {"gate": gate, "kind": kind, "labeller": labeller}
    labels, several, reader = _read(file, reading, format_, columns=_columns(column or []), **named)
    with wiring.record() as store:
        added = store.labels.add(labels, source="file", sign=sign)
        done = _Imported(
            file, gate, labels, several, reader, added,
            unrecorded=store.labels.unrecorded(labels), other_kinds=_of_other_kinds(store, labels),
        )  # fmt: skip
    if json:
        print_json(done.to_json())
    else:
        done.say()
    if not labels:
        raise typer.Exit(FAILED)


class _Imported(NamedTuple):
    """What came of a file: its labels, what was stored of them, and those that change nothing.

    `several` : what to say of those that one labeller gave one answer. `other_kinds` as `_of_other_kinds` gives them.
    """

    file: Path
    gate: str | None
    labels: list[LabelRevision]
    several: str
    reader: "LabelReader"
    added: "Added"
    unrecorded: Collection[LabelRevision]
    other_kinds: list[tuple[str, str, str, int]]

    def to_json(self) -> dict[str, object]:
        """Write it as JSON values."""
        return {
            "file": str(self.file),
            "read": len(self.labels),
            "stored": self.added.added,
            "repeated": self.added.repeated,
            "signed": self.added.signed,
            "unread": unread_json(self.added.unread),
            "without_severity": self.reader.unlabelled,
            "unmatched": self.reader.unmatched,
            "unrecorded": len(self.unrecorded),
            "other_kind": sum(count for _, _, _, count in self.other_kinds),
        }

    def say(self) -> None:
        """Print it for people, and what to do next."""
        added, unmatched = self.added, self.reader.unmatched
        say(f"imported {counted(added.added, 'label', 'labels')} from {self.file.name}")
        if self.several:
            note(self.several)
        for number, said in (
            (added.repeated, ("label was known already", "labels were known already")),
            (added.signed, ("label is newly signed", "labels are newly signed")),
        ):
            if number:
                note(counted(number, *said))
        for name, unread in added.unread.items():
            warn(f"gate {name}: {unread_text(unread)}")
        if empty := self.reader.unlabelled:
            note(f"{counted(empty, 'row has', 'rows have')} no severity yet")
        if unmatched:
            warn(
                f"{counted(unmatched, 'label is', 'labels are')} of no answer that was drawn here"
                f"{'' if self.gate is None else f' by {self.gate}'}, and passed over"
            )
        if self.unrecorded:
            warn(
                f"{counted(len(self.unrecorded), 'label names', 'labels name')} a batch, attempt or response that is not in the "
                "record, or was given out of it; while it is not there, they change nothing"
            )
        for name, given, wanted, count in self.other_kinds:
            warn(
                f"{counted(count, 'label is', 'labels are')} of the kind {given!r}, and gate {name} is controlled by {wanted!r}: "
                "they change no threshold"
            )
        ignored = {(name, given) for name, given, _, _ in self.other_kinds}
        used = {(one.key.gate, one.kind) for one in set(self.labels).difference(self.unrecorded)} - ignored
        if gates := {name for name, _ in used}:
            note("Next: streamer recalibrate" + (f" {gates.pop()}" if len(gates) == 1 else ""))
        if not self.labels:
            warn(self._nothing())

    def _nothing(self) -> str:
        table = self.reader.table
        if table.unit == "record":
            return f"No record of {self.file.name} is a label of an answer that is known here"
        return (
            f"No row of {self.file.name} is a label; its columns are {shown_columns([*table.columns, *table.inner])}. Name that of "
            "the severities: --column severity=NAME, or --column correct=NAME where 1 means right; "
            "or the tool that wrote it: --format TOOL"
        )


def _columns(given: list[str]) -> dict[str, str]:
    """Read ``FIELD=NAME``, each field once. Raises `UsageError`."""
    found: dict[str, str] = {}
    for text in given:
        field, _, name = text.partition("=")
        if field not in NAMED_FIELDS or not name or field in found:
            raise UsageError(
                f"--column must be FIELD=NAME, each field once, like severity=verdict, not {text!r}; the fields are "
                f"{', '.join(NAMED_FIELDS)}"
            )
        found[field] = name
    return found


def _read(
    file: Path, reading: Reading, bridge: str | None, *, gate: str | None, **named: Any
) -> tuple[list[LabelRevision], str, "LabelReader"]:
    """Read a whole label file, so that a fault in its last row keeps all of it out; `named` as `open_labels` has it.

    Returns its labels, what to say of those that one labeller gave one answer, and the reader.
    """
    defaults = {"labeller": cache(lambda: opt.who(None, "--labeller"))}
    if gate is not None:
        defaults["kind"] = cache(lambda: _kind_of(gate))
    with open_labels(
        file,
        now=_last_changed(file),
        gate=gate,
        defaults=defaults,
        reading=reading,
        bridge=bridge,
        answers=cache(lambda: _drawn(gate, bridge)),
        report=note,
        **named,
    ) as reader:
        return *one_each(list(reader), reading.annotators), reader


def _kind_of(gate: str) -> str:
    """Return the kind of severities that controls a gate."""
    with wiring.record() as store:
        return store.gates.get(gate).settings.severity_kind


def _drawn(gate: str | None, bridge: str | None) -> dict[str, dict[str, object]]:
    """Return every answer that was drawn for a label, by its name in a labelling tool that keeps no more."""
    tool = bridges()[bridge or ""]
    with wiring.record() as store:
        return {
            tool.task_id(one.key, one.response_id, one.kind): identity(one)
            for one in store.labels.drawn(gate)
        }


def _last_changed(file: Path) -> datetime:
    """Return when the file was last written; the present when unknown, or if that lies in the future."""
    now = wiring.now()
    with suppress(OSError):
        return min(now, datetime.fromtimestamp(file.stat().st_mtime, UTC))
    return now


def _of_other_kinds(store: "Store", labels: list[LabelRevision]) -> list[tuple[str, str, str, int]]:
    """Return (gate, kind given, kind wanted, how many) of labels that do not control their gate."""
    given = Counter((label.key.gate, label.kind) for label in labels)
    wanted = {gate: store.gates.get(gate).settings.severity_kind for gate, _ in given}
    return [
        (gate, kind, wanted[gate], count)
        for (gate, kind), count in sorted(given.items())
        if kind != wanted[gate]
    ]


@app.command()
def queue(
    gate: opt.GateFilter = None,
    format_: Literal["csv", "jsonl", "label-studio", "argilla", "langfuse"] | None = opt.flag(
        "--format",
        "Format: a file to fill in, or JSON for a labelling tool. Default: by the ending of --out, else csv.",
        None,
    ),
    out: Path | None = opt.option("FILE", "File to write instead of standard output."),
) -> None:
    """Write what waits for a severity, the oldest first, as a file to fill in and import again.

    Rows of gates whose audit probability is raised come before all others and say `yes` in the column `urgent`: the risk
    alarm waits for them.
    """
    chosen = format_ or (format_of(out) if out is not None else "csv")
    with wiring.record(gate) as store:
        unread = store.labels.unread(gate)
        urgent = sorted(name for name in store.labels.urgent(wiring.now()) if gate in (None, name))
        textless: Counter[str] = Counter()
        # A person cannot judge an empty task; a row of a file can be looked up by its batch.
        tasks = waiting(store, gate, textless=textless if chosen in bridges() else None)
        names = [gate] if gate is not None else [revision.gate for revision in store.gates.list()]
        units = {name: store.gates.get(name).settings.unit for name in names}
        unused = {name: said for name in names if (said := store.calibration.waiting(name)) is not None}
        if out is None:
            lines = VisibleLines(sys.stdout) if sys.stdout.isatty() else sys.stdout
            count = write_queue(tasks, lines, chosen)
        else:
            with cannot(f"write {out}"), out.open("w", encoding="utf-8", newline="") as lines:
                count = write_queue(tasks, lines, chosen)
    where = "" if out is None else f", in {out}"
    note(f"{counted(count, *waiting_items(*units.values()))} for a severity{where}")
    if urgent:
        note(f"Urgent, and first: {', '.join(urgent)}")
    for name, number in sorted(textless.items()):
        note(
            f"gate {name}: left out {counted(number, *items(units[name], plain='response'))} without a text: it was not kept, or was erased."
            f" `streamer gate set {name} --keep-texts` keeps those to come; --format csv lists them by batch"
        )
    for name, one in unread.items():
        note(f"gate {name}: {unread_text(one)}")
    for name, said in unused.items():
        note(f"gate {name}, newest calibration: {said}")
    if count and out is not None and chosen in bridges():
        tool = bridges()[chosen]
        note(f"Import it into {tool.title}, where there has to be {tool.setup}.")
        note(f"Then {tool.back}, and: streamer label import EXPORT.json --format {chosen}")
    elif count and out is not None:
        note(f"Fill in the column severity (0 fine, 1 worst), then: streamer label import {out}")


@app.command()
def keygen(
    labeller: str = opt.argument("WHO", "The labeller's name; the key signs only for this one."),
    out: Path = opt.option("FILE", "New file for the private key; FILE.pub gets the public one.", ...),
) -> None:
    """Make a key pair with which one labeller signs labels, for gates that demand it (--signed-labels).

    Keep the private key only where this labeller's labels are made. Put the public keys of all labellers, one after the
    other, into one file for everything that reads labels.
    """
    from streamer.audit.signing import generate_keys

    name = labeller_names.normalised(labeller)
    if (wrong := labeller_names.fault(name)) is not None:
        raise UsageError(f"the name of a labeller {wrong}")
    private, public = generate_keys()
    beside = write_key_files(out, wiring.key_block(name, private), wiring.key_block(name, public))
    say(f"{out}: the private key of {name}. STREAMER_LABELS_PRIVATE_KEYS_FILE, where {name} labels.")
    say(
        f"{beside}: the public key. Append it to the file named by STREAMER_LABELS_PUBLIC_KEYS_FILE, wherever labels are read:"
        " recalibrator, review page, commands."
    )


for name, program_kind in by_programs().items():
    app.command(name)(label_filling.filling(program_kind))
app.command("clouds")(label_clouds.clouds)
app.command("claims")(label_clouds.claims)
