"""The import contracts of pyproject.toml: they hold, and they break wherever somebody breaks them."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import streamer
from tests import programs

PACKAGE = Path(streamer.__file__).parent
PYPROJECT = PACKAGE.parent / "pyproject.toml"
CONTRACTS = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
OWNED = {
    name
    for contract in CONTRACTS
    if contract["type"] == "forbidden" and contract["source_modules"] == ["streamer"]
    for name in contract["forbidden_modules"]
    if name.split(".")[0] != "streamer"
}
"""What may be imported in some places only."""
COMMON = {"msgspec", "numpy", "scipy", "structlog", "pydantic", "pydantic_settings", "dotenv", "_typeshed"}
"""What may be imported in any room."""
PLACES = sorted(
    ".".join(file.parent.relative_to(PACKAGE.parent).parts)
    for file in PACKAGE.rglob("__init__.py")
    if file.parent != PACKAGE
)


def checked(folder: Path) -> subprocess.CompletedProcess[str]:
    return programs.run(
        Path(sys.executable).with_name("lint-imports"), "--no-cache", status=None, cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", "COLUMNS": "400"},
    )  # fmt: skip


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A copy of the program that may be spoiled."""
    shutil.copytree(PACKAGE, tmp_path / "streamer", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PYPROJECT, tmp_path)
    return tmp_path


def allowed(place: str) -> set[str]:
    """What this package may import of what is owned."""
    found = set()
    for contract in CONTRACTS:
        for pair in contract.get("ignore_imports", ()):
            importer, imported = pair.split(" -> ")
            if place.startswith(importer.removesuffix(".**")) and importer.endswith(".**"):
                found.add(imported)
    return found


def test_a_forbidden_import_breaks_a_contract_in_every_package(scratch: Path):
    expected = set()
    for place in PLACES:
        names = sorted(OWNED - allowed(place))
        folder = scratch.joinpath(*place.split("."))
        (folder / "spoiled.py").write_text(
            "".join(f"import {name}\n" for name in ("streamer.__main__", *names))
        )
        expected |= {f"{place}.spoiled -> {name}" for name in ("streamer.__main__", *names)}
    result = checked(scratch)
    assert result.returncode == 1, result.stdout + result.stderr
    found = set(re.findall(r"([\w.]+\.spoiled) -> ([\w.]+)", result.stdout))
    assert len(PLACES) > 30
    assert expected <= {f"{importer} -> {imported}" for importer, imported in found}


def test_a_new_room_and_a_loose_module_need_a_place(scratch: Path):
    (scratch / "streamer" / "room").mkdir()
    for new in ("room/__init__.py", "loose.py"):
        (scratch / "streamer" / new).write_text("")
    result = checked(scratch)
    assert result.returncode == 1, result.stdout + result.stderr
    assert {"room", "loose"} <= set(re.findall(r"\w+", result.stdout))


def test_whatever_comes_from_outside_is_in_a_contract_or_common():
    """Otherwise a new dependency could spread before anybody decides where it belongs."""
    outside = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom) and node.level == 0
                else []
            )
            outside |= {name.split(".")[0] for name in names}
    unknown = outside - set(sys.stdlib_module_names) - {"streamer", "streamer_client"} - OWNED - COMMON
    assert not unknown, (
        f"name in a contract of pyproject.toml, or in COMMON here: {', '.join(sorted(unknown))}"
    )
