"""From a table to what a gate works on: prompts with scored answers, each with the row that it came from.

Tables of any library in: pandas, polars, pyarrow, NumPy, dicts and lists, by what they can do and not by what they are.

No library is imported for it: whoever has such a table has the library.
"""

import json
import re
import reprlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from streamer.clouds.cloud import NOT_KEPT, Cloud, judged_cloud
from streamer.clouds.cloud_files import EXAMPLE, content_of, read_clouds
from streamer.clouds.offline import ScoredCloud
from streamer.clouds.tables.answers import AnswerReader, Prompt, Reading
from streamer.clouds.tables.columns import NO_SEVERITIES, Role, roles_with
from streamer.clouds.tables.rows import Table, open_table
from streamer.clouds.tables.values import value_at
from streamer.clouds.unlabelled import counts
from streamer.errors import UsageError
from streamer.events.excerpts import excerpt
from streamer.events.responses import embedding_rows, numbers_given
from streamer.gates.declared import Unit
from streamer.gates.policy import segment_of
from streamer.gates.policy_gate import unit_row
from streamer.labels.answer_forms import answer_batch
from streamer.scoring.blank import is_blank
from streamer.scoring.judged import WHOLE, Form
from streamer.scoring.registry import CHOICE, EVERY, LIKELIHOOD
from streamer.scoring.scorer import AnswerBatch, Scorer
from streamer.scoring.signals.declared import GIVEN
from streamer.scoring.signals.measured import Measured
from streamer.scoring.signals.signal_list import SignalList, choice_scores
from streamer.signing.canonical_json import stored_number

NAME = "the table"
ACCEPTED = "a DataFrame (pandas, polars), a pyarrow.Table, a dict of columns, a list of dicts, a NumPy array with named fields, or a file's path"


