"""Gates of claims: what ships, what the action says, and what all verifiers make of the record."""

import csv
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import sqlalchemy as sa
from msgspec import to_builtins

from streamer import wiring
from streamer.audit.story import shown_of
from streamer.calibration.claims import LOSSES, claim_loss, shipped_claims
from streamer.cli import main
from streamer.clouds.claims import claims_in
from streamer.clouds.evaluated_claims import ClaimOptions, evaluate_prompts
from streamer.console.what_if import Questions
from streamer.errors import UsageError
from streamer.events.actions import ActionsV1, decode_action, text_to_show
from streamer.events.desk import DeskV1, decode_desk
from streamer.events.responses import decode_responses
from streamer.frames.recorded import NothingToTry, claimed
from streamer.gates.rule import Cut, Segments
from streamer.gates.settings import GateSettings
from streamer.risk.rounds.alarm_terms import goes_on, opened
from streamer.risk.rounds.logged import LoggedDecision, Terms
from streamer.risk.rounds.watch import RiskWatch
from streamer.scoring.registry import OF_CLAIMS
from streamer.store import Store
from streamer.store.audit.forgetting import prune
from streamer.store.db.schema import batches, decisions, responses
from streamer.store.desk.release_desk import AlreadyDecided, Reject, Release
from streamer.store.desk.rows import DeskClaims
from streamer.whatif import Change
from streamer.whatif.words import sentence
from streamer.wiring.candidates import set_candidate
from streamer.wording.verdicts import desk_text
from streamer_verify.bundle import Bundle
from streamer_verify.command import verify_bundle as verify_alone
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.history import KEYS, Scribe, export, label_event, scribing, settings_for, verify
from tests.integration.watching.conftest import Shown
from tests.made import a_batch
from tests.migrated import migrated

PROMPTS, AFTER, ALPHA = 60, 12, 0.1
CHOSEN: dict[str, Any] = {"unit": "claim", "scorer": "support", "method": "mean", "alpha": ALPHA}
CHOSEN |= {"pending": "worst", "audit_probability": 0.9}
CHOSEN |= {"embeddings": "refuse", "dimension": None, "encoder": "none"}
SAID = ("Ada wrote notes.", "Bern has {0} towers!", "Lyon has {0} hills.", "Riga lies at the sea.")
GATES: dict[str, dict[str, Any]] = {
    name.replace(":C", "").replace("-", ""): {"loss": name.replace("C", "2")} for name in LOSSES
} | {"marked": {"left_out": "mark", "label_floor": 0.6}, "half": {"least_kept": 0.5}, "given": {}}
GATES["learned"] = {"scorer": "support-learned", "encoder": "support-learned@1"}
GATES |= {
    "betting": {"method": "betting", "alpha": 0.3},
    "aged": {"method": "age", "rho": 0.99, "alpha": 0.2},
}
GATES["parts"] = {"segment_by": "tongue", "alpha": 0.2}
GATES["desk"] = {"hold_action": "escalate", "desk_deadline_seconds": 9000.0, "left_out": "mark"}
RESTS_ON = {"k0": ["k2"], "k3": ["k0", "k1"]}


