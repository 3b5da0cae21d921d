"""What a person does on every page, by keyboard, at the width of a phone and in the dark: as much as at a desk by day."""

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from streamer.recalibration.one_gate import recalibrate_by_hand
from tests.integration.console.conftest import PASSWORD, WAITING, Site, outcome_of
from tests.integration.console.test_desk import FRONT, hold
from tests.integration.console.test_pages import PHONE, Visitor
from tests.integration.store.conftest import World
from tests.integration.store.labelled_gate import GATE
from tests.machine import LONG
from tests.services.browser import Browser

DARK_PAGE, LIGHT_PAGE = "rgb(20, 24, 29)", "rgb(251, 250, 247)"
NEW_PASSWORD = "another horse battery"
LOOKS = [(PHONE, True), *([(PHONE, False), (None, True)] if LONG else [])]


class Somebody(Visitor):
    """A visitor whose pages are looked at: each has to fit, in the colours that were asked for."""

    def __init__(self, browser: Browser, site: Site, *, width: int | None, dark: bool) -> None:
        super().__init__(browser, site)
        self.dark = dark
        self.looks(width=width, dark=dark)

    def sees_page(self, heading: str) -> None:
        """Wait for a page by its heading, and look at it."""
        self.until(lambda: self.heading().startswith(heading), heading)
        self.fits(heading)

    def fits(self, what: str) -> None:
        assert not self.too_wide(), what
        shown = self.run("return getComputedStyle(document.body).backgroundColor")
        assert shown == (DARK_PAGE if self.dark else LIGHT_PAGE), what

    def field(self, name: str, *keys: str) -> None:
        self.driver.find_element(By.ID, name).send_keys(*keys)

    def said(self) -> str:
        return " ".join(self.main().replace("\u00a0", " ").split())


