"""Node for tests of `clients/typescript`, TypeScript's compiler, axe-core and an issuer of OpenID Connect, of the versions that their locks name."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "clients" / "typescript"
AXE = ROOT / "tests" / "services" / "axe"
OIDC = ROOT / "tests" / "services" / "oidc"
GENERATED = ROOT / "tests" / "integration" / "serving" / "generated"
_LEAST = 18


def what_node_needs() -> tuple[str, str] | None:
    """What is missing to run the TypeScript client here and how to get it; None when all is there."""
    remedy = f"install Node {_LEAST} or newer, with npm (nodejs.org, or apt-get install nodejs npm)"
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "no node", remedy
    if _major() < _LEAST:
        return f"node is of version {_major()}", remedy
    try:
        compiler()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = str(error.stderr or error).strip().splitlines()[-1]
        return "no TypeScript compiler", f"`npm ci` must work in clients/typescript ({said})"
    return None


def node() -> list[str]:
    """How to call node: 18 has what the client needs, yet not by itself."""
    return ["node", *(["--experimental-global-webcrypto"] if _major() < 20 else [])]


def _major() -> int:
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    return int(version.lstrip("v").split(".")[0])


def compiler() -> Path:
    return _fetched("typescript", CLIENT, ".bin/tsc")


def axe() -> Path:
    """The script of axe-core, which finds what keeps people from using a page."""
    return _fetched("axe", AXE, "axe-core/axe.min.js")


def generators() -> Path:
    """The folder of programs that lint an OpenAPI document, and make clients of it in TypeScript."""
    return _fetched("generated", GENERATED, ".bin/redocly").parent


@contextmanager
def oidc_issuer(client: dict[str, object], people: dict[str, dict[str, object]]) -> Iterator[str]:
    """Run a certified issuer with one client, and the claims of people by name. Yields its address."""
    library = _fetched("oidc", OIDC, "oidc-provider/lib/index.js")
    settings = json.dumps({"client": client, "people": people})
    command = [*node(), str(OIDC / "issuer.mjs"), str(library.parents[3]), settings]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://"), "the issuer did not start"
        yield address
    finally:
        process.terminate()
        process.wait(timeout=240)
        if process.stdout is not None:
            process.stdout.close()


def _fetched(name: str, source: Path, wanted: str) -> Path:
    """A file of a package; the first time npm fetches it into .services, by the hashes of the lock."""
    lock = (source / "package-lock.json").read_bytes()
    folder = ROOT / ".services" / f"{name}-{hashlib.sha256(lock).hexdigest()[:12]}"
    program = folder / "node_modules" / wanted
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for part in ("package.json", "package-lock.json"):
            shutil.copy(source / part, folder)
        subprocess.run(
            ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
            cwd=folder, capture_output=True, text=True, check=True, timeout=180,
        )  # fmt: skip
    return program
