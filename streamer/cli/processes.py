"""`streamer worker --processes`: several workers that begin and end together."""

import os
import signal
import subprocess
import sys
import threading
from queue import SimpleQueue

import structlog

from streamer.settings.settings import Settings

log = structlog.get_logger(__name__)


def run_processes(settings: Settings, count: int, *, json: bool) -> int:
    """Run workers 1 to `count`, each in a process of its own, and return the exit status.

    Worker i shows its metrics i - 1 ports above the settings' (0: any free ones); the encoder's
    threads are shared out. When a worker ends unasked, the others are asked to end, and its
    status is the result, 128 + n for signal n: whoever restarts services then starts all of them
    again. They end too when this process is killed.
    """
    environment = dict(os.environ)
    if settings.encoder.threads is None:
        environment["STREAMER_ENCODER_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // count))
    ended: SimpleQueue[int | None] = SimpleQueue()
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, lambda *_: ended.put(None))
    workers = [
        subprocess.Popen(  # noqa: S603 - our own program
            [
                *(sys.executable, "-m", "streamer", "worker", "--until-stdin-closes"),
                *(
                    "--process",
                    str(place + 1),
                    "--port",
                    str(settings.http.port and settings.http.port + place),
                ),
                *(["--json"] if json else []),
            ],
            stdin=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches them by way of this process, once
        )
        for place in range(count)
    ]

    def wait(place: int) -> None:
        workers[place].wait()
        ended.put(place)

    for place in range(count):
        threading.Thread(target=wait, args=(place,), daemon=True).start()
    first = ended.get()
    for one in workers:
        one.terminate()
    statuses = [code if (code := one.wait()) >= 0 else 128 - code for one in workers]
    if first is None:
        return max(statuses)
    log.error("worker.process_ended", process=first + 1, status=statuses[first])
    return statuses[first]
