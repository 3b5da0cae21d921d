"""The report of `streamer evaluate` in a real Chromium: light and dark, at a desk and on a phone."""

from pathlib import Path

import pytest

from streamer.research.evaluation import evaluate
from tests.services.browser import Browser
from tests.services.node import axe, what_node_needs
from tests.services.requirements import missing
from tests.unit.evaluation.made_up import rows, write

AXE = (
    "const done = arguments[0]; axe.run(document).then((found) => done(found.violations.map("
    "(one) => [one.id, one.nodes.map((node) => node.html.slice(0, 200) + node.failureSummary)])));"
)
OUT_OF_THEIR_CARD = (
    "return [...document.querySelectorAll('.card > table, .card > svg')].filter((one) => one.getBoundingClientRect().right"
    " > one.parentElement.getBoundingClientRect().right || one.scrollWidth > one.parentElement.clientWidth).map("
    "(one) => one.ariaLabel);"
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with every budget, a judge and every score."""
    folder = tmp_path_factory.mktemp("report")
    file = write(folder / "made-up.jsonl", rows(judged=True))
    evaluate(file, out=folder / "out", splits=3, scorers="all", external=["luck"], cache=None)
    return folder / "out" / "report.html"


@pytest.mark.parametrize(("width", "dark"), [(1100, False), (390, True)])
def test_everybody_can_read_the_report(report: Path, browser: Browser, width: int, dark: bool) -> None:
    if need := what_node_needs():
        missing(*need)
    driver = browser.driver
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]},
    )
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    driver.get(report.as_uri())
    driver.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; });")
    assert driver.execute_script(
        "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    assert driver.execute_script(OUT_OF_THEIR_CARD) == []
    page, ink = driver.execute_script(
        "const style = getComputedStyle(document.body); return [style.backgroundColor, style.color].map("
        "(one) => one.match(/\\d+/g).reduce((sum, part) => sum + Number(part), 0));"
    )
    assert (page < ink) == dark
    if width > 500:
        asks = driver.execute_script(
            "return [...document.querySelectorAll('.three > section')].filter("
            "(one) => one.getBoundingClientRect().bottom < innerHeight).map((one) => one.firstChild.textContent);"
        )
        assert asks == ["What would ship?", "What would get through?", "Is the score any good?"]
    driver.execute_script(axe().read_text("utf-8"))
    assert driver.execute_async_script(AXE) == []
    assert browser.complaints() == []
