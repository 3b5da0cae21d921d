"""A program that starts seldom looks for garbage, and a service that runs does so as often as Python by itself."""

import gc

from streamer.cli import main
from streamer.collector import look_as_usual, look_seldom
from streamer.wiring.process import settle_memory


def test_a_service_that_has_started_looks_as_usual() -> None:
    usual = gc.get_threshold()
    try:
        look_seldom()
        assert gc.get_threshold()[0] > usual[0]
        settle_memory()
        assert gc.get_threshold() == usual
    finally:
        look_as_usual()


def test_a_command_of_a_program_that_goes_on_leaves_it_alone() -> None:
    usual = gc.get_threshold()
    main(["--version"])
    assert gc.get_threshold() == usual