def is_wrong(number: int, claim: int) -> bool:
    return claim == (number // 3) % 4 and number % 3 > 0


def answers(gate: str, number: int) -> bytes:
    """Four claims; the others mostly say something else where one of them is wrong."""
    rng = np.random.default_rng([number, 5])
    texts = []
    for answer in range(3):
        said = []
        for claim, text in enumerate(SAID):
            other = is_wrong(number, claim) if rng.uniform() < 0.8 else rng.uniform() < 0.1
            other &= answer > 0
            said.append(text.format(7) if not other else f"No {claim + answer} of {answer} at all.")
        texts.append(" ".join(said))
    tongue = {"metadata": {"tongue": "ab"[number % 2]}} if gate == "parts" else {}
    event = json.loads(a_batch(gate, number, texts, **tongue))
    first = event["responses"][0]
    first["text"] = f"<think>Let me see.</think>\n{first['text']}"
    if gate in ("given", "desk"):
        spans = [(first["text"].index(part[:6]), part) for part in (one.format(7) for one in SAID)]
        first["claims"] = [
            {"id": f"k{i}", "text": text[:-1], "span": [at, at + len(text) - 1]}
            for i, (at, text) in enumerate(spans)
        ]
        for one in first["claims"]:
            one["rests_on"] = RESTS_ON.get(one["id"], [])
    return json.dumps(event).encode()


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("claims")
    with scribing(folder) as (_, store, scribe):
        for name, given in GATES.items():
            scribe.gate(name, **(CHOSEN | given))
            scribe.deliver(answers(name, n) for n in range(PROMPTS))
            ids = "k{}" if name in ("given", "desk") else "c0{}"
            scribe.deliver(
                (
                    label_event(name, n, response=ids.format(claim), severity=float(is_wrong(n, claim)))
                    for n in range(PROMPTS)
                    for claim in range(4)
                    if (n, claim) != (1, 3)
                ),
                topic="labels",
            )
            scribe.recalibrate(name)
            if name == "half":
                wanted = replace(store.gates.get(name).settings, loss="share", least_kept=1.0)
                set_candidate(store, name, wanted, cut=Cut.at(0.6), by="ana", reason="may keep more")
            scribe.deliver(answers(name, n) for n in range(PROMPTS, PROMPTS + AFTER))
        scribe.checkpoint()
    return folder


@pytest.fixture
def store(record: Path) -> Iterator[Store]:
    with wiring.open_store(settings_for(f"sqlite:///{record / 'record.db'}", record)) as one:
        yield one


def decided(store: Store, gate: str) -> list[tuple[int, ActionsV1]]:
    query = (
        sa.select(batches.c.batch_id, decisions.c.action_value)
        .join(decisions, decisions.c.batch == batches.c.id)
        .where(batches.c.gate == gate)
        .order_by(batches.c.id)
    )
    with store._database.reading() as connection:
        rows = connection.execute(query).all()
    return [(int(row.batch_id.split("-")[1]), decode_action(row.action_value)) for row in rows]


@pytest.mark.parametrize("gate", GATES)
def test_what_scores_above_the_threshold_ships_and_nothing_besides(store: Store, gate: str) -> None:
    policy = store.policies.newest(gate)
    threshold, held = policy.threshold, "escalate" if gate == "desk" else "abstain"
    own = dict(policy.rule.own) if isinstance(policy.rule, Segments) else {}
    assert set(own) == ({"a", "b"} if gate == "parts" else set())
    outcomes = set()
    for number, action in decided(store, gate)[PROMPTS:]:
        outcomes.add(action.action)
        batch = decode_responses(answers(gate, number))
        whole, shown = batch.responses[0].text, text_to_show(batch, action)
        cut = own["ab"[number % 2]].threshold if own else threshold
        assert cut is not None
        ships = [one.score is not None and one.score > cut for one in action.responses]
        if gate == "half" and sum(ships) < 2:
            ships = [False] * 4
        assert [one.action == "ship" for one in action.responses] == ships
        assert action.action == ("ship" if all(ships) else "mixed" if any(ships) else held)
        waits = gate == "desk" and not all(ships)
        assert (action.desk_until is not msgspec.UNSET) is waits
        assert action.answer == "r0"
        for one, out in zip(action.responses, ships, strict=True):
            assert isinstance(one.span, tuple)
            said = whole[slice(*one.span)].strip()
            if not any(ships):
                assert shown is None
            elif gate in ("marked", "desk"):
                assert (f"[unsupported: {said}]" in (shown or "")) is not out
            else:
                assert (said in (shown or "")) is out
        assert "think" not in (shown or "")
        with store.evidence.snapshot() as snapshot:
            (found,) = snapshot.decisions_of(f"batch-{number}", gate=gate, attempt=1)
        assert shown_of(found) == shown
    assert "mixed" in outcomes


def test_a_claim_ships_with_what_it_rests_on_or_not_at_all(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = 0
    for _, action in decided(store, "given"):
        score = {one.id: one.score or 0.0 for one in action.responses}
        assert all(score[one] <= min(map(score.__getitem__, on)) for one, on in RESTS_ON.items())
        alone += score["k3"] == score["k2"] != score["k1"]  # by way of k0
    assert alone

    settings = settings_for(f"sqlite:///{tmp_path / 'record.db'}", tmp_path)
    migrated(settings)
    monkeypatch.setattr("streamer.events.claims.least", lambda scores, _rests_on: scores)
    with wiring.open_store(settings) as other:
        scribe = Scribe(other, settings)
        scribe.gate("given", **CHOSEN)
        scribe.deliver(answers("given", n) for n in range(6))
        scribe.checkpoint()
    export(settings, tmp_path / "bundle")
    found = verify_bundle(tmp_path / "bundle", KEYS, [])
    assert {one["check"] for one in found.faults} == {"score"}, found.faults


def put_back(store: Store, *, by: str = "account:ana") -> dict[str, DeskV1]:
    """Put claims back into the first three batches in which k3 was held and k1 was not."""
    made: dict[str, DeskV1] = {}
    for waits in store.desk.waiting(limit=200):
        offer = store.desk.batch(waits.key)
        held = offer.claims.held
        if waits.reason != "scored" or not {"k0", "k3"} <= set(held) or "k1" in held:
            continue
        with pytest.raises(UsageError, match=r"claim k3 rests on k0|claim k0 rests on k2"):
            store.desk.decide(waits.key, Release(response_id="r0", claims=("k3",)), by=by)
        for claims in ((), ("k1",), ("k9",), (*held, held[0])):
            with pytest.raises(UsageError, match="choose what to put back"):
                store.desk.decide(waits.key, Release(response_id="r0", claims=claims), by=by)
        with pytest.raises(UsageError, match="no answer 'r1'"):
            store.desk.decide(waits.key, Release(response_id="r1", claims=held), by=by)
        act: Release | Reject = Release(response_id="r0", claims=held)
        if len(made) == 1:
            act = Release(response_id="r0", claims=held, text="All in other words.")
        elif made:
            act = Reject()
        made[waits.key.batch_id] = store.desk.decide(waits.key, act, by=by)
        assert store.desk.decide(waits.key, act, by=by) == made[waits.key.batch_id]
        with pytest.raises(AlreadyDecided):
            store.desk.decide(waits.key, act, by="account:ben")
        if len(made) == 3:
            break
    return made


def test_a_person_puts_claims_back_into_an_answer(store: Store, record: Path) -> None:
    one, edited, rejected = put_back(store).values()
    batch = decode_responses(answers("desk", int(one.batch_id.split("-")[1])))
    assert one.text == " ".join(said.text for said in batch.responses[0].claims or ())
    assert (one.selected, one.edited, edited.edited) == ("r0", False, True)
    assert one.claims
    assert edited.text == "All in other words."
    assert (rejected.claims, rejected.text) == (msgspec.UNSET, None)
    messages = [m.value for m in store.unpublished([], limit=5000) if m.topic == "streamer.desk"]
    assert list(map(decode_desk, messages)) == [one, edited, rejected]
    settings = settings_for(f"sqlite:///{record / 'record.db'}", record)
    with wiring.open_store(settings) as fresh:
        Scribe(fresh, settings).checkpoint()


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ("text", "the answer is not the one it says"),
        ("k2", "what was put back are not held claims of its answer"),
        ("k3", "a claim was put back without one it rests on"),
    ],
)
def test_what_was_put_back_is_checked(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, detail: str
) -> None:
    shutil.copytree(record, tmp_path / "wrong")
    settings = settings_for(f"sqlite:///{tmp_path / 'wrong' / 'record.db'}", tmp_path / "wrong")

    def lax(self: DeskClaims, back: Any) -> str:
        return (
            "Else."
            if change == "text"
            else self._text({one.id for one in self.said if one.ships or one.id in back})
        )

    with wiring.open_store(settings) as store:
        for waits in store.desk.waiting(limit=200):
            offer = store.desk.batch(waits.key)
            held = offer.claims.held
            if (waits.reason, held) == ("scored", ("k1", "k3")):
                break
        monkeypatch.setattr(DeskClaims, "with_claims", lax)
        store.desk.decide(
            waits.key,
            Release(response_id="r0", claims=held if change == "text" else (change,)),
            by="account:ana",
        )
        Scribe(store, settings).checkpoint()
    export(settings, tmp_path / "bundle")
    assert [one["detail"] for one in verify_alone(Bundle(tmp_path / "bundle"), KEYS, []).faults] == [detail]


