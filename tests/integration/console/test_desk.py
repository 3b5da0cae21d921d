"""The desk as people use it: by plain HTTP for what must not be possible, and in Chromium by keyboard."""

import json
import re
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from msgspec.structs import replace
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from streamer.calibration.threshold import Threshold
from streamer.console.doors import IDLE_SECONDS
from streamer.gates.batch_key import BatchKey
from streamer.gates.settings import GateSettings
from streamer.settings.settings import load_settings
from streamer.store.desk.release_desk import Reject
from tests.at_once import at_once
from tests.faults.site import record_threshold
from tests.integration.audit.history import Scribe
from tests.integration.console.conftest import BIG, HARM, PASSWORD, Site, outcome_of
from tests.integration.console.test_pages import PHONE, Visitor, findings
from tests.integration.store.conftest import World
from tests.made import a_batch
from tests.services.browser import Browser
from tests.services.node import axe, what_node_needs
from tests.services.requirements import missing
from tests.told import Told

FRONT = "front"
MINUTES = timedelta(minutes=15)


def hold(world: World, *texts: tuple[str, str], attempt: int = 1) -> list[BatchKey]:
    """Let batches with these two answers each wait for a person, the first the longest."""
    if all(one.gate != FRONT for one in world.store.gates.list()):
        world.gate(FRONT, hold_action="escalate", desk_deadline_seconds=MINUTES.total_seconds())
    policy = world.store.policies.newest(FRONT)
    lease = world.lease(7)
    made = []
    for number, two in enumerate(texts, lease.next_offset):
        one = world.decision(
            number, f"case-{number}", number=7, attempt=attempt, actions=("escalate", "escalate"),
            outcome="escalate", reason="no_threshold", policy=policy,
            at=world.clock.now + timedelta(seconds=number),
            prompt=f"Where is parcel {number}?" if HARM not in two else HARM,
        )  # fmt: skip
        both = tuple(replace(own, text=text) for own, text in zip(one.responses, two, strict=True))
        made.append(replace(one, responses=both))
    world.commit(world.slice(lease, *made, expected=lease.next_offset))
    return [one.key for one in made]


@pytest.fixture
def front(people: Site, peopled_world: World) -> tuple[Site, list[BatchKey]]:
    """What waits at the desk of a console with people."""
    keys = hold(
        peopled_world,
        ("It left our depot.", "Ask the carrier.\r\nPlease."),
        ("Tomorrow.", "Never."),
        (HARM, "Fine."),
        (BIG, "Short."),
    )
    return people, keys


def fields(key: BatchKey, **more: str) -> dict[str, str]:
    return {"gate": key.gate, "batch": key.batch_id, "attempt": str(key.attempt)} | more


def address(key: BatchKey) -> str:
    return f"/desk/item?gate={key.gate}&batch={key.batch_id}"


def test_one_person_wins_and_the_other_is_told_on_the_page(front: tuple[Site, list[BatchKey]]):
    site, (one, two, *_) = front
    ana, root = site.client("releaser"), site.client("administrator")
    assert [one.batch_id in ana.get("/desk").body, "waiting</span>" in ana.get("/desk").body] == [True, True]
    # The same form twice at one moment, and somebody else with another.
    forms = [(ana, "a"), (ana, "a"), (root, "b")]
    keys = {ana: ana.key, root: root.key}

    def sends(form: tuple[Any, str]) -> tuple[str, Any]:
        client, answer = form
        return answer, client.post("/desk/release", {"key": keys[client]} | fields(one, answer=answer))

    told = at_once(sends, *forms)
    stands = outcome_of(site.store, one)
    assert stands.by in ("account:releaser", "account:administrator")
    won, lost = (ana, root) if stands.selected == "a" else (root, ana)
    assert {answer.status for _, answer in told} == {303}
    found = {answer.headers["location"] for name, answer in told if name != stands.selected}
    assert found == {f"/desk/item?gate={FRONT}&batch={one.batch_id}&attempt=1"}
    page = lost.get(address(one)).body
    notice = re.search(r"Nothing was done\..* that stands\.", page)
    assert re.search(r"at \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ; that stands", notice[0]), (
        "moments as on the whole page"
    )
    assert f"<bdi>{stands.by.removeprefix('account:')}</bdi>" in page
    assert "This is final." in page
    assert "/desk/release" not in page or "Release answer" not in page
    assert f"{one.batch_id}: answer {stands.selected} is released." in won.get(address(two)).body

    # A page that was open too long; a deadline that passed.
    assert root.act("/desk/reject", **fields(one)).status == 303
    assert outcome_of(site.store, one) == stands
    site.clock.now += MINUTES + timedelta(hours=1)
    assert ana.act("/desk/release", **fields(two, answer="a")).status == 303
    assert "Its deadline passed at" in ana.get(address(two)).body
    assert site.store.desk.state(two).outcome.reason == "deadline_passed"  # type: ignore[union-attr]


