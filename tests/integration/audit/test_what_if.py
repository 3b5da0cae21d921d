"""`streamer what-if` on real records: the past comes out again, whatever gate decided it, and what does not is named."""

import json
import shutil
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from streamer import wiring
from streamer.calibration.full_fit import chance_above
from streamer.cli import WRONG_USAGE
from streamer.console.pages import Pages
from streamer.errors import UsageError
from streamer.gates.rule import Cut
from streamer.gates.settings import GateSettings
from streamer.recalibration.comparison import Reading
from streamer.recalibration.one_gate import recalibrate_by_hand
from streamer.scoring.signals.signal_list import SignalList
from streamer.settings.settings import Settings
from streamer.store import Store
from streamer.whatif import Change, WhatIf
from streamer.whatif.asking import NothingToJudge
from streamer.whatif.replay import replay
from streamer.whatif.words import caveats
from streamer.wording.numbers import percent
from tests.integration.audit.attacker import batch_of, breaking_in
from tests.integration.audit.conftest import Record
from tests.integration.audit.history import Scribe, event, label_event, scribing, settings_for
from tests.integration.audit.test_clean_histories import RULES
from tests.integration.judge.test_judge_scores import Model, judge_at, scores_at
from tests.migrated import migrated
from tests.told import Told

_HOUR = timedelta(hours=1)


def _live(scribe: Scribe, names: Sequence[str]) -> None:
    """Closed at first, then open, closed by a person, rolled back, with another budget closed again, and open again."""
    store = scribe.store

    def decide(numbers: range) -> None:
        scribe.deliver(event(name, n) for name in names for n in numbers)

    def label(numbers: Sequence[int]) -> None:
        for name in names:
            labels = scribe.drawn_labels(name, numbers, lambda n, i: float((n + i) % 4 == 0))
            scribe.deliver(labels, topic="labels")

    decide(range(16))
    label(range(16))
    for name in names:
        scribe.recalibrate(name)
    decide(range(16, 28))
    for name in names:
        scribe.deliver(
            [
                event(name, 90, responses=[{"id": "r0", "text": "alone"}]),
                event(name, 91, attempt=2),
                event(name, 92, responses=[]),
            ]
        )
        store.policies.close(name, by="ana", reason="an incident")
    decide(range(28, 32))
    for name in names:
        store.policies.rollback(name, 2, by="ana", reason="it is over")
    decide(range(32, 36))
    for name in names:
        store.gates.revise(name, {"alpha": 0.9}, by="ana", reason="bold")
    decide(range(36, 40))
    label([*range(16, 36), 90])
    for name in names:
        scribe.recalibrate(name)
    decide(range(40, 44))
    label(range(36, 44))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, Path]:
    """A gate for each rule, with all that a gate goes through; and one without an audit for a while."""
    directory = tmp_path_factory.mktemp("past")
    settings = settings_for(f"sqlite:///{directory / 'record.db'}", directory)
    migrated(settings)
    with Model() as model, judge_at(model) as judge, wiring.open_store(settings) as store:
        scribe = Scribe(store, settings)
        scribe.judge = scores_at(model, judge, per_minute=10_000)
        for name, chosen in RULES.items():
            scribe.gate(name, **{"alpha": 0.3} | chosen)
        scribe.gate("plain", unit="best", alpha=0.4, least_groups=5)
        _live(scribe, [*RULES, "plain"])
        store.gates.revise("plain", {"audit_probability": 0.0}, by="ana", reason="no more labels")
        scribe.deliver(event("plain", n) for n in range(50, 60))
        scribe.gate("waiting", unit="best", mode="shadow")
        scribe.deliver(event("waiting", n) for n in range(20))
        scribe.deliver(scribe.drawn_labels("waiting", range(10)), topic="labels")
        wiring.recalibrate(settings, "waiting", by="ana", propose=True)
    return settings, directory


@pytest.fixture
def store(written: tuple[Settings, Path]) -> Iterator[Store]:
    with wiring.open_store(written[0]) as opened:
        yield opened


def _asking(written: tuple[Settings, Path], store: Store, gate: str) -> WhatIf:
    now = wiring.now()
    return wiring.what_if(store, gate, since=now - _HOUR, now=now)


