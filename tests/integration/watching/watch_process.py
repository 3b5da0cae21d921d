"""A process that watches one gate, for tests that kill it: ``python -m ... URL NOW PAGE``."""

import sys
from datetime import datetime

from streamer.failpoints import from_environment
from streamer.risk.rounds.watch import RiskWatch
from streamer.store import open_store
from tests.integration.store.conftest import dead_letter_message, policy_message
from tests.integration.watching.conftest import GATE, Shown


def main(url: str, now: str, page: str) -> None:
    moment = datetime.fromisoformat(now)
    store = open_store(
        url, clock=lambda: moment, policy_message=policy_message,
        dead_letter_message=dead_letter_message, failpoint=from_environment(),
    )  # fmt: skip
    with store:
        watcher = RiskWatch(store.monitoring, alerts=store.alerts, observer=Shown(), page=int(page))
        watcher.watch(GATE, now=moment)


if __name__ == "__main__":
    main(*sys.argv[1:])
