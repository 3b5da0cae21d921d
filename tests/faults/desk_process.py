"""Somebody at the desk who never stops, until the process is killed: decides about whatever waits, as a person or as the clerk.

``python -m tests.faults.desk_process URL NAME SEED AHEAD``: AHEAD seconds are added to the clock of a clerk; a person has none.
"""

import random
import sys
from datetime import timedelta

from streamer import wiring
from streamer.errors import StreamerError, UsageError
from streamer.settings.settings import load_settings
from streamer.store.desk.release_desk import Reject, Release


def main(url: str, name: str, seed: str, ahead: str) -> None:
    """Work until killed."""
    draw = random.Random(seed)
    with wiring.open_store(load_settings(database={"url": url})) as store:
        if ahead != "0":
            late = timedelta(seconds=float(ahead))
            store.desk._clock = lambda: wiring.now() + late
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            try:
                if ahead != "0":
                    store.desk.reject_overdue(store.leases.of_desk())
                    continue
                waiting = store.desk.waiting(limit=8)
                if not waiting:
                    continue
                act = (
                    Reject()
                    if draw.random() < 0.3
                    else Release(
                        response_id=draw.choice(["r0", "r1"]),
                        text=f"by {name}" if draw.random() < 0.5 else None,
                    )
                )
                store.desk.decide(draw.choice(waiting).key, act, by=f"account:{name}")
            except UsageError:
                continue  # somebody else was first, or the answer is blank
            except StreamerError as error:
                sys.stdout.write(f"{type(error).__name__}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
