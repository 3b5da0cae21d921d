"""Who the console lets in, and what each role may do, tried as an attacker would: with plain HTTP."""

import http.client
import json
import re
from contextlib import closing
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount, Route

import streamer.console.doors
from streamer.console.doors import (
    IDLE_SECONDS,
    LONGEST_SECONDS,
    OF_ANY_ADDRESS,
    OF_ONE_ADDRESS,
    OF_ONE_NAME,
    TooMany,
)
from streamer.console.render import STATIC
from streamer.errors import UsageError
from streamer.events.alerts import alert as another
from streamer.gates.policy import MONITOR
from streamer.recalibration.one_gate import recalibrate_by_hand
from streamer.web.requests import caller
from tests.integration.console.conftest import PASSWORD, ROLES, Client, Site
from tests.integration.store.conftest import START, World
from tests.integration.store.labelled_gate import GATE, LabelledGate

ACTS: dict[str, dict[str, Any]] = {
    "/proposals/approve": {"gate": GATE, "run": 2},
    "/proposals/reject": {"gate": GATE, "run": 2, "reason": "no"},
    "/gates/close": {"gate": GATE, "reason": "no"},
    "/gates/rollback": {"gate": GATE, "version": 2, "reason": "no"},
    "/gates/mode": {"gate": GATE, "mode": "shadow", "reason": "no"},
    "/gates/recalibrate": {"gate": GATE, "reason": "no"},
    "/gates/budget": {"gate": GATE, "budget": "7", "reason": "no"},
    "/candidates/approve": {"gate": GATE},
    "/candidates/reject": {"gate": GATE, "reason": "no"},
    "/alerts/acknowledge": {"alert": "nothing", "reason": "seen"},
    "/alerts/assign": {"alert": GATE, "assignee": "mallory"},
    "/desk/release": {"gate": GATE, "batch": "order-1", "answer": "a"},
    "/desk/reject": {"gate": GATE, "batch": "order-1"},
    "/people/add": {"name": "mallory", "role": "administrator", "password": PASSWORD, "again": PASSWORD},
    "/people/roles": {"name": "viewer", "role": "administrator"},
    "/people/password": {"name": "administrator", "password": PASSWORD, "again": PASSWORD},
    "/people/close": {"name": "administrator"},
    "/you/password": {"now": PASSWORD, "password": PASSWORD, "again": PASSWORD},
}
PAGES = {
    "/": "look",
    f"/gate/{GATE}": "look",
    "/proposals": "look",
    "/alerts": "look",
    f"/incident?alert={GATE}": "look",
    "/you": "look",
    f"/gate/{GATE}/what-if": "read",
    "/decisions": "read",
    "/desk": "read",
    f"/desk/item?gate={GATE}&batch=order-210": "read",
    "/decision?batch=order-210": "read",
    "/decision.json?batch=order-210": "read",
    "/label": "label",
    "/try": "read",
    "/people": "administer",
}
ANSWERED = {"/label": 303, f"/desk/item?gate={GATE}&batch=order-210": 404}
"""What whoever may gets where it is not the page: the review page is elsewhere, and nothing of this gate is at the desk."""
FOR_EVERYBODY = {"/login", "/enter", "/leave", "/console.css"}
MAY = {
    "viewer": {"look", "read"},
    "labeller": {"look", "label"},
    "releaser": {"look", "read", "release"},
    "approver": {"look", "read", "approve"},
    "administrator": {"look", "read", "label", "release", "approve", "administer"},
}


@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_do_what_it_may_and_nothing_else(people: Site, role: str) -> None:
    client = people.client(role)
    for path, deed in PAGES.items():
        answer = client.get(path)
        assert answer.status == (ANSWERED.get(path, 200) if deed in MAY[role] else 403), path
    labels = client._send("POST", "/label/api/next", b'{"holder": "h"}', {"content-type": "application/json"})
    assert labels.status == (401 if "label" in MAY[role] else 403)
    versions = len(people.store.policies.every_version(GATE))
    for path, form in ACTS.items():
        deed = {"people": "administer", "desk": "release", "you": "look"}.get(path.split("/")[1], "approve")
        if deed in MAY[role]:
            continue  # what they do is tried by itself
        assert client.act(path, **form).status == 403, path
    if "approve" not in MAY[role]:
        assert len(people.store.policies.every_version(GATE)) == versions
        assert people.store.calibration.proposal(GATE) is not None
    if "administer" not in MAY[role]:
        assert {one.name: one.revision for one in people.store.accounts.list()} == dict.fromkeys(ROLES, 1)
    # What a page does not allow it does not show.
    assert ("/people" in client.get("/").body) == ("administer" in MAY[role])
    assert ("Put in force" in client.get("/proposals").body) == ("approve" in MAY[role])


