"""The evidence pack: every figure follows from the bundle, and the one file names each that does not."""

import copy
import hashlib
import json
import shutil
import sqlite3
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import pytest

from streamer import wiring
from streamer.audit import signing
from streamer.audit.bundle import write_bundle
from streamer.audit.evidence.document import document_of
from streamer.audit.evidence.figures import WORDS
from streamer.audit.evidence.frameworks import ALL
from streamer.audit.evidence.pack import BUNDLE, JSON, PAGE, PDF, make_report, write_report
from streamer.cli import main
from streamer.errors import UsageError
from streamer.events.cloudevents import rfc3339
from streamer.gates.batch_key import BatchKey
from streamer.risk.states.decisions import AuditedDecision, AuditedDecisions
from streamer.risk.states.exposure import ExposurePlan, ExposureSequence
from streamer.security.visible import visible
from streamer.store.desk.release_desk import Reject, Release
from streamer_verify import command, reports
from streamer_verify.bundle import Bundle
from streamer_verify.command import complete_lines
from streamer_verify.pyz import archive
from streamer_verify.reports import SIGNATURE, compare_report
from streamer_verify.values import canonical_json
from tests import programs
from tests.integration.audit.history import KEYS, PUBLIC, Scribe, event, label_event, settings_for
from tests.integration.audit.tampering_table import make_site
from tests.migrated import migrated
from tests.services.browser import Browser
from tests.services.requirements import missing

HOSTILE = "</script><b>#panic()$\x1b[2J \u202eünïcode"
SEEN = HOSTILE.replace("\x1b", r"\u001b").replace("\u202e", r"\u202e")
"""What is shown of it: nothing in it steers or hides."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record with alerts, keys, an erasure and reasons that somebody wants to be markup, and its bundle."""
    folder = tmp_path_factory.mktemp("evidence")
    site = make_site(folder)
    with wiring.open_store(site.settings) as store:
        scribe = Scribe(store, site.settings)
        scribe.gate("third", unit="batch", alpha=0.1, audit_probability=0.25)
        scribe.deliver(event("third", n) for n in range(200, 212))
        store.policies.close("third", by=HOSTILE, reason=HOSTILE)
        scribe.gate("front", hold_action="escalate", desk_deadline_seconds=900.0)
        scribe.deliver(event("front", n) for n in range(300, 305))
        for number in range(300, 304):
            key = BatchKey("front", f"batch-{number}", 1)
            answers = store.desk.batch(key).answers
            by_score = sorted(answers, key=lambda one: one.score, reverse=True)
            # The audit draws the best answer; the second one somebody labels without a draw.
            act = {
                300: Release(response_id=by_score[0].id),
                301: Release(response_id=by_score[1].id),
                302: Release(response_id=by_score[0].id, text="Better."),
                303: Reject(),
            }[number]
            store.desk.decide(key, act, by="account:ben" if number == 302 else "account:ana")
            scribe.deliver(
                [label_event("front", number, response=one.id, severity=0.25) for one in by_score[:2]],
                topic="labels",
            )
        with store.evidence.snapshot() as snapshot:
            write_bundle(
                snapshot, folder / BUNDLE, keys=KEYS, made_at=rfc3339(wiring.now()), texts=False, salts=False
            )
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> dict[str, Any]:
    outside = complete_lines((folder / "checkpoints.jsonl").read_bytes())
    made = make_report(folder / BUNDLE, ALL["eu-ai-act"], since=None, until=None, keys=KEYS, outside=outside)
    return json.loads(json.dumps(made))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where each single value stands."""
    if isinstance(value, dict | list) and value:
        for name, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(one, (*path, name))
    else:
        yield path


def other(value: Any) -> Any:
    """A value a little different."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.000001 + 1e-6
    return "other" if value is None or value == [] or value == {} else value + "0"


def differing(report: dict[str, Any], folder: Path) -> list[str]:
    bundle = Bundle(folder / BUNDLE)
    figures = reports.figures_for(report)
    outside = complete_lines((folder / "checkpoints.jsonl").read_bytes())
    verifier = command.verify_bundle(bundle, KEYS, outside, figures=figures)
    given = reports.verified_with(KEYS, outside)
    return [name for name, _ in compare_report(report, bundle, figures.result(bundle, verifier), given)]