def test_every_claim_of_a_drawn_prompt_is_asked_for_above_a_floor(store: Store) -> None:
    drawn = [(n, one) for n, one in decided(store, "any") if one.audit.sampled]
    assert {len(one.audit.label) for _, one in drawn} == {4}
    assert PROMPTS // 2 < sum(n < PROMPTS for n, _ in drawn) < PROMPTS
    floored = [one for _, one in decided(store, "marked") if one.audit.sampled]
    assert any(len(one.audit.label) < 4 for one in floored)


def test_every_verifier_follows_and_finds_what_was_changed(record: Path, tmp_path: Path) -> None:
    settings = settings_for(f"sqlite:///{record / 'record.db'}", record)
    assert not verify(settings, outside=[]).faults
    export(settings, tmp_path / "bundle")
    assert not verify_bundle(tmp_path / "bundle", KEYS, []).faults
    control = (tmp_path / "bundle" / "control.jsonl").read_text("utf-8")
    changes = ('"loss":"share"', '"loss":"any"'), ('"least_kept":0.5', '"least_kept":1.0')
    for before, after in changes:
        assert before in control
        (tmp_path / "bundle" / "control.jsonl").write_text(control.replace(before, after), "utf-8")
        assert verify_bundle(tmp_path / "bundle", KEYS, []).faults


