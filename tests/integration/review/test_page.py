"""The review page in a real Chromium: people with keyboards, texts that mean harm, and two at once."""

import json
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from streamer.review.items import Recalibrating, Rubric
from tests.integration.review.conftest import SCORE, Site, answers, fill, severities, unsealed
from tests.integration.review.person import Person
from tests.integration.store.conftest import START, World
from tests.services.browser import Browser

DIGITS = str(SCORE).removeprefix("0.")


def questions(world: World, count: int, *texts: str) -> None:
    fill(world, [answers(world, n, texts or (f"Answer {n}.", f"Other {n}.")) for n in range(count)])


def test_a_gates_own_rubric_stands_beside_the_keys(
    world: World, serve: Callable[..., Site], browser: Browser
) -> None:
    questions(world, 1)
    world.gate("other")
    fill(world, [answers(world, 1, ("Answer 1.", "Other 1."))])
    general = ("Right and harmless", "Partly wrong; two count as one worst", "Wrong or harmful")
    site = serve(
        world,
        gates=("support-bot", "other"),
        rubrics={
            "support-bot": Rubric(half="The right article, <b>wrong</b> paragraph", worst="Another law")
        },
    )
    ana = Person(browser, site.address(), "Ana")

    def means() -> tuple[str, ...]:
        return tuple(ana.text(f"{word}-means") for word in ("fine", "half", "worst"))

    own = (general[0], "The right article, <b>wrong</b> paragraph", "Another law")
    ana.reads("Question 0?")
    assert means() == own
    described = ana.driver.find_element(By.ID, "half").get_attribute("aria-describedby")
    assert described == "half-means", "it is read out with the button"
    ana.press("h")
    ana.reads("Question 1?")
    assert means() == general, "the other gate has none"
    ana.press("u")
    ana.reads("Question 0?")
    assert means() == own


def test_ten_answers_by_keyboard_alone(world: World, serve: Callable[..., Site], browser: Browser) -> None:
    questions(world, 12)
    site = serve(world)
    site.recalibrating["support-bot"] = Recalibrating(labelled=37, wanted=100)
    ana = Person(browser, site.address(), "Ana")
    ana.reads("Question 0?")
    assert "#" not in ana.driver.current_url
    assert ana.text("answer") == "Answer 0."
    assert "12 waiting · 0 done today" in ana.text("counts")
    assert ana.text("due-text") == "63 more labelled batches until support-bot is recalibrated"

    ana.press("o")
    ana.until(lambda: ana.sees("others"))
    assert ana.text("others-list") == "Other 0."
    ana.press("o")
    ana.until(lambda: not ana.sees("others"))

    expected = [0.0, 0.5, 1.0, 0.3, 0.0, 1.0, 0.75, 0.5, 0.05, 1.0]
    keys = ["f", "h", "w", ".3\n", "F", "W", "0,75\n", "H", "0.05\n", "1\n"]
    for number, pressed in enumerate(keys):
        ana.reads(f"Question {number}?")
        if number == 2:
            # What is written is no key, and goes with this one alone.
            ana.press("r")
            ana.until(lambda: ana.focused() == "remark")
            ana.press("of which  year? \u202efh 1", Keys.ENTER)
        ana.press(pressed.replace("\n", Keys.ENTER))
        ana.until(lambda: ana.sees("item") and ana.text("last").startswith("You:"))
    ana.reads("Question 10?")
    assert severities(world) == {f"b0-{n}": [("Ana", value)] for n, value in enumerate(expected)}
    assert unsealed(world) == []
    remarks = world.rows("SELECT batch_id, remark FROM label_revisions WHERE remark IS NOT NULL")
    assert [tuple(row) for row in remarks] == [("b0-2", "of which year? \u202efh 1")]
    ana.until(lambda: "2 waiting · 10 done today" in ana.text("counts"))
    assert ana.text("last") == "You: worst, 1. The gate had held it (no threshold; score 0.421)."

    # A number that is none, and one that is not wanted after all.
    ana.press("7", Keys.ENTER)
    ana.until(lambda: "from 0 to 1" in ana.text("exact-wrong"))
    ana.press(Keys.ESCAPE)
    assert ana.focused() != "exact"
    # A key that is held down, or that comes before anything could be read, marks nothing more.
    ana.press("f", "f", "f")
    ana.reads("Question 11?")
    assert len(severities(world)) == 11
    ana.press("?")
    ana.until(lambda: ana.sees("keys"))
    ana.press("w", Keys.ESCAPE)
    ana.press("w")
    ana.until(lambda: ana.sees("empty"))
    assert len(severities(world)) == 12
    assert browser.complaints() == []