def test_no_route_escapes_the_roles(people: Site) -> None:
    """A page or form that is new belongs to `PAGES` or `ACTS`, so that every role is tried on it."""
    tried = {urlsplit(path).path for path in (*PAGES, *ACTS)}
    there = {
        path.replace("{gate}", GATE)
        for path in routes_of(people)
        if path not in FOR_EVERYBODY and path not in STATIC
    }
    assert there == tried


def routes_of(site: Site) -> set[str]:
    app: Any = site.app
    while not isinstance(app, Starlette):
        app = app._app
    return {one.path for one in app.routes if isinstance(one, Route | Mount)}


def test_whoever_is_not_in_sees_and_does_nothing(people: Site) -> None:
    client = people.client()
    for path in PAGES:
        answer = client.get(path)
        assert answer.status == 303, path
        assert answer.headers["location"].startswith("/login"), path
        assert GATE not in answer.body
    for path, form in ACTS.items():
        assert client.post(path, form).status == 403, path
    assert client.get("/", x_refresh="1").status == 401
    assert people.store.calibration.proposal(GATE) is not None


def test_forms_need_the_key_of_the_session_and_come_from_the_page(people: Site) -> None:
    client = people.client("approver")
    form = {"gate": GATE, "run": 2}
    other = people.client("approver").key
    for sent in (form, form | {"key": ""}, form | {"key": other}):
        assert client.post("/proposals/approve", sent).status == 403
    key = client.key
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"host": "evil.example"},
        {"content-type": "text/plain"},
    ):
        assert client.post("/proposals/approve", form | {"key": key}, **headers).status in (400, 403)
    assert people.store.calibration.proposal(GATE) is not None
    assert client.post("/proposals/approve", form | {"key": key}).status == 303
    assert people.store.calibration.proposal(GATE) is None


def test_what_is_approved_is_recorded_as_of_somebody_who_signed_in(
    people: Site, peopled_world: World
) -> None:
    client = people.client("approver")
    answer = client.act("/proposals/approve", gate=GATE, run=2, reason="looked at it")
    assert (answer.status, answer.headers["location"]) == (303, "/proposals")
    newest = people.store.policies.newest(GATE)
    assert (newest.version, newest.calibration_run) == (3, 2)
    assert (newest.created_by, newest.reason) == ("account:approver", "looked at it")
    assert people.announced == 1
    sealed = peopled_world.rows("SELECT sealed FROM control_log WHERE kind = 'policies' ORDER BY leaf_index")
    assert json.loads(sealed[-1].sealed)["created_by"] == "account:approver"
    page = client.get("/proposals").body
    assert "Run 2 is in force at gate support-bot, as policy 3." in page
    assert "Run 2 is in force" not in client.get("/proposals").body, "said once"
    history = client.get(f"/gate/{GATE}").body
    assert '<bdi>approver</bdi> <span class="badge"' in history
    assert '<bdi>ana</bdi> <span class="claim"' in history
    # Somebody else had the page open, and presses the button too.
    late = people.client("administrator").act("/proposals/approve", gate=GATE, run=2)
    assert late.status == 409
    assert "Nothing is proposed" in late.body


def test_a_rejected_proposal_is_gone_and_on_record(people: Site, peopled_world: World) -> None:
    client = people.client("approver")
    assert client.act("/proposals/reject", gate=GATE, run=2, reason="  ").status == 409
    assert client.act("/proposals/reject", gate=GATE, run=1, reason="no").status == 409
    assert client.act("/proposals/reject", gate=GATE, run=2, reason="too loose").status == 303
    assert people.store.calibration.proposal(GATE) is None
    assert people.store.policies.newest(GATE).version == 2
    (row,) = peopled_world.rows("SELECT * FROM proposal_rejections")
    assert (row.run, row.rejected_by, row.reason) == (2, "account:approver", "too loose")
    assert client.act("/proposals/approve", gate=GATE, run=2).status == 409
    with people.store.evidence.snapshot() as snapshot:
        assert list(snapshot.unchained()) == []


