"""Rows of a table as response clouds: what the cells mean, and which rows are answers to one prompt."""

from __future__ import annotations

import ast
import json
import math
import re
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from streamer.clouds.cloud import (
    NOT_KEPT,
    UNSTATED_KIND,
    Cloud,
    CloudResponse,
    check_embeddings,
    identifier,
    kind_of_label,
    response_id,
)
from streamer.clouds.line_files import is_publishable
from streamer.clouds.tables.columns import PER_ANSWER
from streamer.clouds.tables.rows import number_of
from streamer.events.excerpts import excerpt
from streamer.events.responses import LEAST_LOGPROB
from streamer.security.csv_cells import plain_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from streamer.clouds.tables.columns import Columns, Role
    from streamer.clouds.tables.rows import Table

_MISSING = frozenset({"", "na", "n/a", "nan", "none", "null", "nil", "<na>", "-", "?"})
_FINE = frozenset({"correct", "right", "good", "fine", "ok", "pass", "passed", "acceptable"})
_BAD = frozenset(
    {"incorrect", "wrong", "bad", "fail", "failed", "unacceptable", "hallucination", "hallucinated"}
)
_TRUE, _FALSE = frozenset({"true", "yes", "y", "t"}), frozenset({"false", "no", "n", "f"})
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer, as the table has it.

    Attributes
    ----------
    place : of its row.
    key : what it shares with the other answers to its prompt: the prompt's id, or where there is none its text.
    id : its name; None: none.
    text : None where the table has no texts.
    severity : in [0, 1]; None: nobody has said.
    score : its own, in [0, 1].
    logprob : the mean log-probability of its tokens, in [-10000, 0].
    model : the model that gave it; None where that is not said.
    meta : the numbers in columns that have no role.
    """

    place: int
    key: str
    prompt: str
    references: tuple[str, ...]
    id: str | None
    text: str | None
    severity: float | None
    kind: str
    score: float | None
    logprob: float | None
    model: str | None
    embedding: tuple[float, ...] | None
    meta: Mapping[str, float]


class AnswerReader:
    """Reads the rows of a table by its columns. Raises `TableError` at a cell that does not fit its column."""

    def __init__(self, table: Table, columns: Columns, *, severity_was_named: bool = False) -> None:
        self._table = table
        self._columns = columns
        self._named = severity_was_named

    def answers(self, place: int, row: Mapping[str, Any]) -> Iterator[Answer]:
        """Yield the answers of one row: one, or of a wide table all to its prompt."""
        columns = self._columns
        prompt = self._prompt(row)
        key = self.key(place, row)
        references = self._references(place, row)
        kind_column = columns.one("kind")
        kind = UNSTATED_KIND if kind_column is None else kind_of_label({"label_kind": row.get(kind_column)})
        meta = {} if columns.wide else self._meta(row)
        for cells in self._cells(place, row):
            text = self._text(cells.get("answer"))
            severity = self._severity(place, cells)
            score = self._share(place, cells.get("score"), "score", "0 worst, 1 safest")
            if columns.wide and not columns.lists and not text and severity is None and score is None:
                continue  # fewer answers than columns
            given = _plain(cells.get("answer_id"))
            yield Answer(
                place=place,
                key=key,
                prompt=prompt,
                references=references,
                id=None if given is None else _name(given),
                text=text if "answer" in columns.named else None,
                severity=severity,
                kind=kind,
                score=score,
                logprob=self._logprob(place, cells.get("logprob")),
                model=None if (model := _plain(cells.get("model"))) is None else _name(model),
                embedding=self._embedding(place, cells.get("embedding")),
                meta=meta,
            )

    def key(self, place: int, row: Mapping[str, Any]) -> str:
        """Return what answers to one prompt share."""
        column = self._columns.one("prompt_id")
        if column is not None:
            name = _plain(row.get(column))
            if name is None:
                raise self._table.error(place, column, "empty; every row needs its prompt's id")
            return _name(name)
        if self._columns.wide:
            return f"row-{place}"
        if not (prompt := self._prompt(row)).strip():
            raise self._table.error(
                place,
                self._columns.one("prompt"),
                "empty; it says which answers belong together, so that every row needs it",
            )
        return prompt

    def _prompt(self, row: Mapping[str, Any]) -> str:
        column = self._columns.one("prompt")
        return "" if column is None else self._text(row.get(column))

    def _cells(self, place: int, row: Mapping[str, Any]) -> Iterator[dict[Role, Any]]:
        columns = self._columns
        roles = {role: names for role, names in columns.named.items() if role in _PER_ANSWER}
        if not columns.wide:
            yield {role: row.get(names[0]) for role, names in roles.items()}
            return
        if not columns.lists:
            for i in range(max(map(len, roles.values()))):
                yield {role: row.get(names[i]) for role, names in roles.items()}
            return
        lists = {role: self._list(place, row.get(names[0]), names[0]) for role, names in roles.items()}
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
        if isinstance(value, str) and value.strip().startswith("["):
            value = list_of_text(value)
        if hasattr(value, "tolist"):
            value = value.tolist()
        if value is None or (isinstance(value, str) and value.strip().lower() in _MISSING):
            return None
        if not isinstance(value, list | tuple):
            raise self._table.error(place, column, f'{excerpt(str(value))} is not a list like ["a", "b"]')
        return list(value)

    @staticmethod
    def _text(value: Any) -> str:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        return value if isinstance(value, str) else _name(value)

    def _severity(self, place: int, cells: Mapping[Role, Any]) -> float | None:
        for role in ("severity", "correct"):
            if role in cells:
                value = _plain(cells[role])
                if isinstance(value, bool) or (isinstance(value, str) and not _NUMBER.fullmatch(value)):
                    value = self._verdict(place, value, role)
                meaning = "0 fine, 1 worst" if role == "severity" else "0 wrong, 1 right"
                number = self._share(place, value, role, meaning)
                return number if number is None or role == "severity" else 1.0 - number
        return None

    def _verdict(self, place: int, value: bool | str, role: Role) -> float | str:
        """Read a severity that is a truth value or a word; what is neither is returned as it is."""
        word = str(value).strip().lower()
        reverse = role == "correct"
        if word in _FINE | _BAD:
            return float((word in _BAD) != reverse)
        if word not in _TRUE | _FALSE:
            return str(value)
        column = self._columns.named[role][0]
        if role == "severity" and not self._named and column.lower().startswith("label"):
            raise self._table.error(
                place,
                column,
                f"{excerpt(str(value))} may mean right or wrong; say which: --column correct={column} if true means right, "
                f"--column severity={column} if true means wrong",
            )
        return float(word in _TRUE)

    def _share(self, place: int, value: Any, role: Role, meaning: str) -> float | None:
        number = self._number(value)
        if number is None:
            return None
        if not 0 <= number <= 1:
            column = ", ".join(self._columns.named.get(role, ())) or role
            hint = "; write it with a point" if isinstance(value, str) and "," in value else ""
            if role in ("severity", "correct") and math.isfinite(number):
                hint = "; a scale of its own must become a share first: (5 - x) / 4 of one to five stars"
            elif role in ("severity", "correct") and isinstance(value, str):
                hint = f", nor a word like yes, no, correct or wrong{hint}"
            raise self._table.error(
                place, column, f"{excerpt(str(value))} is not a number from 0 to 1 ({meaning}){hint}"
            )
        return number

    def _logprob(self, place: int, value: Any) -> float | None:
        number = self._number(value)
        if number is not None and not LEAST_LOGPROB <= number <= 0:
            column = ", ".join(self._columns.named.get("logprob", ())) or "logprob"
            raise self._table.error(
                place,
                column,
                f"{excerpt(str(value))} is not a mean of natural logarithms of probabilities, which lies from "
                f"{LEAST_LOGPROB:g} to 0",
            )
        return number

    def _number(self, value: Any) -> float | None:
        """Read a number; NaN for what is none."""
        value = _plain(value)
        if value is None:
            return None
        if isinstance(value, str):
            text = value.replace(",", ".", 1) if self._table.decimal_comma else value
            return float(text) if _NUMBER.fullmatch(text) else math.nan
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        try:
            return float(value) if is_number else math.nan
        except OverflowError:  # a whole number that no float holds
            return math.nan

    def _embedding(self, place: int, value: Any) -> tuple[float, ...] | None:
        column = (self._columns.named.get("embedding") or ("embedding",))[0]
        if isinstance(value, str) and value.strip() and not value.strip().startswith("["):
            if value.strip().lower() in _MISSING:
                return None
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
        column = self._columns.one("references")
        value = None if column is None else _plain(row.get(column))
        if value is None:
            return ()
        if isinstance(value, str) and value.lstrip().startswith("["):
            listed = list_of_text(value)
            value = value if listed is None else listed
        if isinstance(value, list | tuple):
            return tuple(_name(one) for one in value if one is not None)
        return (_name(value),)

    def _meta(self, row: Mapping[str, Any]) -> dict[str, float]:
        found = {}
        for column in self._columns.unused:
            value = _plain(row.get(column))
            if (isinstance(value, str) and _NUMBER.fullmatch(value)) or (
                isinstance(value, int | float) and not isinstance(value, bool)
            ):
                with suppress(OverflowError):
                    found[column] = float(value)
        return found


_PER_ANSWER = frozenset(PER_ANSWER)


def _plain(value: Any) -> Any:
    """A cell's value; None for an empty one."""
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        value = value.item()
    if isinstance(value, Decimal):
        value = number_of(value)
    if isinstance(value, str):
        value = value.strip()
        return None if value.lower() in _MISSING else value
    return None if isinstance(value, float) and math.isnan(value) else value


