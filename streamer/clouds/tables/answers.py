"""Rows of a table as response clouds: what the cells mean, and which rows are answers to one prompt."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, cast

from streamer.clouds.cloud import UNSTATED_KIND, Claim, Cloud, comparable, kind_of_label, response_id
from streamer.clouds.tables.columns import OF_PROMPT, ROLES, Role, recognise, role_of
from streamer.clouds.tables.formats import NO_TOOL, graded
from streamer.clouds.tables.leaks import LeakCheck
from streamer.clouds.tables.marks import (
    ANNOTATORS,
    TRUTH,
    Annotators,
    Marks,
    number_in,
    several_note,
    severity_of,
)
from streamer.clouds.tables.one_prompt import Answer, as_they_come, cloud_of, held_together
from streamer.clouds.tables.rows import Table, TableError, UnclearMarks
from streamer.clouds.tables.values import (
    NotText,
    is_missing,
    list_of_text,
    name_of,
    opened_value,
    plain,
    text_of,
    value_at,
)
from streamer.errors import UsageError
from streamer.events.excerpts import excerpt
from streamer.scoring.signals.declared import LEAST_LOGPROB, tokens_of
from streamer.security.csv_cells import plain_cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a table is to be read where it does not say so itself.

    `columns` are those of roles that are not recognised by name, an empty one where the role has
    none; `signals` declared numbers of the answers, by name the least and the largest value, whose
    names are roles of columns too. Several severities of one answer become their mean, or the worst
    of them, as `annotators` says. `trust_score` takes a score in that says just what the severities
    say. `models` are told apart by the column `model`, unless another is named. `written_by` is the
    tool that wrote the table, of `streamer.clouds.tables.formats`; None: as the table tells.
    """

    columns: Mapping[Role, tuple[str, ...]] = field(default_factory=dict)
    marks: Marks = field(default_factory=Marks)
    annotators: Annotators = "mean"
    trust_score: bool = False
    signals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    written_by: str | None = None

    def __post_init__(self) -> None:
        """Raise `UsageError` for another choice of annotators, and for a signal with the name of a role."""
        if taken := self.signals.keys() & set(ROLES):
            raise UsageError(
                f"a signal cannot be called {min(taken)}, as a column of every table may be; call it otherwise"
            )
        if self.annotators not in ANNOTATORS:
            raise UsageError(f"annotators must be one of {', '.join(ANNOTATORS)}, not {self.annotators!r}")


