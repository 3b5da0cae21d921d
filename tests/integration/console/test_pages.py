"""The console in a real Chromium: a person's path through every page, by keyboard; texts that mean harm; and axe-core."""

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from streamer.recalibration.one_gate import recalibrate_by_hand
from streamer.review.items import Mark, Reviewer
from tests.integration.console.conftest import HARM, PASSWORD, Site
from tests.integration.review.person import Person
from tests.integration.store.conftest import World
from tests.integration.store.labelled_gate import GATE
from tests.services.browser import Browser
from tests.services.node import axe, what_node_needs
from tests.services.requirements import missing

EVERY = (
    "/",
    f"/gate/{GATE}",
    f"/gate/{GATE}/what-if?about=threshold&threshold=0.2",
    f"/gate/{GATE}/what-if?about=budget&budget=5",
    "/decisions",
    "/decision?batch=order-200&attempt=1",
    "/decision?batch=order-201",
    "/proposals",
    "/alerts",
    f"/incident?alert={GATE}",
    "/try",
    "/people",
    "/you",
)
PHONE = 360


class Visitor(Person):
    """Somebody at the console."""

    def __init__(self, browser: Browser, site: Site) -> None:
        super().__init__(browser, site.base)
        self.site = site

    def goes(self, path: str) -> None:
        self.driver.get(self.site.base.rstrip("/") + path)

    def signs_in(self, name: str) -> None:
        self.until(lambda: self.focused() == "name")
        self.press(name, Keys.TAB, PASSWORD, Keys.ENTER)
        self.until(lambda: self.heading() != "Sign in")

    def heading(self) -> str:
        return str(self.run("return document.querySelector('h1')?.textContent.trim() ?? ''"))

    def main(self) -> str:
        return str(self.run("return document.getElementById('main').innerText"))

    def follows(self, words: str) -> None:
        """Tab to a link or button that begins with these words, and press Enter."""
        for _ in range(120):
            self.press(Keys.TAB)
            # One question, where the driver's own would be two: this is asked after every key.
            said = str(self.run("return document.activeElement?.innerText ?? ''"))
            if said.strip().startswith(words) and self.driver.switch_to.active_element.is_displayed():
                self.press(Keys.ENTER)
                return
        raise AssertionError(f"nothing that begins with {words!r} can be reached by keyboard")

    def looks(self, *, width: int | None = None, dark: bool = False) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]},
        )
        if width is not None:
            self.driver.execute_cdp_cmd(
                "Emulation.setDeviceMetricsOverride",
                {"width": width, "height": 740, "deviceScaleFactor": 1, "mobile": True},
            )

    def too_wide(self) -> bool:
        return bool(
            self.run("return document.documentElement.scrollWidth > document.documentElement.clientWidth")
        )


def test_the_gates_refresh_themselves_and_say_when_they_are_old(people: Site, browser: Browser) -> None:
    ana = Visitor(browser, people)
    ana.signs_in("viewer")
    ana.until(lambda: ana.heading() == "Gates")
    ana.run("window.same = document")
    often = "for (const part of document.querySelectorAll('[data-live]')) part.dataset.live = 1"
    ana.run(often)
    people.store.policies.close(GATE, by="ana", reason="try")
    ana.until(lambda: "The gate is closed (policy 3)." in ana.main())
    assert ana.run("return window.same === document"), "without a reload"
    ana.run(often)
    people.doors.leave(ana.driver.get_cookies()[0]["value"])
    ana.until(lambda: ana.run("return document.documentElement.classList.contains('stale')"))
    found = ana.run("return getComputedStyle(document.getElementById('main'), '::before').content")
    assert "Your session has ended" in found
    browser.complaints()  # of the 401 that it asked for