def test_the_figures_are_those_of_the_database(folder: Path, report: dict[str, Any]):
    rows = sqlite3.connect(folder / "record.db")
    figures = {name: one["value"] for name, one in report["figures"].items()}

    def one(query: str, *values: object) -> Any:
        return rows.execute(query, values).fetchone()[0]

    assert set(figures) >= {"decisions/third", "decisions/best", "decisions/each"}
    for gate in ("best", "each", "third"):
        outcomes = rows.execute("SELECT outcome, count(*) FROM decisions WHERE gate = ? GROUP BY 1", (gate,))
        assert figures[f"decisions/{gate}"]["by_outcome"] == dict(outcomes)
        wanted = one("SELECT count(*) FROM decisions WHERE gate = ? AND sampled", gate)
        assert figures[f"draws/{gate}"]["drawn"] == wanted
        assert figures[f"draws/{gate}"]["responses_labelled"] == one(
            "SELECT count(*) FROM decisions d JOIN batches b ON b.id = d.batch JOIN responses r ON r.batch = b.id"
            " WHERE d.gate = ? AND d.sampled AND r.drawn AND EXISTS (SELECT 1 FROM label_revisions l WHERE l.gate = d.gate"
            " AND l.batch_id = b.batch_id AND l.response_id = r.response_id)",
            gate,
        )
        wanted = one("SELECT count(*) FROM label_revisions WHERE gate = ?", gate)
        assert figures[f"labels/{gate}"]["total"] == wanted
        assert len(figures[f"policies/{gate}"]) == one(
            "SELECT count(*) FROM policy_events WHERE gate = ?", gate
        )
        wanted = one("SELECT count(*) FROM calibration_runs WHERE gate = ?", gate)
        assert figures[f"runs/{gate}"]["total"] == wanted
        alerts = figures[f"alerts/{gate}"]
        assert alerts["raised"] == one("SELECT count(*) FROM alerts WHERE gate = ?", gate)
        assert alerts["acknowledged"] == sum(row["acknowledged_by"] == "ana" for row in alerts["each"])
    assert figures["alerts/best"]["acknowledged"] == one("SELECT count(*) FROM alert_acknowledgements") == 2
    assert len(figures["erasures"]) == one("SELECT count(*) FROM erasures")
    assert figures["refused"]["dead_letters"] == one("SELECT count(*) FROM dead_letters") == 2
    assert len(figures["people"]["api_keys"]) == one("SELECT count(*) FROM api_keys")
    wanted = one("SELECT count(*) FROM outcomes") + one("SELECT count(*) FROM control_log")
    assert figures["record"]["leaves"] == wanted
    assert figures["checkpoints"]["leaves_after"] > 0
    assert figures["verification"]["faults"] == 0


def test_exposure_is_what_monitoring_would_bound(folder: Path, report: dict[str, Any]):
    rows = sqlite3.connect(folder / "record.db")
    decided = rows.execute(
        "SELECT d.sampling_probability, d.sampled, d.outcome = 'ship', (SELECT avg(l.severity) FROM (SELECT severity,"
        " row_number() OVER (PARTITION BY labeller ORDER BY effective_at DESC, id DESC) AS n FROM label_revisions"
        " WHERE gate = d.gate AND batch_id = b.batch_id AND response_id = r.response_id) l WHERE l.n = 1)"
        " FROM decisions d JOIN batches b ON b.id = d.batch LEFT JOIN responses r ON r.batch = d.batch AND r.drawn"
        " WHERE d.gate = 'best' ORDER BY d.decided_at, d.batch"
    ).fetchall()
    pieces = [
        AuditedDecision(p, bool(drawn), (severity if ships else 0.0) if drawn else None, float(bool(ships)))
        for p, drawn, ships, severity in decided
    ]
    assert any(one.loss is None and one.sampled for one in pieces)
    plan = ExposurePlan(delta=0.1, least_probability=min(one.probability for one in pieces), prior_mean=0.2)
    read = ExposureSequence(plan=plan).observe(AuditedDecisions.of_pieces(pieces))
    for name, bounds in {"exposure": read.exposure(), "selective": read.selective()}.items():
        found = report["figures"][f"{name}/best"]["value"]
        wanted = pytest.approx((bounds.estimate, bounds.lower, bounds.upper), rel=1e-9)
        assert (found["estimate"], found["lower"], found["upper"]) == wanted
        assert found["missing"] == bounds.overdue > 0
        assert (found["budget"] is None) == (name == "selective")
    assert report["figures"]["selective/best"]["value"]["shipped"] == read.shipped < len(decided)


