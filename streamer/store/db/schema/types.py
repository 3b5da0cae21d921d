"""Column types and constraint names that every table shares."""

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import msgspec
import sqlalchemy as sa

from streamer.calibration.threshold import THRESHOLD_STATES
from streamer.gates import rule
from streamer.journal import Headers

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How a table is kept: from it follow rights, triggers, the control log, erasure, and what a
    bundle says of it. Of what says nothing here, rows are added and nothing is changed or deleted.

    - `sealed`: the control log has its rows; a text: an SQL condition on those that it has.
    - `changes`: columns of state that the app moves on; None: all. `deletes`: the app deletes rows.
    - `until`: the column that ends a row: it moves on until that has a value.
    - `locked_by`: a column that the app may not change, but has the right to, for the lock on a
      row.
    - `prunable`: the owner may delete rows. `erased`: columns that change once, when a text is
      erased.
    - `no_evidence`: why the table, or which of its columns, is in no log and no bundle.
    """

    sealed: bool | str = False
    changes: tuple[str, ...] | None = ()
    deletes: bool = False
    until: str | None = None
    locked_by: str | None = None
    prunable: bool = False
    erased: tuple[str, ...] = ()
    no_evidence: str | Mapping[str, str] | None = None

    @property
    def moves_on(self) -> bool:
        """Whether it holds state alone."""
        return (self.changes != () or self.deletes) and not self.erased

    @property
    def updates(self) -> tuple[str, ...] | None:
        """The columns that the app has the right to change; None: all."""
        return self.changes if self.locked_by is None else (self.locked_by,)


def kept_of(table: sa.Table) -> Kept:
    """How a table is kept."""
    said: Kept = table.info.get("kept", _ADDED_TO)
    return said


_ADDED_TO = Kept()


def no_evidence() -> dict[str, str]:
    """Each table or column (`TABLE.COLUMN`) that is in no log and no bundle, and why."""
    found: dict[str, str] = {}
    for name, table in sorted(metadata.tables.items()):
        why = kept_of(table).no_evidence or {}
        found |= {name: why} if isinstance(why, str) else {f"{name}.{one}": text for one, text in why.items()}
    return found


Row: TypeAlias = Mapping[Any, Any]
"""A table's row by column names: about to be written, or read back."""

Columns: TypeAlias = Mapping[str, Sequence[Any]]
"""Rows of a table by columns: under each name the values of all of them."""


def columns_of(names: Iterable[str], rows: Iterable[Sequence[Any]]) -> Columns:
    """Rows with their values in the order of `names`, by columns."""
    names = tuple(names)
    return dict.fromkeys(names, ()) | dict(zip(names, zip(*rows, strict=True), strict=False))


def joined(parts: Sequence[Columns]) -> Columns:
    """Rows of one table that come in parts, each with the columns of the first."""
    return {name: [*chain.from_iterable(map(itemgetter(name), parts))] for name in parts[0]} if parts else {}


T = TypeVar("T")


def of_row(kind: type[T], row: Row, /, **other: Any) -> T:
    """Make a value of a row: every field that is not given is the column of its name."""
    return kind(**{name: row[name] for name in kind.__annotations__ if name not in other}, **other)


def row_of(table: sa.Table, value: Any, /, **other: Any) -> dict[str, Any]:
    """Make a row of a value: every column that is not given is the field of its name, where the value has that."""
    names, fields = _shared(table, value.__class__, frozenset(other))
    return dict(zip(names, fields(value), strict=True)) | other


@lru_cache
def _shared(table: sa.Table, kind: Any, other: frozenset[str]) -> tuple[list[str], Callable[[Any], Any]]:
    names = [one.name for one in table.c if one.name in kind.__annotations__.keys() - other]
    own = attrgetter(*names)
    return names, own if len(names) > 1 else lambda value: (own(value),)


_headers = msgspec.json.Encoder()
_read_headers = msgspec.json.Decoder(tuple[tuple[str, bytes | None], ...])

_MUST = "must"


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """A moment: `timestamptz` on PostgreSQL, UTC text on SQLite; always timezone-aware UTC in Python.

    Naive values are refused: they mean another moment on every machine.
    """

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a moment needs a time zone: {value!r}")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