@pytest.mark.parametrize("name", RULES)
def test_the_past_comes_out_again_bit_for_bit(written: tuple[Settings, Path], store: Store, name: str):
    asking = _asking(written, store, name)
    assert asking.differences() == ()
    gate = store.gates.get(name)
    now = wiring.now()
    key = gate.settings.segment_by
    past = store.past.read(
        name, since=now - _HOUR, until=now, kind="human", keys=() if key is None else (key,)
    )
    assert len(past) == 46
    blank = 16 if gate.settings.unit == "batch" else 0  # such a batch is held unscored
    alone = int(name != "judge")  # one answer has nothing to agree with, and a judge scores it
    assert (~past.scored).sum() == 1 + alone + blank  # and one batch has no answer
    assert set(past.versions.tolist()) >= {1, 2, 3, 4}
    # By the way in which other policies are tried, with random numbers drawn again and segments as they are named.
    for version in sorted(set(past.versions.tolist())):
        policy = store.policies.get(name, version)
        by_it = past.where(past.versions == version)
        again = replay(by_it, policy.settings, Reading.of_policy(policy), salt=gate.audit_salt)
        assert (again == by_it.shipped).all()
    if not name.startswith(("smooth", "ramp")):
        assert past.shipped.any(), "nothing ships: it shows nothing"
    answer = asking.ask(Change(cut=Cut("closed", None)))
    assert answer.asked.served == 0
    assert len(answer.less.answers) == past.shipped.sum()
    assert answer.asked.exposure.upper < 1


def test_a_given_threshold_says_which_answers_get_through(written: tuple[Settings, Path], store: Store):
    asking = _asking(written, store, "plain")
    opened = asking.ask(Change(cut=Cut("open", None)))
    assert opened.prompts == 56
    assert opened.unscored == 2
    assert opened.unaudited == 10
    assert opened.asked.served == 54 / 56
    assert opened.closed == 24  # versions 1, 3 and 5
    # All was drawn, and all of the first 36 labelled.
    past = store.past.read("plain", since=wiring.now() - _HOUR, until=wiring.now(), kind="human")
    first = past.where(np.array([n < 36 for n in range(56)]))
    known = first.severities[first.drawn]
    assert not np.isnan(known).any()
    at = asking.ask(Change(cut=Cut.at(0.7)))
    through = {(one.batch_id, one.response_id) for one in at.more.answers}
    assert through
    best = {
        (
            past.batch_ids[i],
            past.response_ids[past.of_batch(i).start + int(np.argmax(past.scores[past.of_batch(i)]))],
        )
        for i in np.flatnonzero(past.scored)
    }
    assert through <= best
    assert all(one.score > 0.7 for one in at.more.answers)
    assert all(one.score <= 0.7 for one in at.less.answers)


def test_method_full_comes_out_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Told):
    with scribing(tmp_path) as (settings, store, scribe):
        signals = SignalList().text
        scribe.gate("all", alpha=0.3, method="full", scorer="choice", signals=signals, least_groups=5)
        scribe.deliver(event("all", n) for n in range(60))
        labels = [
            label_event("all", n, response=f"r{i}", severity=float(n % 7 > 3))
            for n in range(120)
            for i in range(4)
        ]
        scribe.deliver(labels[:240], topic="labels")
        scribe.recalibrate("all")
        scribe.deliver(event("all", n) for n in range(60, 120))
        scribe.deliver(labels[240:], topic="labels")
        now = wiring.now()
        past = store.past.read("all", since=now - _HOUR, until=now, kind="human")
        asking = wiring.what_if(store, "all", since=now - _HOUR, now=now)
        policy = store.policies.newest("all")
        assert policy.state == "full"
        assert asking.differences() == ()
        assert past.shipped.sum() >= 20

        again = asking.ask(Change(policy=policy.version))
        assert (again.more.answers, again.less.answers) == ((), ())

        monkeypatch.setenv("STREAMER_DATABASE_URL", settings.database.url)
        there = told("what-if", "all", "--scorer", "gram", status=WRONG_USAGE).err
        assert "--scorer gram goes with a method that cuts one score" in there
        said = " ".join(told("threshold", "show", "all").out.split())
        assert (
            f"{percent(chance_above(0.45, alpha=0.3, groups=60))} of calibrations on 60 prompts expose more than 45 %"
            in said
        )
        assert "is a selection" not in said, "the budget was settled before the first prompt"
        store.gates.revise("all", {"alpha": 0.2}, by="ana", reason="what-if said so")
        scribe.recalibrate("all")
        said = " ".join(told("threshold", "show", "all").out.split())
        assert "when 120 of the 120 prompts that calibrate were decided already" in said
        assert "is a selection" in said

        scribe.deliver(event("all", n) for n in range(120, 150))
        worst = [
            label_event("all", n, response=f"r{i}", severity=1.0) for n in range(120, 150) for i in range(4)
        ]
        scribe.deliver(worst, topic="labels")
        by_hand = (store.calibration, store.policies, store.gates.get("all"))
        recalibrate_by_hand(*by_hand, clock=wiring.now, by="ana", reason="worse", propose=True)
        pages = Pages(store, keys=wiring.policy_keys(settings), clock=wiring.now)
        ((proposed,),) = [pages.proposals({})["proposals"]]
        assert "It would ship more" not in proposed["turn"]
        row = next(one for one in proposed["rows"] if "served" in one[0])
        assert float(row[2].split()[0]) <= float(row[1].split()[0]), row

        with breaking_in(settings.database.url) as connection:
            row = sa.text(
                "update decisions set budget_count = budget_count + 1 where budget_count is not null"
            )
            connection.execute(row)
        found = wiring.what_if(store, "all", since=now - _HOUR, now=now).differences()
        assert {one.what for one in found} == {"needed"}