@pytest.mark.parametrize(("width", "dark"), LOOKS, ids=str)
def test_a_person_does_everything_by_keyboard(
    people: Site, peopled_world: World, browser: Browser, width: int | None, dark: bool
) -> None:
    store = people.store
    held = hold(peopled_world, ("Yes.", "No."), ("Tomorrow.", "Never."), ("Soon.", "Late."))
    root = Somebody(browser, people, width=width, dark=dark)
    root.fits("the door")
    root.signs_in("administrator")

    # Gates, a gate, and what if.
    root.sees_page("Gates")
    assert "The budget was kept under policy 2: exposure" in root.main()
    assert f"labels waiting\n{WAITING}" in root.main()
    root.follows(GATE)
    root.sees_page(GATE)
    assert "What scores above the threshold ships." in root.main()
    assert len(root.driver.find_elements(By.CSS_SELECTOR, "figure svg")) == 1
    budget = root.driver.find_element(By.CSS_SELECTOR, "[data-of=budget]")
    budget.send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    root.until(lambda: "At a budget of 9" in root.text("what-if-answer"))
    root.fits("a slider's answer")
    root.driver.find_element(By.CSS_SELECTOR, "#what-if-answer details:not(.act) summary").send_keys(
        Keys.ENTER
    )
    root.fits("the answers that would have changed")

    # A budget is proposed, and rejected.
    root.driver.find_element(By.CSS_SELECTOR, "#what-if-answer details.act summary").send_keys(Keys.ENTER)
    root.field("budget-reason", "fewer wrong", Keys.ENTER)
    root.sees_page("Proposals")
    assert "budget 10 % 9 %" in root.said()
    root.field("stop-1", "too few answers", Keys.ENTER)
    root.until(lambda: "decided beside it no longer" in root.said())

    # A proposal is rejected; the next one is put in force.
    root.follows("Proposals")
    root.sees_page("Proposals")
    assert "It would ship more: it is looser." in root.main()
    root.field("reject-1", "too loose", Keys.ENTER)
    root.until(lambda: "Run 2 is not proposed again" in root.said())
    assert store.calibration.proposal(GATE) is None
    root.sees_page("Proposals")
    recalibrate_by_hand(
        store.calibration, store.policies, store.gates.get(GATE), clock=people.clock, by="ben", reason="again",
        propose=True,
    )  # fmt: skip
    root.goes("/proposals")
    root.sees_page("Proposals")
    root.field("approve-1", "enough labels", Keys.ENTER)
    root.until(lambda: "Run 3 is in force at gate support-bot, as policy 3." in root.said())
    newest = store.policies.newest(GATE)
    assert (newest.created_by, newest.reason) == ("account:administrator", "enough labels")

    # An alert is acknowledged, and stays to be read.
    root.follows("Alerts")
    root.sees_page("Alerts")
    root.follows("a worker refuses policy 2")
    root.sees_page("An open incident")
    root.driver.find_element(By.CSS_SELECTOR, "summary").send_keys(Keys.ENTER)
    root.field("assignee", Keys.END, " the first", Keys.ENTER)
    root.until(lambda: "administrator the first looks after it." in root.said())
    root.field("found", "an old worker", Keys.ENTER)
    root.until(lambda: "No open alerts." in root.said())
    root.follows("Acknowledged ones too")
    root.sees_page("Alerts")
    root.follows("a worker refuses policy 2")
    root.until(lambda: "acknowledged by administrator" in root.said())
    root.fits("acknowledged alerts")
    root.goes(f"/incident?alert={GATE}")
    root.sees_page("A past incident")

    # A decision is looked for and read.
    root.follows("Decisions")
    root.sees_page("Decisions")
    root.field("batch", "order-21*")
    Select(root.driver.find_element(By.ID, "outcome")).select_by_value("shipped")
    root.field("least", "0.6", Keys.ENTER)
    root.until(lambda: "batch=order-21" in root.driver.current_url)
    root.fits("what was found")
    found = [one.text for one in root.driver.find_elements(By.CSS_SELECTOR, ".decisions .head a")]
    assert found == [f"order-{n}" for n in range(219, 209, -1) if n * 37 % 100 >= 60]
    root.driver.find_element(By.CSS_SELECTOR, ".decisions .head a").send_keys(Keys.ENTER)
    root.sees_page(found[0])
    assert "is above the threshold 0.31 of policy 2." in root.main()
    assert "The record fits its seal." in root.main()

    # An answer is labelled.
    root.follows("Label")
    root.until(lambda: root.sees("item"))
    root.fits("the label page")
    assert root.text("answer").startswith("Answer ")
    assert "#" not in root.driver.current_url
    root.until(lambda: "done today" in root.text("counts"))
    root.run("return new Promise((done) => setTimeout(done, 400))")
    root.press("w")
    root.until(lambda: root.text("last").startswith("You: worst"))
    assert store.labels.pending()[GATE] == WAITING - 1
    root.follows("Console")

    # Whoever has signed out sees nothing, and is led to what was wanted after signing in.
    root.sees_page("Gates")
    root.follows("Sign out")
    root.sees_page("Sign in")
    root.goes(f"/gate/{GATE}")
    root.sees_page("Sign in")
    root.signs_in("administrator")
    root.sees_page(GATE)
    root.follows("Gates")

    # At the desk one is released, one edited, one rejected.
    root.sees_page("Gates")
    root.follows("Desk")
    root.sees_page("Desk")
    root.press("j", Keys.ENTER)
    root.sees_page(held[0].batch_id)
    root.press("2", Keys.ENTER)
    root.sees_page(held[1].batch_id)
    root.press("j", "e")
    root.until(lambda: root.focused() == "text")
    root.fits("a text that is edited")
    root.driver.find_element(By.ID, "text").clear()
    root.field("text", "On Monday.")
    root.driver.find_element(By.CSS_SELECTOR, "button.good").send_keys(Keys.ENTER)
    root.sees_page(held[2].batch_id)
    root.press("x", Keys.ENTER)
    root.sees_page("Desk")
    outcomes = [outcome_of(store, key) for key in held]
    assert [(one.action, one.text, one.edited) for one in outcomes if one is not None] == [
        ("released", "No.", False),
        ("released", "On Monday.", True),
        ("rejected", None, False),
    ]
    assert f"What {FRONT} holds comes here by itself." in root.said()

    # Somebody is added, gets another role, and is let in no more.
    root.follows("People")
    root.sees_page("People")
    root.field("name", "eva")
    root.driver.find_element(By.CSS_SELECTOR, "form[action='/people/add'] [value=viewer]").send_keys(
        Keys.SPACE
    )
    root.field("password", PASSWORD)
    root.field("again", PASSWORD, Keys.ENTER)
    root.until(lambda: "eva may sign in now, as viewer." in root.said())
    for role, done in (
        ("labeller", "eva is viewer, labeller from now on"),
        (None, "eva cannot sign in any more."),
    ):
        root.follows("Change eva")
        root.fits("what can be done about somebody")
        card = next(
            one
            for one in root.driver.find_elements(By.CSS_SELECTOR, ".people li")
            if "Change eva" in one.text
        )
        if role is None:
            card.find_element(By.CSS_SELECTOR, "button.danger").send_keys(Keys.ENTER)
        else:
            card.find_element(By.CSS_SELECTOR, f"[value={role}]").send_keys(Keys.SPACE, Keys.ENTER)
        root.until(lambda done=done: done in root.said())  # type: ignore[misc]
    assert store.accounts.get("eva").closed

    # The gate is closed.
    root.follows("Gates")
    root.sees_page("Gates")
    root.follows(GATE)
    root.sees_page(GATE)
    root.follows("Close this gate")
    root.fits("what closes a gate")
    root.field("close-reason", "complaints", Keys.ENTER)
    root.until(lambda: "Gate support-bot is closed by policy 4" in root.said())
    assert store.policies.newest(GATE).reason == "complaints"

    # A password is changed; the old one lets nobody in.
    root.follows("administrator")
    root.sees_page("administrator")
    root.field("present", PASSWORD)
    root.field("password", NEW_PASSWORD)
    root.field("again", NEW_PASSWORD, Keys.ENTER)
    root.sees_page("Sign in")
    assert people.client().sign_in("administrator").status == 403
    assert people.client().sign_in("administrator", NEW_PASSWORD).status == 303
    assert browser.complaints() == []