def test_a_proposal_says_what_the_command_warns_of(migrated_sqlite_url: str) -> None:
    """Whoever approves in a browser has not seen what `streamer recalibrate --propose` said at a terminal."""
    with closing(World(migrated_sqlite_url)) as world:
        gate = LabelledGate(world)
        gate.label(gate.decide(200), lambda score: float(round(score * 100) % 7 == 0))
        by_hand = (gate.store.calibration, gate.store.policies, gate.store.gates.get(GATE))
        recalibrate_by_hand(*by_hand, clock=gate.clock, by="ana", reason="useless", propose=True)
        with Site(world) as site:
            client = site.client()
            client.enter(site.doors.invite("ana"))
            page = client.get("/proposals").body
    assert "Put in force" in page
    assert "good from bad: on 200 labelled prompts the mean severity is" in page


def test_a_gate_may_demand_two_people(people: Site) -> None:
    store = people.store
    store.gates.revise(GATE, {"two_people": True}, by="ana", reason="four eyes")
    with pytest.raises(UsageError, match="not by a command"):
        store.calibration.activate(GATE, by="ana", reason="", now=people.clock())
    with pytest.raises(UsageError, match="ben asked for this run"):
        store.calibration.activate(GATE, by="account:ben", reason="", now=people.clock())
    by_hand = (store.calibration, store.policies, store.gates.get(GATE))
    with pytest.raises(UsageError, match="have the run propose"):
        recalibrate_by_hand(*by_hand, clock=people.clock, by="ana", reason="alone")
    recalibrate_by_hand(*by_hand, clock=people.clock, by="account:approver", reason="mine", propose=True)
    proposal = store.calibration.proposal(GATE)
    assert proposal is not None
    approver = people.client("approver")
    assert "Put in force" not in approver.get("/proposals").body
    assert approver.act("/proposals/approve", gate=GATE, run=proposal.run).status == 409
    root = people.client("administrator")
    assert "Put in force" in root.get("/proposals").body
    assert root.act("/proposals/approve", gate=GATE, run=proposal.run).status == 303
    assert store.policies.newest(GATE).created_by == "account:administrator"


def test_a_budget_is_proposed_and_another_person_approves_it(people: Site) -> None:
    store = people.store
    store.gates.revise(GATE, {"two_people": True}, by="root", reason="two people")
    approver, root = people.client("approver"), people.client("administrator")
    assert "Propose this budget, 30 %" in approver.get(f"/gate/{GATE}/what-if?about=budget&budget=30").body
    for wrong in ("30 %", "0", "120", "nan", ""):
        assert approver.act("/gates/budget", gate=GATE, budget=wrong, reason="try").status == 409
    assert approver.act("/gates/budget", gate=GATE, budget="30", reason="more answers").status == 303
    said = approver.get("/proposals").body
    assert "somebody else who has signed in approves it" in said
    before = store.policies.newest(GATE)
    assert approver.act("/candidates/approve", gate=GATE).status == 409, "not by who proposed it"
    assert store.policies.newest(GATE) == before, "and nothing was closed"
    assert '<td>10\xa0%</td><td class="changed">30\xa0%</td>' in root.get("/proposals").body
    assert root.act("/candidates/approve", gate=GATE, reason="as agreed").status == 303
    newest = store.policies.newest(GATE)
    assert (newest.settings.alpha, newest.calibrated, newest.state) == (0.3, True, "cut")
    assert (newest.created_by, newest.reason) == ("account:administrator", "as agreed")
    assert store.candidates.newest(GATE) is None
    assert "budget: 10\xa0% → 30\xa0%" in root.get(f"/gate/{GATE}").body, "the version table"
    assert people.announced == 2
    root.act("/gates/budget", gate=GATE, budget="5", reason="less")
    assert approver.act("/candidates/reject", gate=GATE, reason="too little").status == 303
    assert store.candidates.newest(GATE) is None


