"""What people gave survives whatever happens behind the page: no server, another server, no database."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.integration.review.conftest import Site, answers, fill, severities, unsealed
from tests.integration.review.person import Person
from tests.integration.store.conftest import World
from tests.services.browser import Browser
from tests.services.ports import free_port
from tests.services.postgres import PostgresServer


class Process:
    """`streamer review` as people start it."""

    def __init__(self, world: World, port: int, *options: str) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "streamer", "review", "--json", "--no-open"),
                *("--port", str(port), *options),
            ],
            env={**os.environ, "STREAMER_DATABASE_URL": world.url},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.announced: dict[str, Any] = json.loads(line)

    @property
    def address(self) -> str:
        return str(self.announced["addresses"][0]["url"])

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=240)

    def stop(self) -> tuple[int, str]:
        self.process.terminate()
        out, err = self.process.communicate(timeout=240)
        return self.process.returncode, out + err


@contextmanager
def running(world: World, port: int, *options: str) -> Iterator[Process]:
    process = Process(world, port, *options)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.kill()


def test_a_server_that_is_killed_and_started_again_loses_nothing(world: World, browser: Browser):
    fill(world, [answers(world, n, (f"Answer {n}.", "other")) for n in range(4)])
    port = free_port()
    with running(world, port, "--as", "Ana", "--as", "Ben", "--gate", "support-bot") as first:
        assert [one["name"] for one in first.announced["addresses"]] == ["Ana", "Ben"]
        ana = Person(browser, first.address)
        ana.reads("Question 0?")
        ana.press("f")
        ana.reads("Question 1?")
        first.kill()
    ana.press("w")
    ana.until(lambda: "1 severity that you gave is kept in this browser" in ana.text("notice"))
    # Undo works without a server, on what waits to be sent.
    ana.press("u")
    ana.reads("Question 1?")
    assert "You gave worst, 1." in ana.text("about")
    ana.press("h")
    ana.until(lambda: "2 severities that you gave are kept" in ana.text("notice"))
    assert severities(world) == {"b0-0": [("Ana", 0.0)]}

    with running(world, port, "--as", "Ana") as second:
        ana.until(lambda: ana.sees("locked"))
        assert "sent once you are in" in ana.text("notice")
        ana.driver.refresh()
        ana.until(lambda: ana.sees("locked"))
        assert "2 severities that you gave are kept" in ana.text("notice")
        ana.driver.get(second.address)
        ana.reads("Question 2?")
        assert severities(world) == {"b0-0": [("Ana", 0.0)], "b0-1": [("Ana", 1.0), ("Ana", 0.5)]}
        ana.until(lambda: not ana.sees("notice"))
        status, said = second.stop()
    assert status == 0, said
    assert second.address.partition("#")[2] not in said
    assert "Traceback" not in said
    assert unsealed(world) == []
    assert ana.run("return Object.keys(localStorage).filter((key) => key.includes('mark:'))") == []


def test_another_person_at_the_same_browser_does_not_send_what_is_not_theirs(
    world: World, serve: Callable[..., Site], browser: Browser
):
    fill(world, [answers(world, n, (f"Answer {n}.", "other")) for n in range(2)])
    port = free_port()
    first = serve(world, port=port)
    ana = Person(browser, first.address("Ana"))
    ana.reads("Question 0?")
    first.stop()
    ana.press("w")
    ana.until(lambda: "kept in this browser" in ana.text("notice"))
    again = serve(world, port=port)
    ben = Person(browser, again.address("Ben"))
    ben.until(lambda: "1 severity that Ana gave" in ben.text("notice"))
    ben.reads("Question 1?")
    ben.press("f")
    ben.until(lambda: ben.sees("empty"))
    assert severities(world) == {"b0-1": [("Ben", 0.0)]}
    back = Person(browser, again.address("Ana"))
    back.until(lambda: severities(world).get("b0-0") == [("Ana", 1.0)])


def test_somebody_else_in_another_tab_takes_this_one_over_visibly_and_under_no_wrong_name(
    world: World, serve: Callable[..., Site], browser: Browser
):
    fill(world, [answers(world, n, (f"Answer {n}.", "other")) for n in range(2)])
    site = serve(world)
    ana = Person(browser, site.address("Ana"))
    ana.reads("Question 0?")
    first = ana.driver.current_window_handle
    ana.driver.minimize_window()  # a tab in the background, as far as its page can tell
    ana.driver.switch_to.new_window("window")
    try:
        ben = Person(browser, site.address("Ben"))
        ben.reads("Question 1?")  # the page that nobody looks at has not taken it
        browser.driver.switch_to.window(first)
        ana.until(lambda: ana.text("name") == "Ben")
        assert ana.run("return document.hidden")
        assert not ana.sees("item")
        browser.driver.switch_to.window(browser.driver.window_handles[-1])
        ben.press("h")
        ben.until(lambda: ben.sees("empty"))
    finally:
        ana.driver.close()
        ana.driver.switch_to.window(first)
        ana.driver.set_window_rect(width=1100, height=900)
    ana.until(lambda: ana.sees("empty"))
    assert ana.text("name") == "Ben"
    assert not ana.sees("item"), "Ana has it still, and Ben is not shown it"
    assert severities(world) == {"b0-1": [("Ben", 0.5)]}


@pytest.mark.slow
def test_while_the_database_is_away_the_page_keeps_what_is_given_and_says_so(
    own_postgres_server: PostgresServer, serve: Callable[..., Site], browser: Browser
):
    url = own_postgres_server.create_migrated_database()
    world = World(url)
    try:
        world.gate()
        fill(world, [answers(world, n, (f"Answer {n}.", "other")) for n in range(3)])
        ana = Person(browser, serve(world).address("Ana"))
        ana.reads("Question 0?")
        own_postgres_server.stop()
        ana.press("w")
        ana.until(lambda: "The database does not answer." in ana.text("notice"))
        assert "1 severity that you gave is kept in this browser" in ana.text("notice")
        own_postgres_server.start()
        ana.reads("Question 1?")
        assert not ana.sees("notice")
        ana.press("f")
        ana.reads("Question 2?")
        assert severities(world) == {"b0-0": [("Ana", 1.0)], "b0-1": [("Ana", 0.0)]}
        assert unsealed(world) == []
    finally:
        world.close()