def test_what_people_made_of_held_answers(folder: Path, report: dict[str, Any]):
    found = dict(report["figures"]["desk/front"]["value"])
    rows = sqlite3.connect(folder / "record.db")
    waits = rows.execute(
        "SELECT (julianday(o.at) - julianday(d.decided_at)) * 86400 FROM desk_outcomes o JOIN batches b ON"
        " b.gate = o.gate AND b.batch_id = o.batch_id JOIN decisions d ON d.batch = b.id WHERE o.gate = 'front' ORDER BY 1"
    ).fetchall()
    assert found.pop("longest_seconds") == pytest.approx(waits[-1][0], abs=0.01)
    assert found.pop("median_seconds") == pytest.approx((waits[1][0] + waits[2][0]) / 2, abs=0.01)
    assert found == {
        "deadline_seconds": 900.0,
        "outcomes": 4,
        "released": 3,
        "edited": 1,
        "rejected": 1,
        "deadline_passed": 0,
        "by": {"account:ana": 3, "account:ben": 1},
        "released_as_they_were": 2,
        "drawn": 1,
        "labelled": 1,
        "severity": 0.25,
    }
    (said,) = [one.sentence for one in document_of(report).figures if one.name == "desk/front"]
    assert "people released 3 (1 edited) and rejected 1; 0 had no decision" in said
    assert said.endswith("released unedited the audit drew 1; the 1 with a label have the mean severity 25 %")
    (said,) = [one.sentence for one in document_of(report).figures if one.name == "desk/best"]
    assert said == "best: no outcome at the desk in the period; the gate has no desk"
    for name, clause in {
        "eu-ai-act": "Article 14(4)",
        "nist-ai-rmf": "MAP 3.5",
        "soc2": "CC7.3, CC7.4",
    }.items():
        (found,) = [one for one in ALL[name].clauses if one.number == clause]
        assert "desk" in found.shows
        assert any("weighed before they released" in one for one in found.does_not_show)


def test_every_figure_has_its_rows_or_says_that_there_are_none(report: dict[str, Any]):
    assert all((one["rows"] == 0) == (one["sha256"] is None) for one in report["figures"].values())
    assert all(one["rows"] > 0 or one["checkpoint"] is None for one in report["figures"].values())
    whole = [report["figures"][name] for name in ("record", "checkpoints", "verification", "unchecked")]
    leaves, checkpoints = report["figures"]["record"]["value"]["leaves"], whole[1]["value"]["number"]
    assert [one["rows"] for one in whole] == [
        leaves, checkpoints, leaves + checkpoints, leaves + checkpoints
    ]  # fmt: skip
    assert {one["checkpoint"] for one in whole} == {whole[1]["value"]["newest"]}
    assert whole[0]["after"] == whole[1]["value"]["leaves_after"]
    shown = {one.name: one.seal for one in document_of(report).figures}
    assert shown["alerts/front"] == "from no row, so that there is no hash and no checkpoint"


@pytest.mark.parametrize(
    ("settings", "budget", "said"),
    [
        ({"max_attempts": 3}, 0.1, "budget of a first attempt 10 %;"),
        ({"method": "selective-mean"}, None, "of another risk, the error rate among shipped answers"),
        ({"method": "selective"}, None, "of another risk, the error rate among shipped answers"),
    ],
)
def test_exposure_is_compared_with_the_budget_that_bounds_it(
    tmp_path: Path, settings: dict[str, Any], budget: float | None, said: str
):
    made = settings_for(f"sqlite:///{tmp_path / 'record.db'}", tmp_path)
    migrated(made)
    with wiring.open_store(made) as store:
        scribe = Scribe(store, made)
        scribe.gate("one", unit="best", alpha=0.3, **settings)
        scribe.deliver(event("one", number) for number in range(5))
        with store.evidence.snapshot() as snapshot:
            write_bundle(
                snapshot, tmp_path / BUNDLE, keys=KEYS, made_at=rfc3339(wiring.now()), texts=False, salts=True
            )
    report = make_report(tmp_path / BUNDLE, ALL["soc2"], since=None, until=None, keys=KEYS)
    wanted = None if budget is None else pytest.approx(budget)
    assert report["figures"]["exposure/one"]["value"]["budget"] == wanted
    (sentence,) = [one.sentence for one in document_of(report).figures if one.name == "exposure/one"]
    assert said in sentence
    assert ("budget of a first attempt" in sentence) == (budget is not None)
    among = report["figures"]["selective/one"]["value"]
    assert (among["budget"], among["estimate"]) == (None if budget else 0.3, None), "nothing shipped"


