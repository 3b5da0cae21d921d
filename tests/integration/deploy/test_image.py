"""The image, by `make deploy-tests`: built twice by buildah, its components run hardened by crun."""

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import streamer
from tests import programs
from tests.faults.site import wait_until
from tests.integration.deploy.test_chart import FILES, values
from tests.services.kafka import KafkaBroker
from tests.services.ports import free_port
from tests.services.postgres import PostgresServer

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(
    not (ROOT / ".services" / "image" / ".built").exists(), reason="`make deploy-tests` builds the image"
)
VERSION = streamer.__version__
REVISION = "0123456789abcdef"
COMPONENTS = values(FILES["values"].read_text("utf-8"))["components"]


def buildah(*arguments: str) -> str:
    done = programs.run("buildah", *arguments, seconds=1800, cwd=ROOT)
    return done.stdout.strip()


def built(tag: str) -> str:
    """Build the image anew, and return its identity."""
    return buildah(
        "bud", "--isolation=chroot", "--format=docker", "--no-cache", "--quiet", "--timestamp=1700000000",
        "--build-arg=PYTHON_IMAGE=localhost/streamer-base", f"--build-arg=VERSION={VERSION}",
        f"--build-arg=REVISION={REVISION}", "--volume=/etc/ssl/certs:/etc/ssl/certs:ro", f"--tag={tag}", ".",
    ).splitlines()[-1]  # fmt: skip


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    yield built("streamer-test")
    buildah("rmi", "--force", "streamer-test")


@pytest.fixture(scope="module")
def root(image: str) -> Iterator[Path]:
    """The image's file system."""
    container = buildah("from", image)
    yield Path(buildah("mount", container))
    buildah("rm", container)


def about(image: str) -> Any:
    return json.loads(buildah("inspect", "--type=image", image))


def test_it_says_what_it_is(image: str):
    labels = about(image)["Docker"]["config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == VERSION
    assert labels["org.opencontainers.image.revision"] == REVISION


def test_two_builds_agree_on_every_layer(image: str):
    again = built("streamer-test-again")
    try:
        first, second = (about(one)["OCIv1"]["rootfs"]["diff_ids"] for one in (image, again))
        assert len(first) == 2
        assert first == second
    finally:
        buildah("rmi", "--force", "streamer-test-again")


def test_nothing_is_in_it_that_no_command_needs(root: Path):
    packages = next((root / "opt/streamer/lib").glob("python3*")) / "site-packages"
    assert not [path for path in packages.rglob("tests") if path.is_dir()]
    size = sum(path.lstat().st_size for path in (root / "opt").rglob("*") if not path.is_symlink())
    assert size < 540e6, f"{size / 1e6:.0f} MB beside the base"


@contextmanager
def container(
    image: str, root: Path, name: str, folder: Path, env: dict[str, str], binds: list[str], *command: str
) -> Iterator[Any]:
    """One container: root read-only, no capability, no new privilege, the network of the host."""
    config = about(image)["Docker"]["config"]
    user = int(config["User"].split(":")[0])
    scratch = {"type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]}
    spec = {
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": user, "gid": user},
            "args": [*config["Entrypoint"], *command],
            "env": [*config["Env"], *(f"{key}={value}" for key, value in env.items())],
            "cwd": config["WorkingDir"],
            "noNewPrivileges": True,
            "capabilities": {},
        },
        "root": {"path": str(root), "readonly": True},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {"destination": "/dev/shm"} | scratch,
            {"destination": "/tmp"} | scratch,
            *({"destination": path, "source": path, "options": ["bind"]} for path in binds),
            {"destination": config["WorkingDir"]} | scratch | {"options": [f"uid={user}", "mode=750"]},
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")]},
    }  # fmt: skip
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(spec), "utf-8")
    # It wants one hierarchy of cgroups, and finds it where the machine has the old ones beside it.
    crun = [
        "unshare", "--mount", "sh", "-c", 'mount -t cgroup2 none /sys/fs/cgroup && exec crun "$@"',
        "crun",
    ]  # fmt: skip
    crun += ["--cgroup-manager=disabled", f"--root={folder / 'state'}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*crun, "run", f"--bundle={folder}", name], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield process, [*crun, "exec", name], config["Healthcheck"]["Test"]
    finally:
        if process.poll() is None:
            subprocess.run([*crun, "kill", name, "KILL"], check=False, timeout=60)
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)


def answers(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url, timeout=5) as reply:
        return bool(reply.status == 200)
    return False


@pytest.mark.kafka
@pytest.mark.postgres
@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_runs_hardened_and_ends_when_told_to(
    name: str, image: str, root: Path, tmp_path: Path, topic_prefix: str,
    kafka_broker: KafkaBroker, postgres_server: PostgresServer,
):  # fmt: skip
    database = postgres_server.create_migrated_database()
    sockets = parse_qs(urlsplit(database).query)["host"][0]
    Path(sockets).chmod(0o711)
    ports = {port: free_port() for port in ("metrics", "http")}
    env = {
        "STREAMER_DATABASE_URL": database,
        "STREAMER_KAFKA_BOOTSTRAP_SERVERS": kafka_broker.bootstrap,
        "STREAMER_KAFKA_TOPIC_PREFIX": topic_prefix,
        "STREAMER_HTTP_PORT": str(ports["metrics"]),
    }
    row = COMPONENTS[name]
    command = [word.replace("0.0.0.0", "127.0.0.1") for word in row["command"]]
    command += [f"--port={ports['http']}"] if "http" in row["ports"] else []
    with container(image, root, name, tmp_path / name, env, [sockets], *command) as (
        process,
        inside,
        healthy,
    ):
        log = tmp_path / name / "log"
        ready = f"http://127.0.0.1:{ports[row['probes']['port']]}{row['probes']['ready']}"
        wait_until(lambda: process.poll() is not None or answers(ready), f"{name} answers {ready}")
        assert process.poll() is None, log.read_text("utf-8")[-3000:]
        if "alive" in row["probes"]:
            assert healthy[0] == "CMD"
            assert subprocess.run([*inside, *healthy[1:]], check=False, timeout=60).returncode == 0
        wrote = subprocess.run([*inside, "touch", "/opt/streamer/x"], check=False, timeout=60)
        assert wrote.returncode != 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text("utf-8")[-3000:]