def test_the_printed_link_lets_in_and_leaves_the_address(site: Site, browser: Browser) -> None:
    token = site.doors.invite("Ana Weber")
    ana = Visitor(browser, site)
    ana.until(lambda: ana.heading() == "Open the link that the terminal printed")
    ana.goes(f"/enter#{token}")
    ana.until(lambda: ana.heading() == "Gates")
    assert token not in ana.driver.current_url
    assert not any(token in one["request"]["url"] for one in browser.requested())
    ana.goes("/you")
    assert "recorded under the name above, which nobody checked" in " ".join(ana.main().split())
    assert browser.complaints() == []


@pytest.fixture(scope="module")
def axe_script() -> str:
    if need := what_node_needs():
        missing(*need)
    return axe().read_text("utf-8")


@pytest.fixture
def root(people: Site, browser: Browser) -> Iterator[Visitor]:
    """An administrator, who sees most."""
    made = Visitor(browser, people)
    made.signs_in("administrator")
    yield made
    browser.forget()


def test_no_page_keeps_anybody_out_light_or_dark_or_on_a_phone(root: Visitor, axe_script: str) -> None:
    for path in (*EVERY, "/nosuch", "/login", "/label"):
        root.goes(path)
        if path == "/label":
            root.until(lambda: root.sees("item"))
        for dark, width in ((False, None), (True, PHONE)):
            root.looks(width=width, dark=dark)
            assert not root.too_wide(), path
            assert findings(root, axe_script) == [], (path, dark, width)
        root.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def findings(root: Visitor, axe_script: str) -> Sequence[Any]:
    """What axe-core finds on the page as it is."""
    root.run(axe_script)
    return root.driver.execute_async_script(
        "const done = arguments[0]; axe.run(document).then((found) => done(found.violations.map("
        "(one) => [one.id, one.nodes.map((node) => node.html.slice(0, 200) + node.failureSummary)])));"
    )


def unharmed(root: Visitor, paths: Sequence[str]) -> None:
    """Look whether anything on these pages came to be more than text."""
    for path in paths:
        root.goes(path)
        assert root.driver.title != "taken", path
        assert root.run("return document.querySelectorAll('main').length") == 1, path
        assert root.run("return document.querySelectorAll('main img, main script').length") == 0, path
        assert "\u202e" not in root.document(), path
        assert len(root.document()) < 200_000, path


def test_no_text_changes_a_page(root: Visitor, browser: Browser) -> None:
    browser.requested()
    unharmed(root, EVERY)
    root.goes("/decision?batch=order-200&attempt=1")
    assert root.driver.find_elements(By.CSS_SELECTOR, ".said .odd")[0].text == "U+202E"
    assert "{{ 7*7 }}" in root.main()
    assert root.main().count("<script>document.title='taken'</script>") == 2
    root.goes("/decision?batch=order-201")
    assert re.search(r"the first 3,9\d\d of 1,050,000 characters", root.main()), "cut between two words"
    root.goes("/decision?batch=%3Cscript%3Ealert(1)%3C/script%3E%E2%80%AE")
    assert "<script>alert(1)</script>\\u202e" in root.main()
    # Nothing was asked of anybody else.
    asked = {one["request"]["url"] for one in browser.requested()}
    assert {one.split("/")[2] for one in asked if one.startswith("http")} == {f"127.0.0.1:{root.site.port}"}
    assert {one.partition(":")[0] for one in asked} <= {"http", "data", "about"}
    complaints = [one for one in browser.complaints() if "404" not in one]
    assert complaints == []


MEANT = "<img src=x onerror=\"document.title='taken'\"></p></main>{{ 7*7 }}"
"""A name that means harm, with nothing in it that names may not have."""


