"""A real Chromium, driven by selenium, with everything that came over its network."""

import base64
import json
import shutil
from collections.abc import Iterator
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service

_REMEDY = "install them, on Debian `apt-get install chromium chromium-driver`"


def what_the_browser_needs() -> tuple[str, str] | None:
    """What is missing and how to get it; None when a browser can be started."""
    if shutil.which("chromedriver") is None:
        return "no chromedriver", _REMEDY
    if not any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")):
        return "no Chromium", _REMEDY
    return None


class Browser:
    """One browser with a profile of its own. `driver` is selenium's."""

    def __init__(self) -> None:
        options = webdriver.ChromeOptions()
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--window-size=1100,900",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(
            service=Service(executable_path=shutil.which("chromedriver")), options=options
        )
        self.driver.set_script_timeout(240)

    def forget(self) -> None:
        """Go back to nothing: no page, no cookie, nothing kept, and a log that begins now."""
        self.driver.get("about:blank")
        self.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        self.driver.get_log("performance")
        self.driver.get_log("browser")

    def complaints(self) -> list[str]:
        """Return what the browser's console says, refused loads by the content security policy among it."""
        return [line["message"] for line in self.driver.get_log("browser")]

    def received(self) -> Iterator[tuple[str, str]]:
        """Yield the address and body of every answer since the last call, as far as the browser still has them."""
        for address, request in list(self._answers()):
            try:
                body: dict[str, Any] = self.driver.execute_cdp_cmd(
                    "Network.getResponseBody", {"requestId": request}
                )
            except WebDriverException:
                continue  # a page that was left
            text = body["body"]
            yield address, base64.b64decode(text).decode() if body["base64Encoded"] else text

    def requested(self) -> list[dict[str, Any]]:
        """Return every request since the last call, as the browser describes it."""
        return [
            message["params"]
            for message in self._network()
            if message["method"] == "Network.requestWillBeSent"
        ]

    def close(self) -> None:
        self.driver.quit()

    def _answers(self) -> Iterator[tuple[str, str]]:
        for message in self._network():
            if message["method"] == "Network.responseReceived":
                parameters = message["params"]
                yield parameters["response"]["url"], parameters["requestId"]

    def _network(self) -> Iterator[dict[str, Any]]:
        for line in self.driver.get_log("performance"):
            message = json.loads(line["message"])["message"]
            if message["method"].startswith("Network."):
                yield message
