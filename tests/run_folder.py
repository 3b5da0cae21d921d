"""What the processes of one run of the tests share: files that one of them makes and all read."""

import atexit
import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

RUN_FOLDER = "TESTS_RUN_FOLDER"
"""Names the folder for the processes of a run, where there are several."""


_ENOUGH_BYTES = 4 << 30


def memory_folder() -> Path | None:
    """A folder whose files are kept in memory, where there is one with room; None: the system's temporary folder.

    PostgreSQL makes 350 files for a database: on a disk's file system that costs the kernel a tenth of a second and more.
    """
    shared_memory = Path("/dev/shm")
    if shared_memory.is_dir() and shutil.disk_usage(shared_memory).free > _ENOUGH_BYTES:
        return shared_memory
    return None


def several() -> bool:
    """Whether this run has several processes."""
    return RUN_FOLDER in os.environ


@functools.cache
def run_folder() -> Path:
    """The folder of this run; of this process, where it is the only one."""
    if shared := os.environ.get(RUN_FOLDER):
        return Path(shared)
    folder = Path(tempfile.mkdtemp(prefix="streamer-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """Return the file of this name in the run's folder; whoever asks first makes it, while others wait."""
    file = run_folder() / name
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            new = file.with_suffix(".new")
            make(new)
            new.rename(file)
    return file
