"""Processes beside the one that computes do not outlive it."""

import subprocess
import sys

SCRIPT = """
import os
from streamer.research.evaluation.run import side_processes
assert side_processes(1).submit(os.getpid).result() != os.getpid()
os.kill(os.getpid(), 9)
"""


def test_they_end_when_their_owner_is_killed():
    # They share its standard output, whose end comes with the last of them: else this waits in vain.
    killed = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=240, check=False
    )
    assert killed.returncode == -9, killed.stderr
