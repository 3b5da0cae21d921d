"""Other programs, run to their end."""

import os
import subprocess
from typing import Any


def run(
    *command: object, status: int | None = 0, seconds: float = 240, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program, and keep what it writes; it must end with this status, whichever if that is None.

    Its environment is that of `os.environ`: the process's own has what readline put there.
    """
    words = [str(word) for word in command]
    options |= {
        "capture_output": True,
        "encoding": "utf-8",
        "timeout": seconds,
        "env": options.get("env", os.environ),
    }
    done = subprocess.run(words, check=False, **options)
    assert status in (None, done.returncode), f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done
