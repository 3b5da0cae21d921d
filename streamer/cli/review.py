"""`streamer review`: people give severities to what the audit sample drew, on a page in their browser."""

import os
import sys
import threading
import webbrowser

from streamer import wiring
from streamer.cli import options as opt
from streamer.cli.console import note, picked, print_json, say, warn
from streamer.cli.services import begin, collected
from streamer.wiring.review import Opened

PORT = 8470
"""Fixed, so that an open page finds the program again after a restart."""


def review(
    gate: opt.GateFilter = None,
    as_: list[str] | None = opt.option(
        "NAME",
        "Print a link for this person, who then cannot choose another name; may be repeated.",
        None,
        "--as",
    ),
    port: int = opt.port("Port of the page", PORT),
    host: opt.HostOption = "127.0.0.1",
    open_: bool | None = opt.flag(
        "--open/--no-open",
        "Open the page in this machine's browser. Default: if there is a screen and a terminal.",
        None,
        show_default=False,
    ),
    json: opt.JsonOption = False,
) -> None:
    """Serve a page where people label what waits in the queues, until Ctrl-C. The oldest decision comes first.

    The printed link contains a secret: anyone who has it can read the texts and give severities. Several people may
    work at once, on one page or on several servers over one database, and never get the same answer. What the gate
    decided is shown only after a severity was given. Gates whose severities a program gives (`streamer label --help`) are
    left out.
    """
    settings = wiring.load_settings()
    begin(settings)

    def announce(opened: "Opened") -> None:
        if json or collected():
            _print_json(opened)
        else:
            _print(opened)
        if has_screen() if open_ is None else open_:
            _open(opened.own_browser)

    try:
        wiring.run_review(settings, gate=gate, names=as_ or [], host=host, port=port, announce=announce)
    except KeyboardInterrupt:
        if not json:
            note(
                "Stopped. Severities that are not stored yet stay in the browsers and are sent when it runs again."
            )


def _print_json(opened: "Opened") -> None:
    addresses = [one._asdict() for one in opened.addresses]
    print_json(picked(opened, "gates refusals") | {"addresses": addresses})
    sys.stdout.flush()


def _print(opened: "Opened") -> None:
    for address in opened.addresses:
        say(address.url if address.name is None else f"{address.name}: {address.url}")
    sys.stdout.flush()
    for refusal in opened.refusals:
        warn(f"{refusal}: its queue is not shown there")
    if opened.gates:
        note(
            f"Queues of {', '.join(opened.gates)}. Anyone with a link can read the answers; press Ctrl-C to stop."
        )
    else:
        warn(
            "No gate uses labels by people yet (streamer gate create NAME --severity-kind "
            "human); the page keeps looking; press Ctrl-C to stop."
        )


def has_screen() -> bool:
    """Whether somebody sits at a terminal that a browser can be shown beside."""
    return sys.stdout.isatty() and (
        sys.platform in ("darwin", "win32")
        or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    )


def _open(address: str) -> None:
    """Show the page in a browser. Its command line can be read by others of this machine: the address works once."""

    def show() -> None:
        if not webbrowser.open(address):
            note("No browser could be opened; open the link yourself.")

    # The browser may ask before the page is served: a moment later it is.
    threading.Timer(0.5, show).start()
