"""What generators make of the document is run against the service: in Python, TypeScript and Go."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamer.serving.openapi import document
from tests import programs
from tests.faults.endpoint import GATE, Site
from tests.integration.serving.model_server import ENCODER, Model
from tests.services.integrations import uv, with_index
from tests.services.node import generators, node
from tests.services.requirements import missing

pytestmark = [pytest.mark.slow, pytest.mark.registry, pytest.mark.node]

SOURCE = Path(__file__).with_name("generated")
GENERATOR = "openapi-python-client==0.29.1"
SAID = ["ship", "a", "abstain", "ship", 1, GATE, "unknown_gate", True]


@pytest.fixture
def url(sqlite_site: Site) -> Iterator[str]:
    sqlite_site.gate("chatty", scorer="gram", encoder=ENCODER)
    with Model() as model:
        yield model.serve(sqlite_site, gates={"chatty": {}}).base


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The scripts, and the document that clients are made of."""
    made = shutil.copytree(SOURCE, tmp_path / "generated")
    (made / "openapi.json").write_bytes(document())
    return made


def run(folder: Path, *command: str | Path, **environment: str) -> str:
    done = programs.run(*command, seconds=400, cwd=folder, env=os.environ | environment)
    return done.stdout


def said(output: str) -> Any:
    return json.loads(output.splitlines()[-1])


def test_python(folder: Path, url: str):
    of = (uv(), "run", "--quiet", "--no-project", "--python", sys.executable, "--with", GENERATOR)
    how = ("--path", "openapi.json", "--meta", "none", "--output-path", "api", "--fail-on-warning")
    run(folder, *of, "--with", "ruff", "openapi-python-client", "generate", *how, **with_index())
    assert said(run(folder, *of, "client.py", url, GATE, **with_index())) == SAID


def test_typescript_and_a_linter(folder: Path, url: str):
    programs = generators()
    (folder / "node_modules").symlink_to(programs.parent)
    quiet = {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"}
    run(folder, programs / "redocly", "lint", "openapi.json", **quiet)
    run(folder, programs / "openapi-typescript", "openapi.json", "--output", "api.ts")
    how = ("--module", "nodenext", "--target", "es2022", "--strict", "--rewriteRelativeImportExtensions")
    run(folder, programs / "tsc", *how, "--noUncheckedIndexedAccess", "client.mts")
    assert said(run(folder, *node(), "client.mjs", url, GATE)) == SAID


def test_go(folder: Path, url: str):
    if shutil.which("go") is None:
        missing("no go", "install Go 1.26 or newer (go.dev)")
    (folder / "api").mkdir()
    how = ("-generate", "types,client", "-package", "api", "-o", "api/api.go")
    run(folder, "go", "tool", "oapi-codegen", *how, "openapi.json")
    assert said(run(folder, "go", "run", ".", url, GATE)) == SAID
