"""Processes beside the one that computes do not outlive it."""

import sys

from tests import programs

SCRIPT = """
import os
from streamer.research.evaluation.run import side_processes
assert side_processes(1).submit(os.getpid).result() != os.getpid()
os.kill(os.getpid(), 9)
"""


def test_they_end_when_their_owner_is_killed():
    # They share its standard output, whose end comes with the last of them: else this waits in vain.
    programs.run(sys.executable, "-c", SCRIPT, status=-9)