def test_the_page_says_how_to_check_it_with_what_it_was_made_with(folder: Path, report: dict[str, Any]):
    assert document_of(report).how[0].endswith(" --checkpoints checkpoints.jsonl")
    alone = make_report(folder / BUNDLE, ALL["soc2"], since=None, until=None)
    (how,) = document_of(alone).how
    where = document_of(alone).where
    assert hashlib.sha256(archive()).hexdigest() in where
    assert "python -m streamer_verify.pyz verify.pyz" in where
    assert "--checkpoints" not in how
    assert "--public-key" not in how


def test_the_page_counts_in_words_that_people_use(report: dict[str, Any]):
    said = {one.name.partition("/")[0]: one.sentence for one in document_of(report).figures}
    refused = {"dead_letters": 2, "by_code": {}, "conflicts": 0, "duplicates": 0, "lost": []}
    found = WORDS["refused"](refused)[0]
    assert found == "2 messages were refused; no batch came again, and no offsets were lost"
    refused |= {"conflicts": 1, "duplicates": 2, "lost": [["responses", 0, 1, 2]]}
    assert WORDS["refused"](refused)[0] == (
        "2 messages were refused; 2 batches came again unchanged and 1 with other content, and 1 range of offsets was lost"
    )
    assert "each by name" not in said["settings"]
    record = {"leaves": 3, "partitions": 1, "days": 0.01}
    record |= {"first_recorded": "2026-11-26T14:00:00+00:00", "last_recorded": "2026-11-26T14:14:24+00:00"}
    assert WORDS["record"](record)[0].endswith("(14.4 minutes)")
    one = {
        "number": 1,
        "newest_made_at": None,
        "leaves_covered": 3,
        "leaves_after": 0,
        "longest_seconds_between": 0.0,
    }
    assert "between" not in WORDS["checkpoints"](one)[0], "there is no time between one and nothing"
    two = WORDS["checkpoints"](one | {"number": 2, "longest_seconds_between": 90.0})[0]
    assert two.endswith("the longest time between two was 90 seconds")
    assert WORDS["over_time"]({"step": "day", "counts": []})[0] == "no decision in the period"
    account = {
        "name": "ana",
        "roles": '["viewer", "approver"]',
        "created_at": None,
        "created_by": "root",
        "reason": "added",
    }
    (people, *_) = WORDS["people"]({"accounts": [account], "api_keys": [], "revoked": []})[1]
    assert people.rows[0][:2] == ("ana", "viewer, approver")


def test_the_first_lines_say_what_could_not_be_checked(folder: Path, report: dict[str, Any]):
    unchecked = len(report["figures"]["unchecked"]["value"])
    assert unchecked
    assert f"{unchecked} kinds of things could not be checked" in document_of(report).lead
    whole = copy.deepcopy(report)
    whole["figures"]["unchecked"]["value"] = []
    assert "could not be checked" not in document_of(whole).lead


def test_an_empty_record_and_an_empty_period_say_so_first(
    folder: Path, report: dict[str, Any], tmp_path: Path, migrated_sqlite_url: str
):
    before = datetime(2020, 1, 1, tzinfo=UTC)
    early = make_report(folder / BUNDLE, ALL["soc2"], since=before, until=before.replace(month=2), keys=KEYS)
    facts = dict(document_of(early).facts)
    assert facts["Period"] == "2020-01-01 00:00:00Z to 2020-02-01 00:00:00Z: nothing was decided in it"
    assert "nothing was decided" not in dict(document_of(report).facts)["Period"]
    with (
        wiring.open_store(settings_for(migrated_sqlite_url, tmp_path)) as store,
        store.evidence.snapshot() as snapshot,
    ):
        write_bundle(snapshot, tmp_path / BUNDLE, keys=KEYS, made_at=rfc3339(wiring.now()))
    nothing = document_of(make_report(tmp_path / BUNDLE, ALL["soc2"], since=None, until=None, keys=KEYS))
    assert nothing.lead.startswith("The record behind it is empty: there was nothing to verify.")