def test_what_is_edited_goes_out_as_it_was_written(front: tuple[Site, list[BatchKey]]):
    site, (one, two, three, four) = front
    ana = site.client("releaser")
    # A browser sends line ends of its own: what nobody changed is released as it was.
    asked = ana.get(f"{address(one)}&edit=b").body
    assert "<textarea" in asked
    ana.act("/desk/release", **fields(one, answer="b", text="Ask the carrier.\r\nPlease."))
    outcome = outcome_of(site.store, one)
    assert (outcome.text, outcome.edited) == ("Ask the carrier.\r\nPlease.", False)  # type: ignore[union-attr]
    ana.act("/desk/release", **fields(two, answer="a", text="On\r\nMonday \u202e!", remark=" asked \n them "))
    outcome = outcome_of(site.store, two)
    assert (outcome.text, outcome.edited, outcome.remark) == ("On\nMonday \u202e!", True, "asked them")  # type: ignore[union-attr]
    for form, status in (
        (fields(three, answer="a", text="  "), 409),
        (fields(three, answer="a", text="a\x00b"), 400),
        (fields(three, answer="a", remark="a\x00b"), 400),
        (fields(three, answer="z"), 409),
        (fields(three, answer="a", text="x" * 65_537), 409),
        (fields(three, answer="a", text="x" * 300_000), 400),
        (fields(three, answer="a", remark="x" * 501), 409),
        (fields(three, attempt="x", answer="a"), 404),
        (fields(BatchKey(FRONT, "nobody", 1), answer="a"), 404),
    ):
        assert ana.act("/desk/release", **form).status == status, form
    assert outcome_of(site.store, three) is None
    # Forms need the key of their session, and the right.
    assert ana.post("/desk/reject", fields(three)).status == 403
    assert site.client("approver").act("/desk/reject", **fields(three)).status == 403
    approver = site.client("approver").get(address(three)).body
    assert "Release answer" not in approver
    assert "Releasers decide about it." in approver
    for role in ("labeller",):
        assert site.client(role).get(address(three)).status == 403
    assert outcome_of(site.store, four) is None


def test_names_with_characters_that_nobody_sees_are_decided_about_like_any_other(
    people: Site, peopled_world: World
):
    world = peopled_world
    world.gate(FRONT, hold_action="escalate", desk_deadline_seconds=MINUTES.total_seconds())
    lease, keys = world.lease(7), []
    for number, name in enumerate(("order\u200b7", 'a"\u202e<b>', "soft\xadly")):
        made = world.decision(
            number, name, number=7, actions=("escalate", "escalate"), outcome="escalate", at=world.clock.now
        )
        first, second = made.responses
        made = replace(made, responses=(replace(first, id=f"{name}-a"), second))
        world.commit(world.slice(lease, made, expected=number))
        keys.append(made.key)
    ana = people.client("releaser")
    for number, key in enumerate(keys):
        page = ana.get(address(key).partition("&")[0] + "&" + urlencode({"batch": key.batch_id})).body
        form = {one: unescape(value) for one, value in re.findall(r'name="(\w+)" value="([^"]*)"', page)}
        answer = unescape(re.findall(r'name="answer" value="([^"]*)"', page)[0])
        sent = {name: form[name] for name in ("key", "gate", "batch", "attempt")} | {
            "answer": answer,
            "remark": "",
        }
        assert ana.post("/desk/reject" if number == 1 else "/desk/release", sent).status == 303, key
        outcome = outcome_of(people.store, key)
        assert outcome.selected == (None if number == 1 else f"{key.batch_id}-a")