def test_what_is_too_young_for_its_labels_is_neither_judged_nor_listed(
    written: tuple[Settings, Path], store: Store
):
    asking = _asking(written, store, "waiting")
    answer = asking.ask(Change(cut=Cut("open", None)))
    assert answer.age.because == "age of the middle draw"
    assert answer.prompts == 20
    assert answer.judged == answer.asked.prompts == answer.asked.exposure.decisions == 9
    assert (
        answer.more.prompts == len(answer.more.answers) == answer.asked.answers - answer.recorded.answers == 9
    )
    assert answer.more.selective.estimate == 0
    past = store.past.read("waiting", since=wiring.now() - _HOUR, until=wiring.now(), kind="human")
    assert [one.batch_id for one in answer.more.answers] == list(past.batch_ids[:9])
    assert any(
        "All figures, and the answers that are listed, are of the 9 of 20 prompts" in one
        for one in caveats(answer)
    )
    assert answer.shadow == answer.closed == 9
    assert answer.asked.exposure.overdue == 0
    assert answer.asked.exposure.estimate == 0


def test_the_proposal_is_judged_by_what_comes(written: tuple[Settings, Path], store: Store):
    with pytest.raises(NothingToJudge, match="nothing was decided after"):
        _asking(written, store, "waiting").ask(Change(proposal=True))


def test_an_earlier_policy_is_judged_from_its_calibration_on(written: tuple[Settings, Path], store: Store):
    asking = _asking(written, store, "plain")
    answer = asking.ask(Change(policy=2))
    second, rolled_back = (store.policies.get("plain", version) for version in (2, 4))
    assert answer.basis.before == second.valid_from
    assert answer.prompts == 56 - 16
    assert answer.versions[0] == 2
    assert asking.ask(Change(policy=4)).basis.before == second.valid_from < rolled_back.valid_from
    assert asking.ask(Change(policy=3)).asked.served == 0
    with pytest.raises(UsageError, match="no policy 99"):
        asking.ask(Change(policy=99))
    with pytest.raises(UsageError, match="nothing is proposed"):
        asking.ask(Change(proposal=True))


def test_further_questions_read_nothing_again(
    written: tuple[Settings, Path], store: Store, monkeypatch: pytest.MonkeyPatch
):
    asking = _asking(written, store, "plain")
    asking.ask(Change(cut=Cut.at(0.3)))
    monkeypatch.setattr(store._database, "reading", None)
    for level in (0.2, 0.4, 0.6):
        asking.ask(Change(cut=Cut.at(level)))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"unit": "response"}, "drew answers to label for the unit best"),
        (
            {"scorer": "external", "encoder": "none", "embeddings": "refuse", "dimension": None},
            "cannot be computed from the record",
        ),
        ({"encoder": "other@53aa5117"}, "embeddings of other@53aa5117 are not on record"),
    ],
)
def test_what_the_record_cannot_answer_is_refused(
    written: tuple[Settings, Path], store: Store, change: dict[str, Any], says: str
):
    now = wiring.now()
    asked = GateSettings(**store.gates.get("plain").settings.flat() | change)
    with pytest.raises(UsageError, match=says):
        wiring.tried_gate(written[0], store, "plain", asked, since=now - _HOUR, now=now)


