"""A stop ends, whatever does not let go."""

import sys
import threading
import time

import pytest

from streamer.stream.ending import StopDeadline
from tests import programs
from tests.faults.site import wait_until


@pytest.mark.expected_errors("stream.stop_overdue")
def test_the_process_is_ended_once_and_with_the_first_status():
    ended: list[int] = []
    deadline = StopDeadline(0.1, ended.append)
    deadline.begin(65)
    deadline.begin(124)
    wait_until(lambda: ended != [], "it is ended")
    time.sleep(0.2)  # a second time would come now
    assert ended == [65]


def test_a_stop_that_ends_in_time_calls_it_off():
    ended: list[int] = []
    deadline = StopDeadline(600, ended.append)
    deadline.begin(124)
    deadline.call_off()
    name = "streamer-stop-deadline"
    wait_until(lambda: name not in {one.name for one in threading.enumerate()}, "nobody waits for it")
    assert ended == []


def test_a_task_that_swallows_its_cancellation_and_a_thread_that_hangs_do_not_hold_it():
    code = """
import asyncio, concurrent.futures, sys, time
from streamer.stream.ending import StopDeadline

async def stubborn():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

async def main():
    asyncio.get_running_loop().run_in_executor(concurrent.futures.ThreadPoolExecutor(1), time.sleep, 3600)
    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    StopDeadline(0.5).begin(124)
    task.cancel()
    await task

asyncio.run(main())
"""
    done = programs.run(sys.executable, "-c", code, status=124)
    assert "stop_overdue" in done.stdout
    assert "stubborn" not in done.stdout
    assert "Thread 0x" in done.stderr  # where everything stood