def encode_headers(headers: Headers) -> str:
    """Write headers as JSON: ``[["name", "base64 of the value" or null], ...]``, order kept."""
    try:
        return _headers.encode(headers).decode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate, which only escapes can write
        return json.dumps(
            [
                [name, None if value is None else base64.b64encode(value).decode("ascii")]
                for name, value in headers
            ],
            separators=(",", ":"),
        )


def decode_headers(text: str) -> Headers:
    """Read what `encode_headers` wrote."""
    try:
        return _read_headers.decode(text)
    except msgspec.MsgspecError:  # it reads no lone surrogates
        pass
    return tuple(
        (name, None if value is None else base64.b64decode(value)) for name, value in json.loads(text)
    )


class _Written(sa.types.TypeDecorator[Any]):
    """Values that are kept as text; None is NULL."""

    impl = sa.Text
    write: ClassVar[Any]
    read: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.cache_ok = True  # SQLAlchemy asks each class by itself

    def process_bind_param(self, value: Any, _dialect: sa.Dialect) -> str | None:
        return None if value is None else type(self).write(value)

    def process_result_value(self, value: str | None, _dialect: sa.Dialect) -> Any:
        return None if value is None else type(self).read(value)


class HeaderPairs(_Written):
    """Kafka headers, exact to the byte. Text rather than jsonb, which refuses NUL in a header's name."""

    write, read = staticmethod(encode_headers), staticmethod(decode_headers)


class Rule(_Written):
    """A policy's rule as canonical JSON; the indicator, which most are, is NULL."""

    write = staticmethod(lambda value: None if value == rule.INDICATOR else rule.rule_text(value))
    read = staticmethod(rule.rule_of_text)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        return rule.INDICATOR if value is None else super().process_result_value(value, dialect)


class Names(_Written):
    """Names as a JSON array."""

    write = staticmethod(partial(json.dumps, ensure_ascii=False))
    read = staticmethod(lambda text: tuple(json.loads(text)))


class Numbers(_Written):
    """Numbers by name, as a JSON object; none at all are NULL."""

    write = staticmethod(lambda value: json.dumps(value, sort_keys=True) if value else None)
    read = staticmethod(json.loads)


class Facts(_Written):
    """Plain values by name, as a JSON object."""

    write = staticmethod(partial(json.dumps, sort_keys=True, allow_nan=False))
    read = staticmethod(json.loads)


class Heads(_Written):
    """How long logs are: a JSON array of [log_id, topic, partition, size]."""

    write = staticmethod(partial(json.dumps, separators=(",", ":")))
    read = staticmethod(lambda text: tuple(map(tuple, json.loads(text))))


BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""64 bits on both: SQLite's INTEGER is, and only INTEGER may be an identity there."""

DOCUMENT = sa.JSON(none_as_null=True)
"""A publisher's JSON, kept to the letter. Not jsonb: that rewrites numbers (1e300, -0.0) and refuses NUL, and
the seal of the texts must come out the same when it is computed again from what was stored."""

REAL: sa.Double[float] = sa.Double()


class Characters(NamedTuple):
    """A text has `least` to `most` characters."""

    most: int
    least: int = 1

    @property
    def rule(self) -> str:
        """The rule of such a column."""
        return f"length({{}}) {f'BETWEEN {self.least} AND' if self.least else '<='} {self.most}"


HASH_BYTES = 32
"""Length of SHA-256 digests, HMAC-SHA256 tags and salts."""
HASH = f"length({{}}) = {HASH_BYTES}"
EDGE = f"length({{}}) % {HASH_BYTES} = 0 AND length({{}}) <= {64 * HASH_BYTES}"
"""The right edge of a Merkle log: at most 64 hashes."""
UNIT_INTERVAL = "{} >= 0 AND {} <= 1"
"""In [0, 1] (NaN compares above everything on PostgreSQL, and is NULL on SQLite)."""
FINITE = "{} >= -1e300 AND {} <= 1e300"
SIZED_RULE = Characters(1_048_576, least=2)
"""A rule fits into one message."""


class OneOf(NamedTuple):
    """A text is one of a closed list of words."""

    words: tuple[str, ...]

    @property
    def rule(self) -> str:
        """The rule of such a column."""
        return f"{{}} IN ({', '.join(map(repr, self.words))})"


Must: TypeAlias = str | Characters | OneOf
"""The rule of a column's values."""


