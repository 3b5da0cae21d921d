"""The processes that tests run in: nothing is lost, whatever becomes of one of them."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import programs
from tests.processes import FEW, _next

ROOT = Path(__file__).resolve().parents[2]
PASSING = "import pytest\n\n@pytest.mark.parametrize('n', range(5))\ndef test_one(n, tmp_path):\n    (tmp_path / 'x').touch()\n"
SESSION = """
import os
from pathlib import Path
import pytest

@pytest.fixture(scope="session", autouse=True)
def service():
    Path(f"up-{os.getpid()}").touch()
    yield
    Path(f"up-{os.getpid()}").rename(f"down-{os.getpid()}")
"""


def words_of(processes: int, *more: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.processes", f"--processes={processes}", *more]  # fmt: skip


def ran(folder: Path, files: dict[str, str], *more: str, processes: int = 2) -> tuple[int, str]:
    """Write the files and run pytest on them; its status and what it prints."""
    for name, text in {"conftest.py": SESSION, "pytest.ini": "[pytest]", **files}.items():
        (folder / name).write_text(text)
    done = programs.run(
        *words_of(processes, *more), status=None, cwd=folder, env={**os.environ, "PYTHONPATH": ROOT}
    )
    assert len(list(folder.glob("down-*"))) >= 1
    return done.returncode, done.stdout + done.stderr


def test_outcomes_of_several_processes_are_those_of_one(tmp_path: Path):
    failing = "def test_two():\n    print('seen before')\n    assert 1 == 2\n"
    other = "import warnings, pytest\ndef test_three():\n    warnings.warn('careful')\n\ndef test_four():\n    pytest.skip('why not')\n"
    files = {"test_a.py": PASSING, "test_b.py": failing, "test_c.py": other, "test_d.py": PASSING}
    status, said = ran(tmp_path, files, "-rs")
    assert status == pytest.ExitCode.TESTS_FAILED, said
    assert re.search("1 failed, 11 passed, 1 skipped, 1 warning in", said), said
    assert "assert 1 == 2" in said
    assert "seen before" in said
    assert "careful" in said
    assert "why not" in said
    assert len(list(tmp_path.glob("down-*"))) == 2
    assert not list(tmp_path.glob("up-*"))


def test_a_process_that_ends_fails_its_test_and_the_rest_is_run(tmp_path: Path):
    ending = "import os\n\ndef test_first(): pass\n\ndef test_ends(): os._exit(3)\n"
    files = {"test_a.py": ending + "\ndef test_last(): pass\n", "test_b.py": ending, "test_c.py": PASSING}
    status, said = ran(tmp_path, files, processes=1)
    assert status == pytest.ExitCode.TESTS_FAILED, said
    assert "2 failed, 8 passed" in said
    assert "its process ended with 3" in said
    assert "test_a.py::test_ends" in said


def test_what_fails_when_a_session_is_torn_down_is_told(tmp_path: Path):
    broken = SESSION + "    raise OSError('no way down')\n"
    status, said = ran(tmp_path, {"conftest.py": broken, "test_a.py": PASSING})
    assert status == pytest.ExitCode.INTERNAL_ERROR, said
    assert "no way down" in said


def test_nothing_more_is_run_after_as_many_failures_as_are_allowed(tmp_path: Path):
    failing = (
        "import pytest\n\n@pytest.mark.parametrize('n', range(50))\ndef test_two(n):\n    assert n > 99\n"
    )
    status, said = ran(tmp_path, {"test_a.py": failing, "test_b.py": failing}, "-x")
    assert status == pytest.ExitCode.TESTS_FAILED, said
    assert "stopping after 1 failures" in said


def test_files_that_need_what_few_processes_have_go_to_those_while_the_others_have_work():
    marks = ("kafka", "browser", "")
    needs: list[Any] = [[SimpleNamespace(get_closest_marker=mark.__eq__)] for mark in marks]
    kafka, browser, rest = needs
    files = deque(needs)
    assert _next(files, 5) is rest
    assert _next(files, FEW["browser"][0]) is browser
    assert _next(files, 5) is kafka, "nothing else is left"


def test_an_interrupt_tears_down_what_was_set_up(tmp_path: Path):
    waiting = "import time\nfrom pathlib import Path\n\ndef test_waits():\n    Path('{}').touch()\n    time.sleep(200)\n"
    (tmp_path / "pytest.ini").write_text("[pytest]")
    # What a shell starts in the background ignores Ctrl-C, and so would what that starts.
    handled = "    import signal\n    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    conftest = f"{SESSION}\ndef pytest_configure(config):\n{handled}"
    (tmp_path / "conftest.py").write_text(conftest)
    for name in "ab":
        (tmp_path / f"test_{name}.py").write_text(waiting.format(f"{name}-began"))
    process = subprocess.Popen(
        words_of(2), cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE
    )
    with process:
        while len(list(tmp_path.glob("*-began"))) < 2:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(200) == pytest.ExitCode.INTERRUPTED
    assert len(list(tmp_path.glob("down-*"))) == 2