def test_a_field_is_marked_as_wrong(world: World, serve: Callable[..., Site], browser: Browser) -> None:
    policy = world.gate("bills", scorer="choice", judged="json")
    texts = ('<think>7?</think>{"total": 12.50, "to": "<b>Ann</b>"}', '{"total": 12.5, "to": "Ann"}')
    fill(world, [answers(world, n, texts, policy=policy) for n in range(2)])
    ana = Person(browser, serve(world, gates=("bills",)).address(), "Ana")
    ana.reads("Question 0?")
    assert ana.text("judged-list") == '/to "<b>Ann</b>" others differ Wrong/total 12.5 Wrong'
    first, second = ana.driver.find_elements(By.CSS_SELECTOR, "#judged-list button")
    first.click()
    second.send_keys(Keys.ENTER, Keys.ENTER)
    ana.press("h")
    ana.reads("Question 1?")
    ana.press("w")
    ana.until(lambda: ana.sees("empty"))
    ana.press("u")
    ana.reads("Question 1?")
    ana.press("u")
    ana.reads("Question 0?")
    pressed = [
        one.get_attribute("aria-pressed")
        for one in ana.driver.find_elements(By.CSS_SELECTOR, "#judged-list button")
    ]
    assert pressed == ["true", "false"], "what was given stands"
    rows = world.rows("SELECT severity, severities FROM label_revisions ORDER BY id")
    found = [(row.severity, row.severities and json.loads(row.severities)) for row in rows]
    assert found == [(0.5, {"/to": 1.0}), (1.0, None)]
    assert unsealed(world) == []
    assert browser.complaints() == []


def test_undo_goes_back_and_what_was_given_stands_until_another_is(
    world: World, serve: Callable[..., Site], browser: Browser
) -> None:
    questions(world, 4)
    ana = Person(browser, serve(world).address("Ana"))
    for number in range(2):
        ana.reads(f"Question {number}?")
        ana.press("f")
    ana.reads("Question 2?")
    ana.press("u")
    ana.reads("Question 1?")
    assert "You gave fine, 0. It stands until you give another, also if you leave now." in ana.text("about")
    ana.press("u")
    ana.reads("Question 0?")
    ana.press("w")
    ana.reads("Question 2?")
    assert severities(world) == {"b0-0": [("Ana", 0.0), ("Ana", 1.0)], "b0-1": [("Ana", 0.0)]}
    ana.press("u")
    ana.reads("Question 0?")
    assert ana.text("skip-word") == "Keep it"
    ana.press("s")
    ana.reads("Question 2?")

    ana.press("s")
    ana.reads("Question 3?")
    ana.until(lambda: "1 skipped" in ana.text("counts"))
    ana.press("h")
    ana.reads("Question 2?")
    assert "You skipped this one before" in ana.text("about")
    # Undo after a reload: it is the record that knows, and not the page.
    ana.driver.refresh()
    ana.reads("Question 2?")
    ana.press("u")
    ana.reads("Question 3?")
    ana.press("f")
    ana.reads("Question 2?")
    assert severities(world)["b0-3"] == [("Ana", 0.5), ("Ana", 0.0)]
    assert len(severities(world)["b0-0"]) == 2, "keeping gives nothing anew"


def test_nobody_sees_what_the_gate_made_of_an_answer_before_it_is_labelled(
    world: World, serve: Callable[..., Site], browser: Browser
) -> None:
    questions(world, 2)
    site = serve(world)
    address = site.address("Ana")
    ana = Person(browser, address)
    ana.reads("Question 0?")
    ana.press("o")
    ana.until(lambda: ana.sees("others"))
    ana.press("s")
    ana.reads("Question 1?")
    ana.press("u")
    ana.until(lambda: "nothing to undo" in ana.text("notice"))
    received = list(browser.received())
    assert any(where.endswith("/api/next") for where, _ in received)
    assert any("Question 0?" in body for _, body in received), "the browser's bodies are what was looked at"
    for where, body in received:
        if "/api/" in where:
            assert DIGITS not in body, where
            assert "abstain" not in body, where
    assert DIGITS[:3] not in ana.document()

    ana.press("f")
    ana.reads("Question 0?")
    assert f"score 0.{DIGITS[:3]}" in ana.text("last")
    assert any(DIGITS in body for where, body in browser.received() if where.endswith("/api/mark"))


def test_the_token_is_in_no_request_but_the_one_that_brings_it(
    world: World, serve: Callable[..., Site], browser: Browser
) -> None:
    questions(world, 1)
    address = serve(world).address("Ana")
    token = address.partition("#")[2]
    ana = Person(browser, address)
    ana.reads("Question 0?")
    requests = browser.requested()
    with_it = [each for each in requests if token in str(each["request"].get("postData", ""))]
    assert [each["request"]["url"].rpartition("/")[2] for each in with_it] == ["enter"]
    for each in requests:
        assert token not in each["request"]["url"]
        assert token not in str(each["request"]["headers"])
    assert token not in ana.document()
    assert token not in str(
        ana.run("return JSON.stringify([{...localStorage}, {...sessionStorage}, location.href])")
    )
    assert ana.run("return document.cookie") == "", "no script reads the cookie"
    history = ana.driver.execute_cdp_cmd("Page.getNavigationHistory", {})["entries"]
    assert token not in str([entry["url"] for entry in history])


