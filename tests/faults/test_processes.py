"""`streamer worker --processes 2`: both decide, one that is killed ends both and loses nothing."""

import json
import os
import signal
from itertools import count
from pathlib import Path

from tests.faults.site import Site, publish, wait_until
from tests.faults.worker_process import WorkerProcess

DECIDED = "streamer_batches_total"


class Two(WorkerProcess):
    def __init__(self, site: Site, log: str) -> None:
        arguments = ("--processes", "2")
        super().__init__(
            site.environment, site.directory / log, program=["-m", "streamer"], arguments=arguments
        )
        site.stack.callback(self.close)
        self.urls = [self.url, json.loads(self.process.stdout.readline())["http"]]

    def both_decide(self) -> bool:
        """Whether each has counted decisions."""
        decided = []
        for url in self.urls:
            self.url = url
            decided.append(sum(n for name, n in self.metrics().items() if name.startswith(DECIDED)))
        return all(decided)

    def running(self) -> list[int]:
        pid = self.process.pid
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_two_processes_share_the_partitions_and_a_killed_one_loses_nothing(site: Site) -> None:
    both, batches = Two(site, "first.log"), count()

    def shared() -> bool:
        publish(site, next(batches) * 20, 20)
        return both.both_decide()

    wait_until(shared, "both decide")
    os.kill(both.running()[0], signal.SIGKILL)
    publish(site, next(batches) * 20, 20)
    assert both.process.wait(240) == 128 + signal.SIGKILL, both.log_tail()
    assert '"worker.process_ended"' in both.log_text()
    assert '"process": 2' in both.log_text()
    again = Two(site, "again.log")
    published = next(batches) * 20
    wait_until(lambda: site.decided() == published, "what was left is decided")
    running = again.running()
    assert again.terminate(240) == 0, again.log_tail()
    assert len(running) == 2
    assert not any(Path(f"/proc/{one}").exists() for one in running)
    found = site.check()
    assert (found.decisions, found.duplicates, found.dead_letters) == (published, 0, 0)
