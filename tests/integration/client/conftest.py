"""The three clients, called alike."""

import asyncio
import json
import re
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamer_client import AsyncClient, Client, Trouble
from tests import programs
from tests.services.node import CLIENT, compiler, node, what_node_needs
from tests.services.requirements import missing

DRIVER = Path(__file__).with_name("driver.mjs")


class Caller(ABC):
    """Calls a method of one client with arguments in Python's names, as JSON values."""

    def decide(self, url: str, answers: Any, *, key: str | None = None, **options: Any) -> dict[str, Any]:
        """A decision of the gate `support-bot` as JSON values, with `ships`; a trouble that was wanted is raised."""
        return dict(self.call(url, "decide", "support-bot", "Where is it?", answers, key=key, **options))

    @abstractmethod
    def call(self, url: str, method: str, *args: Any, key: str | None = None, **options: Any) -> Any:
        """Call a method."""

    def close(self) -> None:  # noqa: B027 - most have nothing open
        """Close what is open."""


class _Sync(Caller):
    def call(self, url: str, method: str, *args: Any, key: str | None = None, **options: Any) -> Any:
        with Client(url, key=key) as client:
            return _plain(getattr(client, method)(*args, **options))


class _Async(Caller):
    def call(self, url: str, method: str, *args: Any, key: str | None = None, **options: Any) -> Any:
        async def call() -> Any:
            async with AsyncClient(url, key=key) as client:
                return _plain(await getattr(client, method)(*args, **options))

        return asyncio.run(call())


class _Node(Caller):
    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [*node(), str(DRIVER), str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, encoding="utf-8",
        )  # fmt: skip

    def call(self, url: str, method: str, *args: Any, key: str | None = None, **options: Any) -> Any:
        names = {"raise_on_trouble": "throwOnTrouble"}
        asked = {
            "url": url, "key": key, "method": method, "args": args,
            "options": {names.get(name, _camel(name)): value for name, value in options.items()},
        }  # fmt: skip
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked, default=datetime.isoformat) + "\n")
        self._process.stdin.flush()
        said = json.loads(self._process.stdout.readline())
        assert "error" not in said, said
        if trouble := said.get("trouble"):
            raise Trouble(trouble["reason"], trouble["detail"])
        value = said["value"]
        if method in ("decide", "decision", "desk"):
            return {_snake(name): one for name, one in value.items()}
        return value

    def close(self) -> None:
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(240)
        self._process.stdout.close()


def _plain(value: Any) -> Any:
    if not isinstance(value, msgspec.Struct):
        return value
    own = {name: getattr(value, name) for name in ("ships", "released", "waits") if hasattr(value, name)}
    return msgspec.to_builtins(value) | own


def _camel(name: str) -> str:
    return re.sub(r"_(.)", lambda match: match[1].upper(), name)


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", name)


@pytest.fixture(scope="session")
def typescript(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Type-check a TypeScript file that may import ``./streamer.ts``, and return what it becomes."""
    if need := what_node_needs():
        missing(*need)

    def compiled(file: Path) -> Path:
        folder = tmp_path_factory.mktemp("typescript")
        config = json.loads((CLIENT / "tsconfig.json").read_text())
        config["compilerOptions"] |= {"outDir": str(folder / "out"), "rootDir": str(file.parent)}
        config["files"] = [str(file)]
        (folder / "tsconfig.json").write_text(json.dumps(config))
        (folder / "out").mkdir()
        (folder / "out" / "package.json").write_text('{"type": "module"}')
        programs.run(compiler(), "-p", folder)
        return folder / "out" / file.with_suffix(".js").name

    return compiled


@pytest.fixture(
    scope="session", params=["Client", "AsyncClient", pytest.param("TypeScript", marks=pytest.mark.node)]
)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    if request.param == "TypeScript":
        found: Caller = _Node(request.getfixturevalue("typescript")(CLIENT / "streamer.ts"))
    else:
        found = _Sync() if request.param == "Client" else _Async()
    yield found
    found.close()