class AnswerReader:
    """Reads the rows of a table by its columns. Raises `TableError` at a cell that does not fit its column."""

    def __init__(
        self, table: Table, reading: Reading, *, needs_answers: bool = False, without: Collection[str] = ()
    ) -> None:
        columns = reading.columns
        if reading.models and "model" not in columns:
            if not table.has("model"):
                raise UsageError(
                    f"{table.name} has no column for the model that gave an answer: say which with --column model=NAME"
                )
            columns = {**columns, "model": ("model",)}
        self.columns = recognise(
            table,
            columns,
            signals=reading.signals,
            needs_answers=needs_answers,
            without=without,
            written_by=reading.written_by,
        )
        self.reading = reading
        self.unclear = self.columns.unclear
        self._table = table
        self._several = Counter[str]()
        self._failure = ""

    def prompts(self, *, together: bool) -> Iterator[Prompt]:
        """Yield the prompts of the table, in the order of their first rows.

        Where the rows of a prompt stand `together` one prompt is in memory at a time. Raises
        `TableError` at a row that cannot be read. A score that is the mark is refused before the
        first prompt, or where rows are not held after the last. Raises `UsageError` where errors of
        a tool left no prompt with answers, or no prompt has more than one answer, nor a score.
        """
        hint = ", which come together in standard input" if self._table.name == "standard input" else ""
        return comparable(self._prompts(together=together), lambda one: one.cloud, self._table.name, hint)

    def _prompts(self, *, together: bool) -> Iterator[Prompt]:
        columns, leak = self.columns, self.leak_check()
        answers = leak.watch(answer for place, row in self._rows() for answer in self.answers(place, row))
        groups: Iterable[list[Answer]]
        if together or columns.wide:
            groups = as_they_come(answers, self._apart)
        if not together:
            groups = list(groups if columns.wide else held_together(answers))
            leak.check()
        names: dict[str, str] = {}
        for group in groups:
            if columns.wide and group[-1].place != group[0].place:
                raise self._apart(group[-1], group[0].place)
            merged, places = self._one_each(group)
            cloud = cloud_of(merged, self._table, columns)
            if names.setdefault(cloud.batch_id, group[0].key) != group[0].key:
                raise self._table.error(
                    group[0].place, None, "its prompt has the same name as another in events"
                )
            yield Prompt(cloud, places)
        leak.check()
        if self._failure and not names:
            raise UsageError(f"{self._table.name}: nothing is left: {self._left_out}; try anew")

    def leak_check(self) -> LeakCheck:
        """Return what looks whether the score, or a signal, is the mark."""
        columns = {name: self.columns.one(cast("Role", name)) for name in ("score", *self.reading.signals)}
        return LeakCheck(self._table.name, columns, trusted=self.reading.trust_score)

    def _rows(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """The rows. Raises `TableError` at a key that would have had a role, had the first rows had it."""
        table, known = self._table, set(self._table.columns)
        for place, row in table.rows:
            if not known.issuperset(row):
                late = [key for key in row if key not in known]
                known.update(late)
                for key in late:
                    role = role_of(str(key))
                    if (
                        role is not None
                        and role not in self.columns.named
                        and role not in self.reading.columns
                    ):
                        raise table.error(
                            place,
                            key,
                            "the first rows lack it, so that nobody looked for it; write null there, or "
                            f"leave it out: --column {role}=",
                        )
            if not self.has_failed(place, row):
                yield place, row

    def has_failed(self, place: int, row: Mapping[str, Any]) -> bool:
        """Whether a row of a tool has an error in place of an answer; it is counted then."""
        tool, column = self.columns.tool, self.columns.one("answer")
        if tool is NO_TOOL or column is None:
            return False
        self._several["rows"] += 1
        answer = plain(value_at(row, column))
        if not tool.has_failed(row, answer or (None if self._table.format == "csv" else answer)):
            return False
        self._several["failed"] += 1
        said = filter(None, (plain(value_at(row, one)) for one in tool.failure.split()))
        why = "".join(f": {excerpt(str(one))}" for one in islice(said, 1))
        self._failure = self._failure or f"{self._table.unit} {place}{why}"
        return True

    @property
    def _left_out(self) -> str:
        failed, rows = (self._several[one] for one in ("failed", "rows"))
        return f"{failed:,} of {rows:,} rows have no answer, but an error (first {self._failure})"

    @property
    def notes(self) -> Iterator[str]:
        """What was made of the table, in sentences, when all prompts have been read."""
        if self._failure:
            yield f"{self._table.name}: left out: {self._left_out}"
        several = self._several
        said = several_note(several["answers"], several["all"], several["marks"], self.reading.annotators)
        if said:
            yield f"{self._table.name}: {said}"

    def _apart(self, answer: Answer, earlier: int) -> TableError:
        columns = self.columns
        what = "was there already; a row is a whole prompt" if columns.wide else "began before"
        return self._table.error(
            answer.place,
            columns.one("prompt_id") or columns.one("prompt"),
            f"the prompt {answer.key[:60]!r} {what} (at {self._table.unit} {earlier}); "
            + ("give each row an id of its own" if columns.wide else "sort the rows by it"),
        )

    def _one_each(self, group: Sequence[Answer]) -> tuple[list[Answer], tuple[tuple[int, ...], ...]]:
        """Make one of the rows that annotators or claims have of an answer: of one prompt and id.

        Without an id rows with a claim are of one answer where they have its text, and a row
        without one is an answer of its own.
        """
        rows: dict[str | int, list[Answer]] = {}
        claimed = "claim" in self.columns.named
        for place, answer in enumerate(group):
            own = f"text {answer.text}" if answer.claim else place
            named = answer.id is not None and not self.columns.wide
            rows.setdefault(answer.id if named and answer.id else own, []).append(answer)
        found = []
        for first, *others in rows.values():
            if claimed:
                self._check_same(first, others)
                found.append(replace(first, severity=None, claims=self._claims((first, *others))))
                continue
            marks = [one.severity for one in (first, *others) if one.severity is not None]
            if others:
                self._check_same(first, others)
                severity = severity_of(marks, self.reading.annotators) if marks else None
                first = replace(first, severity=severity)
            if len(marks) > 1:
                self._several.update(answers=1, marks=len(marks))
            found.append(first)
        self._several["all"] += len(found)
        return found, tuple(tuple(one.place for one in answers) for answers in rows.values())

    def _claims(self, rows: Sequence[Answer]) -> tuple[Claim, ...] | None:
        """The claims in the rows of one answer; several severities of one claim become one."""
        marks: dict[str, list[float]] = {one.claim: [] for one in rows if one.claim}
        for one in rows:
            if one.claim and one.severity is not None:
                marks[one.claim].append(one.severity)
        how = self.reading.annotators
        return (
            tuple(
                Claim(f"c{i:02d}", text, severity_of(some, how) if some else None)
                for i, (text, some) in enumerate(marks.items())
            )
            or None
        )

    def _check_same(self, first: Answer, others: Sequence[Answer]) -> None:
        own = {name: cast("Role", name) for name in self.reading.signals}
        for other in others:
            for what, role in (_OF_AN_ANSWER | own).items():
                one, another = (
                    each.signals.get(what) if what in own else getattr(each, what) for each in (first, other)
                )
                if one != another:
                    name = self.columns.one("answer_id")
                    other_use = "answer_id" if role == "answer" else role
                    raise self._table.error(
                        other.place,
                        self.columns.one(role),
                        f"another {what} than at {self._table.unit} {first.place} under the same prompt and the same {name} "
                        f"{excerpt(str(first.id))}; rows of one answer differ in their severities alone; if a column is about "
                        f"something else, leave it out: --column {other_use}=",
                    )

    def answers(self, place: int, row: Mapping[str, Any]) -> Iterator[Answer]:
        """Yield the answers of one row: one, or of a wide table all to its prompt."""
        columns = self.columns
        prompt = self._prompt(place, row)
        key = self.key(place, row)
        references = self._references(place, row)
        kind = UNSTATED_KIND
        if (column := columns.one("kind")) is not None:
            kind = kind_of_label({"label_kind": self._cell(place, row, "kind", column)})
        witnesses = self._witnesses(place, row)
        tool = columns.tool
        ungraded = tool.is_ungraded(row) and columns.graded_by_tool
        meta = {} if columns.wide and not witnesses else self._meta(row)
        claim = ""
        if (column := columns.one("claim")) is not None:
            claim = self._text(place, "claim", self._cell(place, row, "claim", column))
        for cells in self._cells(place, row):
            text = self._text(place, "answer", cells.get("answer"))
            name = self._name(place, "answer_id", cells.get("answer_id")) or None
            shown, samples = 0, (text, *witnesses)
            if witnesses and columns.one("witnesses") == tool.samples:
                shown, samples = graded(text, witnesses), witnesses
                text, name = witnesses[shown], response_id(shown)
                witnesses = witnesses[:shown] + witnesses[shown + 1 :]
            severity = None if ungraded else self._severity(place, cells)
            score = self._share(place, cells.get("score"))
            figures = self._logprobs(place, cells.get("logprob"))
            if columns.wide and not columns.lists and not text and severity is None and score is None:
                continue  # fewer answers than columns
            answer = Answer(
                place=place,
                key=key,
                prompt=prompt,
                references=references,
                id=name,
                text=text if "answer" in columns.named else None,
                severity=severity,
                kind=kind,
                score=score,
                logprob=figures.pop("logprob", None),
                model=self._name(place, "model", cells.get("model")) or None,
                embedding=self._embedding(place, cells.get("embedding")),
                signals=figures | self._signals(place, cells),
                meta=meta,
                witnesses=() if columns.all_ship else witnesses,
                claim=claim if claim.strip() else "",
            )
            if not columns.all_ship:
                yield answer
                continue
            alone = replace(answer, severity=None, score=None, logprob=None, embedding=None, signals={})
            for one, sample in enumerate(samples):
                yield replace(answer if one == shown else alone, text=sample, id=response_id(one))

    def key(self, place: int, row: Mapping[str, Any]) -> str:
        """Return what answers to one prompt share."""
        column = self.columns.one("prompt_id")
        if column is not None:
            if not (name := self._name(place, "prompt_id", self._cell(place, row, "prompt_id", column))):
                raise self._table.error(place, column, "empty; every row needs its prompt's id")
            return name
        if self.columns.wide:
            return f"row-{place}"
        if not (prompt := self._prompt(place, row)).strip():
            raise self._table.error(
                place,
                self.columns.one("prompt"),
                "empty; it says which answers belong together, so that every row needs it",
            )
        return prompt

    def _prompt(self, place: int, row: Mapping[str, Any]) -> str:
        column = self.columns.one("prompt")
        return "" if column is None else self._text(place, "prompt", self._cell(place, row, "prompt", column))

    def _cells(self, place: int, row: Mapping[str, Any]) -> Iterator[dict[Role, Any]]:
        columns = self.columns
        roles = {role: names for role, names in columns.named.items() if role not in OF_PROMPT}
        if not columns.wide:
            yield {role: self._cell(place, row, role, names[0]) for role, names in roles.items()}
            return
        if not columns.lists:
            for i in range(max(map(len, roles.values()))):
                yield {role: self._cell(place, row, role, names[i]) for role, names in roles.items()}
            return
        lists = {
            role: self._list(place, self._cell(place, row, role, names[0]), names[0])
            for role, names in roles.items()
        }
        known = {role: values for role, values in lists.items() if values is not None}
        sizes = {role: len(values) for role, values in known.items()}
        if len(set(sizes.values())) > 1:
            told = ", ".join(f"{size} in {columns.named[role][0]}" for role, size in sizes.items())
            raise self._table.error(
                place, None, f"the lists have different lengths ({told}); each answer needs one of each"
            )
        for i in range(max(sizes.values(), default=0)):
            yield {role: values[i] for role, values in known.items()}

    def _list(self, place: int, value: Any, column: str) -> list[Any] | None:
        value = plain(value)
        if isinstance(value, str) and value.startswith("["):
            value = list_of_text(value)
        if is_missing(value):
            return None
        if not isinstance(value, list):
            raise self._table.error(place, column, f'{excerpt(str(value))} is not a list like ["a", "b"]')
        return value

    def _severity(self, place: int, cells: Mapping[Role, Any]) -> float | None:
        for role in ("severity", "correct"):
            if role in cells:
                return self._mark(place, cells[role], role)
        return None

    def _mark(self, place: int, value: Any, role: Role) -> float | None:
        marks, comma = self.reading.marks, self._table.decimal_comma
        word = str(plain(value)).strip().lower()
        if role == "severity" and self.unclear and word not in marks.words:
            number = math.nan if marks.scale else number_in(value, decimal_comma=comma)
            if word in TRUTH or math.isfinite(number):
                raise self._unclear(place, value, "true" if word in TRUTH else "1")
        try:
            return marks.severity(value, correct=role == "correct", decimal_comma=comma)
        except ValueError as error:
            raise self._wrong(place, role, str(error)) from None

    def _unclear(self, place: int, value: Any, one: str) -> UnclearMarks:
        right, wrong = (
            f"{' '.join(f'--column {role}={name}' for name in self.unclear)} if {one} means {said}"
            for role, said in (("correct", "right"), ("severity", "wrong"))
        )
        what = f"{excerpt(str(value))} may mean right or wrong; say which: {right}, {wrong}"
        error = UnclearMarks(self._table.name, place, self.unclear[0], what, unit=self._table.unit)
        error.columns = self.unclear
        return error

    def _wrong(self, place: int, role: str, problem: str) -> TableError:
        """Return the error of a cell of a role."""
        columns = self.columns.named.get(cast("Role", role), ())
        return self._table.error(place, ", ".join(columns) or role, problem)

    def _share(self, place: int, value: Any) -> float | None:
        number = self._number(value)
        if number is not None and not 0 <= number <= 1:
            hint = "; write it with a point" if isinstance(value, str) and "," in value else ""
            problem = f"{excerpt(str(value))} is not a number from 0 to 1 (0 worst, 1 safest){hint}"
            raise self._wrong(place, "score", problem)
        return number

    def _logprobs(self, place: int, value: Any) -> dict[str, float]:
        """Read the mean of the tokens' log-probabilities, or what these come to where all are there."""
        if isinstance(value := opened_value(value), Mapping | list):
            try:
                return tokens_of(value)
            except ValueError as error:
                raise self._wrong(place, "logprob", str(error)) from None
        number = self._number(value)
        if number is not None and not LEAST_LOGPROB <= number <= 0:
            problem = "is not a mean of natural logarithms of probabilities, which lies from"
            raise self._wrong(place, "logprob", f"{excerpt(str(value))} {problem} {LEAST_LOGPROB:g} to 0")
        return {} if number is None else {"logprob": number}

    def _signals(self, place: int, cells: Mapping[Any, Any]) -> dict[str, float]:
        found = {}
        for name, (least, most) in self.reading.signals.items():
            if (number := self._number(cells.get(name))) is None:
                continue
            if not least <= number <= most:
                problem = (
                    f"is not a number from {least:g} to {most:g}, which the signal {name} is declared to be"
                )
                raise self._wrong(place, name, f"{excerpt(str(cells[name]))} {problem}")
            found[name] = number
        return found

    def _number(self, value: Any) -> float | None:
        """Read a number; NaN for what is none."""
        return None if _plain(value) is None else number_in(value, decimal_comma=self._table.decimal_comma)

    def _embedding(self, place: int, value: Any) -> tuple[float, ...] | None:
        column = (self.columns.named.get("embedding") or ("embedding",))[0]
        if isinstance(value, str) and not is_missing(plain(value)) and not value.strip().startswith("["):
            raise self._table.error(
                place, column, f"a text ({excerpt(value)}) where the numbers of an embedding should be"
            )
        numbers = self._list(place, value, column)
        if numbers is None:
            return None
        if not all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers):
            raise self._table.error(
                place, column, f"an embedding is a list of numbers, not {excerpt(str(numbers))}"
            )
        try:
            vector = tuple(float(number) for number in numbers)
        except OverflowError:
            vector = (math.inf,)
        if not all(map(math.isfinite, vector)):
            raise self._table.error(place, column, "the embedding holds NaN or infinity")
        return vector

    def _references(self, place: int, row: Mapping[str, Any]) -> tuple[str, ...]:
        column = self.columns.one("references")
        value = None if column is None else _plain(self._cell(place, row, "references", column))
        if isinstance(value, str) and value.startswith("["):
            listed = list_of_text(value)
            if listed is None and value.startswith(("['", '["')):
                raise self._table.error(place, column, "a list that cannot be read; write it as JSON")
            value = value if listed is None else listed
        listed = value if isinstance(value, list) else [value]
        return tuple(plain_cell(self._text(place, "references", one)) for one in listed if one is not None)

    def _witnesses(self, place: int, row: Mapping[str, Any]) -> tuple[str, ...]:
        if (column := self.columns.one("witnesses")) is None:
            return ()
        listed = self._list(place, self._cell(place, row, "witnesses", column), column)
        texts = (self._text(place, "witnesses", one) for one in listed or ())
        return tuple(text for text in texts if text != self.columns.tool.placeholder)

    def _cell(self, place: int, row: Mapping[str, Any], role: Role, column: str) -> Any:
        if role == "logprob":
            return value_at(row, column)
        if (
            role == "answer"
            and self.columns.tool.objects
            and isinstance(value := value_at(row, column), Mapping)
        ):
            return json.dumps(value, sort_keys=True, ensure_ascii=False)
        return self._table.cell(place, row, role, column, as_text=role == "references")

    def _text(self, place: int, role: Role, value: Any) -> str:
        """Read a text as it stands; in a table of claims, as `streamer label claims` wrote it.

        Raises `TableError` for what is none.
        """
        if role == "answer" and isinstance(value, list) and len(value) == 1:
            value = value[0]
        try:
            text = text_of(value)
            return plain_cell(text) if "claim" in self.columns.named else text
        except NotText as error:
            raise self._no_text(place, role, error) from None

    def _name(self, place: int, role: Role, value: Any) -> str:
        try:
            return "" if is_missing(plain(value)) else name_of(plain(value))
        except NotText as error:
            raise self._no_text(place, role, error) from None

    def _no_text(self, place: int, role: Role, found: NotText) -> TableError:
        column = ", ".join(self.columns.named[role])
        hint = f"; name an entry of it: --column {role}={column}.0" if str(found) == "a list" else ""
        return self._table.error(place, column, f"{found} where a text should be{hint}")

    def _meta(self, row: Mapping[str, Any]) -> dict[str, float]:
        found = {}
        for column in self.columns.unused:
            number = number_in(value_at(row, column))
            if math.isfinite(number):
                found[column] = number
        return found


_OF_AN_ANSWER: dict[str, Role] = {
    "text": "answer", "score": "score", "logprob": "logprob", "embedding": "embedding", "model": "model", "kind": "kind",
}  # fmt: skip
"""What rows of one answer have in common."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt with its answers; `places` : of the rows of each answer."""

    cloud: Cloud
    places: tuple[tuple[int, ...], ...]


def _plain(value: Any) -> Any:
    """A cell's value; None for an empty one."""
    value = plain(value)
    return None if is_missing(value) else value
