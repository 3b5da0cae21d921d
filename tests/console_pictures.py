"""Take the pictures of docs/console.md and docs/desk.md: each page of the console over simulated data, in a real Chromium.

    python -m tests.console_pictures [FOLDER]

Each page is taken light at the width of a desktop, and dark at that of a phone. FOLDER is docs/console unless given; the pages that
do not fit their width are named, and the exit status is then 1.
"""

import io
import sys
import tempfile
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from PIL import Image

from streamer.clouds.cloud import Cloud
from streamer.clouds.simulation import simulate_clouds
from streamer.events.alerts import alert
from streamer.store import migrate
from tests.integration.console.conftest import PASSWORD, Site, propose, watched
from tests.integration.console.test_desk import FRONT, hold
from tests.integration.console.test_pages import Visitor
from tests.integration.store.conftest import START, World
from tests.integration.store.labelled_gate import GATE, LabelledGate
from tests.services.browser import Browser

DOCS = Path(__file__).resolve().parents[1] / "docs" / "console"
DESKTOP, PHONE = 900, 390
TALLEST = 1100
"""What is further down is cut off."""
PHONES_TALL = 844
BESIDE = 4
"""Phones in one picture."""
COLOURS = 192

_DAY = timedelta(days=1)
_WAITING = 7
"""Drawn answers that nobody has labelled."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page, and what has to be there before it is taken."""

    name: str
    path: str
    shows: str = "main h1"


PAGES = (
    Page("gates", "/"),
    Page("gate", f"/gate/{GATE}"),
    Page("what-if", f"/gate/{GATE}/what-if?about=threshold&threshold=0.4"),
    Page("decisions", "/decisions?outcome=shipped"),
    Page("decision", "/decision?batch=order-412"),
    Page("desk", "/desk"),
    Page("desk-item", f"/desk/item?gate={FRONT}&batch=case-0"),
    Page("proposals", "/proposals"),
    Page("alerts", "/alerts"),
    Page("label", "/label", "#item:not([hidden]) #answer"),
    Page("try", "/try"),
    Page("people", "/people"),
    Page("you", "/you"),
    Page("trouble", "/"),
    Page("incident", f"/incident?alert={GATE}"),
)
DOOR = Page("login", "/login")


def fill(world: World) -> Callable[[], None]:
    """Make a record: a gate that serves with a looser threshold proposed, one whose held answers wait at a desk, an alert, people.

    Returns what makes the first gate's answers turn bad, until the risk alarm closes it.
    """
    gate = LabelledGate(world, recalibrate="propose", audit_probability=0.7)
    rng = np.random.default_rng(11)
    clouds = iter(simulate_clouds(seed=11, clouds=1600, responses=10, noise=0.0))
    serve(gate, 400, rng, clouds, START, wrong=0.75)
    gate.now = START + _DAY
    gate.open()
    serve(gate, 800, rng, clouds, START + _DAY, wrong=0.35)
    watched(world, START + 2 * _DAY)
    gate.now = START + 2 * _DAY
    propose(gate)
    world.store.alerts.raise_(
        alert(
            GATE,
            "policy_refused",
            "version 2",
            message="The worker on host-3 refuses policy 2: it has no key that signed it",
            details={"policy": 2, "worker": "host-3"},
            policy_version=2,
            raised_at=START + 2 * _DAY,
        )
    )
    world.clock.now = START + 2 * _DAY
    hold(
        world,
        ("It left our depot this morning and should reach you tomorrow.",
         "Your parcel is in Rotterdam. It arrives on Friday, or on Monday if customs look at it."),
        ("You can return it within 30 days.", "Returns are free for 14 days after delivery."),
    )  # fmt: skip
    for name, roles in (
        ("ana", ["administrator"]),
        ("ben", ["approver", "viewer"]),
        ("chidi", ["labeller"]),
        ("dora", ["releaser"]),
    ):
        world.store.accounts.add(name, roles=roles, password=PASSWORD, by="ana")

    def turn() -> None:
        serve(gate, 300, rng, clouds, START + 2 * _DAY, wrong=1.5)
        world.clock.now = START + 3 * _DAY
        watched(world, world.clock.now)

    return turn


