"""`streamer candidate`: set, compared on the same batches, calibrated, adopted, stopped; and what the audit says of it."""

import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from streamer import wiring
from streamer.cli import main
from streamer.gates.rule import Full
from streamer.scoring.signals.signal_list import SignalList
from streamer.settings.settings import Settings
from streamer.store import prune
from streamer.store.calibration import run_rows
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.attacker import breaking_in
from tests.integration.audit.history import KEYS, Scribe, event, export, settings_for, verify

GATE = "bot"
OTHER = ("--scorer", "choice")
SCORERS = Path(__file__).parents[3] / "examples" / "scorer-package" / "src"


class Site:
    """A gate with 30 labelled decisions, and the commands."""

    def __init__(self, url: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self.directory = directory
        self.settings: Settings = settings_for(url, directory)
        self._capsys = capsys
        wiring.migrate(self.settings)
        self.store = wiring.open_store(self.settings)
        self.scribe = Scribe(self.store, self.settings)
        self.scribe.gate(GATE, unit="best", alpha=0.4, least_groups=5)
        self.live(range(30))
        self.scribe.recalibrate(GATE)

    def live(self, numbers: range, *, labels: bool = True) -> None:
        self.scribe.deliver(event(GATE, n) for n in numbers)
        if labels:
            self.label(GATE, numbers)

    def label(self, gate: str, numbers: range) -> None:
        labels = self.scribe.drawn_labels(gate, numbers, lambda n, _: float(n % 7 > 3))
        self.scribe.deliver(labels, topic="labels")

    def run(self, *words: str, status: int = 0) -> str:
        found = main(
            [*words, *(["--by", "ana"] if words[1] in ("set", "calibrate", "adopt", "stop") else [])]
        )
        printed = self._capsys.readouterr()
        assert found == status, printed.out + printed.err
        return printed.out + printed.err

    def json(self, *words: str, status: int = 0) -> Any:
        found = main([*words, "--json"])
        printed = self._capsys.readouterr()
        assert found == status, printed.out + printed.err
        return json.loads(printed.out)

    def rows(self, query: str) -> list[Any]:
        with self.store._database.reading() as connection:
            return list(connection.execute(sa.text(query)))


@pytest.fixture
def site(
    migrated_database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Site]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMER_DATABASE_URL", migrated_database_url)
    monkeypatch.setenv("COLUMNS", "200")
    made = Site(migrated_database_url, tmp_path, capsys)
    yield made
    made.store.close()


def test_another_score_from_its_first_try_to_its_adoption(site: Site):
    policy = site.store.policies.newest(GATE)
    said = site.run("candidate", "set", GATE, *OTHER)
    assert "scorer choice, no threshold" in said
    assert "no threshold yet" in said
    assert "Nothing to compare yet" in site.run("candidate", "show", GATE)
    assert "too few labels" in site.run("candidate", "calibrate", GATE, status=2)
    assert "nothing was changed" in site.run("candidate", "adopt", GATE, status=2)
    assert site.store.policies.newest(GATE) == policy, "what fails does not close the gate"

    site.live(range(30, 80))
    shown = site.json("candidate", "show", GATE)
    assert (shown["scored"], shown["without_scores"]) == (50, {})
    compared = shown["comparison"]
    assert compared["basis"]["source"] == "calibrated"
    assert compared["basis"]["moved"], "its older half calibrates"
    assert shown["proposed"]["state"] == "cut"
    assert compared["asked"]["candidate"] is True
    assert compared["replay"]["as_recorded"] is True

    before = site.store.candidates.newest(GATE)
    said = site.run("candidate", "calibrate", GATE)
    found = site.store.candidates.newest(GATE)
    assert found.number > before.number
    assert found.cut.threshold == shown["proposed"]["lambda"]
    assert found.guarantee
    assert "Q > " in said

    site.live(range(80, 110))
    shown = site.json("candidate", "show", GATE)
    compared = shown["comparison"]
    assert shown["scored"] == compared["prompts"] == 30
    assert compared["basis"]["source"] == "candidate"
    marks = [json.loads(row[0]) if isinstance(row[0], str) else row[0] for row in site.rows(
        f"SELECT shipped FROM candidate_decisions WHERE candidate = {found.number}")]  # fmt: skip
    assert sum(any(one) for one in marks) == round(compared["what_if"]["served"] * compared["judged"]) or (
        compared["judged"] < compared["prompts"]
    )
    text = site.run("candidate", "show", GATE)
    assert "bot under its candidate policy: " in text
    assert "The candidate's threshold, Q > " in text
    assert "is no evidence" in text
    assert "what-if" not in site.run("what-if", GATE, "--candidate")
    assert site.store.policies.newest(GATE) == policy, "nothing of it is in force"
    exposure = site.json("what-if", GATE, "--against", str(policy.version))["in_force"]["exposure"]

    said = site.run("candidate", "adopt", GATE, "--reason", "it serves more")
    newest = site.store.policies.newest(GATE)
    assert (newest.settings.scorer, newest.state, newest.reason) == ("choice", "cut", "it serves more")
    run = site.rows(
        "SELECT max(run), count(DISTINCT batch) FROM calibration_inputs GROUP BY run ORDER BY run"
    )
    assert run[-1][1] == 80, "the labels of all that the candidate has scored calibrate it"
    assert site.store.candidates.newest(GATE) is None
    assert exposure["decisions"] > 0
    site.live(range(110, 116))
    assert {row[0] for row in site.rows("SELECT scorer FROM decisions")} == {"gram", "choice"}
    assert verify(site.settings, from_database=True).faults == ()
    site.scribe.recalibrate(GATE)
    assert verify(site.settings, from_database=True).faults == ()
    export(site.settings, site.directory / "bundle")
    assert verify_bundle(site.directory / "bundle", KEYS, None).faults == []
    assert "no candidate policy" in site.run("candidate", "show", GATE, status=2)
    assert "no candidate policy" in site.run("what-if", GATE, "--candidate", status=2)


NUMBER = ("--signal", "retrieval=0..1")


@pytest.mark.parametrize("unit", ["best", "batch"])
@pytest.mark.parametrize("method", ["mean", "full"], ids=["of a cut", "of another list"])
def test_all_signals_from_their_first_try_to_their_adoption(site: Site, unit: str, method: str):
    gate = f"{method}-{unit}"
    signals = SignalList().text if method == "full" else None
    site.scribe.gate(
        gate, unit=unit, alpha=0.4, least_groups=5, method=method, scorer="choice", signals=signals, segment_by="kind",
        segment_fallback="pooled", audit_draws=4,
    )  # fmt: skip

    def live(numbers: range) -> None:
        rng = np.random.default_rng(7)
        told = [round(float(rng.uniform(0, 0.5) + (n % 7 <= 3) / 2), 3) for n in range(numbers.stop)]
        events = [json.loads(event(gate, n)) for n in numbers]
        for n, one in zip(numbers, events, strict=True):
            for response in one["responses"]:
                response["signals"] = {"retrieval": told[n] if n != 100 else 7.0}
                response["text"] = response["text"].strip() or "no"  # a batch with a blank one is held
        site.scribe.deliver(json.dumps(one).encode() for one in events)
        site.label(gate, numbers)

    live(range(30))
    site.scribe.recalibrate(gate)
    said = site.run("candidate", "set", gate, "--method", "full", *NUMBER)
    assert "31 columns of signals" in said
    assert "no threshold yet" in said
    live(range(30, 90))
    assert site.json("candidate", "show", gate)["proposed"]["state"] == "full"
    said = site.run("candidate", "calibrate", gate)
    candidate = site.store.candidates.newest(gate)
    assert isinstance(candidate.rule, Full)
    assert candidate.rule.prompts is not None
    assert [len(one.ids) for one in candidate.rule.prompts] == [60], "all that the candidate has measured"
    assert site.store.policies.active()[gate].candidate == candidate

    live(range(90, 110))
    assert site.json("candidate", "show", gate)["without_scores"] == {"signal_out_of_range": 1}
    beside = {one.batch_id: one for one in site.rows(
        "SELECT batch_id, shipped, c.signals, d.signals AS decided_by, c.budget_count, c.budget_groups, d.segment FROM candidate_decisions c"
        f" JOIN batches b ON b.id = c.batch JOIN decisions d ON d.batch = c.batch WHERE candidate = {candidate.number}")}  # fmt: skip
    for name, one in beside.items():
        if name == "batch-100":
            assert (one.shipped, one.signals, one.budget_count) == (None, None, None)
            continue
        row = np.frombuffer(one.signals, "<f4")
        assert len(row) == 31
        if method == "full":
            assert one.decided_by == one.signals[:116], "the gate's own list is the beginning of it"
        ((count, groups, most),) = candidate.rule.counts(row, one.segment)
        assert (one.budget_count, one.budget_groups) == (count, groups)
        marks = json.loads(one.shipped) if isinstance(one.shipped, str) else one.shipped
        assert any(marks) is (count <= most)
    compared = site.json("candidate", "show", gate)["comparison"]
    assert (compared["prompts"], compared["replay"]["as_recorded"]) == (20, True)
    with breaking_in(site.url) as connection:
        (was,) = connection.execute(
            sa.text("SELECT signals FROM candidate_prompts WHERE place = 3")
        ).scalars()
        change = sa.text("UPDATE candidate_prompts SET signals = :row WHERE place = 3")
        connection.execute(change, {"row": was[:-8] + bytes(8)})
    run_rows._PROMPTS.clear()
    assert site.store.policies.active()[gate].candidate is None, "other prompts than its rule says"
    with breaking_in(site.url) as connection:
        connection.execute(change, {"row": was})

    site.run("candidate", "adopt", gate, "--reason", "it reads what we know")
    newest = site.store.policies.newest(gate)
    assert (newest.settings.method, newest.state) == ("full", "full")
    assert "this holds if its labels played no part in that choice" in newest.guarantee
    assert isinstance(newest.rule, Full)
    assert newest.rule.fits[0].groups == 79, "all that the candidate has measured calibrate it"
    assert site.rows("SELECT count(*) FROM carried_signals") == [(79,)]
    assert site.rows("SELECT count(*) FROM carried_scores") == [(0,)], "the score is the gate's own"
    live(range(110, 130))
    needed = site.rows(f"SELECT count(*) FROM decisions WHERE gate = '{gate}' AND policy_version = {newest.version}"
                       f" AND budget_groups IS NOT NULL")  # fmt: skip
    assert needed == [(20,)]
    site.scribe.recalibrate(gate)
    rule = site.store.policies.newest(gate).rule
    assert isinstance(rule, Full)
    assert rule.fits[0].groups == 99, "what was carried calibrates later runs too"
    assert verify(site.settings, from_database=True).faults == ()
    export(site.settings, site.directory / "bundle")
    assert verify_bundle(site.directory / "bundle", KEYS, None).faults == []
    with breaking_in(site.url) as connection:
        connection.execute(sa.text("UPDATE carried_signals SET signals = :row WHERE batch = (SELECT min(batch) FROM carried_signals)"),
                           {"row": bytes(112)})  # fmt: skip
    assert "log" in {one.check for one in verify(site.settings, from_database=True).faults}


@pytest.mark.parametrize("as_json", [False, True])
def test_what_the_candidate_could_not_score_is_left_out_and_counted(site: Site, as_json: bool):
    site.run("candidate", "set", GATE, *OTHER)
    site.live(range(30, 80))
    with breaking_in(site.url) as connection:
        connection.exec_driver_sql(
            "UPDATE candidate_decisions SET scores = NULL, shipped = NULL, why = 'too_slow' WHERE batch IN"
            f" (SELECT id FROM batches WHERE gate = '{GATE}' AND batch_id IN ('batch-40', 'batch-41', 'batch-42'))"
        )
    if as_json:
        found = site.json("candidate", "adopt", GATE, "--by", "ana")["left_out"]
        assert found == {"too_slow": 3, "not_beside": 30}
    else:
        said = site.run("candidate", "adopt", GATE)
        assert (
            "Left out: 33 drawn batches of which the candidate has no scores (not_beside 30, too_slow 3)."
            in said
        )
    inputs = site.rows("SELECT count(DISTINCT batch) FROM calibration_inputs GROUP BY run ORDER BY run")
    assert inputs[-1][0] == 47


def test_a_threshold_that_is_given_or_found_decides_from_the_first_batch(site: Site):
    site.run("candidate", "set", GATE, "--alpha", "0.2", "--method", "crc")
    found = site.store.candidates.newest(GATE)
    assert (found.settings.alpha, found.settings.method) == (0.2, "crc")
    site.run("candidate", "set", GATE, "--threshold", "open")
    site.live(range(30, 50), labels=False)
    site.live(range(50, 60))
    shown = site.json("candidate", "show", GATE)
    assert shown["threshold"] == {"state": "open", "lambda": None}
    assert shown["comparison"]["prompts"] == 30
    assert len(shown["comparison"]["got_through"]["answers"]) > 0
    assert "It was beside 30 decisions" in site.run("candidate", "stop", GATE)
    site.live(range(60, 62))
    assert site.rows("SELECT count(*) FROM candidate_decisions") == [(30,)]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("set", "nobody"), "there is no gate 'nobody'"),
        (("set", GATE, "--scorer", "nonsense"), "--scorer must be one of"),
        (("set", GATE, "--threshold", "high"), "--threshold must be a score"),
        (("stop", GATE), "has no candidate policy"),
        (("adopt", GATE), "has no candidate policy"),
        (("show", GATE, "--since", "soon"), "--since"),
    ],
)
def test_what_is_asked_wrongly_is_said(site: Site, words: tuple[str, ...], says: str):
    assert says in site.run("candidate", *words, status=2)