def test_a_person_works_the_desk_off_by_keyboard(front: tuple[Site, list[BatchKey]], browser: Browser):
    site, keys = front
    ana = Visitor(browser, site)
    ana.goes("/desk")
    ana.signs_in("releaser")
    ana.until(lambda: ana.heading() == "Desk")
    assert "4 held batches wait for a person" in ana.main()
    ana.press("j", "j", "k", Keys.ENTER)
    ana.until(lambda: ana.heading() == keys[0].batch_id)
    ana.press("2")
    assert ana.driver.switch_to.active_element.text == "Release answer b"
    ana.press("k")
    assert ana.driver.switch_to.active_element.text == "Release answer a"
    ana.press(Keys.ENTER)
    ana.until(lambda: ana.heading() == keys[1].batch_id, "the next one follows")
    assert f"{keys[0].batch_id}: answer a is released." in ana.main()

    ana.press("j", "e")
    ana.until(lambda: ana.focused() == "text")
    text = ana.driver.find_element(By.ID, "text")
    text.clear()
    text.send_keys("On Monday, jk.")
    field = ana.driver.find_element(By.ID, "remark")
    field.send_keys("asked the depot", Keys.ENTER)
    ana.run("return new Promise((done) => setTimeout(done, 300))")
    assert outcome_of(site.store, keys[1]) is None, "Enter in a field decides nothing"
    ana.driver.find_element(By.CSS_SELECTOR, "button.good").send_keys(Keys.ENTER)
    ana.until(lambda: ana.heading() == keys[2].batch_id)
    outcome = outcome_of(site.store, keys[1])
    assert (outcome.text, outcome.by, outcome.remark) == (
        "On Monday, jk.",
        "account:releaser",
        "asked the depot",
    )  # type: ignore[union-attr]

    # Texts that mean harm change nothing; what they hide is marked.
    assert "<script>document.title='taken'</script>" in ana.main()
    assert "U+202E" in ana.main()
    ana.press("1", "e")
    ana.until(lambda: ana.focused() == "text")
    assert "characters that nobody sees" in ana.main()
    assert ana.run("return document.getElementById('text').value") == HARM
    assert "taken" not in ana.driver.title

    # Somebody else is quicker, and the page says so by itself.
    ana.run("for (const part of document.querySelectorAll('[data-live]')) part.dataset.live = 1")
    site.store.desk.decide(keys[2], Reject(), by="account:ben")
    ana.until(lambda: "Rejected by ben" in ana.main().replace("\n", " "))
    assert ana.run("return [...document.querySelectorAll('#desk-form button')].every((one) => one.disabled)")

    ana.goes("/desk")
    ana.press("j", Keys.ENTER)
    ana.until(lambda: ana.heading() == keys[3].batch_id)
    assert not ana.too_wide(), "a megabyte fits"
    ana.press("x", Keys.ENTER)
    ana.until(lambda: ana.heading() == "Desk")
    assert "Nothing waits. What front holds comes here by itself." in ana.main()
    assert site.store.desk.state(keys[3]).outcome.action == "rejected"  # type: ignore[union-attr]
    assert browser.complaints() == []


def test_a_double_click_decides_about_one_batch(people: Site, peopled_world: World, browser: Browser):
    keys = hold(peopled_world, *[("Yes.", "No.")] * 6)
    ana = Visitor(browser, people)
    ana.goes(address(keys[0]))
    ana.signs_in("releaser")

    def place() -> list[float] | None:
        """Where the button is, once a click would meet it."""
        return ana.run(
            "const button = document.querySelector('button.good'), {x, y, width, height} = button?.getBoundingClientRect() ?? {};"
            "return button && document.elementFromPoint(x + width / 2, y + height / 2) === button ? [x + width / 2, y + height / 2] : null"
        )

    def clicks(at: list[float], *apart: float) -> None:
        acts = ActionChains(ana.driver, duration=0)
        pointer = acts.w3c_actions.pointer_action
        pointer.move_to_location(*map(int, at)).click()
        for seconds in apart:
            pointer.pause(seconds).click()
        acts.perform()

    for decided, apart in enumerate((0.05, 0.2, 0.3, 0.5)):
        ana.until(place)
        clicks(place(), apart)
        ana.until(lambda following=keys[decided + 1]: ana.heading() == following.batch_id)
        ana.until(place, "in the end it is there for whoever has read the page")
        assert set(people.store.desk.outcomes(keys)) == set(keys[: decided + 1]), apart

    # The same without a race: as long as the page has only just come, a click meets no button.
    found = ana.run(
        "return [...document.querySelectorAll('button.good')].flatMap((one) => { one.style.animationName = 'none'; one.offsetTop;"
        " one.style.animationName = ''; return one.getAnimations().map((all) => (all.pause(), all.effect.getTiming().duration)); })"
    )
    assert min(found, default=0) >= 1000
    assert place() is None