def test_an_approver_recalibrates_goes_back_and_watches_only(people: Site) -> None:
    store, client = people.store, people.client("approver")
    assert client.act("/gates/recalibrate", gate=GATE, reason="new labels").status == 303
    proposal = store.calibration.proposal(GATE)
    assert (proposal.run, proposal.by) == (3, "account:approver")
    assert client.act("/proposals/approve", gate=GATE, run=proposal.run).status == 303
    older = store.policies.get(GATE, 2)
    assert client.act("/gates/rollback", gate=GATE, version=2, reason="worse").status == 303
    newest = store.policies.newest(GATE)
    wanted = (older.threshold, "account:approver", "worse")
    assert (newest.threshold, newest.created_by, newest.reason) == wanted
    assert client.act("/gates/rollback", gate=GATE, version=1, reason="x").status in (303, 409)
    before = newest.settings.mode
    other = "shadow" if before == "enforce" else "enforce"
    assert client.act("/gates/mode", gate=GATE, mode=other, reason="a trial").status == 303
    assert store.policies.newest(GATE).settings.mode == other
    assert client.act("/gates/mode", gate=GATE, mode="off", reason="a trial").status == 409
    assert client.act("/gates/mode", gate=GATE, mode=before, reason=" ").status == 409


def test_decisions_are_found_by_words_of_the_prompt(people: Site) -> None:
    client = people.client("viewer")
    body = client.get("/decisions?words=212%3F+QUESTION").body
    assert body.count('class="card"') == 1
    assert "Question 212?" in body
    assert client.get("/decisions?words=%25").body.count('class="card"') == 0
    assert client.get("/decisions?words=nowhere").body.count("No decision is like this") == 1


def test_a_gate_is_closed_and_an_alert_acknowledged(people: Site) -> None:
    client = people.client("approver")
    assert client.act("/gates/close", gate=GATE, reason="complaints").status == 303
    newest = people.store.policies.newest(GATE)
    assert (newest.state, newest.created_by, newest.reason) == ("closed", "account:approver", "complaints")
    (alert,) = people.store.alerts.list()
    closed = another(
        GATE, "no_signing_key", "policy 9", message="No key.", raised_at=alert.alert.raised_at, details={}
    )
    people.store.alerts.raise_(closed)
    both = f"{alert.alert.alert_id},{closed.alert_id}"
    assert client.act("/alerts/assign", alert=closed.alert_id, assignee="bo").status == 303
    assert "bo looks after it" in client.get("/alerts").body
    page = client.get(f"/incident?alert={closed.alert_id}").body
    assert both in page, "one incident, the worst first, one answer"
    assert "streamer audit verify" in page
    assert client.act("/alerts/acknowledge", alert=both, reason="looked").status == 303
    assert client.act("/alerts/acknowledge", alert=alert.alert.alert_id, reason="again").status == 409
    assert people.store.alerts.list(unacknowledged=True) == []
    alert = people.store.alerts.list()[-1]
    assert (alert.acknowledged_by, alert.acknowledged_reason) == ("account:approver", "looked")
    assert client.act("/gates/close", gate="nosuch", reason="x").status == 409
    assert client.get("/gate/nosuch").status == 404


def test_a_gate_in_an_incident_leads_to_what_to_do(people: Site, peopled_world: World) -> None:
    viewer = people.client("viewer")
    made = another(
        GATE, "risk", "alarm 1", message="Closed by policy 3: `streamer alert show`.",
        raised_at=START, policy_version=2,
    )  # fmt: skip
    peopled_world.store.alerts.raise_(made)
    peopled_world.store.policies.close(GATE, by=MONITOR, reason=f"risk alarm 1: {made.message}", now=START)
    for page in ("/", f"/gate/{GATE}"):
        assert f'<a href="/incident?alert={GATE}">What happened, and what to do</a>' in viewer.get(page).body
    page = viewer.get(f"/incident?alert={GATE}").body
    assert page.count("Closed by policy 3: <code>streamer alert show</code>.") == 1, "it is said once"


def test_passwords_are_tried_only_so_often(people: Site) -> None:
    client = people.client()
    for _ in range(OF_ONE_NAME.requests):
        assert client.sign_in("viewer", "wrong password").status == 403
    assert client.sign_in("viewer").status == 429, "not even with the right one"
    assert client.sign_in("approver").status == 303, "others are not kept out"
    people.moment += OF_ONE_NAME.seconds / OF_ONE_NAME.requests + 1
    assert client.sign_in("viewer").status == 303
    for _ in range(OF_ONE_NAME.requests + 2):
        assert client.sign_in("viewer").status == 303, "whoever knows it is not limited as a guesser is"
    for name, password in (
        ("nobody", PASSWORD),
        ("", ""),
        ("viewer", "x" * 5_000),
        ("view\u202eer", PASSWORD),
    ):
        assert client.sign_in(name, password).status == 403


