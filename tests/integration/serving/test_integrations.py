"""`examples/integrations` with the real packages: what the gate ships is shown, and whatever else happens is held."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests import programs
from tests.faults.endpoint import GATE, PATIENCE, Endpoint, Site
from tests.faults.site import wait_until
from tests.integration.serving.model_server import AGREED, ANSWERS, ENCODER, Model, agreeing, differing
from tests.services.integrations import EXAMPLES, ROOT, later_node, node_folder, python_environment
from tests.services.openai_server import ChatReply, ChatRequest
from tests.services.ports import free_port
from tests.services.service_forks import ServiceForks

pytestmark = [pytest.mark.slow, pytest.mark.registry]

HOLD = "Somebody will come back to you."
SHIPS, HOLDS = "Where is my parcel?", "Who are you?"
NOWHERE = "http://127.0.0.1:9"
PATHS = os.pathsep.join((str(ROOT), str(ROOT / "packages" / "client")))
MASTER_KEY = "sk-of-this-test-and-of-nobody-else"
SCRIPTS = (
    "openai_python.py",
    "langchain_gate.py",
    "langchain_model.py",
    "openai_agents_model.py",
    "anthropic_python.py",
    "litellm_sdk.py",
    pytest.param("openai_node.mjs", marks=pytest.mark.node),
)

SAMPLES = "langchain_gate.py"
"""It samples by itself; a gate that is pinned to an upstream is no gate for its answers."""
DECIDED = "decided"
"""The gate for such batches."""

HEAVY = {
    "langchain_gate.py": "langchain_openai",
    "langchain_model.py": "langchain_openai",
    "openai_agents_model.py": "agents",
    "anthropic_python.py": "anthropic",
    "litellm_sdk.py": "litellm",
}
"""What takes long to import in the scripts that need packages of their own."""

PROXY = """
import os, sys
from litellm import run_server
os.dup2(2, 1)
sys.exit(run_server())
"""
"""LiteLLM's command `litellm`, with both outputs in one."""


def reply(request: ChatRequest) -> ChatReply:
    """Answers that agree to one prompt, and differ to any other."""
    return agreeing(request) if request.texts[-1] == SHIPS else differing(request)


class Service(NamedTuple):
    site: Site
    model: Model
    endpoint: Endpoint


@contextmanager
def _service(folder: Path, database: Path) -> Iterator[Service]:
    """A gate that ships answers that agree; another does so in shadow mode, which shows its first answer."""
    shutil.copy(database, folder / "audit.db")
    site = Site(f"sqlite:///{folder / 'audit.db'}", folder)
    with Model() as model, closing(site):
        model.reply = reply
        site.gate(scorer="gram", encoder=ENCODER)
        site.gate("shadow", scorer="gram", encoder=ENCODER, mode="shadow")
        site.gate(DECIDED, scorer="gram", encoder=ENCODER)
        site.gate(f"{DECIDED}-shadow", scorer="gram", encoder=ENCODER, mode="shadow")
        gates = {GATE: {}, "shadow": {"in_shadow": "first"}}
        yield Service(site, model, model.serve(site, "--wait", "50", gates=gates))
        site.check()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, migrated_sqlite_file: Path) -> Iterator[Service]:
    with _service(tmp_path_factory.mktemp("integrations"), migrated_sqlite_file) as started:
        yield started


@pytest.fixture
def own_service(tmp_path: Path, migrated_sqlite_file: Path) -> Iterator[Service]:
    """One that the test may stop."""
    with _service(tmp_path, migrated_sqlite_file) as started:
        yield started


