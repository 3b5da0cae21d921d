"""The page's three files: colours that can be told apart from what is behind them, and nothing from elsewhere."""

import re
from importlib.resources import files

import pytest

from streamer.web.plot import COMMON

FOLDER = files("streamer.review").joinpath("static")
STYLE = COMMON + FOLDER.joinpath("review.css").read_text(encoding="utf-8")
PAGE = FOLDER.joinpath("review.html").read_text(encoding="utf-8")
SCRIPT = FOLDER.joinpath("review.js").read_text(encoding="utf-8")

TEXT_ON = [
    *(("ink", behind) for behind in ("page", "card", "note")),
    *(("soft", behind) for behind in ("page", "card")),
    *(("on", behind) for behind in ("fine", "half", "worst")),
    ("odd", "odd-page"),
    ("odd", "card"),
]
EDGES = [("edge", "card"), ("edge", "page"), ("focus", "card"), ("focus", "page"), ("ink", "card")]


def colours(scheme: str) -> dict[str, str]:
    blocks = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)  # light and dark by turns
    shown = " ".join(blocks[::2] + (blocks[1::2] if scheme == "dark" else []))
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", shown))
    return found | {name: found[other] for name, other in re.findall(r"--(\w+): var\(--(\w+)\)", shown)}


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2.2."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_edges_have_the_contrast_of_wcag_aa(scheme: str) -> None:
    palette = colours(scheme)
    for text, behind in TEXT_ON:
        assert contrast(palette[text], palette[behind]) >= 4.5, (scheme, text, behind)
    for edge, behind in EDGES:
        assert contrast(palette[edge], palette[behind]) >= 3, (scheme, edge, behind)
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_nothing_comes_from_elsewhere_and_nothing_is_inline() -> None:
    named = re.findall(r'(?:src|href)="([^"]+)"', PAGE)
    assert sorted(named) == ["/", "/label", "icon.svg", "review.css", "review.js"]
    assert "<style" not in PAGE
    assert not re.search(r"\son\w+=|\sstyle=", PAGE)
    assert not re.search(r"https?://|@import|url\(", STYLE + SCRIPT)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", SCRIPT
    )


def test_every_key_of_the_buttons_is_explained_on_the_page_and_does_something() -> None:
    shown = set(re.findall(r'aria-keyshortcuts="(.)"', PAGE))
    assert shown == {"f", "h", "w", "r", "s", "u", "o", "?"}
    explained = PAGE[PAGE.index("<dialog") :]
    for key in shown - {"?"}:
        assert f"<dt><kbd>{key}</kbd></dt>" in explained
        assert re.search(rf"\b{key}: ", SCRIPT)
