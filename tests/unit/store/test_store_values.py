"""The store's pure parts: URLs, headers, moments, what a leaf says of a message, and what a decision may not say."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.dialects import postgresql, sqlite

from streamer.errors import UsageError
from streamer.gates.batch_key import BatchKey
from streamer.gates.settings import GateSettings
from streamer.journal import BatchDecision, ScoredResponse
from streamer.store.db.engine import parse_url
from streamer.store.db.schema import metadata
from streamer.store.db.schema.types import UtcDateTime, decode_headers, encode_headers
from streamer.store.log import leaves
from streamer.store.log.rows import check_decision, storable
from tests.made import a_decision, a_policy

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=())), st.none() | st.binary())))
def test_headers_come_back_to_the_byte(headers: list[tuple[str, bytes | None]]) -> None:
    text = encode_headers(tuple(headers))
    text.encode("utf-8")
    assert "\x00" not in text
    assert decode_headers(text) == tuple(headers)


@given(st.text(st.characters(exclude_categories=())))
def test_free_text_becomes_storable(text: str) -> None:
    stored = storable(text)
    assert "\x00" not in stored
    stored.encode("utf-8")
    assert storable("fine — ünïcode") == "fine — ünïcode"


@given(st.datetimes(timezones=st.just(timezone(timedelta(hours=5, minutes=30)))))
def test_moments_are_utc_on_both_databases(moment: datetime) -> None:
    if moment.year in (1, 9999):
        return
    for dialect in (sqlite.dialect(), postgresql.dialect()):
        stored = UtcDateTime().process_bind_param(moment, dialect)
        back = UtcDateTime().process_result_value(stored, dialect)
        assert back == moment
        assert back.tzinfo is UTC


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        UtcDateTime().process_bind_param(datetime(2026, 1, 1), sqlite.dialect())  # noqa: DTZ001


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("postgres://u@h/d", "postgresql+psycopg"),
        ("postgresql://u@h/d", "postgresql+psycopg"),
        ("postgresql+psycopg2://u@h/d", "postgresql+psycopg"),
        ("sqlite:///a.db", "sqlite"),
        ("sqlite+pysqlite:////a.db", "sqlite"),
    ],
)
def test_urls_get_our_driver(url: str, driver: str) -> None:
    assert parse_url(url).drivername == driver


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "mysql://u:pw@h/d",
        "sqlite://",
        "postgresql://u:pw@h",
        "postgresql://h?password=pw",
        "postgresql://u:pw@[::1/d",
    ],
)
def test_other_urls_are_refused_without_their_password(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_url(url)
    assert "pw" not in str(caught.value)


def test_absent_and_empty_are_different_messages() -> None:
    digests = {
        leaves.message_digest("t", key, value, headers)
        for key in (None, b"")
        for value in (None, b"")
        for headers in ((), (("h", None),), (("h", b""),))
    }
    assert len(digests) == 12


def decision(
    unit: str, actions: tuple[str, ...], outcome: str, selected: str | None, **changes: object
) -> BatchDecision:
    answers = tuple(ScoredResponse(f"r{i}", "", 0.5, None, one, False) for i, one in enumerate(actions))  # type: ignore[arg-type]
    fields: dict[str, object] = {"outcome": outcome, "selected": selected, "responses": answers}
    return a_decision(a_policy(GateSettings(unit=unit, encoder="e@1")), **fields | changes)


@pytest.mark.parametrize(
    ("unit", "actions", "outcome", "selected"),
    [
        ("best", ("ship", "abstain"), "ship", "r0"),
        ("best", ("abstain", "abstain"), "abstain", None),
        ("response", ("ship", "abstain"), "mixed", None),
        ("response", ("ship", "ship"), "ship", None),
        ("response", ("abstain", "abstain"), "escalate", None),
        ("batch", ("ship", "ship"), "ship", None),
        ("batch", ("abstain", "abstain"), "abstain", None),
    ],
)
def test_decisions_that_agree_with_themselves(
    unit: str, actions: tuple[str, ...], outcome: str, selected: str | None
) -> None:
    check_decision(decision(unit, actions, outcome, selected))


@pytest.mark.parametrize(
    ("unit", "actions", "outcome", "selected"),
    [
        ("best", ("ship", "ship"), "ship", "r0"),
        ("best", ("ship", "abstain"), "ship", "r1"),
        ("best", ("ship", "abstain"), "abstain", "r0"),
        ("best", ("abstain", "abstain"), "ship", None),
        ("response", ("ship", "abstain"), "ship", None),
        ("response", ("abstain", "abstain"), "mixed", None),
        ("response", ("ship", "ship"), "mixed", None),
        ("batch", ("ship", "abstain"), "ship", None),
        ("batch", ("abstain", "abstain"), "ship", None),
    ],
)
def test_decisions_that_contradict_themselves(
    unit: str, actions: tuple[str, ...], outcome: str, selected: str | None
) -> None:
    with pytest.raises(ValueError, match="contradicts"):
        check_decision(decision(unit, actions, outcome, selected))


def test_nothing_is_drawn_from_a_batch_that_is_not_sampled() -> None:
    drawn = (ScoredResponse("r0", "", 0.5, None, "abstain", True),)
    with pytest.raises(ValueError, match="drawn"):
        check_decision(decision("best", (), "abstain", None, responses=drawn))
    with pytest.raises(ValueError, match="gate 'g'"):
        check_decision(decision("best", ("abstain",), "abstain", None, key=BatchKey("other", "b", 1)))


COLUMN = (
    {"batches": "id"}
    | dict.fromkeys(
        ("responses", "decisions", "carried_scores", "carried_signals", "candidate_decisions"), "batch"
    )
    | dict.fromkeys(("desk_items", "review_offers", "review_claims"), "batch")
)
"""What each distributed table would be distributed by; all others would be copied to every node, as reference tables."""


def obstacles() -> set[str]:
    """Keys without the column of distribution, and references that it does not hold together."""
    found = set()
    for name, table in metadata.tables.items():
        column = COLUMN.get(name)
        if column is not None:
            keys = [tuple(table.primary_key.columns.keys())]
            keys += [tuple(index.columns.keys()) for index in table.indexes if index.unique]
            keys += [
                tuple(one.columns.keys())
                for one in table.constraints
                if one.__visit_name__ == "unique_constraint" and one._ddl_if is None
            ]
            found |= {f"{name} ({', '.join(key)})" for key in keys if column not in key}
        for reference in table.foreign_key_constraints:
            other = COLUMN.get(reference.referred_table.name)
            pairs = {(one.parent.name, one.column.name) for one in reference.elements}
            if other is not None and (column is None or (column, other) not in pairs):
                found.add(f"{name} -> {reference.referred_table.name}")
    return found


def test_what_stands_in_the_way_is_what_the_page_says() -> None:
    assert obstacles() == {
        "batches (gate, batch_id, attempt)", "review_offers (token)",
        "calibration_inputs -> batches", "candidate_prompts -> batches", "desk_outcomes -> batches",
        "outcomes -> batches", "pending_messages -> batches",
    }  # fmt: skip