def environment(service: Service, url: str, **others: str) -> dict[str, str]:
    """What an example needs to find the service and the model; it reaches nothing but the loopback."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "PATH") if name in os.environ}
    return kept | {
        "ANSWERS": str(ANSWERS),
        "GATE": GATE,
        "GATE_KEY": "none",
        "GATE_SECONDS": str(PATIENCE),
        "GATE_URL": url,
        "HTTP_PROXY": NOWHERE,
        "HTTPS_PROXY": NOWHERE,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MASTER_KEY": MASTER_KEY,
        "NO_PROXY": "127.0.0.1",
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": service.model.url,
        "PYTHONPATH": PATHS,
    } | others  # fmt: skip


def shown(
    script: str, prompts: list[str], variables: dict[str, str], *, python: str | None = None
) -> list[str]:
    """What an example prints for these prompts, a line for each."""
    if script in HEAVY:
        done = _forks().run(
            prompts, environment=variables, folder=EXAMPLES, seconds=PATIENCE, module=str(EXAMPLES / script)
        )
    else:
        # Node looks for packages beside the file; this environment has a later openai than the one with LiteLLM can have.
        command = (
            [later_node(), shutil.copy(EXAMPLES / script, node_folder())]
            if script.endswith(".mjs")
            else [python or sys.executable, str(EXAMPLES / script)]
        )
        done = programs.run(*command, *prompts, status=None, seconds=PATIENCE, env=variables)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("held: ") == done.stdout.count(HOLD), done.stderr
    return done.stdout.splitlines()


@cache
def _forks() -> ServiceForks:
    """Their packages take a second to four to import, each script is run four times, and the proxy twice."""
    return ServiceForks(
        str(python_environment() / "python"),
        [*HEAVY.values(), "litellm.proxy.proxy_server"],
        {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONPATH": PATHS},
    )


@pytest.fixture(scope="module", autouse=True)
def _end_of_forks() -> Iterator[None]:
    yield
    if _forks.cache_info().currsize:
        _forks().close()
        _forks.cache_clear()


def actions(site: Site) -> list[tuple[str, str, str]]:
    """What is on record, in order: the gate, the prompt, and what was decided."""
    rows = site.rows(
        "SELECT b.gate, b.prompt, d.action_value FROM batches b JOIN decisions d ON d.batch = b.id ORDER BY b.id"
    )
    return [(gate, prompt, json.loads(bytes(value))["action"]) for gate, prompt, value in rows]


def test_every_example_is_run_here():
    scripts = {one if isinstance(one, str) else str(one.values[0]) for one in SCRIPTS}
    found = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".mjs", ".yaml")}
    assert found == scripts | {"litellm_upstream.yaml"}


def test_the_lock_has_what_the_examples_ask_for():
    wanted = re.findall(
        r"^([\w-]+)(?:\[.*\])?(==\S+)$", (EXAMPLES / "requirements.txt").read_text(), re.MULTILINE
    )
    lock = (EXAMPLES / "requirements.lock").read_text().split()
    assert wanted
    assert [name for name, version in wanted if name + version not in lock] == []
    assert "://" not in (EXAMPLES / "package-lock.json").read_text(), "an address of a registry"


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_example_shows_what_ships_and_holds_the_rest(service: Service, script: str):
    before = len(actions(service.site))
    gate, shadow = (DECIDED, f"{DECIDED}-shadow") if script == SAMPLES else (GATE, "shadow")
    variables = environment(service, service.endpoint.base, GATE=gate)
    assert shown(script, [SHIPS, HOLDS], variables) == [AGREED, HOLD]
    looks = (
        script != "openai_agents_model.py"
    )  # the SDK shows no decision, and `in_shadow` is what the owner wants
    assert shown(script, [SHIPS], variables | {"GATE": shadow}) == [HOLD if looks else AGREED]
    wanted = [(gate, SHIPS, "ship"), (gate, HOLDS, "abstain"), (shadow, SHIPS, "ship")]
    assert actions(service.site)[before:] == wanted


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_example_holds_where_the_service_is_away(service: Service, script: str):
    before = actions(service.site)
    assert shown(script, [SHIPS], environment(service, NOWHERE, GATE_SECONDS="1")) == [HOLD]
    assert actions(service.site) == before


def test_an_example_holds_where_its_own_model_is_away(service: Service):
    variables = environment(service, service.endpoint.base, OPENAI_BASE_URL=NOWHERE)
    assert shown(SAMPLES, [SHIPS], variables) == [HOLD]


@contextmanager
def litellm_proxy(config: str, variables: dict[str, str], folder: Path) -> Iterator[str]:
    """LiteLLM's proxy with one of the configurations; gives its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    program, log = folder / "litellm_proxy.py", folder / "proxy.log"
    program.write_text(PROXY)
    words = ["--config", str(EXAMPLES / config), "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as file:
        process = _forks().start(
            words, environment=variables, folder=folder, stderr=file.fileno(), module=str(program)
        )
    try:
        wait_until(lambda: process.poll() is not None or answers(url), "it answers", PATIENCE)
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        yield url
    finally:
        process.terminate()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/liveliness", timeout=PATIENCE).is_success
    except httpx.TransportError:
        return False


def test_a_litellm_proxy_with_gates_as_upstreams(own_service: Service, tmp_path: Path):
    site, _, endpoint = own_service
    to_gate = environment(own_service, f"{endpoint.base}/v1")
    with litellm_proxy("litellm_upstream.yaml", to_gate, tmp_path) as url:
        to_proxy = environment(own_service, url, GATE_KEY=MASTER_KEY)
        python = str(python_environment() / "python")
        assert shown("openai_python.py", [SHIPS, HOLDS], to_proxy, python=python) == [AGREED, HOLD]
        assert actions(site) == [(GATE, SHIPS, "ship"), (GATE, HOLDS, "abstain")]
        endpoint.close()
        assert shown("openai_python.py", [SHIPS], to_proxy) == [HOLD]