def columns_of(frame: Any) -> dict[str, list[Any]] | None:
    """Return a table's columns as lists of plain values; None for a list of dicts and a path, which have rows.

    Raises `UsageError` when it is no table, or its columns differ in length or share a name.
    """
    rows = isinstance(frame, list | tuple) and all(isinstance(row, Mapping) for row in frame)
    if rows or isinstance(frame, str | Path):
        return None
    found = _columns(frame)
    names = [name for name, _ in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{NAME} has two columns {twice!r}: rename one")
    columns = {name: list(values) for name, values in found}
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        sizes_in_words = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise UsageError(f"the columns have different lengths: {sizes_in_words}")
    return columns


def table_of(frame: Any) -> Table:
    """Return a table whose rows are numbered from 0; see `columns_of` for what is refused."""
    columns = columns_of(frame)
    if columns is None:
        return Table.of(NAME, "jsonl", enumerate(frame), ahead=len(frame), unit="row")

    def rows_of() -> Iterator[tuple[int, Mapping[str, Any]]]:
        for number, cells in enumerate(zip(*columns.values(), strict=True)):
            yield number, dict(zip(columns, cells, strict=True))

    return Table.of(NAME, "parquet", rows_of(), columns=list(columns), unit="row")


def like(frame: Any, columns: Mapping[str, Sequence[Any]], rows: Sequence[int] | None) -> Any:
    """Return columns as a table of the library that `frame` is of; a list of dicts where it is of none.

    `rows`: where there is a row of `frame` for each row here, its number: an index of pandas is
    kept.
    """
    library = type(frame).__module__.partition(".")[0]
    module: Any = sys.modules.get(library)
    if library == "pandas":
        index = None if rows is None else frame.index[list(rows)]
        return module.DataFrame(dict(columns), index=index)
    if library == "polars":
        return module.DataFrame(dict(columns), strict=False)
    if library == "pyarrow":
        return module.table(dict(columns))
    return rows_of(columns)


class Tabular(ABC):
    """A result that can be had as a table."""

    __slots__ = ()

    _frame: Any

    @abstractmethod
    def columns(self) -> dict[str, list[Any]]:
        """Return it as columns."""

    def rows(self) -> list[dict[str, Any]]:
        """Return it as a list of dicts."""
        return rows_of(self.columns())

    def to_frame(self) -> Any:
        """Return it as a table of the library that the answers came in; a list of dicts where that is none."""
        return like(self._frame, self.columns(), getattr(self, "_rows", None))


def rows_of(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return columns of equal length as a list of dicts."""
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _columns(frame: Any) -> list[tuple[str, Any]]:
    if hasattr(frame, "iloc") and hasattr(frame, "columns"):  # pandas
        series = [frame.iloc[:, place].astype(object) for place in range(len(frame.columns))]
        return [
            (str(name), one.where(one.notna(), None).tolist())
            for name, one in zip(frame.columns, series, strict=True)
        ]
    if hasattr(frame, "get_columns"):  # polars
        return [(one.name, one.to_list()) for one in frame.get_columns()]
    if hasattr(frame, "column_names") and hasattr(frame, "itercolumns"):  # pyarrow
        return [
            (name, one.to_pylist()) for name, one in zip(frame.column_names, frame.itercolumns(), strict=True)
        ]
    if hasattr(frame, "collect"):
        raise UsageError(f"{type(frame).__name__} holds no rows yet: collect() it first")
    names = getattr(getattr(frame, "dtype", None), "names", None)
    if names:
        return [(name, frame[name].tolist()) for name in names]
    if isinstance(frame, Mapping):
        for name, values in frame.items():
            # A set has no order, and going through a dict gives its keys.
            if isinstance(values, str | bytes | Mapping | Set) or not hasattr(values, "__len__"):
                raise UsageError(
                    f"the column {name!r} must be a list with a value for each row, not {reprlib.repr(values)}"
                )
        return [
            (str(name), values.tolist() if hasattr(values, "tolist") else values)
            for name, values in frame.items()
        ]
    if type(frame).__name__ == "Series":
        raise UsageError(
            "a Series is one column: give the DataFrame that it is of, or a dict of columns, like "
            '{"prompt_id": ids, "score": scores, "severity": severities}'
        )
    if hasattr(frame, "ndim") or isinstance(frame, list | tuple):
        raise UsageError(
            f"{type(frame).__name__} has no names of columns: give a dict of columns, like "
            '{"prompt_id": ids, "score": scores, "severity": severities}'
        )
    raise UsageError(f"a gate takes {ACCEPTED}, not {type(frame).__name__}")


Encode = Callable[[list[str]], ArrayLike]


_TEXTS_AT_ONCE = 256


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """The prompts of a table of `count` rows, in the order of their first rows.

    `rows`: for each cloud the rows of each of its answers, numbers from 0; None where a row is a
    prompt. `recognised`: what was taken for what, for people. `metadata`: for each cloud the values of the columns that were to be kept, in its first row.
    `score_columns`: those that hold scores. `notes`: what was made of the table, in sentences.
    `columns`: its columns; none of response clouds.
    """

    clouds: tuple[Cloud, ...]
    rows: tuple[tuple[tuple[int, ...], ...], ...] | None
    count: int
    recognised: str
    metadata: tuple[Mapping[str, Any], ...] = ()
    score_columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


class Doubt(NamedTuple):
    """What a table leaves open about its severities.

    `columns`: those that hold severities, or, where no answer has one, every column. `found`:
    whether they hold them, and 1 may mean wrong or right.
    """

    columns: tuple[str, ...]
    found: bool

    def settled(self, column: str, *, right: bool) -> dict[Role, tuple[str, ...]]:
        """Return which columns have which role once somebody said whether 1 means right, and, where none was found, named one."""
        columns = self.columns if self.found else (column,)
        return {"severity": (), "correct": columns} if right else {"severity": columns}


def doubt_of(table: Read) -> Doubt | None:
    """Return what has to be asked of a table that was read; None: nothing."""
    missing, answers = counts(table.clouds)
    return Doubt(table.columns, found=False) if missing == answers and table.columns else None


def read(
    frame: Any,
    reading: Reading,
    kept: Collection[str] = (),
    *,
    severities: bool = True,
    advice: Callable[[str], str] | None = None,
) -> Read:
    """Read a table; see `streamer.clouds.tables` for what is recognised and refused.

    `kept`: columns whose values are kept; they have no role. `severities`: whether these are looked
    at. `advice`: turns what is advised on the command line into what it is here; None: into Python.
    """
    here = advice or in_python
    if not severities:
        reading = replace(reading, columns={**reading.columns, **NO_SEVERITIES})
    try:
        if not isinstance(frame, str | Path):
            return _read(table_of(frame), reading, kept, here)
        if content_of(frame) != "clouds":
            with open_table(frame, example=EXAMPLE, written_by=reading.written_by) as table:
                return _read(table, reading, kept, here)
        for column in kept:
            raise UsageError(f"{frame} holds response clouds, which have no column {column!r}")
        clouds = tuple(read_clouds(frame, reading))
        return Read(clouds, None, len(clouds), "response clouds")
    except UsageError as error:
        error.args = (here(str(error)),)
        raise


def in_python(text: str) -> str:
    """Write advice that is for the command line as one writes it here."""

    def argument(match: re.Match[str]) -> str:
        return f'columns={{"{match[1]}": {json.dumps(match[2]) if match[2] else None}}}'

    text = re.sub(r"--column (\w+)=([^\s;,)]*)", argument, text)
    for option, here in _IN_PYTHON.items():
        text = text.replace(option, here)
    return text


_IN_PYTHON = {
    "--map WORD=SEVERITY": "words={WORD: SEVERITY}",
    "--scale 1:5": "scale=(1, 5)",
    "--annotators worst": 'annotators="worst"',
    "--trust-score": "trust_score=True",
}


def _read(table: Table, reading: Reading, kept: Collection[str], advice: Callable[[str], str]) -> Read:
    if not table.head:
        raise UsageError(f"{table.name} has no rows")
    for column in kept:
        if not table.has(column):
            raise UsageError(f"{table.name} has no column {column!r} (it has {', '.join(table.columns)})")
    rows = dict(table.rows)
    table = replace(table, rows=iter(rows.items()))
    reader = AnswerReader(table, reading, without=kept)
    columns = reader.columns
    position = {place: number for number, place in enumerate(rows)}
    clouds, places, metadata = [], [], []
    for prompt in reader.prompts(together=False):
        clouds.append(prompt.cloud)
        if kept:
            metadata.append({column: _value(table, column, prompt, rows) for column in kept})
        places.append(tuple(tuple(position[row] for row in answer) for answer in prompt.places))
    return Read(
        tuple(clouds),
        None if columns.wide else tuple(places),
        len(rows),
        advice(columns.words),
        tuple(metadata),
        columns.named.get("score", ()),
        tuple(map(advice, reader.notes)),
        tuple(table.columns),
    )


def mapping_of(given: Mapping[Any, Any] | None, signals: Iterable[str] = ()) -> dict[Role, tuple[str, ...]]:
    found: dict[Role, tuple[str, ...]] = {}
    if not isinstance(given or {}, Mapping):
        raise UsageError(
            f'columns must be a dict from roles to names, like {{"answer": "generated"}}, not {given!r}'
        )
    roles = roles_with(signals)
    for role, names in (given or {}).items():
        known = next((one for one in roles if one == role), None)
        if known is None:
            raise UsageError(f"columns names roles ({', '.join(roles)}), not {role!r}")
        listed = (names,) if isinstance(names, str) else () if names is None else names
        if not isinstance(listed, list | tuple) or not all(isinstance(name, str) for name in listed):
            raise UsageError(
                f"columns: {role!r} must be a column's name, several in a list, or None, not {names!r}"
            )
        found[known] = tuple(listed)
    return found


def _value(table: Table, column: str, prompt: Prompt, rows: Mapping[int, Mapping[str, Any]]) -> Any:
    """Return what a prompt has in a column. Raises `TableError` where its answers have different things."""
    first, *others = (place for answer in prompt.places for place in answer)
    values = {place: {column: value_at(rows[place], column)} for place in (first, *others)}
    for place in others:
        if segment_of(values[place], column) != segment_of(values[first], column):
            raise table.error(
                place,
                column,
                f"another value than at {table.unit} {first} for the same prompt {excerpt(prompt.cloud.question_id)}; a prompt "
                "belongs to one segment, and to one burst",
            )
    return values[first][column]


def scored(
    table: Read, scorer: str, encode: Encode | None, form: Form = WHOLE, dimension: int | None = None
) -> tuple[list[ScoredCloud], int | None]:
    """Score each cloud as a worker scores its batch: by its own scores, or else by its embeddings or the encoder's; returns the
    embeddings' dimension too, if any.

    Raises `UsageError` when there are texts alone and no encoder, or embeddings of another
    dimension than `dimension` or each other.
    """
    clouds = [judged_cloud(cloud, form) for cloud in table.clouds]
    if scorer == LIKELIHOOD:
        return [likely(cloud) for cloud in clouds], None
    vectors, dimension = _vectors(table, [_measured(cloud) for cloud in clouds], encode, form, dimension)
    return [
        _scored(cloud, scorer, rows, form) for cloud, rows in zip(clouds, vectors, strict=True)
    ], dimension


def likely(cloud: Cloud) -> ScoredCloud:
    """Score a cloud by its answers' log-probabilities; unscored where one is missing."""
    blank = [is_blank(text) for text in cloud.texts]
    given = EVERY[LIKELIHOOD].of_given([one.logprob for one in cloud.responses], blank)
    return ScoredCloud(cloud, None) if given is None else ScoredCloud.of(cloud, given[0])


def measured(
    table: Read,
    listed: SignalList,
    unit: Unit,
    encode: Encode | None,
    form: Form = WHOLE,
    scorer: Scorer = EVERY[CHOICE],
    dimension: int | None = None,
) -> tuple[list[ScoredCloud], int | None]:
    """Measure all signals of each cloud, as a worker does; returns the embeddings' dimension too, if any.

    Raises `UsageError` when there are no texts, or neither embeddings nor an encoder, a number
    lies outside its range, or embeddings have another dimension than `dimension` or each other.
    """
    if any(NOT_KEPT in cloud.texts for cloud in table.clouds):
        raise UsageError(
            'method full reads the texts of the answers, and there are none; method="mean" cuts scores alone'
        )
    clouds = [judged_cloud(cloud, form) for cloud in table.clouds]
    samples = [cloud.samples for cloud in clouds]
    without = scorer.in_place is not None
    vectors: Sequence[ArrayLike | None] = [np.empty((len(one.responses), 0)) for one in samples]
    if not without:
        vectors, dimension = _vectors(table, samples, encode, form, dimension, own_scores=False)
    found = [
        measured_answers(
            answer_batch(of.texts, rows, blank, of.models, encoded=not (without or of.embedded), form=form),
            cloud,
            listed,
            unit,
            likely(cloud).scores if without else None,
        )
        if rows is not None and not all(map(is_blank, cloud.texts)) and (without or len(of.responses) > 1)
        else ScoredCloud(cloud, None)  # held, as a worker holds it
        for cloud, of, rows in zip(clouds, samples, vectors, strict=True)
        for blank in ([is_blank(text) for text in of.texts],)
    ]
    return found, dimension


def signals_of(
    clouds: Sequence[Cloud],
    declared: Mapping[str, tuple[float, float]],
    models: Sequence[str] = (),
    judged: Form = WHOLE,
) -> SignalList:
    """List the signals that answers have: those of texts, what came with one of them, agreement in what is judged, declared ones with
    their ranges, and models.

    Raises `UsageError` where models are declared and no answer names its own.
    """
    given = {name for cloud in clouds for name in numbers_given(cloud.responses)}
    if models and clouds and not any(cloud.models for cloud in clouds):
        raise UsageError("no answer names the model that gave it, and the signals are to tell models apart")
    return SignalList(
        given=(*(name for name in GIVEN if name in given), *judged.signal),
        models=tuple(models),
        declared=tuple((name, *ends) for name, ends in declared.items()),
    )


def measured_answers(
    batch: AnswerBatch,
    cloud: Cloud,
    listed: SignalList,
    unit: Unit,
    scores: Sequence[float] | None = None,
) -> ScoredCloud:
    """Score the answers to one prompt for the choice among them, and measure the signals of what the unit may ship.

    `scores` : the shown answers', where these are not compared; without, they are held where there are no embeddings.
    Raises `UsageError` where a number that came with an answer lies outside its range.
    """
    if scores is None and not batch.embeddings.size:
        return ScoredCloud(cloud, None)
    found, shown = Measured(batch, cloud.question), len(cloud.responses)
    try:
        scores = choice_scores(found).tolist() if scores is None else scores
        rows = listed.of_measured(found, numbers_given(cloud.samples.responses))
    except ValueError as error:
        raise UsageError(f"prompt {cloud.question_id[:60]!r}: {error}") from None
    row = unit_row(unit, rows[:shown], scores[:shown], batch.blank[:shown])
    return ScoredCloud.of(cloud, scores, row)


def _measured(cloud: Cloud) -> Cloud:
    """The samples that a score is made of: none but the answers where these bring theirs."""
    return cloud.samples if cloud.own_scores is None else cloud


def _scored(cloud: Cloud, scorer: str, rows: ArrayLike | None, form: Form) -> ScoredCloud:
    of = _measured(cloud)
    blank = [is_blank(text) for text in of.texts]
    if all(blank) or cloud.has_too_few(likely=False):
        return ScoredCloud(cloud, None)
    if (own := cloud.own_scores) is not None:
        scores = [
            0.0 if empty else stored_number(round(score, 6)) for score, empty in zip(own, blank, strict=True)
        ]
        return ScoredCloud.of(cloud, scores)
    assert rows is not None
    try:
        batch = answer_batch(of.texts, rows, blank, encoded=not of.embedded, form=form)
        if EVERY[scorer].holds(batch):
            return ScoredCloud(cloud, None)
        found, _ = EVERY[scorer].with_raw(batch)
    except ValueError as error:
        raise UsageError(f"prompt {cloud.question_id[:60]!r}: {error}") from None
    return ScoredCloud.of(cloud, found.tolist())


def _vectors(
    table: Read,
    clouds: Sequence[Cloud],
    encode: Encode | None,
    form: Form,
    dimension: int | None,
    *,
    own_scores: bool = True,
) -> tuple[list[ArrayLike | None], int | None]:
    """The embeddings of each cloud, and their dimension; `own_scores` : none of one that has scores of its own, or is held for its
    one answer."""
    given = [
        own_scores and (cloud.own_scores is not None or cloud.has_too_few(likely=False)) for cloud in clouds
    ]
    found: list[ArrayLike | None] = []
    texts: dict[str, int] = {}
    for cloud, has_scores in zip(clouds, given, strict=True):
        if not has_scores and not cloud.embedded:
            if encode is None and own_scores and table.score_columns:
                raise UsageError(
                    f"prompt {cloud.question_id[:60]!r} has an answer without a score (column {', '.join(table.score_columns)}): "
                    "give every answer a number from 0 (worst) to 1 (safest), or leave the prompt out"
                )
            if encode is None:
                raise UsageError(
                    "answers are scored by their embeddings, and there are texts alone: give a column of embeddings"
                    f'{" or of scores of your own" if own_scores else ""}, or an encoder: Gate(encoder="all-MiniLM-L6-v2"), or any '
                    "function from a list of texts to an array"
                )
            if NOT_KEPT in cloud.texts:
                raise UsageError("there are neither texts nor embeddings nor scores")
            texts.update((text, len(texts)) for text in form.parts(cloud.texts) if text not in texts)
    encoded = None if encode is None or not texts else _encoded(list(texts), encode)
    for cloud, has_scores in zip(clouds, given, strict=True):
        own = [response.embedding for response in cloud.responses if response.embedding is not None]
        if has_scores:
            found.append(None)
        elif own:
            found.append(embedding_rows(own))
        else:
            assert encoded is not None
            found.append(encoded[[texts[text] for text in form.parts(cloud.texts)]])
        if (rows := found[-1]) is not None:
            width = np.shape(rows)[1]
            dimension = dimension or width
            if width != dimension:
                raise UsageError(
                    f"prompt {cloud.question_id[:60]!r} has embeddings of {width} numbers, not the {dimension} of those before it "
                    "or of those that calibrated: take one encoder for all"
                )
    return found, dimension


def _encoded(texts: list[str], encode: Encode) -> np.ndarray[Any, Any]:
    places = range(0, len(texts), _TEXTS_AT_ONCE)
    return np.concatenate([np.asarray(encode(texts[first : first + _TEXTS_AT_ONCE])) for first in places])