def test_erasure_leaves_no_text_of_a_claim_and_the_rest_still_follows(record: Path, tmp_path: Path) -> None:
    shutil.copytree(record, tmp_path / "erased")
    url = f"sqlite:///{tmp_path / 'erased' / 'record.db'}"
    words = b"Ada wrote", b"towers!", b"Riga lies"
    later = wiring.now() + timedelta(days=1)
    pruned = prune(url, older_than=timedelta(0), now=later, sooner_than_six_months=True)
    assert pruned.batches == len(GATES) * (PROMPTS + AFTER)
    settings = settings_for(url, tmp_path / "erased")
    with wiring.open_store(settings) as store, store._database.reading() as connection:
        texts = sa.select(sa.func.count()).where(responses.c.text.is_not(None))
        assert connection.execute(texts).scalar_one() == 0
        for value in connection.execute(sa.select(decisions.c.action_value)).scalars():
            assert not any(word in value for word in words)
    export(settings, tmp_path / "bundle")
    assert not verify_bundle(tmp_path / "bundle", KEYS, []).faults


@pytest.mark.parametrize(
    ("loss", "severities", "found"),
    [
        ("any", (0.0, 1.0), 1.0),
        ("share", (0.0, 1.0), 0.25),
        ("mass:4", (1.0, 1.0), 0.5),
        ("wrong-among", (0.0, 1.0), 0.5),
        ("any", (0.0,), None),
        ("any", (0.5,), None),
        ("any", (1.0,), 1.0),  # the first wrong one decides
        ("share", (1.0,), None),
    ],
)
def test_monitoring_reads_the_loss_of_the_claims_that_shipped(
    loss: str, severities: tuple[float, ...], found: float | None
) -> None:
    settings = GateSettings(unit="claim", scorer="support", encoder="none", loss=loss)
    one = LoggedDecision(
        number=1, batch_id="b", policy_version=1, settings=settings, run=1, can_ship=True,
        decided_at=wiring.now(), scored=True, sampled=True, probability=1.0, shipped=1.0,
        drawn=4, needed=2, severities=severities,
    )  # fmt: skip
    assert one.loss == found
    assert replace(one, needed=0, severities=()).loss == 0
    assert one.most == {"any": 1, "share": 0.5, "mass:4": 0.5, "wrong-among": 1}[loss]


