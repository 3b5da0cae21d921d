"""The wheel, installed beside the same dependencies but away from the source tree, is the whole product."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
import zipfile
from email import message_from_bytes
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.services.requirements import missing

ROOT = Path(__file__).resolve().parents[2]
APACHE_2_0 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""SHA-256 of the licence's text as the Apache Software Foundation publishes it."""


class Installation(NamedTuple):
    """A virtual environment that holds the wheel, and an empty folder to work in."""

    wheel: Path
    environment: Path
    elsewhere: Path

    def run(self, program: str, *arguments: str, **environment: str) -> str:
        """Run a program of the environment away from the source tree; return its output, fail unless it exits 0."""
        inherited = {name: os.environ[name] for name in ("HOME", "LANG", "PATH") if name in os.environ}
        finished = subprocess.run(
            [self.environment / "bin" / program, *arguments],
            cwd=self.elsewhere,
            env={**inherited, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Build the wheel and install it, without dependencies: those of the test environment are lent by a path."""
    own_uv = ROOT / ".uv" / "bin" / "uv"
    uv = shutil.which("uv") or (str(own_uv) if own_uv.exists() else missing("no uv", "pip install uv"))
    folder = tmp_path_factory.mktemp("wheel")
    environment, elsewhere = folder / "environment", folder / "elsewhere"
    elsewhere.mkdir()
    _check(
        [
            *(uv, "build", "--quiet", "--wheel", "--no-build-isolation"),
            *("--python", sys.executable, "--out-dir", str(folder), str(ROOT)),
        ]
    )
    (wheel,) = folder.glob("*.whl")
    _check([uv, "venv", "--quiet", "--python", sys.executable, str(environment)])
    _check([uv, "pip", "install", "--quiet", "--no-deps", "--python", str(environment), str(wheel)])
    # A path line lends the packages but not their own path files, of which one leads to the source tree.
    (lent_to,) = environment.glob("lib/python*/site-packages")
    (lent_to / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Installation(wheel, environment, elsewhere)


def _check(command: list[str]) -> None:
    finished = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def is_source(path: Path) -> bool:
    return path.is_file() and path.parent.name != "__pycache__"


def test_the_wheel_holds_the_package_and_nothing_else(installation: Installation) -> None:
    with zipfile.ZipFile(installation.wheel) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        described = message_from_bytes(wheel.read(metadata))
    assert {name.split("/", 1)[0] for name in names} == {"streamer", metadata.split("/", 1)[0]}
    package = (ROOT / "streamer").rglob("*")
    migrations = [ROOT / "alembic.ini", *(ROOT / "migrations").rglob("*")]
    sources = {
        *(path.relative_to(ROOT) for path in package if is_source(path)),
        *("streamer" / path.relative_to(ROOT) for path in migrations if is_source(path)),
    }
    assert {Path(name) for name in names if name.startswith("streamer/")} == sources
    assert "streamer/py.typed" in names
    assert described["Name"] == "conformal-streamer"
    assert described["Requires-Python"] == "<3.14,>=3.11"


def test_the_wheel_says_its_licence_and_carries_it(installation: Installation) -> None:
    with zipfile.ZipFile(installation.wheel) as wheel:
        (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        described = message_from_bytes(wheel.read(metadata))
        carried = wheel.read(metadata.replace("METADATA", "licenses/LICENSE"))
    assert described["License-Expression"] == "Apache-2.0"
    assert described.get_all("License-File") == ["LICENSE"]
    assert carried == (ROOT / "LICENSE").read_bytes()
    assert sha256(carried).hexdigest() == APACHE_2_0


def test_the_image_copies_all_that_the_wheel_is_built_from(tmp_path: Path) -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = set()
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            copied |= set(line.split()[1:-1])
    assert copied == kept
    for name in copied:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path)
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr


def test_the_package_comes_from_the_wheel(installation: Installation) -> None:
    where = installation.run("python", "-c", "import streamer; print(streamer.__file__)")
    assert Path(where.strip()).is_relative_to(installation.environment)


def test_both_ways_to_call_the_command_show_help(installation: Installation) -> None:
    by_script = installation.run("streamer", "--help")
    assert "demo" in by_script
    assert "worker" in by_script
    assert "worker" in installation.run("python", "-m", "streamer", "--help")


def test_the_migrations_travel_with_the_wheel(installation: Installation) -> None:
    url = f"sqlite:///{installation.elsewhere / 'audit.sqlite3'}"
    installation.run("streamer", "db", "upgrade", STREAMER_DATABASE_URL=url)
    installation.run("streamer", "db", "check", STREAMER_DATABASE_URL=url)
    database = sqlite3.connect(installation.elsewhere / "audit.sqlite3")
    try:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    finally:
        database.close()
    assert {"batches", "responses", "decisions", "outcomes", "policies", "progress", "outbox"} <= tables