def test_a_candidate_of_another_encoder_cannot_carry_its_scores(site: Site):
    site.run("candidate", "set", GATE, "--scorer", "external")
    site.live(range(30, 32))
    assert site.json("candidate", "show", GATE)["without_scores"] == {"scorer_failed": 2}
    assert "closes it until labels have come" in site.run("candidate", "adopt", GATE, status=2)


def test_a_score_that_ranks_other_answers_first_is_compared_and_not_adopted(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    installed = site.directory / "installed"
    shutil.copytree(SCORERS, installed)
    about = installed / "acme_scorers-1.0.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: acme-scorers\nVersion: 1.0.0\n")
    (about / "entry_points.txt").write_text("[streamer.scorers]\ncommon-words = acme_scorers:CommonWords\n")
    (about / "RECORD").write_text("acme_scorers/__init__.py,,\n")
    monkeypatch.syspath_prepend(installed)
    site.run("candidate", "set", GATE, "--scorer", "common-words", "--threshold", "open")
    site.live(range(30, 50))
    compared = site.json("candidate", "show", GATE)["comparison"]
    assert compared["what_if"]["exposure"]["overdue"] > 0, "nobody knows how bad those answers are"
    assert "ranks another answer first" in site.run("candidate", "adopt", GATE, status=2)
    assert site.rows("SELECT count(*) FROM carried_scores") == [(0,)]
    assert site.store.policies.newest(GATE).settings.scorer == "gram"


