"""A cheap gate and an expensive one behind it: who is asked, what is on record, and that a repeat takes the same way."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from streamer.gates.settings import GateSettings
from streamer.scoring.signals.signal_list import SignalList
from tests.faults.endpoint import Endpoint, Site
from tests.integration.serving.model_server import AGREED, ANSWERS, ENCODER, Model, run
from tests.services.openai_server import ChatReply, ChatRequest

CHEAP, DEAR = "small", "large"
FLOOR, ABOVE, CUT = 0.5, 0.6, 0.9
HELD = "Ask a person."
GATES: dict[str, dict[str, Any]] = {
    "bot": {"then": "bot-dear", "hold_message": HELD},
    "bot-dear": {"model": DEAR},
    "pooled": {"then": "pooled-dear"},
    "pooled-dear": {"model": DEAR, "with_earlier": True},
    "floorless": {"then": "floorless-dear"},
    "floorless-dear": {"model": DEAR},
    "hopeless": {"then": "hopeless-dear", "then_from": 0.45},
    "hopeless-dear": {"model": DEAR},
    "signals": {"then": "signals-dear"},
    "signals-dear": {"model": DEAR},
    "unfixed": {"then": "unfixed-dear"},
    "unfixed-dear": {"model": DEAR},
    "mixed": {"then": "mixed-dear"},
    "mixed-dear": {"model": DEAR},
}


def alike(request: ChatRequest, count: int) -> ChatReply:
    """Of all answers so many agree: with all of them they score 1, with all but one .82, with none of them near 0."""
    wanted = request.body.get("n", 1)
    texts = [AGREED] * count + [
        f"{request.body['model']} says {request.number}.{one}." for one in range(wanted - count)
    ]
    return ChatReply(texts[0], further=texts[1:])


SURE = (ANSWERS, 0)
"""How many answers of the cheap and of the dear model agree: the cheap gate ships."""
UNSURE = (ANSWERS - 1, ANSWERS)
"""Its best answer scores between label floor and threshold."""
LOST = (0, ANSWERS)
"""Its best answer scores below the floor, and the expensive gate ships."""
BOTH_LOST = (0, 0)


class Plain(NamedTuple):
    """Gates one behind the other, their models, and one endpoint."""

    site: Site
    model: Model
    endpoint: Endpoint


def replying(model: Model, agreeing: tuple[int, int]) -> None:
    model.reply = lambda request: alike(request, agreeing[request.body["model"] == DEAR])


def make(site: Site) -> None:
    for gate in GATES:
        # Methods that know no segments may do without them: these tests put thresholds in force by hand.
        later: dict[str, Any] = {"method": "mean" if gate == "mixed-dear" else "hb"}
        floors = {"floorless": None, "hopeless": 0.6}
        first: dict[str, Any] = {"label_floor": floors.get(gate, FLOOR), "cut": CUT}
        if gate in ("signals", "unfixed"):
            full = {"method": "full", "signals": SignalList().text, "scorer": "choice"}
            first = full | {"ship_above": ABOVE if gate == "signals" else 0.0, "cut": CUT}
        chosen = later if gate.endswith("-dear") else first
        site.gate(gate, **{"scorer": "gram", "encoder": ENCODER} | chosen)


@pytest.fixture(scope="module")
def _plain(tmp_path_factory: pytest.TempPathFactory, migrated_sqlite_file: Path) -> Iterator[Plain]:
    folder = tmp_path_factory.mktemp("rungs")
    shutil.copy(migrated_sqlite_file, folder / "audit.db")
    site = Site(f"sqlite:///{folder / 'audit.db'}", folder)
    with Model() as model, closing(site):
        make(site)
        yield Plain(site, model, model.serve(site, gates=GATES, unpinned=("mixed-dear",)))
        site.check()


@pytest.fixture
def plain(_plain: Plain) -> Plain:
    _plain.model.requests.clear()
    return _plain


@pytest.fixture
def own(tmp_path: Path, migrated_sqlite_url: str) -> Iterator[tuple[Site, Model]]:
    """The same without a process."""
    site = Site(migrated_sqlite_url, tmp_path)
    with Model() as model, closing(site):
        make(site)
        yield site, model


def ask(endpoint: Endpoint, gate: str = "bot", *, key: str | None = None, wait: str = "") -> httpx.Response:
    headers = ({"idempotency-key": key} if key else {}) | ({"prefer": f"wait={wait}"} if wait else {})
    body = {"model": f"gate/{gate}", "messages": [{"role": "user", "content": "Where is my parcel?"}]}
    return endpoint.client.post("/v1/chat/completions", json=body, headers=headers)


def told(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return answer.json()["streamer"]


def text(answer: httpx.Response) -> str:
    message = answer.json()["choices"][0]["message"]
    return message["content"] or message["refusal"]


def models(model: Model) -> list[str]:
    """Which were asked, in order."""
    return [one.body["model"] for one in model.asked]


def on_record(site: Site, batch_id: str) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """By gate: outcome, reason and metadata of each decision about a batch."""
    rows = site.rows(
        "SELECT b.gate, d.outcome, d.reason, b.metadata FROM batches b JOIN decisions d ON d.batch = b.id "
        f"WHERE b.batch_id = '{batch_id}'"
    )
    assert len({gate for gate, *_ in rows}) == len(rows)
    return {
        gate: (outcome, reason, json.loads(kept) if isinstance(kept, str) else kept)
        for gate, outcome, reason, kept in rows
    }


# -- who is asked


@pytest.mark.parametrize(
    ("agreeing", "shown", "gate", "action", "asked"),
    [
        (SURE, AGREED, "bot", "ship", [CHEAP]),
        (BOTH_LOST, HELD, "bot-dear", "abstain", [CHEAP, DEAR]),
        # It may ship once there are labels, and the expensive gate's calibration must not hang on those.
        (UNSURE, HELD, "bot", "abstain", [CHEAP]),
    ],
)
def test_no_more_are_asked_than_need_be_and_the_last_has_the_say(
    plain: Plain, agreeing: tuple[int, int], shown: str, gate: str, action: str, asked: list[str]
) -> None:
    site, model, endpoint = plain
    replying(model, agreeing)
    answer = ask(endpoint)
    said = told(answer)
    assert (text(answer), said["gate"], said["action"], models(model)) == (shown, gate, action, asked)
    assert ("handed_on_by" in said, len(on_record(site, said["batch_id"]))) == (len(asked) > 1, len(asked))


def test_what_scores_at_most_its_floor_is_handed_on(plain: Plain) -> None:
    site, model, endpoint = plain
    replying(model, LOST)
    answer = ask(endpoint)
    said = told(answer)
    assert (text(answer), answer.json()["model"]) == (AGREED, "gate/bot")
    assert (said["gate"], said["action"], said["answers"], said["calls"]) == ("bot-dear", "ship", ANSWERS, 2)
    assert models(model) == [CHEAP, DEAR]
    assert answer.json()["usage"]["total_tokens"] == 900
    assert said["cost"] == pytest.approx(2 * (400 * 0.5 + 50 * 2) / 1e6)
    (before,) = said["handed_on_by"]
    assert (before["gate"], before["calls"], before["answers"]) == ("bot", 1, ANSWERS)

    kept = on_record(site, said["batch_id"])
    assert {gate: outcome for gate, (outcome, _, _) in kept.items()} == {"bot": "abstain", "bot-dear": "ship"}
    first, later = kept["bot"][2], kept["bot-dear"][2]
    assert first["sampling"]["hands_on"] == {"to": "bot-dear", "at_least": 0.0, "at_most": FLOOR}
    assert later["sampling"]["settings"]["after"] == {
        "gate": "bot", "upstream": first["upstream"], "scorer": "gram", "encoder": ENCODER,
        "at_least": 0.0, "at_most": FLOOR,
    }  # fmt: skip
    assert first["upstream"] == before["upstream"]
    assert later["upstream"] == said["upstream"] != first["upstream"]


def test_a_gate_of_all_signals_hands_on_by_a_choice_score_that_is_fixed(plain: Plain) -> None:
    site, model, endpoint = plain
    for agreeing, gate in ((SURE, "signals"), (UNSURE, "signals"), (LOST, "signals-dear")):
        replying(model, agreeing)
        said = told(ask(endpoint, "signals"))
        assert (said["gate"], said["action"]) == (gate, "abstain" if agreeing is UNSURE else "ship")
    rule = on_record(site, said["batch_id"])["signals"][2]["sampling"]["hands_on"]
    assert rule == {"to": "signals-dear", "at_least": 0.0, "at_most": ABOVE}


def test_what_scores_too_little_to_be_worth_a_dear_call_goes_nowhere(plain: Plain) -> None:
    site, model, endpoint = plain
    replying(model, LOST)
    said = told(ask(endpoint, "hopeless"))
    assert (said["gate"], said["action"], models(model)) == ("hopeless", "abstain", [CHEAP])
    # Two of four agree: the best score is that of one like it among three others.
    model.reply = lambda request: alike(request, 2 if request.body["model"] == CHEAP else ANSWERS)
    said = told(ask(endpoint, "hopeless"))
    assert (said["gate"], said["action"], models(model)) == ("hopeless-dear", "ship", [CHEAP, CHEAP, DEAR])
    rule = on_record(site, said["batch_id"])["hopeless"][2]["sampling"]["hands_on"]
    assert rule == {"to": "hopeless-dear", "at_least": 0.45, "at_most": 0.6}


def test_what_was_not_scored_goes_nowhere(plain: Plain) -> None:
    _, model, endpoint = plain
    model.reply = lambda request: ChatReply(status=500)
    assert (told(ask(endpoint))["gate"], models(model)) == ("bot", [CHEAP])


def test_a_later_gate_may_decide_about_earlier_answers_too(plain: Plain) -> None:
    site, model, endpoint = plain
    # Four answers of the dear one that all differ, but one of which the cheap one gave as well.
    model.reply = lambda request: alike(request, 1)
    answer = ask(endpoint, "pooled")
    said = told(answer)
    assert (said["gate"], said["answers"]) == ("pooled-dear", 2 * ANSWERS)
    sampling = on_record(site, said["batch_id"])["pooled-dear"][2]["sampling"]
    assert len(sampling["finish_reasons"]) == 2 * ANSWERS
    assert len(sampling["calls"]) == 1
    rows = site.rows(
        "SELECT text, score FROM responses r JOIN batches b ON b.id = r.batch "
        f"WHERE b.gate = 'pooled-dear' AND b.batch_id = '{said['batch_id']}'"
    )
    best = max(rows, key=lambda row: row[1])
    assert best == (AGREED, pytest.approx((1 / 7) ** 0.5, abs=0.05))
    assert sum(one == AGREED for one, _ in rows) == 2


def test_a_later_gate_is_asked_by_no_caller(plain: Plain) -> None:
    _, model, endpoint = plain
    answer = ask(endpoint, "bot-dear")
    assert (answer.status_code, model.asked) == (404, [])
    assert "ask gate/bot" in answer.json()["error"]["message"]
    listed = [one["id"] for one in endpoint.client.get("/v1/models").json()["data"]]
    assert listed == [
        "gate/bot", "gate/floorless", "gate/hopeless", "gate/mixed", "gate/pooled",
        "gate/signals", "gate/unfixed",
    ]  # fmt: skip


def test_gates_that_would_break_the_promise_say_why(plain: Plain) -> None:
    _, model, endpoint = plain
    for gate, says in (
        ("floorless", "--label-floor"),
        ("unfixed", "--ship-above"),
        ("mixed", "streamer gate set mixed-dear --upstream large@"),
    ):
        answer = ask(endpoint, gate)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsuited_gate")
        assert says in answer.json()["error"]["message"]
    assert model.asked == []


# -- again


@pytest.mark.parametrize("agreeing", [SURE, UNSURE, LOST, BOTH_LOST])
def test_a_repeat_gets_the_recorded_answer(plain: Plain, agreeing: tuple[int, int]) -> None:
    _, model, endpoint = plain
    replying(model, agreeing)
    key = f"again-{agreeing}"
    first = ask(endpoint, key=key)
    asked = len(model.asked)
    replying(model, SURE if agreeing is not SURE else LOST)
    again = ask(endpoint, key=key)
    assert again.content == first.content
    assert ("idempotent-replayed" in first.headers, again.headers["idempotent-replayed"]) == (False, "true")
    assert len(model.asked) == asked


def test_whoever_was_told_a_hold_is_told_it_whatever_the_settings_become(own: tuple[Site, Model]) -> None:
    site, model = own
    endpoint = model.serve(site, gates=GATES)
    answers = {}
    for agreeing in (UNSURE, LOST, BOTH_LOST):
        replying(model, agreeing)
        answers[agreeing] = ask(endpoint, key=str(agreeing)).content
    asked = len(model.asked)
    run(site, "gate", "set", "bot", "--label-floor", "0.95", "--reason", "test")
    alone = {gate: {name: one[name] for name in one if name != "then"} for gate, one in GATES.items()}
    alone = {gate: one for gate, one in alone.items() if "with_earlier" not in one}
    replying(model, SURE)
    for changed in (endpoint, model.serve(site, gates=alone)):
        for agreeing, content in answers.items():
            assert ask(changed, key=str(agreeing)).content == content
    assert len(model.asked) == asked
    site.check()


def test_killed_between_two_gates_a_repeat_goes_on_where_it_was(own: tuple[Site, Model]) -> None:
    site, model = own
    replying(model, LOST)
    endpoint = model.serve(site, gates=GATES, failpoints="before_commit=kill@2")
    with pytest.raises(httpx.TransportError):
        ask(endpoint, key="k")
    endpoint.wait_until_killed()
    assert set(on_record(site, "k")) == {"bot"}
    answer = ask(model.serve(site, gates=GATES), key="k")
    assert (text(answer), told(answer)["gate"]) == (AGREED, "bot-dear")
    assert "idempotent-replayed" not in answer.headers
    assert models(model) == [CHEAP, DEAR, DEAR]
    found = {gate: one[0] for gate, one in on_record(site, "k").items()}
    assert found == {"bot": "abstain", "bot-dear": "ship"}
    site.check()


def test_at_its_deadline_it_is_held_for_good(plain: Plain) -> None:
    site, model, endpoint = plain
    model.reply = lambda request: (
        ChatReply(AGREED, after=60) if request.body["model"] == DEAR else alike(request, 0)
    )
    said = told(ask(endpoint, key="late", wait="3"))
    assert (said["gate"], said["action"], said["reason"]) == ("bot-dear", "abstain", "deadline_passed")
    replying(model, LOST)
    assert told(ask(endpoint, key="late")) == said
    assert set(on_record(site, "late")) == {"bot", "bot-dear"}


# -- the whole way

JOINED = "batches b JOIN decisions d ON d.batch = b.id"


def test_a_rung_without_labels_stays_closed_and_so_does_one_that_gets_other_prompts(
    own: tuple[Site, Model],
) -> None:
    """From nothing to two thresholds, and then another floor."""
    site, model = own
    settings: dict[str, Any] = {"encoder": ENCODER, "mode": "enforce", "audit_probability": 1.0, "alpha": 0.2}
    site.store.gates.create("way", GateSettings(**settings, label_floor=FLOOR), by="ana", reason="test")
    site.store.gates.create(
        "way-dear", GateSettings(**settings, segment_by="upstream"), by="ana", reason="test"
    )
    gates: dict[str, dict[str, Any]] = {"way": {"then": "way-dear"}, "way-dear": {"model": DEAR}}
    endpoint = model.serve(site, gates=gates)
    for number in range(16):
        replying(model, SURE if number % 2 else LOST)
        ask(endpoint, "way", key=f"q-{number}")
    for gate, drawn in (("way", 8), ("way-dear", 9)):
        assert {
            one[1] for one in site.rows(f"SELECT b.gate, d.reason FROM {JOINED} WHERE b.gate = '{gate}'")
        } == {"no_threshold"}
        labels = [
            {"batch_id": batch, "response_id": response, "severity": 0.0, "kind": "human", "labeller": "ana"}
            for batch, action in site.rows(
                f"SELECT b.batch_id, d.action_value FROM {JOINED} WHERE b.gate = '{gate}'"
            )
            for response in json.loads(bytes(action))["audit"]["label"]
        ]
        assert len(labels) == drawn, "what is handed on needs no label where it came from"
        assert endpoint.client.post(f"/v1/gates/{gate}/labels", json=labels).json() == {"recorded": drawn}
        run(site, "recalibrate", gate)
        # The expensive gate waits for labels of its own: it is closed until its turn.
        replying(model, LOST)
        said = told(ask(endpoint, "way"))
        assert (said["gate"], said["action"]) == ("way-dear", "ship" if gate == "way-dear" else "abstain")
    replying(model, SURE)
    assert told(ask(endpoint, "way"))["gate"] == "way"
    run(site, "gate", "set", "way", "--label-floor", "0.6", "--reason", "test")
    replying(model, LOST)
    said = told(ask(model.serve(site, gates=gates), "way"))
    assert (said["gate"], said["action"], said["reason"]) == ("way-dear", "abstain", "closed")
    site.check()
