"""Tables of any library in: pandas, polars, pyarrow, NumPy, dicts and lists, by what they can do and not by what they are.

No library is imported for it: whoever has such a table has the library.
"""

import reprlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from streamer.clouds.tables.rows import Table
from streamer.errors import UsageError

NAME = "the table"
ACCEPTED = "a DataFrame (pandas, polars), a pyarrow.Table, a dict of columns, a list of dicts, a NumPy array with named fields, or a file's path"


def columns_of(frame: Any) -> dict[str, list[Any]] | None:
    """Return a table's columns as lists of plain values; None for a list of dicts and a path, which have rows.

    Raises `UsageError` when it is no table, or its columns differ in length or share a name.
    """
    if isinstance(frame, str | Path) or _has_rows(frame):
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

    Parameters
    ----------
    rows : where there is a row of `frame` for each row here, its number: an index of pandas is kept.
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


def _has_rows(frame: Any) -> bool:
    return isinstance(frame, list | tuple) and all(isinstance(row, Mapping) for row in frame)


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