def test_guesses_of_others_keep_nobody_from_signing_in(world: World) -> None:
    with Site(world, public="https://console.example") as site:
        site.add("root", "administrator")

        def tries(password: str, forwarded: str) -> int:
            form = {"name": "root", "password": password}
            return Client(site).post("/login", form, host="console.example", x_forwarded_for=forwarded).status

        for n in range(OF_ONE_NAME.requests):
            assert tries("wrong password", f"198.51.100.{n}, 192.0.2.1") == 403
        assert tries(PASSWORD, "192.0.2.1") == 429, "whatever stands before what the proxy wrote"
        assert tries(PASSWORD, "192.0.2.2") == 303
        for n in range(OF_ONE_NAME.requests):
            assert tries("wrong password", f"2001:db8::{n}") == 403
        assert tries(PASSWORD, "2001:db8::ffff") == 429, "one network"
        assert tries(PASSWORD, "2001:db8:0:1::1") == 303


def test_what_a_guesser_writes_before_the_proxies_counts_for_nothing(world: World) -> None:
    """Each proxy adds a line or an entry at the end; whoever guesses sends lines of their own before them."""
    with Site(world, public="https://console.example", proxies=2) as site:
        site.add("root", "administrator")

        def tries(*lines: str) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=240)
            body = urlencode({"name": "root", "password": "wrong password"}).encode()
            connection.putrequest("POST", "/login", skip_host=True)
            for name, value in (
                ("Host", "console.example"),
                ("Content-Type", "application/x-www-form-urlencoded"),
                ("Content-Length", str(len(body))),
                *(("X-Forwarded-For", line) for line in lines),
            ):
                connection.putheader(name, value)
            connection.endheaders(body)
            status = connection.getresponse().status
            connection.close()
            return status

        forged = [tries(f"198.51.100.{n}", f"203.0.113.{n}, 192.0.2.1", "10.0.0.1") for n in range(8)]
        assert forged == [403] * OF_ONE_NAME.requests + [429] * (8 - OF_ONE_NAME.requests)
        assert tries("192.0.2.1, 192.0.2.2, 10.0.0.1") == 403, "another caller has guesses of their own"


@pytest.mark.parametrize(
    ("proxies", "lines", "expected"),
    [
        (0, ["192.0.2.1"], "127.0.0.1"),
        (None, ["192.0.2.1", "192.0.2.2"], "192.0.2.2"),
        (1, ["192.0.2.1, 192.0.2.2"], "192.0.2.2"),
        (2, ["192.0.2.1", "192.0.2.2"], "192.0.2.1"),
        (3, ["192.0.2.1", "192.0.2.2"], "127.0.0.1"),
        (1, ["192.0.2.1:4711"], "192.0.2.1"),
        (1, ["[2001:db8::1]:4711"], "2001:db8::1"),
        (1, ["2001:db8::1"], "2001:db8::1"),
        (1, ["unknown"], "127.0.0.1"),
        (1, [""], "127.0.0.1"),
        (1, [], "127.0.0.1"),
    ],
)
def test_where_a_request_comes_from(proxies: int | None, lines: list[str], expected: str) -> None:
    headers = [(b"x-forwarded-for", line.encode()) for line in lines]
    request = Request({"type": "http", "client": ("127.0.0.1", 4711), "headers": headers})
    assert caller(request, proxies=proxies) == expected


def test_many_addresses_together_guess_only_so_often(people: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamer.console.doors, "fits", lambda *_: False)  # what a wrong password is, at once
    most = OF_ANY_ADDRESS.requests
    for n in range(most):
        people.moment += 1.5
        assert people.doors.sign_in("viewer", "wrong", f"10.0.{n}.1") is None
    refilled = 1.5 * most * most / OF_ANY_ADDRESS.seconds
    for n in range(int(refilled)):
        people.doors.sign_in("viewer", "wrong", f"10.1.{n}.1")
    with pytest.raises(TooMany):
        people.doors.sign_in("viewer", "wrong", "10.2.0.1")