def test_every_figure_that_is_tampered_with_is_named(folder: Path, report: dict[str, Any]):
    assert differing(report, folder) == []
    bundle = Bundle(folder / BUNDLE)
    derived, tried = copy.deepcopy(report["figures"]), 0
    for name, figure in report["figures"].items():
        for path in leaves(figure):
            changed = copy.deepcopy(figure)
            at = changed
            for step in path[:-1]:
                at = at[step]
            at[path[-1]] = other(at[path[-1]])
            said = report | {"figures": report["figures"] | {name: changed}}
            found = [one for one, _ in compare_report(said, bundle, derived, report["verified_with"])]
            assert found == [name], path
            tried += 1
    assert tried > 500
    for name in report["figures"]:
        rest = {other: one for other, one in report["figures"].items() if other != name}
        assert name in differing_from(report | {"figures": rest}, bundle, derived)
    assert "more" in differing_from(report | {"figures": derived | {"more": {}}}, bundle, derived)
    assert differing_from(report | {"bundle": "0" * 64}, bundle, derived) == ["bundle"]
    assert differing_from(report | {"made_at": "2026-01-01"}, bundle, derived) == ["made_at"]
    clauses = [report["clauses"][0] | {"shows": ["exposure/nobody"]}]
    assert differing_from(report | {"clauses": clauses}, bundle, derived) == ["clause Article 9(2)(c)"]


def differing_from(report: dict[str, Any], bundle: Bundle, derived: dict[str, Any]) -> list[str]:
    return [one for one, _ in compare_report(report, bundle, derived, report["verified_with"])]


def test_the_one_file_derives_a_report_again(
    folder: Path, report: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "key.pub").write_text(PUBLIC)
    said = tmp_path / JSON

    def run(*more: str) -> tuple[int, str]:
        status = command.main(
            [str(folder / BUNDLE), "--public-key", str(tmp_path / "key.pub"), "--report", str(said), *more]
        )
        streams = capsys.readouterr()
        return status, streams.out + streams.err

    outside = ("--checkpoints", str(folder / "checkpoints.jsonl"))
    said.write_text(json.dumps(report))
    assert run(*outside)[0] == 0
    status, printed = run()
    assert status == 0
    assert "not checked   the list of what was not checked, in the report" in printed
    # What no figure is made of follows from no row: only the program that wrote it can write it again.
    silent = copy.deepcopy(report)
    for clause in silent["clauses"]:
        clause["does_not_show"] = []
    said.write_text(json.dumps(silent))
    status, printed = run(*outside)
    assert status == 0
    assert "not checked   what the report says beside its figures" in printed
    assert "streamer audit report --bundle" in printed
    report = copy.deepcopy(report)
    report["figures"]["decisions/best"]["value"]["served"] += 1
    report["figures"]["exposure/each"]["value"]["upper"] = 0.0
    said.write_text(json.dumps(report))
    status, printed = run(*outside)
    assert status == 3
    assert "DOES NOT FIT  report, decisions/best: its value differs" in printed
    assert "DOES NOT FIT  report, exposure/each: its value differs" in printed
    for broken in ("", "{}", "[]", json.dumps(report | {"period": None})):
        said.write_text(broken)
        assert run()[0] == 2


