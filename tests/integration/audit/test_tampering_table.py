"""The table of attacks in docs/audit.md says what is so: who names which, and what nobody names."""

import json
from pathlib import Path

import pytest

from streamer import wiring
from streamer.settings.settings import Settings
from streamer.store import Store
from streamer_verify.command import complete_lines, receipt_lines
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.attacker import breaking_in
from tests.integration.audit.history import KEYS, export, verify
from tests.integration.audit.kept_log import Site
from tests.integration.audit.tampering_table import (
    ADDITIONS,
    EDITS,
    PAGE,
    TABLES,
    WAYS,
    attack,
    make_site,
    on_the_page,
    unsealed,
    who_names,
)
from tests.machine import LONG


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A record with its topics and its receipts; leave it as it is."""
    return make_site(tmp_path_factory.mktemp("record"))


def test_the_page_has_every_attack_and_no_other():
    for table, (attacks, _) in TABLES.items():
        assert sorted(on_the_page(table)) == sorted(attacks)
    text = " ".join(PAGE.read_text("utf-8").split())
    assert all(f" - {names}: {why} " in text for names, why in unsealed().items())
    assert len(EDITS) * len(WAYS) + len(ADDITIONS) >= 80


def test_an_honest_record_is_in_order_whoever_asks(site: Site, tmp_path: Path):
    report = verify(site.settings, receipts=(site.receipts, "what was kept"))
    assert report.faults == ()
    at_the_desk = sum(line.startswith(b'{"receipt":"[\\"control') for line in site.receipts)
    assert at_the_desk == report.counts["outcomes at the desk"] == 6
    assert report.counts["receipts"] == len(site.receipts)
    assert report.counts["events with a receipt"] == len(site.receipts) - at_the_desk
    assert report.counts["runs whose sample is complete"] == 6
    compared = site.compared()
    assert compared.faults == []
    assert compared.counts["receipts compared with the log"] == len(site.receipts)
    assert compared.counts["outcomes at the desk compared with the log"] == at_the_desk
    exported = site.copy(tmp_path).alone(site.receipts)
    assert exported.faults == []
    assert exported.counts["events with a receipt"] == len(site.receipts) - at_the_desk


@pytest.mark.parametrize("name", EDITS)
def test_who_names_what_was_changed(site: Site, name: str, tmp_path: Path):
    # Each attack in the window and in one of the other ways, and by both verifiers in one of these, so that all are seen.
    other, turn = divmod(list(EDITS).index(name), 2)
    ways = (WAYS[other % 3], "in the window")

    def by_both(copy: Site, way: str, store: Store) -> None:
        if way == ways[turn]:
            copy.alone(site.receipts, store)

    found = who_names(site, name, tmp_path, by_both, WAYS if LONG else ways)
    assert found == on_the_page("tampering")[name]


@pytest.mark.parametrize(
    ("table", "name"), [(one, name) for one in ("additions", "stolen") for name in TABLES[one][0]]
)
def test_who_names_what_was_added_or_changed_with_a_stolen_key(
    site: Site, table: str, name: str, tmp_path: Path
):
    assert TABLES[table][1](site, name, tmp_path) == on_the_page(table)[name]


def test_a_batch_that_was_decided_twice_is_named_as_such(site: Site, tmp_path: Path):
    copy = site.copy(tmp_path)
    attack(copy, "a decision put into the log once more", "in the window")
    said = "this batch was decided before"
    assert said in [fault.detail for fault in verify(copy.settings).faults]
    assert said in [fault["detail"] for fault in copy.alone().faults]


@pytest.mark.parametrize("name", ["a hold becomes a ship: scores, action, event", "who closed a gate"])
def test_one_receipt_names_it_with_one_file_too(site: Site, name: str, tmp_path: Path):
    copy = site.copy(tmp_path)
    attack(copy, name, "in the window")
    assert copy.alone().faults == []
    assert [fault["check"] for fault in copy.alone(site.receipts[-1:]).faults][:1] == ["receipt"]


def test_a_bundle_that_is_dated_back_is_held_against_the_checkpoints_all_the_same(site: Site, tmp_path: Path):
    outside = complete_lines((site.directory / "checkpoints.jsonl").read_bytes())

    def details(copy: Site) -> list[str]:
        """What both verifiers find in a bundle that says it is older than every checkpoint, and has none."""
        with breaking_in(copy.settings.database.url) as connection:
            connection.exec_driver_sql("UPDATE signed_head SET size = 0, note = ''")
        export(copy.settings, copy.directory / "bundle")
        file = copy.directory / "bundle" / "manifest.json"
        file.write_text(
            json.dumps(json.loads(file.read_bytes()) | {"made_at": "2020-01-01T00:00:00.000000Z"})
        )
        return [one["detail"] for one in verify_bundle(copy.directory / "bundle", KEYS, outside).faults]

    (tmp_path / "honest").mkdir()
    assert details(site.copy(tmp_path / "honest")) == []
    (tmp_path / "changed").mkdir()
    copy = site.copy(tmp_path / "changed")
    attack(copy, "who gave a label of a file", "resealed")
    assert any("was made of another history" in one for one in details(copy))


def test_what_is_no_receipt_is_said_to_be_none(site: Site):
    lines = [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'["a","b",0,0,"00"]',
        b'{"receipt":"["}',
        b'["a","b","0",1,"' + b"0" * 64 + b'","' + b"0" * 64 + b'"]',
        b'["a","b",0,1,"' + b"0" * 64 + b'"]',  # without the root
    ]
    report = verify(site.settings, receipts=(lines, "what was kept"))
    assert [fault.check for fault in report.faults] == ["receipt"] * len(lines)
    unknown = b'["log-1","nowhere",0,1,"' + b"0" * 64 + b'","' + b"0" * 64 + b'"]'
    report = verify(site.settings, receipts=([unknown], "what was kept"))
    assert any("does not know this partition" in fault.detail for fault in report.faults)


def test_a_receipt_of_a_partition_younger_than_the_bundle_is_no_fault_of_it(site: Site, tmp_path: Path):
    export(site.settings, tmp_path / "bundle")
    later = json.dumps(["log-1", "streamer.responses", 99, 1, "0" * 64, "0" * 64]).encode()
    exported = verify_bundle(tmp_path / "bundle", KEYS, None, [*site.receipts, later])
    assert exported.faults == []
    assert "they are younger, or the end was cut off" in exported.notes["younger receipts"]


def test_a_file_of_receipts_may_end_in_the_middle_of_a_line(tmp_path: Path):
    """Whoever keeps receipts may be killed while the last one is written: that is no fault of the record."""
    one, other = (json.dumps(["log-1", "responses", 0, number, "0" * 64]).encode() for number in (1, 2))
    file = tmp_path / "receipts.jsonl"
    for content, kept in (
        (one + b"\n" + other + b"\n", [one, other]),
        (one + b"\n" + other, [one, other]),
        (one + b"\n" + other[:20], [one]),
        (one + b"\n\n  \r\n" + other + b"\r\n", [one, other]),
        (other[:20] + b"\n" + one, [other[:20], one]),
        (b"", []),
    ):
        file.write_bytes(content)
        assert receipt_lines(content) == kept
        assert wiring.receipts(Settings(), str(file)) == (kept, str(file))


def test_a_receipt_of_what_was_cut_off_names_it(site: Site, tmp_path: Path):
    copy = site.copy(tmp_path)
    attack(copy, "the last decisions cut off, and progress set back", "in the window")
    report = verify(copy.settings, receipts=(site.receipts[-1:], "what was kept"))
    assert any("the tail was cut off" in fault.detail for fault in report.faults)
    export(copy.settings, tmp_path / "bundle")
    exported = verify_bundle(tmp_path / "bundle", KEYS, None, site.receipts[-1:])
    assert exported.faults == []
    assert "they are younger, or the end was cut off" in exported.notes["younger receipts"]