def test_no_name_reason_segment_or_remark_changes_a_page(
    people: Site, peopled_world: World, browser: Browser
) -> None:
    """What commands, labellers and traffic may name: gates' segments, who did what, and why."""
    store, clock = people.store, people.clock
    cut = peopled_world.gate("cut", segment_by="language", recalibrate="manual")
    lease = peopled_world.lease(5)
    made = [
        peopled_world.decision(
            n, f"cut-{n}", number=5, policy=cut, at=clock(), segment=HARM, scores=(0.9, 0.8), drawn=(0, 1)
        )
        for n in range(3)
    ]
    peopled_world.commit(peopled_world.slice(lease, *made, expected=0))
    store.labels.add([
        peopled_world.label(1.0, "cut-0", key=one.key, response_id="a", labeller=MEANT, at=clock()) for one in made[:1]
    ])  # fmt: skip
    reviewer = Reviewer(labeller=MEANT, holder="page")
    item = store.reviews.next(reviewer, ["cut"], hold=timedelta(minutes=5), now=clock())
    store.reviews.mark(
        reviewer, Mark(token=item.token, severity=0.5, name="m", count=1, remark=HARM), now=clock()
    )
    store.gates.revise(
        "cut", {"hold_action": "escalate", "desk_deadline_seconds": 900.0}, by=MEANT, reason=HARM
    )
    store.policies.close("cut", by=MEANT, reason=HARM)
    store.policies.close(GATE, by=f"account:{MEANT}", reason=HARM)
    store.calibration.reject(GATE, 2, by=MEANT, reason=HARM, now=clock())
    recalibrate_by_hand(
        store.calibration, store.policies, store.gates.get(GATE), clock=clock, by=MEANT,
        reason=HARM, propose=True,
    )  # fmt: skip
    (raised,) = store.alerts.list()
    store.alerts.assign(store.alerts.incident(raised.alert.alert_id), HARM[:200], by=MEANT)
    store.alerts.acknowledge(raised.alert.alert_id, by=MEANT, reason=HARM)
    store.accounts.add(MEANT, roles=["administrator"], password=PASSWORD, by=MEANT, reason=HARM)
    root = Visitor(browser, people)
    root.signs_in(MEANT)
    pages = (
        "/", "/gate/cut", f"/gate/{GATE}", "/proposals", "/alerts?all=1", "/people", "/you", "/desk", f"/incident?alert={raised.alert.alert_id}",
        f"/gate/{GATE}/what-if?about=threshold&threshold=0.2",
        f"/decisions?segment={quote(HARM)}", *(f"/decision?batch=cut-{n}" for n in range(3)),
    )  # fmt: skip
    unharmed(root, pages)
    for path, times in (
        ("/gate/cut", 2),
        (f"/gate/{GATE}", 1),
        ("/people", 1),
        ("/you", 1),
        ("/alerts?all=1", 1),
    ):
        root.goes(path)
        assert root.main().count("</p></main>") >= times, path
    root.goes(f"/decisions?segment={quote(HARM)}")
    assert len(root.driver.find_elements(By.CSS_SELECTOR, ".decisions li")) == 3
    assert "segment <script>document.title='taken'</script>" in root.main()
    root.goes(f"/decision?batch={made[0].key.batch_id}")
    assert MEANT in root.main(), "the labeller"
    root.goes("/label")
    root.until(lambda: root.sees("item") or root.sees("empty"))
    assert root.driver.title != "taken"
    assert MEANT in root.text("name")
    assert browser.complaints() == []


