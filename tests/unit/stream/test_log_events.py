"""What the stream logs as a warning or an error is in docs/operations.md, and nothing else is."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def logged() -> set[str]:
    found = set()
    for path in (ROOT / "streamer" / "stream").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "log"
                and node.func.attr in ("warning", "error", "exception", "critical")
            ):
                found.add(ast.literal_eval(node.args[0]))
    return found


def test_every_warning_and_error_of_the_stream_is_documented() -> None:
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    assert set(re.findall(r"`(stream\.[a-z_]+)`", page)) == logged()
