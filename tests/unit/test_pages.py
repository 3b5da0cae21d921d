"""The pages: their links resolve, the files that they name exist, and the table of modules is the contract's."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
OTHERS = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md"]
PAGES = [*DOCS, *(ROOT / name for name in OTHERS)]
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")
FILE = re.compile(r"`((?:streamer|packages|tests|docs|deploy|benchmarks|migrations)/[\w./-]+)`")

YOURS = {"deploy/prometheus/targets/alertmanagers.yml"}
"""What a page asks its reader to write."""


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """The relative links of a page that lead nowhere."""
    found = []
    for link in LINK.findall(CODE.sub("", page.read_text("utf-8"))):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_resolves(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`: c\n[1](#a-b-c) [2](page.md#a-b-c) [3](https://x.y/z)\n[4](#a) [5](none.md) [6](page.md#b)\n"
    )
    assert broken_links(page) == ["#a", "none.md", "page.md#b"]


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = set(FILE.findall(page.read_text("utf-8"))) - YOURS
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_table_of_modules_is_that_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    wanted = {
        (str(len(layers) - place), module)
        for place, layer in enumerate(layers)
        for module in layer.split(" | ")
        if module != "__main__"
    }
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert set(re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)) == wanted


def test_the_pages_that_the_code_names_exist() -> None:
    named = {
        page
        for folder in ("streamer", "deploy", "benchmarks")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in {".py", ".yml", ".sh", ".json", ".html"}
        for page in re.findall(r"\bdocs/[\w/-]+\.md(?:#[\w-]+)?", file.read_text("utf-8"))
    }
    assert named
    for name, _, anchor in (page.partition("#") for page in sorted(named)):
        assert (ROOT / name).is_file()
        assert not anchor or anchor in anchors(ROOT / name)