def test_the_wait_that_is_named_is_the_longest_of_all_bounds(
    people: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamer.console.doors, "fits", lambda *_: False)
    names = [f"somebody {n}" for n in range(OF_ONE_ADDRESS.requests - OF_ONE_NAME.requests)]
    for name in (*names, *["viewer"] * OF_ONE_NAME.requests):
        assert people.doors.sign_in(name, "wrong", "10.0.0.1") is None
    for name, said in (("viewer", "try again in 12 minutes"), ("approver", "try again in 1 minute")):
        with pytest.raises(TooMany, match=f"{said}$"):
            people.doors.sign_in(name, "wrong", "10.0.0.1")


def test_a_session_ends_with_time_and_with_every_change_of_the_account(people: Site) -> None:
    viewer = people.client("viewer")
    people.moment += IDLE_SECONDS - 1
    assert viewer.get("/").status == 200
    people.moment += IDLE_SECONDS + 1
    assert viewer.get("/").status == 303
    viewer = people.client("viewer")
    for _ in range(int(LONGEST_SECONDS / (IDLE_SECONDS / 2))):
        people.moment += IDLE_SECONDS / 2
        viewer.get("/")
    people.moment += 1
    assert viewer.get("/").status == 303, "however often it is used"

    root = people.client("administrator")
    for path, form in (
        ("/people/roles", {"name": "viewer", "role": ["viewer", "approver"]}),
        ("/people/password", {"name": "viewer", "password": PASSWORD, "again": PASSWORD}),
        ("/people/close", {"name": "viewer"}),
    ):
        viewer = people.client("viewer")
        assert viewer.get("/").status == 200
        assert root.act(path, **form).status == 303
        assert viewer.get("/").status == 303, path
    assert people.client().sign_in("viewer").status == 403
    assert root.act("/people/close", name="administrator").status == 409, "the last one"
    assert root.act("/people/roles", name="administrator", role="viewer").status == 409
    left = people.client("approver")
    assert left.act("/leave").status == 303
    assert left.get("/").status == 303


def test_people_change_their_own_password(people: Site) -> None:
    viewer = people.client("viewer")
    new = {"password": "another good one", "again": "another good one"}
    assert viewer.act("/you/password", present="wrong", **new).status == 403
    assert viewer.act("/you/password", present=PASSWORD, password="another good one", again="x").status == 409
    assert viewer.act("/you/password", present=PASSWORD, password="short", again="short").status == 409
    assert viewer.act("/you/password", present=PASSWORD, **new).status == 303
    assert viewer.get("/").status == 303
    assert people.client().sign_in("viewer").status == 403
    assert people.client().sign_in("viewer", "another good one").status == 303


def test_the_printed_link_lets_in_until_there_are_accounts(site: Site) -> None:
    client, token = site.client(), site.doors.invite("Ana Weber")
    assert client.enter("wrong").status == 403
    assert client.enter(token).status == 303
    assert client.act("/proposals/approve", gate=GATE, run=2).status == 303
    assert site.store.policies.newest(GATE).created_by == "Ana Weber", "a claim, as with --by"
    made = client.act("/people/add", name="Root", role="administrator", password=PASSWORD, again=PASSWORD)
    assert made.status == 303
    assert client.get("/").status == 303, "from now on people sign in"
    assert site.client().enter(token).status == 403
    assert site.client("Root").get("/").status == 200


def test_a_session_opens_the_review_page_under_its_own_name(people: Site) -> None:
    client = people.client("labeller")
    token = client.get("/label").headers["location"].partition("#")[2]
    as_json = {"content-type": "application/json"}
    entered = client._send("POST", "/label/api/enter", json.dumps({"token": token}).encode(), as_json)
    assert json.loads(entered.body)["name"] == "labeller"
    again = client._send("POST", "/label/api/enter", json.dumps({"token": token}).encode(), as_json)
    assert again.status == 401, "once"
    console = client.cookie
    client.cookie += "; " + entered.headers["set-cookie"].partition(";")[0]
    headers = as_json | {"x-review-key": json.loads(entered.body)["key"]}
    shown = client._send("POST", "/label/api/next", b'{"holder": "h1"}', headers)
    assert json.loads(shown.body)["item"]["text"].startswith("Answer ")
    # The review page's own cookie opens nothing without the console's.
    client.cookie = client.cookie.removeprefix(console)
    assert client._send("POST", "/label/api/next", b'{"holder": "h1"}', headers).status == 401