def test_labels_up_to_the_first_wrong_claim_come_to_the_same_as_all(tmp_path: Path) -> None:
    """One gate has all its labels, the other those that its queue asks for, one after the other."""
    settings = settings_for(f"sqlite:///{tmp_path / 'record.db'}", tmp_path)
    migrated(settings)
    names = "all", "asked"

    def severity(number: int, claim: str) -> float:
        return float(number % 3 > 0 and int(claim[1:]) == number % 4)

    with wiring.open_store(settings) as store:
        scribe, given = Scribe(store, settings), 0

        def labelled(numbers: range) -> int:
            scribe.deliver(
                (
                    label_event("all", n, response=claim, severity=severity(n, claim))
                    for n in numbers
                    for claim in ("c00", "c01", "c02", "c03")
                ),
                topic="labels",
            )
            given = 0
            while waiting := store.labels.queue("asked"):
                first = next(iter({one.key: one for one in reversed(waiting)}.values()))
                number = int(first.key.batch_id.split("-")[1])
                claim = first.response_id
                label = label_event("asked", number, response=claim, severity=severity(number, claim))
                scribe.deliver([label], topic="labels")
                given += 1
            return given

        for name in names:
            scribe.gate(name, **(CHOSEN | {"audit_probability": 1.0, "pending": "age", "alpha": 0.2}))
        for numbers in (range(PROMPTS), range(PROMPTS, 2 * PROMPTS)):
            for name in names:
                scribe.deliver(answers(name, n) for n in numbers)
            given += labelled(numbers)
            for name in names:
                scribe.recalibrate(name)
        assert 2 * PROMPTS < given < 7 * PROMPTS
        assert store.labels.pending() == {"all": 0, "asked": 0}
        one, other = (store.policies.newest(name) for name in names)
        assert (one.state, one.threshold, one.guarantee) == (other.state, other.threshold, other.guarantee)
        assert one.threshold is not None
        watcher = RiskWatch(store.monitoring, alerts=store.alerts, observer=Shown())
        for name in names:
            watcher.watch(name, now=wiring.now())
        reports = [store.monitoring.judged(name, now=wiring.now()) for name in names]
        known = []
        for report in reports:
            assert report.service.backlog is not None
            period = report.service.period
            known.append((report.service.backlog.labels, period.decisions, period.overdue, period.exposure))
        assert known[0] == known[1]
        assert known[0][:2] == (0, PROMPTS)
        scribe.checkpoint()
    export(settings, tmp_path / "bundle")
    assert not verify_bundle(tmp_path / "bundle", KEYS, []).faults


@pytest.mark.parametrize(("gate", "everything"), [("any", 2 / 3), ("share", 1 / 6), ("mass", 1 / 3)])
def test_an_alarm_compares_what_prompts_lose_with_what_they_would_lose_by_all_claims(
    store: Store, gate: str, everything: float
) -> None:
    run, threshold = store.policies.newest(gate).calibration_run, store.policies.newest(gate).threshold
    assert run is not None
    found = store.monitoring.calibrated(run)
    assert found.mean_severity == pytest.approx(everything, abs=0.1)
    drawn = [one for n, one in decided(store, gate) if one.audit.sampled and n < PROMPTS]
    served = [max(said.score or 0.0 for said in one.responses) > (threshold or 0.0) for one in drawn]
    assert found.ship_share == np.mean(served)


def test_another_loss_begins_another_sequence_and_another_alarm() -> None:
    one, other = (
        GateSettings(unit="claim", scorer="support", encoder="none", loss=loss) for loss in ("any", "share")
    )
    assert Terms.of(one) != Terms.of(other)
    alarm = opened("risk", one, after=0)
    assert goes_on(alarm, one)
    assert not goes_on(alarm, other)