def one_of(values: Iterable[str]) -> OneOf:
    """The rule of a closed list of words."""
    return OneOf(tuple(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """How a leaf has a column: as the fact `name`, by default the column's own, in a list where
    several columns have the same.

    A fact that is NULL is left out, unless `always`; one with `beside` enters where that column or
    its own says something. `form`: what the verifiers take it for, where the column's type does not
    say it.
    """

    name: str | None = None
    always: bool = False
    beside: str | None = None
    form: str | None = None


def optional(
    name: str,
    kind: Any,
    *items: sa.ForeignKey,
    must: Must | None = None,
    of: str | Callable[[Any], Any] | None = None,
    leaf: Sealed | None = None,
    shown: bool = False,
    **options: Any,
) -> sa.Column[Any]:
    """A column that may be NULL. `must` is the rule of its other values, SQL with `{}` for its name,
    which the database keeps as the constraint of that name.

    Of a decision, `of` says what of it the column has: an attribute's path, or what makes the value;
    None: its own name. `leaf` says how the leaf has it, None: not at all; `shown`: the view
    `v_decisions`, and so exports, have it.
    """
    info = {_MUST: must, "of": of or name, "leaf": leaf, "shown": shown}
    return sa.Column(name, kind, *items, info=info, **options)


def required(
    name: str,
    kind: Any,
    *items: sa.ForeignKey,
    default: str | sa.False_ | sa.True_ | None = None,
    **options: Any,
) -> sa.Column[Any]:
    """One that is never NULL; `default` is an SQL expression for rows that came before it."""
    given = sa.text(default) if isinstance(default, str) else default
    return optional(name, kind, *items, nullable=False, server_default=given, **options)


def key(name: str, kind: Any, *items: sa.ForeignKey, **options: Any) -> sa.Column[Any]:
    """One of the primary key."""
    return optional(name, kind, *items, primary_key=True, autoincrement=False, **options)


MONTHLY = "RANGE (batch)"
"""How PostgreSQL partitions a table that it keeps month by month."""
MONTH = 10**11
"""Numbers of batches that a month has, from January of the year 0 on: each stays below 2^53, which JSON carries everywhere."""


def is_month(name: str | None) -> bool:
    """Whether a table is a partition of one: it has no declaration of its own."""
    return name is not None and _PARTITION.search(name) is not None


_PARTITION = re.compile(r"_(\d{4}_\d\d|before)$")


def identity_column() -> sa.Column[int]:
    """The surrogate key of a table whose natural key is long."""
    return sa.Column("id", BIGINT, sa.Identity(), primary_key=True)


def table(name: str, *parts: sa.schema.SchemaItem, monthly: bool = False, **said: Any) -> sa.Table:
    """A table; `said` is how it is kept (`Kept`), and `monthly` that PostgreSQL partitions it by month."""
    columns = [one for one in parts if isinstance(one, sa.Column)]
    return sa.Table(
        name,
        metadata,
        *parts,
        *(check(one.name, _rule(must, one.name)) for one in columns if (must := one.info.get(_MUST))),
        info={"kept": Kept(**said)},
        sqlite_autoincrement=any(one.identity is not None for one in columns),
        postgresql_partition_by=MONTHLY if monthly else None,
    )


def log_columns(column: Callable[..., sa.Column[Any]] = required) -> tuple[sa.Column[Any], ...]:
    """Name one partition of one log."""
    return column("log_id", sa.Text), column("topic", sa.Text), column("partition", sa.Integer)


def _rule(must: Must, column: str) -> str:
    return (must if isinstance(must, str) else must.rule).replace("{}", column)


def check(name: str, rule: str) -> sa.CheckConstraint:
    """A rule of one row that the database keeps."""
    return sa.CheckConstraint(rule, name=name)


def asked_of_text(constraint: str) -> str | None:
    """What the constraint of this name asks of a text, in words; None where it is not of `Characters`."""
    for table in metadata.tables.values():
        for column in table.columns:
            must = column.info.get(_MUST)
            if isinstance(must, Characters) and constraint == f"ck_{table.name}_{column.name}":
                return f"{column.name} has {must.least} to {must.most} characters in the table {table.name}"
    return None


def finite_cut() -> tuple[sa.CheckConstraint, ...]:
    """A threshold's state is one of three words, and lambda is there, and finite, exactly for `cut`."""
    return (
        check("state", _rule(one_of(THRESHOLD_STATES), "state")),
        check("threshold", "(state = 'cut') = (threshold IS NOT NULL)"),
        check("threshold_finite", _rule(FINITE, "threshold")),
    )