def test_nothing_in_the_period_is_said(written: tuple[Settings, Path], store: Store):
    now = wiring.now() + _HOUR
    asking = wiring.what_if(store, "plain", since=now, now=now + _HOUR)
    with pytest.raises(NothingToJudge, match="decided nothing since"):
        asking.ask(Change(cut=Cut.at(0.5)))


# -- the command ---------------------------------------------------------------------------------------------


@pytest.fixture
def here(written: tuple[Settings, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(written[1] / "record.db", tmp_path)
    monkeypatch.setenv("STREAMER_DATABASE_URL", "sqlite:///record.db")
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.mark.usefixtures("here")
def test_the_command_begins_with_one_sentence(told: Told):
    printed = told("what-if", "plain", "--threshold", "0.5")
    first, second, *_ = printed.out.splitlines()
    assert first.startswith("plain with the threshold Q > 0.5: ")
    assert "of prompts served in place of" in first
    assert "exposure" in first
    assert second.startswith("The threshold was given.")
    assert "bit for bit" in printed.out
    assert "10 prompts" in printed.err


@pytest.mark.usefixtures("here")
def test_the_command_prints_json(told: Told):
    said = json.loads(told("what-if", "plain", "--threshold", ".5", "--json").out)
    assert (said["asked"]["threshold"]["lambda"], said["basis"]["source"]) == (0.5, "given")
    assert said["what_if"]["prompts"] == said["in_force"]["prompts"] == said["prompts"]
    assert said["replay"] == {"as_recorded": True, "differences": []}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nobody"], "there is no gate 'nobody'"),
        (["plain", "--threshold", "much"], "--threshold must be a score"),
        (["plain", "--threshold", "nan"], "--threshold must be a score"),
        (["plain", "--since", "soon"], "--since must be a time"),
        (["plain", "--since", "0"], "--since must be above 0"),
        (["plain", "--monitor-delta", "1"], "--monitor-delta must be between"),
        (["plain", "--against", "2", "--proposal"], "one at a time"),
        (["plain", "--against", "2", "--alpha", ".1"], "without other settings"),
        (["plain", "--alpha", "0"], "alpha must be"),
    ],
)
def test_what_is_asked_wrongly_is_said(told: Told, words: list[str], says: str):
    assert says in told("what-if", *words, status=2).err


def test_a_decision_that_does_not_come_out_again_is_named(here: Path, told: Told):
    assert here.exists()
    with breaking_in("sqlite:///record.db") as connection:
        batch = batch_of(connection, "plain", 3)
        connection.execute(
            sa.text("UPDATE responses SET action = 'ship' WHERE batch = :batch AND position = 1"),
            {"batch": batch},
        )
    printed = told("what-if", "plain", "--threshold", "0.5", status=3)
    assert "batch batch-3, policy 1: r1 shipped and is held" in printed.out
    assert "1 decision differs" in printed.err
    (difference,) = json.loads(told("what-if", "plain", "--threshold", "0.5", "--json", status=3).out)[
        "replay"
    ]["differences"]
    assert (difference["batch_id"], difference["what"]) == ("batch-3", "ships")
    with breaking_in("sqlite:///record.db") as connection:
        connection.execute(
            sa.text("UPDATE decisions SET cut_state = 'cut' WHERE batch = :batch"), {"batch": batch}
        )
    found = told("what-if", "plain", "--threshold", "0.5", status=1).err
    assert "`streamer audit verify` says which row it is" in found


# -- both databases ------------------------------------------------------------------------------------------


def test_the_past_is_the_same_on_every_database(record: Record):
    now = wiring.now()
    with wiring.open_store(record.settings) as store:
        for gate in ("best", "each"):
            asking = wiring.what_if(store, gate, since=now - 24 * _HOUR, now=now)
            assert asking.differences() == ()
            answer = asking.ask(Change(cut=Cut("open", None)))
            shipped, _ = store.reports.decided_and_shipped(gate)
            assert answer.prompts + 1 * (gate == "best") == shipped, "attempt 7 is no first one"
        past = store.past.read(
            "best", since=now - 24 * _HOUR, until=now, kind="human", keys=["kind"], most=10
        )
        assert len(past) == 10
        assert past.earlier == answer_count(store) - 10
        assert past.named["kind"][-1] in ("odd", "even")
        every = store.past.read("best", since=now - 24 * _HOUR, until=now, kind="human")
        assert every.batch_ids[-10:] == past.batch_ids


def answer_count(store: Store) -> int:
    return store.reports.decided_and_shipped("best")[0] - 1
