"""Somebody at the review page, with a keyboard."""

import time
from collections.abc import Callable
from typing import Any

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.services.browser import Browser

LOOK = 0.3
"""Seconds that an answer is looked at: a key that comes at once is taken for one that was meant for the last."""


class Person:
    """Whoever sits at a browser. They never touch a mouse."""

    def __init__(self, browser: Browser, address: str, name: str | None = None) -> None:
        self.browser = browser
        self.driver = browser.driver
        self.driver.get(address)
        if name is not None:
            self.until(lambda: self.focused() == "enter-name")
            self.press(name, Keys.ENTER)

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def reads(self, prompt: str) -> None:
        """Wait until this is what is asked about, and look at it."""
        self.until(lambda: self.sees("item") and self.text("prompt") == prompt, prompt)
        time.sleep(LOOK)

    def text(self, id_: str) -> str:
        """Everything in an element, as it stands in the document."""
        return self.driver.execute_script("return document.getElementById(arguments[0]).textContent", id_)

    def sees(self, id_: str) -> bool:
        return self.driver.find_element(By.ID, id_).is_displayed()

    def focused(self) -> str:
        return self.driver.switch_to.active_element.get_attribute("id") or ""

    def document(self) -> str:
        return self.driver.execute_script("return document.documentElement.outerHTML")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, holds: Callable[[], object], what: str = "", *, seconds: float = 240) -> None:
        """Wait until something holds; fails with what the page shows instead."""
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                shown = self.run("return document.body.innerText")
                raise AssertionError(f"not so after {seconds} s: {what}\nthe page shows:\n{shown}")
            time.sleep(0.05)