def hold_claims(world: World) -> BatchKey:
    """Let an answer that shipped in part wait: one claim was held, and one that rests on it."""
    settings = load_settings(database={"url": world.url})
    waits = {"hold_action": "escalate", "desk_deadline_seconds": 9000.0, "mode": "enforce"}
    chosen = GateSettings(unit="claim", scorer="support", encoder="none", **waits)
    world.store.gates.create("notes", chosen, by="ana", reason="test")
    cut = Threshold(state="cut", value=0.6, alpha=0.05, method="mean", groups=0, guarantee="")
    record_threshold(world.store, "notes", cut)
    said = ["The depot in Bern opens at 9.", "Zebras fly 77 times.", "So do 12 of its parcels."]
    event = json.loads(a_batch("notes", 1, [" ".join(said), said[0], f"Surely. {said[0]}"]))
    first = event["responses"][0]
    places = [first["text"].index(one) for one in said]
    first["claims"] = [
        {"id": f"k{i}", "text": one, "span": [at, at + len(one)], "rests_on": ["k1"] if i == 2 else []}
        for i, (one, at) in enumerate(zip(said, places, strict=True))
    ]
    Scribe(world.store, settings).deliver([json.dumps(event).encode()], partition=9)
    (key,) = [one.key for one in world.store.desk.waiting() if one.key.gate == "notes"]
    return key


def test_a_person_puts_claims_back_on_the_page(people: Site, peopled_world: World, browser: Browser):
    key = hold_claims(peopled_world)
    ana = Visitor(browser, people)
    ana.goes("/desk")
    ana.signs_in("releaser")
    ana.until(lambda: ana.heading() == "Desk")
    assert "2 of 3 claims" in ana.main()
    ana.press("j", Keys.ENTER)
    ana.until(lambda: ana.heading() == key.batch_id)
    assert "Gate notes shipped a part of it" in ana.main()
    assert "blank" not in ana.main()
    found = [one.text for one in ana.driver.find_elements(By.TAG_NAME, "mark")]
    assert found == ["Zebras fly 77 times.", "So do 12 of its parcels."]
    assert not ana.too_wide()
    ana.press("2")
    ana.driver.switch_to.active_element.send_keys(Keys.SPACE)
    ana.driver.find_element(By.ID, "remark").send_keys("seen it")
    ana.driver.find_element(By.CSS_SELECTOR, "button.good").send_keys(Keys.ENTER)
    ana.until(lambda: "rests on k1: put that back as well" in ana.main())
    ana.driver.find_element(By.CSS_SELECTOR, "main button").send_keys(Keys.ENTER)
    ana.until(lambda: ana.heading() == key.batch_id)
    ana.press("1")
    ana.driver.switch_to.active_element.send_keys(Keys.SPACE)
    ana.driver.find_element(By.CSS_SELECTOR, "button.good").send_keys(Keys.ENTER)
    ana.until(lambda: ana.heading() == "Desk")
    outcome = outcome_of(people.store, key)
    assert (outcome.claims, outcome.edited, outcome.remark) == (("k1", "k2"), False, "seen it")
    assert outcome.text == "The depot in Bern opens at 9. Zebras fly 77 times. So do 12 of its parcels."
    ana.goes(f"/desk/item?gate=notes&batch={key.batch_id}")
    assert "put back" in ana.main()
    ana.goes(f"/decision?batch={key.batch_id}")
    assert all(one in ana.main() for one in ("Claims", "As it shipped", "with k1, k2 put back"))
    assert all("409" in one for one in browser.complaints()), "the refusal"