def test_the_review_page_is_of_whoever_is_signed_in_now(people: Site) -> None:
    as_json = {"content-type": "application/json"}

    def token_of(client: Client) -> bytes:
        token = client.get("/label").headers["location"].partition("#")[2]
        return json.dumps({"token": token}).encode()

    client = people.client("labeller")
    entered = client._send("POST", "/label/api/enter", token_of(client), as_json)
    review = entered.headers["set-cookie"].partition(";")[0]
    headers = as_json | {"x-review-key": json.loads(entered.body)["key"]}
    unused = token_of(client)

    assert client.sign_in("administrator").status == 303
    client.cookie += "; " + review
    for path in ("who", "next", "progress"):
        shown = client._send("POST", f"/label/api/{path}", b'{"holder": "h1"}', headers)
        assert (shown.status, json.loads(shown.body)["error"]) == (401, "no_session"), path
    assert client._send("POST", "/label/api/enter", unused, as_json).status == 401
    again = client._send("POST", "/label/api/enter", token_of(client), as_json)
    assert json.loads(again.body)["name"] == "administrator"


@pytest.mark.parametrize(
    ("public", "sent"),
    [
        ("https://console.example:443", "console.example"),
        ("https://console.example:443", "console.example:443"),
        ("https://console.example", "console.example:443"),
        ("http://console.example:80", "console.example"),
        ("http://console.example", "console.example:80"),
        ("https://[2001:db8::1]:443", "[2001:db8::1]"),
    ],
)
def test_the_port_that_a_scheme_has_anyway_makes_no_other_host(world: World, public: str, sent: str) -> None:
    with Site(world, public=public) as site:
        site.add("root", "administrator")
        form = {"name": "root", "password": PASSWORD}
        scheme = public.partition(":")[0]
        for origin in {f"{scheme}://{sent}", public}:
            assert Client(site).post("/login", form, host=sent, origin=origin).status == 303
        for origin in (
            "https://console.example:1",
            "https://console.example.evil.example",
            "null",
            "https://[",
        ):
            assert Client(site).post("/login", form, host=sent, origin=origin).status == 403
        assert Client(site).get("/login", host="console.example:444").status == 403


def test_behind_a_proxy_the_public_address_is_the_origin(world: World) -> None:
    with Site(world, public="https://console.example") as site:
        site.add("root", "administrator")
        client = Client(site)
        form = {"name": "root", "password": PASSWORD}
        wrong = client.post("/login", form, host="console.example", origin="https://evil.example")
        assert wrong.status == 403
        entered = client.post("/login", form, host="console.example", origin="https://console.example")
        assert entered.status == 303
        assert "Secure" in entered.headers["set-cookie"]
        assert client.get("/login", host="other.example").status == 403
        body = json.dumps({"token": site.access.invite("root")}).encode()
        client.cookie = entered.headers["set-cookie"].partition(";")[0]
        kind = {"content-type": "application/json", "host": "console.example"}
        labels = client._send("POST", "/label/api/enter", body, kind)
        assert labels.status == 200
        assert "Secure" in labels.headers["set-cookie"]


@pytest.mark.parametrize(
    "where", ["//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil", "/\tx", ""]
)
def test_signing_in_leads_nowhere_else(people: Site, where: str) -> None:
    answer = people.client().post("/login", {"name": "viewer", "password": PASSWORD, "next": where})
    assert (answer.status, answer.headers["location"]) == (303, "/")


def test_what_is_asked_for_wrongly_gets_a_page_that_says_so(people: Site) -> None:
    client = people.client("administrator")
    for path in (
        f"/gate/{GATE}/what-if?about=budget&budget=x",
        f"/gate/{GATE}/what-if?about=threshold&threshold=7",
        f"/gate/{GATE}/what-if?about=nothing",
        "/decisions?since=yesterday", "/decisions?least=2", "/decisions?before=x", "/decisions?outcome=x",
        "/decisions?since=0001-01-01T00:00%2B14:00", "/decisions?until=9999-12-31T23:59-05:00",
    ):  # fmt: skip
        answer = client.get(path)
        assert answer.status == 200, path
        assert 'role="alert"' in answer.body, path
    assert client.get("/decision?batch=nosuch").status == 404
    assert client.get("/nosuch").status == 404
    assert client.act("/proposals/approve", gate=GATE, run="x").status == 400
    assert client.post("/leave", {"key": "x" * 70_000}).status == 400
    for answer in (client.get("/"), client.get("/nosuch"), client.get("/console.css")):
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"


