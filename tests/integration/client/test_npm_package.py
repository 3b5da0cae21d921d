"""The npm package as it is published: packed, and installed where there is nothing else."""

import os
import shutil
from pathlib import Path

import pytest

from tests import programs
from tests.integration.client.test_clients import ANSWERS, decides
from tests.services.gate_server import GateServer
from tests.services.node import CLIENT, compiler, node, what_node_needs
from tests.services.requirements import missing

pytestmark = pytest.mark.node

ASKS = """
const client = new Client(process.argv[2] as string);
const decision: Decision = await client.decide("support-bot", "Where?", %s, { deadline: 30 });
console.log(decision.text);
"""


def run(folder: Path, *command: str | Path) -> str:
    """Run a command in a folder, TypeScript's compiler at hand; returns what it prints."""
    path = f"{compiler().parent}:{os.environ['PATH']}"
    done = programs.run(*command, cwd=folder, env=os.environ | {"PATH": path})
    return done.stdout.strip()


def test_it_is_imported_required_and_typed(tmp_path: Path):
    if need := what_node_needs():
        missing(*need)
    source, user = tmp_path / "source", tmp_path / "user"
    shutil.copytree(CLIENT, source, ignore=shutil.ignore_patterns("node_modules", "dist"))
    user.mkdir()
    run(source, "npm", "pack", "--silent", "--pack-destination", user)
    (tarball,) = user.glob("*.tgz")
    run(user, "npm", "install", "--offline", "--no-audit", "--no-fund", tarball)

    asks = ASKS % ANSWERS
    (user / "esm.mts").write_text(
        f'import {{ Client, type Decision }} from "conformal-streamer-client";{asks}'
    )
    (user / "cjs.cts").write_text(
        'import streamer = require("conformal-streamer-client");\nimport Client = streamer.Client;\n'
        f"type Decision = streamer.Decision;\nasync function main() {{{asks}}}\nvoid main();"
    )
    how = ("--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom", "--strict")
    (user / "globals.d.ts").write_text("declare const process: { readonly argv: string[] };")
    run(user, "tsc", *how, "globals.d.ts", "esm.mts", "cjs.cts")
    with GateServer(decides) as server:
        for script in ("esm.mjs", "cjs.cjs"):
            assert run(user, *node(), script, server.url) == ANSWERS[1]
