"""How `make site` makes pages of this repository's Markdown, with Sphinx."""

import re
from importlib import metadata

project = "streamer"
release = metadata.version("conformal-streamer")
html_title = f"{project} {release}"
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**", "**/README.md"]
exclude_patterns = [".*", "build", "dist", "site", "tests", "**/node_modules"]
suppress_warnings = ["toc.not_included"]  # such pages are reached by links
extensions = ["myst_parser"]
myst_heading_anchors = 6
html_theme = "furo"
templates_path = ["templates"]
_AFTER = ("search", "scroll-start", "navigation", "scroll-end")
html_sidebars = {"**": ["sidebar/brand.html", "versions.html", *(f"sidebar/{one}.html" for one in _AFTER)]}
html_show_copyright = False

_PAGE = re.compile(r"\]\(((?:\.\./)*[\w/-]+)\.md\)")


def setup(app):
    """Make the menu of the index: its headings, and under each the pages that it is the first to name."""
    app.connect("source-read", _menu)


def _menu(_, page, source):
    if page != root_doc:
        return
    seen = set()
    for part in source[0].split("\n## ")[1:]:
        fresh = [one for one in dict.fromkeys(_PAGE.findall(part)) if one not in seen]
        seen.update(fresh)
        menu = ["```{toctree}", ":hidden:", ":caption: " + part.partition("\n")[0], *fresh, "```"]
        source[0] += "\n\n" + "\n".join(menu)