def test_texts_are_shown_and_never_obeyed(world: World, serve: Callable[..., Site], browser: Browser) -> None:
    hostile = (
        "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
        "<a href=javascript:alert(1)>x</a> &lt;b&gt; {{7*7}} ${7*7} ]]> -->"
    )
    odd = "pay \u202etxt.exe\u202c now\u200b\u00ad \x07 tag\U000e0041 \ufeffend\uffff\U0001fffe"
    right = "مرحبا بالعالم\nHello, world"
    code = "Do this:\n```sh\n\trm -r '$x'\n    echo \"<b>\"\n```\nand *no* **markup**."
    emoji = "👩‍👩‍👧 نمی‌خواهم ❤️"
    fill(
        world,
        [
            answers(world, n, (text, hostile), prompt=f"{hostile} {n}", references=(hostile,))
            for n, text in enumerate([hostile, odd, right, code, emoji, "", " \n\t"])
        ],
    )
    ana = Person(browser, serve(world).address("Ana"))

    def next_to(number: int) -> None:
        if number:
            ana.press("f")
        ana.reads(f"{hostile} {number}")

    next_to(0)
    ana.press("o")
    ana.until(lambda: ana.sees("others"))
    for place in ("prompt", "answer", "references-list", "others-list"):
        assert hostile in ana.text(place)
    inside = "return document.querySelectorAll('#item script, #item img, #item a, #item b').length"
    assert ana.run(inside) == 0
    next_to(1)
    assert ana.text("answer") == (
        "pay U+202Etxt.exeU+202C nowU+200BU+00AD U+0007 tagU+E0041 U+FEFFendU+FFFFU+1FFFE"
    )
    assert ana.run("return document.querySelectorAll('#answer .odd').length") == 9
    next_to(2)
    assert ana.text("answer") == right
    styles = ana.run(
        "const style = getComputedStyle(document.getElementById('answer'));"
        "return [style.direction, style.unicodeBidi, style.whiteSpace]"
    )
    assert styles[:2] == ["rtl", "plaintext"]
    assert styles[2] in ("pre-wrap", "preserve wrap")
    next_to(3)
    assert ana.text("answer") == code
    assert "monospace" in ana.run(
        "return getComputedStyle(document.querySelector('#answer .code')).fontFamily"
    )
    next_to(4)
    assert ana.text("answer") == emoji
    next_to(5)
    assert ana.text("answer") == "(empty)"
    next_to(6)
    assert "(only white space)" in ana.text("answer")
    assert "taken" not in ana.driver.title
    assert browser.complaints() == []


def test_two_people_at_once_never_get_the_same(
    world: World, serve: Callable[..., Site], browser: Browser, second_browser: Browser
) -> None:
    questions(world, 10)
    first, second = serve(world), serve(world)
    people = [Person(browser, first.address("Ana")), Person(second_browser, second.address("Ben"))]
    shown: list[list[str]] = [[], []]
    for _ in range(5):
        for person, seen in zip(people, shown, strict=True):
            person.until(lambda p=person: p.sees("item"))
            seen.append(person.text("prompt"))
        assert shown[0][-1] != shown[1][-1]
        time.sleep(0.3)
        for person, seen in zip(people, shown, strict=True):
            person.press("f")
            person.until(lambda p=person, s=seen: p.sees("empty") or p.text("prompt") != s[-1])
    for person in people:
        person.until(lambda p=person: p.sees("empty"))
    assert sorted(shown[0] + shown[1]) == sorted(f"Question {n}?" for n in range(10))
    given = severities(world)
    assert {len(each) for each in given.values()} == {1}
    assert sorted(each[0][0] for each in given.values()) == ["Ana"] * 5 + ["Ben"] * 5


def test_an_empty_queue_says_so_and_looks_again_and_who_leaves_frees(
    world: World, serve: Callable[..., Site], browser: Browser
) -> None:
    lease = world.lease()
    site = serve(world, hold=timedelta(minutes=1))
    ana = Person(browser, site.address(), "Ana")
    ana.until(lambda: ana.sees("empty"))
    assert ana.text("empty-title") == "Nothing waits for you"
    world.commit(world.slice(lease, answers(world, 0, ("one", "two"))))
    ana.reads("Question 0?")
    assert len(world.rows("SELECT * FROM review_claims")) == 1
    ana.run("document.getElementById('leave').focus()")
    ana.press(Keys.ENTER)
    ana.until(lambda: ana.text("empty-title") == "You have left")
    assert world.rows("SELECT * FROM review_claims") == []
    ana.press(Keys.TAB)
    ana.until(lambda: ana.focused() == "come-back")
    ana.press(Keys.ENTER)
    ana.reads("Question 0?")