def serve(
    gate: LabelledGate,
    count: int,
    rng: np.random.Generator,
    clouds: Iterator[Cloud],
    start: datetime,
    *,
    wrong: float,
) -> None:
    """Decide prompts with three answers as the policy in force says, and label what was drawn, but for the last.

    `wrong` : how often the worst scores are.
    """
    policy, first, world = gate.policy, gate.count, gate.world
    drawn = []
    for n in range(first, first + count):
        cloud = next(clouds)
        best = float(rng.beta(2.0, 1.6))
        scores = (best, best * float(rng.uniform(0.6, 0.95)), best * float(rng.uniform(0.3, 0.8)))
        bad = bool(rng.random() < wrong * (1 - best) ** 1.3)
        answers = sorted(cloud.responses, key=lambda one, bad=bad: abs((one.severity or 0.0) - bad))[:3]
        ships = policy.threshold is not None and best > policy.threshold
        at = start + timedelta(minutes=1.5 * (n - first + 1))
        made = world.decision(
            n,
            f"order-{n}",
            scores=scores,
            actions=("ship" if ships else "abstain", "abstain", "abstain"),
            drawn=(0,),
            policy=policy,
            at=at,
            prompt=cloud.question,
            references=tuple(cloud.references),
            sampled=bool(rng.random() < 0.7),
            sampling_probability=0.7,
            content=f"c{n}",
            reason="scored" if policy.calibrated else "no_threshold",
        )
        texts = tuple(
            replace(own, text=answer.text) for own, answer in zip(made.responses, answers, strict=True)
        )
        world.clock.now = at  # recorded a moment later
        world.commit(world.slice(gate.lease, replace(made, responses=texts), expected=n))
        if made.sampled:
            severity, later = answers[0].severity or 0.0, start + timedelta(hours=22)
            drawn.append((made, world.label(severity, f"order-{n}", response_id="a", at=later)))
    gate.count += count
    waiting = [one for one, _ in drawn if one.outcome != "ship"][-_WAITING:] if first else []
    gate.store.labels.add([label for one, label in drawn if one not in waiting])


def shot(ana: Visitor, page: Page, *, width: int, dark: bool, tall: int | None = None) -> Image.Image:
    """Take a page as it is at a width, `tall` pixels of it or as much as there is."""
    driver = ana.driver
    driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    ana.looks(dark=dark)
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": tall or 500, "deviceScaleFactor": 1, "mobile": width < DESKTOP},
    )
    ana.goes(page.path)
    ana.until(lambda: ana.run("return document.querySelector(arguments[0]) !== null", page.shows), page.path)
    ana.run("document.activeElement.blur()")
    there = int(ana.run("return document.documentElement.scrollHeight"))
    taken = driver.execute_cdp_cmd(
        "Page.captureScreenshot",
        {
            "captureBeyondViewport": True,
            "clip": {"x": 0, "y": 0, "width": width, "height": tall or min(there, TALLEST), "scale": 1},
        },
    )
    return Image.open(io.BytesIO(b64decode(taken["data"]))).convert("RGB")


def save(picture: Image.Image, path: Path) -> None:
    """Write a picture in few colours: it has few."""
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    sys.stdout.write(f"{path.name} {picture.width} x {picture.height}, {path.stat().st_size} bytes\n")


def beside(pictures: list[Image.Image]) -> Image.Image:
    gap = 16
    whole = Image.new(
        "RGB",
        (sum(one.width + gap for one in pictures) - gap, max(one.height for one in pictures)),
        "#8a8f98",
    )
    at = 0
    for one in pictures:
        whole.paste(one, (at, 0))
        at += one.width + gap
    return whole


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    too_wide = []
    with tempfile.TemporaryDirectory() as place:
        url = f"sqlite:///{Path(place) / 'audit.db'}"
        migrate(url)
        with closing(World(url)) as world:
            turn = fill(world)
            world.clock.now = START + 2 * _DAY
            site = Site(world)
            browser = Browser()
            try:
                ana = Visitor(browser, site)
                phones = []
                for page in (DOOR, *PAGES):
                    if page is PAGES[0]:
                        browser.forget()
                        ana.goes("/login")
                        ana.signs_in("ana")
                    if page.name == "trouble":
                        turn()
                    save(shot(ana, page, width=DESKTOP, dark=False), folder / f"{page.name}.png")
                    phones.append(shot(ana, page, width=PHONE, dark=True, tall=PHONES_TALL))
                    if ana.too_wide():
                        too_wide.append(page.name)
                for number, first in enumerate(range(0, len(phones), BESIDE), start=1):
                    save(beside(phones[first : first + BESIDE]), folder / f"phone-{number}.png")
            finally:
                browser.close()
                site.stop()
    if too_wide:
        sys.stdout.write(f"wider than a phone: {', '.join(too_wide)}\n")
    return 1 if too_wide else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS))
