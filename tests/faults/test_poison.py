"""Case 17: a record that cannot be decided or stored is refused alone; nothing stops, and all others get their outcome."""

import json
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from streamer import wiring
from streamer.deciding.decider import BatchDecider
from streamer.journal import Outcome, Record
from tests.faults.hostile_messages import Message
from tests.faults.laboratory import Laboratory
from tests.faults.matrix import Matrix
from tests.faults.site import GATE, Site, event, publish, wait_until
from tests.made import a_label

BEYOND_UTC = ("0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-05:00")
"""Times that no UTC timestamp can express; .NET writes the first one where there is no date."""


def label(number: int, **changes: Any) -> bytes:
    return json.dumps(a_label(GATE, f"batch-{number}", **changes)).encode()


SQLSTATES = ("22003", "22021", "22P05", "23514", "54000", "54001", "XX000")
"""Errors that blame a value; the last one as PostgreSQL raises it for one that is larger than it keeps."""

_REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE found text := substring(to_jsonb(NEW)::text FROM 'poison-([0-9A-Z]{5})');
BEGIN
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'invalid memory alloc request size 1073741824' USING ERRCODE = found;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse_batch BEFORE INSERT ON batches FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER refuse_label BEFORE INSERT ON label_revisions FOR EACH ROW EXECUTE FUNCTION refuse();
"""


def test_records_that_cannot_be_stored_are_refused_alone(site: Site, matrix: Matrix) -> None:
    execute(site, _REFUSE)
    named = wiring.topics(site.settings)
    with wiring.publisher(site.settings) as publisher:
        for number in range(280):
            state = f"poison-{SQLSTATES[number % 7]}" if number % 40 == 17 else "plain"
            when = BEYOND_UTC[number % 2] if number % 40 in (30, 31) else "2026-01-01T00:00:00Z"
            key = b"%d" % number
            publisher.send(named.responses, event(number, prompt=state, created_at=when), key=key)
            publisher.send(named.labels, label(number, labeller=state, labelled_at=when), key=key)
    worker = site.start_worker()
    wait_until(
        lambda: worker.ended or site.recorded() == 560,
        "every record has an outcome",
        60,
        progress=site.recorded,
    )
    assert not worker.ended, worker.log_tail()
    found = site.check()
    assert (found.decisions, found.labels, found.dead_letters) == (259, 259, 42)
    assert site.store.dead_letters.counts() == {"internal_error": 14, "invalid_field": 28}
    details = [letter.detail or "" for letter in site.store.dead_letters.list(code="internal_error")]
    # An error of integrity is named by its first line, which has the constraint's name.
    assert {state for detail in details for state in SQLSTATES if state in detail} == {*SQLSTATES} - {"23514"}
    counted = 'streamer_dead_letters_total{code="internal_error"}'
    wait_until(lambda: worker.metrics()[counted] == 14, "they are counted, after their commit")
    assert "poison" not in worker.log_text(), "people's texts are in the log"

    execute(site, "DROP FUNCTION refuse CASCADE")
    site.command("dead-letters", "replay", "--code", "internal_error")
    wait_until(lambda: site.recorded() == 574, "what was sent again has its outcome")
    found = site.check()
    assert (found.decisions, found.labels) == (266, 266)
    matrix.add("17 records that cannot be stored: times beyond UTC, rows that the database refuses", found)
    assert worker.terminate() == 0


def test_a_schema_that_no_record_is_to_blame_for_ends_the_worker(site: Site, matrix: Matrix) -> None:
    publish(site, 0, 50)
    execute(site, "ALTER TABLE responses RENAME TO elsewhere")
    worker = site.start_worker()
    assert worker.process.wait(240) == 1
    assert r"relation \"responses\" does not exist" in worker.log_tail()
    assert site.recorded() == 0
    execute(site, "ALTER TABLE elsewhere RENAME TO responses")
    worker = site.start_worker()
    wait_until(lambda: site.recorded() == 50, "every record has an outcome", 60, progress=site.recorded)
    found = site.check()
    assert (found.decisions, found.dead_letters) == (50, 0)
    matrix.add("17 a table missing for a while", found)
    assert worker.terminate() == 0


def execute(site: Site, statements: str) -> None:
    with site.store._database.engine.begin() as connection:
        connection.exec_driver_sql(statements)


class Breaking(BatchDecider):
    """A decider with faults: some values raise what no code expects."""

    ERRORS = (OverflowError, UnicodeError, KeyError, AttributeError, RecursionError, MemoryError)

    def outcomes(self, records: Sequence[Record], *more: Any) -> list[Outcome]:
        for record in records:
            for error in self.ERRORS:
                if b"question " + error.__name__.encode() in (record.value or b""):
                    raise error("somebody's text")
        return super().outcomes(records, *more)


_UNKEPT = {
    "sqlite": """
CREATE TRIGGER refuse_batch BEFORE INSERT ON batches WHEN instr(NEW.prompt, 'unkept')
BEGIN SELECT RAISE(ABORT, 'refused'); END;
CREATE TRIGGER refuse_letter BEFORE INSERT ON dead_letters WHEN instr(NEW.value, CAST('unkept' AS BLOB))
BEGIN SELECT RAISE(ABORT, 'refused'); END;
""",
    "postgresql": """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF position('unkept' IN to_jsonb(NEW)->>'prompt') > 0 OR position(encode('unkept', 'hex') IN to_jsonb(NEW)->>'value') > 0 THEN
        RAISE EXCEPTION 'refused' USING ERRCODE = '22000';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse_batch BEFORE INSERT ON batches FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER refuse_letter BEFORE INSERT ON dead_letters FOR EACH ROW EXECUTE FUNCTION refuse();
""",
}


@pytest.mark.expected_errors("record_refused")
def test_faults_of_the_decider_and_rows_that_cannot_be_kept(migrated_database_url: str) -> None:
    laboratory = Laboratory(migrated_database_url, keep_texts=True, gates=("event",))
    laboratory.decider.__class__ = Breaking
    backend = "sqlite" if migrated_database_url.startswith("sqlite") else "postgresql"
    with laboratory.store._database.engine.begin() as connection:
        if backend == "sqlite":
            for statement in _UNKEPT[backend].strip().split("END;\n"):
                if statement:
                    connection.exec_driver_sql(statement.removesuffix("END;") + "END;")
        else:
            connection.exec_driver_sql(_UNKEPT[backend])
    bad = [error.__name__ for error in Breaking.ERRORS] + ["unkept"] * 3
    prompts = [bad[place // 20] if place % 20 == 13 else "plain" for place in range(180)]
    with closing(laboratory.store):
        laboratory.take(
            Message(False, b"k", event(place, gate="event", prompt=f"question {prompt}"), (), 0)
            for place, prompt in enumerate(prompts)
        )
        became = laboratory.check()
        assert became == {"decision": 171, "internal_error": 9}
        letters = laboratory.store.dead_letters.list(code="internal_error")
        for letter in letters:
            assert letter.detail is not None
            assert "somebody" not in letter.detail
            if letter.value is None:
                assert letter.key is None
                assert "sha256" in letter.detail
        assert sum(letter.value is None for letter in letters) == 3
        named = " ".join(letter.detail or "" for letter in letters)
        assert all(error.__name__ in named for error in Breaking.ERRORS)