def test_what_was_written_outlives_the_session(front: tuple[Site, list[BatchKey]], browser: Browser):
    site, (key, *_) = front
    ana = Visitor(browser, site)
    ana.goes(f"{address(key)}&edit=b")
    ana.signs_in("releaser")
    ana.until(lambda: ana.focused() == "text")
    text, remark = ana.driver.find_element(By.ID, "text"), ana.driver.find_element(By.ID, "remark")
    text.clear()
    text.send_keys("Ask <b>us</b>,\n\ntomorrow.")
    remark.send_keys("asked the depot")
    site.moment += IDLE_SECONDS + 1
    ana.driver.find_element(By.CSS_SELECTOR, "button.good").send_keys(Keys.ENTER)
    ana.until(lambda: "your session has ended" in ana.main().lower())

    def signs_in_here(name: str, password: str) -> None:
        ana.driver.find_element(By.ID, "name").send_keys(name)
        ana.driver.find_element(By.ID, "password").send_keys(password, Keys.ENTER)

    # Somebody who may not, and a wrong password: what was written stays there.
    signs_in_here("viewer", PASSWORD)
    ana.until(lambda: "do not allow this" in ana.main())
    assert not ana.too_wide()
    signs_in_here("releaser", "wrong")
    ana.until(lambda: "do not fit" in ana.main())
    assert not ana.too_wide()
    signs_in_here("releaser", PASSWORD)
    ana.until(lambda: ana.heading() == key.batch_id)
    assert ana.run("return document.getElementById('text').value") == "Ask <b>us</b>,\n\ntomorrow."
    assert ana.run("return document.getElementById('remark').value") == "asked the depot"
    assert outcome_of(site.store, key) is None, "nobody has released it yet"
    ana.run("for (const part of document.querySelectorAll('[data-live]')) part.dataset.live = 1")
    ana.run("return new Promise((done) => setTimeout(done, 1500))")
    assert not ana.run("return document.documentElement.classList.contains('stale')"), "it refreshes itself"

    # The same, signed in again in another tab: the form's key is of the session before.
    site.doors.leave(ana.driver.get_cookies()[0]["value"])
    here = ana.driver.current_window_handle
    ana.driver.switch_to.new_window("tab")
    ana.goes("/login")
    ana.signs_in("administrator")
    ana.driver.close()
    ana.driver.switch_to.window(here)
    ana.driver.find_element(By.CSS_SELECTOR, "button.good").send_keys(Keys.ENTER)
    ana.until(lambda: "not of your session" in ana.main())
    ana.driver.find_element(By.CSS_SELECTOR, "main button").send_keys(Keys.ENTER)
    ana.until(lambda: ana.heading() == key.batch_id)
    assert "Ask" not in ana.driver.current_url
    ana.driver.find_element(By.CSS_SELECTOR, "button.good").send_keys(Keys.ENTER)
    ana.until(lambda: "answer b is released, edited" in ana.main())
    outcome = outcome_of(site.store, key)
    assert (outcome.text, outcome.remark, outcome.by) == (
        "Ask <b>us</b>,\n\ntomorrow.", "asked the depot", "account:administrator",
    )  # fmt: skip
    browser.forget()  # of the 403 that it asked for


def test_what_is_refused_at_the_desk_shows_what_was_written(front: tuple[Site, list[BatchKey]]):
    site, (one, two, *_) = front
    ana, form = site.client("releaser"), fields(one, answer="a", text=f"Mine {HARM}", remark="asked them")

    def kept(page: str) -> tuple[str, str]:
        text = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL)
        remark = re.search(r'id="remark"[^>]*value="([^"]*)"', page)
        return unescape(text[1]), unescape(remark[1])

    wrote = (form["text"], form["remark"])
    # Refused as it stands, by the database, or without a session: each page has it, and none says more of the batch.
    bad = ana.act("/desk/release", **form | {"remark": "x" * 501})
    assert (bad.status, kept(bad.body)) == (409, (form["text"], "x" * 501))
    stranger = site.client()
    refused = stranger.post("/desk/release", form)
    assert (refused.status, kept(refused.body)) == (403, wrote)
    assert "Where is parcel" not in refused.body
    again = address(one) + "&attempt=1"
    for name, password in (("", ""), ("releaser", "wrong"), ("labeller", PASSWORD)):
        answer = stranger.post(again, form | {"name": name, "password": password})
        assert (answer.status, kept(answer.body)) == (403, wrote), name
        assert "set-cookie" not in answer.headers, name
        assert "Where is parcel" not in answer.body, name
    # Only from the page itself, and never by an address.
    assert stranger.post(again, form, origin="http://evil.example").status == 403
    assert "Mine" not in ana.get(f"{again}&edit=a&text=Mine&remark=Mine").body
    inside = stranger.post(again, form | {"name": "releaser", "password": PASSWORD})
    assert (inside.status, kept(inside.body)) == (200, wrote)
    stranger.cookie = inside.headers["set-cookie"].partition(";")[0]
    # Without an edit, it is the remark alone.
    rejected = site.client().post("/desk/reject", fields(two, remark="no good"))
    assert "no good" in rejected.body
    back = ana.post(address(two) + "&attempt=1", fields(two, remark="no good")).body
    assert 'value="no good"' in back
    assert "<textarea" not in back
    assert outcome_of(site.store, one) is outcome_of(site.store, two) is None
    assert stranger.act("/desk/release", **form).status == 303
    # What somebody else has decided meanwhile stands.
    assert "This is final." in ana.post(again, form).body


