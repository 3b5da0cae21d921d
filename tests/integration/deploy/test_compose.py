"""docker-compose.yml and the Dockerfile, as far as they can be tried without Docker: each part by its real counterpart."""

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamer.cli import main
from streamer.settings.settings import Settings
from streamer.settings.sources import leaves, variable_name
from streamer.telemetry.http import TelemetryServer
from tests import programs
from tests.services.kafka import KafkaBroker, what_kafka_needs
from tests.services.ports import free_port
from tests.services.postgres import PostgresServer
from tests.services.requirements import missing
from tests.told import Told

ROOT = Path(__file__).resolve().parents[3]
NEEDED = ("docker-compose.yml", ".env.example", "deploy", "Dockerfile")
JOBS = {"migrations", "topics", "demo-gate", "cli"}
OF_THEIR_IMAGE = {"kafka", "postgres"}
"""Services whose image itself goes on as a user of its own."""


def compose(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("docker-compose") is None:
        missing("no docker-compose", "apt-get install docker-compose")
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return programs.run("docker-compose", *arguments, status=None, cwd=folder, env=kept)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that compose needs, in a folder of their own."""
    for name in NEEDED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    return tmp_path


def prepare(checkout: Path) -> str:
    done = programs.run("sh", "deploy/compose/prepare.sh", cwd=checkout)
    return done.stdout


@cache
def written() -> dict[str, Any]:
    """The file as it is written, with anchors resolved."""
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))


SERVICES = written()["services"]
OURS = {name: each for name, each in SERVICES.items() if each["image"].startswith("conformal-streamer")}
each_service = pytest.mark.parametrize("name", SERVICES)


def test_without_preparation_it_says_what_to_do(checkout: Path):
    done = compose(checkout, "config", "--quiet")
    assert done.returncode != 0
    assert "is missing; run deploy/compose/prepare.sh once" in done.stderr


def test_prepared_it_is_valid_and_holds_no_secret(checkout: Path):
    assert "made .env" in prepare(checkout)
    found = (checkout / ".secrets" / "oidc-client-secret").read_text()
    assert found == "", "a public client, until there is one"
    (checkout / ".secrets" / "oidc-client-secret").write_text("secret-of-the-console")
    asked = {"OIDC_ISSUER": "https://login.example", "CONSOLE_URL": "https://streamer.example"}
    asked["OIDC_ROLES"] = '{"risk-team": "approver"}'
    with (checkout / ".env").open("a") as env:
        env.writelines(f"{name}={value}\n" for name, value in asked.items())
    done = compose(checkout, "--profile", "*", "config")
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["services"].keys() == SERVICES.keys()
    console = yaml.safe_load(done.stdout)["services"]["console"]
    assert console["environment"]["STREAMER_OIDC_ISSUER"] == "https://login.example"
    assert console["environment"]["STREAMER_OIDC_ROLES"] == asked["OIDC_ROLES"]
    assert "--public-url=https://streamer.example" in console["command"]
    for secret in (checkout / ".secrets").iterdir():
        assert secret.read_text() not in done.stdout
    assert {name: each["profiles"] for name, each in SERVICES.items() if "profiles" in each} == {
        "cli": ["cli"], "demo-gate": ["demo"], "demo-traffic": ["demo"], "serve": ["serve"],
    }  # fmt: skip


def test_preparing_again_changes_nothing_and_nobody_else_may_enter(checkout: Path):
    prepare(checkout)
    before = {path: path.read_text() for path in [*(checkout / ".secrets").iterdir(), checkout / ".env"]}
    assert prepare(checkout) == ""
    assert {path: path.read_text() for path in before} == before
    assert stat.S_IMODE((checkout / ".secrets").stat().st_mode) == 0o700
    passwords = [text for path, text in before.items() if path.name.endswith("-password")]
    assert len(set(passwords)) == 4
    assert all(re.fullmatch(r"[0-9a-f]{48}", password) for password in passwords)
    assert re.search(r"^KAFKA_CLUSTER_ID=[A-Za-z0-9_]{22}$", before[checkout / ".env"], re.MULTILINE)
    wanted = {Path(secret["file"]).name for secret in written()["secrets"].values()}
    assert {path.name for path in (checkout / ".secrets").iterdir()} == wanted


def test_git_and_the_image_leave_secrets_out():
    ignored = (ROOT / ".gitignore").read_text().split()
    assert {".secrets/", ".env"} <= set(ignored)
    context = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in context
    assert {line for line in context if line.startswith("!")} == {
        "!streamer", "!packages/client", "!packages/verify", "!pyproject.toml", "!requirements.lock", "!README.md", "!LICENSE", "!alembic.ini", "!migrations",
    }  # fmt: skip


@each_service
def test_services_may_do_no_more_than_they_need(name: str):
    service = SERVICES[name]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["cap_drop"] == ["ALL"]
    assert "privileged" not in service
    assert {"mem_limit", "cpus", "pids_limit"} <= service.keys()
    assert service.get("read_only", False) or name == "kafka"
    assert "user" in service or name in OF_THEIR_IMAGE
    assert not service.get("user", "1").startswith(("0", "root"))
    assert service["logging"]["options"]["max-size"]
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:")
    version = service["image"].rpartition(":-")[2].rstrip("}")
    assert version == "local" or re.fullmatch(r"v?\d+(\.\d+)+", version), "an image without a version"
    for variable, value in service.get("environment", {}).items():
        if re.search(r"PASSWORD|SECRET|TOKEN", variable):
            assert variable.endswith(("_FILE", "__FILE")), f"{variable} is no file"
            assert value.startswith("/run/secrets/")
    for secret in service.get("secrets", []):
        assert secret in written()["secrets"]


@each_service
def test_services_are_healthy_before_others_need_them(name: str):
    service = SERVICES[name]
    if name in JOBS:
        assert service["restart"] == "no"
        assert service["healthcheck"] == {"disable": True}
    else:
        assert service["restart"] == "unless-stopped"
        assert "healthcheck" in service or name in OURS  # the image has one
    for other, when in service.get("depends_on", {}).items():
        wanted = "service_completed_successfully" if other in JOBS else "service_healthy"
        assert when == {"condition": wanted}


def test_what_is_mounted_is_there():
    for service in SERVICES.values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (ROOT / source).exists(), source
                assert mount.endswith(":ro")
            else:
                assert source in written()["volumes"]


def test_the_settings_of_services_exist():
    known = {variable_name(group, field) for group, field, _leaf in leaves(Settings)}
    for service in OURS.values():
        for variable in service["environment"]:
            assert variable.removesuffix("_FILE") in known, variable


def test_prometheus_finds_every_job_of_its_configuration():
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    for job in config["scrape_configs"]:
        ((file,),) = (each["files"] for each in job["file_sd_configs"])
        for folder in ("prometheus", "compose"):
            target = ROOT / "deploy" / folder / file
            target = target if target.exists() else Path(f"{target}.example")
            (group,) = yaml.safe_load(target.read_text())
            assert group["targets"]
    for name in ("worker", "recalibrator", "console"):
        (group,) = yaml.safe_load((ROOT / "deploy" / "compose" / "targets" / f"{name}s.yml").read_text())
        assert group["targets"] == [f"{name}:9464"]
        assert name in SERVICES


# ---- Kafka's settings start Kafka, PostgreSQL's script makes users who can do their work


def test_kafka_starts_with_these_settings(tmp_path: Path):
    if need := what_kafka_needs():
        missing(*need)
    environment = SERVICES["kafka"]["environment"]
    ports = {number: free_port() for number in ("9092", "19092", "29093")}
    lines = {}
    for name, value in environment.items():
        if name in ("CLUSTER_ID", "KAFKA_HEAP_OPTS"):
            continue
        value = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value).replace("kafka:", "127.0.0.1:")
        value = value.replace("://:", "://127.0.0.1:").replace("localhost:", "127.0.0.1:")
        value = re.sub(r"(?<=:)(9092|19092|29093)\b", lambda found: str(ports[found[1]]), value)
        lines[name.removeprefix("KAFKA_").lower().replace("_", ".")] = value
    tried = {
        line.partition("=")[0] for line in (ROOT / "deploy/kafka/server.properties").read_text().splitlines()
    }
    there = lines.keys() - tried
    assert there <= {"log.retention.hours"}, "a setting that the tests' own broker does not know"
    broker = KafkaBroker()
    try:
        lines["log.dirs"] = str(broker.folder / "of-compose")
        properties = broker.folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        broker.bootstrap, broker._port = f"127.0.0.1:{ports['9092']}", ports["9092"]
        format_storage = ("format", "-t", broker.cluster_id, "-c", str(properties))
        assert broker._java("kafka.tools.StorageTool", *format_storage).wait(240) == 0, broker.log_tail()
        broker.start()
        broker.create_topic("by-the-port-of-this-machine")
    finally:
        broker.remove()


@pytest.fixture
def database(own_postgres_server: PostgresServer, checkout: Path) -> PostgresServer:
    """A server on which the script of the compose file has run."""
    prepare(checkout)
    own_postgres_server.create_database("streamer")
    installation = Path(own_postgres_server._installation.bin_path)
    programs.run(
        *("sh", "deploy/compose/postgres/10-logins.sh"),
        cwd=checkout,
        env={
            "PATH": f"{installation}:{os.environ['PATH']}",
            "PGHOST": str(own_postgres_server.folder),
            "SECRETS": str(checkout / ".secrets"),
        },
    )
    return own_postgres_server


def test_the_users_can_do_their_work_and_no_more(
    database: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    url = database.url_of("streamer")
    assert "//postgres@" in url

    def act_as(user: str) -> None:
        monkeypatch.setenv("STREAMER_DATABASE_URL", url.replace("//postgres@", f"//{user}@"))

    as_written = {"admin-database-url": "postgres", "migrator-database-url": "migrator"}
    steps = re.findall(
        r"STREAMER_DATABASE_URL_FILE=/run/secrets/(\S+) streamer (.*)", SERVICES["migrations"]["command"][0]
    )
    assert len(steps) == 2
    for secret, command in (*steps, *steps):  # at every start: safe to repeat
        act_as(as_written[secret])
        assert main(command.split()) == 0, capsys.readouterr().err
    act_as("service")
    assert main(["db", "check"]) == 0
    for _ in range(2):
        for command in shell_commands(SERVICES["demo-gate"]["command"][0]):
            code = main(command)
            if command[:2] == ["gate", "show"] and code == 0:
                break
    capsys.readouterr()
    assert main(["gate", "show", "demo", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["recalibrate"] == "auto"
    assert shown["severity_kind"] == "simulated"
    assert main(["db", "upgrade"]) == 2
    assert "lacks the rights to do it" in capsys.readouterr().err
    with (
        database_cursor(url.replace("//postgres@", "//service@")) as cursor,
        pytest.raises(Exception, match="permission"),
    ):
        cursor.execute("DELETE FROM streamer.policies")


def shell_commands(script: str) -> list[list[str]]:
    """The commands of a script that are ours, without the shell's own words."""
    joined = script.replace("\\\n", " ")
    commands = [part.strip() for part in re.split(r"\|\||\n", joined) if part.strip()]
    return [
        [word for word in shlex.split(command)[1:] if not re.match(r"\d?>", word)]
        for command in commands
        if command.startswith("streamer ")
    ]


def database_cursor(url: str) -> Any:
    import psycopg

    return psycopg.connect(url.replace("postgresql+psycopg://", "postgresql://"), autocommit=True)


@pytest.mark.parametrize("name", [name for name, each in OURS.items() if "entrypoint" not in each])
def test_the_commands_of_services_are_commands(name: str, told: Told):
    words = [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", word) for word in SERVICES[name]["command"]]
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    help_text = told(*[word for word in words if not word.startswith("--")], "--help").out
    assert all(option in help_text for option in options)


def test_what_the_pages_tell_to_type_is_there():
    for page in ("docs/deploying.md", "docs/operations.md"):
        text = (ROOT / page).read_text("utf-8")
        for script in re.findall(r"^(deploy/\S+\.sh)", text, re.MULTILINE):
            assert os.access(ROOT / script, os.X_OK)
        assert set(re.findall(r"docker compose --profile (\w+)", text)) <= {"demo", "cli"}
        assert set(re.findall(r"docker compose (?:run --rm|exec) (\w+)", text)) <= SERVICES.keys()
        for file in re.findall(r"deploy/[\w./-]+[\w]", text):
            if "alertmanagers.yml" not in file:
                assert (ROOT / file).exists(), file


# ---- the image


def dockerfile() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile, each with its argument on one line."""
    text = (ROOT / "Dockerfile").read_text("utf-8")
    lines = re.sub(
        r"\\\n(?:\s*#[^\n]*\n)*", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    ).splitlines()
    return [
        (word, rest) for line in lines if line.strip() for word, _, rest in (line.strip().partition(" "),)
    ]


def test_the_image_runs_as_nobody_in_particular_and_keeps_no_secret():
    instructions = dockerfile()
    stages = [i for i, (word, _) in enumerate(instructions) if word == "FROM"]
    assert len(stages) == 2
    last = instructions[stages[-1] :]
    assert ("USER", "10001:10001") in last
    assert SERVICES["worker"]["user"] == "10001:10001"
    assert ("ENTRYPOINT", '["streamer"]') in last
    assert [rest for word, rest in last if word == "COPY"] == ["--from=build /opt/streamer /opt/streamer"]
    for word, rest in instructions:
        if word in ("ARG", "ENV"):
            assert not re.search(r"(?i)password|secret|token|api_key", rest)
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists()
                assert f"!{source}" in (ROOT / ".dockerignore").read_text().splitlines()
    (python,) = (rest for word, rest in instructions if word == "ARG" and rest.startswith("PYTHON_IMAGE"))
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.11\.\d+-slim-bookworm", python)


def test_the_image_asks_the_service_itself_whether_it_is_alive():
    ((_, rest),) = ((word, rest) for word, rest in dockerfile() if word == "HEALTHCHECK")
    command = json.loads(rest.partition("CMD ")[2])
    assert command[0] == "python"
    troubles: dict[str, str] = {}
    with TelemetryServer(lambda: b"", alive=lambda: troubles, ready=dict) as server:

        def healthy() -> bool:
            done = subprocess.run(
                [sys.executable, *command[1:]], env={"STREAMER_HTTP_PORT": str(server.port)},
                capture_output=True, timeout=240, check=False,
            )  # fmt: skip
            return done.returncode == 0

        assert healthy()
        troubles["worker"] = "stopping"
        assert not healthy()