def test_the_audit_covers_who_set_it_and_says_that_the_rest_is_no_evidence(site: Site):
    site.run("candidate", "set", GATE, "--threshold", "0.3")
    site.live(range(30, 50))
    assert verify(site.settings, from_database=True).faults == ()
    assert "candidate_decisions" in export(site.settings, site.directory / "bundle")["not_evidence"]
    prune(site.url, older_than=timedelta(milliseconds=1), now=wiring.now(), by="ana", reason="old", sooner_than_six_months=True)  # fmt: skip
    assert site.rows("SELECT count(*) FROM candidate_decisions") == [(20,)]
    assert site.json("candidate", "show", GATE)["comparison"]["prompts"] == 20
    with breaking_in(site.url) as connection:
        connection.execute(
            sa.text(
                "UPDATE candidate_decisions SET shipped = '[true, true, true, true]'"
                " WHERE batch = (SELECT max(batch) FROM candidate_decisions)"
            )
        )
    assert verify(site.settings, from_database=True).faults == (), "it is no evidence"
    (difference,) = site.json("candidate", "show", GATE, status=3)["comparison"]["replay"]["differences"]
    assert (difference["batch_id"], difference["what"]) == ("batch-49", "candidate")
    with breaking_in(site.url) as connection:
        connection.execute(sa.text("UPDATE candidate_policies SET by = 'eve'"))
    assert [one.check for one in verify(site.settings, from_database=True).faults] == ["log"]