def test_a_gate_is_shown_however_far_its_budget_and_threshold_lie_from_what_is_asked_about(
    people: Site, peopled_world: World
) -> None:
    world, client = peopled_world, people.client("viewer")
    for name, alpha, threshold in (
        ("tiny", 0.00033333333, 0.5),
        ("huge", 0.997, 1.0625),
        ("gradual", 0.1, -0.125),
    ):
        world.gate(name, alpha=alpha, shape="smooth" if name == "gradual" else "indicator")
        world.tamper(
            f"UPDATE policies SET calibrated = TRUE, state = 'cut', threshold = {threshold} WHERE gate = '{name}'"
        )
        page = client.get(f"/gate/{name}")
        assert page.status == 200, page.body
        for about in ("budget", "threshold"):
            value = re.search(rf'name="{about}" inputmode="decimal" size="5" value="([^"]+)"', page.body)
            asked = client.get(f"/gate/{name}/what-if?about={about}&{about}={value[1]}")
            assert "must be a number from" not in asked.body, (name, about)
    assert "must be a number from 0.1 to 99" in client.get("/gate/gradual/what-if?budget=0.05").body


def test_what_the_database_refuses_gets_a_page_that_says_so(people: Site, peopled_world: World) -> None:
    client = people.client("viewer")
    peopled_world.tamper("DROP TABLE desk_items")
    page = client.get("/")
    assert page.status == 500
    assert "streamer doctor" in page.body
    assert "desk_items" not in page.body


@pytest.mark.postgres
def test_a_nul_is_no_text_that_postgresql_has(migrated_postgres_url: str) -> None:
    with closing(World(migrated_postgres_url)) as world, Site(world) as site:
        world.gate(GATE)
        client = site.client()
        client.enter(site.doors.invite("ana"))
        for path in (
            "/decisions?batch=a%00b",
            "/decision?batch=a%00b",
            f"/desk/item?gate={GATE}&batch=a%00b",
        ):
            assert client.get(path).status == 400, path
        assert client.act("/gates/close", gate=GATE, reason="a\x00b").status == 400
        assert world.store.policies.newest(GATE).version == 1


def test_the_candidate_policy_stands_beside_what_is_in_force(people: Site) -> None:
    client, store = people.client("viewer"), people.store
    heading = "other settings"
    assert heading not in client.get("/proposals").body
    settings = store.gates.get(GATE).settings
    store.candidates.start(GATE, replace(settings, alpha=0.3), by="ana", reason="bolder")
    page = client.get("/proposals").body
    assert heading in page
    assert "Under its candidate policy: " in page.replace("\xa0", " ")
    store.candidates.start(GATE, replace(settings, scorer="choice"), by="ana", reason="another score")
    page = client.get("/proposals").body
    assert heading in page
    assert "no candidate with this scorer was beside them" in page.replace("\xa0", " ")
    store.candidates.stop(GATE, by="ana", reason="tried")
    assert heading not in client.get("/proposals").body


def test_a_policy_that_cannot_be_read_hides_no_other_gate(people: Site, peopled_world: World) -> None:
    peopled_world.store.gates.create(
        "other", peopled_world.store.gates.get(GATE).settings, by="ana", reason="new"
    )
    later = '{"kind"\\:"of a later version"}'  # a colon begins a parameter
    peopled_world.tamper(f"UPDATE policies SET rule = '{later}' WHERE gate = '{GATE}' AND version = 2")
    client = people.client("viewer")
    page = client.get("/")
    assert page.status == 200
    assert "Policy 2 of gate support-bot cannot be read by this version" in page.body
    assert 'href="/gate/other"' in page.body
    assert client.get("/proposals").status == 200
    assert "cannot be read" in client.get(f"/gate/{GATE}").body
    assert client.get("/gate/other").status == 200