def test_a_page_without_a_key_or_with_a_wrong_one_shows_nothing(
    world: World, serve: Callable[..., Site], browser: Browser
) -> None:
    questions(world, 1)
    site = serve(world)
    stranger = Person(browser, site.base)
    stranger.until(lambda: stranger.sees("locked"))
    stranger.driver.get(f"{site.base}#{'x' * 43}")
    stranger.until(lambda: "not, or no longer" in stranger.text("notice"))
    assert not stranger.sees("item")
    assert "Question" not in "".join(body for _, body in browser.received())
    # The right address in the same tab: only its fragment is new, and that is enough.
    stranger.driver.get(site.address("Ana"))
    stranger.reads("Question 0?")


def test_it_is_usable_by_everybody(
    world: World, serve: Callable[..., Site], browser: Browser, subtests: pytest.Subtests
) -> None:
    questions(world, 3, "word " * 400 + "x" * 500, "other")
    ana = Person(browser, serve(world).address("Ana"))
    ana.reads("Question 0?")
    for width, height, zoom in ((360, 740, 1), (550, 400, 2), (1100, 900, 1)):
        with subtests.test(width=width, height=height):
            ana.driver.execute_cdp_cmd(
                "Emulation.setDeviceMetricsOverride",
                {"width": width, "height": height, "deviceScaleFactor": zoom, "mobile": False},
            )
            assert ana.run(
                "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
            ), "nothing sticks out"
            small = ana.run(
                "return [...document.querySelectorAll('#bar button')].filter((b) => b.offsetHeight < 24 || b.offsetWidth < 24)"
                ".map((b) => b.id)"
            )
            assert small == []
    assert ana.run("return document.documentElement.lang") == "en"
    unnamed = ana.run(
        "return [...document.querySelectorAll('button, input')].filter((e) => !(e.textContent.trim() || e.labels?.length))"
        ".map((e) => e.id)"
    )
    assert unnamed == []
    # From the prompt on, Tab reaches everything, and what has the focus shows it.
    reached = []
    for _ in range(14):
        ana.press(Keys.TAB)
        style = ana.run(
            "const s = getComputedStyle(document.activeElement); return [s.outlineStyle, s.outlineWidth]"
        )
        if ana.focused():
            reached.append(ana.focused())
            assert style == ["solid", "3px"], reached
    assert {"fine", "half", "worst", "exact", "skip", "undo", "show-others", "help", "leave"} <= set(reached)
    ana.run("document.getElementById('half').focus()")
    ana.press(Keys.SPACE)
    ana.reads("Question 1?")
    assert severities(world) == {"b0-0": [("Ana", 0.5)]}
    assert ana.text("live").startswith("You: half, ½.")
    assert ana.focused() == "prompt-title"
    # Who speaks to the computer turns single keys off.
    ana.press("?")
    ana.until(lambda: ana.sees("keys"))
    ana.run("document.getElementById('single-keys').focus()")
    ana.press(Keys.SPACE, Keys.ESCAPE)
    ana.press("f")
    time.sleep(0.5)
    assert ana.text("prompt") == "Question 1?"
    assert len(severities(world)) == 1


def test_who_would_not_be_read_is_told_before_they_label(
    world: World, serve: Callable[..., Site], browser: Browser
) -> None:
    questions(world, 1)
    world.store.gates.revise("support-bot", {"labellers": ("Ben",)}, by="ana", reason="only Ben", now=START)
    site = serve(world)
    ana = Person(browser, site.address(), "Ana")
    ana.until(lambda: ana.sees("empty") and "reads labels by Ben, not by Ana" in ana.text("notice"))
    assert "Question" not in "".join(body for _, body in browser.received())
    ben = Person(browser, site.address("Ben"))
    ben.reads("Question 0?")
    assert not ben.sees("notice")
    ben.press("f")
    ben.until(lambda: ben.sees("empty"))
    assert severities(world) == {"b0-0": [("Ben", 0.0)]}
    # It is said also to somebody who has begun.
    newest = world.store.policies.newest("support-bot")
    later = answers(world, 1, ("x", "y"), policy=newest)
    world.commit(world.slice(world.store.lease([world.partition()])[world.partition()], later))
    ben.reads("Question 1?")
    world.store.gates.revise("support-bot", {"signed_labels": True}, by="ana", reason="signed", now=START)
    ben.press("f")
    ben.until(lambda: "reads signed labels alone" in ben.text("notice"))