def test_a_slider_says_what_another_threshold_would_have_done(root: Visitor, browser: Browser) -> None:
    root.goes(f"/gate/{GATE}")
    threshold = root.driver.find_element(By.CSS_SELECTOR, "[data-of=threshold]")
    threshold.send_keys(Keys.ARROW_LEFT)
    root.until(lambda: "With the threshold Q > 0.305: " in root.text("what-if-answer"))
    for _ in range(61):
        threshold.send_keys(Keys.ARROW_LEFT)
    root.until(lambda: "With the threshold Q > 0: " in root.text("what-if-answer"))
    answer = " ".join(root.text("what-if-answer").replace("\u00a0", " ").split())
    assert re.search(r"9[0-9.]+ % of prompts served in place of [3-5][0-9.]+ %", answer)
    assert "answers would have got through; error rate among them" in answer
    assert "No answer would have been held instead." in answer
    budget = root.driver.find_element(By.CSS_SELECTOR, "[data-of=budget]")
    for _ in range(10):
        budget.send_keys(Keys.ARROW_LEFT)
    root.until(lambda: "At a budget of 5" in root.text("what-if-answer"))
    assert "Measured on prompts that did not calibrate" in root.text("what-if-answer")
    assert root.run("return document.querySelector('[name=about]:checked').value") == "budget"

    def follows() -> bool:
        try:
            root.driver.find_element(By.CSS_SELECTOR, "#what-if-answer a").send_keys(Keys.ENTER)
        except StaleElementReferenceException:  # the last press of a key has its answer just now
            return False
        return True

    root.until(follows)
    root.until(lambda: root.heading().startswith("order-"))
    assert browser.complaints() == []


def test_pictures_say_in_words_what_they_show(root: Visitor, tmp_path: Path) -> None:
    root.goes(f"/gate/{GATE}")
    labels = [
        one.get_attribute("aria-label") for one in root.driver.find_elements(By.CSS_SELECTOR, "figure svg")
    ]
    assert labels[0].startswith("Exposure over time. At the end it is 5.63 %, between 1.99 % and 9.56 %")
    root.goes("/")
    gauge = root.driver.find_element(By.CSS_SELECTOR, "svg.interval")
    assert gauge.get_attribute("aria-label") == "5.63 %, between 1.99 % and 9.56 %, budget 10 %"
    drawn = root.run(
        "const [track, reach] = document.querySelectorAll('svg.interval rect');"
        "return [track, reach].map((one) => [one.x.baseVal.value, one.x.baseVal.value + one.width.baseVal.value]);"
    )
    assert drawn[0][0] < drawn[1][0] < drawn[1][1] < drawn[0][1], "the bounds are inside"


def test_the_words_of_a_picture_can_be_read_on_a_phone(root: Visitor) -> None:
    for dark, width in ((False, None), (True, PHONE)):
        root.looks(width=width, dark=dark)
        root.goes(f"/gate/{GATE}")
        words = root.run(
            "return [...document.querySelectorAll('figure svg')].map((picture) => [...picture.querySelectorAll('text')]"
            ".filter((one) => getComputedStyle(one).display !== 'none').map((one) => {"
            "const {left, right, top, bottom} = one.getBoundingClientRect();"
            "const within = getComputedStyle(picture).overflow === 'visible' ? picture.closest('figure') : picture;"
            "const [least, most] = [within.getBoundingClientRect().left, within.getBoundingClientRect().right];"
            "const size = parseFloat(getComputedStyle(one).fontSize) * picture.clientWidth / 720;"
            "return [one.textContent, left, right, top, bottom, size, left >= least && right <= most]; }))"
        )
        assert [len(picture) > 8 for picture in words] == [True]
        for picture in words:
            for one, left, right, top, bottom, size, whole in picture:
                assert size >= 10, (one, size)
                assert whole, (one, width)
                for other, from_left, to_right, from_top, to_bottom, *_ in picture:
                    apart = (
                        right <= from_left
                        or to_right <= left
                        or bottom <= from_top + 2
                        or to_bottom <= top + 2
                    )
                    assert apart or one == other, (one, other, width)


def test_a_long_name_fits_a_phone(people: Site, browser: Browser) -> None:
    name = "x" * 150
    people.add(name, "administrator")
    ana = Visitor(browser, people)
    ana.signs_in(name)
    ana.looks(width=PHONE)
    for path in ("/", "/you", "/people", "/label"):
        ana.goes(path)
        if path == "/label":
            ana.until(lambda: ana.sees("item"))
        assert not ana.too_wide(), path
    browser.forget()