@pytest.mark.node
def test_no_page_of_the_desk_keeps_anybody_out(front: tuple[Site, list[BatchKey]], browser: Browser):
    if need := what_node_needs():
        missing(*need)
    script = axe().read_text("utf-8")
    site, keys = front
    site.store.desk.decide(keys[1], Reject(), by="account:ben", remark=HARM)
    ana = Visitor(browser, site)
    ana.signs_in("releaser")
    for path in ("/desk", address(keys[0]), f"{address(keys[2])}&edit=a", address(keys[1])):
        ana.goes(path)
        assert "\u202e" not in ana.run("return document.getElementById('main').innerText"), path
        assert ana.driver.title != "taken"
        for dark, width in ((False, None), (True, PHONE)):
            ana.looks(width=width, dark=dark)
            assert findings(ana, script) == [], (path, dark, width)
            assert not ana.too_wide(), path
        ana.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert browser.complaints() == []
    browser.forget()


def test_what_waits_at_a_closed_gate_is_marked_and_released_only_by_who_knows(
    front: tuple[Site, list[BatchKey]], told: Told, monkeypatch: pytest.MonkeyPatch
):
    site, (one, two, *_) = front
    ana = site.client("releaser")
    assert "gate closed" not in ana.get("/desk").body, "a gate that was never open is not closed by anybody"
    first = site.store.policies.close(FRONT, by="root", reason="it does harm")
    assert "<strong>gate closed</strong>" in ana.get("/desk").body
    assert "it does harm" in ana.get(address(one)).body

    def releases(key: BatchKey, **more: str) -> int:
        return ana.act("/desk/release", **fields(key, answer="a"), **more).status

    assert releases(one) == 409
    second = site.store.policies.close(FRONT, by="root", reason="it still does")
    assert releases(one, knowing=str(first.version)) == 409, "that closing is not the newest"
    assert site.store.desk.outcomes([one]) == {}

    # A change of settings leaves it closed, by whom and for what it was.
    site.store.gates.revise(FRONT, {"label_deadline_seconds": 3600.0}, by="fred", reason="changed")
    for page in (ana.get("/desk").body, ana.get(address(one)).body, ana.get(f"/gate/{FRONT}").body):
        assert "root" in page
        assert "fred" not in page.partition("<h2>The threshold over time")[0]
    monkeypatch.setenv(
        "STREAMER_DATABASE_URL", site.store._database.url.render_as_string(hide_password=False)
    )
    closed = f"holds everything since policy {second.version}, by root (name not verified): it still does"
    for shown in (("gate", "show", FRONT), ("threshold", "show", FRONT)):
        assert closed in told(*shown).out
    assert releases(one, knowing=str(second.version)) == 303
    assert site.store.desk.outcomes([one])[one].action == "released"

    said = json.loads(told("threshold", "close", FRONT, "--reason", "again", "--json").out)["waiting"]
    assert (said["desk"], said["desk_rejected"]) == (3, None)
    assert (
        "3 batches rejected"
        in told("threshold", "close", FRONT, "--reason", "for good", "--desk", "hold", "--by", "root").out
    )
    outcome = site.store.desk.outcomes([two])[two]
    assert (outcome.action, outcome.by, outcome.remark) == ("rejected", "root", "gate closed: for good")


def test_a_batch_of_any_attempt_is_decided_about(people: Site, peopled_world: World):
    (key,) = hold(peopled_world, ("Here.", "There."), attempt=12_345)
    ana = people.client("releaser")
    assert ana.get(f"{address(key)}&attempt=12345").status == 200
    assert ana.act("/desk/release", **fields(key, answer="a")).status == 303
    assert people.store.desk.outcomes([key])[key].action == "released"