def a_file(gate: str, numbers: list[int], path: Path) -> str:
    """What the gate has decided and labelled, as a file with claims."""
    rows = []
    for n in numbers:
        event = json.loads(answers(gate, n))
        first, *others = event["responses"]
        cut = claims_in(first["text"])
        claims = [
            {"id": one.id, "text": one.text, "label": float(is_wrong(n, at))} for at, one in enumerate(cut)
        ]
        said = [{"text": first["text"], "claims": claims}, *({"text": one["text"]} for one in others)]
        rows.append({"question_id": f"batch-{n}", "question": event["prompt"], "responses": said})
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    return str(path)


@pytest.fixture
def told(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    """What a command says of the record, as JSON."""
    monkeypatch.setenv("STREAMER_DATABASE_URL", f"sqlite:///{record / 'record.db'}")
    monkeypatch.chdir(tmp_path)

    def say(*command: str) -> Any:
        assert main([*command, "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    return say


def test_the_record_answers_as_a_file_of_the_same_claims(
    store: Store, told: Callable[..., Any], tmp_path: Path
) -> None:
    drawn = [n for n, one in decided(store, "share") if one.audit.sampled and n < PROMPTS]
    asked = ["evaluate", "--unit", "claim", "--loss", "share", "--alpha", "10%", "--alpha", "20%"]
    path = a_file("share", drawn, tmp_path / "clouds.jsonl")
    now = wiring.now()
    batches = [
        one
        for one in store.answers.audited("share", settings=store.gates.get("share").settings, older_than=now)
        if int(one.batch_id.split("-")[1]) < PROMPTS
    ]
    missing = {one.batch_id for one in batches if any(said.severity is None for said in one.responses)}
    assert missing <= {"batch-1"}  # (1, 3), which is wrong of neither
    for scorer in OF_CLAIMS:  # of the other one the texts on record are scored
        (file,) = told(*asked, "--scorer", scorer, path)
        options = ClaimOptions(losses=("share",), alphas=(0.1, 0.2), scorer=scorer)
        prompts, left = claimed(batches, store.gates.get("share").settings, scorer)
        own = to_builtins(evaluate_prompts("gate share", prompts, options))
        assert not left
        if not missing:
            assert {**file, "name": ""} == {**json.loads(msgspec.json.encode(own)), "name": ""}
    erased = [replace(one, metadata=None) for one in batches]
    with pytest.raises(NothingToTry, match=f"{len(erased)} prompts are left out: the texts are"):
        claimed(erased, store.gates.get("share").settings, "support-learned")
    (whole,) = told(*asked, "--from-store", "share")
    assert (whole["name"], len(whole["rows"])) == ("gate share", 2)
    tried = told("what-if", "share", "--alpha", "20%")
    assert [row for one in tried for row in one["rows"]] == whole["rows"][::-1]
    first, own_loss = told("what-if", "half", "--loss", "wrong-among", "--least-kept", "0")
    assert [one["rows"][0]["loss"] for one in (first, own_loss)] == ["wrong-among", "any"]
    assert [one["name"] for one in (first, own_loss)] == ["gate half, what if", "gate half, as it is"]
    (half,) = told("evaluate", "--from-store", "half", "--alpha", f"{own_loss['rows'][0]['alpha']}")
    assert half["rows"] == own_loss["rows"]  # by the gate's least kept
    assert main(["evaluate", "--from-store", "share", "--unit", "best"]) == 2
    tried = told("what-if", "share", "--scorer", "support-learned")
    asked = [*asked[:-2], "--from-store"]
    (other,) = told(*asked, "share", "--scorer", "support-learned")
    assert [one["scorer"] for one in tried] == ["support-learned", "support"]
    assert tried[0] == {**other, "name": "gate share, what if"}
    (own,) = told(*asked, "learned")
    assert own["scorer"] == "support-learned"


@pytest.mark.parametrize("gate", GATES)
def test_another_threshold_is_replayed_claim_by_claim(store: Store, gate: str) -> None:
    now = wiring.now()
    asking = wiring.what_if(store, gate, since=now - timedelta(hours=1), now=now)
    settings, cut = store.gates.get(gate).settings, 0.5
    answer = asking.ask(Change(cut=Cut.at(cut)))
    assert answer.differences == ()
    served = claims = 0
    lost = []
    for number, action in decided(store, gate)[: answer.judged]:  # the others are too young
        scores = np.array([one.score for one in action.responses], dtype=np.float64)
        ships = shipped_claims(scores, cut, least_kept=settings.least_kept)
        served += ships.any()
        claims += ships.sum()
        if action.audit.sampled:
            asked_for = np.array([one.id in action.audit.label for one in action.responses])
            wrong = np.array([float(is_wrong(number, at)) for at in range(4)])
            lost.append(claim_loss(settings.loss).at(wrong[asked_for], ships[asked_for]))
    assert (answer.asked.served, answer.asked.answers) == (served / answer.judged, claims)
    exposure = answer.asked.exposure
    assert exposure.lower <= np.mean(lost) <= exposure.upper
    found = sentence(answer, Change(cut=Cut.at(cut)))
    assert f"loss {settings.loss} of a prompt that gets something" in found


def test_a_candidate_decides_the_claims_beside_the_gate(store: Store) -> None:
    candidate, settings = store.candidates.present("half")
    assert store.candidates.counts(candidate.number) == {None: AFTER}
    with store._database.reading() as connection:
        query = sa.select(decisions.c.batch).where(decisions.c.gate == "half")
        numbers = list(connection.execute(query).scalars())
    kept = set()
    for one in store.candidates.made("half", settings, numbers):
        made = one.decision
        scores = np.array(made.scores, dtype=np.float64)
        assert one.response_ids == tuple(f"c0{i}" for i in range(4))
        assert made.shipped == tuple(shipped_claims(scores, 0.6, least_kept=1.0))
        kept.add(sum(made.shipped or ()))
    assert kept == {0, 4}
    asking = wiring.what_if(store, "half", since=wiring.now() - timedelta(hours=1), now=wiring.now())
    answer = asking.ask(Change(candidate=True))
    assert (answer.differences, answer.settings.loss) == ((), "share")


def test_the_slider_asks_about_claims(store: Store) -> None:
    questions = Questions(store, clock=wiring.now)
    budget = questions.answer("share", {"budget": "20"})
    assert budget["wrong"] is None
    wanted = ["share of prompts that get something", "kept of an answer"]
    assert [row[0] for row in budget["rows"]][:2] == wanted
    threshold = questions.answer("share", {"about": "threshold", "threshold": "0.4"})
    assert (threshold["wrong"], threshold["named"]) == (None, ("claim", "claims"))
    assert threshold["changes"][0][1]["count"] + threshold["changes"][1][1]["count"] > 0


def test_exports_and_the_desk_speak_of_claims(
    store: Store, record: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STREAMER_DATABASE_URL", f"sqlite:///{record / 'record.db'}")
    assert main(["export", "labels", "--gate", "any"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {(row["unit"], row["response_id"]) for row in rows} == {("claim", f"c0{i}") for i in range(4)}
    assert main(["label", "queue", "--gate", "any"]) == 0
    assert re.search(r"\d+ claims? waits? for a severity", capsys.readouterr().err)
    if not store.desk.lately():
        put_back(store)
    one = next(one for one in store.desk.lately() if one.claims and not one.edited)
    number, back = int(one.batch_id.split("-")[1]), sorted(one.claims or ())
    given = {name: float(name == back[0]) for name in back} | {"k1": 1.0}  # which the gate had shipped
    labels = (label_event("desk", number, response=name, severity=bad) for name, bad in given.items())
    Scribe(store, settings_for(f"sqlite:///{record / 'record.db'}", record)).deliver(labels, topic="labels")
    found = store.desk.in_period("desk", store.gates.get("desk").settings, now=wiring.now())
    assert (found.labelled, found.severity) == (len(back), 1 / len(back))
    assert f"Of {len(back)} claim" in desk_text(found)