def test_a_period_and_a_gate_alone(folder: Path, report: dict[str, Any]):
    whole = report["figures"]["decisions/best"]["value"]
    rows = sqlite3.connect(folder / "record.db")
    moments = [
        one for (one,) in rows.execute("SELECT decided_at FROM decisions WHERE gate = 'best' ORDER BY 1")
    ]
    middle = datetime.fromisoformat(moments[len(moments) // 2] + "+00:00")
    parts = [
        make_report(folder / BUNDLE, ALL["soc2"], since=since, until=until, gates=["best"], keys=KEYS)
        for since, until in ((None, middle), (middle, None))
    ]
    totals = [one["figures"]["decisions/best"]["value"]["total"] for one in parts]
    assert sum(totals) == whole["total"]
    assert totals[0] == sum(one < moments[len(moments) // 2] for one in moments)
    assert not any("each" in name for one in parts for name in one["figures"])
    with pytest.raises(UsageError, match="no gate nobody"):
        make_report(folder / BUNDLE, ALL["soc2"], since=None, until=None, gates=["nobody"])
    with pytest.raises(UsageError, match="the period is empty"):
        make_report(folder / BUNDLE, ALL["soc2"], since=middle, until=middle)


def test_who_answers_for_a_report_is_shown_as_a_claim_and_signed(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    private, public = signing.generate_keys()
    signer, pack = signing.Signer(private), tmp_path / "pack"
    about = {"system": "Helpdesk", "version": "7", "provider": "Example Ltd", "signatory": HOSTILE}
    made = make_report(
        folder / BUNDLE, ALL["soc2"], since=None, until=None, about=about, signed_with=signer.key_id
    )
    write_report(made, pack, signer=signer)
    shutil.copy(folder / BUNDLE, pack)
    facts = dict(document_of(made).facts)
    assert facts["System"] == "Helpdesk (as given with the report, not verified)"
    assert facts["Signatory"].startswith(SEEN)
    assert signer.key_id in facts["Signed with"]
    (tmp_path / "key.pub").write_text(public)

    def verified(*more: str) -> tuple[int, str]:
        given = [str(pack / BUNDLE), "--report", str(pack / JSON), *more]
        return command.main(given), capsys.readouterr().out

    with_key = ("--report-key", str(tmp_path / "key.pub"))
    status, said = verified()
    assert status == 0
    assert "who signed the report: no --report-key was given" in said
    status, said = verified(*with_key)
    assert (status, "1  report signatures" in said) == (0, True)
    (pack / PDF).write_bytes((pack / PDF).read_bytes() + b"\n")
    status, said = verified(*with_key)
    assert status == 3
    assert f"{PDF}: it is not the file that was signed" in said
    (tmp_path / "key.pub").write_text(PUBLIC)
    assert "no trusted key has signed it" in verified(*with_key)[1]
    for written, what in ((b"{}", "it is no signature of a report"), (None, "it is not beside the report")):
        (pack / SIGNATURE).unlink() if written is None else (pack / SIGNATURE).write_bytes(written)
        assert what in verified(*with_key)[1]


def test_the_headline_says_whether_draws_were_verified(folder: Path, tmp_path: Path):
    """A salt in use foretells draws: only whoever asks for it in words gets it, and without it nothing verifies a draw."""
    assert not any("audit_salt" in line for line in Bundle(folder / BUNDLE).values("control.jsonl"))
    without = make_report(folder / BUNDLE, ALL["soc2"], since=None, until=None)
    counts = without["figures"]["verification"]["value"]
    assert (counts["draws"], counts["draws not verified"]) == (0, counts["decisions"])
    write_report(without, tmp_path / "pack", pdf=False)
    found = (tmp_path / "pack" / PAGE).read_text("utf-8")
    assert f"The audit draws of {counts['decisions']} decisions were not verified" in found
    settings = settings_for(f"sqlite:///{folder / 'record.db'}", folder)
    with wiring.open_store(settings) as store, store.evidence.snapshot() as snapshot:
        write_bundle(snapshot, tmp_path / BUNDLE, keys=KEYS, made_at=rfc3339(wiring.now()))
    revealed = make_report(tmp_path / BUNDLE, ALL["soc2"], since=None, until=None)
    counts = revealed["figures"]["verification"]["value"]
    assert (counts["draws"], counts["draws not verified"]) == (counts["decisions"], 0)
    found = document_of(revealed).draws
    assert found == f"{counts['draws']} audit draws were verified by the salts of the gates."


def test_two_pages_of_summary_come_before_the_figures(report: dict[str, Any]):
    shown = document_of(report)
    assert [row[0] for row in shown.gates.rows] == sorted(
        name.partition("/")[2] for name in report["figures"] if name.startswith("decisions/")
    )
    risk = report["figures"]["exposure/offered"]["value"]
    row = next(row for row in shown.gates.rows if row[0] == "offered")
    assert (row[6].endswith(": kept")) == (risk["upper"] <= risk["budget"])
    assert [row[0] for row in shown.glance.rows] == [one["clause"] for one in report["clauses"]]
    assert shown.glance.rows[0][2] == "F61–F76, F85–F92"


@pytest.mark.parametrize("name", ALL)
def test_the_pack_says_what_is_shown_and_what_is_not(folder: Path, name: str, tmp_path: Path):
    made = make_report(folder / BUNDLE, ALL[name], since=None, until=None, keys=KEYS)
    write_report(made, tmp_path / "pack")
    page = (tmp_path / "pack" / PAGE).read_text("utf-8")
    pdf = (tmp_path / "pack" / PDF).read_bytes()
    said = (tmp_path / "pack" / JSON).read_text("utf-8")
    for clause in ALL[name].clauses:
        assert f"<h3>{clause.number}: {clause.title}</h3>" in page
        assert all(escape(one) in page for one in clause.does_not_show)
    assert "Completeness upstream of Kafka: not established." in page
    assert "complian" not in (page + said).lower()
    assert "<script" not in page
    assert "<b>" not in page
    assert visible(page) == page
    # Nobody approved anything here: the recalibrator acted by its rules, and names that commands were given are claims.
    assert "approved by" not in page
    if any(one["by"] == "recalibrator" for one in made["figures"]["policies/best"]["value"]):
        assert "by the recalibrator" in page
    if "policies/third" in made["figures"]:
        assert escape(SEEN) in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert pdf.startswith(b"%PDF-")
    assert len(pdf) > 50_000
    if shutil.which("pdftotext") is None:
        missing("no pdftotext", "install Poppler's utilities (Debian: apt-get install poppler-utils)")
    words = programs.run("pdftotext", "-layout", tmp_path / "pack" / PDF, "-")
    text = words.stdout
    assert visible(text.replace("\n", "").replace("\f", "")) == text.replace("\n", "").replace("\f", "")
    hashes = {one["sha256"] for one in made["figures"].values()} - {None}
    assert len(hashes) > 10
    assert [one for one in hashes if one not in text] == []  # a search finds each, and a copy has it whole
    # Nothing but the bundle goes in: whoever has it makes the same report.
    again = make_report(folder / BUNDLE, ALL[name], since=None, until=None, keys=KEYS)
    write_report(again, tmp_path / "again")
    for file in (JSON, PAGE, PDF):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "pack" / file).read_bytes()


def test_tables_are_read_on_a_phone_too(folder: Path, tmp_path: Path, browser: Browser):
    """A table that is too wide is scrolled, by keyboard as well; no word of it is broken into letters."""
    made = make_report(folder / BUNDLE, ALL["eu-ai-act"], since=None, until=None, keys=KEYS)
    write_report(made, tmp_path / "pack", pdf=False)
    size = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.driver.get((tmp_path / "pack" / PAGE).as_uri())
    assert browser.driver.execute_script("return document.documentElement.scrollWidth") <= 360
    narrowest = browser.driver.execute_script(
        "return Math.min(...[...document.querySelectorAll('td:not(.n), th:not(.n)')].map((one) => one.offsetWidth))"
    )
    assert narrowest >= 80
    wide = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth)"
    assert browser.driver.execute_script(f"return {wide}.length") > 0
    assert browser.driver.execute_script(f"return {wide}.every((one) => one.tabIndex === 0 && one.ariaLabel)")


@pytest.mark.parametrize(("kind", "column"), [("policies", "threshold"), ("accounts", "roles")])
def test_a_row_that_is_not_of_its_form_is_a_fault_and_in_no_figure(
    folder: Path, tmp_path: Path, kind: str, column: str, capsys: pytest.CaptureFixture[str]
):
    with zipfile.ZipFile(folder / BUNDLE) as packed:
        packed.extractall(tmp_path / "bundle")
    file = tmp_path / "bundle" / "control.jsonl"
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    for line in lines:
        if line["kind"] == kind:
            line["row"][column] = {"no": "value"}
    file.write_bytes(b"".join(canonical_json(line) + b"\n" for line in lines))
    given = ("audit", "report", "--framework", "soc2", "--bundle", str(tmp_path / "bundle"), "--no-pdf")
    assert main([*given, "--out", str(tmp_path / "pack")]) == 3
    assert "no figure here can be relied on" in (tmp_path / "pack" / PAGE).read_text("utf-8")
    capsys.readouterr()
    assert command.main([str(tmp_path / "bundle")]) == 3
    assert f"{kind}: row.{column} is not a " in capsys.readouterr().out


def test_a_bundle_that_is_none_is_said_to_be_none(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    whole = (folder / BUNDLE).read_bytes()
    with zipfile.ZipFile(folder / BUNDLE) as packed:
        parts = {name: packed.read(name) for name in packed.namelist()}
    bad: list[dict[str, bytes] | bytes] = [
        whole[:-30],
        whole[: len(whole) // 2],
        b"",
        whole[:900] + bytes(64) + whole[964:],
    ]
    for name in ("manifest.json", "control.jsonl", "outcomes.jsonl"):
        bad += [parts | {name: value} for value in (b"", b"7\n", b"[" * 100_000, parts[name][:-40])]
    for name in ("head", "files", "made_at"):
        bad += [parts | {"manifest.json": json.dumps(json.loads(parts["manifest.json"]) | {name: value}).encode()}
                for value in (None, 7, [], {})]  # fmt: skip
    for number, one in enumerate(bad):
        file = tmp_path / f"{number}.zip"
        if isinstance(one, bytes):
            file.write_bytes(one)
        else:
            with zipfile.ZipFile(file, "w") as packed:
                for name, value in one.items():
                    packed.writestr(name, value)
        status = main(
            [
                "audit",
                "report",
                "--framework",
                "soc2",
                "--no-pdf",
                "--bundle",
                str(file),
                "--out",
                f"pack-{number}",
            ]
        )
        told = capsys.readouterr()
        if status == 3:  # it is a bundle, and not what was exported
            continue
        assert (status, told.out, told.err.count("\n")) == (2, "", 1), (number, told.err)
        assert "unexpected" not in told.err
        assert not (tmp_path / f"pack-{number}").exists()
    assert main(["audit", "embed", "0.zip", "--out", "embeddings.jsonl"]) == 2
    assert capsys.readouterr().err.startswith("streamer: cannot read the bundle 0.zip")


def test_the_command(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    settings = settings_for(f"sqlite:///{folder / 'record.db'}", folder)
    monkeypatch.setenv("STREAMER_DATABASE_URL", settings.database.url)
    monkeypatch.setenv("STREAMER_AUDIT_PUBLIC_KEYS", PUBLIC)
    monkeypatch.setenv("STREAMER_AUDIT_CHECKPOINT_FILE", str(folder / "checkpoints.jsonl"))
    out = tmp_path / "pack"

    def run(*arguments: str) -> int:
        return main(["audit", "report", *arguments])

    assert run("--framework", "nist-ai-rmf", "--since", "90d", "--out", str(out)) == 0
    assert sorted(one.name for one in out.iterdir()) == sorted((BUNDLE, JSON, PAGE, PDF))
    assert json.loads((out / JSON).read_text())["figures"]["verification"]["value"]["faults"] == 0
    assert run("--framework", "nist-ai-rmf", "--out", str(out)) == 2
    assert "name a new folder" in capsys.readouterr().err
    assert run("--framework", "none", "--out", str(tmp_path / "x")) == 2
    assert "eu-ai-act, iso-42001, nist-ai-rmf, soc2" in capsys.readouterr().err
    assert run("--framework", "soc2", "--since", "2030-01-01", "--out", str(tmp_path / "x")) == 2
    assert not (tmp_path / "x").exists()
    # From a bundle alone, and from one whose record does not verify.
    assert (
        run("--framework", "soc2", "--bundle", str(out / BUNDLE), "--no-pdf", "--out", str(tmp_path / "y"))
        == 0
    )
    database = sqlite3.connect(folder / "record.db")
    copied = sqlite3.connect(tmp_path / "tampered.db")
    database.backup(copied)
    for (name,) in copied.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        copied.execute(f'DROP TRIGGER "{name}"')
    copied.execute("UPDATE responses SET score = score * 0.5 WHERE batch = 3")
    copied.commit()
    monkeypatch.setenv("STREAMER_DATABASE_URL", f"sqlite:///{tmp_path / 'tampered.db'}")
    assert run("--framework", "soc2", "--no-pdf", "--out", str(tmp_path / "z")) == 3
    assert "no figure here can be relied on" in (tmp_path / "z" / PAGE).read_text()