def _name(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a table library made it a float because another row has none
    return plain_cell(value) if isinstance(value, str) else str(value)


def list_of_text(text: str) -> list[Any] | None:
    """Read a list as JSON or as Python writes it; None when it is neither."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        try:
            found = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return found if isinstance(found, list) else None


def held_together(rows: Iterable[Answer]) -> Iterator[list[Answer]]:
    """Yield the answers to each prompt, wherever their rows are, in the order of the first ones; holds all of them."""
    groups: dict[str, list[Answer]] = {}
    for answer in rows:
        groups.setdefault(answer.key, []).append(answer)
    yield from groups.values()


def as_they_come(rows: Iterable[Answer], apart: Callable[[Answer, int], Exception]) -> Iterator[list[Answer]]:
    """Yield the answers to each prompt as soon as another prompt begins.

    `apart` makes the error for an answer whose prompt has begun at an earlier place and ended since.
    """
    begun: dict[str, int] = {}
    group: list[Answer] = []
    for answer in rows:
        if group and answer.key == group[0].key:
            group.append(answer)
            continue
        if group:
            yield group
        if answer.key in begun:
            raise apart(answer, begun[answer.key])
        begun[answer.key] = answer.place
        group = [answer]
    if group:
        yield group


def cloud_of(answers: Sequence[Answer], table: Table, columns: Columns) -> Cloud:
    """Make one cloud of the answers to a prompt.

    Raises
    ------
    TableError
        When they cannot be one: a single answer without a score of its own, prompts that differ, an id twice, some with
        scores or embeddings and some without.
    """
    first = answers[0]
    for answer in answers[1:]:
        if answer.prompt != first.prompt:
            raise table.error(
                answer.place,
                columns.one("prompt"),
                f"another prompt than at {table.unit} {first.place} under the same {columns.one('prompt_id')} "
                f"{excerpt(first.key)}; if the id names something else, leave it out: --column prompt_id=",
            )
    scored = sum(answer.score is not None for answer in answers)
    if 0 < scored < len(answers):
        place = next(answer.place for answer in answers if answer.score is None)
        raise table.error(
            place, columns.named["score"][0], "missing; give all answers to a prompt a score, or none"
        )
    if len(answers) < 2 and not scored:
        if columns.named.get("score"):
            raise table.error(
                first.place,
                columns.named["score"][0],
                f"missing; the prompt {excerpt(first.key)} has one answer only, and one answer needs a score of its own",
            )
        raise table.error(
            first.place,
            None,
            f"the prompt {excerpt(first.key)} has one answer only, and agreement is measured among several; sample more, "
            "take the row out, or give answers a score of your own"
            + (
                "; from standard input the rows of a prompt come together"
                if table.name == "standard input"
                else ""
            ),
        )
    ids = [response_id(i) if a.id is None else identifier(a.id) for i, a in enumerate(answers)]
    if len(set(ids)) < len(ids):
        twice = next(i for i, one in enumerate(ids) if one in ids[:i])
        raise table.error(
            answers[twice].place,
            columns.one("answer_id"),
            f"{excerpt(ids[twice])} occurs twice among the answers to {excerpt(first.key)}; ids of answers must differ, or "
            "leave them out: --column answer_id=",
        )
    for answer in answers:
        for text in (answer.key, answer.prompt, answer.text or "", *answer.references):
            if not is_publishable(text):
                raise table.error(
                    answer.place,
                    None,
                    "a text holds a NUL or half a surrogate pair, which no event may carry; remove it",
                )
    check_embeddings(
        [(answer.embedding, answer.text or NOT_KEPT) for answer in answers],
        f"{table.name}, {table.unit} {first.place}",
    )
    return Cloud(
        question_id=first.key,
        question=first.prompt,
        references=first.references,
        responses=tuple(
            CloudResponse(
                id=name,
                text=NOT_KEPT if answer.text is None else answer.text,
                severity=answer.severity,
                kind=answer.kind,
                meta=answer.meta,
                embedding=answer.embedding,
                score=answer.score,
                logprob=answer.logprob,
                model=None if answer.model is None else identifier(answer.model),
            )
            for name, answer in zip(ids, answers, strict=True)
        ),
    )
