"""What the code is made of, in numbers: ``python -m tests.house``. docs/architecture.md has them."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "streamer"
SHOWN = 20


def modules() -> set[str]:
    """The packages and files right under `streamer`."""
    return {
        path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }


def layers() -> int:
    """Layers of the contract, those of `__main__` with them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    return len(next(one for one in contracts if one["type"] == "layers")["layers"])


def edges() -> set[tuple[str, str]]:
    """Imports from one of these modules to another, those for types alone with them."""
    graph = grimp.build_graph("streamer", cache_dir=None)
    found = set()
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            one, other = (f"{name}.__init__".split(".")[1] for name in (importer, imported))
            if one != other:
                found.add((one, other))
    return found


def measured() -> tuple[int, int, list[tuple[int, str]], list[tuple[int, str]]]:
    """Files, lines, and by size: functions by lines, and constructors by parameters."""
    functions, constructors, lines = [], [], 0
    paths = sorted(PACKAGE.rglob("*.py"))
    for path in paths:
        text = path.read_text("utf-8")
        lines += text.count("\n")
        for node in ast.walk(ast.parse(text)):
            place = f"{path.relative_to(PACKAGE)}"
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append(((node.end_lineno or 0) - node.lineno + 1, f"{place} {node.name}"))
            if isinstance(node, ast.ClassDef):
                for one in node.body:
                    if isinstance(one, ast.FunctionDef) and one.name == "__init__":
                        asked = [*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs]
                        constructors.append((len(asked) - 1, f"{place} {node.name}"))
    return len(paths), lines, sorted(functions, reverse=True), sorted(constructors, reverse=True)


def main() -> None:
    """Print them."""
    files, lines, functions, constructors = measured()
    print(f"modules {len(modules())}, layers {layers()}, imports between modules {len(edges())}")
    print(f"files {files}, lines {lines}")
    for title, rows in (("functions by lines", functions), ("constructors by parameters", constructors)):
        print(f"\n{title}")
        for size, place in rows[:SHOWN]:
            print(f"{size:5} {place}")


if __name__ == "__main__":
    main()
